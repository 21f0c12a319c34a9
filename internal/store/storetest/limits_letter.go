package storetest

import (
	"fmt"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// lettersAt makes n letters of one request each at a destination, and lets them come due.
func (w *world) lettersAt(n int, destination string) {
	w.Helper()
	for i := range n {
		w.told(w.failed(fmt.Sprint(destination, i), harmless, atDestination("", destination)))
	}
	w.pass(2 * time.Minute)
}

// limitLettersRate: letters of one request use permits as claims do, and what cannot be handed out stands in
// nobody's way.
func limitLettersRate(w *world) {
	w.lettersAt(5, rated)
	w.told(w.failed("elsewhere", harmless, atDestination("", "unlimited")))
	few := func(r *deadletter.LeaseRequest) { r.Limit = 3 }
	if out := w.hand("", few); len(out) != 3 || out[0].Destination != rated {
		w.Fatalf("%d letters", len(out))
	}
	w.waits(w.effect("a", to(rated)), 10, ledger.Pending)
	w.withheld("the rate is used up", few)
	w.pass(2 * time.Minute)
	w.grant(w.effect("a", to(rated)))
	w.grant(w.effect("b", to(rated)))
	if out := w.hand("", few); len(out) != 2 || out[0].Destination != rated || out[1].Destination != "unlimited" {
		w.Fatalf("one permit is left, and these were handed out: %+v", out)
	}
	one := func(r *deadletter.LeaseRequest) { r.Limit = 1 }
	w.told(w.failed("later", harmless, atDestination("", "unlimited")))
	w.pass(2 * time.Minute)
	w.grant(w.effect("c", to(rated)))
	w.grant(w.effect("d", to(rated)))
	w.grant(w.effect("e", to(rated)))
	if l := w.handed(one); l.Destination != "unlimited" {
		w.Fatalf("what waits for a destination kept another from its worker: %+v", l)
	}
}

// limitLettersConcurrency: letters and claims share the places at a destination.
func limitLettersConcurrency(w *world) {
	w.lettersAt(3, narrow)
	c := w.grant(w.effect("a", to(narrow)))
	l := w.handed()
	w.withheld("no place is left")
	w.waits(w.effect("b", to(narrow)), 10, ledger.Pending)
	w.ended(complete(worker(c), "r"), ledger.Completed)
	w.handed()
	w.closed(l.ID, by(l, deadletter.Resolve), deadletter.Resolved, deadletter.ReasonReplayed)
	w.handed()
	w.withheld("no place is left")
	w.pass(deadletter.DefaultLease * time.Second)
	w.grant(w.effect("b", to(narrow)))
	w.grant(w.effect("c", to(narrow)))
}

// limitLettersCircuit: letters feed the circuit and probe as claims do; the steps of a workflow that runs again do so
// by their own claims, and never wait for their own letter.
func limitLettersCircuit(w *world) {
	w.lettersAt(4, frail)
	out := w.hand("")
	if len(out) != 4 {
		w.Fatalf("%d letters", len(out))
	}
	for _, l := range out[:3] {
		w.pass(time.Second)
		for range 2 { // Retry On Fail
			if _, code := w.close(l.ID, by(l, deadletter.Fail)); code != "" {
				w.Fatal(code)
			}
		}
	}
	w.waits(w.effect("a", to(frail)), 30, ledger.Pending)
	if rows := w.query("select unsent from outbox where grp = 'circuit/frail'"); rows != "unsent=1 \n" {
		w.Errorf("the alert: %q", rows)
	}
	w.closed(out[3].ID, by(out[3], deadletter.Resolve), deadletter.Resolved, deadletter.ReasonReplayed)
	w.waits(w.effect("a", to(frail)), 30, ledger.Pending) // it was leased before
	w.pass(10 * time.Minute)
	probe := w.handed()
	w.withheld("the probe is under way")
	w.waits(w.effect("a", to(frail)), 10, ledger.Pending)
	notNow := by(probe, deadletter.Fail, func(e *deadletter.Ending) { e.HTTPStatus, e.NotNow, e.RetryAfter = 0, true, new(int64(600)) })
	w.closed(probe.ID, notNow, deadletter.Queued, deadletter.ReasonNotNow)
	probe = w.handed() // nothing was tried: the next one probes
	w.closed(probe.ID, by(probe, deadletter.Resolve), deadletter.Resolved, deadletter.ReasonReplayed)
	w.grant(w.effect("a", to(frail)))
	w.grant(w.effect("b", to(frail)))
}

// limitLettersOfWorkflows: a destination takes one at a time and its circuit is half-open, and still a workflow that
// runs again gets through to it.
func limitLettersOfWorkflows(w *world) {
	event := w.event("order", kind(ledger.Event), to(single), w.run("41"))
	w.grant(event)
	l := w.told(w.failed("41"))
	if l.Play != deadletter.PlayWorkflow || l.Destination != single {
		w.Fatalf("play %s at %q", l.Play, l.Destination)
	}
	w.pass(2 * time.Minute)
	c := w.grant(w.effect("other", to(single)))
	w.withheld("another is at it, and the rate is used up")
	w.ended(failing(ledger.MarkUnknown, c, unavailable.Class), ledger.Unknown)
	w.withheld("the circuit is open")
	w.pass(time.Minute)
	l = w.handed()
	again := w.grant(w.event("order", kind(ledger.Event), to(single), w.run("42")))
	w.waits(w.effect("another", to(single)), 10, ledger.Pending)
	w.ended(complete(worker(again), "done"), ledger.Completed)
	w.stands(l.ID, deadletter.Resolved, deadletter.ReasonCompleted, 2)
	w.pass(10 * time.Second)
	w.grant(w.effect("another", to(single)))
	for i := range 3 { // the run failed; whether the destination did, its claims tell
		execution := fmt.Sprint("5", i)
		w.grant(w.event(execution, kind(ledger.Event), to(frail), w.run(execution)))
		w.told(w.failed(execution))
	}
	w.pass(2 * time.Minute)
	for _, l := range w.hand("") {
		if _, code := w.close(l.ID, by(l, deadletter.Fail)); code != "" || l.Destination != frail {
			w.Fatal(code, l.Destination)
		}
	}
	w.grant(w.effect("after", to(frail)))
}
