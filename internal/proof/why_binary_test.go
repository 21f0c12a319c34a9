package proof

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/pgtest"
)

// The destinations of the traces: one believes "not found" at once, one not within a test's time, and one has a provider
// that forgets its keys after a few seconds.
const traceSettings = `destinations:
  prompt: {ask_after: 0s, not_found_after: 0s}
  lagging: {ask_after: 0s, not_found_after: 1h}
  forgetful: {ask_after: 0s, not_found_after: 0s, idempotency_window: 6s}
`

const (
	workflowKey = "a-secret-of-the-workflows"
	operatorKey = "a-secret-of-the-operators"
)

// TestWhy plays the traces that broke the first draft of the rules against the real program, on both databases, and where
// the destination matters with one that honours an Idempotency-Key and one that does not. Each step is what the rules say,
// and at the end each order was charged as often as it should be, and never more than once.
func TestWhy(t *testing.T) {
	t.Parallel()
	for database, open := range map[string]func(*testing.T) string{
		"SQLite":     func(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "holdfast.db") },
		"PostgreSQL": func(t *testing.T) string { return pgtest.Schema(t) },
	} {
		t.Run(database, func(t *testing.T) {
			t.Parallel()
			program := newReplicaWith(t, open(t), traceSettings, "HOLDFAST_API_KEYS=n8n:workflow:"+workflowKey+",ops:operator:"+operatorKey)
			// Most of the time is spent on waiting for leases to end: all at once, however many tests run in parallel.
			var work sync.WaitGroup
			play := func(name string, honours bool, trace func(*tale)) {
				work.Go(func() { t.Run(name, func(t *testing.T) { trace(newTale(t, program, honours)) }) })
			}
			for name, trace := range tracesOfCharges {
				play(name+"/with keys", true, trace)
				play(name+"/without keys", false, trace)
			}
			for name, trace := range tracesOfWork {
				play(name, true, trace)
			}
			work.Wait()
		})
	}
}

// tale is one trace that is played: a source of its own, and a provider of its own over HTTP.
type tale struct {
	*testing.T
	program *replica
	shop    *provider
	address string // of the shop
	source  string
	ahead   time.Duration // of the shop's clock
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

func newTale(t *testing.T, program *replica, honours bool) *tale {
	t.Helper()
	name := notInNames.ReplaceAllString(strings.ToLower(t.Name()), "-")
	s := &tale{T: t, program: program, source: name[max(0, len(name)-60):]}
	s.source = strings.Trim(s.source, "-")
	s.shop = newProvider(honours, 0, func() time.Time { return time.Now().Add(s.ahead) })
	server := httptest.NewServer(s.shop)
	t.Cleanup(server.Close)
	s.address = server.URL
	t.Cleanup(func() {
		if actions := s.shop.twice(); len(actions) > 0 {
			t.Errorf("charged twice: %v", actions)
		}
	})
	return s
}

// word is what the calls answer, as far as a trace reads it.
type word struct {
	Code         string
	Decision     string
	Status       any // a number in an error
	Reason       string
	ID           string
	ClaimID      string    `json:"claim_id"`
	LeaseToken   string    `json:"lease_token"`
	ProviderKey  string    `json:"provider_key"`
	ResultID     string    `json:"result_id"`
	Attempt      int       `json:"attempt"`
	AttemptCount int       `json:"attempt_count"`
	RetryAfter   int       `json:"retry_after_seconds"`
	WindowEndsAt time.Time `json:"window_ends_at"`
	Changed      bool
	Reentrant    bool
	Counts       map[string]int
	Items        []word
}

// short is what a caller switches on.
func (w word) short() string {
	status, _ := w.Status.(string)
	for _, s := range []string{w.Code, w.Decision, status} {
		if s != "" {
			return s
		}
	}
	return ""
}

// do makes one call with a key; a list is answered as Items.
func (s *tale) do(key, method, path string, body fields) (w word) {
	s.Helper()
	var sent io.Reader = http.NoBody
	if body != nil {
		sent = bytes.NewReader(asJSON(body))
	}
	address, _ := s.program.base(s.Context())
	req, err := http.NewRequestWithContext(s.Context(), method, address+path, sent)
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := s.program.client.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	into := any(&w)
	if bytes.HasPrefix(raw, []byte("[")) {
		into = &w.Items
	}
	if err := json.Unmarshal(raw, into); err != nil || resp.StatusCode >= 500 {
		s.Fatalf("%s %s: %d %s %v", method, path, resp.StatusCode, raw, err)
	}
	return w
}

// say is a workflow's call, and what must be answered: a decision, a status or a code.
func (s *tale) say(path string, body fields, want string) word {
	s.Helper()
	w := s.do(workflowKey, http.MethodPost, path, body)
	if w.short() != want {
		s.Fatalf("%s %v: %q, want %q", path, body, w.short(), want)
	}
	return w
}

// person is an operator's call.
func (s *tale) person(path string, body fields, want string) word {
	s.Helper()
	all := fields{"authorized_by": person, "reason": "looked at it"}
	maps.Copy(all, body)
	w := s.do(operatorKey, http.MethodPost, path, all)
	if w.short() != want {
		s.Fatalf("%s %v: %q, want %q", path, all, w.short(), want)
	}
	return w
}

// ask is the body of a claim by an execution; more are its other members.
func (s *tale) ask(run, key string, more ...fields) fields {
	body := fields{
		"source": s.source, "idempotency_key": key, "owner": run + ":0:0", "execution_id": run, "workflow_id": s.workflow(), "workflow_name": "Orders", "node": "Claim",
	}
	for _, m := range more {
		maps.Copy(body, m)
	}
	return body
}

func (s *tale) workflow() string { return "Wf." + s.source }

func (s *tale) event(run, key, want string, more ...fields) word {
	s.Helper()
	return s.say("/claim", s.ask(run, key, append([]fields{{"payload": fields{"event": key}}}, more...)...), want)
}

func (s *tale) effect(run, key, want string, more ...fields) word {
	s.Helper()
	return s.say("/claim", s.ask(run, key, append([]fields{charged, via("lagging")}, more...)...), want)
}

// soon asks again until that is the answer, as where a lease must end before.
func (s *tale) soon(want string, body fields) (w word) {
	s.Helper()
	s.until("/claim answers "+want, func() bool {
		w = s.do(workflowKey, http.MethodPost, "/claim", body)
		return w.short() == want
	})
	return w
}

var charged = fields{"step": "charge"}

func lease(seconds int) fields      { return fields{"lease_seconds": seconds} }
func via(destination string) fields { return fields{"destination": destination} }
func ofVersion(n int) fields        { return fields{"entity": "sub", "version": fmt.Sprint(n)} }

func (s *tale) complete(token, id, want string) word {
	s.Helper()
	return s.say("/complete", fields{"lease_token": token, "result_id": id}, want)
}

func (s *tale) unknown(token, want string) word {
	s.Helper()
	return s.say("/mark-unknown", fields{"lease_token": token, "error": n8nError(timedOut)}, want)
}

// refused reports the status of the last of some tries.
func (s *tale) refused(token string, status, tries int, want string) word {
	s.Helper()
	body := fields{"lease_token": token, "error": n8nError(status)}
	if tries > 0 {
		body["tries"] = tries
	}
	return s.say("/mark-failed", body, want)
}

func (s *tale) notFound(token, want string) word {
	s.Helper()
	return s.say("/mark-failed", fields{"lease_token": token, "outcome": "not_executed"}, want)
}

// look is a reconciler's lease; it must get one claim.
func (s *tale) look() word {
	s.Helper()
	w := s.do(workflowKey, http.MethodPost, "/reconcile/lease", fields{"source": s.source, "owner": "reconciler"})
	if len(w.Items) != 1 {
		s.Fatalf("%d claims are handed to the reconciler: %+v", len(w.Items), w)
	}
	return w.Items[0]
}

// shopClient sends each request once: one that keeps connections would send again by itself what has an Idempotency-Key.
var shopClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}

// pay sends the request once. status 0: no answer came.
func (s *tale) pay(ctx context.Context, action string, claim word, note string) (status int, id string) {
	s.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.address+"/charges", bytes.NewReader(asJSON(fields{"action": action, "note": note})))
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", claim.ProviderKey)
	resp, err := shopClient.Do(req)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	var answer struct{ ID string }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		s.Fatal(err)
	}
	return resp.StatusCode, answer.ID
}

// paid is a charge that is made and answered.
func (s *tale) paid(action string, claim word) (id string) {
	s.Helper()
	status, id := s.pay(s.Context(), action, claim, "")
	if status != http.StatusOK || id == "" {
		s.Fatalf("the charge is answered with %d", status)
	}
	return id
}

// lost is a charge that is made, and its answer lost.
func (s *tale) lost(action string, claim word) (id string) {
	s.Helper()
	s.shop.next(action, fate{lose: true})
	if status, _ := s.pay(s.Context(), action, claim, ""); status != 0 {
		s.Fatalf("the answer was not lost: %d", status)
	}
	ids := s.shop.charged(action)
	return ids[len(ids)-1]
}

// underWay is a request that its sender gives up on while the provider has it; it is done when land is called.
func (s *tale) underWay(action string, claim word) (land func() (id string)) {
	s.Helper()
	f := fate{arrived: make(chan struct{}), goOn: make(chan struct{})}
	s.shop.next(action, f)
	ctx, giveUp := context.WithCancel(s.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.pay(ctx, action, claim, "")
	}()
	<-f.arrived
	giveUp()
	<-ended
	before := len(s.shop.charged(action))
	return func() string {
		close(f.goOn)
		s.until("the late request is done", func() bool { return len(s.shop.charged(action)) > before })
		return s.shop.charged(action)[before]
	}
}

// search is the reconciler's question.
func (s *tale) search(action string, claim word) (id string, found bool) {
	s.Helper()
	resp, err := shopClient.Get(s.address + "/search?" + url.Values{"action": {action}, "key": {claim.ProviderKey}}.Encode())
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct{ Data []struct{ ID string } }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		s.Fatal(err)
	}
	if len(answer.Data) == 0 {
		return "", false
	}
	return answer.Data[0].ID, true
}

var errTooLong = errors.New("it does not happen")

func (s *tale) until(what string, is func() bool) {
	s.Helper()
	ctx, cancel := context.WithTimeoutCause(s.Context(), patience, errTooLong)
	defer cancel()
	for tick := time.NewTicker(20 * time.Millisecond); !is(); {
		select {
		case <-ctx.Done():
			s.Fatalf("%s: %v", what, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// charges is the truth.
func (s *tale) charges(action string, want int) {
	s.Helper()
	if ids := s.shop.charged(action); len(ids) != want {
		s.Fatalf("%s was charged as %v, want %d", action, ids, want)
	}
}
