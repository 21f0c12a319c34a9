package storetest

import (
	"fmt"
	"sync"
	"time"

	"holdfast/internal/ledger"
	"holdfast/internal/store"
)

// sweep settles ended leases of effects and windows that are over, and nothing else.
func sweep(w *world) {
	effect, event, live := w.grant(w.effect("effect")), w.grant(w.event("event")), w.grant(w.effect("live", lease(86400)))
	done := w.grant(w.effect("done"))
	w.ended(complete(worker(done), "r"), ledger.Completed)
	old := w.grant(w.event("old"))
	w.ended(markUnknown(worker(old)), ledger.Unknown)
	w.pass(effectLease - time.Microsecond)
	if r := w.swept(); r != (ledger.SweepReport{Overdue: 1, Unknown: 1, OldestUnknown: effectLease - time.Microsecond}) {
		w.Errorf("%+v, want the event overdue", r)
	}
	w.pass(time.Microsecond)
	if r := w.swept(); r != (ledger.SweepReport{Expired: 1, Overdue: 1, Unknown: 2, OldestUnknown: effectLease}) {
		w.Errorf("%+v, want one effect expired, the event overdue", r)
	}
	w.status(effect.ID, ledger.Unknown)
	w.status(event.ID, ledger.Processing)
	w.status(live.ID, ledger.Processing)
	w.status(done.ID, ledger.Completed)
	w.unwritten("a sweep that finds nothing", func() { w.swept() })
	c, history := w.get(effect.ID)
	if last := history[len(history)-1]; c.UnknownSince != effect.LeaseUntil || last.From != ledger.Processing || last.To != ledger.Unknown {
		w.Errorf("unknown since %v, %+v", c.UnknownSince.Time(), last)
	}
	w.pass(day - effectLease - time.Microsecond)
	if r := w.swept(); r.Reviewed != 0 {
		w.Errorf("%+v: the window is not over", r)
	}
	w.pass(time.Microsecond)
	if r := w.swept(); r.Reviewed < 2 || r.Expired != 1 {
		w.Errorf("%+v, want the third effect expired and the unknown ones before a person", r)
	}
	for _, c := range []ledger.Claim{old, effect, live} {
		w.status(c.ID, ledger.Review)
	}
	w.ended(complete(worker(event), "late"), ledger.Completed)
}

// sweepManyWindows: a short window is honoured however many claims with longer ones are older.
func sweepManyWindows(w *world) {
	var wg sync.WaitGroup
	for i := range 201 {
		wg.Go(func() {
			v, err := w.ask(w.event(fmt.Sprint("key", i)))
			if err == nil {
				_, err = w.store.End(w.Context(), markUnknown(worker(v.Claim)))
			}
			if err != nil {
				w.Error(err)
			}
		})
	}
	wg.Wait()
	w.source = quick
	c := w.grant(w.effect("short"))
	w.ended(markUnknown(worker(c)), ledger.Unknown)
	w.pass(time.Hour)
	if r := w.swept(); r.Reviewed != 1 {
		w.Errorf("%+v, want one reviewed", r)
	}
	w.status(c.ID, ledger.Review)
}

// neverOnSweep: what happens to an ended lease or window is the same whether a sweep came by or not.
func neverOnSweep(w *world) {
	for name, fn := range map[string]func(*subject) string{
		"claimed":         func(x *subject) string { return "" },
		"completed":       func(x *subject) string { return x.outcome(complete(worker(x.last), "r1")) },
		"marked unknown":  func(x *subject) string { return x.outcome(markUnknown(worker(x.last))) },
		"marked failed":   func(x *subject) string { return x.outcome(notExecuted(worker(x.last))) },
		"extended":        func(x *subject) string { return x.outcome(extend(worker(x.last), 60)) },
		"resolved failed": func(x *subject) string { _, code := x.resolve(x.last.ID, ledger.Failed); return code },
		"resolved review": func(x *subject) string { _, code := x.resolve(x.last.ID, ledger.Review); return code },
		"resolved review and failed": func(x *subject) string {
			x.resolve(x.last.ID, ledger.Review)
			x.resolve(x.last.ID, ledger.Failed)
			return ""
		},
		"not found": func(x *subject) string {
			x.pass(5 * time.Minute)
			return x.outcome(notExecuted(looker(x.looked("rec"))))
		},
	} {
		w.each(name, effectOnly, func(x *subject) {
			var got [2]string
			for i, sweeps := range []bool{false, true} {
				one := *x
				one.source = fmt.Sprint(x.source, "-", i)
				one.toState("processing, over")
				if sweeps {
					one.swept()
				}
				got[i] = fn(&one)
				if sweeps {
					one.swept()
				}
				one.pass(day)
				if sweeps {
					one.swept()
				}
				got[i] += " then " + string(one.claim(one.request()).Decision)
			}
			if got[0] != got[1] {
				x.Errorf("without a sweep %q, with one %q", got[0], got[1])
			}
		})
	}
	for name, fn := range map[string]func(*subject) string{
		"not found":         func(x *subject) string { x.end(notExecuted(looker(x.last))); return "" },
		"could not be told": func(x *subject) string { x.end(markUnknown(looker(x.last))); return "" },
		"found":             func(x *subject) string { return x.outcome(complete(looker(x.last), "r")) },
	} {
		w.each("a look that ends past the window, "+name, both, func(x *subject) {
			var got [2]string
			for i, sweeps := range []bool{false, true} {
				one := *x
				one.source = fmt.Sprint(x.source, "-", i)
				one.toState("unknown")
				one.pass(day - time.Minute)
				one.last = one.looked("rec")
				one.pass(time.Minute)
				if sweeps {
					one.swept()
				}
				got[i] = fn(&one) + " then " + string(one.claim(one.request()).Decision)
			}
			if got[0] != got[1] {
				x.Errorf("without a sweep %q, with one %q", got[0], got[1])
			}
		})
	}
}

// outcome is what a report's answer says, but for changed.
func (x *subject) outcome(e *ledger.Ending) string {
	x.Helper()
	out, code := x.end(e)
	if code != "" {
		return code
	}
	return string(out.Claim.Status)
}

// pausesListed: those in force, the newest word for a scope; who said it is in the history.
func pausesListed(w *world) {
	list := func(want ...string) {
		w.Helper()
		pauses, err := w.store.Pauses(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		var got []string
		for _, p := range pauses {
			got = append(got, fmt.Sprint(p.Scope, " ", p.AuthorizedBy, " ", p.Reason, " ", p.Until.Sub(w.now())))
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			w.Errorf("got %q, want %q", got, want)
		}
	}
	list()
	w.pause("source.a", 0)
	w.pass(time.Second)
	w.pause("source.a", time.Minute)
	w.pause("workflow.Wf", time.Hour)
	list("source.a ada maintenance 1m0s", "workflow.Wf ada maintenance 1h0m0s")
	w.pass(time.Minute)
	list("workflow.Wf ada maintenance 59m0s")
	for _, want := range []bool{true, false} {
		if cleared, err := w.store.ClearPause(w.Context(), "workflow.Wf", "bob"); err != nil || cleared != want {
			w.Errorf("cleared %v, %v; want %v", cleared, err, want)
		}
	}
	list()
	said, _, err := w.store.History(w.Context(), ledger.HistoryFilter{By: "ada", Limit: 50})
	if err != nil || len(said) != 3 {
		w.Errorf("%v: %d acts of ada, want 3: %+v", err, len(said), said)
	}
	said, _, err = w.store.History(w.Context(), ledger.HistoryFilter{By: "bob", Limit: 50})
	if err != nil || len(said) != 1 || said[0].ClaimID != "" || said[0].At != w.now() {
		w.Errorf("%v: %+v, want one act of bob", err, said)
	}
}

// restart: what was answered is there for another Store on the same database.
func restart(w *world) {
	done, held := w.grant(w.effect("done", payload(`1`))), w.grant(w.effect("held"))
	w.ended(complete(worker(done), "ch_1"), ledger.Completed)
	if err := w.store.Close(); err != nil {
		w.Fatal(err)
	}
	if _, err := w.ask(w.effect("closed")); err == nil {
		w.Error("a closed store took a claim")
	}
	w.store = openStore(w.T, w.url, store.Options{Now: w.clock.now})
	if err := w.store.Ready(w.Context()); err != nil {
		w.Fatal(err)
	}
	if v := w.decide(w.effect("done", payload(`1`)), ledger.DecisionCompleted); v.Claim.ResultID != "ch_1" {
		w.Errorf("result %q", v.Claim.ResultID)
	}
	w.decide(w.effect("held"), ledger.InProgress)
	w.ended(complete(worker(held), "ch_2"), ledger.Completed)
	w.decide(w.effect("closed"), ledger.Proceed)
}

// clocksApart: replicas agree on the time within the length of a question; where a transition bears an earlier
// time than the one before it, the history of a claim is still told in the order in which it happened.
func clocksApart(w *world) {
	behind := &clock{at: w.clock.now().Add(-50 * time.Millisecond)}
	other := *w
	other.clock, other.store = behind, openStore(w.T, w.url, store.Options{Now: behind.now, Policies: testPolicies})
	c := w.grant(w.effect("key"))
	other.ended(markUnknown(worker(c)), ledger.Unknown)
	w.refusedWith(extend(worker(c), 60), "invalid_transition")
	other.resolved(c.ID, ledger.Failed)
	again := w.grant(w.effect("key"))
	other.refusedWith(notExecuted(worker(c)), "lease_lost")
	other.ended(complete(worker(again), "r"), ledger.Completed)
	for _, s := range []*world{w, &other} {
		_, history := s.get(c.ID) // checks that it hangs together
		if got := len(history); got != 6 {
			w.Errorf("%d entries, want 6: %+v", got, history)
		}
	}
}
