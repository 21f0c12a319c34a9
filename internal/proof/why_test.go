package proof

import (
	"testing"
	"time"
)

// told is a call of a fixed history with what it must be answered: a decision, a status, or a code.
type told struct {
	call call
	want string
}

var (
	charge = slot{"plain", "", "k1", "charge"}
	order  = slot{"plain", "", "k1", ""}
	other  = slot{"plain", "", "k2", "charge"}
	older  = slot{"plain", "", "k3", "charge"}
)

func claim(s slot, want string, mods ...func(*claimCall)) told {
	q := claimCall{slot: s}
	for _, m := range mods {
		m(&q)
	}
	return told{q, want}
}

func by(owner, node string) func(*claimCall) {
	return func(q *claimCall) { q.caller.owner, q.caller.node = owner, node }
}

func version1(q *claimCall) { q.entity, q.version = "sub", version{true, 1} }
func version2(q *claimCall) { q.entity, q.version = "sub", version{true, 2} }

func report(verb string, s slot, want string, mods ...func(*endCall)) told {
	q := endCall{verb: verb, slot: s, by: "token"}
	for _, m := range mods {
		m(&q)
	}
	return told{q, want}
}

func notExecuted(q *endCall)     { q.notExecuted = true }
func refusedOnce(q *endCall)     { q.refusal, q.tries = true, 1 }
func refusedAtLast(q *endCall)   { q.refusal, q.tries = true, 2 }
func byKey(q *endCall)           { q.by = "key" }
func earlier(n int) endingChange { return func(q *endCall) { q.back = n } }
func id(s string) endingChange   { return func(q *endCall) { q.resultID = s } }

type endingChange = func(*endCall)

func look(want string) told {
	return told{lookCall{source: "plain", owner: "rec", limit: 25, lease: 300}, want}
}

func pass(d time.Duration) told {
	return told{passCall{by: d}, ""}
}

const effectLease = 15 * time.Minute

// why are the traces that broke the first draft of the rules and concern the ledger, each by the name of its finding.
var why = map[string][]told{
	"F1 a refusal on a later try hides an executed earlier one": {
		claim(charge, proceed), report("mark-failed", charge, unknown, refusedAtLast), claim(charge, unknown),
	},
	"F1 the provider key never rotates by itself": {
		claim(charge, proceed), report("mark-failed", charge, failed, refusedOnce),
		claim(charge, proceed), report("mark-failed", charge, failed, refusedOnce),
		claim(charge, proceed), report("mark-unknown", charge, unknown), pass(5 * time.Minute), look("one"),
		report("mark-failed", charge, failed, notExecuted), claim(charge, proceed),
	},
	"F2 a look-up that lags is not believed early": {
		claim(charge, proceed), report("mark-unknown", charge, unknown), pass(time.Minute), look("one"),
		report("mark-failed", charge, unknown, notExecuted), claim(charge, unknown), pass(4 * time.Minute), look("one"),
		report("complete", charge, completed, id("ch1")), claim(charge, completed),
	},
	"F2 a slow worker outlives its lease": {
		claim(charge, proceed), pass(effectLease), claim(charge, unknown), look(""), pass(time.Minute), look("one"),
		report("mark-failed", charge, unknown, notExecuted), report("complete", charge, completed, earlier(1), id("ch1")),
	},
	"F4 a genuine receipt during a reconciler's lease": {
		claim(charge, proceed), pass(effectLease + 6*time.Minute), look("one"), report("complete", charge, completed, earlier(1), id("ch1")),
		report("mark-failed", charge, completed, notExecuted), claim(charge, completed),
	},
	"F4 a genuine receipt after not found": {
		claim(charge, proceed), pass(effectLease + 6*time.Minute), look("one"), report("mark-failed", charge, failed, notExecuted),
		report("complete", charge, completed, earlier(1), id("ch1")), claim(charge, completed),
	},
	"F4 the worker's word outranks the reconciler's": {
		claim(charge, proceed), pass(effectLease + 6*time.Minute), look("one"), report("mark-failed", charge, failed, notExecuted),
		report("mark-unknown", charge, unknown, earlier(1)), claim(charge, unknown), report("mark-failed", charge, unknown, notExecuted),
		claim(charge, unknown),
	},
	"F5 the window runs from the first send": {
		claim(charge, proceed), report("mark-unknown", charge, unknown), pass(5 * time.Minute), look("one"),
		report("mark-failed", charge, failed, notExecuted), pass(24*time.Hour - 5*time.Minute), claim(charge, review),
	},
	"F7 a claim that waited is kept": {
		claim(other, proceed, version1), claim(charge, wait, version2), pass(effectLease), claim(charge, wait, version2),
		report("complete", other, completed), claim(charge, proceed, version2),
	},
	"F7 an effect does not wait for its own event": {claim(order, proceed, version1), claim(charge, proceed, version1)},
	"F7 a write that is unknown holds the next version back": {
		claim(older, proceed, version1), pass(effectLease), claim(other, wait, version2), report("complete", older, completed, id("w1")),
		claim(other, proceed, version2), report("complete", other, completed, id("w2")), claim(charge, stale, version1),
	},
	"F7 an executed effect is never called stale": {
		claim(older, proceed, version1), pass(effectLease), claim(other, wait, version2), report("complete", other, completed, byKey),
		claim(older, unknown, version1), claim(older, unknown, version1), report("complete", older, completed, id("w1")),
	},
	"F8 two claim nodes of one execution": {
		claim(charge, proceed, by("1:0:0", "A")), claim(charge, inProgress, by("1:0:0", "B")), claim(charge, inProgress, by("1:0:1", "A")),
		claim(charge, proceed, by("1:0:0", "A")),
	},
	"F8 an empty owner is nobody": {claim(charge, proceed, by("", "A")), claim(charge, inProgress, by("", "A"))},
	"fenced marks: an ordinary retry of a lost answer": {
		claim(charge, proceed), report("mark-failed", charge, failed, refusedOnce), claim(charge, proceed),
		report("mark-failed", charge, leaseLost, refusedOnce, earlier(1)), claim(charge, inProgress),
		report("complete", charge, completed, id("ch1")), report("mark-failed", charge, leaseLost, refusedOnce, earlier(1)),
		report("mark-unknown", charge, leaseLost, earlier(1)), claim(charge, completed),
	},
	"an event that is taken over finds its effects done": {
		claim(order, proceed), claim(charge, proceed), report("complete", charge, completed, id("ch1")), pass(5 * time.Minute),
		claim(order, proceed), claim(charge, completed), report("complete", order, completed),
	},
	"an older receipt while a newer attempt works": {
		claim(order, proceed), pass(5 * time.Minute), claim(order, proceed), report("complete", order, leaseLost, earlier(1), id("r1")),
		report("complete", order, completed, id("r2")), report("complete", order, leaseLost, earlier(1), id("r1")),
	},
	"a receipt by key waits for a live lease": {
		claim(charge, proceed), report("complete", charge, leaseLive, byKey, id("ch1")), pass(effectLease),
		report("complete", charge, completed, byKey, id("ch1")), report("complete", charge, resultConflict, byKey, id("ch2")),
	},
}

// found are the traces that the random histories found in the program.
var found = map[string][]told{
	"another destination's window": {
		claim(charge, proceed), pass(24 * time.Hour), claim(charge, review, func(q *claimCall) { q.destination = "slow" }),
	},
	"an effect past its window holds its entity back only until a sweep": {
		claim(older, proceed, version1), pass(24 * time.Hour), claim(charge, proceed, version2),
	},
	"a mark past lease and window": {
		claim(charge, proceed), pass(24 * time.Hour), report("mark-unknown", charge, review),
	},
	"an older receipt when the newer attempt's lease is over": {
		claim(charge, proceed), report("mark-failed", charge, failed, refusedOnce), claim(charge, proceed), pass(effectLease),
		report("complete", charge, completed, earlier(1), id("ch1")),
	},
	"a taken reference when an event's lease is brought back": {
		claim(charge, proceed), report("extend", charge, processing, bringing("ref"), seconds60), claim(order, proceed, version1),
		pass(5 * time.Minute), report("extend", order, keyReused, bringing("ref"), seconds60),
	},
	"a reference when an event's lease is not brought back": {
		claim(order, proceed, version1), pass(5 * time.Minute), claim(other, proceed, version2),
		report("extend", order, leaseLost, bringing("ref"), seconds60),
		told{endCall{
			verb: "complete", by: "reference", slot: order, reference: "ref", resultID: "r1",
		}, completed},
	},
}

func seconds60(q *endCall)             { q.lease = 60 }
func bringing(ref string) endingChange { return func(q *endCall) { q.reference = ref } }

// Every trace gets the answers that are written here, which the model gives too, from the store on both databases.
func TestTraces(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b *base) {
		for _, traces := range []map[string][]told{why, found} {
			for name, trace := range traces {
				t.Run(name, func(t *testing.T) {
					m := newModel(began)
					calls := make([]call, len(trace))
					for i, step := range trace {
						calls[i] = step.call
						if got := step.call.ask(m).short(); got != step.want {
							t.Fatalf("call %d, %v: the model says %q, want %q", i+1, step.call, got, step.want)
						}
					}
					if err := b.history(nil).play(calls, all); err != nil {
						t.Error(err)
					}
				})
			}
		}
	})
}

// short is what a caller switches on.
func (a answer) short() string {
	switch {
	case a.code != "":
		return a.code
	case a.decision != "":
		return a.decision
	case a.handed != "":
		return "one"
	}
	return a.status
}

// Sweeps change nothing: a trace with a sweep before each call is decided as the same one without any.
func TestSweepsChangeNoDecision(t *testing.T) {
	t.Parallel()
	b := newBase(t, databases["PostgreSQL"](t))
	for _, traces := range []map[string][]told{why, found} {
		for name, trace := range traces {
			t.Run(name, func(t *testing.T) {
				var calls []call
				for _, step := range trace {
					calls = append(calls, sweepCall{}, step.call)
				}
				if err := b.history(nil).play(calls, all); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
