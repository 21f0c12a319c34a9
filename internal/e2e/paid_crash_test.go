//go:build e2e

package e2e

import (
	"net/http"
	"testing"
)

// TestChargeCrash kills n8n while charges are under way, which the provider makes all the same. Neither a delivery
// after the restart nor a retry of the crashed run by hand sends a second request: both ask first.
//
// It is without t.Parallel, so that nobody else uses n8n meanwhile.
func TestChargeCrash(t *testing.T) { //nolint:paralleltest // as said
	const order = "6-crash"
	n := shared.n8n
	var tills []*till
	var releases []func()
	for _, template := range []string{withKeys, withoutKeys} {
		r := newTill(t, template, tillOptions{leaseSeconds: 5})
		later, release := actLater(t)
		r.provider.script(order, later)
		r.sendCopies(t, request(order, "a"), 1)
		r.provider.waitRequests(t, order, 1)
		tills, releases = append(tills, r), append(releases, release)
	}
	n.kill()
	for i, r := range tills {
		releases[i]()
		r.provider.waitCharge(t, order)
		r.waitClaims(t, order, "a processing", "charge unknown")
	}
	if err := n.start(testContext(t)); err != nil {
		t.Fatal(err)
	}
	for _, r := range tills {
		ctx := testContext(t)
		if err := n.awaitWebhook(ctx, r.path); err != nil {
			t.Fatal(err)
		}
		r.wantRuns(t, "crashed")
		runs, err := n.executions(ctx, r.workflowID)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.api(ctx, http.MethodPost, "/executions/"+runs[0].ID+"/retry", map[string]any{}, nil); err != nil {
			t.Fatal(err)
		}
		r.told(t, request(order, "a"), http.StatusServiceUnavailable, "unknown")
		r.waitClaims(t, order, "a pending", "charge unknown")
		r.provider.wantRequests(t, order, 1)
		r.reconcile(t)
		r.waitClaims(t, order, "a pending", "charge completed")
		r.told(t, request(order, "a"), http.StatusOK, "completed")
		wantReceipt(t, r.waitClaims(t, order, "a completed", "charge completed"), r.provider.wantCharges(t, order, 1))
		r.provider.wantRequests(t, order, 1)
	}
}
