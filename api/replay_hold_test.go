package api_test

import (
	"fmt"
	"testing"
	"time"
)

// A pause holds everything but what a worker has; the approval brings it back to where it was.
func TestReplayIsPausedAndCancelled(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		ids := w.outage(t, 6)
		rep := w.starts(t, asking(obj{"sample_size": 3}))
		lease := w.leasedLetters(t, obj{"limit": 1}, 1)[0]
		w.moves(t, rep, "pause", "").ok(t).has(t, obj{"status": "paused", "changed": true, "counts": counts(4, 1, 1, 0, 0)})
		w.moves(t, rep, "pause", obj{}).ok(t).has(t, obj{"status": "paused", "changed": false})
		w.leasedLetters(t, obj{}, 0)
		w.succeeds(t, lease)
		w.replay(t, rep).has(t, obj{"status": "paused", "counts": counts(4, 1, 0, 1, 0)}) // the free place stays free
		w.moves(t, rep, "approve", person).ok(t).has(t, obj{"status": "sampling", "changed": true, "approved_by": nil, "counts": counts(3, 2, 0, 1, 0)})
		w.plays(t, 2, 0)
		w.moves(t, rep, "pause", person).ok(t).has(t, obj{"status": "paused"}) // while it waits for its approval
		w.moves(t, rep, "approve", person).ok(t).has(t, obj{"status": "running", "approved_by": "asha@example.test", "counts": counts(1, 2, 0, 3, 0)})

		lease = w.leasedLetters(t, obj{"limit": 1}, 1)[0]
		w.moves(t, rep, "cancel", "").ok(t).has(t, obj{"status": "cancelled", "changed": true, "counts": counts(0, 0, 1, 3, 2)})
		w.moves(t, rep, "cancel", obj{"reason": "again"}).ok(t).has(t, obj{"status": "cancelled", "changed": false})
		w.moves(t, rep, "pause", "").refused(t, 409, "invalid_transition")
		w.moves(t, rep, "approve", person).refused(t, 409, "invalid_transition").has(t, obj{"details": map[string]any{"id": rep.text("id"), "status": "cancelled"}})
		w.leasedLetters(t, obj{}, 0)
		w.letter(t, ids[4]).has(t, obj{"status": "dead", "replay_id": nil, "reason": "not_played", "next_retry_at": nil})
		hasAll(t, w.member(t, rep, ids[5]), obj{"state": "released", "status": "dead", "held": nil})
		w.succeeds(t, lease) // what is leased runs on and is counted
		w.replay(t, rep).has(t, obj{"status": "cancelled", "counts": counts(0, 0, 0, 4, 2)})
		for _, act := range []string{"paused", "cancelled"} { // without a name they are the key's
			w.acted(t, "local", obj{"message": act + " replay " + rep.text("id"), "reason": nil})
		}
		// What was left is free for the next one.
		w.starts(t, asking(nil)).has(t, obj{"matched": 2})
	})
}

// From the twentieth settled letter on, more than a quarter failed of the last twenty end a replay.
func TestReplayStopsByItself(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		ids := w.outage(t, 24)
		rep := w.starts(t, asking(obj{"sample_size": 4, "max_concurrency": 1}))
		w.plays(t, 4, 4) // an early failure ends nothing
		w.moves(t, rep, "approve", person).ok(t)
		w.plays(t, 15, 1)
		w.replay(t, rep).has(t, obj{"status": "running", "counts": counts(4, 1, 0, 14, 5)})
		w.plays(t, 1, 0) // 5 of 20
		w.replay(t, rep).has(t, obj{"status": "running", "counts": counts(3, 1, 0, 15, 5)})
		w.plays(t, 1, 1) // the oldest failure is forgotten, and a new one comes
		w.replay(t, rep).has(t, obj{"status": "running"})
		w.plays(t, 2, 2) // the same again
		w.replay(t, rep).has(t, obj{"status": "running", "counts": counts(0, 1, 0, 15, 8)})
		w.plays(t, 1, 1)
		w.replay(t, rep).has(t, obj{"status": "done", "counts": counts(0, 0, 0, 15, 9)}) // nothing was left to stop

		w.outageOf(t, "second", 22)
		second := w.starts(t, asking(obj{"sample_size": 20, "max_concurrency": 5, "selector": obj{"source": "shop", "from": "2026-11-30T20:00:00.5Z"}}))
		w.plays(t, 13, 0)
		w.plays(t, 6, 6)
		w.replay(t, second).has(t, obj{"status": "sampling", "counts": counts(2, 1, 0, 13, 6)})
		w.plays(t, 1, 0)
		w.replay(t, second).has(t, obj{"status": "stopped", "ended_at": "2026-11-30T20:00:01Z", "counts": counts(0, 0, 0, 14, 8)})
		w.leasedLetters(t, obj{}, 0)
		for _, verb := range []string{"approve", "pause", "cancel"} {
			w.moves(t, second, verb, person).refused(t, 409, "invalid_transition").has(t, obj{"details": map[string]any{"id": second.text("id"), "status": "stopped"}})
		}
		w.letter(t, ids[0]).has(t, obj{"status": "dead", "replay_id": rep.text("id")})
	})
}

// outageOf is a second outage, a second later.
func (w *world) outageOf(tb testing.TB, name string, n int) {
	tb.Helper()
	w.clock.advance(time.Second)
	for i := range n {
		w.buried(tb, fmt.Sprint(name, "-", i))
	}
}

// A replay takes no more of a worker's time than it was given; letters of none are not held up by it.
func TestReplayIsLimited(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		w.outage(t, 12)
		rep := w.starts(t, asking(obj{"sample_size": 12, "max_concurrency": 5, "rate_per_minute": 3}))
		first := w.leasedLetters(t, obj{}, 3)
		w.replay(t, rep).has(t, obj{"rate_per_minute": 3, "counts": counts(7, 2, 3, 0, 0)})
		w.leasedLetters(t, obj{}, 0)
		w.succeeds(t, first[0])
		w.clock.advance(59 * time.Second)
		w.leasedLetters(t, obj{}, 0)
		other := w.refusing(t, "2001").text("id")
		w.post(t, "/dlq/"+other+"/requeue", person).ok(t)
		hasAll(t, w.leasedLetters(t, obj{}, 1)[0], obj{"id": other, "replay_id": nil})
		w.clock.advance(time.Second)
		w.leasedLetters(t, obj{"limit": 2}, 2)
		w.leasedLetters(t, obj{}, 1)
		w.replay(t, rep).has(t, obj{"counts": counts(6, 0, 5, 1, 0)}) // five at once, whatever the rate allows
		w.clock.advance(2 * time.Minute)
		w.leasedLetters(t, obj{}, 0)
	})
}

// A letter's attempt in a replay is its only one; being told to wait is none.
func TestAttemptsInAReplay(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		var ids []string
		for i := range 3 {
			ids = append(ids, w.refusing(t, fmt.Sprint("run-", i), obj{"source": "shop"}).text("id")) // they would come due by themselves
		}
		w.clock.advance(2 * time.Minute)
		rep := w.starts(t, asking(obj{"sample_size": 1, "selector": obj{"ids": []string{ids[1], ids[0], ids[2]}, "status": "queued"}})).
			has(t, obj{"matched": 3, "selector": obj{"ids": []any{ids[1], ids[0], ids[2]}, "status": "queued"}})
		w.letter(t, ids[1]).has(t, obj{"status": "dead", "reason": "in_replay", "next_retry_at": nil})
		lease := w.leasedLetters(t, obj{}, 1)[0]
		w.post(t, "/dlq/"+ids[0]+"/fail", and(token(lease), obj{"retry_after": 60})).ok(t).has(t, obj{"status": "queued", "attempt_count": 1})
		w.replay(t, rep).has(t, obj{"status": "sampling", "counts": counts(2, 1, 0, 0, 0)}) // it keeps its place
		w.clock.advance(time.Minute)
		lease = w.leasedLetters(t, obj{}, 1)[0]
		w.post(t, "/dlq/"+ids[0]+"/fail", and(token(lease), obj{"http_status": 429})).ok(t).has(t, obj{"status": "dead", "attempt_count": 2, "retryable": true})
		w.replay(t, rep).has(t, obj{"status": "awaiting_approval", "counts": counts(2, 0, 0, 0, 1)})
		// A person settles one that waits; the other falls silent.
		w.post(t, "/dlq/"+ids[1]+"/discard", person).ok(t)
		hasAll(t, w.member(t, rep, ids[1]), obj{"state": "left", "status": "discarded"})
		w.moves(t, rep, "approve", person).ok(t)
		w.leasedLetters(t, obj{"lease_seconds": 60}, 1)
		w.clock.advance(61 * time.Second)
		w.sweep(t)
		w.letter(t, ids[2]).has(t, obj{"status": "dead", "reason": "lease_expired", "attempt_count": 2})
		w.replay(t, rep).has(t, obj{"status": "done"})
		w.clock.advance(24 * time.Hour)
		w.sweep(t)
		w.leasedLetters(t, obj{}, 0)
	})
}
