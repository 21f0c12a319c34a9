package api_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Section 5, row by row, through HTTP.
func TestClassify(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	type row struct {
		class, outcome string
		retryable      bool
	}
	statuses := map[int]row{}
	for _, s := range []int{400, 402, 404, 405, 406, 410, 411, 412, 413, 414, 415, 416, 417, 418, 421, 422, 423, 424, 426, 428, 431, 451, 501, 505, 506} {
		statuses[s] = row{"validation", "not_executed", false}
	}
	for _, s := range []int{401, 403, 407} {
		statuses[s] = row{"auth", "not_executed", false}
	}
	for _, s := range []int{425, 521, 523} {
		statuses[s] = row{"transient", "not_executed", true}
	}
	for _, s := range []int{408, 500, 502, 503, 504, 520, 522, 524} {
		statuses[s] = row{"transient", "unknown", true}
	}
	for _, s := range []int{507, 508, 511, 525, 526} {
		statuses[s] = row{"unclassified", "not_executed", false}
	}
	statuses[409] = row{"conflict", "unknown", false}
	statuses[429] = row{"rate_limited", "not_executed", true}
	for status, want := range statuses {
		next, escalate := "dead", true
		if want.retryable {
			next, escalate = "queued", false
		}
		expected := obj{
			"error_class": want.class, "outcome": want.outcome, "retryable": want.retryable, "next_status": next, "escalate": escalate, "backoff_seconds": 60, "http_status": status,
		}
		w.post(t, "/classify", obj{"http_status": status}).ok(t).has(t, expected)
		w.post(t, "/classify", obj{"error": obj{"message": "Request failed", "httpCode": fmt.Sprint(status)}, "method": "POST"}).ok(t).has(t, expected)
		w.post(t, "/classify", obj{"http_status": status, "method": "GET"}).ok(t).has(t, obj{"outcome": "not_executed"})
	}
	for attempt, backoff := range map[int]int{1: 60, 2: 120, 3: 240, 6: 1920, 7: 3600, 64: 3600, 1_000_000: 3600} {
		a := w.post(t, "/classify", obj{"http_status": 503, "attempt_count": attempt}).ok(t).has(t, obj{"backoff_seconds": backoff, "escalate": attempt >= 6})
		if next := map[bool]string{true: "dead", false: "queued"}[attempt >= 6]; a.text("next_status") != next {
			t.Errorf("attempt %d: next_status %s, want %s", attempt, a.text("next_status"), next)
		}
	}
	w.post(t, "/classify", obj{"http_status": 429, "retry_after": 1000}).ok(t).has(t, obj{"backoff_seconds": 1000})
	w.post(t, "/classify", obj{"http_status": 429, "retry_after": 5}).ok(t).has(t, obj{"backoff_seconds": 60})
	w.post(t, "/classify", obj{"error": "connect ECONNREFUSED 203.0.113.7:443"}).ok(t).has(t, obj{"error_class": "transient", "outcome": "not_executed", "retryable": true, "http_status": nil})
	w.post(t, "/classify", obj{"error": obj{"message": "timeout of 1000ms exceeded", "httpCode": "ECONNABORTED"}}).ok(t).has(t, obj{"error_class": "transient", "outcome": "unknown"})
	w.post(t, "/classify", obj{"error": obj{"message": "socket hang up", "code": "ECONNRESET"}}).ok(t).has(t, obj{"error_class": "transient", "outcome": "unknown"})
	w.post(t, "/classify", obj{"error": obj{"message": "getaddrinfo ENOTFOUND api.example.test", "httpCode": "ENOTFOUND"}}).ok(t).has(t, obj{"outcome": "not_executed", "retryable": true})
	w.post(t, "/classify", obj{"error": obj{"message": "x", "httpCode": "ECONNREFUSED", "node": obj{"retryOnFail": true}}}).ok(t).has(t, obj{"outcome": "unknown"})
	w.post(t, "/classify", `{}`).ok(t).has(t, obj{"error_class": "unclassified", "outcome": "unknown", "retryable": false, "http_status": nil})
}

// ugly are bodies that somebody, some day, sends.
var ugly = []string{
	``, ` `, `{`, `}`, `[`, `[]`, `[1,{"error":{"message":"x"}}]`, `null`, `true`, `"boom"`, `0`, `1e999`, `{"error":null}`, `{"error":[]}`, `{"error":{}}`, `{"error":{"error":{"error":"deep"}}}`,
	`{"http_status":"422"}`, `{"http_status":-1}`, `{"http_status":1e300}`, `{"http_status":{}}`, `{"http_status":99999999999999999999}`, `{"method":1,"attempt_count":"x","retry_after":-5}`,
	`{"retry_after":1e308}`, `{"retry_after":"Wed, 21 Oct 2026 07:28:00 GMT"}`, `{"attempt_count":-9223372036854775808}`, `{"attempt_count":9223372036854775807}`, `{"attempt_count":1e18,"http_status":503}`,
	`{"error":"a","error":"b","http_status":500,"http_status":404}`, `{"error":{"message":"bad\u0000byte","stack":"a\u0000b"}}`, `{"error":{"message":"\ud800"}}`, `{"\ud800":1}`, "{\"error\":\"\xff\xfe\"}", "\xff",
	"\xef\xbb\xbf{}", "\x00", `{"execution":{"id":"400","error":{"message":"x","stack":"y"},"lastNodeExecuted":"N"},"workflow":{"id":"1","name":"W"}}`, `<html>502 Bad Gateway</html>`, `{"error":{"httpCode":{}}}`,
	`{"error":{"messages":[1,null,{}]}}`, `{"error":{"cause":{"cause":{"cause":null}}}}`, `{"ERROR":{"Message":"x"}}`, `{"error":"` + strings.Repeat("long ", 10_000) + `"}`,
	`{"error":` + strings.Repeat(`{"cause":`, 500) + `1` + strings.Repeat(`}`, 500) + `}`, strings.Repeat(`[`, 100_000), `{"error":` + strings.Repeat(`[`, 10_001) + strings.Repeat(`]`, 10_001) + `}`,
}

// A failure that cannot be described must not fail on top: /classify takes whatever comes.
func TestClassifyTakesWhateverComes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, body := range ugly {
		if a := w.post(t, "/classify", body); a.status != 200 {
			t.Errorf("%.60q: %d, want 200: %s", body, a.status, clip(a.raw))
		}
	}
}

// The reports that a real n8n sent.
func TestClassifyCaptures(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	files, err := filepath.Glob(filepath.Join("..", "internal", "failure", "testdata", "captures", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		w.post(t, "/classify", string(body)).ok(t)
		w.post(t, "/classify", `{"error":`+string(body)+`}`).ok(t)
	}
}
