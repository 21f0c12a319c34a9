package storetest

import (
	"fmt"
	"slices"
	"time"

	"holdfast/internal/ledger"
)

// unknownAt is a claim without a receipt, old enough to be asked about.
func (w *world) unknownAt(key string, mods ...mod) ledger.Claim {
	w.Helper()
	return w.ended(markUnknown(worker(w.grant(w.effect(key, mods...)))), ledger.Unknown).Claim
}

// probing takes looks as the sidecar's own probe does.
func (w *world) probing(of ledger.Match, except ...ledger.Match) (keys []string) {
	w.Helper()
	for _, c := range w.lookFor(&ledger.LookRequest{CallerKey: "probe", Probe: true, Of: of, Except: except, Limit: 4, LeaseSeconds: 60}) {
		keys = append(keys, c.Key.IdempotencyKey)
	}
	return keys
}

func (w *world) wantProbed(of ledger.Match, want ...string) {
	w.Helper()
	if got := w.probing(of); !slices.Equal(got, want) {
		w.Fatalf("%+v: asked about %v, want %v", of, got, want)
	}
}

// lookOf: a probe gets the claims that it is for and nobody holds, by the rules of all looks.
func lookOf(w *world) {
	w.unknownAt("a", to("bank"))
	one := w.unknownAt("b", step("mail"))
	w.source = "other"
	w.unknownAt("c")
	w.wantProbed(ledger.Match{}) // not before ask_after
	w.pass(time.Minute)
	w.wantProbed(ledger.Match{Source: "src", Step: "mail", Destination: "bank"})
	if got := w.probing(ledger.Match{Source: "src"}, ledger.Match{Step: "charge", Destination: "bank"}, ledger.Match{Source: "other"}); !slices.Equal(got, []string{"b"}) {
		w.Errorf("%v", got)
	}
	if got := w.lookFor(&ledger.LookRequest{CallerKey: "n8n", Owner: "rec", Limit: 25, LeaseSeconds: 60}); len(got) != 2 {
		w.Errorf("%d were handed to a workflow beside the probe", len(got))
	}
	w.pass(time.Minute) // all leases are over
	w.wantProbed(ledger.Match{Step: "charge"}, "a", "c")
	byID := func(id string) int {
		return len(w.lookFor(&ledger.LookRequest{CallerKey: "probe", Probe: true, ID: id, Limit: 1, LeaseSeconds: 60}))
	}
	if byID(one.ID) != 1 || byID(one.ID) != 0 || byID(one.ID[:8]) != 0 {
		w.Error("the one claim that was meant is handed out once")
	}
}

// lookPaused: nothing is handed out of what is paused, to its holder neither; what is told of it counts.
func lookPaused(w *world) {
	w.unknownAt("a", to("bank"), workflow("Wf"))
	w.unknownAt("b", to("crm"))
	w.pass(time.Minute)
	for _, owner := range []string{"", "rec"} {
		for scope, want := range map[string]int{"all": 0, "source.src": 0, "destination.bank": 1, "workflow.Wf": 1, "source.bank": 2, "workflow.wf": 2} {
			w.pause(scope, 0)
			if got := w.look(owner); len(got) != want {
				w.Errorf("%q with a pause of %s: %d, want %d", owner, scope, len(got), want)
			}
			w.pass(5 * time.Minute)
			w.pause(scope, time.Second)
			w.pass(time.Second)
		}
	}
	held := w.look("rec")
	w.pause("all", 0)
	if again := w.look("rec"); len(again) != 0 || len(held) != 2 {
		w.Errorf("%d, and in the pause %d", len(held), len(again))
	}
	w.wantProbed(ledger.Match{})
	w.ended(complete(looker(held[0]), "found"), ledger.Completed)
	w.pass(day)
	w.swept()
	w.status(held[1].ID, ledger.Review)
}

// lookLimits: a probe's look uses the rate of its destination and waits while the circuit is open, uncounted; what
// waits stands in nobody's way. A workflow keeps the rate by itself.
func lookLimits(w *world) {
	for i := range 5 {
		w.unknownAt(fmt.Sprint("r", i), to(rated))
		w.pass(10 * time.Second)
	}
	for i := range 3 {
		w.ended(failing(ledger.MarkUnknown, w.grant(w.effect(fmt.Sprint("f", i), to(frail))), unavailable.Class), ledger.Unknown)
	}
	w.unknownAt("free", to("crm"))
	w.pass(time.Minute) // the circuit is half-open
	w.grant(w.effect("work", to(rated)))
	w.wantProbed(ledger.Match{Destination: rated}, "r0", "r1")
	w.waits(w.effect("more", to(rated)), 10, ledger.Pending)
	w.wantProbed(ledger.Match{Destination: rated})
	// Half-open: looks go on, and leave the one attempt that decides to work.
	w.wantProbed(ledger.Match{}, "f0", "f1", "f2", "free")
	probe := w.grant(w.effect("g", to(frail)))
	w.ended(failing(ledger.MarkUnknown, probe, unavailable.Class), ledger.Unknown)
	w.pass(10 * time.Second)
	w.wantProbed(ledger.Match{}, "r2", "r3", "r4") // none of them was counted as a look in vain
	w.pass(20 * time.Second)
	if got := w.lookFor(&ledger.LookRequest{CallerKey: "n8n", Limit: 25, LeaseSeconds: 60}); len(got) != 0 {
		w.Errorf("%d are handed to a workflow while probes hold them", len(got))
	}
	w.pass(30 * time.Second)
	w.ended(failing(ledger.MarkUnknown, w.grant(w.effect("h", to(frail))), unavailable.Class), ledger.Unknown)
	w.pass(time.Second)
	w.wantProbed(ledger.Match{Destination: frail}) // open again
	w.pass(time.Minute)
	w.wantProbed(ledger.Match{Destination: frail}, "f0", "f1", "f2", "g")
}
