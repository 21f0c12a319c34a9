//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	templates "holdfast/n8n-templates"
)

// The nodes of the gate that a test changes, as a user changes them.
const (
	webhookNode  = "When an event arrives"
	settingsNode = "Settings"
	claimNode    = "Ask Holdfast whether to go on"
	workNode     = "Do your work (replace this node)"
)

// patience bounds every wait of a test. Nothing is asserted about times; this
// only turns a hang into a failure.
const patience = 2 * time.Minute

// gate is a published copy of the webhook idempotency gate with a destination
// and a wire of its own.
type gate struct {
	n8n         *n8n
	source      string
	path        string
	workflowID  string
	wire        *wire
	destination *destination
}

// gateOptions is what differs between gates.
type gateOptions struct {
	credentialID   string // empty: the right one
	claimTimeoutMS int    // 0: the template's own
	errorWorkflow  string // empty: none
	source         string // empty: one of its own
}

// notConnected leaves the credential as the template has it, with a name that
// this n8n does not know.
const notConnected = "not connected"

var gates atomic.Int64

// newGate makes and publishes a copy of the template: another path, the wire's
// address, a source of its own, and the placeholder replaced by a request to the
// destination. Everything else is as the template has it.
func newGate(t *testing.T, opts gateOptions) *gate {
	t.Helper()
	ctx := testContext(t)
	number := gates.Add(1)
	name := regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(t.Name()), "-")
	g := &gate{
		n8n:         shared.n8n,
		source:      fmt.Sprintf("e2e-%d-%.40s", number, name),
		path:        fmt.Sprintf("gate-%d", number),
		wire:        newWire(t, shared.holdfast.base),
		destination: newDestination(t),
	}
	if opts.source != "" {
		g.source = opts.source
	}
	wf := readTemplate(t, "webhook-idempotency-gate")
	g.rewrite(t, wf, opts)
	if opts.errorWorkflow != "" {
		wf["settings"].(map[string]any)["errorWorkflow"] = opts.errorWorkflow
	}
	g.workflowID = g.n8n.create(t, g.source, wf)
	if err := g.n8n.publish(ctx, g.workflowID, g.path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			g.explain(t)
		}
	})
	return g
}

func readTemplate(t *testing.T, name string) map[string]any {
	t.Helper()
	tmpl, err := templates.Read(name)
	if err != nil {
		t.Fatal(err)
	}
	var wf map[string]any
	if err := json.Unmarshal(tmpl.JSON, &wf); err != nil {
		t.Fatal(err)
	}
	return wf
}

// create makes a workflow under another name and id: the public API makes its own
// id and refuses every other member.
func (n *n8n) create(t *testing.T, name string, wf map[string]any) string {
	t.Helper()
	copied := map[string]any{"name": name, "nodes": wf["nodes"], "connections": wf["connections"], "settings": wf["settings"]}
	var created struct {
		ID string `json:"id"`
	}
	if err := n.api(testContext(t), http.MethodPost, "/workflows", copied, &created); err != nil {
		t.Fatal(err)
	}
	return created.ID
}

// rewrite changes the nodes that a user changes.
func (g *gate) rewrite(t *testing.T, wf map[string]any, opts gateOptions) {
	t.Helper()
	changed := map[string]bool{}
	for _, entry := range wf["nodes"].([]any) {
		n := entry.(map[string]any)
		parameters := n["parameters"].(map[string]any)
		name := n["name"].(string)
		changed[name] = true
		switch name {
		case webhookNode:
			parameters["path"], n["webhookId"] = g.path, g.path
		case settingsNode:
			values := map[string]string{"address": g.wire.url(), "source": g.source}
			for _, entry := range parameters["assignments"].(map[string]any)["assignments"].([]any) {
				field := entry.(map[string]any)
				if value, ok := values[field["name"].(string)]; ok {
					field["value"] = value
				}
			}
		case claimNode:
			if opts.claimTimeoutMS > 0 {
				parameters["options"].(map[string]any)["timeout"] = opts.claimTimeoutMS
			}
		case workNode:
			n["type"], n["typeVersion"] = "n8n-nodes-base.httpRequest", 4.5
			n["parameters"] = map[string]any{
				"method": "POST", "url": g.destination.URL + "/work",
				"sendHeaders": true,
				"headerParameters": map[string]any{"parameters": []any{
					map[string]any{"name": "Idempotency-Key", "value": "={{ $json.provider_key }}"},
				}},
				"sendBody": true, "specifyBody": "json",
				"jsonBody": "={{ JSON.stringify($('" + webhookNode + "').first().json.body) }}",
				"options":  map[string]any{"timeout": 60_000},
			}
		}
		if credentials, ok := n["credentials"].(map[string]any); ok {
			credential := credentials["httpBearerAuth"].(map[string]any)
			switch opts.credentialID {
			case "":
				credential["id"] = credentialID
			case notConnected:
				credential["name"] = "Not there"
			default:
				credential["id"], credential["name"] = opts.credentialID, wrongCredential
			}
		}
	}
	for _, name := range []string{webhookNode, settingsNode, claimNode, workNode} {
		if !changed[name] {
			t.Fatalf("the template has no node %q", name)
		}
	}
}

// answer is what the sender of an event is told.
type answer struct {
	Status int
	Header http.Header
	Body   map[string]any
	err    error
}

// post delivers an event to the gate's webhook as a provider does; headers are names and values in turn.
func (g *gate) post(ctx context.Context, event any, headers ...string) answer {
	raw, err := json.Marshal(event)
	if err != nil {
		return answer{err: err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.n8n.base+"/webhook/"+g.path, bytes.NewReader(raw))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	for pair := range slices.Chunk(headers, 2) {
		req.Header.Set(pair[0], pair[1])
	}
	res, err := client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer res.Body.Close()
	raw, err = io.ReadAll(res.Body)
	if err != nil {
		return answer{err: err}
	}
	a := answer{Status: res.StatusCode, Header: res.Header}
	if err := json.Unmarshal(raw, &a.Body); err != nil {
		a.err = fmt.Errorf("%d: %w in %q", res.StatusCode, err, raw)
	}
	return a
}

// send delivers an event and expects a status.
func (g *gate) send(t *testing.T, event any, want int, headers ...string) answer {
	t.Helper()
	a := g.post(testContext(t), event, headers...)
	if a.err != nil {
		t.Fatal(a.err)
	}
	if a.Status != want {
		t.Fatalf("the sender is told %d %v, want %d", a.Status, a.Body, want)
	}
	return a
}

// sendCopies delivers an event n times at once; the answers come as they arrive.
func (g *gate) sendCopies(t *testing.T, event any, n int) <-chan answer {
	t.Helper()
	ctx := testContext(t)
	answers := make(chan answer, n)
	for range n {
		go func() { answers <- g.post(ctx, event) }()
	}
	return answers
}

// wantRuns waits until as many runs have ended as statuses are given, and
// compares how. Only then is it certain that nothing more reaches the destination.
func (g *gate) wantRuns(t *testing.T, statuses ...string) {
	t.Helper()
	ctx := testContext(t)
	var got []string
	err := g.n8n.await(ctx, func(ctx context.Context) error {
		runs, err := g.n8n.executions(ctx, g.workflowID)
		if err != nil {
			return err
		}
		got = nil
		for _, run := range slices.Backward(runs) {
			got = append(got, run.Status)
		}
		if len(got) < len(statuses) {
			return fmt.Errorf("%d runs have ended, want %d", len(got), len(statuses))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, statuses) {
		t.Errorf("the runs ended as %q, want %q", got, statuses)
	}
}

// wantDeliveries expects that the destination received exactly n requests.
func (g *gate) wantDeliveries(t *testing.T, n int) []delivery {
	t.Helper()
	got := g.destination.deliveries()
	if len(got) != n {
		t.Fatalf("the destination received %d requests, want %d: %s", len(got), n, show(got))
	}
	return got
}

// wantClaim expects that the source has exactly one claim, in this status after
// this many attempts.
func (g *gate) wantClaim(t *testing.T, key, status string, attempt int) claim {
	t.Helper()
	claims, err := shared.holdfast.claims(testContext(t), g.source)
	if err != nil {
		t.Fatal(err)
	}
	if len(claims) != 1 {
		t.Fatalf("%d claims, want one: %s", len(claims), show(claims))
	}
	c := claims[0]
	if c.IdempotencyKey != key || c.Kind != "event" || c.Status != status || c.Attempt != attempt {
		t.Fatalf("the claim is %s, want event %q, %s, attempt %d", show(c), key, status, attempt)
	}
	return c
}

// wantNoClaim expects that Holdfast holds nothing of the source.
func (g *gate) wantNoClaim(t *testing.T) {
	t.Helper()
	claims, err := shared.holdfast.claims(testContext(t), g.source)
	if err != nil {
		t.Fatal(err)
	}
	if len(claims) != 0 {
		t.Fatalf("claims %s, want none", show(claims))
	}
}

// wantResult compares what is stored as the work's result.
func wantResult(t *testing.T, c claim, id string) {
	t.Helper()
	var result struct {
		ID string `json:"id"`
		OK bool   `json:"ok"`
	}
	if err := json.Unmarshal(c.Result, &result); err != nil {
		t.Fatalf("result %s: %v", c.Result, err)
	}
	if result.ID != id || !result.OK || c.ResultID == nil || *c.ResultID != id {
		t.Errorf("the claim is %s, want the result %s", show(c), id)
	}
}

func show(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		return []byte(err.Error())
	}
	return raw
}

// explain prints how the gate's runs went, for a test that has failed.
func (g *gate) explain(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var page any
	if err := g.n8n.api(ctx, http.MethodGet, "/executions?includeData=true&limit=5&workflowId="+g.workflowID, nil, &page); err != nil {
		t.Log(err)
		return
	}
	raw, _ := json.MarshalIndent(page, "", " ") // it was JSON a moment ago
	telling := regexp.MustCompile(`"(lastNodeExecuted|message|description|httpCode)": [^{\[]`)
	seen := map[string]bool{}
	for _, line := range strings.Split(string(raw), "\n") {
		if line = strings.TrimSpace(line); telling.MatchString(line) && !seen[line] {
			seen[line] = true
			t.Log("n8n:", line)
		}
	}
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}
