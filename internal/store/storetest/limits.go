package storetest

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"holdfast/internal/failure"
	"holdfast/internal/ledger"
	"holdfast/internal/store"
)

// Destinations with limits of a test's world.
const (
	rated  = "rated"  // 3 in 10 s
	narrow = "narrow" // 2 at once
	frail  = "frail"  // 3 failures open its circuit for 30 s
	single = "single" // all three
)

var testLimits = map[string]ledger.Limit{
	rated:  {Rate: ledger.Rate{N: 3, Per: 10 * time.Second}},
	narrow: {MaxConcurrency: 2},
	frail:  {Circuit: ledger.Circuit{Failures: 3, OpenFor: 30 * time.Second}},
	single: {Rate: ledger.Rate{N: 1, Per: 10 * time.Second}, MaxConcurrency: 1, Circuit: ledger.Circuit{Failures: 1, OpenFor: time.Minute}},
}

// waits claims and wants to be told to wait this long, and to find the claim as it was.
func (w *world) waits(r *ledger.Request, seconds int64, status ledger.Status) {
	w.Helper()
	if v := w.decide(r, ledger.Wait); v.RetryAfter != seconds || v.Claim.Status != status {
		w.Fatalf("claim %v: %s, retry after %d; want %s and %d", r.Key, v.Claim.Status, v.RetryAfter, status, seconds)
	}
}

// failing is /mark-unknown or /mark-failed with an error of this class.
func failing(verb ledger.Verb, c ledger.Claim, class failure.Class) *ledger.Ending {
	e := report(verb, worker(c))
	e.ErrorClass, e.Message = string(class), "it failed"
	return e
}

func (w *world) key(n int) string { return fmt.Sprint("key", n) }

// limitRate: a permit is used by what proceeds, and by nothing else.
func limitRate(w *world) {
	first := w.effect("first", to(rated), owner("1:0:0"))
	w.grant(first)
	w.pass(time.Second)
	if v := w.decide(first, ledger.Proceed); !v.Reentrant {
		w.Fatal("not reentrant")
	}
	w.decide(w.effect("first", to(rated), owner("2:0:0")), ledger.InProgress)
	done := w.grant(w.effect("done", to(rated)))
	w.ended(complete(worker(done), "r"), ledger.Completed)
	w.decide(w.effect("done", to(rated)), ledger.DecisionCompleted)
	w.pause("destination."+rated, time.Minute)
	w.waits(w.effect("paused", to(rated)), 60, ledger.Pending)
	w.resume("destination." + rated)
	w.grant(w.effect("apart", of("e", "1")))
	w.waits(w.effect("busy", to(rated), of("e", "2")), 900, ledger.Pending)
	w.grant(w.event("third", kind(ledger.Event), to(rated))) // an event at a destination counts too
	w.pass(time.Second)
	w.waits(w.effect("fourth", to(rated)), 8, ledger.Pending)
	w.waits(w.effect("fourth"), 8, ledger.Pending) // the row remembers where it goes
	w.waits(byIDOf(w, "fourth"), 8, ledger.Pending)
	w.grant(w.effect("elsewhere", to("unlimited")))
	w.pass(8*time.Second - time.Microsecond)
	w.waits(w.effect("fourth", to(rated)), 1, ledger.Pending)
	w.pass(time.Microsecond)
	fourth := w.grant(w.effect("fourth"))
	w.waits(w.effect("fifth", to(rated)), 1, ledger.Pending)
	w.ended(notExecuted(worker(fourth)), ledger.Failed) // what failed was sent all the same
	w.waits(w.effect("fifth", to(rated)), 1, ledger.Pending)
	w.waits(w.effect("fourth"), 1, ledger.Failed) // a failed one stays failed
	w.pass(time.Second)
	w.grant(w.effect("fifth", to(rated)))
	if rows := w.query("select name from destinations order by name"); rows != "name=rated \n" {
		w.Errorf("rows of destinations: %s", rows)
	}
}

func byIDOf(w *world, key string) *ledger.Request {
	claims, _, err := w.store.List(w.Context(), ledger.ClaimFilter{Source: w.source, IdempotencyKey: key, Limit: 1})
	if err != nil || len(claims) != 1 {
		w.Fatalf("%d claims: %v", len(claims), err)
	}
	return w.event("", byID(claims[0].ID))
}

// limitConcurrency: as many live leases as are allowed; one that is over counts no more, noticed or not.
func limitConcurrency(w *world) {
	a := w.grant(w.effect("a", to(narrow), lease(60)))
	w.grant(w.effect("b", to(narrow), lease(6)))
	w.waits(w.effect("c", to(narrow)), 6, ledger.Pending)
	w.pass(time.Second)
	w.waits(w.effect("c", to(narrow)), 5, ledger.Pending)
	w.pass(5 * time.Second)
	c := w.grant(w.effect("c", to(narrow), lease(300)))
	w.waits(w.effect("d", to(narrow)), 10, ledger.Pending) // mostly a lease is given back long before its end
	w.ended(complete(worker(a), "r"), ledger.Completed)
	w.grant(w.event("d", kind(ledger.Event), to(narrow), lease(300)))
	w.waits(w.effect("e", to(narrow)), 10, ledger.Pending)
	w.ended(markUnknown(worker(c)), ledger.Unknown)
	w.grant(w.effect("e", to(narrow)))
	w.waits(w.effect("f", to(narrow)), 10, ledger.Pending)
	w.pass(300 * time.Second)
	w.grant(w.event("d", kind(ledger.Event), to(narrow))) // taken over: its own old lease does not stand in its way
}

// limitCircuit: failures in a row that speak of the destination open it; a probe decides.
func limitCircuit(w *world) {
	n := 0
	next := func() *ledger.Request { n++; return w.effect(w.key(n), to(frail), lease(120)) }
	fail := func(verb ledger.Verb, class failure.Class) {
		w.Helper()
		c := w.grant(next())
		e := failing(verb, c, class)
		for range 2 { // Retry On Fail: told twice, it is one failure
			if _, code := w.end(e); code != "" {
				w.Fatal(code)
			}
		}
	}
	fail(ledger.MarkUnknown, failure.Transient)
	fail(ledger.MarkFailed, failure.RateLimited)
	w.ended(complete(worker(w.grant(next())), "r"), ledger.Completed) // not in a row
	fail(ledger.MarkUnknown, failure.Transient)
	for _, class := range []failure.Class{failure.Validation, failure.Auth, failure.Conflict, failure.Workflow, failure.Unclassified, ""} {
		fail(ledger.MarkFailed, class)
		fail(ledger.MarkUnknown, class)
	}
	fail(ledger.MarkFailed, failure.Transient)
	late := w.grant(next())
	w.pass(time.Second)
	fail(ledger.MarkUnknown, failure.Transient)
	waiting := next()
	w.waits(waiting, 30, ledger.Pending)
	w.pass(29 * time.Second)
	w.ended(complete(worker(late), "r"), ledger.Completed) // begun before it opened: that says nothing
	w.waits(waiting, 1, ledger.Pending)
	w.pass(time.Second)
	probe := w.grant(waiting)
	w.waits(next(), 10, ledger.Pending)
	w.ended(failing(ledger.MarkUnknown, probe, failure.Transient), ledger.Unknown)
	w.waits(next(), 30, ledger.Pending)
	w.pass(30 * time.Second)
	silent := w.grant(next())
	w.ended(completeKey(probe.Key, "found"), ledger.Completed) // that was long ago
	w.waits(next(), 10, ledger.Pending)
	w.pass(112 * time.Second)
	w.waits(next(), 8, ledger.Pending)
	w.pass(8 * time.Second) // its lease is over
	second := w.grant(next())
	w.ended(failing(ledger.MarkFailed, second, failure.Validation), ledger.Unknown)
	third := w.grant(next()) // a refusal said nothing: the next one probes
	w.ended(complete(worker(third), "r"), ledger.Completed)
	for range 5 {
		w.grant(next())
	}
	w.ended(failing(ledger.MarkUnknown, silent, failure.Transient), ledger.Unknown) // long ago
	fail(ledger.MarkUnknown, failure.Transient)
	fail(ledger.MarkUnknown, failure.Transient)
	w.grant(next())
}

// limitAll: all limits hold together, and a receipt that comes by another way counts as what it is.
func limitAll(w *world) {
	c := w.grant(w.effect("a", to(single), lease(60)))
	w.waits(w.effect("b", to(single)), 10, ledger.Pending)
	w.pass(10 * time.Second)
	w.waits(w.effect("b", to(single)), 10, ledger.Pending) // the rate allows it, the lease of the first does not
	w.ended(failing(ledger.MarkUnknown, c, failure.Transient), ledger.Unknown)
	w.waits(w.effect("b", to(single)), 60, ledger.Pending)
	w.pass(time.Minute)
	probe := w.grant(w.effect("b", to(single)))
	w.ended(completeKey(c.Key, "found"), ledger.Completed) // the reconciler found the first: it says nothing of now
	w.waits(w.effect("c", to(single)), 10, ledger.Pending)
	w.ended(complete(worker(probe), "r"), ledger.Completed)
	w.pass(10 * time.Second)
	w.grant(w.effect("c", to(single)))
}

// raceRate: over two Stores whose clocks are apart, no window of a rate ever holds more than it allows, and
// together they use what it allows.
func raceRate(t *testing.T, open Open) {
	limit := ledger.Limit{Rate: ledger.Rate{N: 10, Per: 2 * time.Second}}
	url := open(t)
	began := time.Now()
	var stores []*store.Store
	for _, ahead := range []time.Duration{0, 300 * time.Millisecond} {
		// Ten times as fast as the real clock, so that many windows go by.
		now := func() time.Time { return began.Add(10*time.Since(began) + ahead) }
		stores = append(stores, openStore(t, url, store.Options{Now: now, Limits: map[string]ledger.Limit{rated: limit}}))
	}
	if _, err := stores[0].Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var given []ledger.Instant
	enough := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(given) >= 60 // six windows, 1.2 s where the machine is quick
	}
	until := time.Now().Add(time.Minute)
	together(t, stores, 12, func(r *racer, i int) {
		for n := 0; !enough() && time.Now().Before(until); n++ {
			v, err := r.claim(request(fmt.Sprint(i, "-", n), to(rated)))
			switch {
			case err != nil:
				return
			case v.Decision == ledger.Proceed:
				mu.Lock()
				given = append(given, v.Claim.Last.At)
				mu.Unlock()
			case v.Decision != ledger.Wait || v.RetryAfter < 1 || v.RetryAfter > 3:
				r.Errorf("%s, retry after %d", v.Decision, v.RetryAfter)
			}
		}
	})
	slices.Sort(given)
	for i := 0; i+10 < len(given); i++ {
		if apart := given[i+10].Sub(given[i]); apart < limit.Rate.Per {
			t.Fatalf("11 grants within %v", apart)
		}
	}
	if len(given) < 60 {
		t.Errorf("%d grants in a minute, allowed are 50 a second", len(given))
	}
}

// raceConcurrency: never more live leases than are allowed, and none is lost.
func raceConcurrency(t *testing.T, open Open) {
	url := open(t)
	var stores []*store.Store
	for range 2 {
		stores = append(stores, openStore(t, url, store.Options{Limits: testLimits}))
	}
	if _, err := stores[0].Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	live, most := 0, 0
	change := func(by int) {
		mu.Lock()
		defer mu.Unlock()
		live += by
		most = max(most, live)
	}
	var finished turnstile
	together(t, stores, 8, func(r *racer, i int) {
		for n := 0; n < 5; {
			again := finished.wait()
			v, err := r.claim(request(fmt.Sprint(i, "-", n), to(narrow), of(fmt.Sprint("e", i%3), "")))
			switch {
			case err != nil:
				return
			case v.Decision == ledger.Wait:
				<-again
				continue
			}
			change(1)
			runtime.Gosched()
			change(-1)
			if out, err := r.store.End(r.ctx, complete(worker(v.Claim), "r")); err != nil || out.Claim.Status != ledger.Completed {
				r.Errorf("complete: %v", err)
			}
			finished.turn()
			n++
		}
	})
	if most > 2 {
		t.Errorf("%d at once, allowed are 2", most)
	}
}
