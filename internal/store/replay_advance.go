package store

import (
	"context"
	"slices"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// advancePages is how many pages of waiting letters one transaction looks at; what is left is the sweep's.
const advancePages = 5

// replayed brings a replay up to date with letters of it that this transaction has written: the places that they leave
// free are taken by the next.
func (s *Store) replayed(ctx context.Context, tx *sqlx.Tx, letters []deadletter.Letter) error {
	letters = slices.DeleteFunc(slices.Clone(letters), func(l deadletter.Letter) bool { return l.Status == deadletter.Replaying })
	if len(letters) == 0 {
		return nil
	}
	rep, err := s.lockedReplay(ctx, tx, letters[0].ReplayID)
	if err != nil || rep == nil {
		return err
	}
	now := s.clock.now()
	moved := false
	for i := range letters {
		l := &letters[i]
		if l.Status == deadletter.Queued { // its worker was told to wait
			if !rep.Status.Open() {
				if err := s.release(ctx, tx, rep, letters[i:i+1], now); err != nil {
					return err
				}
			}
			continue
		}
		one, err := s.member(ctx, tx, rep, l, now)
		if err != nil {
			return err
		}
		moved = moved || one
	}
	if !moved || !rep.Status.Open() {
		return nil
	}
	return s.advance(ctx, tx, rep, now)
}

// member notes what became of a letter in its replay, and tells whether that is new.
func (s *Store) member(ctx context.Context, tx *sqlx.Tx, rep *deadletter.Replay, l *deadletter.Letter, now ledger.Instant) (moved bool, err error) {
	var states []deadletter.ReplayLetterState
	if err := tx.SelectContext(ctx, &states, tx.Rebind(`select state from replay_letters where replay_id = ? and letter_id = ?`), rep.ID, l.ID); err != nil || len(states) == 0 {
		return false, err
	}
	next, judged := states[0].After(l)
	if next == states[0] {
		return false, nil
	}
	if _, err := tx.ExecContext(ctx, tx.Rebind(`update replay_letters set state = ?, settled_no = case when not ? or settled_no > 0 then settled_no
		else (select coalesce(max(settled_no), 0) + 1 from replay_letters where replay_id = ? and settled_no > 0) end where replay_id = ? and letter_id = ?`),
		string(next), judged, rep.ID, rep.ID, l.ID); err != nil || !judged {
		return true, err
	}
	return true, s.noteReplay(ctx, tx, rep, l, now)
}

// advance queues what has its turn and brings the replay where its letters have brought it. The replay is locked.
func (s *Store) advance(ctx context.Context, tx *sqlx.Tx, rep *deadletter.Replay, now ledger.Instant) error {
	for range advancePages {
		t, err := s.tally(ctx, tx, rep.ID)
		if err != nil {
			return err
		}
		to, places := rep.Next(t)
		if to == rep.Status {
			more, err := s.playNext(ctx, tx, rep, places, now)
			if err != nil || !more {
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
		var played deadletter.Played
		if err := tx.GetContext(ctx, &played, tx.Rebind(`select coalesce(sum(case when state = 'resolved' then 1 else 0 end), 0) as resolved,
			coalesce(sum(case when state = 'failed' then 1 else 0 end), 0) as failed, coalesce(sum(case when state in ('waiting', 'released') then 1 else 0 end), 0) as unplayed
			from replay_letters where replay_id = ?`), rep.ID); err != nil {
			return err
		}
		return s.raise(ctx, tx, rep.Alert(played, now))
	}
	return nil
}

// tally counts as far as it matters: of the waiting, no more than could be queued at once.
func (s *Store) tally(ctx context.Context, tx *sqlx.Tx, id string) (t deadletter.Tally, err error) {
	count := func(n, samples *int64, state deadletter.ReplayLetterState, limit int) error {
		return tx.QueryRowxContext(ctx, tx.Rebind(`select count(*), coalesce(sum(case when sample then 1 else 0 end), 0) from
			(select sample from replay_letters where replay_id = ? and state = ? order by n limit ?) as m`), id, string(state), limit).Scan(n, samples)
	}
	var last []deadletter.ReplayLetterState
	err = firstOf(
		func() error {
			return count(&t.Waiting, &t.SampleWaits, deadletter.MemberWaiting, deadletter.MaxReplayAtOnce)
		},
		func() error {
			return count(&t.Active, &t.SampleActive, deadletter.MemberActive, deadletter.MaxReplayLetters)
		},
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

// playNext queues up to n letters whose turn it is, out of a page of those that wait. One that is held by now is passed
// over; one that somebody is writing just now has its turn later. more is true where some were passed over.
func (s *Store) playNext(ctx context.Context, tx *sqlx.Tx, rep *deadletter.Replay, n int64, now ledger.Instant) (more bool, err error) {
	if n == 0 {
		return false, nil
	}
	// || keeps SQLite from walking all dead letters there are.
	query := "select " + names(leanLetter, "l.") + ` from replay_letters as m join letters as l on l.id = m.letter_id
		where m.replay_id = ? and m.state = 'waiting' and (m.sample or ?) and l.replay_id || '' = m.replay_id and l.status || '' = 'dead' order by m.n limit ?`
	if s.dialect.name == postgres.name {
		query += " for update of l skip locked"
	}
	letters, err := selectRows(ctx, tx, leanLetter, query, rep.ID, rep.Status == deadletter.ReplayRunning, page)
	if err != nil || len(letters) == 0 {
		return false, err
	}
	held, err := s.heldBack(ctx, tx, idsOf(letters))
	if err != nil {
		return false, err
	}
	var changes []letterChange
	var played []string
	for i := range letters {
		l := &letters[i]
		if held[l.ID] != "" || int64(len(played)) == n {
			continue
		}
		ch := letterChange{base: l.Rev, inReplay: true}
		ch.letter, ch.entry = rep.Play(l, now)
		changes, played = append(changes, ch), append(played, l.ID)
		if err := s.noteReplay(ctx, tx, rep, l, now); err != nil {
			return false, err
		}
	}
	if len(played) > 0 {
		if _, err := among(ctx, tx, `update replay_letters set state = 'active' where replay_id || '' = ? and letter_id in (?)`, rep.ID, played); err != nil {
			return false, err
		}
	}
	if err := s.writeMany(ctx, tx, changes); err != nil {
		return false, err
	}
	passed, err := s.hold(ctx, tx, rep, letters, held, now)
	return passed > 0, err
}

// hold lets letters go that are held by now, and tells how many there are.
func (s *Store) hold(ctx context.Context, tx *sqlx.Tx, rep *deadletter.Replay, letters []deadletter.Letter, held map[string]string, now ledger.Instant) (int, error) {
	var changes []letterChange
	for i := range letters {
		l := &letters[i]
		why := held[l.ID]
		if why == "" {
			continue
		}
		ch := letterChange{base: l.Rev, inReplay: true}
		ch.letter, ch.entry = rep.Release(l, "held: "+why, now)
		changes = append(changes, ch)
		rep.Held.Add(why)
		if _, err := tx.ExecContext(ctx, tx.Rebind(`update replay_letters set state = 'held', held = ? where replay_id = ? and letter_id = ?`), why, rep.ID, l.ID); err != nil {
			return 0, err
		}
	}
	if len(changes) == 0 {
		return 0, nil
	}
	if err := s.saveReplay(ctx, tx, rep); err != nil {
		return 0, err
	}
	return len(changes), s.writeMany(ctx, tx, changes)
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
			At: now, From: c.Status, To: c.Status, Attempt: c.Attempt, Message: "run again by replay " + rep.ID, By: rep.By(), Reason: rep.Reason,
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
// replay was stopped, or one that was queued is held by now.
func (s *Store) sweepReplays(ctx context.Context) error {
	var ids []string
	if err := s.read.SelectContext(ctx, &ids, `select r.id from replays r where r.status in ('sampling', 'awaiting_approval', 'running') or r.status in ('stopped', 'cancelled')
		and (exists (select 1 from replay_letters m where m.replay_id = r.id and m.state = 'waiting')
			or exists (select 1 from letters l where l.replay_id = r.id and l.replay_id <> '' and l.status = 'queued')) order by r.id`); err != nil {
		return err
	}
	var failed error
	for _, id := range ids {
		if s.stopping.Load() {
			break
		}
		if err := s.retried(ctx, func(tx *sqlx.Tx) error { return s.goOn(ctx, tx, id) }); err != nil {
			failed = err // one replay must not hold up the others
		}
	}
	return failed
}

func (s *Store) goOn(ctx context.Context, tx *sqlx.Tx, id string) error {
	queued, err := selectRows(ctx, tx, leanLetter, leanLetters+`where l.replay_id = ? and l.replay_id <> '' and l.status || '' = 'queued' order by l.id limit ?`+s.skipLocked(),
		id, page)
	if err != nil {
		return err
	}
	rep, err := s.lockedReplay(ctx, tx, id)
	if err != nil || rep == nil {
		return err
	}
	now := s.clock.now()
	if rep.Status.Open() {
		held, err := s.heldBack(ctx, tx, idsOf(queued))
		if err != nil {
			return err
		}
		if _, err := s.hold(ctx, tx, rep, queued, held, now); err != nil {
			return err
		}
		return s.advance(ctx, tx, rep, now)
	}
	letters, err := s.unplayed(ctx, tx, id, s.skipLocked())
	if err != nil {
		return err
	}
	if err := s.release(ctx, tx, rep, letters, now); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, tx.Rebind(`update replay_letters set state = 'released' where replay_id = ? and state = 'waiting' and not exists
		(select 1 from letters l where l.id = replay_letters.letter_id and l.replay_id = replay_letters.replay_id)`), id)
	return err
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
