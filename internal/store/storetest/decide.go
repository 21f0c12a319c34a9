package storetest

import (
	"testing"
	"time"

	"holdfast/internal/ledger"
)

// answer is what a claim must be told.
type answer struct {
	decision  ledger.Decision
	status    ledger.Status
	attempt   int64
	token     string // same or new, with proceed
	reentrant bool
	retry     int64
	resultID  string
	still     bool // nothing is written
}

type decisionRow struct {
	name  string
	kinds []ledger.Kind
	setup func(*subject)
	ask   []mod
	want  answer
}

func inState(state string, after ...func(*subject)) func(*subject) {
	return func(x *subject) {
		x.Helper()
		x.toState(state)
		for _, fn := range after {
			fn(x)
		}
	}
}

func passing(d time.Duration) func(*subject) { return func(x *subject) { x.pass(d) } }

func pausing(x *subject) { x.pause("source."+x.source, 0) }

// unknownThenFailed is a claim that a reconciler did not find.
func unknownThenFailed(x *subject) {
	x.Helper()
	x.toState("unknown, look late")
	x.must(notExecuted(looker(x.last)))
}

func nothing(*subject) {}

var owned = []mod{owner("7:0:0"), node("Claim"), workflow("wf")}

// decisionRows are the contract's table in its order, without what entities and pauses add.
var decisionRows = []decisionRow{
	{
		"unknown, its window over: review, the row becomes so", both, inState("unknown", passing(day)), nil,
		answer{decision: ledger.DecisionReview, status: ledger.Review, attempt: 1},
	},
	{
		"unknown, its window not yet over", both, inState("unknown", passing(day-time.Second)), nil,
		answer{decision: ledger.DecisionUnknown, status: ledger.Unknown, attempt: 1, still: true},
	},
	{
		"unknown, its window over, paused: review comes first", both, inState("unknown", passing(day), pausing), nil,
		answer{decision: ledger.DecisionReview, status: ledger.Review, attempt: 1},
	},
	{
		"completed brings the stored result", both, inState("completed"), nil,
		answer{decision: ledger.DecisionCompleted, status: ledger.Completed, attempt: 1, resultID: "r1", still: true},
	},
	{
		"completed, long after its window", both, inState("completed", passing(399*day)), nil,
		answer{decision: ledger.DecisionCompleted, status: ledger.Completed, attempt: 1, resultID: "r1", still: true},
	},
	{
		"completed, paused", both, inState("completed", pausing), nil,
		answer{decision: ledger.DecisionCompleted, status: ledger.Completed, attempt: 1, resultID: "r1", still: true},
	},
	{
		"completed, the owner of its attempt asks again", both, inState("completed"), owned,
		answer{decision: ledger.DecisionCompleted, status: ledger.Completed, attempt: 1, resultID: "r1", still: true},
	},
	{"unknown", both, inState("unknown"), nil, answer{decision: ledger.DecisionUnknown, status: ledger.Unknown, attempt: 1, still: true}},
	{"unknown, paused", both, inState("unknown", pausing), nil, answer{decision: ledger.DecisionUnknown, status: ledger.Unknown, attempt: 1, still: true}},
	{
		"unknown, under a reconcile lease", both, inState("unknown, look"), nil,
		answer{decision: ledger.DecisionUnknown, status: ledger.Unknown, attempt: 1, still: true},
	},
	{"review", both, inState("review"), nil, answer{decision: ledger.DecisionReview, status: ledger.Review, attempt: 1, still: true}},
	{"stale", both, inState("stale"), nil, answer{decision: ledger.DecisionStale, status: ledger.Stale, attempt: 1, still: true}},
	{"stale, paused", both, inState("stale", pausing), nil, answer{decision: ledger.DecisionStale, status: ledger.Stale, attempt: 1, still: true}},
	{
		"processing, lease live, no owner: in_progress, what the lease has left", both, inState("processing", passing(10*time.Second)),
		[]mod{lease(60)},
		answer{decision: ledger.InProgress, status: ledger.Processing, attempt: 1, retry: -10, still: true},
	},
	{
		"processing, lease live, rounded up", both, inState("processing", passing(9*time.Second+time.Microsecond)), nil,
		answer{decision: ledger.InProgress, status: ledger.Processing, attempt: 1, retry: -9, still: true},
	},
	{
		"processing, lease live, paused", both, inState("processing", pausing), nil,
		answer{decision: ledger.InProgress, status: ledger.Processing, attempt: 1, retry: 0, still: true},
	},
	{
		"processing, lease over, effect: unknown, the row becomes so", effectOnly, inState("processing, over"), nil,
		answer{decision: ledger.DecisionUnknown, status: ledger.Unknown, attempt: 1},
	},
	{
		"processing, lease over, effect, paused: unknown comes first", effectOnly, inState("processing, over", pausing), nil,
		answer{decision: ledger.DecisionUnknown, status: ledger.Unknown, attempt: 1},
	},
	{
		"failed effect that was ever unknown, past its window: review", effectOnly, func(x *subject) { unknownThenFailed(x); x.pass(day) }, nil,
		answer{decision: ledger.DecisionReview, status: ledger.Review, attempt: 1},
	},
	{
		"failed effect that was ever unknown, past its window, paused: review comes first", effectOnly,
		func(x *subject) { unknownThenFailed(x); x.pass(day); pausing(x) }, nil,
		answer{decision: ledger.DecisionReview, status: ledger.Review, attempt: 1},
	},
	{
		"failed effect that was ever unknown, within its window", effectOnly, unknownThenFailed, nil,
		answer{decision: ledger.Proceed, status: ledger.Processing, attempt: 2, token: "new"},
	},
	{
		"failed event that was ever unknown, past its window", eventOnly, func(x *subject) { unknownThenFailed(x); x.pass(day) }, nil,
		answer{decision: ledger.Proceed, status: ledger.Processing, attempt: 2, token: "new"},
	},
	{
		"failed, never unknown, past its window", both, inState("failed", passing(day)), nil,
		answer{decision: ledger.Proceed, status: ledger.Processing, attempt: 2, token: "new"},
	},
	{"paused: wait, a new row is kept as pending", both, pausing, nil, answer{decision: ledger.Wait, status: ledger.Pending, retry: 300}},
	{"paused: wait, a pending row stays so", both, inState("pending", pausing), nil, answer{decision: ledger.Wait, status: ledger.Pending, retry: 300}},
	{
		"paused: wait, a failed one stays failed", both, inState("failed", pausing), nil,
		answer{decision: ledger.Wait, status: ledger.Failed, attempt: 1, retry: 300, still: true},
	},
	{
		"paused: wait, an event whose lease is over", eventOnly, inState("processing, over", pausing), nil,
		answer{decision: ledger.Wait, status: ledger.Processing, attempt: 1, retry: 300, still: true},
	},
	{"none: proceed", both, nothing, nil, answer{decision: ledger.Proceed, status: ledger.Processing, attempt: 1, token: "new"}},
	{"pending: proceed", both, inState("pending"), nil, answer{decision: ledger.Proceed, status: ledger.Processing, attempt: 1, token: "new"}},
	{
		"pending after not now: proceed, it was uncounted", eventOnly, inState("pending, not now"), nil,
		answer{decision: ledger.Proceed, status: ledger.Processing, attempt: 1, token: "new"},
	},
	{"failed: proceed", both, inState("failed"), nil, answer{decision: ledger.Proceed, status: ledger.Processing, attempt: 2, token: "new"}},
	{
		"processing, lease over, event: taken over", eventOnly, inState("processing, over"), nil,
		answer{decision: ledger.Proceed, status: ledger.Processing, attempt: 2, token: "new"},
	},
}

func decisions(w *world) {
	for _, row := range decisionRows {
		w.each(row.name, row.kinds, func(x *subject) {
			row.setup(x)
			x.answers(row.ask, row.want)
		})
	}
}

// answers asks once and checks all that the answer and the row show.
func (x *subject) answers(ask []mod, want answer) {
	x.Helper()
	before := x.last
	if want.decision == ledger.InProgress && want.retry <= 0 {
		want.retry += int64(x.lease() / time.Second) // what the lease has left
	}
	var v ledger.Verdict
	if want.still {
		x.unwritten("a decision that changes nothing", func() { v = x.claim(x.request(ask...)) })
	} else {
		v = x.claim(x.request(ask...))
	}
	got := answer{
		decision: v.Decision, status: v.Claim.Status, attempt: v.Claim.Attempt, reentrant: v.Reentrant,
		retry: v.RetryAfter, resultID: v.Claim.ResultID, still: want.still, token: want.token,
	}
	if got != want {
		x.Errorf("got  %+v\nwant %+v", got, want)
	}
	if fresh := before.ID == "" || v.Claim.LeaseToken() != before.LeaseToken(); v.Decision == ledger.Proceed && fresh != (want.token == "new") {
		x.Errorf("the token: new is %v, want %s", fresh, want.token)
	}
	row, history := x.get(v.Claim.ID)
	if row.Status != want.status || row.Attempt != want.attempt || row.ResultID != want.resultID {
		x.Errorf("GET shows %s, attempt %d, result %q", row.Status, row.Attempt, row.ResultID)
	}
	x.last = v.Claim
	if before.ID == "" {
		checkNew(x, v, row, len(history))
		return
	}
	if row.ID != before.ID || row.ProviderKey != before.ProviderKey || row.FirstAt != before.FirstAt || row.Kind != before.Kind {
		x.Errorf("the row lost its identity: %+v, was %+v", row, before)
	}
}

func checkNew(x *subject, v ledger.Verdict, row ledger.Claim, moves int) {
	x.Helper()
	if row.FirstAt != x.now() || row.ProviderKey == "" || row.ProviderKey != v.Claim.ProviderKey || moves != 1 {
		x.Errorf("a new row: %+v, %d transitions", row, moves)
	}
	if end := x.now().Add(x.lease()); v.Decision == ledger.Proceed && (v.Claim.LeaseUntil != end || row.LeaseUntil != end) {
		x.Errorf("the lease ends at %v, want %v", v.Claim.LeaseUntil.Time(), end.Time())
	}
}

// states are those that "in any state" means.
var states = []string{"pending", "processing", "processing, over", "completed", "failed", "unknown", "unknown, look", "review", "stale"}

// keyReused: another kind, or (effect, or key found by a standard path) another payload, in any state.
func keyReused(w *world) {
	refused := func(x *subject, what string, mods ...mod) {
		x.Helper()
		x.unwritten(what, func() {
			v, err := x.ask(x.request(mods...))
			if code := x.code(err); code != string(ledger.KeyReused) {
				x.Errorf("%s: decision %q code %q, want key_reused", what, v.Decision, code)
			}
		})
	}
	for _, state := range states {
		w.each("another kind, "+state, both, func(x *subject) {
			x.toState(state)
			other := ledger.Event
			if x.kind == ledger.Event {
				other = ledger.Effect
			}
			refused(x, "another kind", kind(other))
		})
		w.each("another payload, "+state, effectOnly, func(x *subject) {
			x.mods = append(x.mods, payload(`{"amount":500}`))
			x.toState(state)
			refused(x, "another payload", payload(`{"amount":900}`))
		})
		w.each("another payload by a standard path, "+state, eventOnly, func(x *subject) {
			x.mods = append(x.mods, basis(ledger.BasisStandard), payload(`{"id":"key"}`))
			x.toState(state)
			refused(x, "another payload", payload(`{"id":"key","n":2}`))
			refused(x, "another payload by claim_id", byID(x.last.ID), payload(`{"id":"key","n":2}`))
		})
	}
	w.each("another kind, unknown with its window over: nothing moves", both, func(x *subject) {
		x.toState("unknown")
		x.pass(day)
		other := map[ledger.Kind]ledger.Kind{ledger.Event: ledger.Effect, ledger.Effect: ledger.Event}[x.kind]
		refused(x, "another kind", kind(other))
	})
	w.each("another kind, the owner of a live lease", both, func(x *subject) {
		x.grant(owned...)
		other := map[ledger.Kind]ledger.Kind{ledger.Event: ledger.Effect, ledger.Effect: ledger.Event}[x.kind]
		refused(x, "another kind", append([]mod{kind(other)}, owned...)...)
	})
	w.each("a payload filled in later is compared from then on", effectOnly, func(x *subject) {
		x.toState("completed")
		x.decide(x.request(payload(`1`)), ledger.DecisionCompleted)
		refused(x, "another payload", payload(`2`))
		x.decide(x.request(payload(`1`)), ledger.DecisionCompleted)
	})
}

// otherPayload: for an event with another payload the decision stands and payload_matches is false.
func otherPayload(w *world) {
	want := map[string]ledger.Decision{
		"pending": ledger.Proceed, "processing": ledger.InProgress, "processing, over": ledger.Proceed, "completed": ledger.DecisionCompleted,
		"failed": ledger.Proceed, "unknown": ledger.DecisionUnknown, "unknown, look": ledger.DecisionUnknown, "review": ledger.DecisionReview,
		"stale": ledger.DecisionStale,
	}
	for _, state := range states {
		for _, b := range []ledger.KeyBasis{ledger.BasisGiven, ledger.BasisTemplate, ledger.BasisProfile} {
			w.each(string(b)+", "+state, eventOnly, func(x *subject) {
				x.mods = append(x.mods, basis(b), payload(`{"n":1}`))
				x.toState(state)
				v := x.decide(x.request(payload(`{"n":2}`)), want[state])
				checkMatch(x.T, v, "false")
				if c, _ := x.get(v.Claim.ID); string(c.Payload) != `{"n":1}` {
					x.Errorf("the first payload became %s", c.Payload)
				}
			})
		}
	}
	w.each("the same payload matches", both, func(x *subject) {
		x.mods = append(x.mods, payload(`{"n":1}`))
		x.toState("completed")
		checkMatch(x.T, x.claim(x.request()), "true")
	})
	w.each("a claim without a payload is not compared", both, func(x *subject) {
		checkMatch(x.T, x.claim(x.request()), "null")
		x.pass(time.Hour)
		checkMatch(x.T, x.claim(x.request()), "null")
		x.claim(x.request(payload(`1`)))
		checkMatch(x.T, x.claim(x.request()), "null")
	})
	// As the answer in the contract shows: attempt 1, not re-entrant, payload_matches true.
	w.each("the first claim with a payload matches itself", both, func(x *subject) {
		checkMatch(x.T, x.claim(x.request(payload(`1`))), "true")
	})
}

func checkMatch(t *testing.T, v ledger.Verdict, want string) {
	t.Helper()
	got := "null"
	if v.PayloadMatches != nil {
		got = map[bool]string{true: "true", false: "false"}[*v.PayloadMatches]
	}
	if got != want {
		t.Errorf("payload_matches is %s, want %s", got, want)
	}
}
