package storetest

import (
	"time"

	"holdfast/internal/ledger"
)

// references: the destination's own id, one per claim, kept whatever the answer.
func references(w *world) {
	for _, row := range []struct {
		name, state string
		kinds       []ledger.Kind
		report      func(*subject) *ledger.Ending
	}{
		{"with /mark-unknown", "processing", both, func(x *subject) *ledger.Ending { return markUnknown(worker(x.last)) }},
		{"with /extend", "processing", both, func(x *subject) *ledger.Ending { return extend(worker(x.last), 1) }},
		{"with a refused /extend", "failed", both, func(x *subject) *ledger.Ending { return extend(worker(x.last), 1) }},
		{"with an /extend that comes too late", "processing, over", effectOnly, func(x *subject) *ledger.Ending { return extend(worker(x.last), 1) }},
		{"after completion", "completed", both, func(x *subject) *ledger.Ending { return markUnknown(worker(x.last)) }},
		{"in unknown", "unknown", both, func(x *subject) *ledger.Ending { return markUnknown(worker(x.last)) }},
		{"by a reconciler", "unknown, look", both, func(x *subject) *ledger.Ending { return markUnknown(looker(x.last)) }},
		{"in review", "review", both, func(x *subject) *ledger.Ending { return markUnknown(worker(x.last)) }},
		{"stale", "stale", both, func(x *subject) *ledger.Ending { return markUnknown(worker(x.last)) }},
		{"of a failed event", "failed", eventOnly, func(x *subject) *ledger.Ending { return markUnknown(worker(x.last)) }},
	} {
		w.each(row.name, row.kinds, func(x *subject) {
			x.toState(row.state)
			e := withReference(row.report(x), "ws_CO_9")
			out, code := x.end(e)
			c, _ := x.get(x.last.ID)
			if c.Reference != "ws_CO_9" || code == "" && out.Claim.Reference != "ws_CO_9" {
				x.Fatalf("the reference is %q, the answer %q %q", c.Reference, code, out.Claim.Reference)
			}
			x.unwritten("the report sent again", func() { x.end(e) })
			claims, _, err := x.store.List(x.Context(), ledger.ClaimFilter{Source: x.source, Reference: "ws_CO_9", Limit: 5})
			if err != nil || len(claims) != 1 || claims[0].ID != c.ID {
				x.Errorf("List: %v %+v", err, claims)
			}
		})
	}
	w.each("with a late report of an older attempt, where there is none", both, func(x *subject) {
		x.twice()
		x.grant()
		x.refusedWith(withReference(markUnknown(worker(*x.older)), "ws_CO_9"), "lease_lost")
		if c, _ := x.get(x.last.ID); c.Reference != "ws_CO_9" {
			x.Errorf("the reference is %q", c.Reference)
		}
	})
	w.each("it comes back with the next claim", both, func(x *subject) {
		x.found = true
		x.toState("failed")
		if v := x.claim(x.request()); v.Claim.Reference != "ref" {
			x.Errorf("the reference is %q", v.Claim.Reference)
		}
	})
	w.row("the callback of a push ends its claim", func(w *world) {
		c := w.grant(w.effect("inv9"))
		w.ended(withReference(extend(worker(c), 60), "ws_CO_9"), ledger.Processing)
		w.refusedWith(completeReference(w.source, "ws_CO_9", "r"), "lease_live")
		w.ended(markUnknown(worker(c)), ledger.Unknown)
		w.decide(w.effect("inv9"), ledger.DecisionUnknown)
		w.ended(completeReference(w.source, "ws_CO_9", "MPE1"), ledger.Completed)
		if v := w.decide(w.effect("inv9"), ledger.DecisionCompleted); v.Claim.ResultID != "MPE1" {
			w.Errorf("result %q", v.Claim.ResultID)
		}
		w.ended(complete(worker(c), "MPE1"), ledger.Completed)
	})
}

// referenceTaken: a reference is unique in its source; the one who comes second changes nothing of the first.
func referenceTaken(w *world) {
	first, second := w.grant(w.effect("one")), w.grant(w.effect("two"))
	w.ended(withReference(markUnknown(worker(first)), "ref"), ledger.Unknown)
	if _, code := w.end(withReference(markUnknown(worker(second)), "ref")); code == "" {
		w.Error("two claims of one source have one reference")
	}
	if c, _ := w.get(first.ID); c.Reference != "ref" {
		w.Errorf("the first lost its reference: %q", c.Reference)
	}
	if c, _ := w.get(second.ID); c.Reference != "" {
		w.Errorf("the second has the reference %q", c.Reference)
	}
	w.ended(withReference(markUnknown(worker(second)), "ref2"), ledger.Unknown)
	w.ended(completeReference(w.source, "ref2", "r2"), ledger.Completed)
	w.status(first.ID, ledger.Unknown)
	old := w.source
	w.source = "elsewhere"
	third := w.grant(w.effect("one"))
	w.ended(withReference(markUnknown(worker(third)), "ref"), ledger.Unknown)
	w.source = old
	w.pass(time.Second)
	w.ended(completeReference(old, "ref", "r1"), ledger.Completed)
	w.status(first.ID, ledger.Completed)
	w.status(third.ID, ledger.Unknown)
}
