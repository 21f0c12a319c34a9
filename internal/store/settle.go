package store

import (
	"context"

	"holdfast/internal/ledger"
)

// page is how many rows a sweep or a reconciler's lease looks at in one go.
const page = 200

// sweeper is who settles ended leases, in the history.
const sweeper = "holdfast"

// LeaseUnknown is part of ledger.Store. An owner that asks again gets what it has not reported yet.
func (s *Store) LeaseUnknown(ctx context.Context, r *ledger.LookRequest) ([]ledger.Claim, error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	if _, err := s.expireEffects(ctx, r.CallerKey); err != nil {
		return nil, s.translate(err)
	}
	held, err := s.heldLooks(ctx, r)
	if err != nil {
		return nil, s.translate(err)
	}
	taken, err := s.takeOf(ctx, r, held, len(held))
	if err == nil && len(taken) == 0 {
		taken, err = s.takeLooks(ctx, r)
	}
	if err != nil {
		return nil, s.translate(err)
	}
	return s.withPayloads(ctx, taken)
}

func (s *Store) heldLooks(ctx context.Context, r *ledger.LookRequest) ([]ledger.Claim, error) {
	if r.Owner == "" {
		return nil, nil
	}
	return selectClaims(ctx, s.write, lean, leanSelect+`where c.status = 'unknown' and c.look_owner = ? and c.look_until > ?
		and (? = '' or c.source = ?) order by c.unknown_since, c.id limit ?`,
		ledger.LookOwner(r), int64(s.clock.now()), r.Source, r.Source, r.Limit)
}

// takeLooks walks the unknown claims, oldest first, until it holds as many as were asked for.
func (s *Store) takeLooks(ctx context.Context, r *ledger.LookRequest) (taken []ledger.Claim, err error) {
	var since int64
	var id string
	for {
		rows, err := selectClaims(ctx, s.write, lean, leanSelect+`where c.status = 'unknown' and (c.unknown_since, c.id) > (?, ?)
			and c.next_look <= ? and c.look_until <= ? and (? = '' or c.source = ?) order by c.unknown_since, c.id limit ?`,
			since, id, int64(s.clock.now()), int64(s.clock.now()), r.Source, r.Source, page)
		if err != nil {
			return nil, err
		}
		got, err := s.takeOf(ctx, r, rows, int(r.Limit)-len(taken))
		if taken = append(taken, got...); err != nil || len(taken) >= int(r.Limit) || len(rows) < page {
			return taken, err
		}
		last := rows[len(rows)-1]
		since, id = int64(last.UnknownSince), last.ID
	}
}

// takeOf leases up to limit of rows; one that another reconciler took meanwhile is left to it.
func (s *Store) takeOf(ctx context.Context, r *ledger.LookRequest, rows []ledger.Claim, limit int) (taken []ledger.Claim, err error) {
	now := s.clock.now()
	w := newWork(rows)
	var ids []string
	for i := range rows {
		if len(ids) == limit {
			break
		}
		out, ok := ledger.TakeLook(&rows[i], r, s.policyOf(&rows[i]), now)
		if ok {
			ids = append(ids, rows[i].ID)
		}
		if out.Write {
			w.put(&rows[i], &out.Claim, false)
		}
	}
	stood, err := s.apply(ctx, w)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if stood(id) {
			taken = append(taken, *w.rows[id])
		}
	}
	return taken, nil
}

func (s *Store) withPayloads(ctx context.Context, claims []ledger.Claim) ([]ledger.Claim, error) {
	for i := range claims {
		if err := s.read.GetContext(ctx, &claims[i].Payload, s.read.Rebind(`select payload from claims where id = ?`), claims[i].ID); err != nil {
			return nil, s.translate(err)
		}
	}
	return claims, nil
}

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
	err = s.read.GetContext(ctx, &r.Overdue, s.read.Rebind(`select count(*) from claims where status = 'processing' and lease_until <= ?`), int64(s.clock.now()))
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
