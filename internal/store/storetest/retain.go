package storetest

import (
	"errors"
	"fmt"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

func (w *world) retain() ledger.RetentionReport {
	w.Helper()
	r, err := w.store.Retain(w.Context(), ledger.DefaultRetention, 100)
	if err != nil {
		w.Fatal(err)
	}
	return r
}

func (w *world) payloadOf(id string) string {
	w.Helper()
	c, _ := w.get(id)
	return string(c.Payload)
}

// retention removes payloads after 30 days, finished events after 35 and the history after 400; what still waits for
// something, effects and versions stay for ever.
func retention(w *world) {
	done := w.grant(w.event("done", payload(`{"n":1}`), of("e", "7")))
	w.ended(complete(worker(done), "r"), ledger.Completed)
	paid := w.grant(w.effect("paid", payload(`{"n":2}`)))
	w.ended(complete(worker(paid), "ch_1"), ledger.Completed)
	failed := w.grant(w.event("failed", payload(`{"n":3}`)))
	w.ended(notExecuted(worker(failed)), ledger.Failed)
	lost := w.grant(w.effect("lost", payload(`{"n":4}`)))
	w.ended(markUnknown(worker(lost)), ledger.Unknown)
	settled := w.told(w.failed("1", input(`{"n":5}`), verdict(wrongCredential)))
	w.closed(settled.ID, &deadletter.Ending{Verb: deadletter.Discard, AuthorizedBy: "ada", Reason: "known"}, deadletter.Discarded, deadletter.ReasonDiscarded)
	dead := w.told(w.failed("2", input(`{"n":6}`), verdict(wrongCredential)))

	w.pass(29 * day)
	if r := w.retain(); r != (ledger.RetentionReport{}) {
		w.Errorf("after 29 days: %+v", r)
	}
	w.pass(2 * day)
	if r := w.retain(); r.Payloads != 3 || r.Events+r.Letters+r.History != 0 {
		w.Errorf("after 31 days: %+v, want the payloads of the two completed claims and of the settled letter", r)
	}
	for id, want := range map[string]string{done.ID: "", paid.ID: "", failed.ID: `{"n":3}`, lost.ID: `{"n":4}`} {
		if got := w.payloadOf(id); got != want {
			w.Errorf("a payload is %q, want %q", got, want)
		}
	}
	if l, _ := w.letter(settled.ID); len(l.Payload) != 0 || l.InputState != deadletter.InputAged {
		w.Errorf("the settled letter has %q, %s", l.Payload, l.InputState)
	}
	if l, _ := w.letter(dead.ID); string(l.Payload) != `{"n":6}` {
		w.Errorf("the dead letter has %q", l.Payload)
	}
	w.decide(w.event("done", payload(`{"n":1}`)), ledger.DecisionCompleted)

	w.pass(5 * day)
	if r := w.retain(); r.Events != 1 {
		w.Errorf("after 36 days: %+v, want one event", r)
	}
	if _, _, err := w.store.Get(w.Context(), done.ID); !errors.Is(err, ledger.ErrNotFound) {
		w.Errorf("the finished event: %v", err)
	}
	w.decide(w.effect("paid", payload(`{"n":2}`)), ledger.DecisionCompleted)
	w.decide(w.event("late", of("e", "6")), ledger.DecisionStale)
	if _, entries := w.get(failed.ID); len(entries) < 2 {
		w.Error("the history of an open claim has gone too early")
	}

	w.pass(365 * day)
	if r := w.retain(); r.History == 0 || r.Letters != 1 {
		w.Errorf("after 401 days: %+v, want history and the settled letter", r)
	}
	if _, _, err := w.store.GetLetter(w.Context(), settled.ID); !errors.Is(err, ledger.ErrNotFound) {
		w.Errorf("the settled letter: %v", err)
	}
	if c, _, err := w.store.Get(w.Context(), failed.ID); err != nil || c.Status != ledger.Failed || len(c.Payload) == 0 {
		w.Errorf("the failed event is %s, %v", c.Status, err)
	}
	if l, _ := w.letter(dead.ID); l.Status != deadletter.Dead {
		w.Errorf("the dead letter is %s", l.Status)
	}
}

// retentionWalks goes through everything a page at a time, from where it stopped.
func retentionWalks(w *world) {
	const n = 450 // more than two pages
	for i := range n {
		c := w.grant(w.event(fmt.Sprint("key", i), payload(`{"n":1}`)))
		w.ended(complete(worker(c), "r"), ledger.Completed)
	}
	w.pass(31 * day)
	total := 0
	for range 10 {
		r, err := w.store.Retain(w.Context(), ledger.DefaultRetention, 1)
		if err != nil {
			w.Fatal(err)
		}
		if r.Payloads > 200 {
			w.Errorf("one page took %d rows", r.Payloads)
		}
		total += r.Payloads
	}
	if total != n {
		w.Errorf("%d payloads were removed, want %d", total, n)
	}
}
