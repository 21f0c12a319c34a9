package store

import (
	"context"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// replayed brings the replay of a letter that was just written up to date, in the same transaction: the place that it
// leaves free is taken by the next.
func (s *Store) replayed(ctx context.Context, tx *sqlx.Tx, l *deadletter.Letter) error {
	if l.ReplayID == "" || l.Status == deadletter.Replaying {
		return nil
	}
	rep, err := s.lockedReplay(ctx, tx, l.ReplayID)
	if err != nil || rep == nil {
		return err
	}
	now := s.clock.now()
	if l.Status == deadletter.Queued { // its worker was told to wait
		if rep.Status.Open() {
			return nil
		}
		return s.release(ctx, tx, rep, []deadletter.Letter{*l}, now)
	}
	var members []memberRow
	if err := tx.SelectContext(ctx, &members, tx.Rebind(`select letter_id, n, sample, state, held from replay_letters where replay_id = ? and letter_id = ?`),
		rep.ID, l.ID); err != nil || len(members) == 0 {
		return err
	}
	next, judged := members[0].State.After(l)
	if next == members[0].State {
		return nil
	}
	if _, err := tx.ExecContext(ctx, tx.Rebind(`update replay_letters set state = ?, settled_no = case when not ? or settled_no > 0 then settled_no
		else (select coalesce(max(settled_no), 0) + 1 from replay_letters where replay_id = ?) end where replay_id = ? and letter_id = ?`),
		string(next), judged, rep.ID, rep.ID, l.ID); err != nil {
		return err
	}
	if err := s.noteReplay(ctx, tx, rep, l, now); err != nil || !rep.Status.Open() {
		return err
	}
	return s.advance(ctx, tx, rep, now)
}

// advance queues what has its turn and brings the replay where its letters have brought it. The replay is locked.
func (s *Store) advance(ctx context.Context, tx *sqlx.Tx, rep *deadletter.Replay, now ledger.Instant) error {
	for {
		t, err := s.tally(ctx, tx, rep.ID)
		if err != nil {
			return err
		}
		to, places := rep.Next(t)
		if to == rep.Status {
			n, err := s.playNext(ctx, tx, rep, places, now)
			if err != nil || n == 0 {
				return err
			}
			continue
		}
		rep.Enter(to, now)
		if err := s.saveReplay(ctx, tx, rep); err != nil {
			return err
		}
		if to == deadletter.ReplayStopped {
			// Those that somebody is writing just now are released by the sweep.
			letters, err := s.unplayed(ctx, tx, rep.ID, s.skipLocked())
			if err != nil {
				return err
			}
			if err := s.release(ctx, tx, rep, letters, now); err != nil {
				return err
			}
		}
		return s.raise(ctx, tx, rep.Alert(t, now))
	}
}

func (s *Store) tally(ctx context.Context, tx *sqlx.Tx, id string) (t deadletter.Tally, err error) {
	var rows []struct {
		State  deadletter.ReplayLetterState `db:"state"`
		Sample bool                         `db:"sample"`
		N      int64                        `db:"n"`
	}
	if err := tx.SelectContext(ctx, &rows, tx.Rebind(`select state, sample, count(*) as n from replay_letters where replay_id = ? group by state, sample`), id); err != nil {
		return t, err
	}
	for _, r := range rows {
		switch r.State {
		case deadletter.MemberWaiting:
			t.Waiting += r.N
			if r.Sample {
				t.SampleWaits += r.N
			}
		case deadletter.MemberActive:
			t.Active += r.N
			if r.Sample {
				t.SampleActive += r.N
			}
		}
	}
	var last []deadletter.ReplayLetterState
	err = firstOf(
		func() error {
			return tx.GetContext(ctx, &t.Settled, tx.Rebind(`select coalesce(max(settled_no), 0) from replay_letters where replay_id = ? and settled_no > 0`), id)
		},
		func() error {
			return tx.SelectContext(ctx, &last, tx.Rebind(`select state from replay_letters where replay_id = ? and settled_no > ? and settled_no > 0`), id, t.Settled-deadletter.ReplayWindow)
		},
	)
	for _, state := range last {
		if state == deadletter.MemberFailed {
			t.LastFailed++
		}
	}
	return t, err
}

// playNext queues up to n letters whose turn it is, and tells how many it has looked at. One that is held by now is
// passed over; one that somebody is writing just now has its turn later.
func (s *Store) playNext(ctx context.Context, tx *sqlx.Tx, rep *deadletter.Replay, n int64, now ledger.Instant) (int, error) {
	if n == 0 {
		return 0, nil
	}
	query := "select " + names(leanLetter, "l.") + ` from replay_letters as m join letters as l on l.id = m.letter_id
		where m.replay_id = ? and m.state = 'waiting' and (m.sample or ?) and l.replay_id = m.replay_id and l.status = 'dead' order by m.n limit ?`
	if s.dialect.name == postgres.name {
		query += " for update of l skip locked"
	}
	letters, err := selectRows(ctx, tx, leanLetter, query, rep.ID, rep.Status == deadletter.ReplayRunning, n)
	if err != nil || len(letters) == 0 {
		return 0, err
	}
	held, err := s.heldBack(ctx, tx, idsOf(letters))
	if err != nil {
		return 0, err
	}
	changes := make([]letterChange, len(letters))
	for i := range letters {
		l, ch := &letters[i], &changes[i]
		*ch = letterChange{base: l.Rev, inReplay: true}
		state := deadletter.MemberActive
		if why := held[l.ID]; why != "" {
			state = deadletter.MemberHeld
			ch.letter, ch.entry = rep.Release(l, "held: "+why, now)
		} else {
			ch.letter, ch.entry = rep.Play(l, now)
			if err := s.noteReplay(ctx, tx, rep, l, now); err != nil {
				return 0, err
			}
		}
		if err := setMember(ctx, tx, rep.ID, l.ID, state, held[l.ID]); err != nil {
			return 0, err
		}
	}
	if late := countHeld(held); late.Total() > 0 {
		rep.Held.Unknown += late.Unknown
		rep.Held.Superseded += late.Superseded
		rep.Held.Completed += late.Completed
		if err := s.saveReplay(ctx, tx, rep); err != nil {
			return 0, err
		}
	}
	return len(letters), s.writeMany(ctx, tx, changes)
}

// noteReplay writes the replay into the history of the claims that a run of the letter touches, once for each: those of
// its key, and those of the executions that have claimed them.
func (s *Store) noteReplay(ctx context.Context, tx *sqlx.Tx, rep *deadletter.Replay, l *deadletter.Letter, now ledger.Instant) error {
	var claims []struct {
		ID        string        `db:"id"`
		Status    ledger.Status `db:"status"`
		Attempt   int64         `db:"attempt"`
		Execution string        `db:"execution_id"`
		Workflow  string        `db:"workflow_id"`
	}
	const read = `select id, status, attempt, execution_id, workflow_id from claims where `
	executions := []any{l.ExecutionID}
	if l.Key.Source != "" {
		if err := tx.SelectContext(ctx, &claims, tx.Rebind(read+`source = ? and account = ? and idempotency_key = ?`), l.Key.Source, l.Key.Account, l.Key.IdempotencyKey); err != nil {
			return err
		}
		for _, c := range claims {
			executions = append(executions, c.Execution)
		}
	}
	if err := tx.SelectContext(ctx, &claims, tx.Rebind(read+`execution_id in (`+repeated("?", len(executions))+`) and execution_id <> '' and workflow_id = ? limit 100`),
		append(executions, l.WorkflowID)...); err != nil {
		return err
	}
	var notes []ledger.HistoryEntry
	for _, c := range claims {
		notes = append(notes, ledger.HistoryEntry{ID: "replay-" + rep.ID, ClaimID: c.ID, Transition: ledger.Transition{
			At: now, From: c.Status, To: c.Status, Attempt: c.Attempt, Message: "run again by replay " + rep.ID, By: rep.AuthorizedBy, Reason: rep.Reason,
		}})
	}
	return s.insertEntries(ctx, tx, notes)
}

// waitsInReplay tells whether an open replay has the letter still to play.
func (s *Store) waitsInReplay(ctx context.Context, tx *sqlx.Tx, l *deadletter.Letter) (bool, error) {
	if l.ReplayID == "" {
		return false, nil
	}
	var n int
	err := tx.GetContext(ctx, &n, tx.Rebind(`select count(*) from replay_letters m join replays r on r.id = m.replay_id
		where m.replay_id = ? and m.letter_id = ? and m.state in ('waiting', 'active') and r.ended_at = 0`), l.ReplayID, l.ID)
	return n > 0, err
}

// sweepReplays goes on with replays that no letter has moved: a letter was being written when its turn came, or when its
// replay was stopped.
func (s *Store) sweepReplays(ctx context.Context) error {
	var ids []string
	if err := s.read.SelectContext(ctx, &ids, `select r.id from replays r where r.status in ('sampling', 'awaiting_approval', 'running') or r.status in ('stopped', 'cancelled')
		and (exists (select 1 from replay_letters m where m.replay_id = r.id and m.state = 'waiting')
			or exists (select 1 from letters l where l.replay_id = r.id and l.replay_id <> '' and l.status = 'queued')) order by r.id`); err != nil {
		return err
	}
	for _, id := range ids {
		if err := s.retried(ctx, func(tx *sqlx.Tx) error { return s.goOn(ctx, tx, id) }); err != nil || s.stopping.Load() {
			return err
		}
	}
	return nil
}

func (s *Store) goOn(ctx context.Context, tx *sqlx.Tx, id string) error {
	rep, err := s.lockedReplay(ctx, tx, id)
	if err != nil || rep == nil {
		return err
	}
	now := s.clock.now()
	if rep.Status.Open() {
		return s.advance(ctx, tx, rep, now)
	}
	letters, err := s.unplayed(ctx, tx, id, s.skipLocked())
	if err != nil {
		return err
	}
	return s.release(ctx, tx, rep, letters, now)
}

// leaveReplay lets a letter go whose replay has ended, when a run from elsewhere fails: what is retried by itself is that
// run's, not the replay's.
func (s *Store) leaveReplay(ctx context.Context, tx *sqlx.Tx, l *deadletter.Letter, c *ledger.Claim) error {
	if l == nil || !l.Outside(c) {
		return nil
	}
	var open int
	err := tx.GetContext(ctx, &open, tx.Rebind(`select count(*) from replays where id = ? and ended_at = 0`), l.ReplayID)
	if err == nil && open == 0 {
		l.ReplayID = ""
	}
	return err
}
