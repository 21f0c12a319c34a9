package failure_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/failure"
)

// TestNothingKnown covers reports that say nothing.
func TestNothingKnown(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"", " ", "null", "{}", "[]", `""`, "[{}]", `{"error":null}`, `{"error":{}}`, `{"execution":{"mode":"trigger"},"workflow":{"id":"1"}}`} {
		got := failure.Classify(failure.Input{Error: jsontext.Value(raw)})
		check(t, row{raw, failure.Unclassified, no, failure.Unknown, 0}, got)
		if want := "unclassified"; !strings.HasPrefix(got.Summary, want) {
			t.Errorf("%q: summary %q", raw, got.Summary)
		}
	}
	if got := failure.Summary(failure.Input{}); got != "unclassified: neither an error nor a status was given" {
		t.Errorf("summary %q", got)
	}
	if got := failure.Summary(failure.Input{Error: jsontext.Value("{}"), HTTPStatus: 503, Node: "Charge"}); got != "503 at Charge: Service Unavailable" {
		t.Errorf("summary %q", got)
	}
}

// TestErrorTriggerShapes are the reports of people's issue threads: ids
// missing, an error that is a text, the trigger's own failure.
func TestErrorTriggerShapes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ raw, summary string }{
		{`{"execution":{"id":"88412","url":"u","retryOf":"88390","error":{"message":"m","stack":"s"},"lastNodeExecuted":"Charge","mode":"webhook"},"workflow":{"id":"1","name":"W"}}`, "unclassified at Charge: m"},
		{`{"execution":{"error":{"message":"m"},"mode":"trigger"},"workflow":{"id":"1","name":"W"}}`, "unclassified: m"},
		{`{"trigger":{"error":{"message":"activation failed","timestamp":1767225600000},"mode":"trigger"},"workflow":{"id":"1","name":"W"}}`, "unclassified: activation failed"},
		{`{"execution":{"id":88412,"error":"plain text","lastNodeExecuted":null},"workflow":{"id":null,"name":""}}`, "unclassified: plain text"},
		{`[{"execution":{"id":"1","error":{"message":"m"},"lastNodeExecuted":"Charge"}}]`, "unclassified at Charge: m"},
		{`{"event_id":"e","failed_node":"Charge","error_message":"socket hang up","method":"POST","http_status":null}`, "transient at Charge: socket hang up"},
	} {
		if got := failure.Classify(failure.Input{Error: jsontext.Value(tt.raw)}); got.Summary != tt.summary {
			t.Errorf("%s\n got %q\nwant %q", tt.raw, got.Summary, tt.summary)
		}
	}
}

// TestMethod reads the method of the failing request out of the report.
func TestMethod(t *testing.T) {
	t.Parallel()
	timeout := func(method string) string {
		return `{"name":"NodeApiError","httpCode":"ECONNABORTED","context":{"request":{"method":"` + method + `","uri":"u"}}}`
	}
	for _, tt := range []struct {
		raw, method string
		outcome     failure.Outcome
	}{
		{timeout("GET"), "", failure.NotExecuted},
		{timeout("HEAD"), "", failure.NotExecuted},
		{timeout("POST"), "", failure.Unknown},
		{timeout("DELETE"), "", failure.Unknown},
		{timeout("GET"), "POST", failure.Unknown}, // the caller knows better
		{`{"errorResponse":` + timeout("GET") + `,"message":"m"}`, "", failure.NotExecuted},
		{`{"name":"AxiosError","code":"ECONNABORTED","config":{"method":"get"}}`, "", failure.NotExecuted},
		// A redirect made a GET of it; what was asked for counts.
		{`{"code":"ECONNRESET","config":{"method":"post"},"request":{"method":"GET"}}`, "", failure.Unknown},
	} {
		got := failure.Classify(failure.Input{Error: jsontext.Value(tt.raw), Method: tt.method})
		if got.Outcome != tt.outcome {
			t.Errorf("%s %s: %s, want %s", tt.raw, tt.method, got.Outcome, tt.outcome)
		}
	}
}

// TestNodeRetries covers Retry On Fail: the last error does not speak for the
// tries before it, so nothing is believed not to have happened.
func TestNodeRetries(t *testing.T) {
	t.Parallel()
	node := `"node":{"name":"Charge","retryOnFail":true,"maxTries":3}`
	for _, raw := range []string{
		`{"httpCode":"429",` + node + `}`,
		`{"httpCode":"422",` + node + `}`,
		`{"httpCode":"ECONNREFUSED",` + node + `}`,
		`{"name":"NodeOperationError","message":"Invalid URL: x",` + node + `}`,
		`{"execution":{"error":{"httpCode":"401",` + node + `}}}`,
		`{"message":"m","errorResponse":{"httpCode":"401",` + node + `}}`,
		`{"httpCode":"ECONNABORTED","context":{"request":{"method":"GET"}},` + node + `}`,
		// n8n's API shows the node even where the error does not.
		`{"status":"error","data":{"resultData":{"error":{"message":"Credential with ID \"x\" does not exist"},"lastNodeExecuted":"Charge"}},
		  "workflowData":{"nodes":[{"name":"Other"},{"name":"Charge","retryOnFail":true}]}}`,
	} {
		got := failure.Classify(failure.Input{Error: jsontext.Value(raw)})
		if !got.NodeRetries || got.Outcome != failure.Unknown {
			t.Errorf("%s: retries=%t, %s", raw, got.NodeRetries, got.Outcome)
		}
	}
	off := `{"httpCode":"422","node":{"name":"Charge","retryOnFail":false}}`
	if got := failure.Classify(failure.Input{Error: jsontext.Value(off)}); got.NodeRetries || got.Outcome != failure.NotExecuted {
		t.Errorf("retries off: %+v", got)
	}
}

// TestWorkflowErrors covers who threw, where the texts are the author's own.
func TestWorkflowErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		raw  string
		want row
	}{
		{`{"name":"WrappedExecutionError","message":"the call timed out [line 3]","description":null}`, ownCode},
		{`{"name":"WrappedExecutionError","message":"Request failed with status code 503","description":null}`, ownCode},
		{`{"name":"WrappedExecutionError","message":"Request failed with status code 503","description":"AxiosError"}`, row{"", failure.Transient, yes, failure.Unknown, 503}},
		{`{"name":"WrappedExecutionError","message":"connect ECONNREFUSED 127.0.0.1:1","description":"Error"}`, maybeSent},
		{`{"name":"WrappedExecutionError","message":"timeout of 800ms exceeded","description":"AxiosError"}`, maybeSent},
		{`{"name":"NodeOperationError","message":"503 - timed out","node":{"type":"n8n-nodes-base.stopAndError","name":"Stop"}}`, ownCode},
		{`{"name":"NodeOperationError","message":"Column not found"}`, ownCode},
		{`{"name":"NodeOperationError","message":"Node does not have any credentials set for \"x\"!"}`, misuse},
		{`{"name":"ExpressionError","message":"timed out","cause":{"0":"=","1":"h"}}`, misuse},
		{`{"name":"TypeError","message":"x is not a function"}`, ownCode},
		{`{"name":"TaskRunnerTimeoutError","message":"Task execution timed out after 60 seconds"}`, ownCode},
		{`{"name":"NodeSslError","message":"SSL Issue: consider using the 'Ignore SSL issues' option"}`, certificate},
		{`{"message":"the child threw","errorResponse":{"name":"WrappedExecutionError","message":"boom"},"name":"NodeOperationError"}`, ownCode},
	} {
		want := tt.want
		want.name = tt.raw
		check(t, want, failure.Classify(failure.Input{Error: jsontext.Value(tt.raw)}))
	}
}

// TestAttempts covers next_status, escalate and their defaults.
func TestAttempts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		attempts, limit int
		next            string
		backoff         int64
	}{
		{0, 0, failure.Queued, 60},
		{-3, -1, failure.Queued, 60},
		{1, 6, failure.Queued, 60},
		{5, 0, failure.Queued, 960},
		{6, 0, failure.Dead, 1920},
		{7, 6, failure.Dead, 3600},
		{1, 1, failure.Dead, 60},
		{6, 10, failure.Queued, 1920},
	} {
		got := failure.Classify(failure.Input{HTTPStatus: 503, AttemptCount: tt.attempts, MaxAttempts: tt.limit})
		if got.NextStatus != tt.next || got.Escalate != (tt.next == failure.Dead) || got.BackoffSeconds != tt.backoff || !got.Retryable {
			t.Errorf("attempt %d of %d: %+v", tt.attempts, tt.limit, got)
		}
	}
	got := failure.Classify(failure.Input{HTTPStatus: 422, AttemptCount: 2})
	if got.NextStatus != failure.Dead || !got.Escalate || got.BackoffSeconds != 120 {
		t.Errorf("not retryable: %+v", got)
	}
}

// TestRetryAfterInReport uses the header that a full response shows; the
// caller's own value wins.
func TestRetryAfterInReport(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		raw     string
		given   *int64
		backoff int64
	}{
		{`{"statusCode":429,"headers":{"retry-after":"600"},"body":{}}`, nil, 600},
		{`{"statusCode":429,"headers":{"Retry-After":600},"body":{}}`, nil, 600},
		{`{"response":{"status":429,"headers":{"retry-after":"600"}}}`, nil, 600},
		{`{"statusCode":429,"headers":{"retry-after":"600"}}`, new(int64(900)), 900},
		{`{"statusCode":429,"headers":{"retry-after":"7"}}`, nil, 60},
		{`{"statusCode":429,"headers":{"retry-after":"Wed, 01 Jan 2031 00:00:10 GMT"}}`, nil, 60},
		{`{"statusCode":429,"headers":{"date":"Wed, 01 Jan 2031 00:00:00 GMT","Retry-After":"Wed, 01 Jan 2031 00:10:00 GMT"}}`, nil, 600},
		{`{"statusCode":429,"headers":{"Date":"Wed, 01 Jan 2031 00:10:00 GMT","retry-after":"Wed, 01 Jan 2031 00:00:00 GMT"}}`, nil, 60}, // it has passed
		{`{"statusCode":429,"headers":{"date":"soon","retry-after":"Wed, 01 Jan 2031 00:10:00 GMT"}}`, nil, 60},
		{`{"statusCode":429,"headers":{"retry-after":"-5"}}`, nil, 60},
		{`{"error":{"httpCode":"429"},"headers":{"retry-after":"600"}}`, nil, 60}, // the node's input
	} {
		if got := failure.Classify(failure.Input{Error: jsontext.Value(tt.raw), RetryAfter: tt.given}); got.BackoffSeconds != tt.backoff {
			t.Errorf("%s: %d, want %d", tt.raw, got.BackoffSeconds, tt.backoff)
		}
	}
}

// TestUglyReports covers what must be taken all the same: any depth, any bytes,
// any cut.
func TestUglyReports(t *testing.T) {
	t.Parallel()
	want := row{"", failure.RateLimited, yes, failure.NotExecuted, 429}
	for _, depth := range []int{64, 500, 1_001, 2_001, 10_001, 100_000} {
		deep := strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)
		want.name = "an object deep in the request"
		check(t, want, failure.Classify(failure.Input{Error: jsontext.Value(`{"context":{"request":{"body":` + deep + `}},"httpCode":"429"}`)}))
		lists := strings.Repeat("[", depth) + strings.Repeat("]", depth)
		want.name = "lists deep in the request"
		check(t, want, failure.Classify(failure.Input{Error: jsontext.Value(`{"context":` + lists + `,"httpCode":"429"}`)}))

		for _, only := range []string{deep, lists, `{"cause":` + deep + `}`, strings.Repeat(`{"cause":`, depth), strings.Repeat("[", depth)} {
			failure.Classify(failure.Input{Error: jsontext.Value(only)})
		}
	}
	for _, tt := range []string{
		`{"httpCode":"429","message":"cut in the mid`,
		`{"httpCode":"429","message":"a` + "\x00\xff" + `b","messages":["\ud800"]}`,
		`{"httpCode":"400","httpCode":"429"}`, // the last wins, as in JavaScript
		`{"httpCode":"429","messages":[1,null,{}],"description":7,"node":[],"context":"x","cause":[1]}`,
	} {
		want.name = tt
		check(t, want, failure.Classify(failure.Input{Error: jsontext.Value(tt)}))
	}
}
