package failure_test

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/failure"
)

// The Error Trigger's item, shortened: a POST timed out, so nobody knows.
func ExampleClassify() {
	report := jsontext.Value(`{"execution":{"id":"38","lastNodeExecuted":"Charge","error":{"name":"NodeApiError","httpCode":"ECONNABORTED",
		"message":"The connection was aborted, perhaps the server is offline","messages":["timeout of 1000ms exceeded"],
		"context":{"request":{"method":"POST","uri":"https://api.example/charges"}}}},"workflow":{"id":"w1"}}`)
	v := failure.Classify(failure.Input{Error: report, AttemptCount: 2})
	fmt.Println(v.Class, v.Retryable, v.Outcome, v.NextStatus, v.BackoffSeconds)
	fmt.Println(v.Summary)
	// Output:
	// transient true unknown queued 120
	// ECONNABORTED at Charge: timeout of 1000ms exceeded
}

func ExampleRedactJSON() {
	fmt.Println(string(failure.RedactJSON([]byte(`{"uri":"https://h/?api_key=k1","headers":{"Cookie":"sid=2"},"max_tokens":50}`), nil)))
	// Output: {"uri":"https://h/?api_key=[redacted]","headers":{"Cookie":"[redacted]"},"max_tokens":50}
}
