package api_test

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// A letter comes due by itself, is handed to one worker, and its attempt is counted then.
func TestLeaseOfLetters(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		mine, other := obj{"owner": "2001:0:0"}, obj{"owner": "2002:0:0"}
		w.leasedLetters(t, obj{}, 0)
		a := w.refusing(t, "1042", obj{"source": "shop", "destination": "hubspot"})
		w.comesDue(t, a.body, 60)
		w.clock.advance(59 * time.Second)
		w.leasedLetters(t, mine, 0)
		w.clock.advance(13 * time.Second)
		for _, elsewhere := range []obj{{"workflow_id": "other"}, {"source": "other"}, {"destination": "other"}} {
			w.leasedLetters(t, elsewhere, 0)
		}
		lease := w.leasedLetters(t, and(mine, obj{"workflow_id": "kT4bS0qX", "source": "shop", "destination": "hubspot", "limit": 1, "lease_seconds": 60}), 1)[0]
		hasAll(t, lease, obj{
			"id": a.text("id"), "status": "replaying", "attempt_count": 2, "payload": obj{"order": "1042"}, "provider_key": nil, "play": "request", "method": "POST",
			"lease_expires_at": w.clock.now().Add(time.Minute).Format(time.RFC3339), "next_retry_at": nil, "destination": "hubspot", "url": "http://destination.example.test/charges",
		})
		w.leasedLetters(t, other, 0)
		w.leasedLetters(t, obj{}, 0)
		again := w.leasedLetters(t, mine, 1)[0]
		hasAll(t, again, obj{"lease_token": lease["lease_token"], "attempt_count": 2})
		w.letter(t, a.text("id")).has(t, obj{"status": "replaying", "attempt_count": 2, "lease_expires_at": again["lease_expires_at"]})

		path := "/dlq/" + a.text("id")
		done := w.post(t, path+"/resolve", and(token(lease), obj{"result": obj{"task": "7"}})).ok(t)
		done.has(t, obj{"id": a.text("id"), "status": "resolved", "reason": "replayed", "changed": true, "attempt_count": 2, "next_retry_at": nil})
		w.post(t, path+"/resolve", token(lease)).ok(t).has(t, obj{"status": "resolved", "changed": false})
		w.post(t, path+"/fail", and(token(lease), obj{"http_status": 503})).ok(t).has(t, obj{"status": "resolved", "changed": false})
		w.clock.advance(24 * time.Hour)
		w.sweep(t)
		w.leasedLetters(t, obj{}, 0)
		// The run failed all the same: the letter is open again, as another attempt.
		retried := within(failing("kT4bS0qX", "1043", "429", posting(nil)), obj{"retryOf": "1042"})
		w.reports(t, retried).has(t, obj{"id": a.text("id"), "status": "queued", "attempt_count": 3, "duplicate": false})
	})
}

func TestBatchesOfLetters(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		var ids []string
		for i := range 30 {
			ids = append(ids, w.refusing(t, fmt.Sprint(100+i), obj{"workflow": obj{"id": fmt.Sprint("wf", i%2), "name": "Orders"}}).text("id"))
			w.clock.advance(15 * time.Second) // further apart than the jitter
		}
		w.clock.advance(72 * time.Second)
		seen := map[any]bool{}
		for _, item := range w.leasedLetters(t, obj{"limit": 2, "owner": "a"}, 2) {
			if item["id"] != ids[len(seen)] {
				t.Errorf("handed out %v, want the oldest, %v", item["id"], ids[len(seen)])
			}
			seen[item["id"]] = true
		}
		w.leasedLetters(t, obj{"workflow_id": "wf1", "limit": "3"}, 3)
		w.leasedLetters(t, obj{}, 25)
		w.leasedLetters(t, obj{}, 0)
		w.leasedLetters(t, obj{"owner": "a", "limit": 100}, 2)
		for _, limit := range []any{0, -1, 101, "x", 1.5} {
			w.post(t, "/dlq/lease", obj{"limit": limit}).refused(t, 400, "invalid_request").names(t, "limit")
		}
		for _, seconds := range []any{0, 86401, -1, "soon"} {
			w.post(t, "/dlq/lease", obj{"lease_seconds": seconds}).refused(t, 400, "invalid_request").names(t, "lease_seconds")
		}
		w.post(t, "/dlq/lease", obj{"source": "Shop"}).refused(t, 400, "invalid_request").names(t, "source")
		w.post(t, "/dlq/lease", obj{"destination": "a b"}).refused(t, 400, "invalid_request").names(t, "destination")
		w.post(t, "/dlq/lease", obj{"workflow_id": "a/b"}).refused(t, 400, "invalid_request").names(t, "workflow_id")
	})
}

// Many workers at once: no letter is handed to two of them, and none is lost.
func TestWorkersAtOnce(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		const letters, workers = 40, 8
		for i := range letters {
			w.refusing(t, fmt.Sprint(100+i))
		}
		w.clock.advance(2 * time.Minute)
		var mu sync.Mutex
		var wg sync.WaitGroup
		held := map[any]int{}
		for n := range workers {
			wg.Go(func() {
				for turn := range 10 {
					a, err := w.try(t, "POST", "/dlq/lease", fmt.Sprintf(`{"limit":3,"owner":"%d-%d"}`, n, turn))
					if err != nil || a.status != 200 {
						t.Errorf("worker %d: %v %d %s", n, err, a.status, clip(a.raw))
						return
					}
					mu.Lock()
					for _, item := range a.items {
						held[item["id"]]++
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		for id, n := range held {
			if n != 1 {
				t.Errorf("letter %v was handed out %d times", id, n)
			}
		}
		if len(held) != letters {
			t.Errorf("%d letters were handed out, want %d", len(held), letters)
		}
	})
}

// A lease that runs out: due again after its attempt's backoff, or dead where the attempts are used up.
func TestLeaseRunsOut(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		id, lease := w.dueLetter(t, "1042", obj{"max_attempts": 3})
		w.clock.advance(300 * time.Second)
		// Already before anybody noticed.
		w.post(t, "/dlq/"+id+"/resolve", token(lease)).refused(t, 409, "lease_lost")
		w.sweep(t)
		w.comesDue(t, w.letter(t, id).has(t, obj{"attempt_count": 2, "status": "queued"}).body, 120)
		w.post(t, "/dlq/"+id+"/fail", token(lease)).refused(t, 409, "lease_lost")
		w.post(t, "/dlq/"+id+"/extend", and(token(lease), obj{"lease_seconds": 60})).refused(t, 409, "lease_lost")
		w.clock.advance(144 * time.Second)
		second := w.leasedLetters(t, obj{"owner": "2001:0:0"}, 1)[0]
		hasAll(t, second, obj{"attempt_count": 3})
		if second["lease_token"] == lease["lease_token"] {
			t.Error("two leases have one token")
		}
		w.post(t, "/dlq/"+id+"/resolve", token(lease)).refused(t, 409, "lease_lost").has(t, obj{"details": map[string]any{"id": id, "status": "replaying", "reason": w.letter(t, id).body["reason"]}})
		w.clock.advance(301 * time.Second)
		w.leasedLetters(t, obj{}, 0) // a worker that asks notices it as well as the sweeper
		w.sweep(t)
		w.letter(t, id).has(t, obj{"status": "dead", "reason": "lease_expired", "attempt_count": 3, "next_retry_at": nil, "escalated": true})
	})
}

// Pauses hold, and waiting for them costs no attempt.
func TestLeaseOfPausedLetters(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		id := w.refusing(t, "1042", obj{"source": "shop", "destination": "hubspot"}).text("id")
		w.clock.advance(2 * time.Minute)
		for _, scope := range []string{"all", "source.shop", "destination.hubspot", "workflow.kT4bS0qX"} {
			w.send(t, "PUT", "/pauses/"+scope, text(t, person)).ok(t)
			w.leasedLetters(t, obj{}, 0)
			w.send(t, "DELETE", "/pauses/"+scope, "").ok(t)
		}
		w.send(t, "PUT", "/pauses/workflow.other", text(t, person)).ok(t)
		w.letter(t, id).has(t, obj{"status": "queued", "attempt_count": 1})
		w.leasedLetters(t, obj{}, 1)
	})
}
