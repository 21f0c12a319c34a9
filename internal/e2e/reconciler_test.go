//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// unknownEffect makes an effect whose answer was lost.
func unknownEffect(t *testing.T, source, key, step string) (claimID string) {
	t.Helper()
	ctx := testContext(t)
	var held struct {
		ClaimID    string `json:"claim_id"`
		LeaseToken string `json:"lease_token"`
	}
	err := shared.holdfast.asOperator(ctx, http.MethodPost, "/claim", map[string]any{
		"source": source, "idempotency_key": key, "step": step, "destination": "paid", "payload": event{"amount": 5},
	}, &held)
	if err == nil {
		err = shared.holdfast.asOperator(ctx, http.MethodPost, "/mark-unknown", map[string]any{"lease_token": held.LeaseToken, "error": "aborted"}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return held.ClaimID
}

// TestReconcilerAnswers asks a provider that answers in all the ways that a provider may. Only what clearly says so
// settles a claim; all else decides nothing, and keeps nothing from being looked up after it.
func TestReconcilerAnswers(t *testing.T) {
	t.Parallel()
	const asJSON = "application/json"
	elsewhere := func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }
	cases := map[string]struct {
		answer http.HandlerFunc
		status string
		said   string // part of the claim and its history
		step   string // empty: charge
	}{
		"found":              {respond(200, asJSON, `{"data":[{"id":"ch_7","amount":5}],"has_more":false}`), "completed", `"result_id":"ch_7"`, ""},
		"found by a number":  {respond(200, asJSON, `{"data":[{"id":7007}]}`), "completed", `"result_id":"7007"`, ""},
		"not found":          {respond(200, asJSON, `{"data":[],"has_more":false}`), "failed", "has nothing under this key", ""},
		"not found, as told": {respond(404, asJSON, `{"error":{"message":"No such charge"}}`), "failed", "has nothing under this key", ""},
		"more to come":       {respond(200, asJSON, `{"data":[],"has_more":true}`), "unknown", "did not say", ""},
		"two":                {respond(200, asJSON, `{"data":[{"id":"ch_1"},{"id":"ch_2"}]}`), "unknown", "2 charges carry this key", ""},
		"no id":              {respond(200, asJSON, `{"data":[{"amount":5}]}`), "unknown", "did not say", ""},
		"empty id":           {respond(200, asJSON, `{"data":[{"id":""}]}`), "unknown", "did not say", ""},
		"an empty object":    {respond(200, asJSON, `{}`), "unknown", "did not say", ""},
		"nothing in data":    {respond(200, asJSON, `{"data":null}`), "unknown", "did not say", ""},
		"no list":            {respond(200, asJSON, `{"data":{}}`), "unknown", "did not say", ""},
		"an error in a 200":  {respond(200, asJSON, `{"error":"try again"}`), "unknown", "did not say", ""},
		"a web page":         {respond(200, "text/html", `<h1>Welcome</h1>`), "unknown", "did not say", ""},
		"nothing":            {respond(204, "", ``), "unknown", "did not say", ""},
		"broken":             {respond(200, asJSON, `{"data":[]`), "unknown", "did not say", ""},
		"a redirect":         {elsewhere, "unknown", "happened: 302", ""},
		"401":                {respond(401, asJSON, `{"error":{"message":"Invalid API Key"}}`), "unknown", "Invalid API Key", ""},
		"429":                {retryLater(429, "7"), "unknown", "happened: 429", ""},
		"503":                {respond(503, asJSON, `{"data":[]}`), "unknown", "happened: 503", ""},
		"silence":            {silent, "unknown", "timeout", ""},
		"hang up":            {hangUp, "unknown", "hang up", ""},
		"nowhere to ask":     {nil, "unknown", "no look-up for destination paid or step other", "other"},
		"away":               {nil, "unknown", "ECONNREFUSED", "away"},
		"wrong settings":     {respond(200, asJSON, `{"data":[]}`), "unknown", "Cannot convert", "wrong"},
	}
	d := newDestination(t)
	source := fmt.Sprintf("answers-%d", gates.Add(1))
	keyOf := strings.NewReplacer(" ", "-", ",", "")
	ids := map[string]string{}
	for name, tc := range cases {
		if tc.answer != nil {
			d.scriptPath("/look/"+keyOf.Replace(name), tc.answer)
		}
		ids[name] = unknownEffect(t, source, keyOf.Replace(name), cmp.Or(tc.step, "charge"))
	}
	lookup := func(notFound any) map[string]any {
		return map[string]any{"url": d.URL + "/look/{idempotency_key}", "query": map[string]string{"key": "'{provider_key}'"}, "found": "data.0.id", "not_found": notFound}
	}
	away := lookup([]int{404})
	away["url"] = "http://127.0.0.1:1/"
	newReconciler(t, newWire(t, shared.holdfast.base), source, map[string]any{"charge": lookup([]int{404}), "wrong": lookup(404), "away": away}, func(nodes map[string]map[string]any) {
		parameters(nodes[askNode])["options"].(map[string]any)["timeout"] = 1500
	})
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var c struct {
				claim
				ProviderKey string `json:"provider_key"`
				History     []struct {
					Message, Reason string
				} `json:"history"`
			}
			err := pollEvery(testContext(t), 200*time.Millisecond, func(ctx context.Context) error {
				if err := shared.holdfast.asOperator(ctx, http.MethodGet, "/claims/"+ids[name], nil, &c); err != nil {
					return err
				}
				if !strings.Contains(string(show(c)), tc.said) {
					return fmt.Errorf("nothing says %q in %s", tc.said, show(c))
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if c.Status != tc.status {
				t.Errorf("the claim is %s, want it %s", show(c), tc.status)
			}
			if c.Status == "completed" && !strings.Contains(string(c.Result), `"id":`) {
				t.Errorf("the claim is %s, want the receipt", show(c))
			}
			got := d.deliveriesTo("/look/" + c.IdempotencyKey)
			query := url.Values{"key": {"'" + c.ProviderKey + "'"}}.Encode()
			if tc.answer == nil {
				if len(got) > 0 {
					t.Errorf("the provider was asked: %s", show(got))
				}
			} else if len(got) == 0 || got[0].Method != http.MethodGet || got[0].Query != query {
				t.Errorf("the provider was asked with %s for the key %s", show(got), c.ProviderKey)
			}
		})
	}
	if got := d.deliveriesTo("/elsewhere"); len(got) > 0 {
		t.Errorf("a redirect was followed: %s", show(got))
	}
}
