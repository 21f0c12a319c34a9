package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/api"
	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
	"holdfast/internal/pgtest"
	"holdfast/internal/store"
)

// The keys of worlds that have some.
const (
	workflowSecret = "wf-secret-4417:with:colons"
	operatorSecret = "op-secret-9920"
)

var bothKeys = []api.Key{{Name: "n8n", Role: "workflow", Secret: workflowSecret}, {Name: "asha", Role: "operator", Secret: operatorSecret}}

// world is one API over one store of its own, reached through real HTTP.
type world struct {
	url     string
	handler http.Handler
	client  *http.Client
	store   *store.Store
	clock   *clock
	logs    *logBuffer
	secrets *secrets
	metrics *api.Metrics
}

type settings struct {
	keys    []api.Key
	maxBody int64
	wrap    func(ledger.Store) ledger.Store
	letters func(deadletter.Store) deadletter.Store
	redact  []string
	limits  map[string]ledger.Limit
	touch   func(*world) func(context.Context, *ledger.Claim) bool
	url     string
}

type setting func(*settings)

func withKeys(keys ...api.Key) setting { return func(s *settings) { s.keys = keys } }
func withMaxBody(n int64) setting      { return func(s *settings) { s.maxBody = n } }
func withStore(wrap func(ledger.Store) ledger.Store) setting {
	return func(s *settings) { s.wrap = wrap }
}

func withLetters(wrap func(deadletter.Store) deadletter.Store) setting {
	return func(s *settings) { s.letters = wrap }
}

func withLimit(destination string, l ledger.Limit) setting {
	return func(s *settings) { s.limits = map[string]ledger.Limit{destination: l} }
}

func withRedact(names ...string) setting { return func(s *settings) { s.redact = names } }

// publicURL is where people reach the API of every world.
const publicURL = "https://holdfast.example.test"

// newWorld starts an API over SQLite, or over the database that a setting names.
func newWorld(tb testing.TB, with ...setting) *world {
	tb.Helper()
	s := settings{maxBody: 16 << 20}
	for _, set := range with {
		set(&s)
	}
	if s.url == "" {
		s.url = "sqlite://" + filepath.Join(tb.TempDir(), "holdfast.db")
	}
	w := &world{clock: &clock{at: time.Date(2026, 11, 30, 20, 0, 0, 0, time.UTC)}, logs: new(logBuffer), secrets: new(secrets)}
	log := slog.New(slog.NewJSONHandler(w.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	ctx := context.WithoutCancel(tb.Context())
	metrics := api.NewMetrics()
	db, err := store.Open(ctx, s.url, store.Options{
		Log: log, Now: w.clock.now, Limits: s.limits,
		Observer: store.Observer{Batch: metrics.Batch, DatabaseError: metrics.DatabaseError, Held: metrics.Held},
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Errorf("closing the store: %v", err)
		}
	})
	if _, err := db.Migrate(ctx); err != nil {
		tb.Fatal(err)
	}
	w.store, w.metrics = db, metrics
	var claims ledger.Store = db
	if s.wrap != nil {
		claims = s.wrap(db)
	}
	var letters deadletter.Store = db
	if s.letters != nil {
		letters = s.letters(db)
	}
	options := api.Options{
		Store: claims, Letters: letters, Keys: s.keys, Log: log, Metrics: metrics, MaxBody: s.maxBody, Redact: s.redact, PublicURL: publicURL + "/",
	}
	if s.touch != nil {
		options.Touch = s.touch(w)
	}
	w.handler = api.New(options)
	server := httptest.NewServer(w.handler)
	tb.Cleanup(server.Close)
	tb.Cleanup(func() { w.checkLogs(tb) })
	w.url, w.client = server.URL, server.Client()
	for _, k := range s.keys {
		w.secrets.add(k.Secret)
	}
	return w
}

// both runs a test over SQLite and over PostgreSQL.
func both(t *testing.T, test func(t *testing.T, w *world), with ...setting) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, newWorld(t, with...))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		on := func(s *settings) { s.url = pgtest.Schema(t) }
		test(t, newWorld(t, append([]setting{on}, with...)...))
	})
}

// clock is the time by which the store decides; it moves when a test says so.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// logBuffer keeps what was logged.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// obj is a JSON object.
type obj = map[string]any

// answer is what came back.
type answer struct {
	status int
	header http.Header
	raw    []byte
	body   obj   // of an object
	items  []obj // of an array
}

type edit func(*http.Request)

func header(name, value string) edit { return func(r *http.Request) { r.Header.Set(name, value) } }
func bearer(secret string) edit      { return header("Authorization", "Bearer "+secret) }

// text writes a value as JSON; a string is JSON already.
func text(tb testing.TB, body any) string {
	tb.Helper()
	if s, ok := body.(string); ok {
		return s
	}
	out, err := json.Marshal(body)
	if err != nil {
		tb.Fatal(err)
	}
	return string(out)
}

func (w *world) post(tb testing.TB, path string, body any, edits ...edit) answer {
	tb.Helper()
	return w.send(tb, http.MethodPost, path, text(tb, body), edits...)
}

func (w *world) get(tb testing.TB, path string, edits ...edit) answer {
	tb.Helper()
	return w.send(tb, http.MethodGet, path, "", edits...)
}

// send makes one call and holds its answer against the document.
func (w *world) send(tb testing.TB, method, path, body string, edits ...edit) answer {
	tb.Helper()
	a, err := w.try(tb, method, path, body, edits...)
	if err != nil {
		tb.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

func (w *world) try(tb testing.TB, method, path, body string, edits ...edit) (answer, error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, w.url+path, strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	if method == http.MethodPost || method == http.MethodPut {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, e := range edits {
		e(req)
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{status: resp.StatusCode, header: resp.Header, raw: raw}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") && len(raw) > 0 {
		a.parse(tb)
	}
	w.secrets.learn(body, a)
	checkAnswer(tb, req, body, a)
	return a, nil
}

func (a *answer) parse(tb testing.TB) {
	tb.Helper()
	to := any(&a.body)
	if a.raw[0] == '[' {
		to = &a.items
	}
	d := json.NewDecoder(bytes.NewReader(a.raw))
	d.UseNumber()
	if err := d.Decode(to); err != nil {
		tb.Fatalf("the answer is no JSON object and no array of them: %v: %s", err, clip(a.raw))
	}
}

func clip(raw []byte) string { return string(raw[:min(len(raw), 1000)]) }

// ok demands a 200.
func (a answer) ok(tb testing.TB) answer {
	tb.Helper()
	if a.status != http.StatusOK {
		tb.Fatalf("status %d, want 200: %s", a.status, clip(a.raw))
	}
	return a
}

// has demands members of the answer, as they print; nil is null.
func (a answer) has(tb testing.TB, want obj) answer {
	tb.Helper()
	hasAll(tb, a.body, want)
	return a
}

func hasAll(tb testing.TB, got, want obj) {
	tb.Helper()
	for name, value := range want {
		have, there := got[name]
		if !there {
			tb.Errorf("the answer has no member %s: %v", name, got)
		} else if fmt.Sprint(have) != fmt.Sprint(value) {
			tb.Errorf("%s is %v, want %v", name, have, value)
		}
	}
}

// refused demands an error.
func (a answer) refused(tb testing.TB, status int, code string) answer {
	tb.Helper()
	if a.status != status || a.body["code"] != code {
		tb.Fatalf("status %d code %v, want %d %s: %s", a.status, a.body["code"], status, code, clip(a.raw))
	}
	return a
}

// names demands that the refusal names a member, in its message and in details.fields.
func (a answer) names(tb testing.TB, field string) answer {
	tb.Helper()
	if !strings.Contains(a.text("message"), field) {
		tb.Errorf("the message does not name %q: %s", field, a.text("message"))
	}
	details, _ := a.body["details"].(obj)
	fields, _ := details["fields"].([]any)
	for _, f := range fields {
		if f, _ := f.(obj); f["field"] == field {
			return a
		}
	}
	tb.Errorf("details.fields does not name %q: %s", field, clip(a.raw))
	return a
}

func (a answer) text(name string) string {
	s, _ := a.body[name].(string)
	return s
}

// claim makes a claim that is answered with a decision.
func (w *world) claim(tb testing.TB, body any, edits ...edit) answer {
	tb.Helper()
	return w.post(tb, "/claim", body, edits...).ok(tb)
}

// proceeds makes a claim that is granted and returns its token.
func (w *world) proceeds(tb testing.TB, body any, edits ...edit) string {
	tb.Helper()
	a := w.claim(tb, body, edits...)
	if a.text("decision") != "proceed" || a.body["claimed"] != true || a.text("lease_token") == "" {
		tb.Fatalf("not granted: %s", clip(a.raw))
	}
	return a.text("lease_token")
}

// decides makes a claim and demands the decision.
func (w *world) decides(tb testing.TB, want string, body any, edits ...edit) answer {
	tb.Helper()
	a := w.claim(tb, body, edits...)
	if a.text("decision") != want || a.body["claimed"] != (want == "proceed") || (a.body["lease_token"] != nil) != (want == "proceed") {
		tb.Fatalf("decision %s, claimed %v, want %s: %s", a.text("decision"), a.body["claimed"], want, clip(a.raw))
	}
	return a
}

// key is the smallest claim with a key.
func key(k string) obj { return obj{"source": "shop", "idempotency_key": k} }

// effect is a claim of one step.
func effect(k, step string) obj { return obj{"source": "shop", "idempotency_key": k, "step": step} }

// and adds members to an object.
func and(o, more obj) obj {
	out := obj{}
	for _, m := range []obj{o, more} {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}
