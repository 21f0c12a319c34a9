package failure_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/failure"
)

// row is what a report must come out as.
type row struct {
	name      string
	class     failure.Class
	retryable bool
	outcome   failure.Outcome
	status    int
}

const (
	yes = true
	no  = false
)

// captureRows are reports as n8n 2.41 sent them, by file in testdata/captures
// without the ending. The expectations follow from the contract, not from a run.
var captureRows = []row{
	{"error-trigger-5items-2-fail", failure.Validation, no, failure.NotExecuted, 422},
	{"error-trigger-bad-json-200", failure.Unclassified, no, failure.Unknown, 0}, // executed, answer unreadable
	{"error-trigger-bad-json-body-param", failure.Workflow, no, failure.NotExecuted, 0},
	{"error-trigger-bad-url", failure.Workflow, no, failure.NotExecuted, 0},
	{"error-trigger-binary-body-500", failure.Transient, yes, failure.Unknown, 500},
	{"error-trigger-code-bad-return", failure.Workflow, no, failure.Unknown, 0},
	{"error-trigger-code-httprequest-422", failure.Validation, no, failure.Unknown, 422}, // the code may have sent more
	{"error-trigger-code-syntax", failure.Workflow, no, failure.Unknown, 0},
	{"error-trigger-code-throw-custom", failure.Workflow, no, failure.Unknown, 0},
	{"error-trigger-code-throw-error", failure.Workflow, no, failure.Unknown, 0},
	{"error-trigger-code-throw-string", failure.Workflow, no, failure.Unknown, 0},
	{"error-trigger-code-typeerror", failure.Workflow, no, failure.Unknown, 0},
	{"error-trigger-conn-refused", failure.Transient, yes, failure.NotExecuted, 0},
	{"error-trigger-crash-0", failure.Unclassified, no, failure.Unknown, 0},
	{"error-trigger-crash-1", failure.Unclassified, no, failure.Unknown, 0},
	{"error-trigger-dns", failure.Transient, yes, failure.NotExecuted, 0},
	{"error-trigger-expression-error-body-syntax", failure.Workflow, no, failure.NotExecuted, 0},
	{"error-trigger-expression-error-body", failure.Workflow, no, failure.NotExecuted, 0},
	{"error-trigger-expression-error", failure.Workflow, no, failure.NotExecuted, 0},
	{"error-trigger-hangup", failure.Transient, yes, failure.Unknown, 0},
	{"error-trigger-missing-credential", failure.Workflow, no, failure.NotExecuted, 0},
	{"error-trigger-retry-of-failed-progress-false", failure.Transient, yes, failure.Unknown, 500},
	{"error-trigger-retry-of-failed-progress-true", failure.Transient, yes, failure.Unknown, 500},
	{"error-trigger-status-400", failure.Validation, no, failure.NotExecuted, 400},
	{"error-trigger-status-401-bearer-cred", failure.Auth, no, failure.NotExecuted, 401},
	{"error-trigger-status-401-header-cred", failure.Auth, no, failure.NotExecuted, 401},
	{"error-trigger-status-401", failure.Auth, no, failure.NotExecuted, 401},
	{"error-trigger-status-403", failure.Auth, no, failure.NotExecuted, 403},
	{"error-trigger-status-404", failure.Validation, no, failure.NotExecuted, 404},
	{"error-trigger-status-409-problem", failure.Conflict, no, failure.Unknown, 409},
	{"error-trigger-status-422-fullresponse", failure.Validation, no, failure.NotExecuted, 422},
	{"error-trigger-status-422-literal-secret-header", failure.Validation, no, failure.NotExecuted, 422},
	{"error-trigger-status-422-responseformat-json", failure.Validation, no, failure.NotExecuted, 422},
	{"error-trigger-status-422-responseformat-text", failure.Validation, no, failure.NotExecuted, 422},
	{"error-trigger-status-422-typeversion-4.2", failure.Validation, no, failure.NotExecuted, 422},
	{"error-trigger-status-422", failure.Validation, no, failure.NotExecuted, 422},
	{"error-trigger-status-429-retried-3", failure.RateLimited, yes, failure.Unknown, 429}, // the node retried
	{"error-trigger-status-429-text", failure.RateLimited, yes, failure.NotExecuted, 429},
	{"error-trigger-status-429", failure.RateLimited, yes, failure.NotExecuted, 429},
	{"error-trigger-status-500", failure.Transient, yes, failure.Unknown, 500},
	{"error-trigger-status-502-html", failure.Transient, yes, failure.Unknown, 502},
	{"error-trigger-status-503-empty", failure.Transient, yes, failure.Unknown, 503},
	{"error-trigger-stop-and-error-message", failure.Workflow, no, failure.Unknown, 0},
	{"error-trigger-stop-and-error-object", failure.Workflow, no, failure.Unknown, 0},
	{"error-trigger-subworkflow-all", failure.Validation, no, failure.NotExecuted, 422},
	{"error-trigger-timeout-body", failure.Transient, yes, failure.Unknown, 0},
	{"error-trigger-timeout", failure.Transient, yes, failure.Unknown, 0},
	{"error-trigger-tls", failure.Transient, yes, failure.NotExecuted, 0},
	{"error-trigger-trigger-failure-poll-1", failure.Transient, yes, failure.Unknown, 500},
	{"error-trigger-trigger-failure-poll", failure.Transient, yes, failure.Unknown, 500},
	{"error-trigger-trigger-failure-schedule-fails-1", failure.Validation, no, failure.NotExecuted, 422},
	{"error-trigger-trigger-failure-schedule-fails", failure.Validation, no, failure.NotExecuted, 422},
	{"error-trigger-unsaved-execution", failure.Validation, no, failure.NotExecuted, 422},

	{"failing-exec-bad-json-200", failure.Unclassified, no, failure.Unknown, 0},
	{"failing-exec-bad-json-body-param", failure.Workflow, no, failure.NotExecuted, 0},
	{"failing-exec-bad-url", failure.Workflow, no, failure.NotExecuted, 0},
	{"failing-exec-code-bad-return", failure.Workflow, no, failure.Unknown, 0},
	{"failing-exec-code-syntax", failure.Workflow, no, failure.Unknown, 0},
	{"failing-exec-code-throw-custom", failure.Workflow, no, failure.Unknown, 0},
	{"failing-exec-code-throw-error", failure.Workflow, no, failure.Unknown, 0},
	{"failing-exec-code-throw-string", failure.Workflow, no, failure.Unknown, 0},
	{"failing-exec-code-typeerror", failure.Workflow, no, failure.Unknown, 0},
	{"failing-exec-conn-refused", failure.Transient, yes, failure.NotExecuted, 0},
	{"failing-exec-crashed-progress-false", failure.Unclassified, no, failure.Unknown, 0},
	{"failing-exec-crashed-progress-true", failure.Unclassified, no, failure.Unknown, 0},
	{"failing-exec-dns", failure.Transient, yes, failure.NotExecuted, 0},
	{"failing-exec-env-blocked", failure.Workflow, no, failure.NotExecuted, 0},
	{"failing-exec-expression-error-body-syntax", failure.Workflow, no, failure.NotExecuted, 0},
	{"failing-exec-expression-error-body", failure.Workflow, no, failure.NotExecuted, 0},
	{"failing-exec-expression-error", failure.Workflow, no, failure.NotExecuted, 0},
	{"failing-exec-hangup", failure.Transient, yes, failure.Unknown, 0},
	{"failing-exec-missing-credential", failure.Workflow, no, failure.NotExecuted, 0},
	{"failing-exec-retry-progress-false", failure.Transient, yes, failure.Unknown, 500},
	{"failing-exec-retry-progress-true", failure.Transient, yes, failure.Unknown, 500},
	{"failing-exec-ssrf-on", failure.Workflow, no, failure.NotExecuted, 0}, // n8n refused to connect
	{"failing-exec-status-400", failure.Validation, no, failure.NotExecuted, 400},
	{"failing-exec-status-401-bearer-cred", failure.Auth, no, failure.NotExecuted, 401},
	{"failing-exec-status-401-header-cred", failure.Auth, no, failure.NotExecuted, 401},
	{"failing-exec-status-401", failure.Auth, no, failure.NotExecuted, 401},
	{"failing-exec-status-403", failure.Auth, no, failure.NotExecuted, 403},
	{"failing-exec-status-404", failure.Validation, no, failure.NotExecuted, 404},
	{"failing-exec-status-409-problem", failure.Conflict, no, failure.Unknown, 409},
	{"failing-exec-status-422-fullresponse", failure.Validation, no, failure.NotExecuted, 422},
	{"failing-exec-status-422-literal-secret-header", failure.Validation, no, failure.NotExecuted, 422},
	{"failing-exec-status-422-responseformat-json", failure.Validation, no, failure.NotExecuted, 422},
	{"failing-exec-status-422-responseformat-text", failure.Validation, no, failure.NotExecuted, 422},
	{"failing-exec-status-422-typeversion-4.2", failure.Validation, no, failure.NotExecuted, 422},
	{"failing-exec-status-422", failure.Validation, no, failure.NotExecuted, 422},
	{"failing-exec-status-429-retried-3", failure.RateLimited, yes, failure.Unknown, 429},
	{"failing-exec-status-429-text", failure.RateLimited, yes, failure.NotExecuted, 429},
	{"failing-exec-status-429", failure.RateLimited, yes, failure.NotExecuted, 429},
	{"failing-exec-status-500", failure.Transient, yes, failure.Unknown, 500},
	{"failing-exec-status-502-html", failure.Transient, yes, failure.Unknown, 502},
	{"failing-exec-status-503-empty", failure.Transient, yes, failure.Unknown, 503},
	{"failing-exec-stop-and-error-message", failure.Workflow, no, failure.Unknown, 0},
	{"failing-exec-stop-and-error-object", failure.Workflow, no, failure.Unknown, 0},
	{"failing-exec-timeout-body", failure.Transient, yes, failure.Unknown, 0},
	{"failing-exec-timeout", failure.Transient, yes, failure.Unknown, 0},
	{"failing-exec-tls", failure.Transient, yes, failure.NotExecuted, 0},
	{"failing-exec-workflow-stopped", failure.Unclassified, no, failure.Unknown, 0},
	{"failing-exec-workflow-timeout", failure.Unclassified, no, failure.Unknown, 0}, // canceled: no error in it

	{"http-node-cro-422", failure.Validation, no, failure.NotExecuted, 422},
	{"http-node-eo-401-bearer", failure.Auth, no, failure.NotExecuted, 401},
	{"http-node-eo-401-headercred", failure.Auth, no, failure.NotExecuted, 401},
	{"http-node-eo-401", failure.Auth, no, failure.NotExecuted, 401},
	{"http-node-eo-422-tv42", failure.Validation, no, failure.NotExecuted, 422},
	{"http-node-eo-422-tv44", failure.Validation, no, failure.NotExecuted, 422},
	{"http-node-eo-422", failure.Validation, no, failure.NotExecuted, 422},
	{"http-node-eo-429-fullresponse", failure.RateLimited, yes, failure.NotExecuted, 429},
	{"http-node-eo-429", failure.RateLimited, yes, failure.NotExecuted, 429},
	{"http-node-eo-500", failure.Transient, yes, failure.Unknown, 500},
	{"http-node-eo-502-html", failure.Transient, yes, failure.Unknown, 502},
	{"http-node-eo-503-empty", failure.Transient, yes, failure.Unknown, 503},
	{"http-node-eo-badjson", failure.Unclassified, no, failure.Unknown, 0},
	{"http-node-eo-badurl", failure.Workflow, no, failure.NotExecuted, 0},
	{"http-node-eo-dns", failure.Transient, yes, failure.NotExecuted, 0},
	{"http-node-eo-hangup", failure.Transient, yes, failure.Unknown, 0},
	{"http-node-eo-refused", failure.Transient, yes, failure.NotExecuted, 0},
	{"http-node-eo-timeout-body", failure.Transient, yes, failure.Unknown, 0},
	{"http-node-eo-timeout", failure.Transient, yes, failure.Unknown, 0},
	{"http-node-ne-full-409-problem", failure.Conflict, no, failure.Unknown, 409},
	{"http-node-ne-full-422", failure.Validation, no, failure.NotExecuted, 422},
	{"http-node-ne-full-429", failure.RateLimited, yes, failure.NotExecuted, 429},
	{"http-node-ne-full-502-html", failure.Transient, yes, failure.Unknown, 502},
	{"http-node-ne-full-503-empty", failure.Transient, yes, failure.Unknown, 503},
	{"http-node-ne-full-json-422", failure.Validation, no, failure.NotExecuted, 422},
	{"http-node-ne-full-json-502html", failure.Unclassified, no, failure.Unknown, 0}, // the status is lost
	{"http-node-ne-full-refused", failure.Transient, yes, failure.NotExecuted, 0},
	{"http-node-ne-full-text-422", failure.Validation, no, failure.NotExecuted, 422},
	{"http-node-ne-full-timeout", failure.Transient, yes, failure.Unknown, 0},
	{"http-node-ne-nofull-422", failure.Unclassified, no, failure.Unknown, 0}, // a body alone: no status anywhere
}

// capture reads a report from testdata. The files of the HTTP node hold all
// outputs; the report is the item that came out.
func capture(tb testing.TB, name string) jsontext.Value {
	tb.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "captures", name+".json"))
	if err != nil {
		tb.Fatal(err)
	}
	if !strings.HasPrefix(name, "http-node-") {
		return raw
	}
	var file struct {
		Output0, Output1 []struct{ JSON json.RawMessage }
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		tb.Fatal(err)
	}
	for _, item := range append(file.Output1, file.Output0...) {
		return jsontext.Value(item.JSON)
	}
	tb.Fatalf("%s: no item", name)
	return nil
}

func TestCaptures(t *testing.T) {
	t.Parallel()
	for _, want := range captureRows {
		t.Run(want.name, func(t *testing.T) {
			t.Parallel()
			raw := capture(t, want.name)
			check(t, want, failure.Classify(failure.Input{Error: raw}))
			if text := failure.Text(raw, 1000); text == "" {
				t.Error("no message")
			}
		})
	}
}

// TestCapturesAreAllListed keeps the table and the folder equal.
func TestCapturesAreAllListed(t *testing.T) {
	t.Parallel()
	listed := map[string]bool{}
	for _, r := range captureRows {
		listed[r.name] = true
	}
	files, err := filepath.Glob(filepath.Join("testdata", "captures", "*.json"))
	if err != nil || len(files) != len(listed) {
		t.Errorf("%d files, %d rows, %v", len(files), len(listed), err)
	}
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".json"); !listed[name] {
			t.Errorf("%s is in no row", name)
		}
	}
}

// check compares a verdict with a row, and the parts that follow from others.
func check(t *testing.T, want row, got failure.Verdict) {
	t.Helper()
	if got.Class != want.class || got.Retryable != want.retryable || got.Outcome != want.outcome || got.HTTPStatus != want.status {
		t.Errorf("%s\n got %s retryable=%t %s %d (%s)\nwant %s retryable=%t %s %d", want.name,
			got.Class, got.Retryable, got.Outcome, got.HTTPStatus, got.Summary, want.class, want.retryable, want.outcome, want.status)
	}
	if got.Escalate != !want.retryable || (got.NextStatus == failure.Queued) == got.Escalate {
		t.Errorf("%s: first attempt: escalate=%t next_status=%s", want.name, got.Escalate, got.NextStatus)
	}
	if n := len([]rune(got.Summary)); n == 0 || n > 200 {
		t.Errorf("%s: summary of %d characters: %q", want.name, n, got.Summary)
	}
}
