package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func configFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "holdfast.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// An alert of the real program reaches a real receiver, with a link; without one it is a warning in the log.
func TestAlertsAreSent(t *testing.T) {
	t.Parallel()
	got := make(chan string, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got <- string(body)
	}))
	t.Cleanup(receiver.Close)
	address := "generic" + strings.TrimPrefix(receiver.URL, "http") + "/" + hidden + "?disabletls=yes"
	path := configFile(t, "notify: [\"${ALERTS}\"]\nsources:\n  shop: {silence: 6h}\n")
	p := start(t, "HOLDFAST_DATABASE_URL="+sqliteURL(t), "HOLDFAST_CONFIG="+path, "ALERTS="+address, "HOLDFAST_PUBLIC_URL=https://holdfast.example.test")
	silent := start(t, "HOLDFAST_DATABASE_URL="+sqliteURL(t))
	for _, p := range []*program{p, silent} {
		_, a := p.call(t, http.MethodPost, "/claim", map[string]any{"source": "shop", "idempotency_key": "order-1", "step": "charge"}, "")
		token := a["lease_token"]
		for i, result := range []string{"r1", "r2", "r2", "r3"} {
			if status, a := p.call(t, http.MethodPost, "/complete", map[string]any{"lease_token": token, "result_id": result}, ""); (status == http.StatusOK) != (i == 0) {
				t.Fatalf("%d %v", status, a)
			}
		}
	}
	body := <-got
	if !strings.HasPrefix(body, "shop: two different receipts for one claim (and 1 more like it)\n") || !strings.Contains(body, "\nhttps://holdfast.example.test/claims/") {
		t.Errorf("%q", body)
	}
	eventually(t, func() bool {
		return strings.Contains(silent.log(), `msg="shop: two different receipts for one claim"`) && strings.Contains(silent.log(), "link=http://127.0.0.1")
	})
	eventually(t, func() bool {
		return strings.Contains(metricsOf(t, p), `holdfast_alerts_total{result="sent",service="generic"} 1`)
	})
	p.stop(t)
	silent.stop(t)
	if strings.Contains(p.log(), hidden) {
		t.Errorf("the log shows the address: %s", p.log())
	}
}

func metricsOf(t *testing.T, p *program) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// An address that no service understands stops the start; it is named by its place and never shown.
func TestBadAlertSettings(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`notify: ["generic+https://example.test/x", "nonsense://` + hidden + `"]`: "notify[1]",
		`notify: ["slack://` + hidden + `"]`:                                      "notify[0]",
		`notify: ["` + hidden + `"]`:                                              "notify[0]",
		`notify: [""]`:                                                            "notify[0]",
		`notify: slack`:                                                           "HOLDFAST_CONFIG",
		"sources:\n  shop: {silence: 0s}":                                         "sources.shop.silence",
		"sources:\n  shop: {silence: often}":                                      "line 2",
	} {
		refused(t, want, "HOLDFAST_CONFIG="+configFile(t, text))
		code, out, errs := command(t, []string{"HOLDFAST_CONFIG=" + configFile(t, text)}, "check-config")
		if code == 0 || !strings.Contains(errs, want) || strings.Contains(out+errs, hidden) {
			t.Errorf("check-config: exit %d: %s", code, errs)
		}
	}
}
