//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// provider is a paid API that honours Idempotency-Key as Stripe does: it keeps the answer to the first request of a
// key, a refused card and its own failure among them, for 24 hours; it keeps no 401, no 429 and no refusal of what was
// sent; it refuses another body under a key, and a second request while the first is under way. Without keys it
// charges as often as it is asked.
type provider struct {
	*httptest.Server
	keyless bool          // honours no key
	lag     time.Duration // before a charge is found by a search

	mu       sync.Mutex
	ahead    time.Duration // how far its clock is before ours
	charges  []charge
	answers  map[string]*keptAnswer // by key
	received map[string][]delivery  // requests for a charge, by order
	acts     map[string][]act       // for the next requests about an order, in turn
}

// charge is money that has moved.
type charge struct {
	ID       string            `json:"id"`
	Amount   int               `json:"amount"`
	Metadata map[string]string `json:"metadata"`
	at       time.Time
}

// keptAnswer is what the provider holds under a key; status 0 while the request is under way.
type keptAnswer struct {
	body   string
	status int
	answer string
	at     time.Time
}

// act is how the provider deals with one request.
type act struct {
	refuse     int             // answer this status, charge nothing
	door       bool            // and do so before the key is looked at
	afterwards <-chan struct{} // charge only when this is closed
	fail       bool            // charge, and answer 500
	say        string          // charge, and answer 200 with this text
	lost       bool            // hang up instead of the answer
}

// The ways in which a request goes wrong.
var (
	actAndHangUp    = act{lost: true}
	actAndFail      = act{fail: true}
	hangUpAtOnce    = act{door: true, lost: true}
	cardRefused     = act{refuse: http.StatusPaymentRequired}
	invalid         = act{refuse: http.StatusUnprocessableEntity}
	unauthorized    = act{refuse: http.StatusUnauthorized, door: true}
	tooManyRequests = act{refuse: http.StatusTooManyRequests, door: true}
)

// actLater charges when release is called, whether or not the caller still waits.
func actLater(t *testing.T) (later act, release func()) {
	t.Helper()
	open := make(chan struct{})
	release = sync.OnceFunc(func() { close(open) })
	t.Cleanup(release)
	return act{afterwards: open}, release
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{answers: map[string]*keptAnswer{}, acts: map[string][]act{}, received: map[string][]delivery{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/charges", p.charge)
	mux.HandleFunc("GET /v1/charges/search", p.search)
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Server.Close)
	return p
}

// script sets how the next requests for an order's charge are dealt with; afterwards all is well.
func (p *provider) script(order string, acts ...act) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acts[order] = append(p.acts[order], acts...)
}

func (p *provider) now() time.Time { return time.Now().Add(p.ahead) }

func (p *provider) charge(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	key := r.Header.Get("Idempotency-Key")
	var asked charge
	_ = json.Unmarshal(body, &asked) // what is no charge is refused later
	order := asked.Metadata["order_id"]
	p.mu.Lock()
	p.received[order] = append(p.received[order], delivery{Method: r.Method, Path: r.URL.Path, Header: r.Header, Event: body, IdempotencyKey: key})
	var how act
	if next := p.acts[order]; len(next) > 0 {
		how, p.acts[order] = next[0], next[1:]
	}
	status, answer, kept := how.refuse, refusal("refused", http.StatusText(how.refuse)), (*keptAnswer)(nil)
	if !how.door {
		status, answer, kept = p.begin(key, string(body))
	}
	p.mu.Unlock()
	if kept != nil {
		if how.afterwards != nil {
			<-how.afterwards
		}
		status, answer = p.act(how, key, body, kept)
	}
	if how.lost {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, answer) // the caller may have hung up
}

// begin looks the key up. Where kept is not nil the request is to be dealt with, and its answer goes there.
func (p *provider) begin(key, body string) (status int, answer string, kept *keptAnswer) {
	if p.keyless || key == "" {
		return 0, "", &keptAnswer{}
	}
	kept = p.answers[key]
	if kept == nil || p.now().Sub(kept.at) >= 24*time.Hour {
		kept = &keptAnswer{body: body, at: p.now()}
		p.answers[key] = kept
		return 0, "", kept
	}
	switch {
	case kept.body != body:
		return http.StatusBadRequest, refusal("idempotency_error", "Keys for idempotent requests can only be used with the same parameters they were first used with."), nil
	case kept.status == 0:
		return http.StatusConflict, refusal("idempotency_key_in_use", "There is currently another in-progress request using this key."), nil
	}
	return kept.status, kept.answer, nil
}

// act deals with a request, and keeps what Stripe keeps.
func (p *provider) act(how act, key string, body []byte, kept *keptAnswer) (status int, answer string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case how.refuse != 0:
		status, answer = how.refuse, refusal("refused", http.StatusText(how.refuse))
	default:
		c := charge{at: p.now()}
		if err := json.Unmarshal(body, &c); err != nil {
			status, answer = http.StatusUnprocessableEntity, refusal("refused", err.Error())
			break
		}
		c.ID = fmt.Sprintf("ch_%d", len(p.charges)+1)
		p.charges = append(p.charges, c)
		status, answer = http.StatusOK, string(show(c))
		if how.fail {
			status, answer = http.StatusInternalServerError, refusal("api_error", "Something went wrong on our side.")
		}
		if how.say != "" {
			answer = how.say
		}
	}
	kept.status, kept.answer = status, answer
	if status == http.StatusUnprocessableEntity {
		delete(p.answers, key)
	}
	return status, answer
}

func refusal(kind, message string) string {
	return string(show(map[string]any{"error": map[string]string{"type": kind, "message": message}}))
}

var byMetadata = regexp.MustCompile(`^metadata\['(\w+)'\]:'([^']+)'$`)

// search lists the charges whose metadata has a value; none, and a list all the same.
func (p *provider) search(w http.ResponseWriter, r *http.Request) {
	query := byMetadata.FindStringSubmatch(r.URL.Query().Get("query"))
	if query == nil {
		respond(http.StatusBadRequest, "application/json", refusal("invalid_request_error", "no such query"))(w, r)
		return
	}
	p.mu.Lock()
	found := []charge{}
	for _, c := range p.charges {
		if c.Metadata[query[1]] == query[2] && p.now().Sub(c.at) >= p.lag {
			found = append(found, c)
		}
	}
	p.mu.Unlock()
	respond(http.StatusOK, "application/json", string(show(map[string]any{"object": "search_result", "data": found, "has_more": false})))(w, r)
}

// wantCharges expects that an order was charged exactly n times, and gives the first charge's id.
func (p *provider) wantCharges(t *testing.T, order string, n int) (id string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []string
	for _, c := range p.charges {
		if c.Metadata["order_id"] == order {
			ids = append(ids, c.ID)
		}
	}
	if len(ids) != n {
		t.Fatalf("order %s was charged %d times %v, want %d; requests %s", order, len(ids), ids, n, show(p.received[order]))
	}
	return strings.Join(ids[:min(n, 1)], "")
}

// wantRequests expects that exactly n requests for an order's charge came, all with one Idempotency-Key.
func (p *provider) wantRequests(t *testing.T, order string, n int) []delivery {
	t.Helper()
	got := p.requests(order)
	if len(got) != n {
		t.Fatalf("the provider received %d requests for order %s, want %d: %s", len(got), order, n, show(got))
	}
	for _, one := range got {
		if one.IdempotencyKey != got[0].IdempotencyKey || (one.IdempotencyKey == "") != p.keyless {
			t.Errorf("the keys differ, or are missing: %s", show(got))
		}
	}
	return got
}

func (p *provider) requests(order string) []delivery {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.received[order])
}

func (p *provider) waitRequests(t *testing.T, order string, n int) {
	t.Helper()
	err := poll(testContext(t), func(context.Context) error {
		if got := p.requests(order); len(got) < n {
			return fmt.Errorf("%d requests for order %s, want %d", len(got), order, n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// waitCharge waits until an order has been charged.
func (p *provider) waitCharge(t *testing.T, order string) {
	t.Helper()
	err := poll(testContext(t), func(context.Context) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !slices.ContainsFunc(p.charges, func(c charge) bool { return c.Metadata["order_id"] == order }) {
			return fmt.Errorf("order %s was not charged", order)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestProvider checks the provider itself: a test that finds one charge proves nothing where the provider would have
// made no second one anyway.
func TestProvider(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	ask := func(key, body string) (status int, answer string) {
		t.Helper()
		req, err := http.NewRequestWithContext(testContext(t), http.MethodPost, p.URL+"/v1/charges", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", key)
		res, err := client.Do(req)
		if err != nil {
			return 0, ""
		}
		defer res.Body.Close()
		raw, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(raw)
	}
	want := func(key, order string, wantStatus, wantCharges int) {
		t.Helper()
		if status, answer := ask(key, `{"amount":5,"metadata":{"order_id":"`+order+`"}}`); status != wantStatus {
			t.Errorf("key %s for order %s: %d %s, want %d", key, order, status, answer, wantStatus)
		}
		p.wantCharges(t, order, wantCharges)
	}
	p.script("o1", actAndHangUp)
	want("k1", "o1", 0, 1)
	want("k1", "o1", 200, 1) // the stored answer
	want("k1", "o2", 400, 0) // another body
	want("", "o1", 200, 2)   // no key protects nothing
	p.script("o3", actAndFail)
	want("k2", "o3", 500, 1)
	want("k2", "o3", 500, 1) // a stored failure
	p.script("o4", cardRefused)
	want("k3", "o4", 402, 0)
	want("k3", "o4", 402, 0) // a stored refusal
	for _, how := range []act{unauthorized, invalid, tooManyRequests} {
		key := fmt.Sprint("k", how.refuse)
		p.script(key, how)
		want(key, key, how.refuse, 0)
		want(key, key, 200, 1) // not stored
	}
	later, release := actLater(t)
	p.script("o5", later)
	first := make(chan int)
	go func() {
		status, _ := ask("k5", `{"amount":5,"metadata":{"order_id":"o5"}}`)
		first <- status
	}()
	p.waitRequests(t, "o5", 1)
	want("k5", "o5", 409, 0) // under way
	release()
	if status := <-first; status != 200 {
		t.Errorf("the first request was answered with %d", status)
	}
	want("k5", "o5", 200, 1)
	p.mu.Lock()
	p.ahead = 24 * time.Hour
	p.mu.Unlock()
	want("k5", "o5", 200, 2) // the key is forgotten
	p.keyless = true
	want("k5", "o5", 200, 3)
}
