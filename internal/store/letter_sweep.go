package store

import (
	"context"
	"errors"
	"time"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// unclaimedGrace is how long after the time that it was told a caller may come back.
const unclaimedGrace = 60_000_000 // microseconds

// SweepLetters is part of deadletter.Store.
func (s *Store) SweepLetters(ctx context.Context) (r deadletter.SweepReport, err error) {
	now := int64(s.clock.now())
	lost := []struct {
		reason string
		count  *int
		id     string // what the walk goes by
		where  string
		args   []any
	}{
		{deadletter.ReasonFailed, new(int), "c.id", `c.kind = 'event' and c.status = 'failed' and c.lettered < c.moves`, nil},
		// || keeps SQLite from the primary key: ended leases are found by their time.
		{deadletter.ReasonLeaseExpired, &r.LeaseExpired, "c.id || ''", `c.kind = 'event' and c.status = 'processing' and c.lease_until <= ? and c.lettered < c.moves`, []any{now}},
		{deadletter.ReasonNeverClaimed, &r.NeverClaimed, "c.id", `c.kind = 'event' and c.status = 'pending' and c.lettered < c.moves
			and (c.wait_until > 0 or c.due_at > 0) and c.wait_until <= ? and c.due_at <= ?`, []any{now - unclaimedGrace, now - unclaimedGrace}},
	}
	for _, l := range lost {
		if *l.count, err = s.sweepLost(ctx, l.reason, l.id, l.where, l.args); err != nil {
			return r, s.translate(err)
		}
	}
	if r.Ended, err = s.expireLetters(ctx); err == nil {
		r.Settled, err = s.settleCompleted(ctx)
	}
	if err == nil {
		r.Undone, err = s.sweepUndone(ctx)
	}
	if err == nil {
		err = s.sweepReplays(ctx)
	}
	return r, s.translate(err)
}

// sweepLost makes letters of events that nobody reports about, one at a time: each is complete by itself.
func (s *Store) sweepLost(ctx context.Context, reason, id, where string, args []any) (total int, err error) {
	after := ""
	for {
		claims, err := selectClaims(ctx, s.read, lean, leanSelect+"where "+where+" and "+id+" > ? order by "+id+" limit ?", append(append([]any{}, args...), after, page)...)
		if err != nil {
			return total, err
		}
		for i := range claims {
			c := &claims[i]
			after = c.ID
			if s.stopping.Load() || total >= lostAtOnce {
				return total, nil // the next pass goes on
			}
			err := s.retried(ctx, func(tx *sqlx.Tx) error { return s.loseWithPayload(ctx, tx, c, reason, s.clock.now()) })
			switch {
			case errors.Is(err, errStands):
			case err != nil:
				return total, err
			default:
				total++
			}
			c.Payload = nil
		}
		if len(claims) < page {
			return total, nil
		}
	}
}

// lostAtOnce bounds one pass: after an outage the leases of very many events end together.
const lostAtOnce = 2000

// errStands says that a claim has moved since the sweep read it: it is not lost, or will be found again.
var errStands = errors.New("store: the claim moved")

// lose makes or brings up to date the letter of a claim, as long as the claim is as it was read.
func (s *Store) lose(ctx context.Context, tx *sqlx.Tx, c *ledger.Claim, reason string, now ledger.Instant) error {
	n, err := affected(tx.ExecContext(ctx, tx.Rebind(`update claims set lettered = moves where id = ? and rev = ?`), c.ID, c.Rev))
	switch {
	case err != nil:
		return err
	case n == 0:
		return errStands
	}
	return s.loseLetter(ctx, tx, c, reason, now)
}

func (s *Store) loseLetter(ctx context.Context, tx *sqlx.Tx, c *ledger.Claim, reason string, now ledger.Instant) error {
	l, err := s.letterFor(ctx, tx, letterColumns, &deadletter.Report{}, c)
	if err != nil {
		return err
	}
	if err := s.leaveReplay(ctx, tx, l, c); err != nil {
		return err
	}
	ch := letterChange{whole: true}
	if l != nil {
		ch.base = l.Rev
	}
	ch.letter, ch.entry, ch.alert = deadletter.Lost(l, c, reason, deadletter.NewFresh(), now)
	if ch.entry.Kind == "" {
		return nil
	}
	return s.writeLetter(ctx, tx, &ch)
}

// expireLetters ends the leases whose time is over. Mostly there is none, which needs no writer: workers ask often.
func (s *Store) expireLetters(ctx context.Context) (total int, err error) {
	for {
		var over int
		if err := s.read.GetContext(ctx, &over, s.read.Rebind(`select count(*) from (select 1 from letters where status = 'replaying' and lease_until <= ? limit 1) as o`),
			int64(s.clock.now())); err != nil || over == 0 {
			return total, err
		}
		n := 0
		err := s.retried(ctx, func(tx *sqlx.Tx) error {
			query := leanLetters + "where l.status = 'replaying' and l.lease_until <= ? order by l.lease_until, l.id limit ?"
			if s.dialect.name == postgres.name {
				query += " for update of l skip locked"
			}
			now := s.clock.now()
			rows, err := selectRows(ctx, tx, leanLetter, query, int64(now), page)
			if n = len(rows); err != nil || n == 0 {
				return err
			}
			changes := make([]letterChange, n)
			for i := range rows {
				changes[i].base = rows[i].Rev
				changes[i].letter, changes[i].entry, changes[i].alert = deadletter.Expire(&rows[i], s.jitter(), now)
			}
			return s.writeLetters(ctx, tx, changes)
		})
		if total += n; err != nil || n < page || s.stopping.Load() {
			return total, err
		}
	}
}

// settlePage is how many letters one pass looks at.
const settlePage = 1000

// settleCompleted resolves open letters whose event was completed after all, which the completion itself does: this
// is for those that it did not know of. It walks all letters, a page at a time, from where it stopped.
func (s *Store) settleCompleted(ctx context.Context) (total int, err error) {
	var page []struct {
		ID     string `db:"id"`
		Status string `db:"status"`
		Reason string `db:"reason"`
		Claim  string `db:"claim_id"`
	}
	after, _ := s.settled.Load().(string)
	if err := s.read.SelectContext(ctx, &page, s.read.Rebind(`select id, status, reason, claim_id from letters where id > ? order by id limit ?`), after, settlePage); err != nil {
		return 0, err
	}
	next := ""
	if len(page) == settlePage {
		next = page[settlePage-1].ID
	}
	for _, l := range page {
		if s.stopping.Load() {
			return total, nil
		}
		if l.Claim == "" || !deadletter.Status(l.Status).Open() || l.Reason == deadletter.ReasonFailedAfter || l.Reason == deadletter.ReasonSettledLate {
			continue
		}
		var n int
		if err := s.read.GetContext(ctx, &n, s.read.Rebind(`select count(*) from claims where id = ? and kind = 'event' and status = 'completed'`), l.Claim); err != nil {
			return total, err
		}
		if n == 0 {
			continue
		}
		done, err := s.settleLetter(ctx, l.ID, deadletter.ReasonCompleted)
		if err != nil {
			return total, err
		}
		if done {
			total++
		}
	}
	s.settled.Store(next)
	return total, nil
}

// undoneGrace is how long after its worker said that all was done an event may take to say so itself.
const undoneGrace = 5 * time.Minute

// sweepUndone opens letters again whose worker resolved them although their event is not done: the workflow's webhook
// had answered, and the work was never done.
func (s *Store) sweepUndone(ctx context.Context) (total int, err error) {
	var ids []string
	if err := s.read.SelectContext(ctx, &ids, s.read.Rebind(`select id from letters where status = 'resolved' and reason = 'replayed' and claim_id <> '' and updated_at <= ?
		order by updated_at, id limit ?`), int64(s.clock.now().Add(-undoneGrace)), page); err != nil {
		return 0, err
	}
	for _, id := range ids {
		if s.stopping.Load() {
			break
		}
		err := s.retried(ctx, func(tx *sqlx.Tx) error {
			reopened, err := s.undo(ctx, tx, id)
			if reopened {
				total++
			}
			return err
		})
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

func (s *Store) undo(ctx context.Context, tx *sqlx.Tx, id string) (reopened bool, err error) {
	l, err := s.lockedLetter(ctx, tx, id)
	if err != nil || l == nil || l.Reason != deadletter.ReasonReplayed || l.Status != deadletter.Resolved {
		return false, err
	}
	c, err := s.claimOf(ctx, tx, l)
	if err != nil {
		return false, err
	}
	ch := letterChange{base: l.Rev}
	var wait bool
	if ch.letter, ch.entry, ch.alert, wait = deadletter.Undone(l, c, s.jitter(), s.clock.now()); wait {
		return false, nil
	}
	return ch.letter.Status.Open(), s.writeLetter(ctx, tx, &ch)
}

func (s *Store) settleLetter(ctx context.Context, id, reason string) (done bool, err error) {
	err = s.retried(ctx, func(tx *sqlx.Tx) error {
		l, err := s.lockedLetter(ctx, tx, id)
		if done = err == nil && l != nil && l.Status.Open(); !done {
			return err
		}
		ch := letterChange{base: l.Rev}
		ch.letter, ch.entry = deadletter.Settle(l, reason, sweeper, s.clock.now())
		return s.writeLetter(ctx, tx, &ch)
	})
	return done, err
}
