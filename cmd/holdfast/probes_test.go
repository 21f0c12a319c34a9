package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// sent claims a push, and loses its answer.
func (p *program) sent(t *testing.T, key, reference string) (claimID string) {
	t.Helper()
	_, a := p.call(t, http.MethodPost, "/claim", push(key), "")
	lost := map[string]any{"lease_token": a["lease_token"], "error": map[string]any{"message": "invalid remote response"}, "reference": reference}
	if status, a := p.call(t, http.MethodPost, "/mark-unknown", lost, ""); status != http.StatusOK || a["status"] != "unknown" {
		t.Fatalf("/mark-unknown: %d %v", status, a)
	}
	claimID, _ = a["claim_id"].(string)
	return claimID
}

func push(key string) map[string]any {
	return map[string]any{"source": "pesa", "idempotency_key": key, "step": "stk"}
}

func (p *program) pushDecides(t *testing.T, key, want string) map[string]any {
	t.Helper()
	status, a := p.call(t, http.MethodPost, "/claim", push(key), "")
	if status != http.StatusOK || a["decision"] != want {
		t.Fatalf("/claim of %s: %d %v, want %s", key, status, a, want)
	}
	return a
}

// said is the newest entry of a claim's history.
func (p *program) said(t *testing.T, id string) map[string]any {
	t.Helper()
	_, a := p.call(t, http.MethodGet, "/claims/"+id, nil, "")
	history, _ := a["history"].([]any)
	if len(history) == 0 {
		t.Fatalf("%v", a)
	}
	last, _ := history[len(history)-1].(map[string]any)
	return last
}

// The real program asks a destination when a claim is touched and by itself; a callback settles what the look-up could
// not, and wins over what it said (F044, F046).
func TestProbesOfTheProgram(t *testing.T) {
	t.Parallel()
	const key = "sk_live_probe_wiring"
	psp := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Header.Get("Authorization") != "Bearer "+key:
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/query/ws_CO_paid":
			_, _ = io.WriteString(w, `{"receipt":"QK1"}`)
		case r.URL.Path == "/query/ws_CO_open":
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"errorMessage":"The transaction is being processed"}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(psp.Close)
	path := configFile(t, fmt.Sprintf(`sources:
  pesa: {ask_after: 0s, not_found_after: 0s}
probes:
  pesa: {url: "%s/query/{reference}", headers: {Authorization: "Bearer ${PSP_KEY}"}, found: receipt, not_found: [404]}
allow_private: ["127.0.0.1"]
`, psp.URL))
	env := []string{"HOLDFAST_DATABASE_URL=" + sqliteURL(t), "HOLDFAST_CONFIG=" + path, "PSP_KEY=" + key, "HOLDFAST_SWEEP_INTERVAL=100ms"}
	if code, _, errs := command(t, env, "check-config"); code != 0 {
		t.Fatalf("check-config: %s", errs)
	}
	p := start(t, env...)
	paid := p.sent(t, "inv-1", "ws_CO_paid")
	if a := p.pushDecides(t, "inv-1", "completed"); a["result_id"] != "QK1" {
		t.Errorf("%v", a)
	}
	if last := p.said(t, paid); last["by"] != "probe:pesa" || last["message"] != "probe pesa: found" {
		t.Errorf("%v", last)
	}
	first := p.sent(t, "inv-2", "ws_CO_nothing")
	if a := p.pushDecides(t, "inv-2", "proceed"); a["attempt"] != 2.0 || a["claim_id"] != first {
		t.Errorf("%v", a)
	}
	open := p.sent(t, "inv-9", "ws_CO_open")
	for range 3 {
		p.pushDecides(t, "inv-9", "unknown") // no second prompt
	}
	if last := p.said(t, open); last["message"] != "probe pesa: it answers 500" || last["http_status"] != 500.0 {
		t.Errorf("%v", last)
	}
	eventually(t, func() bool {
		text := metricsOf(t, p)
		return strings.Contains(text, `holdfast_claims{status="unknown"} 1`) && strings.Contains(text, "holdfast_unknown_oldest_seconds ")
	})
	cancelled := p.sent(t, "inv-10", "ws_CO_cancelled")
	eventually(t, func() bool { return p.said(t, cancelled)["to"] == "failed" }) // by its loop
	for _, reference := range []string{"ws_CO_open", "ws_CO_cancelled"} {
		callback := map[string]any{"source": "pesa", "reference": reference, "result_id": "QK-" + reference, "result": map[string]any{"ResultCode": 0}}
		if status, a := p.call(t, http.MethodPost, "/complete", callback, ""); status != http.StatusOK || a["status"] != "completed" {
			t.Errorf("/complete: %d %v", status, a)
		}
	}
	p.pushDecides(t, "inv-9", "completed")
	p.pushDecides(t, "inv-10", "completed")
	p.stop(t)
	if strings.Contains(p.log(), key) {
		t.Error("the log holds the key")
	}
}

// No name leads inside (F122): what it resolves to is judged when it is dialled.
func TestProbesStayOutside(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	t.Cleanup(inside.Close)
	config := func(url, more string) string {
		return configFile(t, "sources:\n  pesa: {ask_after: 0s}\nprobes:\n  stk: {url: \""+url+"/{reference}\", found: id}\n"+more)
	}
	const others = "allow_private: [\"10.0.0.0/8\", \"169.254.169.254\", \"::1\"]\n" // the name's other address
	named := strings.Replace(inside.URL, "127.0.0.1", "localhost", 1)
	p := start(t, "HOLDFAST_DATABASE_URL="+sqliteURL(t), "HOLDFAST_CONFIG="+config(named, others))
	id := p.sent(t, "inv-1", "ws_CO_1")
	p.pushDecides(t, "inv-1", "unknown")
	eventually(t, func() bool {
		message, _ := p.said(t, id)["message"].(string)
		return strings.HasPrefix(message, "probe stk: it") // its address is not public, or refuses the connection
	})
	p.stop(t)
	if n := calls.Load(); n != 0 {
		t.Errorf("%d requests reached it", n)
	}
	for url, want := range map[string]string{
		inside.URL: "probes.stk.url", named: "probes.stk.url", "http://169.254.169.254/latest": "probes.stk.url", "http://[::ffff:10.0.0.1]": "probes.stk.url", "file:///etc/passwd": "line 4: probes.stk.url",
		"http://{reference}": "line 4: probes.stk.url",
	} {
		path := config(url, "")
		refused(t, want, "HOLDFAST_CONFIG="+path)
		if code, _, errs := command(t, []string{"HOLDFAST_CONFIG=" + path}, "check-config"); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("check-config: exit %d: %s", code, errs)
		}
	}
}
