package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/internal/ledger"
	"holdfast/internal/store"
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

// alertOfOutage: what could not be asked is one alert for its source and destination, however many claims wait; it is
// repeated only while nobody answers.
func alertOfOutage(w *world) {
	const rows = 50
	since := ""
	inVain := func(want int) {
		w.Helper()
		n := 0
		for got := w.look(""); len(got) > 0; got = w.look("") {
			for _, c := range got {
				if n++; since == "" {
					since = w.clock.now().Format(time.RFC3339)
					w.ended(markUnknown(looker(c)), ledger.Unknown) // its answer is lost
				}
				w.ended(markUnknown(looker(c)), ledger.Unknown)
			}
		}
		if n != want {
			w.Fatalf("%d looks, want %d", n, want)
		}
	}
	for i := range rows {
		w.unknownAt(w.key(i), to("psp"), kind(ledger.Event))
	}
	w.pass(time.Minute)
	inVain(rows)
	w.pass(gather)
	m := w.wantDue("", "src at psp: the destination cannot be asked about unknown claims", rows)
	if m.Group != "unreachable/src/psp" || m.Path != "/claims?status=unknown&source=src" || !strings.Contains(m.Last, "50 unknown claims wait") || !strings.Contains(m.Last, since) {
		w.Errorf("%+v", m)
	}
	w.sent(m)
	c, history := w.get(w.decide(w.effect("key0", kind(ledger.Event)), ledger.DecisionUnknown).Claim.ID)
	if last := history[len(history)-1]; !kept(last) || last.Reason != ledger.CouldNotBeAsked || c.Looks != 1 {
		w.Errorf("%d looks, %+v", c.Looks, last)
	}
	for _, minutes := range []time.Duration{2, 4, 60} {
		w.pass(minutes * time.Minute)
		inVain(rows)
		w.wantNone("six hours are not over")
	}
	w.pass(5 * time.Hour)
	m = w.due("")
	if m == nil || m.Count != 3*rows || !strings.Contains(m.Text, since) {
		w.Fatalf("%+v, want a second one", m)
	}
	w.sent(m)
	inVain(rows)
	w.pass(time.Hour)
	got := w.look("rec")
	w.ended(complete(looker(got[0]), "found"), ledger.Completed)
	w.pass(5 * time.Hour)
	w.wantNone("it answers again")
	inVain(rows - 1)
	w.pass(gather)
	w.wantDue("", m.Title, rows-1)
}

// alertOfUnasked: unknown claims that nobody asks about are told once a day for each source; those that a probe is for
// and those of a source whose reconciler runs are not.
func alertOfUnasked(w *world) {
	watched := *w
	watched.store = openStore(w.T, w.url, store.Options{
		Now: w.clock.now, Policies: testPolicies, Alerts: store.AlertOptions{Probed: []ledger.Match{{Step: "mail"}}},
	})
	later := func(d time.Duration) {
		w.pass(d)
		watched.watch()
		w.pass(gather)
	}
	w.unknownAt("a")
	w.unknownAt("b", to("crm"))
	w.unknownAt("mail", step("mail"))
	w.unknownAt("patient", to(slow))
	w.source = "asked"
	w.unknownAt("c")
	w.pass(time.Minute)
	w.unknownAt("d")
	w.pass(10 * time.Minute)
	w.lookFor(&ledger.LookRequest{Source: "asked", CallerKey: "n8n", Limit: 1, LeaseSeconds: 60}) // there are more than it can ask about
	later(4*time.Minute - 31*time.Second)
	w.wantNone("not fifteen minutes")
	later(time.Minute)
	m := w.wantDue("", "Nobody asks about 3 unknown claims of src", 1)
	if m.Group != "unasked/src" || m.Path != "/claims?status=unknown&source=src" {
		w.Errorf("%+v", m)
	}
	w.sent(m)
	w.wantNone("only one")
	w.source = "src"
	w.unknownAt("e", to(slow))
	w.pause("source.asked", 0)
	for range 12 {
		later(time.Hour)
		w.wantNone("told today")
	}
	w.pass(12 * time.Hour)
	w.swept() // what has no long window waits for a person by now
	later(time.Hour)
	var told []string
	for m := w.due(""); m != nil; m = w.due("") {
		if strings.HasPrefix(m.Group, "unasked/") {
			told = append(told, m.Title)
		}
		w.sent(m)
	}
	if len(told) != 1 || told[0] != "Nobody asks about 2 unknown claims of src" { // the other source is paused
		w.Errorf("%q", told)
	}
}
