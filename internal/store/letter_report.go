package store

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"slices"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

var _ deadletter.Store = (*Store)(nil)

// Report is part of deadletter.Store. Reports that race for one letter are taken one after the other.
func (s *Store) Report(ctx context.Context, r *deadletter.Report) (l deadletter.Letter, duplicate bool, err error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	err = s.retried(ctx, func(tx *sqlx.Tx) (err error) {
		l, duplicate, err = s.report(ctx, tx, r)
		return err
	})
	return l, duplicate, s.translate(err)
}

// retried runs a transaction again as long as a row that it read has moved before it was written.
func (s *Store) retried(ctx context.Context, fn func(tx *sqlx.Tx) error) error {
	leave, err := s.queue(ctx)
	if err != nil {
		return err
	}
	defer leave()
	for range tries {
		err := s.inTx(ctx, fn)
		if !errors.Is(err, errMoved) && s.kind(err) != kindBusy {
			return err
		}
	}
	return ledger.ErrUnavailable
}

// subject is a claim that a report is about, nil where the execution holds none.
type subject struct {
	claim     *ledger.Claim
	holds     bool
	completed bool
	ended     bool  // the report has ended its lease
	told      int64 // how many of the claim's transitions its letter knows of with this report
}

func (s *Store) report(ctx context.Context, tx *sqlx.Tx, r *deadletter.Report) (first deadletter.Letter, duplicate bool, err error) {
	if err := s.lockRuns(ctx, tx, r); err != nil {
		return first, false, err
	}
	now := s.clock.now()
	subjects, err := s.subjects(ctx, tx, r, now)
	if err != nil {
		return first, false, err
	}
	workflow := r.WorkflowID
	if workflow == "" && subjects[0].claim != nil {
		workflow = subjects[0].claim.Origin.WorkflowID // the claim knows whose execution it is
	}
	linked, counted, err := s.linked(ctx, tx, r, workflow)
	if err != nil {
		return first, false, err
	}
	for i, sub := range subjects {
		if err := s.loadPayload(ctx, tx, sub.claim); err != nil {
			return first, false, err
		}
		f := deadletter.Facts{Now: now, Claim: sub.claim, HoldsClaims: sub.holds, Completed: sub.completed, Ended: sub.ended, Counted: counted}
		l, known, err := s.reportOne(ctx, tx, r, f, linked)
		if err == nil && !known && sub.claim != nil {
			err = markLettered(ctx, tx, sub.claim, sub.told)
		}
		if err != nil {
			return first, false, err
		}
		if i == 0 {
			first, duplicate = l, known
			linked = nil // one letter goes on with what was retried, the other events have their own
		}
		if sub.claim != nil {
			sub.claim.Payload = nil // payloads are large, and there may be many
		}
	}
	return first, duplicate, s.joinChild(ctx, tx, r, &first)
}

// joinChild settles the letter that a child has of its own where its parent's report has found another: the child had
// reported first, before anybody knew whose it was. The failure has one letter.
func (s *Store) joinChild(ctx context.Context, tx *sqlx.Tx, r *deadletter.Report, parent *deadletter.Letter) error {
	if r.ChildExecutionID == "" {
		return nil
	}
	of := *r
	of.ExecutionID, of.RetryOf, of.ParentExecutionID = "", "", ""
	child, _, err := s.linked(ctx, tx, &of, "")
	if err != nil || child == nil || child.ID == parent.ID || child.ClaimID != "" || !child.Status.Open() {
		return err
	}
	ch := letterChange{base: child.Rev}
	ch.letter, ch.entry = deadletter.Settle(child, deadletter.ReasonJoined, sweeper, s.clock.now())
	return s.writeLetter(ctx, tx, &ch)
}

// lockRuns lets reports that name one execution pass one after the other: a child and its parent fail at the same
// moment, and the report of each must see the letter that the other has made. SQLite has one writer anyway.
func (s *Store) lockRuns(ctx context.Context, tx *sqlx.Tx, r *deadletter.Report) error {
	if s.dialect.name != postgres.name {
		return nil
	}
	var locks []int64
	for _, execution := range []string{r.ExecutionID, r.RetryOf, r.ParentExecutionID, r.ChildExecutionID} {
		if execution != "" {
			h := fnv.New64a()
			_, _ = h.Write([]byte("run " + execution))
			locks = append(locks, int64(h.Sum64())) //nolint:gosec // any 64 bits will do
		}
	}
	slices.Sort(locks) // all take them in one order
	for _, lock := range slices.Compact(locks) {
		if _, err := tx.ExecContext(ctx, `select pg_advisory_xact_lock($1)`, lock); err != nil {
			return err
		}
	}
	return nil
}

// reportOne brings one letter up to date, or makes it.
func (s *Store) reportOne(ctx context.Context, tx *sqlx.Tx, r *deadletter.Report, f deadletter.Facts, linked *deadletter.Letter) (deadletter.Letter, bool, error) {
	l, err := s.letterFor(ctx, tx, letterColumns, r, f.Claim)
	if err != nil {
		return deadletter.Letter{}, false, err
	}
	if l == nil && linked != nil && linked.Adopts(f) {
		l = linked
	}
	ch := letterChange{whole: true}
	if l == nil {
		ch.letter, ch.entry, ch.alert = deadletter.New(r, f)
	} else {
		entries, err := selectRows(ctx, tx, letterEntryColumns, entrySelect+`where e.letter_id = ? and e.kind = 'report'
			and (e.digest = ? or e.execution_id = ? and e.execution_id <> '') limit 10`, l.ID, value(&r.Digest), r.ExecutionID)
		if err != nil {
			return deadletter.Letter{}, false, err
		}
		if deadletter.Known(l, r, entries) {
			return *l, true, nil
		}
		if err := s.leaveReplay(ctx, tx, l, f.Claim); err != nil {
			return deadletter.Letter{}, false, err
		}
		ch.base = l.Rev
		ch.letter, ch.entry, ch.alert = deadletter.Again(l, r, f)
	}
	if err := s.writeLetter(ctx, tx, &ch); err != nil {
		return deadletter.Letter{}, false, err
	}
	return ch.letter, false, nil
}

// letterFor finds the letter of a claim, or of a report without one. A letter of a run that had claimed nothing may
// have come to a claim later, and keeps its identity.
func (s *Store) letterFor(ctx context.Context, tx *sqlx.Tx, columns []letterColumn, r *deadletter.Report, c *ledger.Claim) (*deadletter.Letter, error) {
	l, err := readLetter(ctx, tx, columns, "l.identity = ?"+s.dialect.forUpdate, deadletter.Identity(r, c))
	if l == nil && err == nil && c != nil {
		l, err = readLetter(ctx, tx, columns, "l.claim_id = ? and l.claim_id <> ''"+s.dialect.forUpdate, c.ID)
	}
	return l, err
}

// markLettered notes that the claim has a letter, which knows of so many of its transitions.
func markLettered(ctx context.Context, q querier, c *ledger.Claim, told int64) error {
	_, err := q.ExecContext(ctx, q.Rebind("update claims set lettered = ? where id = ? and lettered < ?"), told, c.ID, told)
	return err
}

// lessOne is what the letter of a claim knows while another run holds the claim: how that run ends is still to come.
func lessOne(c *ledger.Claim) int64 { return max(1, c.Moves-1) }

// subjects ends the leases of the events that the execution holds, and tells which claims the report is about: each
// open event, else the event that it has completed, else the event that another execution has taken over from it, whose
// lease is left alone, else its first effect.
func (s *Store) subjects(ctx context.Context, tx *sqlx.Tx, r *deadletter.Report, now ledger.Instant) ([]subject, error) {
	execution := r.ExecutionID
	claims, err := s.claimsOf(ctx, tx, r.WorkflowID, execution)
	if err == nil && len(claims) == 0 && !r.Handler && r.ChildExecutionID != "" {
		// The child has failed as well, with or without a report of its own.
		execution = r.ChildExecutionID
		claims, err = s.claimsOf(ctx, tx, r.ChildWorkflowID, execution)
	}
	if err == nil && len(claims) == 0 && !r.Handler && r.ParentExecutionID != "" {
		return s.parents(ctx, tx, r)
	}
	if err != nil || len(claims) == 0 {
		return []subject{{}}, err
	}
	w := newWork(claims)
	ended := &ledger.Ending{Verb: ledger.MarkFailed, CallerKey: r.CallerKey, HTTPStatus: int64(r.Verdict.HTTPStatus), ErrorClass: string(r.Verdict.Class), Message: r.Message}
	var open, completed, lost, effects []subject
	for i := range claims {
		c := &claims[i]
		mine := c.Origin.ExecutionID == execution
		failed, ok := ledger.Reported(c, ended, execution, now)
		if ok {
			w.put(c, &failed, false)
		}
		switch {
		case c.Kind == ledger.Effect:
			effects = append(effects, subject{claim: c, holds: true, told: c.Moves})
		case c.Status == ledger.Completed:
			completed = append(completed, subject{claim: c, holds: true, completed: true, told: c.Moves})
		case mine:
			open = append(open, subject{claim: c, holds: true, ended: ok, told: c.Moves})
		default:
			lost = append(lost, subject{claim: c, holds: true, told: lessOne(c)})
		}
	}
	if err := s.writeAll(ctx, tx, w); err != nil {
		return nil, err
	}
	switch {
	case r.Handler: // it has its own letter; those of its events are the sweep's to make
		return []subject{{}}, nil
	case len(open) > 0:
		return open[:min(len(open), lettersAtOnce)], nil
	case len(completed) > 0:
		return completed[:1], nil
	case len(lost) > 0:
		return lost[:1], nil
	case r.ParentExecutionID != "":
		// A step of its parent's: where the parent holds the event, both report one failure.
		if parents, err := s.parents(ctx, tx, r); err != nil || parents[0].claim != nil && parents[0].claim.Kind == ledger.Event {
			return parents, err
		}
	}
	return effects[:1], nil
}

// lettersAtOnce bounds one report's transaction: a run may have claimed thousands of events. All their leases end at
// once; the letters of the others are the sweep's to make.
const lettersAtOnce = 100

// parents links the failure of a child to the claim that its parent holds. The parent may go on in spite of it, so
// its lease stays; when it fails as well, its report finds the same letter.
func (s *Store) parents(ctx context.Context, tx *sqlx.Tx, r *deadletter.Report) ([]subject, error) {
	claims, err := s.claimsOf(ctx, tx, "", r.ParentExecutionID)
	if err != nil || len(claims) == 0 {
		return []subject{{}}, err
	}
	at := max(0, slices.IndexFunc(claims, func(c ledger.Claim) bool { return c.Kind == ledger.Event && c.Status != ledger.Completed }))
	c := &claims[at]
	return []subject{{claim: c, holds: true, completed: c.Kind == ledger.Event && c.Status == ledger.Completed, told: lessOne(c)}}, nil
}

func (s *Store) loadPayload(ctx context.Context, tx *sqlx.Tx, c *ledger.Claim) error {
	if c == nil {
		return nil
	}
	return tx.GetContext(ctx, &c.Payload, tx.Rebind(`select payload from claims where id = ?`), c.ID)
}

// claimsOf finds the claims that an execution made, now or in an attempt that others have followed. Execution ids
// are small numbers that two n8n have in common: the workflow must agree where both sides name one.
func (s *Store) claimsOf(ctx context.Context, tx *sqlx.Tx, workflow, execution string) ([]ledger.Claim, error) {
	if execution == "" {
		return nil, nil
	}
	// Locked in the order of ids, as endings write them, and before any letter: an ending takes its claim first too.
	claims, err := selectClaims(ctx, tx, lean, leanSelect+`where c.execution_id = ? and c.execution_id <> '' and (c.workflow_id = ? or c.workflow_id = '' or ? = '') order by c.id`+
		s.dialect.forUpdate, execution, workflow, workflow)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(claims, func(a, b ledger.Claim) int { return cmp.Compare(a.FirstAt, b.FirstAt) })
	var ids []string
	if err := sqlx.SelectContext(ctx, tx, &ids, tx.Rebind(`select distinct claim_id from history where execution_id = ? and execution_id <> '' and claim_id <> ''`), execution); err != nil {
		return nil, err
	}
	ids = slices.DeleteFunc(ids, func(id string) bool {
		return slices.ContainsFunc(claims, func(c ledger.Claim) bool { return c.ID == id })
	})
	if len(ids) == 0 {
		return claims, nil
	}
	older, err := s.readTargets(ctx, tx, targets{ids: ids})
	for _, c := range older {
		if c.Origin.WorkflowID == workflow || c.Origin.WorkflowID == "" || workflow == "" {
			claims = append(claims, c)
		}
	}
	return claims, err
}

// linked finds the letter that a report belongs to by its executions: the one that it retried, its parent's or its
// child's. counted is true where both report one failure.
func (s *Store) linked(ctx context.Context, tx *sqlx.Tx, r *deadletter.Report, workflow string) (l *deadletter.Letter, counted bool, err error) {
	if r.Handler {
		return nil, false, nil
	}
	for _, link := range []struct {
		workflow, execution string
		counted             bool
	}{{workflow, r.ExecutionID, true}, {workflow, r.RetryOf, false}, {"", r.ParentExecutionID, true}, {r.ChildWorkflowID, r.ChildExecutionID, true}} {
		if link.execution == "" {
			continue
		}
		var ids []string
		if err := sqlx.SelectContext(ctx, tx, &ids, tx.Rebind(`select letter_id from letter_entries where execution_id = ? and execution_id <> '' and kind = 'report'
			and (workflow_id = ? or ? = '') order by at desc, letter_id limit 1`), link.execution, link.workflow, link.workflow); err != nil {
			return nil, false, err
		}
		if len(ids) == 0 {
			continue
		}
		l, err := readLetter(ctx, tx, letterColumns, "l.id = ?"+s.dialect.forUpdate, ids[0])
		if err == nil && l != nil && deadletter.OtherRun(l, r) {
			continue
		}
		return l, link.counted, err
	}
	return nil, false, nil
}
