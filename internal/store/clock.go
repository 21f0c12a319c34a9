package store

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/ledger"
)

// clock tells the database's time: measured now and then, and carried on in between by this process's
// monotonic clock, so that replicas whose own clocks are wrong or jump decide alike.
//
// With SQLite the database has no clock but this machine's. That one too is looked at only when it is measured:
// in between, setting it ends no lease and extends none. At the next measurement dates follow it, since a
// machine that starts with a wrong clock must not keep it until its next restart. A step forward then ends leases
// early, which is the side on which nothing is repeated: an effect becomes unknown and is asked about, an event
// may run again because its effects are claimed, and a receipt is believed all the same. A step back makes leases
// last longer by as much. Either is told in the log.
type clock struct {
	dialect dialect
	db      *sqlx.DB
	log     *slog.Logger
	fixed   func() time.Time // of a test
	wall    func() time.Time // this machine's; a test sets it wrong

	mu   sync.RWMutex
	base ledger.Instant
	at   time.Time // carries the monotonic reading; zero before the first measurement
}

// clockStep is how far a measurement may be from the time carried on before the log tells of it.
const clockStep = 2 * time.Second

func newClock(d dialect, db *sqlx.DB, log *slog.Logger, o Options) *clock {
	c := &clock{dialect: d, db: db, log: log, fixed: o.Now, wall: o.Wall}
	if c.wall == nil {
		c.wall = time.Now
	}
	return c
}

// measure asks the database for the time. It was read somewhere between the question and the answer; a pooler
// without a free connection can put many seconds between the two. So the answer only bounds the time carried on:
// what lies within the bounds stays, and the narrowest of all measurements is what counts.
func (c *clock) measure(ctx context.Context) error {
	asked := time.Now()
	told := ledger.At(c.wall())
	if c.dialect.now != "" {
		if err := c.db.GetContext(ctx, &told, c.dialect.now); err != nil {
			return err
		}
	}
	answered := time.Now()
	between := answered.Sub(asked)
	c.mu.Lock()
	defer c.mu.Unlock()
	carried := told.Add(between / 2)
	if !c.at.IsZero() {
		carried = c.base.Add(answered.Sub(c.at))
	}
	c.base, c.at = min(max(carried, told), told.Add(between)), answered
	if moved := c.base.Sub(carried); moved.Abs() > clockStep {
		c.log.Warn("the database's clock was set, or this machine stood still; leases now end by the new time", "moved", moved)
	}
	return nil
}

func (c *clock) now() ledger.Instant {
	if c.fixed != nil {
		return ledger.At(c.fixed())
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.base.Add(time.Since(c.at))
}
