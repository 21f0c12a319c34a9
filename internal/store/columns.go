package store

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/lib/pq"

	"holdfast/internal/ledger"
)

// columnOf ties one column of a table to the field of its row. A fixed one is written once, with the row.
type columnOf[T any] struct {
	name  string
	field func(*T) any
	fixed bool
}

type column = columnOf[ledger.Claim]

var claimColumns = []column{
	{"id", func(c *ledger.Claim) any { return &c.ID }, true},
	{"source", func(c *ledger.Claim) any { return &c.Key.Source }, true},
	{"account", func(c *ledger.Claim) any { return &c.Key.Account }, true},
	{"idempotency_key", func(c *ledger.Claim) any { return &c.Key.IdempotencyKey }, true},
	{"step", func(c *ledger.Claim) any { return &c.Key.Step }, true},
	{"rev", func(c *ledger.Claim) any { return &c.Rev }, false},
	{"kind", func(c *ledger.Claim) any { return (*string)(&c.Kind) }, true},
	{"key_basis", func(c *ledger.Claim) any { return (*string)(&c.Basis) }, true},
	{"status", func(c *ledger.Claim) any { return (*string)(&c.Status) }, false},
	{"attempt", func(c *ledger.Claim) any { return &c.Attempt }, false},
	{"first_at", func(c *ledger.Claim) any { return (*int64)(&c.FirstAt) }, true},
	{"due_at", func(c *ledger.Claim) any { return (*int64)(&c.DueAt) }, false},
	{"wait_until", func(c *ledger.Claim) any { return (*int64)(&c.WaitUntil) }, false},
	{"owner", func(c *ledger.Claim) any { return &c.Origin.Owner }, false},
	{"workflow_id", func(c *ledger.Claim) any { return &c.Origin.WorkflowID }, false},
	{"workflow_name", func(c *ledger.Claim) any { return &c.Origin.WorkflowName }, false},
	{"execution_id", func(c *ledger.Claim) any { return &c.Origin.ExecutionID }, false},
	{"node", func(c *ledger.Claim) any { return &c.Origin.Node }, false},
	{"caller_key", func(c *ledger.Claim) any { return &c.CallerKey }, false},
	{"grant_no", func(c *ledger.Claim) any { return &c.Grant }, false},
	{"void_grant", func(c *ledger.Claim) any { return &c.VoidGrant }, false},
	{"done_grant", func(c *ledger.Claim) any { return &c.DoneGrant }, false},
	{"lease_until", func(c *ledger.Claim) any { return (*int64)(&c.LeaseUntil) }, false},
	{"secret", func(c *ledger.Claim) any { return &c.Secret }, true},
	{"look_no", func(c *ledger.Claim) any { return &c.Look }, false},
	{"look_owner", func(c *ledger.Claim) any { return &c.LookOwner }, false},
	{"look_until", func(c *ledger.Claim) any { return (*int64)(&c.LookUntil) }, false},
	{"looks", func(c *ledger.Claim) any { return &c.Looks }, false},
	{"next_look", func(c *ledger.Claim) any { return (*int64)(&c.NextLook) }, false},
	{"ever_unknown", func(c *ledger.Claim) any { return &c.EverUnknown }, false},
	{"unknown_since", func(c *ledger.Claim) any { return (*int64)(&c.UnknownSince) }, false},
	{"provider_key", func(c *ledger.Claim) any { return &c.ProviderKey }, false},
	{"window_from", func(c *ledger.Claim) any { return (*int64)(&c.WindowFrom) }, false},
	{"payload", func(c *ledger.Claim) any { return &c.Payload }, false},
	{"payload_hash", func(c *ledger.Claim) any { return &c.PayloadHash }, false},
	{"entity", func(c *ledger.Claim) any { return &c.Entity }, false},
	{"version_kind", func(c *ledger.Claim) any { return (*int64)(&c.Version.Kind) }, false},
	{"version_rank", func(c *ledger.Claim) any { return &c.Version.Rank }, false},
	{"destination", func(c *ledger.Claim) any { return &c.Destination }, false},
	{"reference", func(c *ledger.Claim) any { return &c.Reference }, false},
	{"result_id", func(c *ledger.Claim) any { return &c.ResultID }, false},
	{"result", func(c *ledger.Claim) any { return &c.Result }, false},
	{"completed_at", func(c *ledger.Claim) any { return (*int64)(&c.CompletedAt) }, false},
	{"moves", func(c *ledger.Claim) any { return &c.Moves }, false},
	{"last_at", func(c *ledger.Claim) any { return (*int64)(&c.Last.At) }, false},
	{"last_from", func(c *ledger.Claim) any { return (*string)(&c.Last.From) }, false},
	{"last_attempt", func(c *ledger.Claim) any { return &c.Last.Attempt }, false},
	{"last_owner", func(c *ledger.Claim) any { return &c.Last.Owner }, false},
	{"last_execution", func(c *ledger.Claim) any { return &c.Last.ExecutionID }, false},
	{"last_http_status", func(c *ledger.Claim) any { return &c.Last.HTTPStatus }, false},
	{"last_class", func(c *ledger.Claim) any { return &c.Last.ErrorClass }, false},
	{"last_message", func(c *ledger.Claim) any { return &c.Last.Message }, false},
	{"last_by", func(c *ledger.Claim) any { return &c.Last.By }, false},
	{"last_reason", func(c *ledger.Claim) any { return &c.Last.Reason }, false},
	// Not a claim's own: what makes letters sets it, beside the claim's revision.
	{"lettered", func(c *ledger.Claim) any { return &c.Lettered }, true},
}

// entryColumns are the columns of history.
var entryColumns = []string{
	"claim_id", "entry", "at", "from_status", "to_status", "attempt", "owner", "execution_id", "http_status", "error_class",
	"message", "by_name", "reason",
}

func entryFields(e *ledger.HistoryEntry) []any {
	return []any{
		&e.ClaimID, &e.ID, (*int64)(&e.At), (*string)(&e.From), (*string)(&e.To), &e.Attempt, &e.Owner, &e.ExecutionID,
		&e.HTTPStatus, &e.ErrorClass, &e.Message, &e.By, &e.Reason,
	}
}

// lean leaves out the payload: no decision needs it, and it may be large.
var (
	lean       = slices.DeleteFunc(slices.Clone(claimColumns), func(c column) bool { return c.name == "payload" })
	leanSelect = "select " + names(lean, "c.") + " from claims as c "
	fullSelect = "select " + names(claimColumns, "c.") + " from claims as c "
)

func names[T any](columns []columnOf[T], prefix string) string {
	out := make([]string, len(columns))
	for i, c := range columns {
		out[i] = prefix + c.name
	}
	return strings.Join(out, ", ")
}

// selectClaims runs a query that begins with leanSelect or fullSelect.
func selectClaims(ctx context.Context, q querier, columns []column, query string, args ...any) ([]ledger.Claim, error) {
	out, err := selectRows(ctx, q, columns, query, args...)
	for i := range out {
		out[i].Last.To = out[i].Status
	}
	return out, err
}

// selectRows runs a query for these columns.
func selectRows[T any](ctx context.Context, q querier, columns []columnOf[T], query string, args ...any) (out []T, err error) {
	rows, err := q.QueryContext(ctx, q.Rebind(query), args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	pointers := make([]any, len(columns))
	for rows.Next() {
		var row T
		for i := range columns {
			pointers[i] = columns[i].field(&row)
		}
		if err := rows.Scan(pointers...); err != nil {
			return nil, err
		}
		out = append(out, row)
	}
	return out, rows.Err()
}

// value reads what a pointer of a column points to; absent bytes are empty, since no column holds null.
func value(p any) any {
	switch v := p.(type) {
	case *string:
		return *v
	case *int64:
		return *v
	case *bool:
		return *v
	case *[]byte:
		if *v == nil {
			return []byte{}
		}
		return *v
	}
	panic("store: a column of an unknown type")
}

// array gathers one column of many rows as an array for unnest; typ is its PostgreSQL type.
func array[T any](rows []T, pointer func(*T) any) (arg any, typ string) {
	first := new(T)
	if len(rows) > 0 {
		first = &rows[0]
	}
	switch pointer(first).(type) {
	case *string:
		return pq.StringArray(gather[T, string](rows, pointer)), "text[]"
	case *int64:
		return pq.Int64Array(gather[T, int64](rows, pointer)), "bigint[]"
	case *bool:
		return pq.BoolArray(gather[T, bool](rows, pointer)), "boolean[]"
	case *[]byte:
		values := gather[T, []byte](rows, pointer)
		for i, v := range values {
			if v == nil {
				values[i] = []byte{} // a nil element would become null
			}
		}
		return pq.ByteaArray(values), "bytea[]"
	}
	panic("store: a column of an unknown type")
}

func gather[T, V any](rows []T, pointer func(*T) any) []V {
	out := make([]V, len(rows))
	for i := range rows {
		out[i] = *pointer(&rows[i]).(*V)
	}
	return out
}
