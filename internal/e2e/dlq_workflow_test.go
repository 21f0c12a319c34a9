//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// lettersOf finds the letters of any workflow.
func lettersOf(workflowID string) func(context.Context) ([]letter, error) {
	return func(ctx context.Context) ([]letter, error) { return shared.holdfast.letters(ctx, workflowID) }
}

func requeue(t *testing.T, l letter) {
	t.Helper()
	if err := shared.holdfast.requeue(testContext(t), l.ID); err != nil {
		t.Fatal(err)
	}
}

// TestDLQWorkflow runs a gate's event again through the gate: the same claim, the
// same Idempotency-Key, one letter whose attempts are the event's.
func TestDLQWorkflow(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared.n8n)
	g := newGate(t, gateOptions{errorWorkflow: r.handlerID})
	r.newWorker(t, workerOptions{workflowID: g.workflowID, workflows: map[string]string{g.workflowID: g.n8n.base + "/webhook/" + g.path}})
	unavailable := respond(http.StatusServiceUnavailable, "application/json", `{"message":"busy"}`)
	g.destination.script(unavailable, unavailable)
	g.send(t, event{"id": "evt-1", "note": "Zoë \"\n"}, http.StatusInternalServerError)

	l := waitLetter(t, lettersOf(g.workflowID), settledAt(1))
	l.want(t, "queued", "transient")
	// The run's end is reported by the error workflow too: it is the same failure, and no worse.
	g.wantRuns(t, "error")
	(&gate{n8n: r.n8n, workflowID: r.handlerID}).wantRuns(t, "success")
	l = waitLetter(t, lettersOf(g.workflowID), settledAt(1))
	l.want(t, "queued", "transient")
	if l.Play != "workflow" {
		t.Fatalf("the letter is to be played as %s", l.Play)
	}

	requeue(t, l)
	l = waitLetter(t, lettersOf(g.workflowID), settledAt(2))
	g.wantClaim(t, "evt-1", "failed", 2)
	g.wantRuns(t, "error", "error")
	(&gate{n8n: r.n8n, workflowID: r.handlerID}).wantRuns(t, "success", "success")
	l = waitLetter(t, lettersOf(g.workflowID), settledAt(2))
	l.want(t, "queued", "transient")

	requeue(t, l)
	l = waitLetter(t, lettersOf(g.workflowID), settledAt(3))
	if l.Status != "resolved" {
		t.Errorf("the letter is %s", show(l))
	}
	wantResult(t, g.wantClaim(t, "evt-1", "completed", 3), "done-3")
	g.wantRuns(t, "error", "error", "success")
	for i, got := range g.wantDeliveries(t, 3) {
		if first := g.destination.deliveries()[0]; got.IdempotencyKey != first.IdempotencyKey || string(got.Event) != string(first.Event) {
			t.Errorf("request %d is %s, first %s", i+1, show(got), show(first))
		}
	}
}

// TestDLQWorkflowKeyInHeader runs an event again whose key stood in a header of
// the delivery: the claim's id takes its place.
func TestDLQWorkflowKeyInHeader(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared.n8n)
	g := newGate(t, gateOptions{errorWorkflow: r.handlerID, source: "github"})
	r.newWorker(t, workerOptions{workflowID: g.workflowID, workflows: map[string]string{g.workflowID: g.n8n.base + "/webhook/" + g.path}})
	g.destination.script(respond(http.StatusServiceUnavailable, "text/plain", `busy`))
	const key = "0b989ba4-242f-11e5-81e1-c7b6966d2516"
	g.send(t, event{"action": "opened"}, http.StatusInternalServerError, "X-GitHub-Delivery", key, "X-GitHub-Event", "issues")
	l := waitLetter(t, lettersOf(g.workflowID), settledAt(1))
	requeue(t, l)
	l = waitLetter(t, lettersOf(g.workflowID), settledAt(2))
	if l.Status != "resolved" {
		t.Errorf("the letter is %s", show(l))
	}
	wantResult(t, g.wantClaim(t, key, "completed", 2), "done-2")
}

// TestDLQWebhookAnswers plays letters to a webhook that answers in all the ways
// that a workflow may. Only what says that the work is done resolves the letter.
func TestDLQWebhookAnswers(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared.n8n)
	const asJSON = "application/json"
	waits := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", asJSON)
		w.Header().Set("Retry-After", "1700")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`{"status":503,"code":"wait","message":"x"}`))
	}
	workflows := map[string]string{}
	workflow := func(name string) string { return r.name + "-" + strings.NewReplacer(" ", "-", ",", "").Replace(name) }
	cases := map[string]struct {
		answer         http.HandlerFunc
		attempt        int
		status, reason string
		due            time.Duration // at least this far away
	}{
		"completed":             {respond(200, asJSON, `{"status":"completed","duplicate":false}`), 2, "resolved", "replayed", 0},
		"completed before":      {respond(200, asJSON, `{"status":"completed","duplicate":true}`), 2, "resolved", "replayed", 0},
		"last node, list":       {respond(200, asJSON, `[{"id":1},{"id":2}]`), 2, "resolved", "replayed", 0},
		"text":                  {respond(200, "text/plain", `thanks`), 2, "resolved", "replayed", 0},
		"in progress":           {respond(200, asJSON, `{"status":"in_progress","duplicate":true}`), 1, "queued", "not_now", 50 * time.Second},
		"review":                {respond(200, asJSON, `{"status":"review","duplicate":true}`), 1, "queued", "not_now", 50 * time.Second},
		"wait":                  {waits, 1, "queued", "not_now", 1690 * time.Second},
		"only started":          {respond(200, asJSON, `{"message":"Workflow was started"}`), 2, "queued", "lease_expired", 0},
		"no decision":           {respond(503, asJSON, `{"status":503,"code":"no_decision","message":"x"}`), 2, "queued", "transient", 100 * time.Second},
		"failed":                {respond(500, asJSON, `{"message":"Error in workflow"}`), 2, "queued", "transient", 100 * time.Second},
		"not published":         {respond(404, asJSON, `{"code":404,"message":"The requested webhook is not registered."}`), 2, "dead", "validation", 0},
		"no key":                {respond(422, asJSON, `{"status":422,"code":"missing_key","message":"x"}`), 2, "dead", "validation", 0},
		"error in a 200":        {respond(200, asJSON, `{"id":1,"error":"x"}`), 2, "dead", "unclassified", 0},
		"hangs up":              {hangUp, 2, "queued", "transient", 100 * time.Second},
		"nobody knows its hook": {nil, 2, "dead", "workflow", 0},
	}
	ctx := testContext(t)
	for name, tc := range cases {
		id := workflow(name)
		if tc.answer != nil {
			workflows[id] = r.destination.URL + "/" + id
			r.destination.scriptPath("/"+id, tc.answer)
		}
		// What a run does that claims its event, and fails.
		claimed := struct {
			LeaseToken string `json:"lease_token"`
		}{}
		err := shared.holdfast.asOperator(ctx, http.MethodPost, "/claim", map[string]any{
			"source": r.name, "idempotency_key": id, "payload": event{"case": name, "note": "Zoë"}, "workflow_id": id, "execution_id": "7",
		}, &claimed)
		if err == nil {
			err = shared.holdfast.asOperator(ctx, http.MethodPost, "/mark-failed", map[string]any{"lease_token": claimed.LeaseToken, "http_status": 503}, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		l := waitLetter(t, lettersOf(id), settledAt(1))
		l.want(t, "queued", "transient")
		requeue(t, l)
	}
	r.newWorker(t, workerOptions{source: r.name, workflows: workflows, leaseSeconds: 6, callTimeoutMS: 3000})
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			id := workflow(name)
			l := waitLetter(t, lettersOf(id), func(l letter) bool {
				return l.Status != "replaying" && l.Reason != "requeued" && l.AttemptCount == tc.attempt
			})
			l.want(t, tc.status, tc.reason)
			if tc.due > 0 && time.Until(*l.NextRetryAt) < tc.due {
				t.Errorf("the letter is due at %v, want %v from now", l.NextRetryAt, tc.due)
			}
			got := r.destination.deliveriesTo("/" + id)
			if tc.answer == nil {
				if want := fmt.Sprintf("no webhook for workflow %s: add it to `workflows`", id); len(got) != 0 || !strings.Contains(l.Message, want) {
					t.Errorf("%d requests; a person reads %q, want %q", len(got), l.Message, want)
				}
				return
			}
			if len(got) != 1 || string(got[0].Event) != string(l.Payload) || got[0].Header.Get("X-Holdfast-Claim-Id") != l.ClaimID || l.ClaimID == "" {
				t.Errorf("the webhook received %s, want the payload %s of claim %s", show(got), l.Payload, l.ClaimID)
			}
		})
	}
}
