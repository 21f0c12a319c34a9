package failure_test

import (
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/failure"
)

// lenient is what JavaScript makes and JSON's strict form does not allow.
var lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

func FuzzClassify(f *testing.F) {
	for _, name := range []string{"error-trigger-status-422", "error-trigger-subworkflow-all", "failing-exec-workflow-timeout", "http-node-eo-429", "http-node-ne-full-429"} {
		f.Add([]byte(capture(f, name)), 0, "", 1)
	}
	for _, tt := range networkRows {
		f.Add([]byte(tt.error), 503, "GET", 3)
	}
	f.Add([]byte(`{"errors":[{"a":[[[`), 422, "POST", -1)
	f.Add([]byte("\"\\ud800\xff\x00"), 1<<40, "x", 1<<40)
	f.Fuzz(func(t *testing.T, raw []byte, status int, method string, attempt int) {
		in := failure.Input{Error: raw, HTTPStatus: status, Method: method, Node: method, AttemptCount: attempt}
		got := failure.Classify(in)
		if again := failure.Classify(in); got != again {
			t.Errorf("not the same twice:\n%+v\n%+v", got, again)
		}
		if n := utf8.RuneCountInString(got.Summary); n == 0 || n > 200 || !utf8.ValidString(got.Summary) {
			t.Errorf("summary of %d characters: %q", n, got.Summary)
		}
		if got.BackoffSeconds < 30 || got.BackoffSeconds > 7*24*3600 {
			t.Errorf("backoff %d", got.BackoffSeconds)
		}
		if got.NodeRetries && got.Outcome != failure.Unknown {
			t.Errorf("believed although the node retries: %+v", got)
		}
		if (got.NextStatus == failure.Queued) == got.Escalate || !got.Retryable && !got.Escalate {
			t.Errorf("contradiction: %+v", got)
		}
		text := failure.Text(raw, 300)
		if len(text) > 300 || !utf8.ValidString(text) {
			t.Errorf("text %q", text)
		}
		for _, r := range text {
			if r == 0 || r < ' ' && r != '\n' && r != '\t' {
				t.Errorf("control %U in %q", r, text)
			}
		}
	})
}

func FuzzRedact(f *testing.F) {
	for _, tt := range redactRows {
		f.Add([]byte(tt.in))
	}
	for _, tt := range redactJSONRows {
		f.Add([]byte(tt.in))
	}
	for _, name := range []string{"error-trigger-status-422-literal-secret-header", "error-trigger-binary-body-500"} {
		f.Add([]byte(capture(f, name)))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		extra := []string{"email"}
		once := failure.Redact(string(raw), extra)
		if twice := failure.Redact(once, extra); twice != once {
			t.Errorf("Redact: %q\nbecame %q\nthen   %q", raw, once, twice)
		}
		out := failure.RedactJSON(raw, extra)
		if again := failure.RedactJSON(out, extra); string(again) != string(out) {
			t.Errorf("RedactJSON: %q\nbecame %q\nthen   %q", raw, out, again)
		}
		if jsontext.Value(raw).IsValid(lenient...) && !jsontext.Value(out).IsValid(lenient...) {
			t.Errorf("no JSON any more: %q became %q", raw, out)
		}
		if jsontext.Value(raw).IsValid() && !jsontext.Value(out).IsValid() {
			t.Errorf("no strict JSON any more: %q became %q", raw, out)
		}
		if utf8.Valid(raw) && !utf8.ValidString(once) {
			t.Errorf("no UTF-8 any more: %q became %q", raw, once)
		}
	})
}
