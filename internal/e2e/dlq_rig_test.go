//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Parts of the two templates of dead letters that a test changes, as a user
// changes them.
const (
	keepNode     = "Keep it as a dead letter"
	scheduleNode = "Every minute"
	handOverNode = "Hand it to its workflow"
	againNode    = "Send the request again"
)

// dlqRig is a workflow that fails, the error workflow it names, and retry
// workers that take its letters.
type dlqRig struct {
	n8n         *n8n
	name        string
	path        string // of the failing workflow's webhook
	workflowID  string
	handlerID   string
	wire        *wire
	destination *destination
	ids         sync.Map // of the letters found so far, by case
}

// workerOptions is what differs between workers.
type workerOptions struct {
	workflowID    string            // whose letters it takes; empty: of all
	source        string            // likewise
	workflows     map[string]string // as in Settings
	requests      map[string]string
	callTimeoutMS int // 0: the template's own
	leaseSeconds  int // 0: the template's own
}

var rigs atomic.Int64

// newRig publishes copies of the error workflow and of a workflow that sends what
// it receives to the path of the destination that stands in it.
func newRig(t *testing.T, n *n8n) *dlqRig {
	t.Helper()
	number := rigs.Add(1)
	r := &dlqRig{
		n8n: n, name: fmt.Sprintf("dlq-%d", number), path: fmt.Sprintf("fails-%d", number),
		wire: newWire(t, shared.holdfast.base), destination: newDestination(t),
	}
	r.handlerID = r.newHandler(t)
	r.workflowID = n.create(t, r.name, r.failing())
	if err := n.publish(testContext(t), r.workflowID, r.path); err != nil {
		t.Fatal(err)
	}
	return r
}

// failing is the work of somebody who knows nothing of claims.
func (r *dlqRig) failing() map[string]any {
	webhook := map[string]any{
		"id": "event", "name": "Event", "type": "n8n-nodes-base.webhook", "typeVersion": 2.1, "position": []int{0, 0}, "webhookId": r.path,
		"parameters": map[string]any{"httpMethod": "POST", "path": r.path, "responseMode": "onReceived", "options": map[string]any{}},
	}
	call := map[string]any{
		"id": "call", "name": "Call", "type": "n8n-nodes-base.httpRequest", "typeVersion": 4.5, "position": []int{200, 0},
		"parameters": map[string]any{
			"method": "POST", "url": "=" + r.destination.URL + "/{{ $json.body.case }}", "sendHeaders": true,
			"headerParameters": map[string]any{"parameters": []any{map[string]any{"name": "Idempotency-Key", "value": "={{ $json.body.key }}"}}},
			"sendQuery":        true, "queryParameters": map[string]any{"parameters": []any{map[string]any{"name": "shop", "value": "={{ $json.body.shop }}"}}},
			"sendBody": true, "specifyBody": "json", "jsonBody": "={{ JSON.stringify($json.body) }}",
			"options": map[string]any{"timeout": 1500},
		},
	}
	return map[string]any{
		"nodes":       []any{webhook, call},
		"connections": map[string]any{"Event": map[string]any{"main": [][]any{{map[string]any{"node": "Call", "type": "main", "index": 0}}}}},
		"settings":    map[string]any{"executionOrder": "v1", "errorWorkflow": r.handlerID},
	}
}

// newHandler publishes a copy of the error workflow that reports over the wire.
func (r *dlqRig) newHandler(t *testing.T) string {
	t.Helper()
	wf := readTemplate(t, "error-workflow-to-dlq")
	nodes := nodesOf(wf)
	connectCredential(nodes[keepNode])
	nodes[keepNode]["waitBetweenTries"] = 100
	nodes[keepNode]["parameters"].(map[string]any)["url"] = r.wire.url() + "/dlq"
	id := r.n8n.create(t, r.name+" errors", wf)
	if err := r.n8n.activate(testContext(t), id); err != nil {
		t.Fatal(err)
	}
	return id
}

// newWorker publishes a copy of the retry worker that runs each second.
func (r *dlqRig) newWorker(t *testing.T, opts workerOptions) string {
	t.Helper()
	wf := readTemplate(t, "dlq-retry-worker")
	nodes := nodesOf(wf)
	for _, n := range nodes {
		connectCredential(n)
	}
	nodes[scheduleNode]["parameters"] = map[string]any{
		"rule": map[string]any{"interval": []any{map[string]any{"field": "seconds", "secondsInterval": 1}}},
	}
	settings := map[string]any{"address": r.wire.url(), "workflow_id": opts.workflowID, "source": opts.source, "workflows": string(show(opts.workflows)), "requests": string(show(opts.requests))}
	if opts.leaseSeconds > 0 {
		settings["lease_seconds"] = opts.leaseSeconds
	}
	for _, entry := range nodes[settingsNode]["parameters"].(map[string]any)["assignments"].(map[string]any)["assignments"].([]any) {
		field := entry.(map[string]any)
		if value, ok := settings[field["name"].(string)]; ok {
			field["value"] = value
		}
	}
	if opts.callTimeoutMS > 0 {
		for _, name := range []string{handOverNode, againNode} {
			nodes[name]["parameters"].(map[string]any)["options"].(map[string]any)["timeout"] = opts.callTimeoutMS
		}
	}
	id := r.n8n.create(t, r.name+" worker", wf)
	ctx := testContext(t)
	if err := r.n8n.activate(ctx, id); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// A worker that goes on costs the other tests a run each second.
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := r.n8n.api(ctx, "POST", "/workflows/"+id+"/deactivate", map[string]any{}, nil); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			(&gate{n8n: r.n8n, workflowID: id}).explain(t)
		}
	})
	return id
}

// nodesOf gives a template's nodes by name, to be changed in place.
func nodesOf(wf map[string]any) map[string]map[string]any {
	nodes := map[string]map[string]any{}
	for _, entry := range wf["nodes"].([]any) {
		n := entry.(map[string]any)
		nodes[n["name"].(string)] = n
	}
	return nodes
}

// connectCredential does what an import by the command line does.
func connectCredential(n map[string]any) {
	if credentials, ok := n["credentials"].(map[string]any); ok {
		credentials["httpBearerAuth"].(map[string]any)["id"] = credentialID
	}
}

// send delivers an event to the failing workflow.
func (r *dlqRig) send(t *testing.T, event any) {
	t.Helper()
	if err := callJSON(testContext(t), "POST", r.n8n.base+"/webhook/"+r.path, nil, event, nil); err != nil {
		t.Fatal(err)
	}
}

// find gives the letters of the failing workflow whose payload has this case. One
// that was found is looked at by its id: many tests wait at once.
func (r *dlqRig) find(ctx context.Context, name string) (found []letter, err error) {
	if id, ok := r.ids.Load(name); ok {
		l, err := shared.holdfast.letter(ctx, id.(string))
		return []letter{l}, err
	}
	all, err := shared.holdfast.letters(ctx, r.workflowID)
	for _, l := range all {
		var payload struct{ Case string }
		if json.Unmarshal(l.Payload, &payload) == nil && payload.Case == name {
			found = append(found, l)
		}
	}
	if len(found) == 1 {
		r.ids.Store(name, found[0].ID)
	}
	return found, err
}

// wantLetters expects that there are no more letters of the failing workflow than
// the test has looked at: a failure that is heard twice is one.
func (r *dlqRig) wantLetters(t *testing.T, n int) {
	t.Helper()
	all, err := shared.holdfast.letters(testContext(t), r.workflowID)
	if err != nil || len(all) != n {
		t.Errorf("%d letters (%v), want %d: %s", len(all), err, n, show(all))
	}
}

// waitLetter waits until the case has one letter that is so.
func (r *dlqRig) waitLetter(t *testing.T, name string, so func(letter) bool) letter {
	t.Helper()
	return waitLetter(t, func(ctx context.Context) ([]letter, error) { return r.find(ctx, name) }, so)
}

func waitLetter(t *testing.T, find func(context.Context) ([]letter, error), so func(letter) bool) (got letter) {
	t.Helper()
	err := pollEvery(testContext(t), 200*time.Millisecond, func(ctx context.Context) error {
		found, err := find(ctx)
		switch {
		case err != nil:
			return err
		case len(found) != 1:
			return fmt.Errorf("%d letters, want one: %s", len(found), show(found))
		case !so(found[0]):
			return fmt.Errorf("the letter is %s", show(found[0]))
		}
		got = found[0]
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// waitDeliveries waits until n requests have reached the destination, or more.
func waitDeliveries(t *testing.T, d *destination, n int) {
	t.Helper()
	err := poll(testContext(t), func(context.Context) error {
		if got := d.deliveries(); len(got) < n {
			return fmt.Errorf("%d requests, want %d", len(got), n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// settledAt says that the attempt with this number has ended.
func settledAt(attempt int) func(letter) bool {
	return func(l letter) bool { return l.AttemptCount == attempt && l.Status != "replaying" }
}

// want compares where a letter stands.
func (l *letter) want(t *testing.T, status, reason string) {
	t.Helper()
	if l.Status != status || l.Reason != reason {
		t.Fatalf("the letter is %s %q, want %s %q: %s", l.Status, l.Reason, status, reason, show(l))
	}
}

// owners gives the executions that have leased a letter.
func (l *letter) owners() (found []string) {
	for _, a := range l.Attempts {
		if a.Kind == "lease" && a.Owner != "" {
			owner, _, _ := strings.Cut(a.Owner, ":")
			found = append(found, owner)
		}
	}
	return found
}
