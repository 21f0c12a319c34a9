//go:build e2e

package e2e

import (
	"net/http"
	"strings"
	"testing"
)

// TestCharge runs one published copy of each template through all that happens while the provider answers. The parts
// come one after the other, each with an order of its own.
func TestCharge(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, template string) {
		rest := newDestination(t)
		r := newTill(t, template, tillOptions{rest: rest.URL})
		for _, part := range []struct {
			name string
			test func(t *testing.T, r *till, order string, rest *destination)
		}{
			{"once", chargeOnce},
			{"copies at once", chargeCopies},
			{"two events for one order", chargeTwoEvents},
			{"the rest fails", chargeRestFails},
			{"another amount", chargeOtherAmount},
			{"fails closed", chargeFailsClosed},
			{"fails closed at the event", chargeEventFailsClosed},
			{"Holdfast is down", chargeHoldfastDown},
		} {
			t.Run(part.name, func(t *testing.T) { part.test(t, r, "7-"+strings.ReplaceAll(part.name, " ", "-"), rest) })
		}
	})
}

// chargeOnce is the plain case: the order is charged, the receipt kept, and what comes later does nothing.
func chargeOnce(t *testing.T, r *till, order string, rest *destination) {
	r.told(t, request(order, "a"), http.StatusOK, "completed")
	id := r.provider.wantCharges(t, order, 1)
	wantReceipt(t, r.waitClaims(t, order, "a completed", "charge completed"), id)
	sent := r.provider.wantRequests(t, order, 1)[0]
	for _, want := range []string{`{"amount":1200,"currency":"kes","payment_method":"pm_1","metadata":{"order_id":"` + order + `","provider_key":"hf_`, sent.IdempotencyKey} {
		if !strings.Contains(string(sent.Event), want) {
			t.Errorf("the provider received %s under key %q, want %s", sent.Event, sent.IdempotencyKey, want)
		}
	}
	if again := r.told(t, request(order, "a"), http.StatusOK, "completed"); again.Body["duplicate"] != true {
		t.Errorf("a later sender is told %v", again.Body)
	}
	r.newRuns(t, "success", "success")
	r.provider.wantRequests(t, order, 1)
	wantRest(t, rest, id, 1)
}

// wantRest expects that the rest of the work was done n times for a charge.
func wantRest(t *testing.T, rest *destination, id string, n int) {
	t.Helper()
	got := 0
	for _, d := range rest.deliveries() {
		if string(d.Event) == `{"charge":"`+id+`"}` {
			got++
		}
	}
	if got != n {
		t.Errorf("the rest of the work was done %d times for %s, want %d: %s", got, id, n, show(rest.deliveries()))
	}
}

// chargeCopies delivers one event five times while the first copy waits for the provider.
func chargeCopies(t *testing.T, r *till, order string, _ *destination) {
	later, release := actLater(t)
	r.provider.script(order, later)
	answers := r.sendCopies(t, request(order, "a"), 5)
	for i := range 5 {
		want := "in_progress"
		if i == 4 {
			want = "completed"
			release()
		}
		if a := <-answers; a.err != nil || a.Status != http.StatusOK || a.Body["status"] != want {
			t.Errorf("answer %d is %d %v %v, want 200 %s", i, a.Status, a.Body, a.err, want)
		}
	}
	r.newRuns(t, "success", "success", "success", "success", "success")
	wantReceipt(t, r.waitClaims(t, order, "a completed", "charge completed"), r.provider.wantCharges(t, order, 1))
	r.provider.wantRequests(t, order, 1)
}

// chargeTwoEvents has two events ask for one order, the second while the first is under way and again later: one
// charge, and the rest is done for both.
func chargeTwoEvents(t *testing.T, r *till, order string, rest *destination) {
	later, release := actLater(t)
	r.provider.script(order, later)
	first := r.sendCopies(t, request(order, "a"), 1)
	r.provider.waitRequests(t, order, 1)
	a := r.told(t, request(order, "b"), http.StatusServiceUnavailable, "in_progress")
	if a.Header.Get("Retry-After") == "" || a.Body["code"] != "wait" {
		t.Errorf("the second sender is told %v %v, want when to come back", a.Header, a.Body)
	}
	r.waitClaims(t, order, "a processing", "b pending", "charge processing")
	release()
	if a := <-first; a.Status != http.StatusOK {
		t.Errorf("the first sender is told %d %v", a.Status, a.Body)
	}
	r.told(t, request(order, "b"), http.StatusOK, "completed")
	id := r.provider.wantCharges(t, order, 1)
	wantReceipt(t, r.waitClaims(t, order, "a completed", "b completed", "charge completed"), id)
	r.provider.wantRequests(t, order, 1)
	r.newRuns(t, "success", "success", "success")
	wantRest(t, rest, id, 2)
}

// chargeRestFails charges, and fails afterwards: only what failed is done again.
func chargeRestFails(t *testing.T, r *till, order string, rest *destination) {
	rest.script(respond(http.StatusUnprocessableEntity, "application/json", `{"message":"no such list"}`))
	r.told(t, request(order, "a"), http.StatusInternalServerError, "not_done")
	r.waitClaims(t, order, "a failed", "charge completed")
	r.told(t, request(order, "a"), http.StatusOK, "completed")
	id := r.provider.wantCharges(t, order, 1)
	wantReceipt(t, r.waitClaims(t, order, "a completed", "charge completed"), id)
	r.provider.wantRequests(t, order, 1)
	r.newRuns(t, "error", "success")
	wantRest(t, rest, id, 2)
}

// chargeOtherAmount refuses the same order with another amount, and an event without an order: a person is shown.
func chargeOtherAmount(t *testing.T, r *till, order string, _ *destination) {
	r.told(t, request(order, "a"), http.StatusOK, "completed")
	other := request(order, "b")
	other["amount"] = 9900
	r.told(t, other, http.StatusUnprocessableEntity, "key_reused")
	noOrder := request(order, "c")
	delete(noOrder, "order_id")
	r.told(t, noOrder, http.StatusUnprocessableEntity, "invalid_key")
	r.waitClaims(t, order, "a completed", "b failed", "c failed", "charge completed")
	r.newRuns(t, "success", "error", "error")
	r.provider.wantCharges(t, order, 1)
	r.provider.wantRequests(t, order, 1)
	r.provider.wantRequests(t, "", 0)
}

// chargeFailsClosed gives every answer but a grant to the question whether the charge may be made: no call, and the
// event stays open.
func chargeFailsClosed(t *testing.T, r *till, order string, _ *destination) {
	const asJSON = "application/json"
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		status int
		word   string
		event  string // what the event's claim is afterwards
		run    string
	}{
		"in progress":    {respond(200, asJSON, `{"decision":"in_progress","retry_after_seconds":17}`), 503, "in_progress", "pending", "success"},
		"unknown":        {respond(200, asJSON, `{"decision":"unknown","lease_token":"t","retry_after_seconds":0}`), 503, "unknown", "pending", "success"},
		"review":         {respond(200, asJSON, `{"decision":"review","retry_after_seconds":0}`), 503, "review", "pending", "success"},
		"wait":           {respond(200, asJSON, `{"decision":"wait","retry_after_seconds":17}`), 503, "wait", "pending", "success"},
		"stale":          {respond(200, asJSON, `{"decision":"stale"}`), 500, "not_done", "failed", "error"},
		"a strange word": {respond(200, asJSON, `{"decision":"Proceed","lease_token":"t","provider_key":"k"}`), 500, "not_done", "failed", "error"},
		"no token":       {respond(200, asJSON, `{"decision":"proceed","claimed":true,"lease_token":null,"provider_key":"k"}`), 500, "not_done", "failed", "error"},
		"done it says":   {respond(200, asJSON, `{"decision":"completed"}`), 500, "not_done", "failed", "error"},
		"a web page":     {respond(200, "text/html", `<h1>Welcome</h1>`), 500, "not_done", "failed", "error"},
		"503":            {respond(503, asJSON, `{"status":503,"code":"unavailable","message":"x"}`), 500, "not_done", "failed", "error"},
		"hang up":        {hangUp, 500, "not_done", "failed", "error"},
	} {
		t.Run(name, func(t *testing.T) {
			order := order + "-" + strings.ReplaceAll(name, " ", "-")
			r.wire.replaceIf("/claim", `"step":"charge"`, tc.answer)
			defer r.wire.replaceIf("/claim", "", nil)
			a := r.told(t, request(order, "a"), tc.status, tc.word)
			if wait := a.Header.Get("Retry-After"); tc.status == 503 && wait != "17" && wait != "60" {
				t.Errorf("Retry-After is %q", wait)
			}
			r.newRuns(t, tc.run)
			r.provider.wantRequests(t, order, 0)
			r.waitClaims(t, order, "a "+tc.event)
		})
	}
}

// chargeEventFailsClosed does the same with the question whether the event may go on.
func chargeEventFailsClosed(t *testing.T, r *till, order string, _ *destination) {
	const asJSON = "application/json"
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		status int
		word   string
		run    string
	}{
		"in progress":    {respond(200, asJSON, `{"decision":"in_progress"}`), 200, "in_progress", "success"},
		"review":         {respond(200, asJSON, `{"decision":"review"}`), 200, "review", "success"},
		"wait":           {respond(200, asJSON, `{"decision":"wait","retry_after_seconds":17}`), 503, "wait", "success"},
		"a strange word": {respond(200, asJSON, `{"decision":"Proceed","lease_token":"t"}`), 503, "no_decision", "error"},
		"no token":       {respond(200, asJSON, `{"decision":"proceed","claimed":true,"lease_token":null}`), 503, "no_decision", "error"},
		"a web page":     {respond(200, "text/html", `<h1>Welcome</h1>`), 503, "no_decision", "error"},
	} {
		t.Run(name, func(t *testing.T) {
			r.wire.replaceIf("/claim", `"kind":"event"`, tc.answer)
			defer r.wire.replaceIf("/claim", "", nil)
			r.told(t, request(order, "a"), tc.status, tc.word)
			r.newRuns(t, tc.run)
			r.provider.wantRequests(t, order, 0)
			r.waitClaims(t, order)
		})
	}
}

// chargeHoldfastDown asks nobody for money when Holdfast cannot be asked.
func chargeHoldfastDown(t *testing.T, r *till, order string, _ *destination) {
	r.wire.cut(t)
	r.told(t, request(order, "a"), http.StatusServiceUnavailable, "no_decision")
	r.provider.wantRequests(t, order, 0)
	r.wire.mend(t)
	r.told(t, request(order, "a"), http.StatusOK, "completed")
	r.newRuns(t, "error", "success")
	r.provider.wantCharges(t, order, 1)
}
