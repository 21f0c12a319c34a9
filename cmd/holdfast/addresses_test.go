package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/config"
)

// An address in a report, a claim or a payload is text: nothing is ever asked for there, by whatever name it comes, and
// n8n's API is asked at the configured host only, whatever a report says an execution is.
func TestAddressesAreNotVisited(t *testing.T) {
	t.Parallel()
	var visits atomic.Int64
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		visits.Add(1)
		t.Errorf("%s %s was asked for", r.Method, r.URL)
	}))
	t.Cleanup(inside.Close)
	var mu sync.Mutex
	var asked []string
	n8n := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.URL.EscapedPath())
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"data":[],"nextCursor":null}`))
	}))
	t.Cleanup(n8n.Close)
	cfg := &config.Config{
		Addr: "127.0.0.1:0", DatabaseURL: sqliteURL(t), PublicURL: inside.URL, LogFormat: "text", MaxBody: 1 << 20, SweepInterval: 100 * time.Millisecond,
		File: &config.File{N8N: &config.N8N{URL: n8n.URL, APIKey: "n8n-key-wiring"}},
	}
	m, err := Start(t.Context(), cfg, new(lockedBuffer))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- m.Run(ctx) }()
	p := &program{url: "http://" + m.Addr}

	host := strings.TrimPrefix(inside.URL, "http://")
	addresses := []string{
		inside.URL + "/latest/meta-data", "http://user:pass@" + host + "/", "//" + host, "http://[::ffff:127.0.0.1]" + host[strings.LastIndex(host, ":"):] + "/",
		"http://2130706433" + host[strings.LastIndex(host, ":"):] + "/", "file:///etc/passwd",
	}
	for i, address := range addresses {
		for _, execution := range []any{i + 100, "../../../" + host, inside.URL + "/1", "1@" + host, "%2e%2e/1", "1?x=" + inside.URL} {
			report := map[string]any{
				"execution": map[string]any{
					"id": execution, "url": address, "lastNodeExecuted": "Call", "mode": "webhook",
					"error": map[string]any{"message": "refused by " + address, "httpCode": "429", "context": map[string]any{"request": map[string]any{"method": "GET", "uri": address, "baseURL": address}}},
				},
				"workflow": map[string]any{"id": "wf", "name": address}, "destination": "crm", "target": address, "webhook_url": address,
			}
			status, a := p.call(t, http.MethodPost, "/dlq", report, "")
			if status != http.StatusOK {
				t.Fatalf("/dlq: %d %v", status, a)
			}
			path := "/dlq/" + a["id"].(string)
			decide := map[string]any{"authorized_by": "asha@example.test", "reason": "try it"}
			p.call(t, http.MethodPost, path+"/requeue", decide, "")
			p.call(t, http.MethodGet, path, nil, "")
		}
		claim := map[string]any{"source": "shop", "idempotency_key": address + "#" + string(rune('a'+i)), "payload": map[string]any{"callback_url": address}, "lease_seconds": 1, "workflow_name": address}
		if status, a := p.call(t, http.MethodPost, "/claim", claim, ""); status != http.StatusOK {
			t.Fatalf("/claim: %d %v", status, a)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/dlq/lease", strings.NewReader(`{"limit":100}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(asked) > 0
	})
	eventually(t, func() bool { return len(p.lettersOf(t, "shop")) == len(addresses) }) // the sweeps have had their turn
	cancel()
	if err := <-ran; err != nil {
		t.Errorf("Run: %v", err)
	}
	if n := visits.Load(); n != 0 {
		t.Errorf("%d visits", n)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, path := range asked {
		if path != "/api/v1/executions" && (!strings.HasPrefix(path, "/api/v1/executions/") || strings.ContainsAny(path[len("/api/v1/executions/"):], "/.%@:")) {
			t.Errorf("n8n was asked for %s", path)
		}
	}
}
