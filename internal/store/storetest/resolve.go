package storetest

import (
	"strings"
	"time"

	"holdfast/internal/ledger"
)

// resolveTable: from pending, unknown, review, failed, stale, an ended lease, and for an event from completed
// (failed: run again); a live lease is lease_live.
func resolveTable(w *world) {
	const toAll = "completed changed|failed changed|review changed"
	for _, row := range []struct {
		from  string
		kinds []ledger.Kind
		want  string // to completed, failed, review
	}{
		{"pending", both, toAll},
		{"pending, not now", eventOnly, toAll},
		{"processing", both, "lease_live|lease_live|lease_live"},
		{"processing, over", both, toAll},
		{"unknown", both, toAll},
		{"unknown, look", both, toAll},
		{"failed", both, "completed changed|failed|review changed"},
		{"stale", both, toAll},
		{"completed", eventOnly, "completed|failed changed|invalid_transition"},
		{"completed", effectOnly, "completed|invalid_transition|invalid_transition"},
	} {
		for i, want := range strings.Split(row.want, "|") {
			to := []ledger.Status{ledger.Completed, ledger.Failed, ledger.Review}[i]
			w.each("from "+row.from+" to "+string(to), row.kinds, func(x *subject) {
				x.toState(row.from)
				x.settles(to, strings.Fields(want))
			})
		}
	}
	w.each("review by a person, and again", both, func(x *subject) {
		x.toState("unknown")
		x.settles(ledger.Review, []string{"review", "changed"})
		x.settles(ledger.Failed, []string{"failed", "changed"})
		x.settles(ledger.Completed, []string{"completed", "changed"})
	})
	w.each("completed with another id", both, func(x *subject) {
		x.toState("completed")
		x.unwritten("a person's other receipt", func() {
			if out, code := x.resolve(x.last.ID, ledger.Completed, resultID("r2")); code == "" {
				x.Errorf("it was taken: %s %q", out.Claim.Status, out.Claim.ResultID)
			}
		})
	})
	w.row("no such claim", func(w *world) {
		if _, code := w.resolve(fresh(w.T).ID, ledger.Failed); code != "not_found" {
			w.Errorf("code %q, want not_found", code)
		}
	})
}

func (x *subject) settles(to ledger.Status, want []string) {
	x.Helper()
	before, _ := x.get(x.last.ID)
	out, code := x.resolve(before.ID, to, resultID("r1"))
	got := code
	if got == "" {
		got = string(out.Claim.Status)
	}
	if got != want[0] || out.Changed != flag(want, "changed") {
		x.Errorf("%s, changed %v; want %v", got, out.Changed, want)
	}
	after, _ := x.get(before.ID)
	x.landed(want, before, after)
	if flag(want, "changed") {
		if l := after.Last; l.By != "ada" || l.Reason != "looked it up" || l.At != x.now() || l.To != to {
			x.Errorf("the transition says %+v", l)
		}
		if done := to == ledger.Completed; done != (after.ResultID == "r1") || done != (after.CompletedAt == x.now()) {
			x.Errorf("result %q at %v", after.ResultID, after.CompletedAt.Time())
		}
	}
	x.unwritten("the word of a person sent again", func() {
		out, again := x.resolve(before.ID, to, resultID("r1"))
		if again != code || out.Changed {
			x.Errorf("sent again: code %q changed %v", again, out.Changed)
		}
	})
}

// resolveWindow: to failed past the window needs a new provider key, which is then sent from the next attempt on,
// with a window of its own.
func resolveWindow(w *world) {
	for _, from := range []string{"unknown", "review", "processing, over", "stale", "completed"} {
		kinds := both
		if from == "completed" {
			kinds = eventOnly
		}
		w.each("past it, from "+from, kinds, func(x *subject) {
			x.toState(from)
			x.pass(day)
			x.unwritten("a refused word", func() {
				if _, code := x.resolve(x.last.ID, ledger.Failed); code != "invalid_request" {
					x.Errorf("code %q, want invalid_request", code)
				}
			})
			x.rotates()
		})
	}
	for _, from := range []string{"unknown", "failed", "processing, over"} {
		w.each("within it, from "+from, both, func(x *subject) {
			x.toState(from)
			x.pass(day / 2)
			old := x.last.ProviderKey
			x.resolved(x.last.ID, ledger.Failed)
			if c := x.world.grant(x.request()); c.ProviderKey != old {
				x.Error("the provider key changed although nobody asked")
			}
		})
		w.each("within it, asked for, from "+from, both, func(x *subject) {
			x.toState(from)
			x.rotates()
		})
	}
	w.each("a claim that was never tried has no window", both, func(x *subject) {
		x.toState("pending")
		x.pass(2 * day)
		x.resolved(x.last.ID, ledger.Failed)
	})
	w.each("completed or review needs none", both, func(x *subject) {
		x.toState("unknown")
		x.pass(2 * day)
		x.resolved(x.last.ID, ledger.Review)
		x.resolved(x.last.ID, ledger.Completed)
	})
}

func (x *subject) rotates() {
	x.Helper()
	old, key := x.last.ProviderKey, "hf_new_"+x.source
	x.resolved(x.last.ID, ledger.Failed, newProviderKey(key))
	x.unwritten("asked for a new key again, after a lost answer", func() {
		x.resolved(x.last.ID, ledger.Failed, newProviderKey("hf_newer_"+x.source))
	})
	x.pass(time.Hour)
	if len(x.mods) > 0 {
		return // a newer version holds it back
	}
	v := x.claim(x.request())
	if v.Decision != ledger.Proceed || v.Claim.ProviderKey != key || key == old {
		x.Fatalf("decision %q with key %q, want proceed with %q", v.Decision, v.Claim.ProviderKey, key)
	}
	x.last = v.Claim
	x.must(markUnknown(worker(x.last)))
	x.pass(day - time.Second)
	x.decide(x.request(), ledger.DecisionUnknown)
	x.pass(time.Second)
	x.decide(x.request(), ledger.DecisionReview)
}

// resolveTokens: after a person's word older tokens complete, and the other verbs do not take them.
func resolveTokens(w *world) {
	for _, to := range []ledger.Status{ledger.Completed, ledger.Failed, ledger.Review} {
		w.each("the worker's, "+string(to), both, func(x *subject) {
			x.toState("unknown")
			x.lostAfter(to, worker(x.last))
		})
		w.each("the reconciler's, "+string(to), both, func(x *subject) {
			x.toState("unknown, look late")
			x.lostAfter(to, looker(x.last))
		})
		w.each("of an ended lease, "+string(to), both, func(x *subject) {
			x.toState("processing, over")
			x.lostAfter(to, worker(x.last))
		})
	}
	w.each("a newer attempt", both, func(x *subject) {
		x.toState("unknown")
		x.resolved(x.last.ID, ledger.Failed)
		old := worker(x.last)
		x.grant()
		x.refusedWith(complete(old, "r"), "lease_lost")
		x.must(notExecuted(worker(x.last)))
		x.ended(complete(old, "r"), ledger.Completed)
	})
}

func (x *subject) lostAfter(to ledger.Status, t ledger.Token) {
	x.Helper()
	x.resolved(x.last.ID, to, resultID("r1"))
	for _, e := range []*ledger.Ending{markUnknown(t), report(ledger.MarkFailed, t), notExecuted(t), extend(t, 60)} {
		x.refusedWith(e, "lease_lost")
	}
	x.status(x.last.ID, to)
	out := x.ended(complete(t, "r1"), ledger.Completed)
	if out.Changed != (to != ledger.Completed) {
		x.Errorf("changed %v", out.Changed)
	}
}

// resolveHistory: what people did is in the history at once, under their name.
func resolveHistory(w *world) {
	c := w.grant(w.effect("key"))
	w.ended(markUnknown(worker(c)), ledger.Unknown)
	w.pass(time.Second)
	w.resolved(c.ID, ledger.Review)
	w.pass(time.Second)
	w.resolved(c.ID, ledger.Completed, resultID("r1"))
	entries, _, err := w.store.History(w.Context(), ledger.HistoryFilter{By: "ada", ClaimID: c.ID, Limit: 50})
	if err != nil || len(entries) != 2 || entries[0].To != ledger.Completed || entries[1].To != ledger.Review || entries[0].Reason != "looked it up" {
		w.Errorf("%v %+v", err, entries)
	}
	if _, history := w.get(c.ID); len(history) != 4 {
		w.Errorf("%d transitions, want 4: %+v", len(history), history)
	}
}
