package store

import (
	"context"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/ledger"
)

// clock tells the database's time: measured now and then, and carried on in between by this process's
// monotonic clock, so that replicas whose own clocks are wrong or jump decide alike.
type clock struct {
	dialect dialect
	db      *sqlx.DB
	fixed   func() time.Time // of a test

	mu   sync.RWMutex
	base ledger.Instant
	at   time.Time // carries the monotonic reading
}

func newClock(d dialect, db *sqlx.DB, fixed func() time.Time) *clock {
	return &clock{dialect: d, db: db, fixed: fixed}
}

// measure asks the database for the time. The reading lies between the question and the answer.
func (c *clock) measure(ctx context.Context) error {
	before := time.Now()
	base := ledger.At(before)
	if c.dialect.now != "" {
		if err := c.db.GetContext(ctx, &base, c.dialect.now); err != nil {
			return err
		}
	}
	at := before.Add(time.Since(before) / 2)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base, c.at = base, at
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
