package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"holdfast/internal/ledger"
)

// at is a claim of an effect at the limited destination.
func at(key string, more ...obj) obj {
	body := obj{"source": "crm", "idempotency_key": key, "destination": "hubspot", "lease_seconds": 60}
	for _, m := range more {
		for name, value := range m {
			body[name] = value
		}
	}
	return body
}

func TestRateAnswersWait(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		w.proceeds(t, at("a", obj{"owner": "7:0:0"}))
		w.decides(t, "proceed", at("a", obj{"owner": "7:0:0"})).has(t, obj{"reentrant": true})
		w.proceeds(t, at("b"))
		w.clock.advance(2500 * time.Millisecond)
		w.decides(t, "wait", at("c")).has(t, obj{"status": "pending", "attempt": 0, "retry_after_seconds": 8})
		w.decides(t, "in_progress", at("a"))
		w.proceeds(t, obj{"source": "crm", "idempotency_key": "d", "destination": "elsewhere"})
		w.clock.advance(8 * time.Second) // as told
		w.decides(t, "proceed", at("c")).has(t, obj{"attempt": 1, "retry_after_seconds": 0})
		figures := string(w.get(t, "/metrics").raw)
		if line := `holdfast_destination_waits_total{destination="hubspot",limit="rate"} 1`; !strings.Contains(figures, line+"\n") {
			t.Errorf("/metrics has no line %s", line)
		}
	}, withLimit("hubspot", ledger.Limit{Rate: ledger.Rate{N: 2, Per: 10 * time.Second}}))
}

func TestConcurrencyAnswersWait(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		token := w.proceeds(t, at("a"))
		w.decides(t, "wait", at("b")).has(t, obj{"status": "pending", "retry_after_seconds": 10})
		w.post(t, "/complete", obj{"lease_token": token, "result_id": "r"}).ok(t)
		w.proceeds(t, at("b"))
	}, withLimit("hubspot", ledger.Limit{MaxConcurrency: 1}))
}

// What opens the circuit is how the caller's errors are classified.
func TestCircuitAnswersWait(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		n := 0
		failing := func(path string, body obj) {
			t.Helper()
			n++
			body["lease_token"] = w.proceeds(t, at(fmt.Sprint("key", n)))
			w.post(t, path, body).ok(t)
			w.post(t, path, body).ok(t).has(t, obj{"changed": false})
		}
		failing("/mark-unknown", obj{"http_status": 503})
		failing("/mark-failed", obj{"http_status": 422})
		failing("/mark-failed", obj{"http_status": 401, "tries": 1})
		failing("/mark-failed", obj{"http_status": 429, "tries": 1})
		failing("/mark-unknown", obj{})
		failing("/mark-unknown", obj{"error": obj{"message": "timeout of 300000ms exceeded", "code": "ECONNABORTED"}})
		w.decides(t, "wait", at("probe")).has(t, obj{"retry_after_seconds": 30})
		w.clock.advance(30 * time.Second)
		token := w.proceeds(t, at("probe"))
		w.decides(t, "wait", at("next")).has(t, obj{"retry_after_seconds": 10})
		w.post(t, "/complete", obj{"lease_token": token, "result_id": "r"}).ok(t)
		w.proceeds(t, at("next"))
		w.proceeds(t, at("another"))
	}, withLimit("hubspot", ledger.Limit{Circuit: ledger.Circuit{Failures: 3, OpenFor: 30 * time.Second}}))
}
