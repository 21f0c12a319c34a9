package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// F100: a lease of nothing, of less, of too much or of the wrong unit is refused; absent is the default.
func TestLeaseSeconds(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		token := w.proceeds(t, key("held"))
		start := w.clock.now()
		for i, c := range []struct {
			value   string
			seconds int // 0: refused; -1: the default
		}{
			{"0", 0},
			{"-1", 0},
			{"0.4", 0},
			{"1", 1},
			{"null", -1},
			{"", -1},
			{`"60s"`, 0},
			{"30000", 30000},
			{"86400", 86400},
			{"86401", 0},
			{"1e9", 0},
			{"9223372036854775807", 0},
			{"9223372036854775808", 0},
			{"1e400", 0},
			{`"NaN"`, 0},
			{"true", 0},
			{"false", 0},
			{"[]", 0},
			{`"0"`, 0},
			{`"-5"`, 0},
			{`"86401"`, 0},
		} {
			member := `,"lease_seconds":` + c.value
			if c.value == "" {
				member = ""
			}
			claim := w.post(t, "/claim", fmt.Sprintf(`{"source":"shop","idempotency_key":"lease-%d"%s}`, i, member))
			step := w.post(t, "/claim", fmt.Sprintf(`{"source":"shop","step":"pay","idempotency_key":"lease-%d"%s}`, i, member))
			extend := w.post(t, "/extend", `{"lease_token":"`+token+`"`+member+`}`)
			look := w.post(t, "/reconcile/lease", `{"owner":"1:0:0"`+member+`}`)
			if c.seconds == 0 {
				for _, a := range []answer{claim, step, extend, look} {
					a.refused(t, 400, "invalid_request").names(t, "lease_seconds")
					if integer := strings.Trim(c.value, "-0123456789") == "" && len(c.value) < 10; integer && !strings.Contains(a.text("message"), "86400") {
						t.Errorf("lease_seconds %s: the message does not give the range: %s", c.value, a.text("message"))
					}
				}
				continue
			}
			event, effect := c.seconds, c.seconds
			if c.seconds < 0 {
				event, effect = 300, 900
				extend.refused(t, 400, "invalid_request").names(t, "lease_seconds") // there it is required
			} else {
				extend.ok(t)
			}
			look.ok(t)
			for a, seconds := range map[*answer]int{&claim: event, &step: effect} {
				a.ok(t).has(t, obj{"lease_expires_at": start.Add(time.Duration(seconds) * time.Second).Format(time.RFC3339Nano)})
			}
		}
		// Text that is a number must not become the default unseen.
		a := w.post(t, "/claim", `{"source":"shop","idempotency_key":"lease-text","lease_seconds":"60"}`)
		if a.status != 400 {
			a.ok(t).has(t, obj{"lease_expires_at": "2026-11-30T20:01:00Z"})
		}
	})
}

// F025, F031: the lease of an effect ends in unknown, that of an event is taken over.
func TestLeaseEnds(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		pay, event := and(effect("wd_1", "withdraw"), obj{"lease_seconds": 5}), and(key("wd_1"), obj{"lease_seconds": 5})
		w.proceeds(t, pay)
		first := w.decides(t, "proceed", event)
		w.clock.advance(3500 * time.Millisecond)
		w.decides(t, "in_progress", pay).has(t, obj{"retry_after_seconds": 2})
		w.clock.advance(1499 * time.Millisecond)
		w.decides(t, "in_progress", pay).has(t, obj{"retry_after_seconds": 1})
		w.decides(t, "in_progress", event).has(t, obj{"retry_after_seconds": 1})
		w.clock.advance(time.Millisecond)
		w.decides(t, "unknown", pay).has(t, obj{"status": "unknown", "retry_after_seconds": 0, "lease_expires_at": nil})
		second := w.decides(t, "proceed", event).has(t, obj{"attempt": 2, "provider_key": first.text("provider_key")})
		if second.text("lease_token") == first.text("lease_token") {
			t.Error("a takeover got the old token")
		}
		w.clock.advance(23 * time.Hour)
		w.decides(t, "unknown", pay)
		w.clock.advance(time.Hour)
		w.decides(t, "review", pay).has(t, obj{"status": "review"})
	})
}

// F026: the old holder comes back.
func TestOldHolder(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		event := and(key("charge-9"), obj{"lease_seconds": 2})
		a := w.proceeds(t, event)
		w.clock.advance(3 * time.Second)
		b := w.proceeds(t, event)
		late := obj{"lease_token": a, "result_id": "ch_A_late"}
		w.post(t, "/complete", late).refused(t, 409, "lease_lost")
		w.post(t, "/extend", obj{"lease_token": a, "lease_seconds": 60}).refused(t, 409, "lease_lost")
		w.post(t, "/mark-failed", obj{"lease_token": a}).refused(t, 409, "lease_lost")
		done := w.post(t, "/complete", obj{"lease_token": b, "result_id": "ch_B"}).ok(t).has(t, obj{"result_id": "ch_B", "attempt": 2})
		w.post(t, "/complete", late).refused(t, 409, "lease_lost")
		w.post(t, "/mark-unknown", obj{"lease_token": a}).refused(t, 409, "lease_lost")
		w.decides(t, "completed", event).has(t, obj{"result_id": "ch_B"})
		if got := w.get(t, "/claims/"+done.text("claim_id")).ok(t); !strings.Contains(string(got.raw), "ch_A_late") {
			t.Errorf("the late receipt is not in the history: %s", got.raw)
		}
		if !strings.Contains(w.logs.String(), "WARN") {
			t.Error("nobody was told of a second receipt")
		}
		// Nobody else came: the receipt is believed after the end, and out of unknown.
		lone := w.proceeds(t, and(key("charge-10"), obj{"lease_seconds": 2}))
		pay := w.proceeds(t, and(effect("charge-10", "charge"), obj{"lease_seconds": 2}))
		w.clock.advance(3 * time.Second)
		w.post(t, "/complete", obj{"lease_token": lone}).ok(t).has(t, obj{"status": "completed", "changed": true})
		w.decides(t, "unknown", effect("charge-10", "charge"))
		w.post(t, "/complete", obj{"lease_token": pay, "result_id": "ch_10"}).ok(t).has(t, obj{"status": "completed", "changed": true})
	})
}

// F032: the same node run gets its lease again, and nobody else does.
func TestSameOwner(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		as, op := bearer(workflowSecret), bearer(operatorSecret)
		mine := and(key("order-1"), obj{"owner": "1042:0:0", "workflow_id": "kT4bS0qX", "node": "Claim", "execution_id": "1042"})
		first := w.decides(t, "proceed", mine, as)
		w.clock.advance(time.Minute)
		w.decides(t, "proceed", mine, as).has(t, obj{"reentrant": true, "attempt": 1, "lease_token": first.text("lease_token"), "lease_expires_at": "2026-11-30T20:06:00Z"})
		w.decides(t, "proceed", and(mine, obj{"lease_seconds": 1}), as).has(t, obj{"reentrant": true, "lease_expires_at": "2026-11-30T20:06:00Z"})
		for _, other := range []obj{{"owner": "1043:0:0"}, {"owner": ""}, {"owner": nil}, {"workflow_id": "other"}, {"node": "Claim1"}} {
			w.decides(t, "in_progress", and(mine, other), as).has(t, obj{"reentrant": false, "retry_after_seconds": 300})
		}
		w.decides(t, "in_progress", mine, op)
		nobody := and(key("order-2"), obj{"owner": ""})
		w.decides(t, "proceed", nobody, as)
		w.decides(t, "in_progress", nobody, as)
		w.clock.advance(time.Hour)
		again := w.decides(t, "proceed", mine, as).has(t, obj{"reentrant": false, "attempt": 2})
		w.post(t, "/complete", obj{"lease_token": again.text("lease_token")}, as).ok(t)
		w.decides(t, "completed", mine, as)
	}, withKeys(bothKeys...))
}

var refusedConnection = obj{"message": "connect ECONNREFUSED 203.0.113.7:443", "httpCode": "ECONNREFUSED"}

// F034, F035: a known failure may be claimed again under the same provider key; anything else of an effect is unknown.
func TestFailures(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		event := w.decides(t, "proceed", key("d-1"))
		report := obj{"lease_token": event.text("lease_token"), "error": "executor full"}
		w.post(t, "/mark-failed", report).ok(t).has(t, obj{"status": "failed", "changed": true})
		w.post(t, "/mark-failed", report).ok(t).has(t, obj{"status": "failed", "changed": false})
		w.decides(t, "proceed", key("d-1")).has(t, obj{"attempt": 2, "provider_key": event.text("provider_key")})

		for i, c := range []struct {
			more   obj
			status string
			want   obj
		}{
			{obj{"tries": 1, "error": refusedConnection}, "failed", obj{"error_class": "transient", "retryable": true, "outcome": "not_executed", "backoff_seconds": 60}},
			{obj{"error": refusedConnection}, "unknown", obj{"outcome": "not_executed"}},
			{obj{"tries": 2, "error": refusedConnection}, "unknown", obj{"outcome": "not_executed"}},
			{obj{"tries": 1, "http_status": 422}, "failed", obj{"error_class": "validation", "retryable": false, "outcome": "not_executed"}},
			{obj{"tries": 1, "http_status": 429, "retry_after": 700}, "failed", obj{"error_class": "rate_limited", "backoff_seconds": 700}},
			{obj{"tries": 1, "http_status": 500}, "unknown", obj{"error_class": "transient", "outcome": "unknown"}},
			{obj{"tries": 1, "http_status": 409}, "unknown", obj{"error_class": "conflict", "outcome": "unknown"}},
			{obj{"tries": 1}, "unknown", obj{"error_class": "unclassified", "retryable": false}},
			{obj{"outcome": "not_executed"}, "failed", obj{"outcome": "not_executed"}},
			{obj{"outcome": "not_executed", "tries": 3, "http_status": 500}, "failed", obj{}},
			{obj{"retry_after": 60}, "unknown", obj{}},
		} {
			pay := effect(fmt.Sprint("pay_", i), "charge")
			first := w.decides(t, "proceed", pay)
			w.post(t, "/mark-failed", and(c.more, obj{"lease_token": first.text("lease_token")})).ok(t).has(t, and(c.want, obj{"status": c.status, "changed": true, "attempt": 1}))
			next := map[string]string{"failed": "proceed", "unknown": "unknown"}[c.status]
			w.decides(t, next, pay).has(t, obj{"provider_key": first.text("provider_key")})
		}
		// What was ever unknown is not called failed by its error.
		pay := effect("pay_ever", "charge")
		token := w.proceeds(t, pay)
		w.post(t, "/mark-unknown", obj{"lease_token": token}).ok(t)
		w.post(t, "/mark-failed", obj{"lease_token": token, "tries": 1, "error": refusedConnection}).ok(t).has(t, obj{"status": "unknown", "changed": false})

		late := and(effect("pay_late", "charge"), obj{"lease_seconds": 1})
		token = w.proceeds(t, late)
		w.clock.advance(2 * time.Second)
		w.post(t, "/mark-failed", obj{"lease_token": token, "outcome": "not_executed"}).ok(t).has(t, obj{"status": "unknown"})
	})
}

// Not now: pending again, uncounted.
func TestNotNow(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		token := w.proceeds(t, key("order-1"))
		w.post(t, "/mark-failed", obj{"lease_token": token, "retry_after": 90}).ok(t).has(t, obj{"status": "pending", "attempt": 0, "changed": true})
		w.post(t, "/mark-failed", obj{"lease_token": token, "retry_after": 90}).ok(t).has(t, obj{"status": "pending", "changed": false})
		w.post(t, "/mark-failed", obj{"lease_token": token}).refused(t, 409, "invalid_transition")
		w.decides(t, "proceed", key("order-1")).has(t, obj{"attempt": 1})
	})
}

// The rest of the table of endings.
func TestEndings(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		token := w.proceeds(t, and(effect("order-1", "charge"), obj{"lease_seconds": 60}))
		w.post(t, "/extend", obj{"lease_token": token, "lease_seconds": 600, "reference": "ws_CO_77001"}).ok(t).has(t, obj{"status": "processing", "changed": true, "lease_expires_at": "2026-11-30T20:10:00Z"})
		w.post(t, "/extend", obj{"lease_token": token, "lease_seconds": 5}).ok(t).has(t, obj{"changed": false, "lease_expires_at": "2026-11-30T20:10:00Z"})
		callback := obj{"source": "shop", "reference": "ws_CO_77001", "result_id": "SKU7H2K9QX"}
		w.post(t, "/complete", callback).refused(t, 409, "lease_live")
		w.post(t, "/mark-unknown", obj{"lease_token": token, "error": "timeout"}).ok(t).has(t, obj{"status": "unknown", "changed": true})
		w.post(t, "/mark-unknown", obj{"lease_token": token}).ok(t).has(t, obj{"changed": false})
		w.post(t, "/extend", obj{"lease_token": token, "lease_seconds": 5}).refused(t, 409, "invalid_transition")
		w.post(t, "/complete", callback).ok(t).has(t, obj{"status": "completed", "changed": true, "result_id": "SKU7H2K9QX"})
		w.post(t, "/complete", callback).ok(t).has(t, obj{"changed": false})
		w.post(t, "/complete", effect("order-1", "charge")).ok(t).has(t, obj{"changed": false, "result_id": "SKU7H2K9QX"})
		w.post(t, "/complete", obj{"lease_token": token, "result_id": "other"}).refused(t, 409, "result_conflict")
		w.post(t, "/mark-unknown", obj{"lease_token": token}).ok(t).has(t, obj{"status": "completed", "changed": false})
		w.post(t, "/mark-failed", obj{"lease_token": token}).ok(t).has(t, obj{"status": "completed", "changed": false})
		w.decides(t, "completed", effect("order-1", "charge")).has(t, obj{"reference": "ws_CO_77001"})

		event := w.proceeds(t, key("order-2"))
		w.post(t, "/mark-failed", obj{"lease_token": event}).ok(t)
		w.post(t, "/mark-unknown", obj{"lease_token": event}).refused(t, 409, "invalid_transition")
		w.post(t, "/complete", obj{"lease_token": event}).ok(t).has(t, obj{"status": "completed"})

		for _, body := range []obj{{}, {"source": "shop"}, {"idempotency_key": "order-1"}, {"source": "shop", "idempotency_key": "order-1", "reference": "x"}, {"lease_token": event, "source": "shop"}} {
			w.post(t, "/complete", body).refused(t, 400, "invalid_request")
		}
		for _, path := range []string{"/mark-unknown", "/mark-failed", "/extend"} {
			for _, body := range []string{`{}`, `{"lease_token":null}`, `{"lease_token":""}`} {
				w.post(t, path, body).refused(t, 400, "invalid_request").names(t, "lease_token")
			}
			for _, mangled := range []string{"x", aToken, event[:len(event)-1], event + "x", strings.ToUpper(event), " " + event, event[:20] + "\x00" + event[21:]} {
				body := obj{"lease_token": mangled}
				if path == "/extend" {
					body["lease_seconds"] = 60
				}
				w.post(t, path, body).refused(t, 404, "not_found")
			}
		}
		w.post(t, "/complete", obj{"source": "shop", "idempotency_key": "never-seen"}).refused(t, 404, "not_found")
		w.post(t, "/complete", obj{"source": "shop", "reference": "never-seen"}).refused(t, 404, "not_found")
	})
}
