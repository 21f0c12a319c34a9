package storetest

import (
	"fmt"
	"slices"
	"time"

	"holdfast/internal/ledger"
)

// lookTimes: not before ask_after, "not found" not before not_found_after; both kinds; ended effects first.
func lookTimes(w *world) {
	w.each("ask_after", both, func(x *subject) {
		x.mods = []mod{payload(`{"n":1}`)}
		x.toState("unknown")
		since := x.now()
		x.pass(time.Minute - time.Microsecond)
		if got := x.look("rec"); len(got) != 0 {
			x.Error("handed out too early")
		}
		x.pass(time.Microsecond)
		c := x.looked("rec")
		if c.UnknownSince != since || string(c.Payload) != `{"n":1}` || c.LookUntil != x.now().Add(5*time.Minute) || c.Status != ledger.Unknown {
			x.Errorf("%+v", c)
		}
		if c.LookToken() == x.last.LeaseToken() {
			x.Error("the reconcile lease has no token of its own")
		}
	})
	w.each("not_found_after", both, func(x *subject) {
		x.toState("unknown")
		x.pass(5*time.Minute - time.Microsecond)
		c := x.looked("rec")
		if out := x.must(notExecuted(looker(c))); out.Claim.Status != ledger.Unknown || out.Changed {
			x.Errorf("believed too early: %s", out.Claim.Status)
		}
		x.pass(time.Minute)
		if out := x.must(notExecuted(looker(x.looked("rec")))); out.Claim.Status != ledger.Failed || !out.Changed {
			x.Errorf("not believed: %s", out.Claim.Status)
		}
	})
	w.row("ended effects are turned first, and are unknown since their lease ended", func(w *world) {
		c := w.grant(w.effect("key"))
		end := c.LeaseUntil
		w.pass(effectLease + 59*time.Second)
		if got := w.look("rec"); len(got) != 0 {
			w.Error("handed out too early")
		}
		w.status(c.ID, ledger.Unknown)
		w.pass(time.Second)
		if got := w.looked("rec"); got.ID != c.ID || got.UnknownSince != end {
			w.Errorf("%+v", got)
		}
	})
	w.row("ended effects are turned whatever source is asked for", func(w *world) {
		c := w.grant(w.effect("key"))
		w.pass(effectLease)
		w.lookFor(&ledger.LookRequest{Source: "other", CallerKey: "n8n", Limit: 1, LeaseSeconds: 60})
		w.status(c.ID, ledger.Unknown)
	})
	w.row("live effects and ended events are left alone", func(w *world) {
		effect, event := w.grant(w.effect("effect")), w.grant(w.event("event"))
		w.pass(effectLease - time.Microsecond)
		if got := w.look("rec"); len(got) != 0 {
			w.Errorf("%+v", got)
		}
		w.status(effect.ID, ledger.Processing)
		w.status(event.ID, ledger.Processing)
	})
}

// lookBackoff: an answer that tells nothing brings the next look after 1 min, doubling to 1 h.
func lookBackoff(w *world) {
	for name, fn := range map[string]func(ledger.Claim) *ledger.Ending{
		"could not be asked":          func(c ledger.Claim) *ledger.Ending { return markUnknown(looker(c)) },
		"the worker itself says so":   func(c ledger.Claim) *ledger.Ending { return markUnknown(worker(c)) },
		"not found, and not long ago": func(c ledger.Claim) *ledger.Ending { return notExecuted(looker(c)) },
	} {
		w.each(name, effectOnly, func(x *subject) {
			x.mods = []mod{to(slow)}
			x.toState("unknown")
			since := x.now()
			for i, wait := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
				e := fn(x.looked("rec"))
				if e.NotExecuted && x.now() >= since.Add(time.Hour) {
					return // by now it is believed
				}
				x.must(e)
				x.must(e)
				x.pass(wait*time.Minute - time.Microsecond)
				if got := x.look("rec"); len(got) != 0 {
					x.Fatalf("look %d came before %d minutes", i+2, wait)
				}
				x.pass(time.Microsecond)
			}
		})
	}
	w.each("a lease that runs out brings none", both, func(x *subject) {
		x.toState("unknown, look over")
		x.looked("other")
	})
	w.each("a new attempt begins anew", effectOnly, func(x *subject) {
		x.mods = []mod{to(slow)}
		x.toState("unknown")
		for _, wait := range []time.Duration{1, 2, 4} {
			x.must(markUnknown(looker(x.looked("rec"))))
			x.pass(wait * time.Minute)
		}
		x.resolved(x.last.ID, ledger.Failed)
		x.toState("unknown")
		x.must(markUnknown(looker(x.looked("rec"))))
		x.pass(time.Minute)
		x.looked("rec")
	})
}

// lookHolder: one holder at a time; the same non-empty owner gets its unreported batch again.
func lookHolder(w *world) {
	w.each("another's live lease", both, func(x *subject) {
		x.toState("unknown, look late")
		first := looker(x.last)
		x.pass(5*time.Minute - time.Microsecond)
		for _, o := range []string{"other", ""} {
			if got := x.look(o); len(got) != 0 {
				x.Fatalf("%q got it too", o)
			}
		}
		if got := x.looked("rec"); looker(got) != first {
			x.Error("the same owner got another token")
		}
		x.pass(5 * time.Minute)
		second := x.looked("other")
		if looker(second) == first {
			x.Error("a newer lease has the older token")
		}
		x.refusedWith(notExecuted(first), "lease_lost")
		if got := x.look("rec"); len(got) != 0 {
			x.Error("two holders")
		}
	})
	w.each("the same owner with another API key is another", both, func(x *subject) {
		x.toState("unknown, look late")
		if got := x.lookFor(&ledger.LookRequest{Source: x.source, Owner: "rec", CallerKey: "other", Limit: 25, LeaseSeconds: 60}); len(got) != 0 {
			x.Error("it got it too")
		}
	})
	w.each("nobody is nobody", both, func(x *subject) {
		x.toState("unknown")
		x.pass(time.Minute)
		x.looked("")
		if got := x.look(""); len(got) != 0 {
			x.Error("handed out twice")
		}
	})
	w.each("the worker's report outranks the look", both, func(x *subject) {
		x.toState("unknown, look late")
		x.must(markUnknown(worker(x.last)))
		if out := x.must(notExecuted(looker(x.last))); out.Claim.Status != ledger.Unknown {
			x.Errorf("the ended look decided: %s", out.Claim.Status)
		}
	})
}

// lookBatch: oldest first, up to the limit, of the source that is asked for; what is reported leaves the batch.
func lookBatch(w *world) {
	w.row("order, limit, source", func(w *world) {
		var ids []string
		for i := range 7 {
			c := w.grant(w.event(fmt.Sprint("key", i), kind([]ledger.Kind{ledger.Event, ledger.Effect}[i%2])))
			w.pass(time.Second)
			w.ended(markUnknown(worker(c)), ledger.Unknown)
			ids = append(ids, c.ID)
		}
		w.pass(time.Minute)
		if got := w.lookFor(&ledger.LookRequest{Source: "other", Owner: "rec", CallerKey: "n8n", Limit: 25, LeaseSeconds: 60}); len(got) != 0 {
			w.Errorf("%d of another source", len(got))
		}
		ask := &ledger.LookRequest{Source: w.source, Owner: "rec", CallerKey: "n8n", Limit: 3, LeaseSeconds: 300}
		first := w.lookFor(ask)
		w.same(first, ids[:3])
		w.same(w.lookFor(ask), ids[:3])
		w.same(w.lookFor(&ledger.LookRequest{Source: w.source, Owner: "two", CallerKey: "n8n", Limit: 3, LeaseSeconds: 300}), ids[3:6])
		w.ended(complete(looker(first[0]), "found"), ledger.Completed)
		w.same(w.lookFor(ask), ids[1:3])
		w.ended(markUnknown(looker(first[1])), ledger.Unknown)
		w.ended(complete(looker(first[2]), "found"), ledger.Completed)
		w.same(w.lookFor(ask), ids[6:])
	})
	w.row("many, with young ones among them", func(w *world) {
		for i := range 3 {
			w.ended(markUnknown(worker(w.grant(w.event(fmt.Sprint("old", i))))), ledger.Unknown)
		}
		w.pass(time.Minute)
		young := w.grant(w.event("young"))
		w.ended(markUnknown(worker(young)), ledger.Unknown)
		if got := w.look("rec"); len(got) != 3 {
			w.Errorf("%d were handed out, want 3", len(got))
		}
		w.status(young.ID, ledger.Unknown)
	})
}

func (w *world) same(claims []ledger.Claim, want []string) {
	w.Helper()
	var got []string
	for _, c := range claims {
		got = append(got, c.ID)
	}
	if !slices.Equal(got, want) {
		w.Errorf("got %v, want %v", got, want)
	}
}

// lookWindow: past the window a row becomes review instead of being handed out.
func lookWindow(w *world) {
	w.each("of an unknown claim", both, func(x *subject) {
		x.toState("unknown")
		x.pass(day)
		if got := x.look("rec"); len(got) != 0 {
			x.Error("handed out past its window")
		}
		x.status(x.last.ID, ledger.Review)
	})
	w.each("of an effect whose lease ended", effectOnly, func(x *subject) {
		x.grant(lease(86400))
		x.pass(day)
		if got := x.look("rec"); len(got) != 0 {
			x.Error("handed out past its window")
		}
		x.status(x.last.ID, ledger.Review)
	})
	w.each("it runs from the first attempt, whatever came between", effectOnly, func(x *subject) {
		unknownThenFailed(x)
		x.pass(23 * time.Hour)
		x.toState("unknown")
		x.pass(time.Hour)
		if got := x.look("rec"); len(got) != 0 {
			x.Error("handed out past its window")
		}
		x.status(x.last.ID, ledger.Review)
	})
}

// lookWindowHeld: past it the row becomes review, whatever else; so too where a reconciler holds it.
func lookWindowHeld(w *world) {
	w.each("its owner asks again", both, func(x *subject) {
		x.toState("unknown")
		x.pass(day - time.Minute)
		x.last = x.looked("rec")
		x.pass(time.Minute)
		if got := x.look("rec"); len(got) != 0 {
			x.Error("handed out again past its window")
		}
		x.status(x.last.ID, ledger.Review)
	})
	w.each("a sweep comes by", both, func(x *subject) {
		x.toState("unknown")
		x.pass(day - time.Minute)
		x.last = x.looked("rec")
		x.pass(time.Minute)
		x.swept()
		x.status(x.last.ID, ledger.Review)
		x.ended(notExecuted(looker(x.last)), ledger.Review)
		x.ended(complete(looker(x.last), "found"), ledger.Completed)
	})
}

// notFoundAfterWindow: a look that ends past the window must not free the claim: a person decides.
func notFoundAfterWindow(w *world) {
	w.each("not found", both, func(x *subject) {
		x.toState("unknown")
		x.pass(day - time.Minute)
		x.last = x.looked("rec")
		x.pass(time.Minute)
		x.must(notExecuted(looker(x.last)))
		x.decide(x.request(), ledger.DecisionReview)
		x.status(x.last.ID, ledger.Review)
	})
}

// policies: windows and ages may stand at a source and at a destination, which wins.
func policies(w *world) {
	w.row("the source's", func(w *world) {
		w.source = quick
		c := w.grant(w.effect("key"))
		w.ended(markUnknown(worker(c)), ledger.Unknown)
		w.pass(10 * time.Second)
		c = w.looked("rec")
		w.pass(10 * time.Second)
		w.ended(notExecuted(looker(c)), ledger.Failed)
		w.pass(time.Hour)
		w.decide(w.effect("key"), ledger.DecisionReview)
	})
	w.row("the destination's wins", func(w *world) {
		w.source = quick
		c := w.grant(w.effect("dest", to(slow)))
		w.ended(markUnknown(worker(c)), ledger.Unknown)
		c = w.looked("rec")
		w.pass(59 * time.Minute)
		w.ended(markUnknown(looker(c)), ledger.Unknown)
		w.pass(24 * time.Hour)
		w.decide(w.effect("dest", to(slow)), ledger.DecisionUnknown)
		w.pass(6 * day)
		w.decide(w.effect("dest", to(slow)), ledger.DecisionReview)
	})
}
