package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/deadletter"
)

type letterColumn = columnOf[deadletter.Letter]

var letterColumns = []letterColumn{
	{"id", func(l *deadletter.Letter) any { return &l.ID }, true},
	{"identity", func(l *deadletter.Letter) any { return &l.Identity }, true},
	{"rev", func(l *deadletter.Letter) any { return &l.Rev }, false},
	{"status", func(l *deadletter.Letter) any { return (*string)(&l.Status) }, false},
	{"reason", func(l *deadletter.Letter) any { return &l.Reason }, false},
	{"class", func(l *deadletter.Letter) any { return (*string)(&l.Class) }, false},
	{"retryable", func(l *deadletter.Letter) any { return &l.Retryable }, false},
	{"outcome", func(l *deadletter.Letter) any { return (*string)(&l.Outcome) }, false},
	{"attempt_count", func(l *deadletter.Letter) any { return &l.AttemptCount }, false},
	{"max_attempts", func(l *deadletter.Letter) any { return &l.MaxAttempts }, false},
	{"next_retry_at", func(l *deadletter.Letter) any { return (*int64)(&l.NextRetryAt) }, false},
	{"backoff", func(l *deadletter.Letter) any { return &l.Backoff }, false},
	{"escalated", func(l *deadletter.Letter) any { return &l.Escalated }, false},
	{"reports", func(l *deadletter.Letter) any { return &l.Reports }, false},
	{"safe_to_repeat", func(l *deadletter.Letter) any { return &l.SafeToRepeat }, false},
	{"summary", func(l *deadletter.Letter) any { return &l.Summary }, false},
	{"message", func(l *deadletter.Letter) any { return &l.Message }, false},
	{"workflow_id", func(l *deadletter.Letter) any { return &l.WorkflowID }, false},
	{"workflow_name", func(l *deadletter.Letter) any { return &l.WorkflowName }, false},
	{"execution_id", func(l *deadletter.Letter) any { return &l.ExecutionID }, false},
	{"node", func(l *deadletter.Letter) any { return &l.Node }, false},
	{"http_status", func(l *deadletter.Letter) any { return &l.HTTPStatus }, false},
	{"method", func(l *deadletter.Letter) any { return &l.Method }, false},
	{"url", func(l *deadletter.Letter) any { return &l.URL }, false},
	{"claim_id", func(l *deadletter.Letter) any { return &l.ClaimID }, false},
	{"source", func(l *deadletter.Letter) any { return &l.Key.Source }, false},
	{"account", func(l *deadletter.Letter) any { return &l.Key.Account }, false},
	{"idempotency_key", func(l *deadletter.Letter) any { return &l.Key.IdempotencyKey }, false},
	{"step", func(l *deadletter.Letter) any { return &l.Key.Step }, false},
	{"destination", func(l *deadletter.Letter) any { return &l.Destination }, false},
	{"play", func(l *deadletter.Letter) any { return (*string)(&l.Play) }, false},
	{"provider_key", func(l *deadletter.Letter) any { return &l.ProviderKey }, false},
	{"payload", func(l *deadletter.Letter) any { return &l.Payload }, false},
	{"input_state", func(l *deadletter.Letter) any { return (*string)(&l.InputState) }, false},
	{"error", func(l *deadletter.Letter) any { return &l.Error }, false},
	{"secret", func(l *deadletter.Letter) any { return &l.Secret }, true},
	{"lease", func(l *deadletter.Letter) any { return &l.Lease }, false},
	{"lease_owner", func(l *deadletter.Letter) any { return &l.LeaseOwner }, false},
	{"lease_until", func(l *deadletter.Letter) any { return (*int64)(&l.LeaseUntil) }, false},
	{"void_lease", func(l *deadletter.Letter) any { return &l.VoidLease }, false},
	{"last_verb", func(l *deadletter.Letter) any { return &l.LastVerb }, false},
	{"last_result", func(l *deadletter.Letter) any { return &l.LastResult }, false},
	{"replay_id", func(l *deadletter.Letter) any { return &l.ReplayID }, false},
	{"created_at", func(l *deadletter.Letter) any { return (*int64)(&l.CreatedAt) }, true},
	{"updated_at", func(l *deadletter.Letter) any { return (*int64)(&l.UpdatedAt) }, false},
}

// The payload and the error are large: most of what is decided about a letter needs neither, and writes neither.
var (
	largeLetter  = func(c letterColumn) bool { return c.name == "payload" || c.name == "error" }
	leanLetter   = slices.DeleteFunc(slices.Clone(letterColumns), largeLetter)
	leanLetters  = "select " + names(leanLetter, "l.") + " from letters as l "
	letterMoves  = slices.DeleteFunc(slices.Clone(leanLetter), func(c letterColumn) bool { return c.fixed })
	letterWrites = slices.DeleteFunc(slices.Clone(letterColumns), func(c letterColumn) bool { return c.fixed })
	letterFails  = slices.DeleteFunc(slices.Clone(letterWrites), func(c letterColumn) bool { return c.name == "payload" })
)

var letterEntryColumns = []columnOf[deadletter.Entry]{
	{"letter_id", func(e *deadletter.Entry) any { return &e.LetterID }, true},
	{"n", func(e *deadletter.Entry) any { return &e.N }, true},
	{"at", func(e *deadletter.Entry) any { return (*int64)(&e.At) }, true},
	{"kind", func(e *deadletter.Entry) any { return &e.Kind }, true},
	{"to_status", func(e *deadletter.Entry) any { return (*string)(&e.To) }, true},
	{"attempt", func(e *deadletter.Entry) any { return &e.Attempt }, true},
	{"execution_id", func(e *deadletter.Entry) any { return &e.ExecutionID }, true},
	{"workflow_id", func(e *deadletter.Entry) any { return &e.WorkflowID }, true},
	{"node", func(e *deadletter.Entry) any { return &e.Node }, true},
	{"http_status", func(e *deadletter.Entry) any { return &e.HTTPStatus }, true},
	{"class", func(e *deadletter.Entry) any { return &e.Class }, true},
	{"message", func(e *deadletter.Entry) any { return &e.Message }, true},
	{"owner", func(e *deadletter.Entry) any { return &e.Owner }, true},
	{"by_name", func(e *deadletter.Entry) any { return &e.By }, true},
	{"reason", func(e *deadletter.Entry) any { return &e.Reason }, true},
	{"digest", func(e *deadletter.Entry) any { return &e.Digest }, true},
	{"replay_id", func(e *deadletter.Entry) any { return &e.ReplayID }, true},
}

var entrySelect = "select " + names(letterEntryColumns, "e.") + " from letter_entries as e "

// letterChange is a letter to be written: new, or from revision base; with what goes to its entries.
type letterChange struct {
	base   int64 // 0: the letter is new
	letter deadletter.Letter
	entry  deadletter.Entry // its Kind is empty for none
	alert  *deadletter.Alert
	whole  bool // payload and error are written too
	failed bool // the error is written too
	// inReplay is set where its replay does this, which then knows.
	inReplay bool
}

// insertLetter adds a new letter; false when its identity has one by now.
func insertLetter(ctx context.Context, q querier, l *deadletter.Letter) (bool, error) {
	n, err := affected(q.ExecContext(ctx, q.Rebind("insert into letters ("+names(letterColumns, "")+") values (?"+
		strings.Repeat(", ?", len(letterColumns)-1)+") on conflict (identity) do nothing"), rowValues(letterColumns, l)...))
	return n == 1, err
}

func rowValues[T any](columns []columnOf[T], row *T) []any {
	args := make([]any, len(columns))
	for i, c := range columns {
		args[i] = value(c.field(row))
	}
	return args
}

// writeLetter writes one change, its entry and its alert; errMoved when the letter is not at its base any more.
func (s *Store) writeLetter(ctx context.Context, tx *sqlx.Tx, ch *letterChange) error {
	var ok bool
	var err error
	ch.letter.Rev = ch.base + 1
	if ch.base == 0 {
		ok, err = insertLetter(ctx, tx, &ch.letter)
	} else {
		columns := letterMoves
		switch {
		case ch.whole:
			columns = letterWrites
		case ch.failed:
			columns = letterFails
		}
		var n int64
		n, err = affected(tx.ExecContext(ctx, tx.Rebind("update letters set "+strings.ReplaceAll(names(columns, ""), ",", " = ?,")+" = ? where id = ? and rev = ?"),
			append(rowValues(columns, &ch.letter), ch.letter.ID, ch.base)...))
		ok = n == 1
	}
	switch {
	case err != nil:
		return err
	case !ok:
		return errMoved
	}
	if err := insertLetterEntry(ctx, tx, &ch.letter, &ch.entry); err != nil {
		return err
	}
	s.tellReplay(tx, ch)
	return s.raise(ctx, tx, ch.alert)
}

// tellReplay lets the letter's replay know of it at the end of the transaction.
func (s *Store) tellReplay(tx *sqlx.Tx, ch *letterChange) {
	end := s.lastOf(tx)
	if ch.inReplay || end == nil {
		return
	}
	if end.letters == nil {
		end.letters = map[string]deadletter.Letter{}
	}
	end.letters[ch.letter.ID] = ch.letter
}

// insertLetterEntry gives the entry the letter's revision as its place: it grows with each write.
func insertLetterEntry(ctx context.Context, q querier, l *deadletter.Letter, e *deadletter.Entry) error {
	if e.Kind == "" {
		return nil
	}
	e.LetterID, e.N = l.ID, l.Rev
	_, err := q.ExecContext(ctx, q.Rebind("insert into letter_entries ("+names(letterEntryColumns, "")+") values (?"+
		strings.Repeat(", ?", len(letterEntryColumns)-1)+")"), rowValues(letterEntryColumns, e)...)
	return err
}

// writeLetters writes many changes of letters that this transaction has locked.
func (s *Store) writeLetters(ctx context.Context, tx *sqlx.Tx, changes []letterChange) error {
	if s.dialect.name == sqliteDialect.name || len(changes) == 1 {
		for i := range changes {
			if err := s.writeLetter(ctx, tx, &changes[i]); err != nil {
				return err
			}
		}
		return nil
	}
	u, e := arrays{}, arrays{}
	for i := range changes {
		ch := &changes[i]
		ch.letter.Rev = ch.base + 1
		ch.entry.LetterID, ch.entry.N = ch.letter.ID, ch.letter.Rev
	}
	addTo(&u, changes, "id", func(ch *letterChange) any { return &ch.letter.ID })
	addTo(&u, changes, "base", func(ch *letterChange) any { return &ch.base })
	for _, c := range letterMoves {
		addTo(&u, changes, c.name, func(ch *letterChange) any { return c.field(&ch.letter) })
	}
	set := make([]string, len(letterMoves))
	for i, c := range letterMoves {
		set[i] = c.name + " = u." + c.name
	}
	n, err := affected(tx.ExecContext(ctx, tx.Rebind("with u as ("+u.rows("u")+") update letters as l set "+strings.Join(set, ", ")+
		" from u where l.id = u.id and l.rev = u.base"), u.args...))
	switch {
	case err != nil:
		return err
	case n != int64(len(changes)):
		return errMoved
	}
	for _, c := range letterEntryColumns {
		addTo(&e, changes, c.name, func(ch *letterChange) any { return c.field(&ch.entry) })
	}
	if _, err = tx.ExecContext(ctx, tx.Rebind("insert into letter_entries ("+names(letterEntryColumns, "")+") "+e.rows("e")), e.args...); err != nil {
		return err
	}
	for i := range changes {
		s.tellReplay(tx, &changes[i])
		if err := s.raise(ctx, tx, changes[i].alert); err != nil {
			return err
		}
	}
	return nil
}

func readLetter(ctx context.Context, q querier, columns []letterColumn, condition string, args ...any) (*deadletter.Letter, error) {
	rows, err := selectRows(ctx, q, columns, "select "+names(columns, "l.")+" from letters as l where "+condition, args...)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}

// lockedLetter keeps the letter as it is until the transaction ends.
func (s *Store) lockedLetter(ctx context.Context, tx *sqlx.Tx, id string) (*deadletter.Letter, error) {
	return readLetter(ctx, tx, leanLetter, "l.id = ?"+s.dialect.forUpdate, id)
}

func actOnLetter(verb deadletter.Verb, id string) string {
	return fmt.Sprintf("%s letter %s", map[deadletter.Verb]string{deadletter.Resolve: "resolved", deadletter.Requeue: "requeued", deadletter.Discard: "discarded"}[verb], id)
}
