package store

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/ledger"
)

// LeaseUnknown is part of ledger.Store. An owner that asks again gets what it has not reported yet.
func (s *Store) LeaseUnknown(ctx context.Context, r *ledger.LookRequest) ([]ledger.Claim, error) {
	taken, err := s.leaseLooks(ctx, r)
	if err != nil {
		return nil, s.translate(err)
	}
	ctx, cancel := detached(ctx) // anew: what is leased is handed out, however long that took
	defer cancel()
	for i := range taken {
		c := &taken[i]
		if err := s.read.GetContext(ctx, &c.Payload, s.read.Rebind(`select payload from claims where id = ?`), c.ID); err != nil {
			return nil, s.translate(err)
		}
		if err := s.noteLook(ctx, r, c); err != nil {
			s.log.Warn("that somebody asks about unknown claims could not be noted", "cause", err)
		}
	}
	return taken, nil
}

func (s *Store) leaseLooks(ctx context.Context, r *ledger.LookRequest) (taken []ledger.Claim, err error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	if !r.Probe { // the sidecar itself sweeps
		if _, err := s.expireEffects(ctx, r.CallerKey); err != nil {
			return nil, err
		}
	}
	f, err := s.lookable(ctx, r)
	if f == nil || err != nil {
		return nil, err
	}
	if r.Owner != "" {
		held := f.copied()
		held.add("c.look_owner = ?", ledger.LookOwner(r))
		held.add("c.look_until > ?", int64(s.clock.now()))
		rows, err := selectClaims(ctx, s.write, lean, leanSelect+held.sql("order by c.unknown_since, c.id", int(r.Limit)-1), held.args...)
		if err != nil {
			return nil, err
		}
		if taken, _, err = s.takeOf(ctx, r, rows, len(rows)); len(taken) > 0 || err != nil {
			return taken, err
		}
	}
	return s.takeLooks(ctx, r, f)
}

// lookable are the unknown claims that a reconciler may hold now; nil: none. What is paused, and what a probe cannot
// get a permit for, is left out here, since it may stand in front of very many others.
func (s *Store) lookable(ctx context.Context, r *ledger.LookRequest) (*filter, error) {
	f := new(filter)
	f.add("c.status = 'unknown'")
	for _, of := range []struct{ column, value string }{
		{"c.id", r.ID}, {"c.source", r.Source}, {"c.source", r.Of.Source}, {"c.step", r.Of.Step}, {"c.destination", r.Of.Destination},
	} {
		f.text(of.column, of.value)
	}
	for _, m := range r.Except {
		without(f, m)
	}
	paused, err := s.readPauses(ctx, s.read)
	if err != nil || !unpaused(f, "c.", paused, s.clock.now()) {
		return nil, err
	}
	if !r.Probe {
		return f, nil
	}
	for _, name := range slices.Sorted(maps.Keys(s.limits)) {
		if !s.limits[name].LimitsLooks() {
			continue
		}
		p, err := s.seePlace(ctx, s.read, name)
		if err != nil {
			return nil, err
		}
		if p.limit.Look(&p.load, p.now) {
			continue
		}
		if err := s.keepTurn(ctx, f, p); err != nil || name == r.Of.Destination {
			return nil, err
		}
		f.add("c.destination <> ?", name)
	}
	return f, nil
}

// without leaves claims out.
func without(f *filter, m ledger.Match) {
	var these filter
	these.text("c.source", m.Source)
	these.text("c.step", m.Step)
	these.text("c.destination", m.Destination)
	f.add("not ("+strings.Join(these.where, " and ")+")", these.args...)
}

// past adds, in SQL since the others may be very many, that some columns lie back at least as long as the policy of
// their claim says.
func (s *Store) past(f *filter, now ledger.Instant, wait func(ledger.Policy) time.Duration, columns ...string) {
	before := func(p ledger.Policy) int64 { return int64(now.Add(-wait(p))) }
	others := before(s.policy.For("", ""))
	newest, cases, args := others, "", []any{}
	for _, of := range []struct {
		column string
		rules  map[string]ledger.Policy
	}{{"c.destination", s.policy.Destinations}, {"c.source", s.policy.Sources}} { // as Policies.For
		for _, name := range slices.Sorted(maps.Keys(of.rules)) {
			at := before(of.rules[name])
			cases += " when " + of.column + " = ? then cast(? as bigint)"
			newest, args = max(newest, at), append(args, name, at)
		}
	}
	for _, column := range columns {
		f.add(column+" <= ?", newest) // an index knows this one
		if cases != "" {
			f.add(column+" <= case"+cases+" else cast(? as bigint) end", append(slices.Clone(args), others)...)
		}
	}
}

// takeLooks walks the unknown claims, oldest first, until it holds as many as were asked for. A destination that has
// no permit left is left out from then on.
func (s *Store) takeLooks(ctx context.Context, r *ledger.LookRequest, f *filter) (taken []ledger.Claim, err error) {
	now := s.clock.now()
	f.add("c.next_look <= ?", int64(now))
	f.add("c.look_until <= ?", int64(now))
	s.past(f, now, func(p ledger.Policy) time.Duration { return p.AskAfter }, "c.unknown_since")
	var last ledger.Claim
	for {
		next := f.copied()
		next.add("(c.unknown_since, c.id) > (?, ?)", int64(last.UnknownSince), last.ID)
		rows, err := selectClaims(ctx, s.read, lean, leanSelect+next.sql("order by c.unknown_since, c.id", page-1), next.args...)
		var got []ledger.Claim
		var full map[string]bool
		if err == nil {
			got, full, err = s.takeOf(ctx, r, rows, int(r.Limit)-len(taken))
		}
		if taken = append(taken, got...); err != nil && len(taken) > 0 {
			s.log.Warn("not all unknown claims could be looked through", "cause", err)
			return taken, nil
		}
		if err != nil || len(taken) >= int(r.Limit) || len(rows) < page || full[r.Of.Destination] {
			return taken, err
		}
		for name := range full {
			f.add("c.destination <> ?", name)
		}
		last = rows[len(rows)-1]
	}
}

// takeOf leases up to limit of rows; one that another reconciler took meanwhile is left to it. full are the
// destinations that had no permit left.
func (s *Store) takeOf(ctx context.Context, r *ledger.LookRequest, rows []ledger.Claim, limit int) (taken []ledger.Claim, full map[string]bool, err error) {
	if len(rows) == 0 {
		return nil, nil, nil
	}
	err = s.retried(ctx, func(tx *sqlx.Tx) (err error) {
		full = map[string]bool{}
		taken, err = s.takeSome(ctx, tx, r, slices.Clone(rows), limit, full)
		return err
	})
	return taken, full, err
}

func (s *Store) takeSome(ctx context.Context, tx *sqlx.Tx, r *ledger.LookRequest, rows []ledger.Claim, limit int, full map[string]bool) (taken []ledger.Claim, err error) {
	places, err := s.lockLooked(ctx, tx, r, rows)
	if err != nil {
		return nil, err
	}
	now := s.clock.now()
	w := newWork(rows)
	var ids []string
	for i := range rows {
		if len(ids) == limit {
			break
		}
		out, ok := ledger.TakeLook(&rows[i], r, s.policyOf(&rows[i]), now)
		if p := places[rows[i].Destination]; ok && p != nil {
			if !p.limit.Look(&p.load, p.now) {
				full[p.name] = true
				continue
			}
			p.changed = true
			s.turns.took(p)
		}
		if ok {
			ids = append(ids, rows[i].ID)
		}
		if out.Write {
			w.put(&rows[i], &out.Claim, false)
		}
	}
	written, err := s.writeSome(ctx, tx, w)
	if err != nil {
		return nil, err
	}
	for _, p := range places {
		if err := s.savePlace(ctx, tx, p); err != nil {
			return nil, err
		}
	}
	for _, id := range ids {
		if _, changed := w.changes[id]; written[id] || !changed {
			taken = append(taken, *w.rows[id])
		}
	}
	return taken, nil
}

// lockLooked locks the limited destinations that a probe is about to ask; all take their locks in one order.
func (s *Store) lockLooked(ctx context.Context, tx *sqlx.Tx, r *ledger.LookRequest, rows []ledger.Claim) (map[string]*place, error) {
	places := map[string]*place{}
	for i := range rows {
		if name := rows[i].Destination; r.Probe && s.limits[name].LimitsLooks() {
			places[name] = nil
		}
	}
	for _, name := range slices.Sorted(maps.Keys(places)) {
		p, err := s.lockPlace(ctx, tx, name)
		if err != nil {
			return nil, err
		}
		places[name] = p
	}
	return places, nil
}
