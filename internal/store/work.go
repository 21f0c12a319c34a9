package store

import (
	"context"
	"slices"
	"strings"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"holdfast/internal/ledger"
)

// targets name the rows that a batch is about.
type targets struct {
	ids        []string
	keys       []ledger.Key
	references []reference
}

type reference struct{ source, reference string }

// readTargets fetches the rows, without their payloads and without locks: writing repeats the revision that was
// read. One query for each kind of address: their union would keep both databases from their indexes.
func (s *Store) readTargets(ctx context.Context, q querier, t targets) (out []ledger.Claim, err error) {
	read := func(query string, args []any) {
		if err == nil && len(args) > 0 {
			var rows []ledger.Claim
			rows, err = selectClaims(ctx, q, lean, query, args...)
			out = append(out, rows...)
		}
	}
	var ids, references []any
	for _, id := range t.ids {
		ids = append(ids, id)
	}
	for _, r := range t.references {
		references = append(references, r.source, r.reference)
	}
	read(leanSelect+"where c.id in ("+repeated("?", len(t.ids))+")", ids)
	keys := distinct(t.keys) // a provider that repeats itself sends the same key many times at once
	if s.dialect.name == postgres.name {
		read(findPostgres, keyArrays(keys))
	} else {
		read(leanSelect+"where (c.source, c.account, c.idempotency_key, c.step) in (values "+repeated("(?, ?, ?, ?)", len(keys))+")", keyList(keys))
	}
	read(leanSelect+"where c.reference <> '' and (c.source, c.reference) in (values "+repeated("(?, ?)", len(t.references))+")", references)
	return out, err
}

// findPostgres reads by keys with a plan that is kept; see migration 0004.
var findPostgres = "select " + names(lean, "c.") + " from holdfast_find($1, $2, $3, $4) as c"

func repeated(text string, n int) string {
	return strings.TrimSuffix(strings.Repeat(text+", ", n), ", ")
}

func distinct(keys []ledger.Key) []ledger.Key {
	if len(keys) < 2 {
		return keys
	}
	seen := make(map[ledger.Key]bool, len(keys))
	var out []ledger.Key
	for _, k := range keys {
		if !seen[k] {
			seen[k] = true
			out = append(out, k)
		}
	}
	return out
}

func keyList(keys []ledger.Key) (args []any) {
	for _, k := range keys {
		args = append(args, k.Source, k.Account, k.IdempotencyKey, k.Step)
	}
	return args
}

// keyArrays gives each part of the keys as an array of its own.
func keyArrays(keys []ledger.Key) []any {
	if len(keys) == 0 {
		return nil
	}
	parts := make([]pq.StringArray, 4)
	for _, k := range keys {
		for i, part := range []string{k.Source, k.Account, k.IdempotencyKey, k.Step} {
			parts[i] = append(parts[i], part)
		}
	}
	return []any{parts[0], parts[1], parts[2], parts[3]}
}

// work is a set of rows with the changes that a batch makes to them, in order, before they are written.
type work struct {
	rows    map[string]*ledger.Claim
	keys    map[ledger.Key]*ledger.Claim
	changes map[string]*change
	inserts []*ledger.Claim
	notes   map[string][]ledger.HistoryEntry // reports that moved nothing, by claim
	looked  map[string]bool                  // claims that a reconciler has settled
	alerts  []claimAlert
}

func newWork(rows []ledger.Claim) *work {
	w := &work{
		rows: make(map[string]*ledger.Claim, len(rows)), keys: make(map[ledger.Key]*ledger.Claim, len(rows)),
		changes: map[string]*change{}, notes: map[string][]ledger.HistoryEntry{}, looked: map[string]bool{},
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
	if !audit {
		w.alertReview(row, after)
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
	letters := w.lettersOf()
	if len(w.inserts)+len(w.notes)+len(w.alerts)+len(letters) == 0 && s.dialect.name == postgres.name {
		err = s.once(ctx, func(q querier) (err error) {
			written, err = s.update(ctx, q, w.list())
			return err
		})
	} else {
		err = s.inTx(ctx, func(tx *sqlx.Tx) (err error) {
			if written, err = s.writeSome(ctx, tx, w); err != nil {
				return err
			}
			letters = slices.DeleteFunc(letters, func(c ledger.Claim) bool { return !written[c.ID] })
			return s.moveLetters(ctx, tx, letters)
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
	alerts, err := s.freshAlerts(ctx, tx, w.alerts)
	if err != nil {
		return nil, err
	}
	if err := s.insertRows(ctx, tx, w.inserts, written); err != nil {
		return nil, err
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
	return written, s.raiseClaims(ctx, tx, w, alerts, written)
}

// writeAll writes the work of a transaction that stands or falls as a whole.
func (s *Store) writeAll(ctx context.Context, tx *sqlx.Tx, w *work) error {
	written, err := s.writeSome(ctx, tx, w)
	if err == nil && len(written) < len(w.changes)+len(w.inserts) {
		return errMoved
	}
	return err
}
