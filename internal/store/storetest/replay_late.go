package storetest

import (
	"fmt"
	"strings"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// replayLate: what happens to letters of a replay between the choice and their turn, or behind its end.
func replayLate(w *world) {
	w.row("very many are held by now", func(w *world) {
		const n = 230 // more than one look at those that wait
		_, claims := w.deadEvents(n)
		var effects []ledger.Claim
		for i := 1; i < n; i++ {
			effects = append(effects, w.grant(w.effect(claims[i].Key.IdempotencyKey, w.run(fmt.Sprint(100+i)), lease(86400))))
		}
		id := w.started(limitOf(n), sampleOf(n), atMost(1))
		for _, c := range effects {
			w.ended(markUnknown(worker(c)), ledger.Unknown)
		}
		l := w.handed()
		w.closed(l.ID, by(l, deadletter.Resolve), deadletter.Resolved, "replayed")
		w.sweptLetters()
		w.plays(id, deadletter.ReplayDone, counts(0, 0, 0, 1, n-1))
		if rep, _ := w.replay(id); rep.Held.Unknown != n-1 {
			w.Errorf("held: %+v", rep.Held)
		}
	})
	w.row("a queued one is held by now", func(w *world) {
		ids, claims := w.deadEvents(2)
		c := w.grant(w.effect(claims[0].Key.IdempotencyKey, w.run("100"), lease(60)))
		id := w.started(sampleOf(2), atMost(1))
		w.plays(id, deadletter.ReplaySampling, counts(1, 1, 0, 0, 0))
		w.pass(time.Minute)
		w.sweptLetters()
		if m := w.member(id, ids[0]); m.State != deadletter.MemberHeld || m.Held != "unknown" || m.Status != deadletter.Dead {
			w.Errorf("%+v, want it held: nobody knows how %s ended", m, c.ID)
		}
		if l := w.handed(); l.ID != ids[1] {
			w.Errorf("%s has the place, want %s", l.ID, ids[1])
		}
	})
	w.row("the old run reports late", func(w *world) {
		w.grant(w.event("key", w.run("7"), lease(60)))
		w.pass(time.Minute)
		w.sweptLetters()
		old := w.only()
		id := w.started(choosingQueued, sampleOf(1))
		l := w.handed()
		w.closed(l.ID, by(l, deadletter.Fail, later(10)), deadletter.Queued, "not_now")
		w.told(w.failed("7", verdict(wrongCredential)))
		w.plays(id, deadletter.ReplaySampling, counts(0, 1, 0, 0, 0))
		w.stands(old.ID, deadletter.Queued, "not_now", 1)
	})
	w.row("not now, and it was cancelled", func(w *world) {
		w.deadLetters(1)
		id := w.started()
		l := w.handed()
		w.said(id, deadletter.Cancel, deadletter.ReplayCancelled)
		w.closed(l.ID, by(l, deadletter.Fail, later(10)), deadletter.Dead, "not_played")
		w.plays(id, deadletter.ReplayCancelled, counts(0, 0, 0, 0, 1))
	})
	w.row("one that waits is discarded", func(w *world) {
		ids, claims := w.deadEvents(2)
		id := w.started(atMost(1))
		w.closed(ids[1], byPerson(deadletter.Discard), deadletter.Discarded, "discarded")
		_, entries, err := w.store.Get(w.Context(), claims[1].ID)
		if err != nil {
			w.Fatal(err)
		}
		for _, e := range entries {
			if strings.Contains(e.Message, id) {
				w.Errorf("its claim's history says that it was run again: %+v", e)
			}
		}
	})
	w.row("a retry by hand fails when the replay is long over", func(w *world) {
		ids := w.deadLetters(1, method("GET"))
		w.started()
		l := w.handed()
		w.closed(l.ID, by(l, deadletter.Fail), deadletter.Dead, "transient")
		w.pass(24 * time.Hour)
		w.told(w.failed("200", retryOf("100"), method("GET")))
		w.stands(ids[0], deadletter.Queued, "transient", 3)
	})
}
