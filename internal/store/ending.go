package store

import (
	"context"
	"errors"
	"slices"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/ledger"
)

// End is part of ledger.Store. With a refusal the Ended says where the claim stands.
func (s *Store) End(ctx context.Context, e *ledger.Ending) (ledger.Ended, error) {
	out, err := s.endings.do(ctx, e, len(e.Result))
	if errors.Is(err, errNeedsFacts) {
		out, err = s.alone(ctx, target(e), func(row *ledger.Claim, entity *ledger.EntityFacts, now ledger.Instant) (ledger.Ended, error) {
			return ledger.EndUnderEntity(row, e, s.policyOf(row), entity, now)
		}, e, false)
		if referenceTaken(err) {
			err = errReferenceTaken
		}
	}
	if err == nil && out.Err != nil {
		err = out.Err
	}
	return out, s.translate(err)
}

type endingCall = call[*ledger.Ending, ledger.Ended]

func (s *Store) runEndings(batch []*endingCall) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	for range tries {
		if len(batch) == 0 {
			return
		}
		batch = s.endSome(ctx, batch)
	}
	failAll(batch, ledger.ErrUnavailable)
}

func (s *Store) endSome(ctx context.Context, batch []*endingCall) []*endingCall {
	alone := func(one []*endingCall) []*endingCall { return s.endSome(ctx, one) }
	var t targets
	for _, c := range batch {
		one := target(c.q)
		t.ids, t.keys, t.references = append(t.ids, one.ids...), append(t.keys, one.keys...), append(t.references, one.references...)
	}
	rows, err := s.readTargets(ctx, s.write, t)
	if err != nil {
		return failed(batch, err, s.dialect.kindOf(err), alone)
	}
	now := s.clock.now()
	w := newWork(rows)
	for _, c := range batch {
		c.a, c.err = s.end(w, c.q, now)
	}
	stood, err := s.apply(ctx, w)
	if err != nil {
		if len(batch) == 1 && referenceTaken(err) {
			err = errReferenceTaken
		}
		return failed(batch, err, s.dialect.kindOf(err), alone)
	}
	return slices.DeleteFunc(slices.Clone(batch), func(c *endingCall) bool {
		id := c.a.Claim.ID
		return id == "" || stood(id)
	})
}

var errReferenceTaken = &ledger.Refusal{Code: ledger.KeyReused, Message: "reference belongs to another claim of this source: nothing was changed"}

func target(e *ledger.Ending) targets {
	switch {
	case e.ByToken:
		return targets{ids: []string{e.Token.ClaimID}}
	case e.RefKey != "":
		return targets{references: []reference{{e.Key.Source, e.RefKey}}}
	}
	return targets{keys: []ledger.Key{e.Key}}
}

// findFor gives the row that an ending names.
func (w *work) findFor(e *ledger.Ending) *ledger.Claim {
	switch {
	case e.ByToken:
		return w.rows[e.Token.ClaimID]
	case e.RefKey == "":
		return w.keys[e.Key]
	}
	for _, row := range w.rows {
		if row.Key.Source == e.Key.Source && row.Reference == e.RefKey {
			return row
		}
	}
	return nil
}

func (s *Store) end(w *work, e *ledger.Ending, now ledger.Instant) (ledger.Ended, error) {
	row := w.findFor(e)
	if row == nil {
		return ledger.Ended{}, ledger.ErrNotFound
	}
	out, err := ledger.End(row, e, s.policyOf(row), now)
	if err != nil {
		return ledger.Ended{}, err
	}
	if out.Changed && (out.Claim.Status == ledger.Completed && out.Claim.Entity != "" || e.Revives(row, now) || s.feeds(row, e, &out)) {
		return ledger.Ended{}, errNeedsFacts
	}
	w.note(e, &out)
	w.looked[row.ID] = out.Changed && e.Token.Look > 0
	if out.Write {
		w.put(row, &out.Claim, false)
	}
	return out, nil
}

func (w *work) note(e *ledger.Ending, out *ledger.Ended) {
	w.hearLook(e, out)
	if out.Late == nil {
		return
	}
	entry := ledger.HistoryEntry{ID: lateID(e, out.Late), ClaimID: out.Claim.ID, Transition: *out.Late}
	entry.At = max(entry.At, out.Claim.Last.At)
	w.notes[out.Claim.ID] = append(w.notes[out.Claim.ID], entry)
	w.alertReport(e, out)
}

// settling decides about one claim; the facts are nil where the claim has no entity.
type settling func(*ledger.Claim, *ledger.EntityFacts, ledger.Instant) (ledger.Ended, error)

// alone applies fn to one claim in its own transaction, under the lock of its entity if it has one, and of its
// destination where the report feeds a circuit.
// e is the report, where there is one; audit puts the transition into the history at once.
func (s *Store) alone(ctx context.Context, t targets, fn settling, e *ledger.Ending, audit bool) (out ledger.Ended, err error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	leave, err := s.queue(ctx)
	if err != nil {
		return out, err
	}
	defer leave()
	for range tries {
		err = s.inTx(ctx, func(tx *sqlx.Tx) (err error) {
			out, err = s.onlyOne(ctx, tx, t, fn, e, audit)
			return err
		})
		if !errors.Is(err, errMoved) && s.kind(err) != kindBusy {
			return out, err
		}
	}
	return out, ledger.ErrUnavailable
}

func (s *Store) onlyOne(ctx context.Context, tx *sqlx.Tx, t targets, fn settling, e *ledger.Ending, audit bool) (out ledger.Ended, err error) {
	rows, err := s.readTargets(ctx, tx, t)
	if err != nil {
		return out, err
	}
	if len(rows) == 0 {
		return out, ledger.ErrNotFound
	}
	w, row := newWork(rows), &rows[0]
	var facts *ledger.EntityFacts
	if row.Entity != "" {
		// Its lock comes before the row is written, as when it is claimed; otherwise the two could wait for each other.
		if facts, err = s.entityFacts(ctx, tx, entity{row.Key.Source, row.Key.Account, row.Entity}, s.clock.now()); err != nil {
			return out, err
		}
	}
	if out, err = fn(row, facts, s.clock.now()); err != nil {
		return out, err
	}
	if e != nil {
		if err := s.feed(ctx, tx, row, e, &out); err != nil {
			return out, err
		}
		w.note(e, &out)
		w.looked[row.ID] = out.Changed && e.Token.Look > 0
	}
	if out.Write {
		w.put(row, &out.Claim, audit)
	}
	if err := s.writeAll(ctx, tx, w); err != nil {
		return out, err
	}
	if err := s.moveLetters(ctx, tx, w.lettersOf()); err != nil {
		return out, err
	}
	if out.Changed && out.Claim.Status == ledger.Completed {
		return out, newestDone(ctx, tx, &out.Claim)
	}
	return out, nil
}

// Resolve is part of ledger.Store.
func (s *Store) Resolve(ctx context.Context, id string, r *ledger.Resolution) (ledger.Ended, error) {
	out, err := s.alone(ctx, targets{ids: []string{id}}, func(row *ledger.Claim, _ *ledger.EntityFacts, now ledger.Instant) (ledger.Ended, error) {
		return ledger.Resolve(row, r, s.policyOf(row), now)
	}, nil, true)
	return out, s.translate(err)
}
