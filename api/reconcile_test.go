package api_test

import (
	"fmt"
	"testing"
	"time"
)

// unknown leaves an effect without a receipt and returns its worker's token.
func (w *world) unknown(tb testing.TB, k string) string {
	tb.Helper()
	token := w.proceeds(tb, and(effect(k, "charge"), obj{"payload": obj{"amount": 1200}}))
	w.post(tb, "/mark-unknown", obj{"lease_token": token, "error": obj{"message": "socket hang up"}, "reference": "ws_CO_" + k}).ok(tb).has(tb, obj{"status": "unknown"})
	return token
}

// leases asks for unknown claims; the answer is a bare array.
func (w *world) leases(tb testing.TB, body any, want int) []obj {
	tb.Helper()
	a := w.post(tb, "/reconcile/lease", body).ok(tb)
	if a.raw[0] != '[' || want == 0 && string(a.raw) != "[]" || len(a.items) != want {
		tb.Fatalf("the lease is %s, want a bare array of %d", clip(a.raw), want)
	}
	return a.items
}

func TestReconcile(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		mine, other := obj{"owner": "2001:0:0"}, obj{"owner": "2002:0:0"}
		w.leases(t, obj{}, 0)
		w.unknown(t, "order-found")
		w.clock.advance(time.Second)
		w.unknown(t, "order-missing")
		w.clock.advance(58 * time.Second)
		w.leases(t, mine, 0) // not before ask_after
		w.clock.advance(time.Second)
		w.leases(t, obj{"source": "other"}, 0)
		first := w.leases(t, mine, 1)[0] // the oldest alone is old enough
		hasAll(t, first, obj{
			"source": "shop", "idempotency_key": "order-found", "step": "charge", "kind": "effect", "status": "unknown", "attempt": 1, "reference": "ws_CO_order-found", "payload": obj{"amount": 1200},
			"unknown_since": "2026-11-30T20:00:00Z", "window_ends_at": "2026-12-01T20:00:00Z", "lease_expires_at": "2026-11-30T20:06:00Z",
		})
		w.clock.advance(time.Second)
		w.leases(t, other, 1)
		w.leases(t, obj{"owner": ""}, 0)
		if again := w.leases(t, mine, 1)[0]; again["lease_token"] != first["lease_token"] {
			t.Error("the same owner got another token for its unreported batch")
		}
		w.post(t, "/complete", obj{"lease_token": first["lease_token"], "result_id": "ch_found"}).ok(t).has(t, obj{"status": "completed", "changed": true})
		w.decides(t, "completed", effect("order-found", "charge")).has(t, obj{"result_id": "ch_found"})
	})
}

// "Not found" counts only after not_found_after; "could not be asked" comes again after a minute, doubling.
func TestReconcileNotFound(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		w.unknown(t, "order-1")
		look := func() string {
			token, _ := w.leases(t, obj{"owner": "9:0:0", "lease_seconds": 30}, 1)[0]["lease_token"].(string)
			return token
		}
		gone := func(token string) obj { return obj{"lease_token": token, "outcome": "not_executed"} }
		w.clock.advance(time.Minute) // 1 min
		early := look()
		w.post(t, "/mark-failed", gone(early)).ok(t).has(t, obj{"status": "unknown", "changed": false})
		w.leases(t, obj{}, 0)
		w.clock.advance(time.Minute) // 2 min
		w.post(t, "/mark-unknown", obj{"lease_token": look(), "http_status": 503}).ok(t).has(t, obj{"status": "unknown", "changed": false})
		w.clock.advance(119 * time.Second)
		w.leases(t, obj{}, 0)
		w.clock.advance(time.Second) // 4 min
		token := look()
		w.post(t, "/extend", obj{"lease_token": token, "lease_seconds": 120}).ok(t).has(t, obj{"status": "unknown", "changed": true, "lease_expires_at": "2026-11-30T20:06:00Z"})
		w.clock.advance(time.Minute) // 5 min
		w.post(t, "/mark-failed", gone(early)).refused(t, 409, "lease_lost")
		w.post(t, "/mark-failed", obj{"lease_token": token}).ok(t).has(t, obj{"status": "unknown", "changed": false}) // no outcome: nothing is known
		w.post(t, "/mark-failed", gone(token)).ok(t).has(t, obj{"status": "failed", "changed": true})
		w.decides(t, "proceed", effect("order-1", "charge")).has(t, obj{"attempt": 2})
	})
}

// An ended lease is handed out although nobody claimed again, at most limit at a time, and nothing past its window.
func TestReconcileBatches(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		for i := range 5 {
			w.proceeds(t, and(effect(fmt.Sprint("order-", i), "charge"), obj{"lease_seconds": 10 + i}))
		}
		w.proceeds(t, and(key("event-1"), obj{"lease_seconds": 10}))
		w.clock.advance(10*time.Minute + 14*time.Second)
		seen := map[any]bool{}
		for _, n := range []int{2, 2, 1} {
			for _, item := range w.leases(t, obj{"limit": 2, "owner": fmt.Sprint(n, len(seen))}, n) {
				seen[item["claim_id"]] = true
				if want := fmt.Sprint("order-", len(seen)-1); item["idempotency_key"] != want {
					t.Errorf("handed out %v, want the oldest, %s", item["idempotency_key"], want)
				}
			}
		}
		if len(seen) != 5 {
			t.Errorf("%d claims were handed out, want 5", len(seen))
		}
		w.leases(t, obj{}, 0)
		for _, limit := range []any{0, -1, 101, "x", 1.5} {
			w.post(t, "/reconcile/lease", obj{"limit": limit}).refused(t, 400, "invalid_request").names(t, "limit")
		}
		w.post(t, "/reconcile/lease", obj{"source": "Shop"}).refused(t, 400, "invalid_request").names(t, "source")
		w.clock.advance(24 * time.Hour)
		w.leases(t, obj{}, 0)
		w.decides(t, "review", effect("order-0", "charge"))
	})
}

// A person settles.
func TestResolve(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		word := obj{"authorized_by": "asha@example.test", "reason": "seen in the dashboard"}
		token := w.unknown(t, "order-1")
		claim := w.decides(t, "unknown", effect("order-1", "charge"))
		path := "/claims/" + claim.text("claim_id") + "/resolve"
		for _, status := range []any{"unknown", "pending", "processing", "stale", "", nil} {
			w.post(t, path, and(word, obj{"status": status})).refused(t, 400, "invalid_request").names(t, "status")
		}
		w.post(t, path, obj{"status": "review"}).refused(t, 400, "invalid_request").names(t, "authorized_by").names(t, "reason")
		w.post(t, path, obj{"status": "review", "authorized_by": " ", "reason": "x"}).refused(t, 400, "invalid_request").names(t, "authorized_by")
		w.post(t, "/claims/"+anID+"/resolve", and(word, obj{"status": "review"})).refused(t, 404, "not_found")
		w.post(t, "/claims/x/resolve", and(word, obj{"status": "review"})).refused(t, 404, "not_found")

		w.post(t, path, and(word, obj{"status": "review"})).ok(t).has(t, obj{"status": "review", "changed": true})
		w.post(t, path, and(word, obj{"status": "review"})).ok(t).has(t, obj{"status": "review", "changed": false})
		w.decides(t, "review", effect("order-1", "charge"))
		w.clock.advance(25 * time.Hour)
		w.post(t, path, and(word, obj{"status": "failed"})).refused(t, 400, "invalid_request")
		w.post(t, path, and(word, obj{"status": "failed", "new_provider_key": true})).ok(t).has(t, obj{"status": "failed", "changed": true})
		second := w.decides(t, "proceed", effect("order-1", "charge")).has(t, obj{"attempt": 2})
		if second.text("provider_key") == claim.text("provider_key") {
			t.Error("the provider_key did not change")
		}
		w.post(t, path, and(word, obj{"status": "completed"})).refused(t, 409, "lease_live")
		w.post(t, "/mark-unknown", obj{"lease_token": token}).refused(t, 409, "lease_lost")
		w.post(t, "/mark-unknown", obj{"lease_token": second.text("lease_token")}).ok(t)
		done := and(word, obj{"status": "completed", "result_id": "ch_by_hand"})
		w.post(t, path, done).ok(t).has(t, obj{"status": "completed", "changed": true, "result_id": "ch_by_hand"})
		w.post(t, path, done).ok(t).has(t, obj{"changed": false})
		w.post(t, path, and(done, obj{"result_id": "ch_other"})).refused(t, 409, "result_conflict")
		w.post(t, path, and(word, obj{"status": "failed", "new_provider_key": true})).refused(t, 409, "invalid_transition")

		w.done(t, key("order-1"))
		event := "/claims/" + w.decides(t, "completed", key("order-1")).text("claim_id") + "/resolve"
		w.post(t, event, and(word, obj{"status": "failed", "new_provider_key": true})).ok(t).has(t, obj{"status": "failed", "changed": true, "result_id": nil, "completed_at": nil})
		w.decides(t, "proceed", key("order-1")).has(t, obj{"attempt": 2})
	})
}
