package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/api"
)

// every calls a route with a body that is as it should be.
func every(t *testing.T, w *world, r api.Route, edits ...edit) answer {
	t.Helper()
	body := ""
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		body = text(t, good[r.Path])
	}
	return w.send(t, r.Method, strings.NewReplacer(":id", anID, ":scope", "all").Replace(r.Path), body, edits...)
}

// needs is who may call what, in the contract's words.
var needs = map[string]string{
	"POST /claim": "workflow", "POST /complete": "workflow", "POST /mark-unknown": "workflow", "POST /mark-failed": "workflow", "POST /extend": "workflow",
	"POST /reconcile/lease": "workflow", "POST /classify": "workflow", "GET /claims": "workflow", "GET /claims/:id": "workflow", "GET /pauses": "workflow", "GET /metrics": "workflow",
	"POST /claims/:id/resolve": "operator", "GET /history": "operator", "PUT /pauses/:scope": "operator", "DELETE /pauses/:scope": "operator",
	"POST /dlq": "workflow", "GET /dlq": "workflow", "GET /dlq/stats": "workflow", "GET /dlq/:id": "workflow", "POST /dlq/lease": "workflow", "POST /dlq/:id/resolve": "workflow",
	"POST /dlq/:id/fail": "workflow", "POST /dlq/:id/extend": "workflow", "POST /dlq/:id/requeue": "operator", "POST /dlq/:id/discard": "operator",
	"POST /replays": "operator", "GET /replays": "operator", "GET /replays/:id": "operator", "POST /replays/:id/approve": "operator", "POST /replays/:id/pause": "operator",
	"POST /replays/:id/cancel": "operator",
	"GET /healthz":             "", "GET /readyz": "", "GET /openapi.yaml": "",
}

// Every route, every caller.
func TestWhoMayCallWhat(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withKeys(bothKeys...))
	if len(api.Routes()) != len(needs) {
		t.Errorf("%d routes, the test knows %d", len(api.Routes()), len(needs))
	}
	for _, r := range api.Routes() {
		at := r.Method + " " + r.Path
		need, known := needs[at]
		if !known || need != r.Role {
			t.Errorf("%s needs %q, want %q", at, r.Role, need)
		}
		for name, c := range map[string]struct {
			edits []edit
			role  string
		}{
			"no key": {nil, ""}, "empty": {[]edit{header("Authorization", "")}, ""}, "wrong": {[]edit{bearer("nobody-has-this")}, ""},
			"bare":  {[]edit{header("Authorization", workflowSecret)}, ""},
			"basic": {[]edit{header("Authorization", "Basic "+workflowSecret)}, ""}, "no secret": {[]edit{header("Authorization", "Bearer ")}, ""},
			"longer": {[]edit{bearer(operatorSecret + "x")}, ""}, "shorter": {[]edit{bearer(operatorSecret[:len(operatorSecret)-1])}, ""},
			"other case": {[]edit{bearer(strings.ToUpper(operatorSecret))}, ""}, "name for secret": {[]edit{bearer("asha")}, ""},
			"in the address": {[]edit{func(r *http.Request) { r.URL.RawQuery = "access_token=" + operatorSecret }}, ""},
			"workflow":       {[]edit{bearer(workflowSecret)}, "workflow"}, "operator": {[]edit{bearer(operatorSecret)}, "operator"},
		} {
			a := every(t, w, r, c.edits...)
			switch {
			case need == "" || c.role == "operator" || need == "workflow" && c.role == "workflow":
				if a.status == 401 || a.status == 403 || a.status >= 500 {
					t.Errorf("%s with %s: %d", at, name, a.status)
				}
			case c.role == "workflow":
				a.refused(t, 403, "forbidden")
			default:
				a.refused(t, 401, "unauthorized")
			}
		}
	}
}

// Without keys every caller is an operator.
func TestNoKeysAtAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, r := range api.Routes() {
		for _, edits := range [][]edit{nil, {bearer("whatever-it-is")}} {
			if a := every(t, w, r, edits...); a.status == 401 || a.status == 403 || a.status >= 500 {
				t.Errorf("%s %s: %d", r.Method, r.Path, a.status)
			}
		}
	}
}

func TestBearerSpelling(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withKeys(bothKeys...))
	for _, value := range []string{"Bearer ", "bearer ", "BEARER ", "Bearer   "} {
		w.get(t, "/claims", header("Authorization", value+workflowSecret)).ok(t)
	}
	for _, value := range []string{"Bearer", "Bearer" + workflowSecret, "Token " + workflowSecret, "Bearer:" + workflowSecret, "Bearer a " + workflowSecret} {
		w.get(t, "/claims", header("Authorization", value)).refused(t, 401, "unauthorized")
	}
}

// Who is not let in is turned away before the body is looked at.
func TestAuthComesFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withKeys(bothKeys...), withMaxBody(1024))
	for _, r := range api.Routes() {
		if r.Method != http.MethodPost && r.Method != http.MethodPut {
			continue
		}
		path := strings.NewReplacer(":id", anID, ":scope", "all").Replace(r.Path)
		for _, body := range []string{"", "{", "\xff", strings.Repeat("[", 20_000), strings.Repeat(" ", 5000)} {
			w.send(t, r.Method, path, body, header("Content-Type", "text/plain"), header("Content-Encoding", "gzip")).refused(t, 401, "unauthorized")
		}
	}
}

// The name of the key stands beside what it did.
func TestKeyNamesAreRecorded(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		as, op := bearer(workflowSecret), bearer(operatorSecret)
		a := w.decides(t, "proceed", and(effect("order-1", "charge"), obj{"owner": "7:0:0", "execution_id": "7"}), as)
		w.clock.advance(time.Second)
		w.post(t, "/mark-unknown", obj{"lease_token": a.text("lease_token"), "error": "timeout", "http_status": 504}, op).ok(t)
		w.clock.advance(time.Second)
		id := a.text("claim_id")
		w.post(t, "/claims/"+id+"/resolve", obj{"status": "failed", "authorized_by": "Asha Otieno", "reason": "not in the dashboard"}, op).ok(t).has(t, obj{"status": "failed", "changed": true})
		claim := w.get(t, "/claims/"+id, as).ok(t)
		history, _ := claim.body["history"].([]any)
		want := []obj{
			{"from": nil, "to": "processing", "attempt": 1, "by": "n8n", "owner": "7:0:0", "execution_id": "7", "at": "2026-11-30T20:00:00Z", "reason": nil},
			{"from": "processing", "to": "unknown", "by": "asha", "http_status": 504, "error_class": "transient", "at": "2026-11-30T20:00:01Z"},
			{"from": "unknown", "to": "failed", "by": "Asha Otieno", "reason": "not in the dashboard", "at": "2026-11-30T20:00:02Z"},
		}
		if len(history) != len(want) {
			t.Fatalf("%d entries in the history, want %d: %s", len(history), len(want), claim.raw)
		}
		for i, entry := range history {
			entry, _ := entry.(obj)
			hasAll(t, entry, want[i])
		}
		for query, n := range map[string]int{"": 3, "?by=n8n": 1, "?by=asha": 1, "?by=Asha%20Otieno": 1, "?by=nobody": 0, "?claim_id=" + id: 3, "?claim_id=" + anID: 0, "?limit=1": 1, "?from=2026-11-30T20:00:01Z": 2, "?to=2026-11-30T20:00:01Z": 1} {
			page := w.get(t, "/history"+query, op).ok(t)
			if items, _ := page.body["items"].([]any); len(items) != n {
				t.Errorf("/history%s gives %d entries, want %d: %s", query, len(items), n, page.raw)
			}
		}
		seen, cursor := 0, ""
		for range 3 {
			page := w.get(t, "/history?limit=1&cursor="+cursor, op).ok(t)
			items, _ := page.body["items"].([]any)
			seen += len(items)
			cursor = fmt.Sprint(page.body["next_cursor"])
		}
		if seen != 3 || cursor != "<nil>" {
			t.Errorf("pages of one gave %d entries and the cursor %s", seen, cursor)
		}
	}, withKeys(bothKeys...))
}
