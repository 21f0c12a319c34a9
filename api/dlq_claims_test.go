package api_test

import (
	"testing"
	"time"
)

// holding is a claim made by an execution.
func holding(k, execution string) obj {
	return obj{"source": "shop", "idempotency_key": k, "workflow_id": "kT4bS0qX", "workflow_name": "Orders", "execution_id": execution, "owner": execution + ":0:0", "payload": obj{"order": k}}
}

// An execution's report belongs to the claim that it holds, ends its lease, and may come due by itself: every step
// claims first.
func TestReportOfAClaimedEvent(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		claim := w.decides(t, "proceed", holding("order-7001", "1042"))
		report := failing("kT4bS0qX", "1042", "503", posting(obj{"amount": 1200}))
		a := w.reports(t, report).has(t, obj{
			"status": "queued", "reason": "transient", "outcome": "unknown", "attempt_count": 1, "source": "shop", "idempotency_key": "order-7001", "play": "workflow",
			"provider_key": claim.text("provider_key"), "duplicate": false,
		})
		w.comesDue(t, a.body, 60)
		w.letter(t, a.text("id")).has(t, obj{"claim_id": claim.text("claim_id"), "payload": obj{"order": "order-7001"}, "input": "stored"})
		w.get(t, "/claims/"+claim.text("claim_id")).ok(t).has(t, obj{"status": "failed"})
		w.reports(t, report).has(t, obj{"id": a.text("id"), "duplicate": true, "attempt_count": 1})

		// The second attempt fails otherwise, and the letter counts the event's attempts.
		w.decides(t, "proceed", holding("order-7001", "1043")).has(t, obj{"attempt": 2})
		w.reports(t, failing("kT4bS0qX", "1043", "422", posting(nil))).has(t, obj{
			"id": a.text("id"), "duplicate": false, "attempt_count": 2, "status": "dead", "reason": "validation", "execution_id": "1043", "escalated": true,
		})
		// A person completes it after all: there is nothing left to do.
		token := w.decides(t, "proceed", holding("order-7001", "1044")).text("lease_token")
		w.post(t, "/complete", obj{"lease_token": token}).ok(t)
		w.sweep(t)
		w.letter(t, a.text("id")).has(t, obj{"status": "resolved", "next_retry_at": nil})
	})
}

func TestReportOfSeveralEvents(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		for _, k := range []string{"order-1", "order-2", "order-3"} {
			w.decides(t, "proceed", holding(k, "1042"))
			w.clock.advance(time.Second)
		}
		w.decides(t, "proceed", holding("order-4", "1050"))
		w.reports(t, failing("kT4bS0qX", "1042", "429", posting(nil))).has(t, obj{"idempotency_key": "order-1", "status": "queued"})
		items, _ := w.get(t, "/dlq?source=shop").ok(t).body["items"].([]any)
		if len(items) != 3 {
			t.Errorf("%d letters, want one for each open event", len(items))
		}
		for k, status := range map[string]string{"order-1": "failed", "order-3": "failed", "order-4": "processing"} {
			page, _ := w.get(t, "/claims?idempotency_key="+k).ok(t).body["items"].([]any)
			item, _ := page[0].(obj)
			hasAll(t, item, obj{"status": status})
		}
	})
}

// A failure behind the end of the work.
func TestReportAfterCompletion(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		done := func(k, execution string) {
			token := w.decides(t, "proceed", holding(k, execution)).text("lease_token")
			w.post(t, "/complete", obj{"lease_token": token}).ok(t)
		}
		done("order-1", "1")
		w.reports(t, failing("kT4bS0qX", "1", "429", posting(nil))).has(t, obj{"status": "dead", "reason": "failed_after_completion", "next_retry_at": nil, "idempotency_key": "order-1"})
		done("order-2", "2")
		crash := within(failing("kT4bS0qX", "2", "", nil), obj{"error": obj{"name": "WorkflowCrashedError", "message": "Workflow did not finish, possible out-of-memory issue", "context": obj{}}})
		w.reports(t, crash).has(t, obj{"status": "resolved", "reason": "completed_meanwhile", "next_retry_at": nil})
		done("order-3", "3")
		late := and(posting(obj{"lease_token": "kept"}), obj{"uri": "http://holdfast.example.test:8088/complete"})
		w.reports(t, failing("kT4bS0qX", "3", "ECONNABORTED", late)).has(t, obj{"status": "resolved", "reason": "completed_meanwhile"})
	})
}

// Completed effects alone settle no letter, and make running the workflow again safe.
func TestReportOfEffects(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		effect := w.decides(t, "proceed", and(holding("order-1", "1042"), obj{"step": "charge"}))
		w.post(t, "/complete", obj{"lease_token": effect.text("lease_token"), "result_id": "ch_1"}).ok(t)
		w.reports(t, failing("kT4bS0qX", "1042", "503", posting(nil))).has(t, obj{
			"status": "queued", "play": "workflow", "reason": "transient", "idempotency_key": "order-1", "provider_key": effect.text("provider_key"),
		})
	})
}

// Reports of our own refusals say that another attempt has the work.
func TestReportOfOurOwnRefusal(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		for i, code := range []string{"lease_lost", "lease_live", "result_conflict"} {
			body := `409 - "{\"status\":409,\"code\":\"` + code + `\",\"message\":\"the claim has a newer lease\",\"details\":{},\"request_id\":\"x\"}"`
			report := failing("kT4bS0qX", string(rune('1'+i)), "409", and(posting(nil), obj{"uri": "http://holdfast.example.test:8088/complete"}))
			w.reports(t, within(report, obj{"error": and(report["execution"].(obj)["error"].(obj), obj{"messages": []any{body}})})).has(t, obj{"status": "resolved", "reason": code, "next_retry_at": nil})
		}
	})
}

// Events that nobody reports: the sweeper sees to them.
func TestLettersOfLostEvents(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		one := func(k string) obj {
			t.Helper()
			page, _ := w.get(t, "/dlq").ok(t).body["items"].([]any)
			for _, item := range page {
				if item, _ := item.(obj); item["idempotency_key"] == k {
					return item
				}
			}
			return nil
		}
		w.decides(t, "proceed", and(holding("order-lost", "1"), obj{"lease_seconds": 60}))
		failed := w.proceeds(t, holding("order-failed", "2"))
		w.post(t, "/mark-failed", obj{"lease_token": failed, "http_status": 503}).ok(t)
		w.sweep(t)
		if one("order-lost") != nil {
			t.Error("an event under a live lease became a letter")
		}
		hasAll(t, one("order-failed"), obj{"status": "queued", "attempt_count": 1, "play": "workflow", "workflow_id": "kT4bS0qX", "input": "stored"})
		w.clock.advance(61 * time.Second)
		w.sweep(t)
		hasAll(t, one("order-lost"), obj{"status": "queued", "reason": "lease_expired", "attempt_count": 1, "play": "workflow", "execution_id": "1"})
		// The claim keeps its status; when it is completed, so is the letter.
		token := w.decides(t, "proceed", holding("order-lost", "3")).has(t, obj{"attempt": 2}).text("lease_token")
		w.post(t, "/complete", obj{"lease_token": token}).ok(t)
		w.sweep(t)
		hasAll(t, one("order-lost"), obj{"status": "resolved"})
		// What waits for a pause's end and never comes again.
		w.send(t, "PUT", "/pauses/source.shop", text(t, and(person, obj{"until": w.clock.now().Add(time.Minute).Format(time.RFC3339)}))).ok(t)
		w.decides(t, "wait", holding("order-waits", "4"))
		w.clock.advance(119 * time.Second)
		w.sweep(t)
		if one("order-waits") != nil {
			t.Error("an event that may still come was given up")
		}
		w.clock.advance(2 * time.Second)
		w.sweep(t)
		hasAll(t, one("order-waits"), obj{"status": "queued", "reason": "never_claimed"})
	})
}

// While its claim is being worked on, or nobody knows how that ended, a letter is held, uncounted.
func TestLettersOfUndecidedClaims(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		w.decides(t, "proceed", holding("order-1", "1"))
		a := w.reports(t, failing("kT4bS0qX", "1", "503", posting(nil))).has(t, obj{"status": "queued"})
		effect := w.proceeds(t, and(holding("order-1", "1"), obj{"step": "charge"}))
		w.post(t, "/mark-unknown", obj{"lease_token": effect}).ok(t)
		w.clock.advance(5 * time.Minute)
		w.leasedLetters(t, obj{}, 0)
		w.letter(t, a.text("id")).has(t, obj{"status": "queued", "attempt_count": 1})
		w.post(t, "/complete", obj{"lease_token": effect, "result_id": "ch_1"}).ok(t)
		w.leasedLetters(t, obj{}, 1)
	})
}
