//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// stripe is stripe-mock behind a proxy that remembers what passed. stripe-mock checks each request against Stripe's
// own description of its API, and keeps nothing: it proves shapes, not that anything is done once.
type stripe struct {
	*httptest.Server

	mu     sync.Mutex
	passed []exchange
}

// exchange is a request with its answer.
type exchange struct {
	delivery
	Status int
	Answer http.Header
}

func newStripe(t *testing.T) *stripe {
	t.Helper()
	root, err := repoRoot()
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(root, ".cache", "bin", "stripe-mock")
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("stripe-mock is not installed; run .ci/stripe-mock first: %v", err)
	}
	var ports [2]int
	for i := range ports {
		if ports[i], err = freePort(); err != nil {
			t.Fatal(err)
		}
	}
	target := &url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", ports[0])}
	// Without both addresses it listens everywhere.
	mock, err := startProcess("stripe-mock", t.TempDir(), nil, binary, "-http-addr", target.Host, "-https-addr", fmt.Sprintf("127.0.0.1:%d", ports[1]))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(mock.stop)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = mock.await(ctx, func(ctx context.Context) error {
		return callJSON(ctx, http.MethodGet, target.String()+"/v1/balance", map[string]string{"Authorization": "Bearer sk_test_123"}, nil, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &stripe{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		seen := exchange{delivery: delivery{Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Header: r.Header.Clone(), Event: body, IdempotencyKey: r.Header.Get("Idempotency-Key")}}
		proxy := httputil.NewSingleHostReverseProxy(target)
		proxy.ModifyResponse = func(res *http.Response) error {
			seen.Status, seen.Answer = res.StatusCode, res.Header.Clone()
			s.mu.Lock()
			defer s.mu.Unlock()
			s.passed = append(s.passed, seen)
			return nil
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Server.Close)
	return s
}

// last gives the newest exchange of a method.
func (s *stripe) last(t *testing.T, method string) exchange {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range slices.Backward(s.passed) {
		if e.Method == method {
			return e
		}
	}
	t.Fatalf("no %s has passed", method)
	return exchange{}
}

// TestChargeStripe sends what the template sends to Stripe: Settings and the Authentication are all that is changed,
// as the notes say.
func TestChargeStripe(t *testing.T) {
	t.Parallel()
	s := newStripe(t)
	w := newWire(t, s.URL)
	authenticate := func(n map[string]any) {
		parameters(n)["authentication"], parameters(n)["genericAuthType"] = "genericCredentialType", "httpBearerAuth"
		n["credentials"] = map[string]any{"httpBearerAuth": map[string]any{"id": stripeID, "name": stripeName}}
	}
	r := newTill(t, withKeys, tillOptions{change: func(settings map[string]any, nodes map[string]map[string]any) {
		settings["charge_url"], settings["content_type"] = w.url()+"/v1/payment_intents", "application/x-www-form-urlencoded"
		authenticate(nodes[callNode])
	}})
	r.told(t, request("1", "a"), http.StatusOK, "completed")
	sent := s.last(t, http.MethodPost)
	form, err := url.ParseQuery(string(sent.Event))
	if err != nil {
		t.Fatal(err)
	}
	want := url.Values{"amount": {"1200"}, "currency": {"kes"}, "payment_method": {"pm_1"}, "metadata[order_id]": {"1"}, "metadata[provider_key]": {sent.IdempotencyKey}}
	if form.Encode() != want.Encode() || sent.IdempotencyKey == "" || sent.Header.Get("Authorization") != "Bearer sk_test_123" {
		t.Errorf("Stripe received %s under %v, want %v", sent.Event, sent.Header, want)
	}
	if sent.Status != http.StatusOK || sent.Answer.Get("Idempotency-Key") != sent.IdempotencyKey {
		t.Errorf("Stripe answered %d under key %q, want 200 under %q", sent.Status, sent.Answer.Get("Idempotency-Key"), sent.IdempotencyKey)
	}
	wantIntent(t, r.waitClaims(t, "1", "a completed", "charge completed"))

	w.loseAnswers("/v1/payment_intents", 3)
	r.told(t, request("2", "a"), http.StatusInternalServerError, "charge_unknown")
	newReconciler(t, r.wire, r.source, map[string]any{r.spot: map[string]any{
		"url": w.url() + "/v1/payment_intents/search", "query": map[string]string{"query": "metadata['provider_key']:'{provider_key}' AND status:'succeeded'"}, "found": "data.0.id", "not_found": []int{},
	}}, func(nodes map[string]map[string]any) { authenticate(nodes[askNode]) })
	wantIntent(t, r.waitClaims(t, "2", "a failed", "charge completed"))
	asked, sent := s.last(t, http.MethodGet), s.last(t, http.MethodPost)
	query := url.Values{"query": {"metadata['provider_key']:'" + sent.IdempotencyKey + "' AND status:'succeeded'"}}
	if got, err := url.ParseQuery(asked.Query); err != nil || got.Encode() != query.Encode() || asked.Path != "/v1/payment_intents/search" || asked.Status != http.StatusOK {
		t.Errorf("Stripe was asked %s?%s and answered %d, want 200 to %v", asked.Path, asked.Query, asked.Status, query)
	}
	r.told(t, request("2", "a"), http.StatusOK, "completed")
	if n := w.count("/v1/payment_intents"); n != 4 {
		t.Errorf("Stripe received %d charges, want 1 and 3 tries", n)
	}
}

// wantIntent expects the receipt of a payment.
func wantIntent(t *testing.T, claims []claim) {
	t.Helper()
	c := chargeOf(t, claims)
	if c.ResultID == nil || !strings.HasPrefix(*c.ResultID, "pi_") || !strings.Contains(string(c.Result), `"object":"payment_intent"`) {
		t.Errorf("the claim is %s, want a payment", show(c))
	}
}
