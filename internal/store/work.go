package store

import (
	"context"
	"strings"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/ledger"
)

// targets name the rows that a batch is about.
type targets struct {
	ids        []string
	keys       []ledger.Key
	references []reference
}

type reference struct{ source, reference string }

// read fetches the rows, without their payloads and without locks: writing repeats the revision that was read.
func (t targets) read(ctx context.Context, q querier) ([]ledger.Claim, error) {
	var where []string
	var args []any
	if len(t.ids) > 0 {
		where = append(where, "c.id in (?"+strings.Repeat(", ?", len(t.ids)-1)+")")
		for _, id := range t.ids {
			args = append(args, id)
		}
	}
	if len(t.keys) > 0 {
		where = append(where, "(c.source, c.account, c.idempotency_key, c.step) in (values (?, ?, ?, ?)"+
			strings.Repeat(", (?, ?, ?, ?)", len(t.keys)-1)+")")
		for _, k := range t.keys {
			args = append(args, k.Source, k.Account, k.IdempotencyKey, k.Step)
		}
	}
	if len(t.references) > 0 {
		where = append(where, "c.reference <> '' and (c.source, c.reference) in (values (?, ?)"+strings.Repeat(", (?, ?)", len(t.references)-1)+")")
		for _, r := range t.references {
			args = append(args, r.source, r.reference)
		}
	}
	// One query for each kind of address: their union would keep both databases from their indexes.
	var out []ledger.Claim
	for _, w := range where {
		n := strings.Count(w, "?")
		rows, err := selectClaims(ctx, q, lean, leanSelect+"where "+w, args[:n]...)
		if err != nil {
			return nil, err
		}
		out, args = append(out, rows...), args[n:]
	}
	return out, nil
}

// work is a set of rows with the changes that a batch makes to them, in order, before they are written.
type work struct {
	rows    map[string]*ledger.Claim
	keys    map[ledger.Key]*ledger.Claim
	changes map[string]*change
	inserts []*ledger.Claim
	notes   map[string][]ledger.HistoryEntry // reports that moved nothing, by claim
}

func newWork(rows []ledger.Claim) *work {
	w := &work{
		rows: make(map[string]*ledger.Claim, len(rows)), keys: make(map[ledger.Key]*ledger.Claim, len(rows)),
		changes: map[string]*change{}, notes: map[string][]ledger.HistoryEntry{},
	}
	for i := range rows {
		w.rows[rows[i].ID], w.keys[rows[i].Key] = &rows[i], &rows[i]
	}
	return w
}

// find gives the row with this id, or else with this key, as it stands by now; nil when there is none.
func (w *work) find(id string, key ledger.Key) *ledger.Claim {
	if id != "" {
		return w.rows[id]
	}
	return w.keys[key]
}

// put replaces row by after, or adds after where row is nil. after gets its new revision.
func (w *work) put(row, after *ledger.Claim, audit bool) {
	if row == nil {
		after.Rev, after.Moves = 1, 1
		kept := *after
		w.inserts = append(w.inserts, &kept)
		w.rows[after.ID], w.keys[after.Key] = &kept, &kept
		return
	}
	if after.Rev != row.Rev {
		panic("store: a decision changed a revision")
	}
	ch := w.changes[row.ID]
	if ch == nil {
		ch = &change{base: row.Rev}
		w.changes[row.ID] = ch
	}
	ch.record(*row, *after, audit)
	*after, *row = ch.claim, ch.claim
}

func (w *work) empty() bool { return len(w.changes)+len(w.inserts)+len(w.notes) == 0 }

// apply writes the work and tells of each claim whether it stood: unchanged, or written as decided.
func (s *Store) apply(ctx context.Context, w *work) (stood func(id string) bool, err error) {
	if w.empty() {
		return func(string) bool { return true }, nil
	}
	var written map[string]bool
	if len(w.inserts)+len(w.notes) == 0 && s.dialect.name == postgres.name {
		err = s.once(ctx, func(q querier) (err error) {
			written, err = s.update(ctx, q, w.list())
			return err
		})
	} else {
		err = s.inTx(ctx, func(tx *sqlx.Tx) (err error) {
			written, err = s.writeSome(ctx, tx, w)
			return err
		})
	}
	return func(id string) bool {
		_, changed := w.changes[id]
		_, inserted := written[id]
		return inserted || !changed && !w.isNew(id)
	}, err
}

func (w *work) isNew(id string) bool {
	for _, c := range w.inserts {
		if c.ID == id {
			return true
		}
	}
	return false
}

func (w *work) list() []change {
	out := make([]change, 0, len(w.changes))
	for _, ch := range w.changes {
		out = append(out, *ch)
	}
	return out
}

func (s *Store) writeSome(ctx context.Context, tx *sqlx.Tx, w *work) (map[string]bool, error) {
	written := map[string]bool{}
	for _, c := range w.inserts {
		ok, err := insertRow(ctx, tx, c) // rare: only while something is paused, or under an entity
		if err != nil {
			return nil, err
		}
		if ok {
			written[c.ID] = true
		}
	}
	if len(w.changes) > 0 {
		updated, err := s.update(ctx, tx, w.list())
		if err != nil {
			return nil, err
		}
		for id := range updated {
			written[id] = true
		}
	}
	for id, notes := range w.notes {
		if _, changed := w.changes[id]; changed && !written[id] {
			continue // decided anew
		}
		if err := s.insertEntries(ctx, tx, notes); err != nil {
			return nil, err
		}
	}
	return written, nil
}

// writeAll writes the work of a transaction that stands or falls as a whole.
func (s *Store) writeAll(ctx context.Context, tx *sqlx.Tx, w *work) error {
	written, err := s.writeSome(ctx, tx, w)
	if err == nil && len(written) < len(w.changes)+len(w.inserts) {
		return errMoved
	}
	return err
}
