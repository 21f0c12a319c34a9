package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// replayLife: the sample is played, a person looks at it, and then the rest is played; what comes later is not in it.
func replayLife(w *world) {
	w.row("sample, approval, rest", func(w *world) {
		ids := w.deadLetters(6)
		id := w.started(sampleOf(3))
		w.plays(id, deadletter.ReplaySampling, counts(4, 2, 0, 0, 0))
		if got := w.members(id); !slices.Equal(got, ids) {
			w.Fatalf("%v, want the oldest first: %v", got, ids)
		}
		w.told(w.failed("late", verdict(wrongCredential)))
		got := w.hand("")
		if !slices.Equal(idsOf(got), sorted(ids[:2]...)) {
			w.Fatalf("%v, want the first two of %v", idsOf(got), ids)
		}
		for _, l := range got {
			if l.ReplayID != id || l.AttemptCount != 2 {
				w.Errorf("%+v", l)
			}
		}
		w.plays(id, deadletter.ReplaySampling, counts(4, 0, 2, 0, 0))
		w.withheld("its places are taken")
		w.closed(got[0].ID, by(got[0], deadletter.Resolve), deadletter.Resolved, "replayed")
		w.plays(id, deadletter.ReplaySampling, counts(3, 1, 1, 1, 0))
		w.closed(got[1].ID, by(got[1], deadletter.Fail), deadletter.Dead, "outcome_unknown")
		w.plays(id, deadletter.ReplaySampling, counts(3, 1, 0, 1, 1))
		w.play(deadletter.Resolve)
		w.plays(id, deadletter.ReplayAwaiting, counts(3, 0, 0, 2, 1))
		w.pass(2 * time.Hour)
		w.sweptLetters()
		w.withheld("the rest is not approved")

		w.said(id, deadletter.Approve, deadletter.ReplayRunning)
		if rep := w.plays(id, deadletter.ReplayRunning, counts(1, 2, 0, 2, 1)); rep.ApprovedBy != "duty" || rep.AuthorizedBy != "ada" {
			w.Errorf("approved by %q", rep.ApprovedBy)
		}
		w.play(deadletter.Resolve)
		w.play(deadletter.Fail)
		w.plays(id, deadletter.ReplayRunning, counts(0, 1, 0, 3, 2))
		w.pass(time.Minute)
		w.play(deadletter.Resolve)
		if rep := w.plays(id, deadletter.ReplayDone, counts(0, 0, 0, 4, 2)); rep.EndedAt != w.now() || rep.Matched != 6 {
			w.Errorf("%+v", rep)
		}
		w.pass(2 * time.Hour)
		w.sweptLetters()
		w.withheld("the failed ones wait for a person, as does the one that came late")
	})
	w.row("nothing is left to approve", func(w *world) {
		w.deadLetters(3)
		id := w.started(sampleOf(5))
		for range 3 {
			w.play(deadletter.Resolve)
		}
		if rep := w.plays(id, deadletter.ReplayDone, counts(0, 0, 0, 3, 0)); rep.ApprovedBy != "" {
			w.Errorf("approved by %q", rep.ApprovedBy)
		}
	})
	w.row("no sample", func(w *world) {
		w.deadLetters(3)
		id := w.started(sampleOf(0))
		w.plays(id, deadletter.ReplayAwaiting, counts(3, 0, 0, 0, 0))
		w.withheld("nothing is approved")
		w.said(id, deadletter.Approve, deadletter.ReplayRunning)
		w.plays(id, deadletter.ReplayRunning, counts(1, 2, 0, 0, 0))
		w.ends(id)
	})
	w.row("nothing is chosen", func(w *world) {
		w.told(w.failed("1", harmless))
		rep := w.plays(w.started(), deadletter.ReplayDone, counts(0, 0, 0, 0, 0))
		if rep.Matched != 0 || rep.EndedAt != w.now() {
			w.Errorf("%+v", rep)
		}
	})
	w.row("attempts that are used up are raised by one", func(w *world) {
		id := w.deadLetters(1, maxAttempts(1))[0]
		rep := w.started()
		if l := w.stands(id, deadletter.Queued, deadletter.ReasonRequeued, 1); l.MaxAttempts != 2 || l.NextRetryAt != w.now() {
			w.Errorf("%+v", l)
		}
		w.play(deadletter.Fail)
		w.stands(id, deadletter.Dead, "outcome_unknown", 2)
		w.plays(rep, deadletter.ReplayDone, counts(0, 0, 0, 0, 1))
	})
	w.row("more letters than are shown", func(w *world) {
		w.deadLetters(1)
		w.copyLetter(1099)
		id := w.started(limitOf(1080), sampleOf(1), atMost(100))
		w.plays(id, deadletter.ReplaySampling, counts(1079, 1, 0, 0, 0))
		w.play(deadletter.Resolve)
		w.said(id, deadletter.Approve, deadletter.ReplayRunning)
		w.plays(id, deadletter.ReplayRunning, counts(979, 100, 0, 1, 0))
		w.said(id, deadletter.Cancel, deadletter.ReplayCancelled)
		w.plays(id, deadletter.ReplayCancelled, counts(0, 0, 0, 1, 1079))
		if rows := w.query("select count(*) as n from letters where workflow_id = $1 and status = 'dead'", w.wf()); rows != "n=1099 \n" {
			w.Errorf("dead: %s", rows)
		}
	})
}

// copyLetter makes n more like the only letter of the test's workflow.
func (w *world) copyLetter(n int) {
	w.Helper()
	rows, err := w.raw.QueryContext(w.Context(), "select * from letters limit 1")
	if err != nil {
		w.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil || rows.Err() != nil {
		w.Fatal(err, rows.Err())
	}
	into, from := "", ""
	for _, c := range columns {
		into, from = into+", "+c, from+map[string]string{"id": ", substr(id, 1, 30) || (100000 + n)", "identity": ", identity || n"}[c]
		if c != "id" && c != "identity" {
			from += ", l." + c
		}
	}
	if _, err := w.raw.ExecContext(w.Context(), fmt.Sprintf(`with recursive s(n) as (select 1 union all select n + 1 from s where n < %d)
		insert into letters (%s) select %s from letters l, s where l.id = $1`, n, into[2:], from[2:]), w.only().ID); err != nil {
		w.Fatal(err)
	}
}

// replayEqual: an open replay of the same selector and limit is the same one, whoever asks again.
func replayEqual(w *world) {
	w.deadLetters(4)
	r := w.replayOf(limitOf(3))
	first, _ := w.start(r)
	w.play(deadletter.Resolve)
	before, _ := w.replay(first.ID)
	for name, again := range map[string]*deadletter.ReplayRequest{
		"the same request":                     r,
		"a repeat, which has an id of its own": w.replayOf(limitOf(3)),
		"of another person, with another sample": w.replayOf(limitOf(3), sampleOf(1), atMost(9), perMinute(1), func(r *deadletter.ReplayRequest) {
			r.AuthorizedBy, r.Reason, r.ExpectedEffects = "duty", "me too", []byte(`"none"`)
		}),
	} {
		w.unmoved(name, func() {
			if rep, known := w.start(again); !known || fmt.Sprintf("%+v", rep) != fmt.Sprintf("%+v", before) {
				w.Errorf("%s: known %v, %+v; want %+v", name, known, rep, before)
			}
		})
	}
	other := w.started(limitOf(2))
	if rep, _ := w.replay(other); rep.Matched != 1 {
		w.Errorf("another limit: %+v, want the letter that is in no other replay", rep)
	}
	w.said(first.ID, deadletter.Pause, deadletter.ReplayPaused)
	if rep, known := w.start(w.replayOf(limitOf(3))); !known || rep.ID != first.ID {
		w.Errorf("a paused one is open: %+v", rep)
	}
	w.said(first.ID, deadletter.Cancel, deadletter.ReplayCancelled)
	if rep, known := w.start(w.replayOf(limitOf(3))); known || rep.Matched != 2 {
		w.Errorf("after the end of the first: known %v, %+v; want a new one of the two letters that were not played", known, rep)
	}
}

// replayLists: newest first, by status, in pages.
func replayLists(w *world) {
	var all, ended []string // newest first
	for i := range 5 {
		w.told(w.failed(fmt.Sprint(i), verdict(wrongCredential)))
		id := w.started(limitOf(int64(i + 1)))
		all = append([]string{id}, all...)
		if i%2 == 0 {
			w.said(id, deadletter.Cancel, deadletter.ReplayCancelled)
			ended = append([]string{id}, ended...)
			w.letterOut(w.members(id)[0])
		}
		w.pass(time.Second)
	}
	for _, row := range []struct {
		status deadletter.ReplayStatus
		want   []string
	}{{"", all}, {deadletter.ReplayCancelled, ended}, {deadletter.ReplaySampling, []string{all[1], all[3]}}, {deadletter.ReplayDone, nil}} {
		for _, limit := range []int{1, 2, 50} {
			var got []string
			f := deadletter.ReplayFilter{Status: row.status, Limit: limit}
			for range 10 {
				page, next, err := w.store.Replays(w.Context(), f)
				if err != nil {
					w.Fatal(err)
				}
				for _, rep := range page {
					if one, _ := w.replay(rep.ID); fmt.Sprintf("%+v", one) != fmt.Sprintf("%+v", rep) {
						w.Errorf("listed as %+v, read as %+v", rep, one)
					}
					got = append(got, rep.ID)
				}
				if f.Cursor = next; next == "" {
					break
				}
			}
			if f.Cursor != "" || !slices.Equal(got, row.want) {
				w.Errorf("%q by pages of %d: %v, want %v", row.status, limit, got, row.want)
			}
		}
	}
}

// letterOut discards a letter, so that no later replay finds it.
func (w *world) letterOut(id string) {
	w.Helper()
	w.closed(id, byPerson(deadletter.Discard), deadletter.Discarded, deadletter.ReasonDiscarded)
}

// replayTrail: who did what to which replay stands in the history, and the replay's id with all that it touched.
func replayTrail(w *world) {
	ids, events := w.deadEvents(3)
	effect := w.grant(w.effect("key0", w.run("100")))
	w.ended(complete(worker(effect), "ch_1"), ledger.Completed)
	apart := w.grant(w.event("apart", w.run("7")))
	queued := w.told(w.failed("7")).ID
	id := w.started(sampleOf(1), atMost(1))
	l := w.handed()
	run := w.grant(w.event("key0", w.run("200")))
	w.decide(w.effect("key0", w.run("200")), ledger.DecisionCompleted) // the replay repeats nothing
	w.ended(complete(worker(run), "done"), ledger.Completed)
	w.said(id, deadletter.Pause, deadletter.ReplayPaused)
	w.said(id, deadletter.Approve, deadletter.ReplayRunning)
	w.say(id, deadletter.Approve)
	w.said(id, deadletter.Cancel, deadletter.ReplayCancelled)
	w.say(id, deadletter.Cancel)

	for by, want := range map[string]int{"ada": 1, "duty": 3} {
		n := 0
		for _, h := range w.walkHistory(ledger.HistoryFilter{By: by}, 200) {
			if h.ClaimID == "" && mentions(h, id) && h.Reason != "" {
				n++
			}
		}
		if n != want {
			w.Errorf("%d acts of %s stand in the history, want %d", n, by, want)
		}
	}
	for claim, want := range map[string]bool{events[0].ID: true, effect.ID: true, events[1].ID: true, apart.ID: false} {
		_, history := w.get(claim)
		if got := slices.ContainsFunc(history, func(h ledger.HistoryEntry) bool { return mentions(h, id) && kept(h) }); got != want {
			w.Errorf("the history of claim %s names the replay: %v, want %v\n%+v", claim, got, want, history)
		}
	}
	letter, entries := w.letter(l.ID)
	if letter.ID != ids[0] || kinds(entries) != "report selected requeued lease settled" {
		w.Errorf("%s", kinds(entries))
	}
	for i, e := range entries {
		if (e.ReplayID == id) != (i > 0) {
			w.Errorf("entry %s names replay %q", e.Kind, e.ReplayID)
		}
	}
	if _, entries := w.letter(ids[2]); kinds(entries) != "report selected released" || entries[1].ReplayID != id || entries[2].ReplayID != id {
		w.Errorf("%s: %+v", kinds(entries), entries)
	}
	if l, entries := w.letter(queued); l.ReplayID != "" || entries[0].ReplayID != "" {
		w.Errorf("a letter that was not selected names replay %q", l.ReplayID)
	}
}

// replayRetention: an ended replay goes when its history does; one that is open stays, and tells what became of letters
// that are gone.
func replayRetention(w *world) {
	gone := w.deadLetters(2)
	open := w.started(sampleOf(1), atMost(1))
	w.play(deadletter.Resolve)
	w.said(open, deadletter.Pause, deadletter.ReplayPaused)
	w.told(w.failed("7", verdict(wrongCredential)))
	ended := w.started(limitOf(9))
	w.play(deadletter.Fail)
	w.plays(ended, deadletter.ReplayDone, counts(0, 0, 0, 0, 1))

	w.pass(399 * day)
	w.retain()
	w.plays(ended, deadletter.ReplayDone, counts(0, 0, 0, 0, 1))
	w.pass(2 * day)
	w.retain()
	if _, _, err := w.store.GetReplay(w.Context(), ended); !errors.Is(err, ledger.ErrNotFound) {
		w.Errorf("the ended replay: %v", err)
	}
	w.plays(open, deadletter.ReplayPaused, counts(1, 0, 0, 1, 0))
	if m := w.member(open, gone[0]); m.Status != "" || m.State != deadletter.MemberResolved {
		w.Errorf("%+v", m)
	}
	w.said(open, deadletter.Cancel, deadletter.ReplayCancelled)
	w.plays(open, deadletter.ReplayCancelled, counts(0, 0, 0, 1, 1))
}
