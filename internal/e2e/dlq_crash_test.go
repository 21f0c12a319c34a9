//go:build e2e

package e2e

import (
	"testing"
)

// TestDLQCrash kills n8n while a worker waits for its destination and while a
// gate does its work. Nothing is lost and nothing is taken for done: both letters
// come due again, and what reaches the destinations has the same key each time.
//
// It is the one test without t.Parallel, so that nobody else uses n8n meanwhile.
func TestDLQCrash(t *testing.T) { //nolint:paralleltest // as said
	n := shared.n8n
	r := newRig(t, n)
	g := newGate(t, gateOptions{errorWorkflow: r.handlerID})
	r.destination.scriptPath("/a", retryLater(429, "1"))
	r.send(t, map[string]any{"case": "a", "key": "k-1"})
	l := r.waitLetter(t, "a", settledAt(1))
	requeue(t, l)
	release := r.destination.hold(t)
	r.newWorker(t, workerOptions{workflowID: r.workflowID, requests: map[string]string{r.workflowID: r.destination.URL + "/*"}, leaseSeconds: 3})
	releaseGate := g.destination.hold(t)
	g.sendCopies(t, event{"id": "evt-1"}, 1)
	waitDeliveries(t, r.destination, 2)
	waitDeliveries(t, g.destination, 1)

	n.kill()
	release()
	releaseGate()
	l = r.waitLetter(t, "a", settledAt(2))
	l.want(t, "queued", "lease_expired")
	g.wantClaim(t, "evt-1", "processing", 1)

	if err := n.start(testContext(t)); err != nil {
		t.Fatal(err)
	}
	// n8n finds its interrupted runs and has the error workflow report them.
	event := waitLetter(t, lettersOf(g.workflowID), settledAt(1))
	if event.Status != "queued" && event.Status != "dead" || event.Play != "workflow" {
		t.Errorf("the event's letter is %s", show(event))
	}
	g.wantClaim(t, "evt-1", "failed", 1)
	requeue(t, event)
	r.newWorker(t, workerOptions{workflowID: g.workflowID, workflows: map[string]string{g.workflowID: n.base + "/webhook/" + g.path}})
	requeue(t, l)

	l = r.waitLetter(t, "a", settledAt(3))
	l.want(t, "resolved", "replayed")
	event = waitLetter(t, lettersOf(g.workflowID), settledAt(2))
	if event.Status != "resolved" {
		t.Errorf("the event's letter is %s", show(event))
	}
	wantResult(t, g.wantClaim(t, "evt-1", "completed", 2), "done-2")
	for _, d := range []*destination{r.destination, g.destination} {
		got := d.deliveries()
		for _, one := range got {
			if one.IdempotencyKey == "" || one.IdempotencyKey != got[0].IdempotencyKey {
				t.Errorf("another key: %s", show(got))
			}
		}
	}
	if got := r.destination.deliveries(); len(got) != 3 {
		t.Errorf("the worker's destination received %d requests, want 3", len(got))
	}
	g.wantDeliveries(t, 2)
}
