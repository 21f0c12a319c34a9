package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/ledger"
)

// change is one row to be written: from revision base to claim, with what goes to the history.
type change struct {
	base  int64
	fill  bool // claim brings the payload that the row lacks
	claim ledger.Claim
	old   []ledger.HistoryEntry
}

// record notes that before became after: the revision grows, and a transition that is overwritten goes to
// the history. audit puts the new transition there as well, for what a person did.
func (ch *change) record(before, after ledger.Claim, audit bool) {
	after.Rev = before.Rev + 1
	// Replicas' readings of the database's clock differ by milliseconds; a history must not run backwards.
	after.Last.At = max(after.Last.At, before.Last.At)
	ch.fill = ch.fill || len(before.PayloadHash) == 0 && len(after.PayloadHash) > 0
	if after.Last != before.Last {
		after.Moves = before.Moves + 1
		ch.old = append(ch.old, entryOf(&before))
		if audit {
			ch.old = append(ch.old, entryOf(&after))
		}
	}
	ch.claim = after
}

// entryOf is the history entry of a claim's newest transition. Its id counts the transitions, so that one
// written early (for what a person did) is not written again when it is overwritten.
func entryOf(c *ledger.Claim) ledger.HistoryEntry {
	return ledger.HistoryEntry{ID: fmt.Sprintf("%06d", c.Moves), ClaimID: c.ID, Transition: c.Last}
}

// Two pairs of statements differ: PostgreSQL takes a batch as arrays in one statement that is its own
// transaction (one round trip, one commit); SQLite has no arrays and no round trips.

// A pause is exact at no cost: while one is in force, a guarded insert does nothing, and the second path looks
// whom it concerns. Unguarded is for that path.
const (
	unlessPaused = " where not exists (select 1 from pauses p where p.until = 0 or p.until > ?)"
	keepOld      = " on conflict (source, account, idempotency_key, step) do nothing"
)

// plainColumns are those in which new claims differ; the rest has defaults or follows from them.
var plainColumns = pick("id", "source", "account", "idempotency_key", "step", "kind", "key_basis", "first_at", "owner", "workflow_id",
	"workflow_name", "execution_id", "node", "caller_key", "lease_until", "secret", "provider_key", "payload", "payload_hash",
	"destination", "result")

const (
	plainRest   = `, rev, status, attempt, grant_no, window_from, moves, last_at, last_attempt, last_owner, last_execution, last_by`
	plainValues = `, 1, 'processing', 1, 1, u.first_at, 1, u.first_at, 1, u.owner, u.execution_id, u.caller_key`
)

func pick(wanted ...string) []column {
	out := make([]column, len(wanted))
	for i, name := range wanted {
		at := slices.IndexFunc(claimColumns, func(c column) bool { return c.name == name })
		out[i] = claimColumns[at]
	}
	return out
}

// insertPlain inserts new claims that were granted at once, and tells which of them are there now: none while a
// pause is in force, and none whose key exists.
func (s *Store) insertPlain(ctx context.Context, rows []ledger.Claim, now ledger.Instant) (map[string]bool, error) {
	switch {
	case s.dialect.name == sqliteDialect.name:
		return s.insertPlainSQLite(ctx, rows, now)
	case len(rows) == 1:
		var inserted bool
		args := append([]any{int64(now)}, plainArgs(&rows[0])...)
		err := s.once(ctx, func(q querier) error { return q.QueryRowxContext(ctx, grantOnePostgres, args...).Scan(&inserted) })
		return map[string]bool{rows[0].ID: inserted}, err
	}
	u := arrays{args: []any{int64(now)}}
	for _, col := range plainColumns {
		addTo(&u, rows, col.name, col.field)
	}
	var ids []string
	err := s.once(ctx, func(q querier) error { return sqlx.SelectContext(ctx, q, &ids, grantPostgres, u.args...) })
	return set(ids), err
}

var (
	insertOneSQLite = "insert into claims (" + names(plainColumns, "") + plainRest + ") select " + names(plainColumns, "u.") + plainValues +
		" from (select ? as " + strings.ReplaceAll(names(plainColumns, ""), ", ", ", ? as ") + ") as u" + unlessPaused + keepOld
	grantPostgres    = "select * from holdfast_grant(" + plainParameters + ")"
	grantOnePostgres = "select holdfast_grant_one(" + plainParameters + ")"
	plainParameters  = "$1" + numbered(", $%d", 2, len(plainColumns)+1)
)

func plainArgs(c *ledger.Claim) []any {
	args := make([]any, 0, len(plainColumns)+1)
	for _, col := range plainColumns {
		args = append(args, value(col.field(c)))
	}
	return args
}

func (s *Store) insertPlainSQLite(ctx context.Context, rows []ledger.Claim, now ledger.Instant) (map[string]bool, error) {
	inserted := make(map[string]bool, len(rows))
	err := s.inTx(ctx, func(tx *sqlx.Tx) error {
		for i := range rows {
			n, err := affected(s.execPrepared(ctx, tx, insertOneSQLite, append(plainArgs(&rows[i]), int64(now))...))
			if err != nil {
				return err
			}
			inserted[rows[i].ID] = n == 1
		}
		return nil
	})
	return inserted, err
}

// insertRows inserts any new claims, and notes those that are there now: none whose key exists.
func (s *Store) insertRows(ctx context.Context, q querier, rows []*ledger.Claim, inserted map[string]bool) error {
	into := "insert into claims (" + names(claimColumns, "") + ") "
	slices.SortFunc(rows, func(a, b *ledger.Claim) int { return compareKeys(a.Key, b.Key) }) // as all take their locks
	if s.dialect.name == postgres.name && len(rows) > 1 {
		u := arrays{}
		for _, col := range claimColumns {
			addTo(&u, rows, col.name, func(c **ledger.Claim) any { return col.field(*c) })
		}
		var ids []string
		err := sqlx.SelectContext(ctx, q, &ids, q.Rebind(into+u.rows("u")+keepOld+" returning id"), u.args...)
		for _, id := range ids {
			inserted[id] = true
		}
		return err
	}
	for _, c := range rows {
		n, err := affected(q.ExecContext(ctx, q.Rebind(into+"values ("+repeated("?", len(claimColumns))+")"+keepOld), rowValues(claimColumns, c)...))
		if err != nil {
			return err
		}
		if n == 1 {
			inserted[c.ID] = true
		}
	}
	return nil
}

// update writes rows and their history; a row that is no longer at its base revision is left alone, with its
// history. It tells which rows were written.
func (s *Store) update(ctx context.Context, q querier, changes []change) (map[string]bool, error) {
	slices.SortFunc(changes, func(a, b change) int { return strings.Compare(a.claim.ID, b.claim.ID) })
	if s.dialect.name == sqliteDialect.name {
		return s.updateEach(ctx, q, changes)
	}
	return updateAll(ctx, q, changes)
}

// moving are the columns that a change writes. The payload is apart: it is large and is filled in at most once.
var (
	moving  = slices.DeleteFunc(slices.Clone(claimColumns), func(c column) bool { return c.fixed || isPayload(c) })
	filling = append(slices.Clone(moving), pick("payload", "payload_hash")...)
)

func isPayload(c column) bool { return c.name == "payload" || c.name == "payload_hash" }

func assignments(columns []column, value func(name string) string) string {
	out := make([]string, len(columns))
	for i, c := range columns {
		out[i] = c.name + " = " + value(c.name)
		if isPayload(c) {
			out[i] = c.name + " = case when length(c.payload_hash) = 0 then " + value(c.name) + " else c." + c.name + " end"
		}
	}
	return strings.Join(out, ", ")
}

// columnsFor leaves the payload out where no change of the batch fills one in.
func columnsFor(changes []change) []column {
	if slices.ContainsFunc(changes, func(ch change) bool { return ch.fill }) {
		return filling
	}
	return moving
}

var (
	moveOneSQLite = updateOne(moving)
	fillOneSQLite = updateOne(filling)
)

func updateOne(columns []column) string {
	return "update claims as c set " + assignments(columns, func(string) string { return "?" }) + " where c.id = ? and c.rev = ?"
}

func (s *Store) updateEach(ctx context.Context, q querier, changes []change) (map[string]bool, error) {
	written := make(map[string]bool, len(changes))
	for i := range changes {
		ch := &changes[i]
		columns := columnsFor(changes[i : i+1])
		args := make([]any, 0, len(columns)+2)
		for _, col := range columns {
			args = append(args, value(col.field(&ch.claim)))
		}
		query := moveOneSQLite
		if ch.fill {
			query = fillOneSQLite
		}
		n, err := affected(s.execPrepared(ctx, q, query, append(args, ch.claim.ID, ch.base)...))
		if err != nil {
			return nil, err
		}
		if n == 1 {
			written[ch.claim.ID] = true
			if err := s.insertEntries(ctx, q, ch.old); err != nil {
				return nil, err
			}
		}
	}
	return written, nil
}

func updateAll(ctx context.Context, q querier, changes []change) (map[string]bool, error) {
	written := map[string]bool{}
	for part := range slices.Chunk(changes, maxBatch) {
		if err := updatePart(ctx, q, part, written); err != nil {
			return nil, err
		}
	}
	return written, nil
}

func updatePart(ctx context.Context, q querier, changes []change, written map[string]bool) error {
	columns := columnsFor(changes)
	u := arrays{}
	addTo(&u, changes, "id", func(ch *change) any { return &ch.claim.ID })
	addTo(&u, changes, "base", func(ch *change) any { return &ch.base })
	for _, col := range columns {
		addTo(&u, changes, col.name, func(ch *change) any { return col.field(&ch.claim) })
	}
	var entries []ledger.HistoryEntry
	for i := range changes {
		entries = append(entries, changes[i].old...)
	}
	h := arrays{}
	for i, name := range entryColumns {
		addTo(&h, entries, name, func(e *ledger.HistoryEntry) any { return entryFields(e)[i] })
	}
	query := movePostgres
	if len(columns) > len(moving) { // rare: a payload is filled in
		query = q.Rebind("with u as (" + u.rows("u") + "), written as (update claims as c set " +
			assignments(columns, func(name string) string { return "u." + name }) +
			" from u where c.id = u.id and c.rev = u.base returning c.id), kept as (insert into history (" + strings.Join(entryColumns, ", ") +
			") select h.* from (" + h.rows("h") + ") h join written on written.id = h.claim_id on conflict (claim_id, entry) do nothing) select id from written")
	}
	var ids []string
	err := sqlx.SelectContext(ctx, q, &ids, query, append(u.args, h.args...)...)
	for _, id := range ids {
		written[id] = true
	}
	return err
}

// movePostgres moves claims with a plan that is kept; see migration 0011.
var movePostgres = "select * from holdfast_move($1" + numbered(", $%d", 2, 2+len(moving)+len(entryColumns)) + ")"

// arrays are the columns of a batch, one array each.
type arrays struct {
	names, types []string
	args         []any
}

func addTo[T any](a *arrays, rows []T, name string, pointer func(*T) any) {
	arg, typ := array(rows, pointer)
	a.names, a.types, a.args = append(a.names, name), append(a.types, "?::"+typ), append(a.args, arg)
}

func (a *arrays) rows(alias string) string {
	return "select * from unnest(" + strings.Join(a.types, ", ") + ") as " + alias + " (" + strings.Join(a.names, ", ") + ")"
}

// An entry that is there already stays. SQLite's guard refuses even the attempt to insert it again, and with one
// writer nothing can come between the question and the insert; PostgreSQL must not look first.
var (
	insertEntry       = "insert into history (" + strings.Join(entryColumns, ", ") + ") values (?" + strings.Repeat(", ?", len(entryColumns)-1) + ") on conflict (claim_id, entry) do nothing"
	insertEntrySQLite = "insert into history (" + strings.Join(entryColumns, ", ") + ") select ?1" + numbered(", ?%d", 2, len(entryColumns)) +
		" where not exists (select 1 from history where claim_id = ?1 and entry = ?2)"
)

func numbered(form string, from, to int) string {
	out := ""
	for i := from; i <= to; i++ {
		out += fmt.Sprintf(form, i)
	}
	return out
}

func (s *Store) insertEntries(ctx context.Context, q querier, entries []ledger.HistoryEntry) error {
	for i := range entries {
		args := entryFields(&entries[i])
		for j, p := range args {
			args[j] = value(p)
		}
		var err error
		if s.dialect.name == postgres.name {
			_, err = q.ExecContext(ctx, q.Rebind(insertEntry), args...)
		} else {
			_, err = s.execPrepared(ctx, q, insertEntrySQLite, args...)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func affected(r sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

func set(ids []string) map[string]bool {
	out := make(map[string]bool, len(ids))
	for _, id := range ids {
		out[id] = true
	}
	return out
}

// lateID names a report that moved nothing, so that the same report sent again is kept once.
func lateID(e *ledger.Ending, t *ledger.Transition) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s|%d|%d|%q|%s|%d|%q", e.Verb, e.Token.Grant, e.Token.Look, t.Message, t.To, t.HTTPStatus, t.By))
	return "late-" + hex.EncodeToString(sum[:8])
}
