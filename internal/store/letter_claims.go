package store

import (
	"context"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// What becomes of a claim moves its letter in the same transaction: an event that failed has one, an event that
// completed after all needs none, and an effect that was settled while its run holds no open event may have left the
// rest of that run undone.

// lettersOf picks the changes that concern a letter.
func (w *work) lettersOf() (out []ledger.Claim) {
	for _, ch := range w.changes {
		c := &ch.claim
		failed := c.Status == ledger.Failed && c.Lettered < c.Moves
		completed := c.Status == ledger.Completed && (c.Kind == ledger.Event && c.Lettered > 0 || c.Kind == ledger.Effect && w.looked[c.ID])
		if failed || completed {
			out = append(out, *c)
		}
	}
	return out
}

func (s *Store) moveLetters(ctx context.Context, tx *sqlx.Tx, claims []ledger.Claim) error {
	now := s.clock.now()
	for i := range claims {
		if err := s.moveLetter(ctx, tx, &claims[i], now); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) moveLetter(ctx context.Context, tx *sqlx.Tx, c *ledger.Claim, now ledger.Instant) error {
	switch {
	case c.Kind == ledger.Event && c.Status == ledger.Completed:
		return s.settleOf(ctx, tx, c, now)
	case c.Kind == ledger.Event:
		return s.loseWithPayload(ctx, tx, c, deadletter.ReasonFailed, now)
	}
	open, err := s.runIsOpen(ctx, tx, c)
	if err != nil || open {
		return err
	}
	return s.loseWithPayload(ctx, tx, c, deadletter.ReasonSettledLate, now)
}

func (s *Store) loseWithPayload(ctx context.Context, tx *sqlx.Tx, c *ledger.Claim, reason string, now ledger.Instant) error {
	if len(c.Payload) == 0 {
		if err := tx.GetContext(ctx, &c.Payload, tx.Rebind(`select payload from claims where id = ?`), c.ID); err != nil {
			return err
		}
	}
	return s.lose(ctx, tx, c, reason, now)
}

// settleOf resolves the open letter of an event that is done.
func (s *Store) settleOf(ctx context.Context, tx *sqlx.Tx, c *ledger.Claim, now ledger.Instant) error {
	l, err := s.letterFor(ctx, tx, leanLetter, &deadletter.Report{}, c)
	if err != nil || l == nil || !l.Status.Open() {
		return err
	}
	ch := letterChange{base: l.Rev}
	ch.letter, ch.entry = deadletter.Settle(l, deadletter.ReasonCompleted, sweeper, now)
	return s.writeLetter(ctx, tx, &ch)
}

// runIsOpen tells whether the execution that claimed an effect still has an event to end: that event's own letter
// then stands for the rest of the run.
func (s *Store) runIsOpen(ctx context.Context, tx *sqlx.Tx, c *ledger.Claim) (bool, error) {
	var n int
	err := tx.GetContext(ctx, &n, tx.Rebind(`select count(*) from (select 1 from claims where kind = 'event' and status <> 'completed' and status <> 'stale'
		and (source = ? and account = ? and idempotency_key = ? or execution_id = ? and execution_id <> '' and workflow_id = ?) limit 1) as o`),
		c.Key.Source, c.Key.Account, c.Key.IdempotencyKey, c.Origin.ExecutionID, c.Origin.WorkflowID)
	return n > 0, err
}
