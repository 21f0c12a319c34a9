package api_test

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// A worker plays an event's letter: the workflow claims, and everything ends together, counted once.
func TestLetterOfAnEventIsPlayed(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		w.decides(t, "proceed", holding("order-1", "1"))
		id := w.reports(t, failing("kT4bS0qX", "1", "503", posting(nil))).text("id")
		w.clock.advance(72 * time.Second)
		lease := w.leasedLetters(t, obj{"owner": "9:0:0"}, 1)[0]
		hasAll(t, lease, obj{"play": "workflow", "attempt_count": 2, "payload": obj{"order": "order-1"}})
		second := w.decides(t, "proceed", holding("order-1", "2")).has(t, obj{"attempt": 2}).text("lease_token")
		// It fails in between: the report ends the lease, and no attempt is counted twice.
		w.comesDue(t, w.reports(t, failing("kT4bS0qX", "2", "503", posting(nil))).has(t, obj{"id": id, "status": "queued", "attempt_count": 2}).body, 120)
		w.post(t, "/dlq/"+id+"/fail", and(token(lease), obj{"http_status": 500})).ok(t).has(t, obj{"changed": false, "attempt_count": 2})
		w.post(t, "/extend", obj{"lease_token": second, "lease_seconds": 60}).refused(t, 409, "invalid_transition")
		// The next time it succeeds, and the sweeper sees that before the worker says so.
		w.clock.advance(145 * time.Second)
		lease = w.leasedLetters(t, obj{"owner": "9:0:0"}, 1)[0]
		hasAll(t, lease, obj{"attempt_count": 3})
		third := w.decides(t, "proceed", holding("order-1", "3")).has(t, obj{"attempt": 3}).text("lease_token")
		w.post(t, "/complete", obj{"lease_token": third, "result_id": "done"}).ok(t)
		w.sweep(t)
		w.post(t, "/dlq/"+id+"/resolve", token(lease)).ok(t).has(t, obj{"status": "resolved", "attempt_count": 3})
		w.post(t, "/dlq/"+id+"/resolve", token(lease)).ok(t).has(t, obj{"status": "resolved", "changed": false})
		w.clock.advance(24 * time.Hour)
		w.sweep(t)
		w.leasedLetters(t, obj{}, 0)
		w.letter(t, id).has(t, obj{"status": "resolved", "next_retry_at": nil})
	})
}

// While another attempt is under way the letter is held; when that succeeds, it is never handed out.
func TestLetterIsHeldForItsEvent(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		first := w.proceeds(t, holding("order-1", "1"))
		id := w.reports(t, failing("kT4bS0qX", "1", "503", posting(nil))).text("id")
		w.clock.advance(2 * time.Minute)
		w.decides(t, "proceed", holding("order-1", "2"))
		w.leasedLetters(t, obj{}, 0)
		w.letter(t, id).has(t, obj{"status": "queued", "attempt_count": 1})
		w.post(t, "/mark-failed", obj{"lease_token": first}).refused(t, 409, "lease_lost")

		// A late receipt is believed, and not swept up yet: still nothing is handed out.
		late := w.proceeds(t, holding("order-2", "3"))
		other := w.reports(t, failing("kT4bS0qX", "3", "503", posting(nil))).has(t, obj{"status": "queued"}).text("id")
		w.post(t, "/complete", obj{"lease_token": late}).ok(t).has(t, obj{"status": "completed"})
		w.clock.advance(2 * time.Minute)
		w.leasedLetters(t, obj{}, 0)
		w.letter(t, other).has(t, obj{"status": "resolved", "next_retry_at": nil})
	})
}

// A settled letter is open again when what it is about fails again.
func TestSettledLetterFailsAgain(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		flat := func(execution, status string) obj {
			return obj{"event_id": "order-1", "workflow_id": "kT4bS0qX", "execution_id": execution, "http_status": status, "error_message": "no", "method": "POST"}
		}
		id := w.reports(t, flat("1", "422")).has(t, obj{"status": "dead"}).text("id")
		w.post(t, "/dlq/"+id+"/discard", person).ok(t)
		w.reports(t, flat("1", "422")).has(t, obj{"id": id, "duplicate": true, "status": "discarded"})
		w.comesDue(t, w.reports(t, flat("2", "429")).has(t, obj{"id": id, "duplicate": false, "attempt_count": 2, "reason": "rate_limited"}).body, 120)
		w.post(t, "/dlq/"+id+"/resolve", person).ok(t).has(t, obj{"status": "resolved"})
		w.reports(t, flat("3", "401")).has(t, obj{"id": id, "attempt_count": 3, "status": "dead", "reason": "auth"})
		w.post(t, "/dlq/"+id+"/resolve", person).ok(t)
		w.post(t, "/dlq/"+id+"/requeue", person).ok(t).has(t, obj{"status": "queued", "changed": true}) // a person decides
		w.leasedLetters(t, obj{}, 1)
	})
}

// A failed request that may be sent again is sent again also after an error of which nobody knows what it did.
func TestLetterMayBeRepeated(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		keyed := and(posting(nil), obj{"headers": obj{"idempotency-key": "charge-7001-abcdef"}})
		for i, report := range []obj{
			failing("kT4bS0qX", "1", "503", and(posting(nil), obj{"method": "GET"})),
			failing("kT4bS0qX", "2", "503", and(posting(nil), obj{"method": "PUT"})),
			failing("kT4bS0qX", "3", "503", keyed),
			and(failing("kT4bS0qX", "4", "503", posting(nil)), obj{"safe_to_repeat": true}),
		} {
			id := w.reports(t, report).has(t, obj{"status": "queued"}).text("id")
			w.clock.advance(72 * time.Second)
			lease := w.leasedLetters(t, obj{}, 1)[0]
			a := w.post(t, "/dlq/"+id+"/fail", and(token(lease), obj{"http_status": 503})).ok(t).has(t, obj{"status": "queued", "attempt_count": 2, "retryable": true})
			w.comesDue(t, a.body, 120)
			if t.Failed() {
				t.Fatalf("report %d: %s", i, clip(a.raw))
			}
			w.post(t, "/dlq/"+id+"/discard", person).ok(t)
		}
	})
}

// Execution ids are small numbers: the workflow must agree where both sides name one.
func TestWhoseExecution(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		w.decides(t, "proceed", holding("order-1", "1042"))
		w.reports(t, failing("other", "1042", "503", posting(nil))).has(t, obj{"idempotency_key": nil, "play": "request", "status": "dead"})
		w.decides(t, "in_progress", key("order-1"))
		// One that does not name its workflow is believed.
		w.reports(t, `{"execution":{"id":1042,"error":{"message":"boom","httpCode":"503"},"lastNodeExecuted":"Charge"}}`).has(t, obj{"idempotency_key": "order-1", "play": "workflow", "status": "queued"})
		w.decides(t, "proceed", and(key("order-2"), obj{"execution_id": 77}))
		w.reports(t, failing("kT4bS0qX", "77", "503", posting(nil))).has(t, obj{"idempotency_key": "order-2", "play": "workflow"})
		// Ids as text and as numbers are the same.
		a := w.reports(t, `{"execution":{"id":88412,"error":{"message":"m"}},"workflow":{"id":7,"name":"W"}}`).has(t, obj{"execution_id": "88412", "workflow_id": "7"})
		w.reports(t, `{"execution":{"id":"88412","error":{"message":"m"}},"workflow":{"id":"7","name":"W"}}`).has(t, obj{"id": a.text("id"), "duplicate": true})
	})
}

// A sub-workflow fails and its caller too, with the caller's claim behind both, in either order.
func TestParentHoldsTheClaim(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		for i, order := range [][2]int{{0, 1}, {1, 0}} {
			parentID, childID := fmt.Sprint(100+10*i), fmt.Sprint(101+10*i)
			k := fmt.Sprint("order-", i)
			w.decides(t, "proceed", holding(k, parentID))
			parent := within(failing("kT4bS0qX", parentID, "503", posting(nil)), obj{"error": obj{
				"name": "NodeOperationError", "message": "The service was not able to process your request", "executionId": childID, "workflowId": "childWf",
				"errorResponse": obj{"name": "NodeApiError", "httpCode": "503", "message": "later", "context": obj{"request": posting(obj{"n": 1})}},
			}})
			child := within(failing("childWf", childID, "503", posting(obj{"n": 1})), obj{"mode": "integrated", "executionContext": obj{"establishedAt": 1796068800000, "parentExecutionId": parentID}})
			pair := []obj{parent, child}
			first := w.reports(t, pair[order[0]]).has(t, obj{"attempt_count": 1, "idempotency_key": k, "status": "queued", "play": "workflow"})
			w.reports(t, pair[order[1]]).has(t, obj{"id": first.text("id"), "attempt_count": 1})
			w.letter(t, first.text("id")).has(t, obj{"reports": 2, "attempt_count": 1, "payload": obj{"order": k}})
			w.decides(t, "proceed", holding(k, fmt.Sprint(500+i))).has(t, obj{"attempt": 2}) // the lease has ended
		}
	})
}

// An effect that was settled while its run holds no open event: the rest of that run may never have happened.
func TestEffectSettledLate(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		effect := w.proceeds(t, and(holding("order-1", "1"), obj{"step": "charge"}))
		w.post(t, "/mark-unknown", obj{"lease_token": effect}).ok(t)
		w.clock.advance(2 * time.Minute)
		look := w.leases(t, obj{}, 1)[0]
		w.sweep(t)
		w.get(t, "/dlq").ok(t).has(t, obj{"items": "[]"})
		w.post(t, "/complete", obj{"lease_token": look["lease_token"], "result_id": "ch_1"}).ok(t).has(t, obj{"status": "completed"})
		w.sweep(t)
		items, _ := w.get(t, "/dlq?source=shop").ok(t).body["items"].([]any)
		if len(items) != 1 {
			t.Fatalf("%d letters, want 1", len(items))
		}
		item, _ := items[0].(obj)
		hasAll(t, item, obj{"status": "dead", "reason": "settled_late", "idempotency_key": "order-1", "play": "workflow", "next_retry_at": nil})
		w.sweep(t)
		if again, _ := w.get(t, "/dlq").ok(t).body["items"].([]any); len(again) != 1 {
			t.Errorf("%d letters after another sweep, want 1", len(again))
		}
	})
}

// Reports that come at once: one letter, and each attempt counted once.
func TestReportsAtOnce(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		const senders = 12
		var wg sync.WaitGroup
		var mu sync.Mutex
		ids, fresh := map[string]bool{}, 0
		send := func(body string) {
			a, err := w.try(t, "POST", "/dlq", body)
			if err != nil || a.status != 200 {
				t.Errorf("%v: %d %s", err, a.status, clip(a.raw))
				return
			}
			mu.Lock()
			defer mu.Unlock()
			ids[a.text("id")] = true
			if a.body["duplicate"] == false {
				fresh++
			}
		}
		same := text(t, failing("kT4bS0qX", "1042", "429", posting(nil)))
		for range senders {
			wg.Go(func() { send(same) })
		}
		wg.Wait()
		if len(ids) != 1 || fresh != 1 {
			t.Errorf("%d letters and %d first reports of one failure", len(ids), fresh)
		}
		clear(ids)
		fresh = 0
		for i := range senders {
			wg.Go(func() {
				send(fmt.Sprintf(`{"event_id":"order-1","workflow_id":"kT4bS0qX","execution_id":"%d","http_status":429,"error_message":"later","max_attempts":100}`, 2000+i))
			})
		}
		wg.Wait()
		if len(ids) != 1 || fresh != senders {
			t.Errorf("%d letters and %d new reports of one event, want 1 and %d", len(ids), fresh, senders)
		}
		for id := range ids {
			w.letter(t, id).has(t, obj{"attempt_count": senders, "reports": senders})
		}
	})
}
