//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// The templates for paid calls, and the nodes of them that a test changes, as a user does.
const (
	withKeys    = "paid-api-charge"
	withoutKeys = "paid-api-charge-no-key"
	callNode    = "Call the paid API"
	restNode    = "Do the rest (replace this node)"
	everyNode   = "Every 5 minutes"
	askNode     = "Ask the provider"
)

// both runs a test with each template.
func both(t *testing.T, test func(t *testing.T, template string)) {
	t.Helper()
	for _, template := range []string{withKeys, withoutKeys} {
		t.Run(template, func(t *testing.T) {
			t.Parallel()
			test(t, template)
		})
	}
}

// till is a published copy of a template for paid calls, with a provider and a wire of its own.
type till struct {
	*gate
	provider *provider
	spot     string   // the destination's name in Holdfast
	runs     []string // how those ended that a test has looked at
}

type tillOptions struct {
	spot          string // empty: paid
	leaseSeconds  int    // 0: the template's own
	callTimeoutMS int    // 0: the template's own
	errorWorkflow string // empty: none
	rest          string // address that the rest of the work is sent to; empty: the placeholder stays
	change        func(settings map[string]any, nodes map[string]map[string]any)
}

func newTill(t *testing.T, template string, opts tillOptions) *till {
	t.Helper()
	number := gates.Add(1)
	r := &till{
		gate:     &gate{n8n: shared.n8n, source: fmt.Sprintf("till-%d", number), path: fmt.Sprintf("till-%d", number), wire: newWire(t, shared.holdfast.base)},
		provider: newProvider(t), spot: opts.spot,
	}
	r.provider.keyless = template == withoutKeys
	if r.spot == "" {
		r.spot = "paid"
	}
	wf := readTemplate(t, template)
	nodes := nodesOf(wf)
	for _, n := range nodes {
		connectCredential(n)
	}
	nodes[webhookNode]["webhookId"] = r.path
	parameters(nodes[webhookNode])["path"] = r.path
	settings := map[string]any{"address": r.wire.url(), "source": r.source, "destination": r.spot, "charge_url": r.provider.URL + "/v1/charges"}
	if opts.leaseSeconds > 0 {
		settings["lease_seconds"] = opts.leaseSeconds
	}
	if opts.callTimeoutMS > 0 {
		parameters(nodes[callNode])["options"].(map[string]any)["timeout"] = opts.callTimeoutMS
	}
	if opts.rest != "" {
		nodes[restNode]["type"], nodes[restNode]["typeVersion"] = "n8n-nodes-base.httpRequest", 4.5
		nodes[restNode]["parameters"] = map[string]any{
			"method": "POST", "url": opts.rest, "sendBody": true, "specifyBody": "json", "jsonBody": "={{ JSON.stringify({ charge: $json.result_id }) }}",
			"options": map[string]any{"timeout": 10_000},
		}
	}
	if opts.change != nil {
		opts.change(settings, nodes)
	}
	if opts.errorWorkflow != "" {
		wf["settings"].(map[string]any)["errorWorkflow"] = opts.errorWorkflow
	}
	fillSettings(t, nodes[settingsNode], settings)
	r.workflowID = r.n8n.create(t, r.source, wf)
	if err := r.n8n.publish(testContext(t), r.workflowID, r.path); err != nil {
		t.Fatal(err)
	}
	explainFailure(t, r.gate)
	return r
}

func parameters(n map[string]any) map[string]any { return n["parameters"].(map[string]any) }

// fillSettings changes fields of the node Settings.
func fillSettings(t *testing.T, n map[string]any, values map[string]any) {
	t.Helper()
	filled := 0
	for _, entry := range parameters(n)["assignments"].(map[string]any)["assignments"].([]any) {
		field := entry.(map[string]any)
		if value, ok := values[field["name"].(string)]; ok {
			field["value"] = value
			filled++
		}
	}
	if filled != len(values) {
		t.Fatalf("Settings has %d of the fields %v", filled, values)
	}
}

func explainFailure(t *testing.T, g *gate) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			g.explain(t)
		}
	})
}

// newReconciler publishes a copy of the reconciler that runs every other second, for one source.
func newReconciler(t *testing.T, w *wire, source string, lookups map[string]any, change func(nodes map[string]map[string]any)) {
	t.Helper()
	wf := readTemplate(t, "reconciler")
	nodes := nodesOf(wf)
	for _, n := range nodes {
		connectCredential(n)
	}
	nodes[everyNode]["parameters"] = map[string]any{"rule": map[string]any{"interval": []any{map[string]any{"field": "seconds", "secondsInterval": 2}}}}
	fillSettings(t, nodes[settingsNode], map[string]any{"address": w.url(), "source": source, "lookups": string(show(lookups))})
	if change != nil {
		change(nodes)
	}
	n := shared.n8n
	id := n.create(t, source+" reconciler", wf)
	ctx := testContext(t)
	if err := n.activate(ctx, id); err != nil {
		t.Fatal(err)
	}
	explainFailure(t, &gate{n8n: n, workflowID: id})
	t.Cleanup(func() {
		// One that goes on costs the other tests a run each second.
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := n.api(ctx, "POST", "/workflows/"+id+"/deactivate", map[string]any{}, nil); err != nil {
			t.Error(err)
		}
	})
}

// searchAt is the template's own way to look a charge up, at a provider of the test's own.
func searchAt(url string) map[string]any {
	return map[string]any{"url": url + "/v1/charges/search", "query": map[string]string{"query": "metadata['provider_key']:'{provider_key}'"}, "found": "data.0.id", "not_found": []int{}}
}

func (r *till) reconcile(t *testing.T) {
	t.Helper()
	newReconciler(t, r.wire, r.source, map[string]any{r.spot: searchAt(r.provider.URL)}, nil)
}

// request is an event that asks for the charge of an order; name tells it from others for the same order.
func request(order, name string) event {
	return event{"id": order + "-" + name, "order_id": order, "amount": 1200, "currency": "kes", "payment_method": "pm_1", "note": "Zoë says \"hi\"\n{{ 1 + 1 }}"}
}

// waitClaims waits until an order has exactly these claims: "NAME status" of the event with that name, and "charge
// status" of its charge.
func (r *till) waitClaims(t *testing.T, order string, want ...string) (claims []claim) {
	t.Helper()
	slices.Sort(want)
	err := pollEvery(testContext(t), 100*time.Millisecond, func(ctx context.Context) error {
		all, err := shared.holdfast.claims(ctx, r.source)
		if err != nil {
			return err
		}
		var got []string
		claims = nil
		for _, c := range all {
			name, ours := strings.CutPrefix(c.IdempotencyKey, order+"-")
			if c.Step == "charge" {
				name, ours = "charge", c.IdempotencyKey == "order-"+order
			}
			if ours {
				got, claims = append(got, name+" "+c.Status), append(claims, c)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("the claims are %q, want %q", got, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return claims
}

// chargeOf gives the claim of the charge.
func chargeOf(t *testing.T, claims []claim) claim {
	t.Helper()
	i := slices.IndexFunc(claims, func(c claim) bool { return c.Step == "charge" })
	if i < 0 {
		t.Fatalf("no charge among %s", show(claims))
	}
	return claims[i]
}

// wantReceipt expects that the charge's claim names the charge that the provider made.
func wantReceipt(t *testing.T, claims []claim, id string) {
	t.Helper()
	var kept charge
	c := chargeOf(t, claims)
	if err := json.Unmarshal(c.Result, &kept); err != nil || kept.ID != id || c.ResultID == nil || *c.ResultID != id {
		t.Errorf("the claim is %s, want the receipt %s", show(c), id)
	}
}

// told delivers an event and expects the status and, in the answer, the word that says why.
func (r *till) told(t *testing.T, event any, status int, word string) answer {
	t.Helper()
	a := r.send(t, event, status)
	if a.Body["status"] != word && a.Body["code"] != word && a.Body["charge"] != word {
		t.Errorf("the sender is told %v, want %s", a.Body, word)
	}
	return a
}

// newRuns waits until as many runs have ended as statuses are given since it was last called, and compares how.
func (r *till) newRuns(t *testing.T, statuses ...string) {
	t.Helper()
	r.runs = append(r.runs, statuses...)
	r.wantRuns(t, r.runs...)
}
