package storetest

import (
	"fmt"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// letterUndone: a worker's "done" is not believed for ever. The webhook may have answered before the work, or without
// it; an event that has not completed is still to be done.
func letterUndone(w *world) {
	c := w.grant(w.event("order", w.run("1"), payload(`{"n":1}`)))
	l := w.told(w.failed("1"))
	w.pass(time.Hour)
	handed := w.handed()
	w.closed(l.ID, by(handed, deadletter.Resolve), deadletter.Resolved, deadletter.ReasonReplayed)
	w.pass(4 * time.Minute)
	if r := w.sweptLetters(); r.Undone != 0 {
		w.Errorf("%d letters were opened before the event had its time", r.Undone)
	}
	w.pass(2 * time.Minute)
	if r := w.sweptLetters(); r.Undone != 1 {
		w.Fatalf("%d letters were opened, want 1", r.Undone)
	}
	w.stands(l.ID, deadletter.Queued, deadletter.ReasonNotDone, 2)
	w.turnedAway(l.ID, by(handed, deadletter.Resolve), "lease_lost")
	w.pass(time.Hour)
	again := w.handed()

	// The second run claims and completes; nothing opens the letter any more.
	done := w.grant(w.event("order", w.run("2")))
	if done.ID != c.ID {
		w.Fatal("another claim")
	}
	w.closed(l.ID, by(again, deadletter.Resolve), deadletter.Resolved, deadletter.ReasonReplayed)
	w.ended(complete(worker(done), "r"), ledger.Completed)
	w.pass(time.Hour)
	if r := w.sweptLetters(); r.Undone != 0 {
		w.Errorf("%d letters of completed events were opened", r.Undone)
	}
	w.pass(24 * time.Hour)
	w.sweptLetters()
	if now, _ := w.letter(l.ID); now.Status != deadletter.Resolved {
		w.Errorf("the letter is %s", now.Status)
	}
}

// letterRequeueCompleted: a letter whose event is completed would be resolved by the next look, so a person is told
// instead of being left to believe that it runs.
func letterRequeueCompleted(w *world) {
	c := w.grant(w.event("order", w.run("1")))
	w.ended(complete(worker(c), "r"), ledger.Completed)
	l := w.told(w.failed("1"))
	if l.Status != deadletter.Dead || l.Reason != deadletter.ReasonFailedAfter {
		w.Fatalf("%s (%s)", l.Status, l.Reason)
	}
	w.turnedAway(l.ID, byPerson(deadletter.Requeue), "invalid_transition")
	w.resolved(c.ID, ledger.Failed)
	w.closed(l.ID, byPerson(deadletter.Requeue), deadletter.Queued, deadletter.ReasonRequeued)
}

// letterManyEvents: a run that had claimed more events than one transaction should make letters of.
func letterManyEvents(w *world) {
	const events = 130
	for i := range events {
		w.grant(w.event(fmt.Sprint("item", i), w.run("1"), payload(`{"n":1}`)))
	}
	first := w.told(w.failed("1"))
	claims := 0
	for _, l := range w.letters() {
		if l.Status == deadletter.Queued {
			claims++
		}
	}
	if claims != 100 {
		w.Errorf("the report made %d letters", claims)
	}
	w.sweptLetters()
	if n := len(w.letters()); n != events {
		w.Errorf("%d letters after the sweep, want %d", n, events)
	}
	if w.swept(); len(w.hand("")) != 0 {
		w.Error("letters were due at once")
	}
	w.known(w.failed("1", sameBytes(nil)), first.ID)
}

// letterQuiesce: a program that stops does not wait for a walk over many rows.
func letterQuiesce(w *world) {
	w.grant(w.event("order", w.run("1"), lease(60)))
	w.pass(61 * time.Second)
	w.store.Quiesce()
	if r := w.sweptLetters(); r.LeaseExpired != 0 {
		w.Errorf("%d letters were made while the program stops", r.LeaseExpired)
	}
	again := w.beside()
	if r, err := again.SweepLetters(w.Context()); err != nil || r.LeaseExpired != 1 {
		w.Errorf("%d letters after the next start, %v", r.LeaseExpired, err)
	}
}
