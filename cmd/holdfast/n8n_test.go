package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/config"
)

// A run that crashed while nobody reported it becomes a letter; and an n8n that hangs delays neither a report nor the
// end of the program.
func TestMainAsksN8N(t *testing.T) {
	t.Parallel()
	crashed, err := os.ReadFile("../../internal/failure/testdata/captures/failing-exec-crashed-progress-false.json")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Add(-5 * time.Minute).Format(time.RFC3339)
	run := `{"id":"464","workflowId":"X85uTIvsnitI3jBl","status":"crashed","mode":"webhook","retrySuccessId":null,"startedAt":"` + now + `","stoppedAt":"` + now + `"}`
	var hangs atomic.Bool
	n8n := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hangs.Load() {
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		body := []byte(`{"data":[],"nextCursor":null}`)
		switch {
		case r.Header.Get("X-N8N-API-KEY") != "n8n-key-wiring":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/api/v1/executions/464":
			hangs.Store(true) // from here on
			body = crashed
		case r.URL.Query().Get("status") == "crashed":
			body = []byte(`{"data":[` + run + `],"nextCursor":null}`)
		}
		_, _ = w.Write(body)
	}))
	t.Cleanup(n8n.Close)

	logs := new(lockedBuffer)
	cfg := &config.Config{
		Addr: "127.0.0.1:0", DatabaseURL: sqliteURL(t), PublicURL: "http://127.0.0.1:8088", LogFormat: "text", MaxBody: 1 << 20, SweepInterval: time.Second,
		File: &config.File{N8N: &config.N8N{URL: n8n.URL, APIKey: "n8n-key-wiring"}},
	}
	m, err := Start(t.Context(), cfg, logs)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- m.Run(ctx) }()
	p := &program{url: "http://" + m.Addr}
	eventually(t, func() bool {
		_, a := p.call(t, http.MethodGet, "/dlq?workflow_id=X85uTIvsnitI3jBl", nil, "")
		items, _ := a["items"].([]any)
		return len(items) == 1
	})
	began := time.Now()
	report := map[string]any{"error_message": "it broke", "workflow_id": "wf", "execution_id": "9"}
	if status, a := p.call(t, http.MethodPost, "/dlq", report, ""); status != http.StatusOK || a["duplicate"] != false {
		t.Errorf("/dlq: %d %v", status, a)
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("a report took %v while n8n hung", d)
	}
	began = time.Now()
	cancel()
	if err := <-ran; err != nil {
		t.Errorf("Run: %v", err)
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("the end took %v while n8n hung", d)
	}
	if strings.Contains(logs.String(), "n8n-key-wiring") {
		t.Errorf("the log holds the key: %s", logs.String())
	}
}

func TestMainRefusesN8N(t *testing.T) {
	t.Parallel()
	cfg := &config.Config{
		Addr: "127.0.0.1:0", DatabaseURL: sqliteURL(t), LogFormat: "text", MaxBody: 1 << 20, SweepInterval: time.Second,
		File: &config.File{N8N: &config.N8N{URL: "n8n:5678", APIKey: "n8n-key-wiring"}},
	}
	if _, err := Start(t.Context(), cfg, new(lockedBuffer)); err == nil || !strings.Contains(err.Error(), "n8n.url") {
		t.Errorf("%v", err)
	}
}
