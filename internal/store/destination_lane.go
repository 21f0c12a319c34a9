package store

import (
	"context"
	"slices"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/ledger"
)

// Claims at one destination with limits share a lane: they would only wait for each other at its row, each with a
// connection in its hand. A batch takes the row's lock once and is decided in the order of arrival.

func (s *Store) newPlaces() map[string]*lane[*ledger.Request, ledger.Verdict] {
	places := map[string]*lane[*ledger.Request, ledger.Verdict]{}
	for name := range s.limits {
		if s.limited(name) {
			places[name] = newLane("destination", 1, s.observe.Batch, func(batch []*claimCall) { s.runAt(name, batch) })
		}
	}
	return places
}

func (s *Store) runAt(name string, batch []*claimCall) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	for range tries {
		if len(batch) == 0 {
			return
		}
		batch = s.claimAt(ctx, name, batch)
	}
	failAll(batch, ledger.ErrUnavailable)
}

// claimAt decides a batch under the destination's lock, and returns the calls whose rows moved meanwhile. Permits of
// those stay used: rather too few than too many.
func (s *Store) claimAt(ctx context.Context, name string, batch []*claimCall) []*claimCall {
	var w *work
	var written map[string]bool
	err := s.inTx(ctx, func(tx *sqlx.Tx) error {
		p, err := s.lockPlace(ctx, tx, name)
		if err != nil {
			return err
		}
		rows, err := s.readTargets(ctx, tx, claimTargets(batch))
		if err != nil {
			return err
		}
		paused, err := s.readPauses(ctx, tx)
		if err != nil {
			return err
		}
		if _, err := s.room(ctx, tx, p, 1); err != nil { // counts what is under way
			return err
		}
		w = newWork(rows)
		for _, c := range batch {
			c.a, c.err = s.decideBeside(w, p, c.q, paused)
		}
		if written, err = s.writeSome(ctx, tx, w); err != nil {
			return err
		}
		return s.savePlace(ctx, tx, p)
	})
	if err != nil {
		return failed(batch, err, s.dialect.kindOf(err), func(one []*claimCall) []*claimCall { return s.claimAt(ctx, name, one) })
	}
	return slices.DeleteFunc(slices.Clone(batch), func(c *claimCall) bool {
		_, changed := w.changes[c.a.Claim.ID]
		return c.a.Claim.ID == "" || written[c.a.Claim.ID] || !changed && !w.isNew(c.a.Claim.ID)
	})
}

// decideBeside decides one call over the rows, and what is left of the destination, as the calls before it have left
// them.
func (s *Store) decideBeside(w *work, p *place, r *ledger.Request, paused pauses) (ledger.Verdict, error) {
	row := w.find(r.ClaimID, r.Key)
	if row == nil && r.ClaimID != "" {
		return ledger.Verdict{}, ledger.ErrNotFound
	}
	if r.NeedsFacts(row, p.now) {
		return ledger.Verdict{}, errNeedsFacts
	}
	f := s.facts(row, r, p.now)
	f.Pause = ledger.PauseWait(paused, r.Scopes(row), p.now)
	free := ledger.Free(row, p.now)
	room := p.limit.Room(&p.load, p.running, 1, p.now)
	if free {
		f.Pause = max(f.Pause, room.Wait)
	}
	v, err := ledger.Decide(row, r, f)
	if err != nil {
		v.Claim.ID = row.ID // the refusal stands only if the row does; a new row is never refused
		return v, err
	}
	switch {
	case free && v.Decision == ledger.Proceed:
		p.take(1, v.Claim.LeaseUntil.Sub(p.now))
		p.begin(v.Claim.LeaseUntil)
	case free && v.Decision == ledger.Wait:
		s.held(p, room)
	}
	if v.Changed {
		w.put(row, &v.Claim, false)
	}
	return v, nil
}

// begin counts one more lease at the destination.
func (p *place) begin(until ledger.Instant) {
	if p.running.N == 0 || until < p.running.Until {
		p.running.Until = until
	}
	p.running.N++
}
