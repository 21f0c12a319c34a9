package store

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// replayRow is a replay with its selector as text.
type replayRow struct {
	deadletter.Replay
	selector string
}

var replayColumns = []columnOf[replayRow]{
	{"id", func(r *replayRow) any { return &r.ID }, true},
	{"identity", func(r *replayRow) any { return &r.Identity }, true},
	{"rev", func(r *replayRow) any { return &r.Rev }, false},
	{"status", func(r *replayRow) any { return (*string)(&r.Status) }, false},
	{"paused_from", func(r *replayRow) any { return (*string)(&r.PausedFrom) }, false},
	{"selector", func(r *replayRow) any { return &r.selector }, true},
	{"max_letters", func(r *replayRow) any { return &r.Limit }, true},
	{"sample_size", func(r *replayRow) any { return &r.SampleSize }, true},
	{"max_concurrency", func(r *replayRow) any { return &r.MaxConcurrency }, true},
	{"rate_per_minute", func(r *replayRow) any { return &r.RatePerMinute }, true},
	{"authorized_by", func(r *replayRow) any { return &r.AuthorizedBy }, true},
	{"approved_by", func(r *replayRow) any { return &r.ApprovedBy }, false},
	{"resumed_by", func(r *replayRow) any { return &r.ResumedBy }, false},
	{"reason", func(r *replayRow) any { return &r.Reason }, true},
	{"expected_effects", func(r *replayRow) any { return &r.ExpectedEffects }, true},
	{"caller_key", func(r *replayRow) any { return &r.CallerKey }, true},
	{"matched", func(r *replayRow) any { return &r.Matched }, false},
	{"held_unknown", func(r *replayRow) any { return &r.Held.Unknown }, false},
	{"held_superseded", func(r *replayRow) any { return &r.Held.Superseded }, false},
	{"held_completed", func(r *replayRow) any { return &r.Held.Completed }, false},
	{"created_at", func(r *replayRow) any { return (*int64)(&r.CreatedAt) }, true},
	{"updated_at", func(r *replayRow) any { return (*int64)(&r.UpdatedAt) }, false},
	{"ended_at", func(r *replayRow) any { return (*int64)(&r.EndedAt) }, false},
}

// exactSelector keeps times as numbers: as text they would lose what is below a millisecond.
type exactSelector struct {
	deadletter.Selector
	From, To int64
}

// memberRow is one letter of a replay, as it stands in replay_letters.
type memberRow struct {
	LetterID string                       `db:"letter_id"`
	N        int64                        `db:"n"`
	Sample   bool                         `db:"sample"`
	State    deadletter.ReplayLetterState `db:"state"`
	Held     string                       `db:"held"`
}

func (s *Store) insertReplay(ctx context.Context, tx *sqlx.Tx, rep *deadletter.Replay) (bool, error) {
	text, err := json.Marshal(exactSelector{rep.Selector, int64(rep.Selector.From), int64(rep.Selector.To)})
	if err != nil {
		return false, err
	}
	row := replayRow{*rep, string(text)}
	n, err := affected(tx.ExecContext(ctx, tx.Rebind("insert into replays ("+names(replayColumns, "")+") values ("+repeated("?", len(replayColumns))+
		") on conflict do nothing"), rowValues(replayColumns, &row)...))
	return n == 1, err
}

// saveReplay writes what changed of a replay that this transaction has locked.
func (s *Store) saveReplay(ctx context.Context, tx *sqlx.Tx, rep *deadletter.Replay) error {
	rep.Rev++
	row := replayRow{Replay: *rep}
	var set []string
	var args []any
	for _, c := range replayColumns {
		if !c.fixed {
			set, args = append(set, c.name+" = ?"), append(args, value(c.field(&row)))
		}
	}
	_, err := tx.ExecContext(ctx, tx.Rebind("update replays set "+strings.Join(set, ", ")+" where id = ?"), append(args, rep.ID)...)
	return err
}

func readReplays(ctx context.Context, q querier, rest string, args ...any) ([]deadletter.Replay, error) {
	rows, err := selectRows(ctx, q, replayColumns, "select "+names(replayColumns, "r.")+" from replays as r "+rest, args...)
	out := make([]deadletter.Replay, len(rows))
	for i := range rows {
		out[i] = rows[i].Replay
		if err == nil {
			var kept exactSelector
			err = json.Unmarshal([]byte(rows[i].selector), &kept)
			out[i].Selector = kept.Selector
			out[i].Selector.From, out[i].Selector.To = ledger.Instant(kept.From), ledger.Instant(kept.To)
		}
	}
	return out, err
}

// lockedReplay keeps the replay as it is until the transaction ends; nil where there is none. Its lock comes after those
// of letters.
func (s *Store) lockedReplay(ctx context.Context, tx *sqlx.Tx, id string) (*deadletter.Replay, error) {
	reps, err := readReplays(ctx, tx, "where r.id = ?"+s.dialect.forUpdate, id)
	if err != nil || len(reps) == 0 {
		return nil, err
	}
	return &reps[0], nil
}

func (s *Store) insertMembers(ctx context.Context, tx *sqlx.Tx, replayID string, members []memberRow) error {
	for _, some := range pagesOf(members) {
		args := make([]any, 0, 6*len(some))
		for i := range some {
			m := &some[i]
			args = append(args, replayID, m.N, m.LetterID, m.Sample, string(m.State), m.Held)
		}
		if _, err := tx.ExecContext(ctx, tx.Rebind(`insert into replay_letters (replay_id, n, letter_id, sample, state, held) values `+repeated("(?, ?, ?, ?, ?, ?)", len(some))), args...); err != nil {
			return err
		}
	}
	return nil
}
