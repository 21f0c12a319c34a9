package api_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"holdfast/api"
)

// TestMain demands, after a run of the whole suite, that every operation of the document was answered with 200.
func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if code == 0 && wholeSuite() {
		for _, missing := range notExercised() {
			_, _ = fmt.Fprintln(os.Stderr, "no test got a 200 from", missing)
			code = 1
		}
	}
	os.Exit(code)
}

// wholeSuite tells whether nothing was left out on purpose.
func wholeSuite() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list", "test.fuzz"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return false
		}
	}
	worker := flag.Lookup("test.fuzzworker")
	return worker == nil || worker.Value.String() != "true"
}

// exercised holds "METHOD /path status" of every answer of the suite.
var exercised sync.Map

func notExercised() (missing []string) {
	doc, err := document()
	if err != nil {
		return []string{err.Error()}
	}
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			if _, ok := exercised.Load(method + " " + path + " 200"); !ok {
				missing = append(missing, method+" "+path)
			}
		}
	}
	slices.Sort(missing)
	return missing
}

// document is the parsed contract.
var document = sync.OnceValues(func() (*openapi3.T, error) {
	return openapi3.NewLoader().LoadFromData(api.OpenAPI())
})

func contract(tb testing.TB) *openapi3.T {
	tb.Helper()
	doc, err := document()
	if err != nil {
		tb.Fatalf("openapi.yaml: %v", err)
	}
	return doc
}

// pattern finds the path of the document that a request's path is one of.
func pattern(doc *openapi3.T, path string) string {
	parts := strings.Split(path, "/")
	for _, candidate := range doc.Paths.InMatchingOrder() {
		want := strings.Split(candidate, "/")
		if len(want) != len(parts) {
			continue
		}
		same := true
		for i := range want {
			same = same && (want[i] == parts[i] || strings.HasPrefix(want[i], "{") && parts[i] != "")
		}
		if same {
			return candidate
		}
	}
	return ""
}

// checkAnswer holds an answer against the document and against what is said of all answers.
func checkAnswer(tb testing.TB, req *http.Request, body string, a answer) {
	tb.Helper()
	if a.status >= 400 {
		checkError(tb, req, a)
	} else {
		checkNoError(tb, req, a)
	}
	doc := contract(tb)
	path := pattern(doc, req.URL.EscapedPath())
	item := doc.Paths.Value(path)
	if item == nil || item.GetOperation(req.Method) == nil {
		if a.status == http.StatusOK {
			tb.Errorf("%s %s is answered but not in the document", req.Method, req.URL.Path)
		}
		return
	}
	exercised.Store(fmt.Sprint(req.Method, " ", path, " ", a.status), true)
	input := &openapi3filter.RequestValidationInput{
		Request: req, QueryParams: req.URL.Query(),
		Route: &routers.Route{Spec: doc, Path: path, PathItem: item, Method: req.Method, Operation: item.GetOperation(req.Method)},
	}
	err := openapi3filter.ValidateResponse(req.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: a.status, Header: a.header, Body: io.NopCloser(bytes.NewReader(a.raw)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	})
	if err != nil {
		tb.Errorf("%s %s: the answer %d is not the document's: %v\n%s", req.Method, path, a.status, err, clip(a.raw))
	}
	if a.status == http.StatusOK && input.Route.Operation.RequestBody != nil {
		checkRequest(tb, input, body)
	}
}

// checkRequest demands that the document allows what was accepted.
func checkRequest(tb testing.TB, input *openapi3filter.RequestValidationInput, body string) {
	tb.Helper()
	schema := input.Route.Operation.RequestBody.Value.Content.Get("application/json").Schema.Value
	if schema.AdditionalProperties.Has == nil || body == "" && !input.Route.Operation.RequestBody.Value.Required {
		return // takes whatever comes, or nothing
	}
	var value any
	d := json.NewDecoder(strings.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		tb.Errorf("%s: a body was accepted that is no JSON: %v", input.Route.Path, err)
		return
	}
	if err := schema.VisitJSON(value, openapi3.VisitAsRequest(), openapi3.MultiErrors()); err != nil {
		tb.Errorf("%s accepted what the document does not allow: %v\n%s", input.Route.Path, err, clip([]byte(body)))
	}
}

// insides are words that would show the caller how the service is built.
var insides = []string{"goroutine ", ".go:", "sqlite", "SQLITE", "pq:", "sql:", "panic", "postgres", "constraint", "/home/", "/tmp/", "holdfast/internal", "jsontext", "runtime error"}

// checkError demands the shape of errors.
func checkError(tb testing.TB, req *http.Request, a answer) {
	tb.Helper()
	where := req.Method + " " + req.URL.Path
	if got := a.header.Get("Content-Type"); got != "application/json" {
		tb.Errorf("%s: an error of type %q, want application/json", where, got)
	}
	if req.Method == http.MethodHead {
		return
	}
	for _, name := range []string{"status", "code", "message", "details", "request_id"} {
		if _, ok := a.body[name]; !ok {
			tb.Errorf("%s: the error has no %s: %s", where, name, clip(a.raw))
		}
	}
	if fmt.Sprint(a.body["status"]) != fmt.Sprint(a.status) {
		tb.Errorf("%s: status %v in the body, %d on the line", where, a.body["status"], a.status)
	}
	if id := a.text("request_id"); id == "" || id != a.header.Get("X-Request-Id") {
		tb.Errorf("%s: request_id %q, header %q", where, id, a.header.Get("X-Request-Id"))
	}
	for _, word := range insides {
		if strings.Contains(string(a.raw), word) {
			tb.Errorf("%s: the error shows the inside (%q): %s", where, word, clip(a.raw))
		}
	}
}

// checkNoError demands that n8n does not take the answer for a failure.
func checkNoError(tb testing.TB, req *http.Request, a answer) {
	tb.Helper()
	if _, ok := a.body["error"]; ok {
		tb.Errorf("%s %s: a %d has a member error", req.Method, req.URL.Path, a.status)
	}
	for _, item := range a.items {
		if _, ok := item["error"]; ok {
			tb.Errorf("%s %s: an element of a %d has a member error", req.Method, req.URL.Path, a.status)
		}
	}
}

// secrets are what must not stand in any log: keys, tokens, payloads, and the API keys' secrets.
type secrets struct {
	mu    sync.Mutex
	found map[string]bool
}

// shortest is below what could stand in a log by chance.
const shortest = 7

func (s *secrets) add(value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.found == nil {
		s.found = map[string]bool{}
	}
	if len(value) >= shortest {
		s.found[value[:min(len(value), 200)]] = true
	}
}

// learn takes what is secret from a call and its answer.
func (s *secrets) learn(body string, a answer) {
	var sent obj
	if len(body) < 1<<20 && json.Unmarshal([]byte(body), &sent) == nil {
		for _, name := range []string{"idempotency_key", "lease_token", "payload", "headers", "result", "result_id"} {
			s.leaves(sent[name])
		}
	}
	for _, item := range append(a.items, a.body) {
		s.leaves(item["lease_token"])
		s.leaves(item["idempotency_key"])
	}
}

func (s *secrets) leaves(v any) {
	switch v := v.(type) {
	case string:
		s.add(v)
	case obj:
		for _, member := range v {
			s.leaves(member)
		}
	case []any:
		for _, element := range v {
			s.leaves(element)
		}
	}
}

// checkLogs demands that nothing secret was logged, at the most talkative level.
func (w *world) checkLogs(tb testing.TB) {
	tb.Helper()
	logs := w.logs.String()
	w.secrets.mu.Lock()
	defer w.secrets.mu.Unlock()
	for secret := range w.secrets.found {
		quoted, _ := json.Marshal(secret)
		if strings.Contains(logs, secret) || strings.Contains(logs, strings.Trim(string(quoted), `"`)) {
			tb.Errorf("the log holds %q", secret)
		}
	}
}
