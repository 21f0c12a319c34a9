package store

import (
	"context"

	"holdfast/internal/ledger"
)

// page is how many rows a sweep or a reconciler's lease looks at in one go.
const page = 200

// sweeper is who settles ended leases, in the history.
const sweeper = "holdfast"

// Sweep is part of ledger.Store. It also measures the database's clock anew.
func (s *Store) Sweep(ctx context.Context) (r ledger.SweepReport, err error) {
	if err := s.clock.measure(ctx); err != nil {
		return r, s.translate(err)
	}
	if r.Expired, err = s.expireEffects(ctx, sweeper); err != nil {
		return r, s.translate(err)
	}
	if r.Reviewed, err = s.reviewOld(ctx); err != nil {
		return r, s.translate(err)
	}
	now := s.clock.now()
	if err = s.read.GetContext(ctx, &r.Overdue, s.read.Rebind(`select count(*) from claims where status = 'processing' and lease_until <= ?`), int64(now)); err != nil {
		return r, s.translate(err)
	}
	since := now
	err = s.read.QueryRowxContext(ctx, s.read.Rebind(`select coalesce(min(unknown_since), ?), count(*), (select count(*) from claims where status = 'review')
		from claims where status = 'unknown'`), int64(now)).Scan((*int64)(&since), &r.Unknown, &r.InReview)
	r.OldestUnknown = now.Sub(since)
	return r, s.translate(err)
}

// expireEffects settles effects whose leases are over, however many. Each write repeats the revision that was
// read: what was completed meanwhile stays completed.
func (s *Store) expireEffects(ctx context.Context, by string) (int, error) {
	return s.sweep(ctx, "lease_until", `c.status = 'processing' and c.kind = 'effect'`, s.clock.now(),
		func(c *ledger.Claim, now ledger.Instant) bool {
			ledger.ExpireEffect(c, s.policyOf(c), now, by)
			return true
		})
}

// reviewOld brings unknown claims whose window is over before a person.
func (s *Store) reviewOld(ctx context.Context) (int, error) {
	return s.sweep(ctx, "window_from", `c.status = 'unknown' and c.window_from > 0`, s.clock.now().Add(-s.policy.ShortestWindow()),
		func(c *ledger.Claim, now ledger.Instant) bool { return ledger.Settle(c, s.policyOf(c), now, sweeper) })
}

// sweep applies move to the rows of a condition whose time has come by until, oldest first, page by page.
func (s *Store) sweep(ctx context.Context, column, condition string, until ledger.Instant, move func(*ledger.Claim, ledger.Instant) bool) (total int, err error) {
	query := leanSelect + "where " + condition + " and c." + column + " <= ? and (c." + column + ", c.id) > (?, ?) order by c." + column + ", c.id limit ?"
	var after ledger.Instant
	var id string
	for {
		rows, err := selectClaims(ctx, s.write, lean, query, int64(until), int64(after), id, page)
		if err != nil || len(rows) == 0 {
			return total, err
		}
		last := rows[len(rows)-1]
		after, id = last.WindowFrom, last.ID
		if column == "lease_until" {
			after = last.LeaseUntil
		}
		now := s.clock.now()
		w := newWork(rows)
		for i := range rows {
			moved := rows[i]
			if move(&moved, now) {
				w.put(&rows[i], &moved, false)
			}
		}
		n, err := s.applyCount(ctx, w)
		if total += n; err != nil || len(rows) < page {
			return total, err
		}
	}
}

func (s *Store) applyCount(ctx context.Context, w *work) (n int, err error) {
	if w.empty() {
		return 0, nil
	}
	stood, err := s.apply(ctx, w)
	if err != nil {
		return 0, err
	}
	for id := range w.changes {
		if stood(id) {
			n++
		}
	}
	return n, nil
}
