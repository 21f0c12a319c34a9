package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// candidates finds the letters that a replay would take, oldest first, and tells of each why it is held. They stay as
// they are until the transaction ends.
func (s *Store) candidates(ctx context.Context, q querier, r *deadletter.ReplayRequest, lock string) (letters []deadletter.Letter, held map[string]string, err error) {
	sel := &r.Selector
	var f filter
	f.text("l.status", string(sel.Status))
	f.text("l.workflow_id", sel.WorkflowID)
	f.text("l.source", sel.Source)
	f.text("l.destination", sel.Destination)
	f.text("l.class", sel.Class)
	f.span("l.created_at", sel.From, sel.To)
	if len(sel.IDs) > 0 {
		args := make([]any, len(sel.IDs))
		for i, id := range sel.IDs {
			args[i] = id
		}
		f.add("l.id in ("+repeated("?", len(args))+")", args...)
	}
	// An error workflow that failed itself is never run again; one letter is in one open replay.
	f.add("l.reason <> ? and l.identity not like 'handler:%'", deadletter.ReasonHandlerFailed)
	f.add("(l.replay_id = '' or not exists (select 1 from replays r where r.id = l.replay_id and r.ended_at = 0))")
	letters, err = selectRows(ctx, q, leanLetter, leanLetters+f.sql("order by l.id", int(r.Limit)-1)+lock, f.args...)
	if err != nil {
		return nil, nil, err
	}
	if err := s.unclaimed(ctx, q, letters); err != nil {
		return nil, nil, err
	}
	held, err = s.heldBack(ctx, q, idsOf(letters))
	return letters, held, err
}

// unclaimed looks again whether another replay took letters while this one waited for their locks: what the lock waited
// for was not to be seen when the query began. The choice is then made anew.
func (s *Store) unclaimed(ctx context.Context, q querier, letters []deadletter.Letter) error {
	seen := map[string]bool{}
	for i := range letters {
		id := letters[i].ReplayID
		if id == "" || seen[id] {
			continue
		}
		seen[id] = true
		var open int
		if err := sqlx.GetContext(ctx, q, &open, q.Rebind(`select count(*) from replays where id = ? and ended_at = 0`), id); err != nil {
			return err
		}
		if open > 0 {
			return errMoved
		}
	}
	return nil
}

func idsOf(letters []deadletter.Letter) []string {
	ids := make([]string, len(letters))
	for i := range letters {
		ids[i] = letters[i].ID
	}
	return ids
}

// heldBack tells which letters a replay leaves alone, and why: nobody knows how an effect of theirs ended, their event
// is completed, or a newer version of its entity is. Effects may have keys of their own: they are found by the execution.
func (s *Store) heldBack(ctx context.Context, db querier, ids []string) (map[string]string, error) {
	const undecided = `(c.status in ('unknown', 'review') or c.status = 'processing' and c.kind = 'effect' and c.lease_until <= ?)`
	const ofKey = `from claims c where c.source = l.source and c.account = l.account and c.idempotency_key = l.idempotency_key and c.source <> ''`
	const query = `select l.id as letter_id, case
		when exists (select 1 ` + ofKey + ` and ` + undecided + `)
			or exists (select 1 from claims c where c.execution_id = l.execution_id and c.execution_id <> '' and c.workflow_id = l.workflow_id and c.kind = 'effect' and ` + undecided + `)
			then 'unknown'
		when exists (select 1 ` + ofKey + ` and c.kind = 'event' and c.status = 'completed' and (c.id = l.claim_id or c.step = '' and (l.step <> '' or l.claim_id = ''))) then 'completed'
		when exists (select 1 ` + ofKey + ` and (c.status = 'stale' or exists (select 1 from entities e where e.source = c.source and e.account = c.account
			and e.entity = c.entity and c.entity <> '' and (c.version_kind = 1 and e.done_integer > c.version_rank or c.version_kind = 2 and e.done_time > c.version_rank))))
			then 'superseded'
		else '' end as held from letters l where l.id in (?)`
	now := int64(s.clock.now())
	out := map[string]string{}
	for _, some := range pagesOf(ids) {
		q, args, err := sqlx.In(query, now, now, some)
		if err != nil {
			return nil, err
		}
		var rows []memberRow
		if err := sqlx.SelectContext(ctx, db, &rows, db.Rebind(q), args...); err != nil {
			return nil, err
		}
		for _, row := range rows {
			out[row.LetterID] = row.Held
		}
	}
	return out, nil
}

func countHeld(held map[string]string) (h deadletter.Held) {
	for _, why := range held {
		h.Add(why)
	}
	return h
}

// ForecastReplay is part of deadletter.ReplayStore.
func (s *Store) ForecastReplay(ctx context.Context, r *deadletter.ReplayRequest) (f deadletter.Forecast, err error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	letters, held, err := s.candidates(ctx, s.read, r, "")
	f.Matched, f.Held = int64(len(letters)), countHeld(held)
	f.WouldRun = f.Matched - f.Held.Total()
	return f, s.translate(err)
}

// StartReplay is part of deadletter.ReplayStore.
func (s *Store) StartReplay(ctx context.Context, r *deadletter.ReplayRequest) (rep deadletter.Replay, known bool, err error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	err = s.retried(ctx, func(tx *sqlx.Tx) error {
		rep, known, err = s.startReplay(ctx, tx, r)
		return err
	})
	if err == nil {
		err = s.countReplay(ctx, &rep)
	}
	return rep, known, s.translate(err)
}

func (s *Store) startReplay(ctx context.Context, tx *sqlx.Tx, r *deadletter.ReplayRequest) (rep deadletter.Replay, known bool, err error) {
	now := s.clock.now()
	rep = deadletter.NewReplay(r, now)
	if fresh, err := s.insertReplay(ctx, tx, &rep); err != nil || !fresh {
		open, err := readReplays(ctx, tx, "where r.identity = ? and r.ended_at = 0", rep.Identity)
		if err == nil && len(open) == 0 {
			err = errMoved // it ended just now
		}
		if err != nil {
			return rep, false, err
		}
		return open[0], true, nil
	}
	letters, held, err := s.candidates(ctx, tx, r, s.dialect.forUpdate)
	if err != nil {
		return rep, false, err
	}
	rep.Matched, rep.Held = int64(len(letters)), countHeld(held)
	members := make([]memberRow, 0, len(letters))
	var changes []letterChange
	for i := range letters {
		l := &letters[i]
		m := memberRow{LetterID: l.ID, N: int64(i + 1), State: deadletter.MemberWaiting}
		if m.Held = held[l.ID]; m.Held != "" {
			m.State = deadletter.MemberHeld
			members = append(members, m)
			continue
		}
		m.Sample = int64(len(changes)) < rep.SampleSize
		ch := letterChange{base: l.Rev, inReplay: true}
		ch.letter, ch.entry = rep.Choose(l, now)
		changes, members = append(changes, ch), append(members, m)
	}
	if err := s.insertMembers(ctx, tx, rep.ID, members); err != nil {
		return rep, false, err
	}
	if err := s.writeMany(ctx, tx, changes); err != nil {
		return rep, false, err
	}
	what := fmt.Sprintf("started replay %s of %d letters, %d of them held", rep.ID, rep.Matched, rep.Held.Total())
	if err := s.act(ctx, tx, now, what, rep.AuthorizedBy, rep.Reason); err != nil {
		return rep, false, err
	}
	if err := s.saveReplay(ctx, tx, &rep); err != nil {
		return rep, false, err
	}
	return rep, false, s.advance(ctx, tx, &rep, now)
}

// writeMany writes changes of letters that this transaction has locked, some at a time.
func (s *Store) writeMany(ctx context.Context, tx *sqlx.Tx, changes []letterChange) error {
	for _, some := range pagesOf(changes) {
		if err := s.writeLetters(ctx, tx, some); err != nil {
			return err
		}
	}
	return nil
}

// MoveReplay is part of deadletter.ReplayStore. Letters are locked before their replay, as everywhere.
func (s *Store) MoveReplay(ctx context.Context, id string, m *deadletter.ReplayMove) (rep deadletter.Replay, changed bool, err error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	err = s.retried(ctx, func(tx *sqlx.Tx) error {
		var unplayed []deadletter.Letter
		if m.Verb == deadletter.Cancel {
			if unplayed, err = s.unplayed(ctx, tx, id, s.dialect.forUpdate); err != nil {
				return err
			}
		}
		locked, err := s.lockedReplay(ctx, tx, id)
		if err != nil {
			return err
		}
		if locked == nil {
			return ledger.ErrNotFound
		}
		if m.Verb == deadletter.Approve {
			t, err := s.tally(ctx, tx, id)
			if err != nil {
				return err
			}
			locked.Overtaken(t)
		}
		now := s.clock.now()
		changed, err = locked.Move(m, now)
		rep = *locked
		if err != nil || !changed {
			return err
		}
		if err := s.act(ctx, tx, now, map[deadletter.ReplayVerb]string{deadletter.Approve: "approved", deadletter.Pause: "paused", deadletter.Cancel: "cancelled"}[m.Verb]+
			" replay "+id, m.AuthorizedBy, m.Reason); err != nil {
			return err
		}
		if err := s.saveReplay(ctx, tx, &rep); err != nil {
			return err
		}
		if m.Verb == deadletter.Cancel {
			return s.release(ctx, tx, &rep, unplayed, now)
		}
		return s.advance(ctx, tx, &rep, now)
	})
	if rep.ID != "" {
		if countErr := s.countReplay(ctx, &rep); err == nil {
			err = countErr
		}
	}
	return rep, changed, s.translate(err)
}

// unplayed are the letters of a replay that no worker holds and that are not settled: waiting for their turn, or
// queued. || keeps the databases from walking all of the replay for each of them.
func (s *Store) unplayed(ctx context.Context, tx *sqlx.Tx, id, lock string) ([]deadletter.Letter, error) {
	return selectRows(ctx, tx, leanLetter, leanLetters+`where l.replay_id = ? and l.replay_id <> '' and (l.status = 'queued' or l.status = 'dead' and exists
		(select 1 from replay_letters m where m.letter_id = l.id and m.replay_id || '' = l.replay_id and m.state || '' = 'waiting')) order by l.id`+lock, id)
}

// release lets letters go that were not played.
func (s *Store) release(ctx context.Context, tx *sqlx.Tx, rep *deadletter.Replay, letters []deadletter.Letter, now ledger.Instant) error {
	for _, some := range pagesOf(letters) {
		changes := make([]letterChange, len(some))
		for i := range some {
			changes[i] = letterChange{base: some[i].Rev, inReplay: true}
			changes[i].letter, changes[i].entry = rep.Release(&some[i], "the replay is "+string(rep.Status), now)
		}
		if err := s.writeLetters(ctx, tx, changes); err != nil {
			return err
		}
		if _, err := among(ctx, tx, `update replay_letters set state = 'released' where replay_id || '' = ? and letter_id in (?)`, rep.ID, idsOf(some)); err != nil {
			return err
		}
	}
	return nil
}

// pagesOf cuts rows into what one statement takes.
func pagesOf[T any](rows []T) [][]T { return slices.Collect(slices.Chunk(rows, page)) }
