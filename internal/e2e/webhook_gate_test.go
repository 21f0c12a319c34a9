//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"testing"
)

type event map[string]any

// TestGateFirstDelivery is the plain case: the work is done, its result kept,
// and every later copy is told so without doing anything.
func TestGateFirstDelivery(t *testing.T) {
	t.Parallel()
	g := newGate(t, gateOptions{})
	order := event{"id": "order-7001", "amount": 1200, "note": "Zoë says \"hi\"\n{{ 1 + 1 }}"}

	first := g.send(t, order, http.StatusOK)
	if first.Body["duplicate"] != false {
		t.Errorf("the first sender is told %v", first.Body)
	}
	got := g.wantDeliveries(t, 1)[0]
	if want := `{"amount":1200,"id":"order-7001","note":"Zoë says \"hi\"\n{{ 1 + 1 }}"}`; string(got.Event) != want {
		t.Errorf("the destination received %s, want %s", got.Event, want)
	}
	if got.IdempotencyKey == "" {
		t.Error("the destination got no Idempotency-Key")
	}
	wantResult(t, g.wantClaim(t, "order-7001", "completed", 1), "done-1")

	for range 3 {
		again := g.send(t, order, http.StatusOK)
		if again.Body["duplicate"] != true || again.Body["status"] != "completed" {
			t.Errorf("a later sender is told %v", again.Body)
		}
	}
	// A duplicate is no failure: no red run, nothing for an error workflow.
	g.wantRuns(t, "success", "success", "success", "success")
	g.wantDeliveries(t, 1)
	wantResult(t, g.wantClaim(t, "order-7001", "completed", 1), "done-1")
}

// TestGateCopiesAtOnce delivers an event many times while the first copy is
// still being worked on.
func TestGateCopiesAtOnce(t *testing.T) {
	t.Parallel()
	for _, copies := range []int{2, 50} {
		t.Run(fmt.Sprint(copies), func(t *testing.T) {
			t.Parallel()
			g := newGate(t, gateOptions{})
			release := g.destination.hold(t)
			answers := g.sendCopies(t, event{"id": "evt-1"}, copies)

			// One copy waits at the destination; all the others are answered meanwhile.
			statuses := make([]string, 0, copies)
			for i := range copies {
				if i == copies-1 {
					g.wantClaim(t, "evt-1", "processing", 1)
					release()
				}
				a := <-answers
				if a.err != nil {
					t.Fatal(a.err)
				}
				wantStatus, wantDuplicate := "in_progress", true
				if i == copies-1 {
					wantStatus, wantDuplicate = "completed", false
				}
				if a.Status != http.StatusOK || a.Body["status"] != wantStatus || a.Body["duplicate"] != wantDuplicate {
					t.Errorf("answer %d is %d %v, want 200 %s", i, a.Status, a.Body, wantStatus)
				}
				statuses = append(statuses, "success")
			}
			g.wantRuns(t, statuses...)
			g.wantDeliveries(t, 1)
			wantResult(t, g.wantClaim(t, "evt-1", "completed", 1), "done-1")
		})
	}
}

// TestGateHoldfastDown stops at the first question, tells the sender to come
// back, and works when it does.
func TestGateHoldfastDown(t *testing.T) {
	t.Parallel()
	g := newGate(t, gateOptions{})
	g.wire.cut(t)
	a := g.send(t, event{"id": "evt-1"}, http.StatusServiceUnavailable)
	if a.Header.Get("Retry-After") == "" {
		t.Error("the sender is not told when to come back")
	}
	g.wantRuns(t, "error")
	g.wantDeliveries(t, 0)

	g.wire.mend(t)
	g.send(t, event{"id": "evt-1"}, http.StatusOK)
	g.wantRuns(t, "error", "success")
	g.wantDeliveries(t, 1)
	wantResult(t, g.wantClaim(t, "evt-1", "completed", 1), "done-1")
}

// TestGateLostClaimAnswer loses what Holdfast said: the lease is taken and the
// run does not know. Retry On Fail asks again and gets the same lease.
func TestGateLostClaimAnswer(t *testing.T) {
	t.Parallel()
	g := newGate(t, gateOptions{})
	g.wire.loseAnswers("/claim", 2)
	a := g.send(t, event{"id": "evt-1"}, http.StatusOK)
	if a.Body["duplicate"] != false {
		t.Errorf("the run was taken for a copy of itself: %v", a.Body)
	}
	g.wantRuns(t, "success")
	if n := g.wire.count("/claim"); n != 3 {
		t.Errorf("%d claims were sent, want 3", n)
	}
	g.wantDeliveries(t, 1)
	wantResult(t, g.wantClaim(t, "evt-1", "completed", 1), "done-1")
}

// TestGateLostCompleteAnswer loses the receipt of the receipt.
func TestGateLostCompleteAnswer(t *testing.T) {
	t.Parallel()
	g := newGate(t, gateOptions{})
	g.wire.loseAnswers("/complete", 2)
	g.send(t, event{"id": "evt-1"}, http.StatusOK)
	g.wantRuns(t, "success")
	if n := g.wire.count("/complete"); n != 3 {
		t.Errorf("%d completes were sent, want 3", n)
	}
	g.wantDeliveries(t, 1)
	wantResult(t, g.wantClaim(t, "evt-1", "completed", 1), "done-1")
}

// TestGateCompleteRefused does the work and cannot say so. The sender is not told
// that all is well, and its next delivery does not do the work a second time
// while the lease stands.
func TestGateCompleteRefused(t *testing.T) {
	t.Parallel()
	g := newGate(t, gateOptions{})
	g.wire.replace("/complete", respond(http.StatusServiceUnavailable, "application/json", `{"status":503,"code":"unavailable","message":"x"}`))
	g.send(t, event{"id": "evt-1"}, http.StatusInternalServerError)
	a := g.send(t, event{"id": "evt-1"}, http.StatusOK)
	if a.Body["status"] != "in_progress" {
		t.Errorf("the second sender is told %v", a.Body)
	}
	g.wantRuns(t, "error", "success")
	g.wantDeliveries(t, 1)
	g.wantClaim(t, "evt-1", "processing", 1)
}

// TestGateWorkFails marks the claim, asks the sender to come again, and does the
// work then.
func TestGateWorkFails(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]http.HandlerFunc{
		"status 500": respond(http.StatusInternalServerError, "application/json", `{"error":"database is away"}`),
		"hang up":    hangUp,
		// n8n takes a 200 with this member alone for an error of the node, with others beside it for a success.
		"error in a 200":        respond(http.StatusOK, "application/json", `{"error":"not today"}`),
		"error in a rich 200":   respond(http.StatusOK, "application/json", `{"ok":false,"error":"channel_not_found"}`),
		"error object in a 200": respond(http.StatusOK, "application/json", `{"id":"x","error":{"code":7}}`),
		"true error in a 200":   respond(http.StatusOK, "application/json", `{"id":"x","error":true}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGate(t, gateOptions{})
			g.destination.script(failure)
			g.send(t, event{"id": "evt-1"}, http.StatusInternalServerError)
			g.wantRuns(t, "error")
			g.wantDeliveries(t, 1)
			g.wantClaim(t, "evt-1", "failed", 1)

			g.send(t, event{"id": "evt-1"}, http.StatusOK)
			g.wantRuns(t, "error", "success")
			received := g.wantDeliveries(t, 2)
			if received[0].IdempotencyKey != received[1].IdempotencyKey {
				t.Error("the destination saw another Idempotency-Key the second time")
			}
			wantResult(t, g.wantClaim(t, "evt-1", "completed", 2), "done-2")
		})
	}
}

// TestGateEmptyError takes an answer for what it is: a service that always sends
// the member leaves it empty when all is well.
func TestGateEmptyError(t *testing.T) {
	t.Parallel()
	for _, empty := range []string{`null`, `false`, `""`, `[]`, `{}`} {
		t.Run(empty, func(t *testing.T) {
			t.Parallel()
			g := newGate(t, gateOptions{})
			g.destination.script(respond(http.StatusOK, "application/json", `{"id":"done-1","ok":true,"error":`+empty+`}`))
			g.send(t, event{"id": "evt-1"}, http.StatusOK)
			g.wantRuns(t, "success")
			g.wantDeliveries(t, 1)
			wantResult(t, g.wantClaim(t, "evt-1", "completed", 1), "done-1")
		})
	}
}

// TestGateLostFailureAnswer loses the answer to /mark-failed.
func TestGateLostFailureAnswer(t *testing.T) {
	t.Parallel()
	g := newGate(t, gateOptions{})
	g.destination.script(hangUp)
	g.wire.loseAnswers("/mark-failed", 1)
	g.send(t, event{"id": "evt-1"}, http.StatusInternalServerError)
	g.wantRuns(t, "error")
	if n := g.wire.count("/mark-failed"); n != 2 {
		t.Errorf("%d failures were reported, want 2", n)
	}
	g.wantClaim(t, "evt-1", "failed", 1)
	g.wantDeliveries(t, 1)
}

// TestGateNoKey shows the sender what is wrong with the event.
func TestGateNoKey(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]any{
		"nothing there": event{"amount": 1200},
		"null":          event{"id": nil},
		"a list":        []event{{"id": "evt-1"}, {"id": "evt-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGate(t, gateOptions{})
			a := g.send(t, body, http.StatusUnprocessableEntity)
			if a.Body["code"] != "missing_key" || a.Body["message"] == "" {
				t.Errorf("the sender is told %v", a.Body)
			}
			g.wantRuns(t, "error")
			g.wantDeliveries(t, 0)
			g.wantNoClaim(t)
		})
	}
}

// TestGateFailsClosed gives every answer but a decision to go on: nothing
// reaches the destination, and the sender is told to come back.
func TestGateFailsClosed(t *testing.T) {
	t.Parallel()
	const asJSON = "application/json"
	for name, answer := range map[string]http.HandlerFunc{
		"500":              respond(http.StatusInternalServerError, asJSON, `{"status":500,"code":"internal","message":"x"}`),
		"503":              respond(http.StatusServiceUnavailable, asJSON, `{"status":503,"code":"unavailable","message":"x"}`),
		"404":              respond(http.StatusNotFound, "text/html", `<h1>Not Found</h1>`),
		"a web page":       respond(http.StatusOK, "text/html", `<h1>Welcome</h1>`),
		"empty object":     respond(http.StatusOK, asJSON, `{}`),
		"nothing":          respond(http.StatusNoContent, asJSON, ``),
		"broken JSON":      respond(http.StatusOK, asJSON, `{"decision":"proceed","lease_token":"t`),
		"no token":         respond(http.StatusOK, asJSON, `{"decision":"proceed","claimed":true,"lease_token":null}`),
		"an unknown word":  respond(http.StatusOK, asJSON, `{"decision":"Proceed","claimed":true,"lease_token":"t"}`),
		"only a boolean":   respond(http.StatusOK, asJSON, `{"claimed":true,"lease_token":"t"}`),
		"an error in 200":  respond(http.StatusOK, asJSON, `{"error":"x","message":"y"}`),
		"no answer at all": silent,
		"hang up":          hangUp,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGate(t, gateOptions{claimTimeoutMS: 500})
			g.wire.replace("/claim", answer)
			g.send(t, event{"id": "evt-1"}, http.StatusServiceUnavailable)
			g.wantRuns(t, "error")
			g.wantDeliveries(t, 0)
		})
	}
}

// TestGateCredential sends with a key that Holdfast does not know, and with no
// key, as after an import into an n8n that has no such credential. n8n itself
// refuses the latter, before the first node.
func TestGateCredential(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		credential string
		want       int
	}{
		"wrong":         {wrongID, http.StatusServiceUnavailable},
		"not connected": {notConnected, http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGate(t, gateOptions{credentialID: tc.credential})
			g.send(t, event{"id": "evt-1"}, tc.want)
			g.wantRuns(t, "error")
			g.wantDeliveries(t, 0)
			g.wantNoClaim(t)
		})
	}
}

// TestGateOtherDecisions covers what the sender is told when there is nothing to
// do now.
func TestGateOtherDecisions(t *testing.T) {
	t.Parallel()
	for decision, want := range map[string]int{
		"completed":   http.StatusOK,
		"in_progress": http.StatusOK,
		"stale":       http.StatusOK,
		"unknown":     http.StatusOK,
		"review":      http.StatusOK,
		"wait":        http.StatusServiceUnavailable,
	} {
		t.Run(decision, func(t *testing.T) {
			t.Parallel()
			g := newGate(t, gateOptions{})
			g.wire.replace("/claim", respond(http.StatusOK, "application/json",
				`{"decision":"`+decision+`","claimed":false,"lease_token":null,"retry_after_seconds":17}`))
			a := g.send(t, event{"id": "evt-1"}, want)
			if want == http.StatusServiceUnavailable && a.Header.Get("Retry-After") != "17" {
				t.Errorf("Retry-After is %q, want Holdfast's 17", a.Header.Get("Retry-After"))
			}
			if want == http.StatusOK && (a.Body["duplicate"] != true || a.Body["status"] != decision) {
				t.Errorf("the sender is told %v", a.Body)
			}
			g.wantRuns(t, "success")
			g.wantDeliveries(t, 0)
		})
	}
}

// TestGatePaused stops a source by an operator's pause: the sender is asked to
// come back, and the event is worked on when the pause is over.
func TestGatePaused(t *testing.T) {
	t.Parallel()
	g := newGate(t, gateOptions{})
	ctx := testContext(t)
	pause := shared.holdfast.base + "/pauses/source." + g.source
	asOperator := map[string]string{"Authorization": "Bearer " + shared.holdfast.operatorKey}
	why := map[string]string{"authorized_by": "e2e", "reason": "the destination is being moved"}
	if err := callJSON(ctx, http.MethodPut, pause, asOperator, why, nil); err != nil {
		t.Fatal(err)
	}
	a := g.send(t, event{"id": "evt-1"}, http.StatusServiceUnavailable)
	if a.Header.Get("Retry-After") == "" {
		t.Error("the sender is not told when to come back")
	}
	g.wantRuns(t, "success")
	g.wantDeliveries(t, 0)

	if err := callJSON(ctx, http.MethodDelete, pause, asOperator, nil, nil); err != nil {
		t.Fatal(err)
	}
	g.send(t, event{"id": "evt-1"}, http.StatusOK)
	g.wantRuns(t, "success", "success")
	g.wantDeliveries(t, 1)
	wantResult(t, g.wantClaim(t, "evt-1", "completed", 1), "done-1")
}
