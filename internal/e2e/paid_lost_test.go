//go:build e2e

package e2e

import (
	"net/http"
	"strings"
	"testing"
)

// lost is a call that does not end with the provider's word.
type lost struct {
	acts     []act
	late     bool   // the provider acts when the caller has gone
	requests int    // of the first delivery
	word     string // what its sender is told; empty: all went well
	found    bool   // what the reconciler will find
}

// TestChargeLostWithKey loses answers of a provider that honours keys, or has it refuse. The node's own tries find a
// stored answer; where they do not, nobody calls again before the reconciler has asked.
func TestChargeLostWithKey(t *testing.T) {
	t.Parallel()
	testLost(t, withKeys, map[string]lost{
		"first answer":   {acts: []act{actAndHangUp}, requests: 2},
		"first request":  {acts: []act{hangUpAtOnce}, requests: 2},
		"once 429":       {acts: []act{tooManyRequests}, requests: 2},
		"all answers":    {acts: []act{actAndHangUp, actAndHangUp, actAndHangUp}, requests: 3, word: "charge_unknown", found: true},
		"500":            {acts: []act{actAndFail}, requests: 3, word: "charge_unknown", found: true}, // a stored answer
		"late":           {late: true, requests: 3, word: "charge_unknown", found: true},              // a time-out, 409, 409
		"then 401":       {acts: []act{actAndHangUp, actAndHangUp, unauthorized}, requests: 3, word: "charge_unknown", found: true},
		"error in a 200": {acts: []act{{say: `{"error":"the bank is slow"}`}}, requests: 3, word: "charge_unknown", found: true},
		"no id":          {acts: []act{{say: `{"ok":true}`}}, requests: 1, word: "charge_unknown", found: true},
		"all requests":   {acts: []act{hangUpAtOnce, hangUpAtOnce, hangUpAtOnce}, requests: 3, word: "charge_unknown"},
		"429":            {acts: []act{tooManyRequests, tooManyRequests, tooManyRequests}, requests: 3, word: "charge_unknown"},
		"422":            {acts: []act{invalid, invalid, invalid}, requests: 3, word: "charge_unknown"},
		"401":            {acts: []act{unauthorized, unauthorized, unauthorized}, requests: 3, word: "charge_unknown"},
	})
}

// TestChargeLostWithoutKey loses the answers of a provider that would charge again at every call.
func TestChargeLostWithoutKey(t *testing.T) {
	t.Parallel()
	testLost(t, withoutKeys, map[string]lost{
		"answer": {acts: []act{actAndHangUp}, requests: 1, word: "charge_unknown", found: true},
		"500":    {acts: []act{actAndFail}, requests: 1, word: "charge_unknown", found: true},
		"late":   {late: true, requests: 1, word: "charge_unknown", found: true},
		// Texts that would speak for a call that never arrived, were they n8n's own.
		"error in a 200": {acts: []act{{say: `{"error":"connect ECONNREFUSED 10.0.0.1:443"}`}}, requests: 1, word: "charge_unknown", found: true},
		"no id":          {acts: []act{{say: `{"id":null,"error":{"message":"401 - unauthorized","httpCode":"401"}}`}}, requests: 1, word: "charge_unknown", found: true},
		"broken":         {acts: []act{{say: `{"id":"ch_`}}, requests: 1, word: "charge_unknown", found: true},
		"request":        {acts: []act{hangUpAtOnce}, requests: 1, word: "charge_unknown"},
		"402":            {acts: []act{cardRefused}, requests: 1, word: "charge_failed"},
		"422":            {acts: []act{invalid}, requests: 1, word: "charge_failed"},
		"401":            {acts: []act{unauthorized}, requests: 1, word: "charge_failed"},
		"429":            {acts: []act{tooManyRequests}, requests: 1, word: "charge_failed"},
	})
}

func testLost(t *testing.T, template string, cases map[string]lost) {
	t.Helper()
	r := newTill(t, template, tillOptions{callTimeoutMS: 4000})
	order := func(name string) string { return "8-" + strings.ReplaceAll(name, " ", "-") }
	each := func(stage string, test func(t *testing.T, tc lost, order string)) {
		t.Run(stage, func(t *testing.T) {
			for name, tc := range cases {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, tc, order(name))
				})
			}
		})
	}
	each("call", func(t *testing.T, tc lost, order string) {
		later, release := actLater(t)
		if tc.late {
			tc.acts = []act{later}
		}
		r.provider.script(order, tc.acts...)
		if tc.word == "" {
			r.told(t, request(order, "a"), http.StatusOK, "completed")
			r.provider.wantRequests(t, order, tc.requests)
			wantReceipt(t, r.waitClaims(t, order, "a completed", "charge completed"), r.provider.wantCharges(t, order, 1))
			return
		}
		r.told(t, request(order, "a"), http.StatusInternalServerError, tc.word)
		r.provider.wantRequests(t, order, tc.requests)
		r.waitClaims(t, order, "a failed", strings.Replace(tc.word, "_", " ", 1))
		if tc.word == "charge_unknown" {
			a := r.told(t, request(order, "a"), http.StatusServiceUnavailable, "unknown")
			if a.Body["code"] != "wait" {
				t.Errorf("the sender is told %v", a.Body)
			}
			r.told(t, request(order, "b"), http.StatusServiceUnavailable, "unknown")
			r.waitClaims(t, order, "a pending", "b pending", "charge unknown")
			r.provider.wantRequests(t, order, tc.requests)
		}
		release()
		if tc.late {
			r.provider.waitCharge(t, order)
		}
	})
	r.reconcile(t)
	each("settle", func(t *testing.T, tc lost, order string) {
		switch {
		case tc.word != "charge_unknown":
		case tc.found:
			id := r.provider.wantCharges(t, order, 1)
			wantReceipt(t, r.waitClaims(t, order, "a pending", "b pending", "charge completed"), id)
		default:
			r.waitClaims(t, order, "a pending", "b pending", "charge failed")
		}
	})
	each("deliver again", func(t *testing.T, tc lost, order string) {
		want, sent := []string{"a completed", "charge completed"}, tc.requests
		if tc.word != "" && !tc.found {
			// How it is paid may be corrected: it is no part of what is charged.
			corrected := request(order, "c")
			corrected["payment_method"] = "pm_2"
			r.told(t, corrected, http.StatusOK, "completed")
			want, sent = append(want, "c completed"), sent+1
		}
		r.told(t, request(order, "a"), http.StatusOK, "completed")
		if tc.word == "charge_unknown" {
			r.told(t, request(order, "b"), http.StatusOK, "completed")
			want = append(want, "b completed")
		}
		r.provider.wantRequests(t, order, sent)
		wantReceipt(t, r.waitClaims(t, order, want...), r.provider.wantCharges(t, order, 1))
	})
}

// TestChargeStoredRefusal has the provider keep its refusal of a card under the key, as Stripe does: the same key gets
// it again although the card is fine now, until a person who has looked gives the claim another key.
func TestChargeStoredRefusal(t *testing.T) {
	t.Parallel()
	r := newTill(t, withKeys, tillOptions{})
	const order = "8-card"
	r.provider.script(order, cardRefused)
	r.told(t, request(order, "a"), http.StatusInternalServerError, "charge_unknown")
	r.provider.wantRequests(t, order, 3)
	r.reconcile(t)
	r.waitClaims(t, order, "a failed", "charge failed")
	r.told(t, request(order, "a"), http.StatusInternalServerError, "charge_unknown")
	claims := r.waitClaims(t, order, "a failed", "charge failed")
	err := shared.holdfast.asOperator(testContext(t), http.MethodPost, "/claims/"+chargeOf(t, claims).ID+"/resolve", map[string]any{
		"status": "failed", "new_provider_key": true, "authorized_by": "e2e", "reason": "the card was refused and is fine now",
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.told(t, request(order, "a"), http.StatusOK, "completed")
	wantReceipt(t, r.waitClaims(t, order, "a completed", "charge completed"), r.provider.wantCharges(t, order, 1))
}
