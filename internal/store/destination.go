package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// limited tells whether a destination has limits, so that work there needs a permit.
func (s *Store) limited(destination string) bool {
	return destination != "" && s.limits[destination].Limits()
}

// needsLocks tells whether a claim's decision depends on more than its row: on its entity, or on the limits of its
// destination.
func (s *Store) needsLocks(row *ledger.Claim, r *ledger.Request, now ledger.Instant) bool {
	return r.NeedsFacts(row, now) || s.limited(r.Place(row)) && ledger.Free(row, now)
}

// place is a destination whose row is locked. The locks come in one order everywhere: the entity, destinations by
// name, then the rows of claims and letters.
type place struct {
	name    string
	limit   ledger.Limit
	load    ledger.Load
	running ledger.Running
	now     ledger.Instant
	changed bool
}

// lockPlace takes the destination's lock and reads what its limits have counted. now is read under the lock: a
// permit counts from when it is given, not from when its caller began to wait for the lock.
func (s *Store) lockPlace(ctx context.Context, tx *sqlx.Tx, name string) (*place, error) {
	p := &place{name: name, limit: s.limits[name]}
	err := s.readPlace(ctx, tx, p, s.dialect.forUpdate)
	if errors.Is(err, sql.ErrNoRows) {
		if _, err = tx.ExecContext(ctx, tx.Rebind(`insert into destinations (name) values (?) on conflict do nothing`), name); err == nil {
			err = s.readPlace(ctx, tx, p, s.dialect.forUpdate)
		}
	}
	p.now = s.clock.now()
	p.load.Kept = s.turns.kept(name, p.now)
	p.changed = p.limit.Settle(&p.load, p.now)
	return p, err
}

// seePlace reads the same without the lock.
func (s *Store) seePlace(ctx context.Context, q querier, name string) (*place, error) {
	p := &place{name: name, limit: s.limits[name], now: s.clock.now()}
	p.load.Kept = s.turns.kept(name, p.now)
	err := s.readPlace(ctx, q, p, "")
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	p.limit.Settle(&p.load, p.now)
	return p, err
}

func (s *Store) readPlace(ctx context.Context, q querier, p *place, lock string) error {
	var grants string
	err := q.QueryRowxContext(ctx, q.Rebind(`select grants, failures, turned_at, open_until, probe_until from destinations where name = ?`+lock), p.name).
		Scan(&grants, &p.load.Failures, (*int64)(&p.load.TurnedAt), (*int64)(&p.load.OpenUntil), (*int64)(&p.load.ProbeUntil))
	if err != nil {
		return err
	}
	p.load.Grants, err = parseGrants(grants)
	return err
}

// room tells how many of wanted permits there are.
func (s *Store) room(ctx context.Context, tx *sqlx.Tx, p *place, wanted int64) (room ledger.Room, err error) {
	if p.limit.MaxConcurrency > 0 {
		if p.running, err = runningAt(ctx, tx, p.name, p.now); err != nil {
			return room, err
		}
	}
	return p.limit.Room(&p.load, p.running, wanted, p.now), nil
}

// held counts work that had to wait.
func (s *Store) held(p *place, room ledger.Room) {
	if room.Permits == 0 && s.observe.Held != nil {
		s.observe.Held(p.name, string(room.For))
	}
}

// runningAt counts the live leases at a destination. A letter whose whole workflow runs again is not among them:
// each step of it claims first and is counted by its claim, which must not wait for its own letter.
func runningAt(ctx context.Context, tx *sqlx.Tx, name string, now ledger.Instant) (run ledger.Running, err error) {
	err = tx.QueryRowxContext(ctx, tx.Rebind(`select count(*), coalesce(min(lease_until), 0) from (
		select lease_until from claims where status = 'processing' and destination <> '' and destination = ? and lease_until > ?
		union all
		select lease_until from letters where status = 'replaying' and destination <> '' and destination = ? and lease_until > ? and play = 'request') as live`),
		name, int64(now), name, int64(now)).Scan(&run.N, (*int64)(&run.Until))
	return run, err
}

// take uses n permits, each for as long as lease.
func (p *place) take(n int64, lease time.Duration) {
	p.limit.Take(&p.load, n, lease, p.now)
	p.changed = true
}

// savePlace writes what changed; the row has been locked since it was read.
func (s *Store) savePlace(ctx context.Context, tx *sqlx.Tx, p *place) error {
	if !p.changed {
		return nil
	}
	d := &p.load
	_, err := tx.ExecContext(ctx, tx.Rebind(`update destinations set grants = ?, failures = ?, turned_at = ?, open_until = ?, probe_until = ? where name = ?`),
		formatGrants(d.Grants), d.Failures, int64(d.TurnedAt), int64(d.OpenUntil), int64(d.ProbeUntil), p.name)
	return err
}

// feeds tells whether an ending tells a circuit something.
func (s *Store) feeds(row *ledger.Claim, e *ledger.Ending, out *ledger.Ended) bool {
	_, ok := e.Observe(row, out)
	return ok && s.circuited(row.Destination)
}

// circuited tells whether a destination has a circuit.
func (s *Store) circuited(destination string) bool {
	return destination != "" && s.limits[destination].Circuit.Failures > 0
}

// feed feeds the circuit of a claim's destination with a report, before the claim's row is written.
func (s *Store) feed(ctx context.Context, tx *sqlx.Tx, row *ledger.Claim, e *ledger.Ending, out *ledger.Ended) error {
	o, ok := e.Observe(row, out)
	if !ok || !s.circuited(row.Destination) {
		return nil
	}
	p, err := s.lockPlace(ctx, tx, row.Destination)
	if err != nil {
		return err
	}
	return s.observed(ctx, tx, p, o)
}

// observed feeds the circuit of a locked destination, and tells people when it opens: that alert's group is raised
// under this lock only.
func (s *Store) observed(ctx context.Context, tx *sqlx.Tx, p *place, o ledger.Observation) error {
	opened, changed := p.limit.Circuit.Observe(&p.load, o, p.now)
	p.changed = p.changed || changed
	if err := s.savePlace(ctx, tx, p); err != nil || !opened {
		return err
	}
	return s.raise(ctx, tx, &deadletter.Alert{
		Group: "circuit/" + p.name, Title: "The circuit of " + p.name + " opened",
		Text: fmt.Sprintf("%d attempts in a row failed at %s. Its claims wait; every %s one attempt is let through to see whether it is back.",
			p.load.Failures, p.name, p.limit.Circuit.OpenFor),
		Path: "/dlq?destination=" + p.name, At: p.now,
	})
}

// Grants are kept as text that people can read: TIME*COUNT, with a space between.
func formatGrants(log []ledger.Grants) string {
	var b strings.Builder
	for i, g := range log {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%d*%d", g.At, g.N)
	}
	return b.String()
}

func parseGrants(text string) ([]ledger.Grants, error) {
	var log []ledger.Grants
	for _, field := range strings.Fields(text) {
		at, n, _ := strings.Cut(field, "*")
		t, err := strconv.ParseInt(at, 10, 64)
		count, err2 := strconv.ParseInt(n, 10, 64)
		if err := errors.Join(err, err2); err != nil {
			return nil, fmt.Errorf("the grants of a destination cannot be read: %w", err)
		}
		log = append(log, ledger.Grants{At: ledger.Instant(t), N: count})
	}
	return log, nil
}
