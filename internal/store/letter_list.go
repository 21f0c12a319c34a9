package store

import (
	"context"
	"slices"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// entriesShown is how many of the newest entries of a letter are shown.
const entriesShown = 500

// GetLetter is part of deadletter.Store.
func (s *Store) GetLetter(ctx context.Context, id string) (deadletter.Letter, []deadletter.Entry, error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	l, err := readLetter(ctx, s.read, letterColumns, "l.id = ?", id)
	if err != nil {
		return deadletter.Letter{}, nil, s.translate(err)
	}
	if l == nil {
		return deadletter.Letter{}, nil, ledger.ErrNotFound
	}
	entries, err := selectRows(ctx, s.read, letterEntryColumns, entrySelect+"where e.letter_id = ? order by e.n desc limit ?", id, entriesShown)
	slices.Reverse(entries)
	return *l, entries, s.translate(err)
}

// Letters is part of deadletter.Store. Ids are made in the order of time, so they serve as the cursor.
func (s *Store) Letters(ctx context.Context, q deadletter.Filter) ([]deadletter.Letter, string, error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	var f filter
	f.text("l.status", string(q.Status))
	f.text("l.workflow_id", q.WorkflowID)
	f.text("l.source", q.Source)
	f.text("l.destination", q.Destination)
	f.text("l.class", q.Class)
	f.span("l.created_at", q.From, q.To)
	if q.Cursor != "" {
		f.add("l.id < ?", q.Cursor)
	}
	rows, err := selectRows(ctx, s.read, leanLetter, leanLetters+f.sql("order by l.id desc", q.Limit), f.args...)
	if err != nil || len(rows) <= q.Limit {
		return rows, "", s.translate(err)
	}
	return rows[:q.Limit], rows[q.Limit-1].ID, nil
}

// LetterStats is part of deadletter.Store.
func (s *Store) LetterStats(ctx context.Context) (out deadletter.Stats, err error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	out = deadletter.Stats{ByStatus: map[deadletter.Status]int64{}, ByClass: map[string]int64{}, ByWorkflow: map[string]int64{}, Replays: map[deadletter.ReplayStatus]int64{}}
	const open = ` from letters where status in ('queued', 'replaying', 'dead') `
	err = firstOf(
		func() error {
			return s.counts(ctx, `select status as name, count(*) as n from letters group by status`, func(name string, n int64) {
				out.ByStatus[deadletter.Status(name)] = n
			})
		},
		func() error {
			return s.counts(ctx, `select class as name, count(*) as n`+open+`group by class`, func(name string, n int64) { out.ByClass[name] = n })
		},
		func() error {
			return s.counts(ctx, `select workflow_id as name, count(*) as n`+open+`group by workflow_id order by n desc, name limit 10`,
				func(name string, n int64) { out.ByWorkflow[name] = n })
		},
		func() error {
			return s.read.QueryRowxContext(ctx, s.read.Rebind(`select count(*), coalesce(min(next_retry_at), 0) from letters where status = 'queued' and next_retry_at <= ?`),
				int64(s.clock.now())).Scan(&out.Due, (*int64)(&out.OldestDueAt))
		},
		func() error {
			return s.read.GetContext(ctx, (*int64)(&out.OldestDeadAt), `select coalesce(min(updated_at), 0) from letters where status = 'dead'`)
		},
		func() error {
			return s.read.GetContext(ctx, &out.InputsMissing, `select count(*)`+open+`and input_state <> 'stored'`)
		},
		func() error {
			return s.counts(ctx, `select status as name, count(*) as n from replays where ended_at = 0 group by status`, func(name string, n int64) {
				out.Replays[deadletter.ReplayStatus(name)] = n
			})
		},
	)
	return out, s.translate(err)
}

func firstOf(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) counts(ctx context.Context, query string, each func(name string, n int64)) error {
	var rows []struct {
		Name string `db:"name"`
		N    int64  `db:"n"`
	}
	err := s.read.SelectContext(ctx, &rows, query)
	for _, r := range rows {
		each(r.Name, r.N)
	}
	return err
}

// KnowsExecution is part of deadletter.Store.
func (s *Store) KnowsExecution(ctx context.Context, workflowID, executionID string) (bool, error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	var n int
	err := s.read.GetContext(ctx, &n, s.read.Rebind(`select count(*) from (select 1 from letter_entries where execution_id = ? and execution_id <> '' and kind = 'report'
		and (workflow_id = ? or workflow_id = '') limit 1) as known`), executionID, workflowID)
	return n > 0, s.translate(err)
}

// WantedInputs is part of deadletter.Store.
func (s *Store) WantedInputs(ctx context.Context, limit int) ([]deadletter.Letter, error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	rows, err := selectRows(ctx, s.read, leanLetter, leanLetters+"where l.input_state = 'wanted' order by l.id limit ?", limit)
	return rows, s.translate(err)
}

// SetInput is part of deadletter.Store. A payload that came by another way meanwhile stays.
func (s *Store) SetInput(ctx context.Context, id string, payload []byte) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	state := deadletter.InputStored
	if len(payload) == 0 {
		state, payload = deadletter.InputMissing, []byte{}
	}
	_, err := s.write.ExecContext(ctx, s.write.Rebind(`update letters set payload = ?, input_state = ?, rev = rev + 1 where id = ? and input_state = 'wanted'`),
		payload, string(state), id)
	return s.translate(err)
}

// Succeeded is part of deadletter.Store.
func (s *Store) Succeeded(ctx context.Context, workflowID, executionID string) (n int, err error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	var ids []string
	if err := sqlx.SelectContext(ctx, s.read, &ids, s.read.Rebind(`select id from letters where execution_id = ? and execution_id <> '' and workflow_id = ?
		and status in ('queued', 'dead')`), executionID, workflowID); err != nil {
		return 0, s.translate(err)
	}
	for _, id := range ids {
		done, err := s.settleLetter(ctx, id, deadletter.ReasonSucceeded)
		if err != nil {
			return n, s.translate(err)
		}
		if done {
			n++
		}
	}
	return n, nil
}

// Mark is part of deadletter.Store.
func (s *Store) Mark(ctx context.Context, name string) (value string, err error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	var values []string
	if err = s.read.SelectContext(ctx, &values, s.read.Rebind(`select value from marks where name = ?`), name); len(values) > 0 {
		value = values[0]
	}
	return value, s.translate(err)
}

// SetMark is part of deadletter.Store.
func (s *Store) SetMark(ctx context.Context, name, value string) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	_, err := s.write.ExecContext(ctx, s.write.Rebind(`insert into marks (name, value) values (?, ?) on conflict (name) do update set value = excluded.value`), name, value)
	return s.translate(err)
}
