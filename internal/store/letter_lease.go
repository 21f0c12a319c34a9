package store

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// LeaseLetters is part of deadletter.Store. An owner that asks again gets what it has not reported yet.
func (s *Store) LeaseLetters(ctx context.Context, r *deadletter.LeaseRequest) (out []deadletter.Letter, err error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	if _, err := s.expireLetters(ctx); err != nil {
		return nil, s.translate(err)
	}
	err = s.retried(ctx, func(tx *sqlx.Tx) (err error) {
		if out, err = s.heldLetters(ctx, tx, r); err != nil || len(out) > 0 {
			return err
		}
		out, err = s.takeLetters(ctx, tx, r)
		return err
	})
	if err != nil {
		return nil, s.translate(err)
	}
	slices.SortFunc(out, func(a, b deadletter.Letter) int { return strings.Compare(a.ID, b.ID) })
	for i := range out {
		if err := s.read.GetContext(ctx, &out[i].Payload, s.read.Rebind(`select payload from letters where id = ?`), out[i].ID); err != nil {
			return nil, s.translate(err)
		}
	}
	return out, nil
}

func (s *Store) heldLetters(ctx context.Context, tx *sqlx.Tx, r *deadletter.LeaseRequest) (out []deadletter.Letter, err error) {
	owner := deadletter.LeaseOwner(r)
	if owner == "" {
		return nil, nil
	}
	f := chosen(r)
	f.add("l.status = 'replaying'")
	f.add("l.lease_owner = ?", owner)
	now := s.clock.now()
	f.add("l.lease_until > ?", int64(now))
	rows, err := selectRows(ctx, tx, leanLetter, leanLetters+f.sql("order by l.next_retry_at, l.id", int(r.Limit)-1), f.args...)
	for i := range rows {
		if l, _, ok := deadletter.Take(&rows[i], r, now); ok {
			out = append(out, l)
		}
	}
	return out, err
}

func chosen(r *deadletter.LeaseRequest) *filter {
	var f filter
	f.text("l.workflow_id", r.WorkflowID)
	f.text("l.source", r.Source)
	f.text("l.destination", r.Destination)
	return &f
}

// undecided is what holds a letter back: a claim of its key, or an effect with a key of its own that its execution has
// claimed, that is being worked on or of which nobody knows how it ended. It costs the letter no attempt. Claims are
// found by key and execution: || keeps the databases from the indexes by status, which look short to a planner without
// fresh statistics, and are read anew for each letter.
const undecided = `not exists (select 1 from claims c where c.source = l.source and c.account = l.account and c.idempotency_key = l.idempotency_key
	and c.source <> '' and (c.status || '' = 'unknown' or c.status || '' = 'processing' and (c.lease_until > ? or c.kind = 'effect')))
	and not exists (select 1 from claims c where c.execution_id = l.execution_id and c.execution_id <> '' and c.workflow_id = l.workflow_id
	and c.kind = 'effect' and c.status || '' in ('unknown', 'processing'))`

// takeLetters leases due letters, oldest first. Rows that another worker is just taking are passed over.
func (s *Store) takeLetters(ctx context.Context, tx *sqlx.Tx, r *deadletter.LeaseRequest) (out []deadletter.Letter, err error) {
	paused, err := s.readPauses(ctx, tx)
	if err != nil {
		return nil, err
	}
	now := s.clock.now()
	f := chosen(r)
	f.add("l.status = 'queued'")
	f.add("l.next_retry_at <= ?", int64(now))
	if !unpaused(f, "l.", paused, now) {
		return nil, nil
	}
	crowded, err := s.crowded(ctx, tx)
	if err != nil {
		return nil, err
	}
	for _, destination := range crowded {
		f.add("l.destination <> ?", destination)
	}
	spent, err := s.spentReplays(ctx, tx, now)
	if err != nil {
		return nil, err
	}
	for _, id := range spent {
		f.add("l.replay_id <> ?", id)
	}
	f.add("(l.replay_id = '' or exists (select 1 from replays r where r.id = l.replay_id and r.status in ('sampling', 'running')))")
	if s.fetches {
		f.add("l.input_state <> 'wanted'") // until it is fetched, or nobody has it
	}
	f.add(undecided, int64(now))
	query := leanLetters + s.dueIndex(r) + f.sql("order by l.next_retry_at, l.id", int(r.Limit)-1)
	if s.dialect.name == postgres.name {
		query += " for update of l skip locked"
	}
	rows, err := selectRows(ctx, tx, leanLetter, query, f.args...)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	if rows, err = s.notCompleted(ctx, tx, rows, now); err != nil {
		return nil, err
	}
	if rows, err = s.fitting(ctx, tx, rows); err != nil {
		return nil, err
	}
	if rows, err = s.permitted(ctx, tx, rows, time.Duration(r.LeaseSeconds)*time.Second); err != nil {
		return nil, err
	}
	if rows, err = s.paced(ctx, tx, rows, now); err != nil {
		return nil, err
	}
	var changes []letterChange
	for i := range rows {
		if l, e, ok := deadletter.Take(&rows[i], r, now); ok {
			changes = append(changes, letterChange{base: rows[i].Rev, letter: l, entry: *e})
		}
	}
	if len(changes) == 0 {
		return nil, nil
	}
	if err := s.writeLetters(ctx, tx, changes); err != nil {
		return nil, err
	}
	for i := range changes {
		out = append(out, changes[i].letter)
	}
	return out, nil
}

// dueIndex is the index to read by. SQLite without statistics would rather take all queued letters and sort them.
func (s *Store) dueIndex(r *deadletter.LeaseRequest) string {
	switch {
	case s.dialect.name == postgres.name:
		return ""
	case r.WorkflowID != "":
		return "indexed by letters_due_workflow "
	case r.Source != "":
		return "indexed by letters_due_source "
	}
	return "indexed by letters_due "
}

// leaseBytes is how much the payloads of one batch may come to; a single letter may be larger.
const leaseBytes = 64 << 20

// fitting cuts a batch to what one answer can hold.
func (s *Store) fitting(ctx context.Context, tx *sqlx.Tx, letters []deadletter.Letter) ([]deadletter.Letter, error) {
	total := 0
	for i := range letters {
		var size int
		if err := tx.GetContext(ctx, &size, tx.Rebind(`select length(payload) from letters where id = ?`), letters[i].ID); err != nil {
			return nil, err
		}
		if total += size; i > 0 && total > leaseBytes {
			return letters[:i], nil
		}
	}
	return letters, nil
}

// unpaused leaves out what is paused; false when all is.
func unpaused(f *filter, table string, paused pauses, now ledger.Instant) bool {
	columns := map[string]string{"source": "source", "destination": "destination", "workflow": "workflow_id"}
	for scope := range paused {
		if ledger.PauseWait(paused, []string{scope}, now) == 0 {
			continue
		}
		kind, name, _ := strings.Cut(scope, ".")
		if kind == "all" {
			return false
		}
		f.add(table+columns[kind]+" <> ?", name)
	}
	return true
}

// notCompleted settles letters whose event was completed after all, instead of handing them out.
func (s *Store) notCompleted(ctx context.Context, tx *sqlx.Tx, letters []deadletter.Letter, now ledger.Instant) (rest []deadletter.Letter, err error) {
	var t targets
	for i := range letters {
		if letters[i].ClaimID != "" {
			t.ids = append(t.ids, letters[i].ClaimID)
		}
	}
	claims, err := s.readTargets(ctx, tx, t)
	if err != nil {
		return nil, err
	}
	w := newWork(claims)
	for i := range letters {
		l := &letters[i]
		c := w.rows[l.ClaimID]
		if c == nil || c.Kind != ledger.Event || c.Status != ledger.Completed {
			rest = append(rest, *l)
			continue
		}
		ch := letterChange{base: l.Rev}
		ch.letter, ch.entry = deadletter.Settle(l, deadletter.ReasonCompleted, sweeper, now)
		if err := s.writeLetter(ctx, tx, &ch); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// EndLetter is part of deadletter.Store.
func (s *Store) EndLetter(ctx context.Context, id string, e *deadletter.Ending) (out deadletter.Ended, err error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	err = s.retried(ctx, func(tx *sqlx.Tx) error {
		l, err := s.lockedLetter(ctx, tx, id)
		if err != nil {
			return err
		}
		if l == nil {
			return ledger.ErrNotFound
		}
		now := s.clock.now()
		if out, err = deadletter.End(l, e, now); err != nil || !out.Write {
			return err
		}
		if e.Verb == deadletter.Requeue {
			if err := s.mayRequeue(ctx, tx, l); err != nil {
				out = deadletter.Ended{Letter: *l}
				return err
			}
		}
		if err := s.observeLetter(ctx, tx, l, e, &out); err != nil {
			return err
		}
		ch := letterChange{base: l.Rev, letter: out.Letter, alert: out.Alert, failed: e.Verb == deadletter.Fail && !e.NotNow}
		if out.Entry != nil {
			ch.entry = *out.Entry
		}
		if err := s.writeLetter(ctx, tx, &ch); err != nil {
			return err
		}
		out.Letter = ch.letter
		if !e.ByToken && out.Changed {
			return s.act(ctx, tx, now, actOnLetter(e.Verb, id), e.AuthorizedBy, e.Reason)
		}
		return nil
	})
	if err == nil && out.Write && out.Letter.ReplayID != "" && out.Letter.Status == deadletter.Queued {
		// Its replay may have ended meanwhile, and let it go.
		var l *deadletter.Letter
		if l, err = readLetter(ctx, s.read, leanLetter, "l.id = ?", id); err == nil && l != nil {
			out.Letter = *l
		}
	}
	return out, s.translate(err)
}

// mayRequeue refuses to queue a letter that a run would do nothing for, or that has its turn in a replay.
func (s *Store) mayRequeue(ctx context.Context, tx *sqlx.Tx, l *deadletter.Letter) error {
	waits, err := s.waitsInReplay(ctx, tx, l)
	if err != nil {
		return err
	}
	if waits {
		return deadletter.InReplay(l)
	}
	c, err := s.claimOf(ctx, tx, l)
	if err != nil {
		return err
	}
	return deadletter.Runnable(l, c)
}

// claimOf is the claim that a letter belongs to; nil where it has none, or retention took it.
func (s *Store) claimOf(ctx context.Context, q querier, l *deadletter.Letter) (*ledger.Claim, error) {
	if l.ClaimID == "" {
		return nil, nil
	}
	claims, err := s.readTargets(ctx, q, targets{ids: []string{l.ClaimID}})
	if err != nil || len(claims) == 0 {
		return nil, err
	}
	return &claims[0], nil
}
