package storetest

import (
	"time"

	"holdfast/internal/ledger"
)

// subject is the one claim that a row of a table is about.
type subject struct {
	*world
	kind  ledger.Kind
	mods  []mod         // of each of its claims
	last  ledger.Claim  // as the newest claim or report left it
	older *ledger.Claim // as its first attempt held it, where there were two
	found bool          // it has the reference "ref"
}

const (
	eventLease  = ledger.DefaultEventLease * time.Second
	effectLease = ledger.DefaultEffectLease * time.Second
	day         = 24 * time.Hour
)

var (
	both       = []ledger.Kind{ledger.Event, ledger.Effect}
	eventOnly  = []ledger.Kind{ledger.Event}
	effectOnly = []ledger.Kind{ledger.Effect}
)

// each runs fn for each kind, as a row of its own.
func (w *world) each(name string, kinds []ledger.Kind, fn func(*subject)) {
	w.Helper()
	for _, k := range kinds {
		w.row(name+"/"+string(k), func(w *world) { fn(&subject{world: w, kind: k}) })
	}
}

// request is a claim of the subject.
func (x *subject) request(mods ...mod) *ledger.Request {
	r := x.event("key", kind(x.kind), step("charge"))
	for _, m := range append(x.mods, mods...) {
		m(r)
	}
	return r
}

func (x *subject) lease() time.Duration {
	if x.kind == ledger.Effect {
		return effectLease
	}
	return eventLease
}

func (x *subject) grant(mods ...mod) {
	x.Helper()
	x.last = x.world.grant(x.request(mods...))
	if x.found {
		x.last = x.must(withReference(extend(worker(x.last), 1), "ref")).Claim
	}
}

func (x *subject) must(e *ledger.Ending) ledger.Ended {
	x.Helper()
	out, code := x.end(e)
	if code != "" {
		x.Fatalf("/%s: %s", e.Verb, code)
	}
	x.last = out.Claim
	return out
}

func (x *subject) wait(scope string) {
	x.Helper()
	x.pause(scope, 0)
	x.last = x.decide(x.request(), ledger.Wait).Claim
	x.resume(scope)
}

// another completes another key of the subject's entity "e".
func (x *subject) another(version string) {
	x.Helper()
	c := x.world.grant(x.event("another", of("e", version)))
	x.ended(complete(worker(c), "other"), ledger.Completed)
}

// toState brings a new subject where a table wants it.
func (x *subject) toState(state string) {
	x.Helper()
	switch state {
	case "pending":
		x.wait("source." + x.source)
	case "pending, not now":
		x.grant()
		x.must(notNow(worker(x.last), 30))
	case "processing":
		x.grant()
	case "processing, over":
		x.grant()
		x.pass(x.lease())
	case "completed":
		x.grant()
		x.must(complete(worker(x.last), "r1"))
	case "completed without id":
		x.grant()
		x.must(complete(worker(x.last), ""))
	case "failed":
		x.grant()
		x.must(notExecuted(worker(x.last)))
	case "unknown":
		x.grant()
		x.must(markUnknown(worker(x.last)))
	case "unknown, look":
		x.toState("unknown")
		x.pass(time.Minute)
		x.last = x.looked("rec")
	case "unknown, look late":
		x.toState("unknown")
		x.pass(5 * time.Minute)
		x.last = x.looked("rec")
	case "unknown, look over":
		x.toState("unknown, look late")
		x.pass(5 * time.Minute)
	case "review":
		x.toState("unknown")
		x.review()
	case "stale":
		x.stale()
	default:
		x.Fatalf("no such state: %s", state)
	}
}

// review lets the window run out: no person is involved, so that the tokens stay good.
func (x *subject) review() {
	x.Helper()
	x.pass(day)
	x.last = x.decide(x.request(), ledger.DecisionReview).Claim
}

// stale lets a newer version overtake the subject, which gave its lease up.
func (x *subject) stale() {
	x.Helper()
	x.mods = append(x.mods, of("e", "1"))
	x.grant()
	x.must(notExecuted(worker(x.last)))
	x.another("2")
	x.last = x.decide(x.request(), ledger.DecisionStale).Claim
}

// twice gives the subject a first attempt that failed.
func (x *subject) twice() {
	x.Helper()
	x.grant()
	x.must(notExecuted(worker(x.last)))
	first := x.last
	x.older = &first
}
