package storetest

import (
	"time"

	"holdfast/internal/ledger"
)

// why holds the traces that broke the first draft of the rules, each by the name of its finding.
func why(w *world) {
	for _, trace := range []struct {
		name string
		run  func(*world)
	}{
		{"F1 a refusal on a later try hides an executed earlier one", whyRefusal},
		{"F1 rotation makes it a double charge", whyRotation},
		{"F2 not found because the index lags", whyLag},
		{"F2 a slow worker outlives its lease", whySlowWorker},
		{"F4 a genuine receipt after a reconciler's lease", whyReceipt},
		{"F4 the worker's word reopens what a reconciler called failed", whyReopen},
		{"F5 the window runs from the first send", whyWindow},
		{"F7 an effect does not wait for its own event", whyDeadlock},
		{"F7 an unknown write blocks the next version", whyZombieWrite},
		{"F7 an executed effect is never called stale", whyPrecedence},
		{"F7 a row that waited is kept", whyWaiting},
		{"F8 two claim nodes of one execution", whyTwoNodes},
		{"F8 an empty owner", whyNoOwner},
		{"F10 marks need a token", whyNoFence},
		{"fenced marks", whyFencedMarks},
		{"a taken over event's effects are claimed on their own", whyTakeover},
	} {
		w.row(trace.name, trace.run)
	}
}

func whyRefusal(w *world) {
	c := w.grant(w.effect("k"))
	// Try 1 timed out and is still under way; try 2 was refused.
	w.ended(refused(worker(c), 2), ledger.Unknown)
	w.decide(w.effect("k"), ledger.DecisionUnknown)
	d := w.grant(w.effect("not proven"))
	w.ended(refused(worker(d), 0), ledger.Unknown)
}

func whyRotation(w *world) {
	c := w.grant(w.effect("k"))
	key := c.ProviderKey
	w.ended(markUnknown(worker(c)), ledger.Unknown)
	w.pass(5 * time.Minute)
	w.ended(notExecuted(looker(w.looked("rec"))), ledger.Failed) // its index lagged
	for range 3 {
		c = w.grant(w.effect("k"))
		if c.ProviderKey != key {
			w.Fatal("the provider key changed by itself")
		}
		w.ended(refused(worker(c), 1), ledger.Failed)
	}
	if c = w.grant(w.effect("k")); c.ProviderKey != key {
		w.Fatal("the provider key changed by itself")
	}
}

func whyLag(w *world) {
	c := w.grant(w.effect("k"))
	w.ended(markUnknown(worker(c)), ledger.Unknown)
	w.pass(time.Minute)
	w.ended(notExecuted(looker(w.looked("rec"))), ledger.Unknown)
	w.decide(w.effect("k"), ledger.DecisionUnknown)
	w.pass(4 * time.Minute)
	w.ended(complete(looker(w.looked("rec")), "cus_7"), ledger.Completed)
}

func whySlowWorker(w *world) {
	c := w.grant(w.effect("k"))
	w.pass(effectLease)
	w.decide(w.effect("k"), ledger.DecisionUnknown)
	if got := w.look("rec"); len(got) != 0 {
		w.Fatal("looked up while the charge may be under way")
	}
	w.pass(time.Minute)
	w.ended(notExecuted(looker(w.looked("rec"))), ledger.Unknown)
	w.ended(complete(worker(c), "ch_1"), ledger.Completed)
}

func whyReceipt(w *world) {
	c := w.grant(w.effect("k"))
	w.pass(effectLease + 6*time.Minute)
	looked := w.looked("rec")
	w.ended(complete(worker(c), "ch1"), ledger.Completed)
	if out := w.ended(notExecuted(looker(looked)), ledger.Completed); out.Changed || out.Alert == "" {
		w.Errorf("changed %v alert %q", out.Changed, out.Alert)
	}
	w.decide(w.effect("k"), ledger.DecisionCompleted)

	d := w.grant(w.effect("other way round"))
	w.pass(effectLease + 6*time.Minute)
	looked = w.looked("rec")
	w.ended(notExecuted(looker(looked)), ledger.Failed)
	w.ended(complete(worker(d), "ch2"), ledger.Completed)
	w.decide(w.effect("other way round"), ledger.DecisionCompleted)
}

func whyReopen(w *world) {
	c := w.grant(w.effect("k"))
	w.pass(effectLease + 6*time.Minute)
	looked := w.looked("rec")
	w.ended(notExecuted(looker(looked)), ledger.Failed)
	w.ended(markUnknown(worker(c)), ledger.Unknown)
	w.decide(w.effect("k"), ledger.DecisionUnknown)
	w.ended(notExecuted(looker(looked)), ledger.Unknown) // the reconciler's token is void
}

func whyWindow(w *world) {
	c := w.grant(w.effect("k"))
	w.pass(14 * time.Minute)
	w.ended(markUnknown(worker(c)), ledger.Unknown)
	w.pass(5 * time.Minute)
	w.ended(notExecuted(looker(w.looked("rec"))), ledger.Failed) // false
	w.pass(day - 19*time.Minute - time.Second)
	d := w.grant(w.effect("k"))
	w.ended(notExecuted(worker(d)), ledger.Failed)
	w.pass(time.Second)
	w.decide(w.effect("k"), ledger.DecisionReview)
}

func whyDeadlock(w *world) {
	w.grant(w.event("evt", of("sub", "1")))
	w.grant(w.effect("evt", of("sub", "1")))
}

func whyZombieWrite(w *world) {
	v1 := w.grant(w.effect("v1", of("sub", "1")))
	w.pass(effectLease)
	if v := w.decide(w.effect("v2", of("sub", "2")), ledger.Wait); v.RetryAfter != 60 {
		w.Errorf("retry_after_seconds is %d, want 60", v.RetryAfter)
	}
	w.ended(complete(worker(v1), "w1"), ledger.Completed)
	w.ended(complete(worker(w.grant(w.effect("v2", of("sub", "2")))), "w2"), ledger.Completed)
	w.decide(w.effect("v1b", of("sub", "1")), ledger.DecisionStale)
}

func whyPrecedence(w *world) {
	v1 := w.grant(w.effect("v1", of("sub", "1")))
	w.pass(effectLease)
	v2 := w.decide(w.effect("v2", of("sub", "2")), ledger.Wait).Claim
	w.ended(completeKey(v2.Key, "w2"), ledger.Completed)
	w.decide(w.effect("v1", of("sub", "1")), ledger.DecisionUnknown)
	w.decide(w.effect("v1", of("sub", "1")), ledger.DecisionUnknown)
	w.ended(complete(worker(v1), "w1"), ledger.Completed)
}

func whyWaiting(w *world) {
	w.grant(w.event("v1", of("sub", "1")))
	c := w.decide(w.event("v2", of("sub", "2")), ledger.Wait).Claim
	w.status(c.ID, ledger.Pending)
	w.pass(eventLease)
	w.decide(w.event("v2", of("sub", "2")), ledger.Proceed)
}

func whyTwoNodes(w *world) {
	w.grant(w.effect("k", owner("1:0:0"), node("Claim")))
	w.decide(w.effect("k", owner("1:0:0"), node("Claim1")), ledger.InProgress)
	w.decide(w.effect("k", owner("1:0:1"), node("Claim")), ledger.InProgress)
	w.decide(w.effect("k", owner("1:0:0"), node("Claim")), ledger.Proceed)
}

func whyNoOwner(w *world) {
	w.grant(w.effect("k", node("Claim")))
	w.decide(w.effect("k", node("Claim")), ledger.InProgress)
}

func whyNoFence(w *world) {
	c := w.grant(w.effect("k"))
	w.ended(refused(worker(c), 1), ledger.Failed)
	c = w.grant(w.effect("k"))
	for _, verb := range []ledger.Verb{ledger.MarkFailed, ledger.MarkUnknown, ledger.Extend} {
		if _, err := w.store.End(w.Context(), &ledger.Ending{Verb: verb, Key: c.Key, NotExecuted: true, CallerKey: "n8n"}); err == nil {
			w.Errorf("/%s was taken without a token", verb)
		}
	}
	w.status(c.ID, ledger.Processing)
}

func whyFencedMarks(w *world) {
	e1 := w.grant(w.effect("k"))
	lost := refused(worker(e1), 1)
	w.ended(lost, ledger.Failed) // its answer is lost
	e2 := w.grant(w.effect("k"))
	w.refusedWith(lost, "lease_lost") // n8n sends it again
	w.status(e2.ID, ledger.Processing)
	w.decide(w.effect("k"), ledger.InProgress)
	w.ended(complete(worker(e2), "ch"), ledger.Completed)
	w.refusedWith(lost, "lease_lost")
	w.refusedWith(markUnknown(worker(e1)), "lease_lost")
	w.decide(w.effect("k"), ledger.DecisionCompleted)
}

func whyTakeover(w *world) {
	w.grant(w.event("evt"))
	w.ended(complete(worker(w.grant(w.effect("evt"))), "ch"), ledger.Completed)
	w.pass(eventLease)
	again := w.grant(w.event("evt"))
	if again.Attempt != 2 {
		w.Errorf("attempt %d, want 2", again.Attempt)
	}
	w.decide(w.effect("evt"), ledger.DecisionCompleted)
	w.ended(complete(worker(again), ""), ledger.Completed)
}
