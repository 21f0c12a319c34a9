package api_test

import (
	"fmt"
	"testing"
)

// buried makes a dead letter of an event that a run held when it failed for good.
func (w *world) buried(tb testing.TB, k string, more ...obj) (id string) {
	tb.Helper()
	claim := holding(k, "run-"+k)
	for _, m := range more {
		claim = and(claim, m)
	}
	w.decides(tb, "proceed", claim)
	return w.refusedFor(tb, k).text("id")
}

// refusedFor reports that the first run of an event was refused by its destination.
func (w *world) refusedFor(tb testing.TB, k string) answer {
	tb.Helper()
	return w.reports(tb, failing("kT4bS0qX", "run-"+k, "422", posting(nil))).has(tb, obj{"status": "dead", "idempotency_key": k, "replay_id": nil})
}

// outage buries so many letters.
func (w *world) outage(tb testing.TB, n int) (ids []string) {
	tb.Helper()
	for i := range n {
		ids = append(ids, w.buried(tb, fmt.Sprint("order-", 100+i)))
	}
	return ids
}

// asking is a replay of what came from the shop.
func asking(more obj) obj {
	return and(obj{
		"authorized_by": "asha@example.test", "reason": "the outage is over", "expected_effects": obj{"invoices": 12}, "selector": obj{"source": "shop"}, "limit": 100,
	}, more)
}

// starts begins a replay.
func (w *world) starts(tb testing.TB, body obj) answer {
	tb.Helper()
	return w.post(tb, "/replays", body).ok(tb).has(tb, obj{"changed": true})
}

// replay reads one.
func (w *world) replay(tb testing.TB, a answer) answer {
	tb.Helper()
	return w.get(tb, "/replays/"+a.text("id")).ok(tb).has(tb, obj{"id": a.text("id")})
}

// member is a letter as its replay shows it.
func (w *world) member(tb testing.TB, a answer, letter string) obj {
	tb.Helper()
	letters, _ := w.replay(tb, a).body["letters"].([]any)
	for _, l := range letters {
		if l, _ := l.(obj); l["id"] == letter {
			return l
		}
	}
	tb.Fatalf("the replay does not show the letter %s", letter)
	return nil
}

// moves says a person's word about a replay.
func (w *world) moves(tb testing.TB, a answer, verb string, body any) answer {
	tb.Helper()
	return w.post(tb, "/replays/"+a.text("id")+"/"+verb, body)
}

// counts is how many letters of a replay stand where.
func counts(waiting, queued, replaying, resolved, dead int) map[string]any {
	return map[string]any{"waiting": waiting, "queued": queued, "replaying": replaying, "resolved": resolved, "dead": dead}
}

func held(unknown, superseded, completed int) map[string]any {
	return map[string]any{"unknown": unknown, "superseded": superseded, "completed": completed}
}

// succeeds runs a leased letter as its workflow does: it claims, it completes, and the worker says so.
func (w *world) succeeds(tb testing.TB, lease obj) {
	tb.Helper()
	token1 := w.proceeds(tb, obj{"source": lease["source"], "idempotency_key": lease["idempotency_key"]})
	w.post(tb, "/complete", obj{"lease_token": token1}).ok(tb)
	w.post(tb, fmt.Sprint("/dlq/", lease["id"], "/resolve"), token(lease)).ok(tb).has(tb, obj{"status": "resolved"})
}

// fails ends a leased letter's attempt with a refusal.
func (w *world) fails(tb testing.TB, lease obj) {
	tb.Helper()
	w.post(tb, fmt.Sprint("/dlq/", lease["id"], "/fail"), and(token(lease), obj{"http_status": 422})).ok(tb).has(tb, obj{"status": "dead"})
}

// plays takes so many letters, one after the other; the first of them fail.
func (w *world) plays(tb testing.TB, n, failing int) {
	tb.Helper()
	for i := range n {
		lease := w.leasedLetters(tb, obj{"limit": 1}, 1)[0]
		if i < failing {
			w.fails(tb, lease)
		} else {
			w.succeeds(tb, lease)
		}
	}
}
