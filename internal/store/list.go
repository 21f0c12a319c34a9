package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"holdfast/internal/ledger"
)

// Get is part of ledger.Store.
func (s *Store) Get(ctx context.Context, id string) (ledger.Claim, []ledger.HistoryEntry, error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	rows, err := selectClaims(ctx, s.read, claimColumns, fullSelect+"where c.id = ?", id)
	if err != nil {
		return ledger.Claim{}, nil, s.translate(err)
	}
	if len(rows) == 0 {
		return ledger.Claim{}, nil, ledger.ErrNotFound
	}
	entries, err := s.selectHistory(ctx, `where h.claim_id = ? order by h.at, h.entry`, id)
	if err != nil {
		return ledger.Claim{}, nil, s.translate(err)
	}
	newest := entryOf(&rows[0])
	kept := entries[:0]
	for _, e := range entries {
		if e.ID != newest.ID { // an act of a person stands in the history already
			kept = append(kept, e)
		}
	}
	return rows[0], inOrder(append(kept, newest)), nil
}

// inOrder puts the newest transition before late reports that came after it.
func inOrder(entries []ledger.HistoryEntry) []ledger.HistoryEntry {
	last := len(entries) - 1
	for i := last; i > 0 && entries[i-1].At > entries[i].At; i-- {
		entries[i-1], entries[i] = entries[i], entries[i-1]
	}
	return entries
}

// filter gathers the conditions of a list.
type filter struct {
	where []string
	args  []any
}

func (f *filter) add(condition string, args ...any) {
	f.where, f.args = append(f.where, condition), append(f.args, args...)
}

func (f *filter) copied() *filter { return &filter{slices.Clone(f.where), slices.Clone(f.args)} }

func (f *filter) text(column, value string) {
	if value != "" {
		f.add(column+" = ?", value)
	}
}

func (f *filter) span(column string, from, to ledger.Instant) {
	if from != 0 {
		f.add(column+" >= ?", int64(from))
	}
	if to != 0 {
		f.add(column+" < ?", int64(to))
	}
}

func (f *filter) sql(order string, limit int) string {
	where := ""
	if len(f.where) > 0 {
		where = "where " + strings.Join(f.where, " and ") + " "
	}
	return where + order + " limit " + strconv.Itoa(limit+1)
}

// List is part of ledger.Store. Ids are made in the order of time, so they serve as the cursor.
func (s *Store) List(ctx context.Context, q ledger.ClaimFilter) ([]ledger.Claim, string, error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	var f filter
	f.text("c.status", string(q.Status))
	f.text("c.source", q.Source)
	if q.Account != nil {
		f.add("c.account = ?", *q.Account)
	}
	f.text("c.idempotency_key", q.IdempotencyKey)
	f.text("c.reference", q.Reference)
	f.text("c.kind", string(q.Kind))
	f.text("c.entity", q.Entity)
	f.span("c.first_at", q.From, q.To)
	if q.Cursor != "" {
		f.add("c.id < ?", q.Cursor)
	}
	rows, err := selectClaims(ctx, s.read, lean, leanSelect+f.sql("order by c.id desc", q.Limit), f.args...)
	if err != nil || len(rows) <= q.Limit {
		return rows, "", s.translate(err)
	}
	return rows[:q.Limit], rows[q.Limit-1].ID, nil
}

// History is part of ledger.Store.
func (s *Store) History(ctx context.Context, q ledger.HistoryFilter) ([]ledger.HistoryEntry, string, error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	var f filter
	f.text("h.claim_id", q.ClaimID)
	f.text("h.by_name", q.By)
	f.span("h.at", q.From, q.To)
	if q.Cursor != "" {
		at, claim, entry, ok := splitCursor(q.Cursor)
		if !ok {
			return nil, "", &ledger.Refusal{Code: ledger.InvalidRequest, Message: "cursor is not one that this list gave"}
		}
		f.add("(h.at, h.claim_id, h.entry) < (?, ?, ?)", at, claim, entry)
	}
	entries, err := s.selectHistory(ctx, f.sql("order by h.at desc, h.claim_id desc, h.entry desc", q.Limit), f.args...)
	if err != nil || len(entries) <= q.Limit {
		return entries, "", s.translate(err)
	}
	last := entries[q.Limit-1]
	return entries[:q.Limit], fmt.Sprintf("%d~%s~%s", last.At, last.ClaimID, last.ID), nil
}

func splitCursor(s string) (at int64, claim, entry string, ok bool) {
	parts := strings.SplitN(s, "~", 3)
	if len(parts) != 3 {
		return 0, "", "", false
	}
	at, err := strconv.ParseInt(parts[0], 10, 64)
	return at, parts[1], parts[2], err == nil
}

func (s *Store) selectHistory(ctx context.Context, rest string, args ...any) (out []ledger.HistoryEntry, err error) {
	query := "select h." + strings.Join(entryColumns, ", h.") + " from history h " + rest
	rows, err := s.read.QueryContext(ctx, s.read.Rebind(query), args...)
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := rows.Close(); err == nil {
			err = e
		}
	}()
	for rows.Next() {
		var e ledger.HistoryEntry
		if err := rows.Scan(entryFields(&e)...); err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, rows.Err()
}
