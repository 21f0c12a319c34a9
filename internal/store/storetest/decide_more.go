package storetest

import (
	"strings"
	"time"

	"holdfast/internal/ledger"
)

// reentrant: the same non-empty owner with the same API key, workflow and node gets its live lease again.
func reentrant(w *world) {
	w.each("same owner: same token and attempt, nothing to write", both, func(x *subject) {
		x.mods = owned
		x.grant()
		x.answers(nil, answer{decision: ledger.Proceed, status: ledger.Processing, attempt: 1, token: "same", reentrant: true, still: true})
	})
	w.each("lease renewed from now", both, func(x *subject) {
		x.mods = owned
		x.grant()
		x.pass(100 * time.Second)
		x.answers(nil, answer{decision: ledger.Proceed, status: ledger.Processing, attempt: 1, token: "same", reentrant: true})
		if c, _ := x.get(x.last.ID); c.LeaseUntil != x.now().Add(x.lease()) {
			x.Errorf("the lease ends at %v", c.LeaseUntil.Time())
		}
	})
	w.each("the later of the old end and the new stands", both, func(x *subject) {
		x.mods = owned
		x.grant()
		v := x.decide(x.request(lease(10)), ledger.Proceed)
		if v.Claim.LeaseUntil != x.last.LeaseUntil {
			x.Errorf("the lease was cut to %v", v.Claim.LeaseUntil.Time())
		}
	})
	w.each("paused: the live lease comes first", both, func(x *subject) {
		x.mods = owned
		x.grant()
		pausing(x)
		x.answers(nil, answer{decision: ledger.Proceed, status: ledger.Processing, attempt: 1, token: "same", reentrant: true, still: true})
	})
	for name, other := range map[string]mod{
		"another owner": owner("8:0:0"), "another node": node("Claim 2"), "another workflow": workflow("wf2"),
		"another API key": caller("other"), "no owner": owner(""),
	} {
		w.each(name+": in_progress", both, func(x *subject) {
			x.mods = owned
			x.grant()
			x.answers([]mod{other}, answer{decision: ledger.InProgress, status: ledger.Processing, attempt: 1, still: true})
		})
	}
	w.each("an empty owner is nobody", both, func(x *subject) {
		x.mods = []mod{node("Claim"), workflow("wf")}
		x.grant()
		x.answers(nil, answer{decision: ledger.InProgress, status: ledger.Processing, attempt: 1, still: true})
	})
	w.each("lease over: not re-entrant", effectOnly, func(x *subject) {
		x.mods = owned
		x.toState("processing, over")
		x.answers(nil, answer{decision: ledger.DecisionUnknown, status: ledger.Unknown, attempt: 1})
	})
	w.each("lease over: a new attempt of the same owner", eventOnly, func(x *subject) {
		x.mods = owned
		x.toState("processing, over")
		x.answers(nil, answer{decision: ledger.Proceed, status: ledger.Processing, attempt: 2, token: "new"})
	})
	w.each("lease_seconds is kept to", both, func(x *subject) {
		x.mods = []mod{lease(7)}
		x.grant()
		x.pass(6*time.Second + 500*time.Millisecond)
		if v := x.decide(x.request(), ledger.InProgress); v.RetryAfter != 1 {
			x.Errorf("retry_after_seconds is %d, want 1", v.RetryAfter)
		}
		x.pass(500 * time.Millisecond)
		want := map[ledger.Kind]ledger.Decision{ledger.Event: ledger.Proceed, ledger.Effect: ledger.DecisionUnknown}[x.kind]
		x.decide(x.request(), want)
	})
}

// waits: which pauses hold a claim back, and for how long it is told to wait.
func waits(w *world) {
	for _, p := range []struct {
		name, scope string
		until       time.Duration
		mods        []mod
		retry       int64 // 0: not held back
	}{
		{"the source, for good", "source.SOURCE", 0, nil, 300},
		{"the source, for long", "source.SOURCE", time.Hour, nil, 300},
		{"the source, until", "source.SOURCE", 10 * time.Second, nil, 10},
		{"the source, rounded up", "source.SOURCE", 10*time.Second + time.Millisecond, nil, 11},
		{"the source, at least 1", "source.SOURCE", time.Microsecond, nil, 1},
		{"all", "all", 0, nil, 300},
		{"its destination", "destination.crm", 0, []mod{to("crm")}, 300},
		{"its workflow", "workflow.wf", 20 * time.Second, []mod{workflow("wf")}, 20},
		{"another source", "source.other", 0, nil, 0},
		{"another destination", "destination.other", 0, []mod{to("crm")}, 0},
		{"a destination, where it names none", "destination.crm", 0, nil, 0},
		{"another workflow", "workflow.WF", 0, []mod{workflow("wf")}, 0},
		{"a source named like its destination", "source.crm", 0, []mod{to("crm")}, 0},
	} {
		for _, path := range []struct {
			name string
			mods []mod
		}{{"plain", nil}, {"entity", []mod{of("e", "1")}}} {
			w.each(p.name+", "+path.name, both, func(x *subject) {
				scope := strings.ReplaceAll(p.scope, "SOURCE", x.source)
				x.mods = append(append(x.mods, p.mods...), path.mods...)
				x.pause(scope, p.until)
				defer x.resume(scope)
				if p.retry == 0 {
					x.answers(nil, answer{decision: ledger.Proceed, status: ledger.Processing, attempt: 1, token: "new"})
					return
				}
				x.answers(nil, answer{decision: ledger.Wait, status: ledger.Pending, retry: p.retry})
				x.resume(scope)
				x.answers(nil, answer{decision: ledger.Proceed, status: ledger.Processing, attempt: 1, token: "new"})
			})
		}
	}
	w.each("a pause that has ended holds nothing back", both, func(x *subject) {
		x.pause("source."+x.source, 10*time.Second)
		x.pass(10 * time.Second)
		x.answers(nil, answer{decision: ledger.Proceed, status: ledger.Processing, attempt: 1, token: "new"})
	})
	w.each("the row's own destination is paused", both, func(x *subject) {
		x.grant(to("crm"))
		x.must(notExecuted(worker(x.last)))
		x.pause("destination.crm", 0)
		defer x.resume("destination.crm")
		x.answers(nil, answer{decision: ledger.Wait, status: ledger.Failed, attempt: 1, retry: 300, still: true})
	})
}

// claimByID: claim_id names a claim that exists.
func claimByID(w *world) {
	w.each("its own kind, key and basis", both, func(x *subject) {
		x.mods = append(x.mods, basis(ledger.BasisProfile))
		x.toState("failed")
		x.mods = nil
		v := x.decide(x.request(byID(x.last.ID)), ledger.Proceed)
		if v.Claim.Key != x.last.Key || v.Claim.Kind != x.kind || v.Claim.Basis != ledger.BasisProfile || v.Claim.Attempt != 2 {
			x.Errorf("%+v", v.Claim)
		}
	})
	w.each("pending", both, func(x *subject) {
		x.toState("pending")
		x.answers([]mod{byID(x.last.ID)}, answer{decision: ledger.Proceed, status: ledger.Processing, attempt: 1, token: "new"})
	})
	w.each("an entity's claim", both, func(x *subject) {
		x.mods = append(x.mods, of("e", "1"))
		x.toState("failed")
		x.another("2")
		x.decide(x.request(byID(x.last.ID), of("", "")), ledger.DecisionStale)
	})
	w.row("none", func(w *world) {
		for _, mods := range [][]mod{{byID(fresh(w.T).ID)}, {byID(fresh(w.T).ID), of("e", "1")}} {
			w.unwritten("a claim_id that is none", func() {
				if _, err := w.ask(w.event("", mods...)); w.code(err) != "not_found" {
					w.Errorf("error %v, want not_found", err)
				}
			})
		}
	})
}

// keysAreBytes: four columns, exact bytes, case-sensitive, the same on both databases.
func keysAreBytes(w *world) {
	long := strings.Repeat("k", 255)
	requests := []*ledger.Request{
		w.event("evt_1AbC"), w.event("evt_1aBc"), w.event("caf\u00e9"), w.event("cafe\u0301"), w.event("ABC"), w.event("ＡＢＣ"), w.event("abc"),
		w.event("hello  world"), w.event("hello world"), w.event("1"), w.event("01"), w.event("1.0"), w.event("%"), w.event("_"), w.event(`'";--`),
		w.event("a"), w.event("á"), w.event("ä"), w.event("z"), w.event("é"), w.event("😀"), w.event("😁"), w.event("\U0001F600\u200d"),
		w.event(long), w.event(long[1:] + "K"), w.event("9314159265358979"), w.event("9314159265358980"), w.event("931415926535897932384"),
		w.event("c", account("a:b")), w.event("b:c", account("a")), w.event("a:b:c"), w.event("c", account("A:b")),
		w.event("c", account("a:b"), step("s"), kind(ledger.Event)), w.event("c", account("a:b"), step("S"), kind(ledger.Event)),
		w.event("s", account("c"), step("a")), w.event("c", account("s"), step("a")), w.event("c", step("s")), w.event("c"),
	}
	for _, r := range requests {
		c := w.grant(r)
		if c.Key != r.Key {
			w.Errorf("%+v became %+v", r.Key, c.Key)
		}
	}
	for i, r := range requests {
		if i%2 == 0 {
			w.ended(completeKeyOf(w, r), ledger.Completed)
		}
	}
	for i, r := range requests {
		want := ledger.InProgress
		if i%2 == 0 {
			want = ledger.DecisionCompleted
		}
		w.decide(r, want)
	}
}

// completeKeyOf completes by the token that the claim's row gives.
func completeKeyOf(w *world, r *ledger.Request) *ledger.Ending {
	w.Helper()
	claims, _, err := w.store.List(w.Context(), ledger.ClaimFilter{
		Source: r.Key.Source, Account: &r.Key.Account, IdempotencyKey: r.Key.IdempotencyKey, Limit: 50,
	})
	if err != nil {
		w.Fatal(err)
	}
	for _, c := range claims {
		if c.Key == r.Key {
			return complete(worker(c), "r")
		}
	}
	w.Fatalf("List does not find %+v", r.Key)
	return nil
}

// payloadStays: the first payload, its hash, the key and the first-seen time survive every change of state.
func payloadStays(w *world) {
	for _, state := range states {
		w.each(state, both, func(x *subject) {
			first := x.now()
			x.mods = append(x.mods, payload(`{"amount":500}`))
			x.toState(state)
			c, _ := x.get(x.last.ID)
			want := x.request()
			if string(c.Payload) != `{"amount":500}` || string(c.PayloadHash) != string(want.PayloadHash) || c.Key != want.Key || c.FirstAt != first {
				x.Errorf("%+v", c)
			}
		})
		w.each("filled in where it was missing, "+state, both, func(x *subject) {
			x.toState(state)
			x.claim(x.request(payload(`{"late":true}`)))
			if c, _ := x.get(x.last.ID); string(c.Payload) != `{"late":true}` || len(c.PayloadHash) != 32 {
				x.Errorf("payload %q", c.Payload)
			}
			if x.kind == ledger.Event {
				x.claim(x.request(payload(`{"late":false}`)))
			}
			x.claim(x.request())
			if c, _ := x.get(x.last.ID); string(c.Payload) != `{"late":true}` {
				x.Errorf("the first payload became %q", c.Payload)
			}
		})
	}
}
