package worker

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
	"holdfast/internal/store"
)

const apiKey = "n8n_api_0123456789"

// fakeN8N answers on loopback as n8n 2.41 does, with runs that were captured from one.
type fakeN8N struct {
	url string

	mu      sync.Mutex
	runs    map[int]map[string]any
	now     time.Time
	asked   []string                                             // addresses, in order
	instead func(http.ResponseWriter, *http.Request) (done bool) // a fault
}

func newFakeN8N(t *testing.T, now time.Time) *fakeN8N {
	t.Helper()
	f := &fakeN8N{runs: map[int]map[string]any{}, now: now}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	f.url = server.URL
	return f
}

func (f *fakeN8N) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.asked = append(f.asked, r.URL.String())
	w.Header().Set("Date", f.now.UTC().Format(http.TimeFormat))
	instead := f.instead
	f.mu.Unlock()
	if instead != nil && instead(w, r) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	rest, ok := strings.CutPrefix(r.URL.Path, "/api/v1/executions")
	switch {
	case !ok || r.Method != http.MethodGet:
		http.NotFound(w, r)
	case r.Header.Get("X-N8N-API-KEY") != apiKey:
		answer(w, http.StatusUnauthorized, map[string]any{"message": "unauthorized"})
	case rest == "":
		f.list(w, r)
	default:
		f.one(w, r, strings.TrimPrefix(rest, "/"))
	}
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

var heads = []string{"id", "finished", "mode", "retryOf", "retrySuccessId", "status", "startedAt", "stoppedAt", "workflowId", "waitTill"}

func without(run map[string]any, data bool) map[string]any {
	out := map[string]any{}
	for name, v := range run {
		if data || slices.Contains(heads, name) || name == "createdAt" {
			out[name] = v
		}
	}
	return out
}

func (f *fakeN8N) one(w http.ResponseWriter, r *http.Request, id string) {
	n, err := strconv.Atoi(id)
	run, ok := f.runs[n]
	if err != nil {
		answer(w, http.StatusBadRequest, map[string]any{"message": "request/params/executionId must be a positive integer"})
		return
	}
	if !ok {
		answer(w, http.StatusNotFound, map[string]any{"message": "Not Found"})
		return
	}
	answer(w, http.StatusOK, without(run, r.URL.Query().Get("includeData") == "true"))
}

func (f *fakeN8N) list(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	limit, err := strconv.Atoi(query.Get("limit"))
	status := query.Get("status")
	if err != nil || limit < 1 || limit > 250 || !slices.Contains([]string{"error", "crashed", "canceled", "success", "running", "waiting"}, status) {
		answer(w, http.StatusBadRequest, map[string]any{"message": "request/query/status must be equal to one of the allowed values"})
		return
	}
	below := 1 << 60
	if cursor := query.Get("cursor"); cursor != "" {
		raw, _ := base64.StdEncoding.DecodeString(cursor)
		below, _ = strconv.Atoi(string(raw))
	}
	page, next := []map[string]any{}, any(nil)
	for id := range f.runs {
		if f.runs[id]["status"] == status && id < below {
			page = append(page, map[string]any{"n": id})
		}
	}
	slices.SortFunc(page, func(a, b map[string]any) int { return b["n"].(int) - a["n"].(int) })
	if len(page) > limit {
		next = base64.StdEncoding.EncodeToString([]byte(strconv.Itoa(page[limit-1]["n"].(int))))
		page = page[:limit]
	}
	for i, p := range page {
		page[i] = without(f.runs[p["n"].(int)], false)
		delete(page[i], "createdAt") // the list has none
	}
	answer(w, http.StatusOK, map[string]any{"data": page, "nextCursor": next})
}

// capture adds a captured run, changed as told.
func (f *fakeN8N) capture(t *testing.T, name string, changes map[string]any) (id int) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "failure", "testdata", "captures", "failing-exec-"+name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	run := map[string]any{}
	if err := json.Unmarshal(raw, &run); err != nil {
		t.Fatal(err)
	}
	return f.put(run, changes)
}

// run adds a run without data.
func (f *fakeN8N) run(id int, status string, ended time.Time, changes map[string]any) {
	f.put(map[string]any{
		"id": strconv.Itoa(id), "workflowId": "wf", "status": status, "mode": "webhook", "retryOf": nil, "retrySuccessId": nil,
		"startedAt": ended.Add(-time.Second).Format(time.RFC3339Nano), "stoppedAt": ended.Format(time.RFC3339Nano), "createdAt": nil,
	}, changes)
}

func (f *fakeN8N) put(run, changes map[string]any) int {
	for name, v := range changes {
		run[name] = v
	}
	id, _ := strconv.Atoi(run["id"].(string))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runs[id] = run
	return id
}

func (f *fakeN8N) fail(instead func(http.ResponseWriter, *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.instead = instead
}

func (f *fakeN8N) requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.asked
	f.asked = nil
	return out
}

// n8nTest is a store, an n8n and the passes between them, by one clock.
type n8nTest struct {
	t     *testing.T
	n8n   *fakeN8N
	store *store.Store
	w     *N8N

	mu   sync.Mutex
	now  time.Time
	logs bytes.Buffer
}

// captured is some minutes after the captures were made.
var captured = time.Date(2026, 11, 30, 19, 0, 0, 0, time.UTC)

func newN8NTest(t *testing.T) *n8nTest {
	t.Helper()
	s := &n8nTest{t: t, now: captured, n8n: newFakeN8N(t, captured)}
	var err error
	s.store, err = store.Open(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "letters.db"), store.Options{Now: s.clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.store.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := s.store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.again()
	return s
}

// again begins anew, as after a restart.
func (s *n8nTest) again() {
	s.t.Helper()
	w, err := NewN8N(N8NOptions{URL: s.n8n.url, APIKey: apiKey, Log: slog.New(slog.NewTextHandler(lockedWriter{s}, nil)), Now: s.clock}, s.store)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(w.Stop)
	s.w = w
}

type lockedWriter struct{ s *n8nTest }

func (w lockedWriter) Write(p []byte) (int, error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return w.s.logs.Write(p)
}

func (s *n8nTest) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// log is what was logged since it was last asked for.
func (s *n8nTest) log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.logs.Reset()
	return s.logs.String()
}

func (s *n8nTest) later(d time.Duration) {
	s.mu.Lock()
	s.now = s.now.Add(d)
	now := s.now
	s.mu.Unlock()
	s.n8n.mu.Lock()
	s.n8n.now = now
	s.n8n.mu.Unlock()
}

func (s *n8nTest) pass(passes ...func() error) {
	s.t.Helper()
	for _, p := range passes {
		if err := p(); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *n8nTest) missed() { s.t.Helper(); s.pass(func() error { return s.w.Missed(s.t.Context()) }) }

func (s *n8nTest) inputs() { s.t.Helper(); s.pass(func() error { return s.w.Inputs(s.t.Context()) }) }

func (s *n8nTest) truth() { s.t.Helper(); s.pass(func() error { return s.w.Truth(s.t.Context()) }) }

// report sends a failure report, as an error workflow would.
func (s *n8nTest) report(body string) deadletter.Letter {
	s.t.Helper()
	r, err := deadletter.Read([]byte(body), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Fresh = deadletter.NewFresh()
	l, _, err := s.store.Report(s.t.Context(), r)
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

func reported(name string) string {
	raw, err := os.ReadFile(filepath.Join("..", "failure", "testdata", "captures", "error-trigger-"+name+".json"))
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// failed is an Error Trigger item without a request in it.
func failed(id int, more string) string {
	return fmt.Sprintf(`{"execution":{"id":"%d","error":{"message":"it broke","name":"Error"},"lastNodeExecuted":"Call","mode":"webhook"%s},"workflow":{"id":"wf","name":"w"}}`, id, more)
}

func (s *n8nTest) letter(id string) deadletter.Letter {
	s.t.Helper()
	l, _, err := s.store.GetLetter(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

// letters are all letters by their newest execution.
func (s *n8nTest) letters() map[string]deadletter.Letter {
	s.t.Helper()
	out := map[string]deadletter.Letter{}
	for cursor := ""; ; {
		page, next, err := s.store.Letters(s.t.Context(), deadletter.Filter{Limit: 200, Cursor: cursor})
		if err != nil {
			s.t.Fatal(err)
		}
		for _, l := range page {
			out[l.ExecutionID] = l
		}
		if cursor = next; cursor == "" {
			return out
		}
	}
}

// claim makes an execution hold an event.
func (s *n8nTest) claim(key, execution, payload string) ledger.Claim {
	s.t.Helper()
	id, secret := deadletter.NewFresh().New()
	r := &ledger.Request{
		Key: ledger.Key{Source: "own", IdempotencyKey: key}, Basis: ledger.BasisGiven, CallerKey: "n8n",
		Origin: ledger.Origin{WorkflowID: "wf", ExecutionID: execution, Node: "Claim"},
		Fresh:  ledger.Fresh{ID: id, Secret: secret, ProviderKey: "hf_" + key},
	}
	if payload != "" {
		r.Payload, r.PayloadHash = []byte(payload), make([]byte, 32)
	}
	v, err := s.store.Claim(s.t.Context(), r)
	if err != nil || v.Decision != ledger.Proceed {
		s.t.Fatal(v.Decision, err)
	}
	return v.Claim
}
