package store

import (
	"context"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// countReplay reads where the letters of a replay stand.
func (s *Store) countReplay(ctx context.Context, rep *deadletter.Replay) error {
	var rows []struct {
		State deadletter.ReplayLetterState `db:"state"`
		N     int64                        `db:"n"`
	}
	c := deadletter.ReplayCounts{}
	err := firstOf(
		func() error {
			return s.read.SelectContext(ctx, &rows, s.read.Rebind(`select state, count(*) as n from replay_letters where replay_id = ? group by state`), rep.ID)
		},
		func() error {
			return s.read.GetContext(ctx, &c.Replaying, s.read.Rebind(`select count(*) from replay_letters m join letters l on l.id = m.letter_id
				where m.replay_id = ? and m.state = 'active' and l.status || '' = 'replaying'`), rep.ID)
		},
	)
	for _, r := range rows {
		switch r.State {
		case deadletter.MemberActive:
			c.Replaying = min(c.Replaying, r.N) // one may have been leased between the two
			c.Queued = r.N - c.Replaying
		case deadletter.MemberWaiting:
			c.Waiting = r.N
		case deadletter.MemberResolved:
			c.Resolved = r.N
		default:
			c.Dead += r.N
		}
	}
	rep.Counts = c
	return err
}

// GetReplay is part of deadletter.ReplayStore.
func (s *Store) GetReplay(ctx context.Context, id string) (rep deadletter.Replay, letters []deadletter.ReplayLetter, err error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	reps, err := readReplays(ctx, s.read, "where r.id = ?", id)
	switch {
	case err != nil:
		return rep, nil, s.translate(err)
	case len(reps) == 0:
		return rep, nil, ledger.ErrNotFound
	}
	rep = reps[0]
	if err := s.countReplay(ctx, &rep); err != nil {
		return rep, nil, s.translate(err)
	}
	letters, err = selectRows(ctx, s.read, replayLetterColumns, `select m.letter_id, m.n, m.sample, m.state, m.held, coalesce(l.status, ''), coalesce(l.reason, ''),
		coalesce(l.class, ''), coalesce(l.summary, ''), coalesce(l.claim_id, ''), coalesce(l.workflow_id, '')
		from replay_letters m left join letters l on l.id = m.letter_id where m.replay_id = ? order by m.n limit ?`, id, deadletter.ReplayLettersShown)
	return rep, letters, s.translate(err)
}

var replayLetterColumns = []columnOf[deadletter.ReplayLetter]{
	{"letter_id", func(l *deadletter.ReplayLetter) any { return &l.LetterID }, true},
	{"n", func(l *deadletter.ReplayLetter) any { return &l.N }, true},
	{"sample", func(l *deadletter.ReplayLetter) any { return &l.Sample }, true},
	{"state", func(l *deadletter.ReplayLetter) any { return (*string)(&l.State) }, true},
	{"held", func(l *deadletter.ReplayLetter) any { return &l.Held }, true},
	{"status", func(l *deadletter.ReplayLetter) any { return (*string)(&l.Status) }, true},
	{"reason", func(l *deadletter.ReplayLetter) any { return &l.Reason }, true},
	{"class", func(l *deadletter.ReplayLetter) any { return &l.Class }, true},
	{"summary", func(l *deadletter.ReplayLetter) any { return &l.Summary }, true},
	{"claim_id", func(l *deadletter.ReplayLetter) any { return &l.ClaimID }, true},
	{"workflow_id", func(l *deadletter.ReplayLetter) any { return &l.WorkflowID }, true},
}

// Replays is part of deadletter.ReplayStore. Ids are made in the order of time, so they serve as the cursor.
func (s *Store) Replays(ctx context.Context, q deadletter.ReplayFilter) ([]deadletter.Replay, string, error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	var f filter
	f.text("r.status", string(q.Status))
	if q.Cursor != "" {
		f.add("r.id < ?", q.Cursor)
	}
	reps, err := readReplays(ctx, s.read, f.sql("order by r.id desc", q.Limit), f.args...)
	if err != nil {
		return nil, "", s.translate(err)
	}
	next := ""
	if len(reps) > q.Limit {
		reps = reps[:q.Limit]
		next = reps[q.Limit-1].ID
	}
	for i := range reps {
		if err := s.countReplay(ctx, &reps[i]); err != nil {
			return nil, "", s.translate(err)
		}
	}
	return reps, next, nil
}
