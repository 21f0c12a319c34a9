//go:build e2e

package e2e

import (
	"net/http"
	"testing"
	"time"
)

// TestChargeByItself has nobody deliver again: the answer is lost, the reconciler finds the charge, and the retry
// worker runs the event to its end.
func TestChargeByItself(t *testing.T) {
	t.Parallel()
	const order = "9-alone"
	rig := newRig(t, shared.n8n)
	r := newTill(t, withKeys, tillOptions{errorWorkflow: rig.handlerID})
	r.provider.script(order, actAndHangUp, actAndHangUp, actAndHangUp)
	r.told(t, request(order, "a"), http.StatusInternalServerError, "charge_unknown")
	// The red run is reported by the error workflow too: it is the same failure, and no worse.
	(&gate{n8n: r.n8n, workflowID: rig.handlerID}).wantRuns(t, "success")
	l := waitLetter(t, lettersOf(r.workflowID), settledAt(1))
	l.want(t, "queued", "transient")

	// A letter whose run has left a charge unknown is handed out to nobody.
	rig.newWorker(t, workerOptions{source: r.source, workflows: map[string]string{r.workflowID: r.n8n.base + "/webhook/" + r.path}})
	requeue(t, l)
	r.reconcile(t)
	l = waitLetter(t, lettersOf(r.workflowID), settledAt(2))
	l.want(t, "resolved", "completed")
	wantReceipt(t, r.waitClaims(t, order, "a completed", "charge completed"), r.provider.wantCharges(t, order, 1))
	r.provider.wantRequests(t, order, 3)
	r.wantRuns(t, "error", "success")
}

// TestReconcilerPatience has a provider whose search finds a charge late, and asks it too early: "not found" counts
// only when not_found_after is over, and by then what was charged is found.
func TestReconcilerPatience(t *testing.T) {
	t.Parallel()
	const charged, lost = "9-charged", "9-lost"
	r := newTill(t, withoutKeys, tillOptions{spot: "paid-patient"})
	r.provider.lag = 20 * time.Second
	r.provider.script(charged, actAndHangUp)
	r.provider.script(lost, hangUpAtOnce)
	for _, order := range []string{charged, lost} {
		r.told(t, request(order, "a"), http.StatusInternalServerError, "charge_unknown")
	}
	r.reconcile(t)
	wantReceipt(t, r.waitClaims(t, charged, "a failed", "charge completed"), r.provider.wantCharges(t, charged, 1))
	r.waitClaims(t, lost, "a failed", "charge failed")
	for _, order := range []string{charged, lost} {
		r.told(t, request(order, "a"), http.StatusOK, "completed")
		wantReceipt(t, r.waitClaims(t, order, "a completed", "charge completed"), r.provider.wantCharges(t, order, 1))
	}
	r.provider.wantRequests(t, charged, 1)
	r.provider.wantRequests(t, lost, 2)
}
