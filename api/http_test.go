package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"holdfast/api"
)

// A caller's id is repeated where it is harmless to print, else there is a new one.
func TestRequestIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"req-1", "0a9c3b5e-1111-4222-8333-944455556666", "A.b_c"} {
		a := w.get(t, "/claims/x", header("X-Request-Id", id)).refused(t, 404, "not_found").has(t, obj{"request_id": id})
		if a.header.Get("X-Request-Id") != id {
			t.Errorf("the header is %q", a.header.Get("X-Request-Id"))
		}
	}
	for _, id := range []string{"", strings.Repeat("a", 500), "a b", `"><script>`, "a\tb", "{{ $execution.id }}", "\u00e9"} {
		a := w.get(t, "/claims/x", header("X-Request-Id", id)).refused(t, 404, "not_found")
		if got := a.text("request_id"); got == id || got == "" || strings.ContainsAny(got, " <>\"\t{") {
			t.Errorf("the id %q became %q", id, got)
		}
	}
	first, second := w.get(t, "/claims/x").text("request_id"), w.get(t, "/claims/x").text("request_id")
	if first == second {
		t.Errorf("two requests have the id %s", first)
	}
}

// What is not served is 404 as JSON, whoever asks.
func TestUnknownRoutes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withKeys(bothKeys...))
	for _, path := range []string{"/", "/claim/", "/CLAIM", "/v1/claim", "/claims/" + anID + "/delete", "/favicon.ico", "/.env", "/claims/..%2f..%2fetc", "/%00", "/pauses/a/b", "/debug/pprof/"} {
		for _, method := range []string{"GET", "POST"} {
			if a := w.send(t, method, path, "{}"); a.status != 404 && a.status != 401 {
				t.Errorf("%s %s: %d, want 404", method, path, a.status)
			}
		}
	}
	for _, r := range api.Routes() {
		path := strings.NewReplacer(":id", anID, ":scope", "all").Replace(r.Path)
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND", "BREW"} {
			if _, served := needs[method+" "+r.Path]; !served {
				w.send(t, method, path, "{}", bearer(operatorSecret)).refused(t, 404, "not_found")
			}
		}
	}
}

// HEAD and OPTIONS neither break nor act, and nothing invites a browser of another site in.
func TestHeadAndOptions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withKeys(bothKeys...))
	for _, r := range api.Routes() {
		path := strings.NewReplacer(":id", anID, ":scope", "all").Replace(r.Path)
		for _, method := range []string{http.MethodHead, http.MethodOptions} {
			a := w.send(t, method, path, "", header("Origin", "https://evil.example.test"), header("Access-Control-Request-Method", "POST"))
			if a.status >= 500 || method == http.MethodHead && len(a.raw) > 0 {
				t.Errorf("%s %s: %d with %d bytes", method, path, a.status, len(a.raw))
			}
			if a.header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s %s lets other sites in", method, path)
			}
		}
	}
	w.get(t, "/claims", bearer(operatorSecret)).ok(t).has(t, obj{"items": "[]"})
}

// What n8n's HTTP Request node sends: names in lower case, a long Accept, no keep-alive.
func TestAsN8nSends(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		sent := text(t, and(key("from-n8n-1"), obj{"payload": obj{"note": "Zo\u00eb \u65e5\u672c"}, "owner": "86:0:0"}))
		for i, decision := range []string{"proceed", "proceed", "in_progress"} {
			if i == 2 {
				sent = strings.Replace(sent, "86:0:0", "88:0:0", 1)
			}
			status, got, body := raw(t, w, "POST /claim HTTP/1.1\r\nhost: holdfast.test:8088\r\naccept: application/json,text/html,application/xhtml+xml,application/xml,text/*;q=0.9, image/*;q=0.8, */*;q=0.7\r\n"+
				"user-agent: n8n\r\ncontent-type: application/json\r\nauthorization: Bearer "+workflowSecret+"\r\naccept-encoding: gzip, compress, deflate, br\r\nconnection: close\r\ncontent-length: "+fmt.Sprint(len(sent))+"\r\n\r\n"+sent, false)
			var a obj
			if err := json.Unmarshal([]byte(body), &a); err != nil || status != 200 || a["decision"] != decision {
				t.Errorf("%d %v %s, want %s", status, err, body, decision)
			}
			if got.Get("Content-Type") != "application/json" || got.Get("Content-Encoding") != "" {
				t.Errorf("headers %v", got)
			}
		}
	}, withKeys(bothKeys...))
}

// The document is served as it is embedded, to everybody.
func TestOpenAPIIsServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withKeys(bothKeys...))
	if a := w.get(t, "/openapi.yaml").ok(t); string(a.raw) != string(api.OpenAPI()) {
		t.Error("another document is served")
	}
	w.get(t, "/healthz").ok(t)
	w.get(t, "/readyz").ok(t)
}

// Claims are counted by decision, and no label tells of a key or a payload.
func TestMetrics(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withKeys(bothKeys...))
	as := bearer(workflowSecret)
	body := obj{"source": "shop", "account": "acct-secretive", "idempotency_key": "metrics-key-1", "payload": obj{"note": "metrics-payload"}, "workflow_id": "wfMetrics"}
	a := w.decides(t, "proceed", body, as)
	w.decides(t, "in_progress", body, as)
	w.decides(t, "in_progress", body, as)
	w.get(t, "/no-such-route-xyz", as)
	w.get(t, "/claims/"+a.text("claim_id"), as).ok(t)
	got := string(w.get(t, "/metrics", as).ok(t).raw)
	counted := map[string]string{}
	for _, line := range strings.Split(got, "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		for _, decision := range []string{"proceed", "in_progress"} {
			if strings.Contains(line, `decision="`+decision+`"`) {
				counted[decision] = line[strings.LastIndex(line, " ")+1:]
			}
		}
	}
	if counted["proceed"] != "1" || counted["in_progress"] != "2" {
		t.Errorf("claims by decision: %v, want 1 proceed and 2 in_progress", counted)
	}
	for _, secret := range []string{"metrics-key-1", "metrics-payload", "acct-secretive", "wfMetrics", a.text("claim_id"), a.text("lease_token"), "no-such-route-xyz", workflowSecret, a.text("provider_key")} {
		if strings.Contains(got, secret) {
			t.Errorf("the metrics hold %q", secret)
		}
	}
}
