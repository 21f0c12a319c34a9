package failure_test

import (
	"fmt"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/failure"
)

// statusRows say what each status means after a POST.
var statusRows = []struct {
	statuses  []int
	class     failure.Class
	retryable bool
	outcome   failure.Outcome
}{
	{[]int{200, 201, 202, 204, 207}, failure.Unclassified, no, failure.Unknown},
	{[]int{301, 302, 303, 307, 308}, failure.Unclassified, no, failure.Unknown},
	{[]int{401, 403, 407}, failure.Auth, no, failure.NotExecuted},
	{[]int{429}, failure.RateLimited, yes, failure.NotExecuted},
	{[]int{409}, failure.Conflict, no, failure.Unknown},
	{[]int{408}, failure.Transient, yes, failure.Unknown},
	{[]int{425}, failure.Transient, yes, failure.NotExecuted},
	{
		[]int{400, 402, 404, 405, 406, 410, 411, 412, 413, 414, 415, 416, 417, 418, 421, 422, 423, 424, 426, 428, 431, 451},
		failure.Validation, no, failure.NotExecuted,
	},
	{[]int{460, 499}, failure.Validation, no, failure.Unknown}, // a proxy's log: the client left
	{[]int{500, 502, 503, 504, 520, 522, 524}, failure.Transient, yes, failure.Unknown},
	{[]int{521, 523}, failure.Transient, yes, failure.NotExecuted},
	{[]int{501, 505, 506}, failure.Validation, no, failure.NotExecuted},
	{[]int{507, 508, 511, 525, 526, 529}, failure.Unclassified, no, failure.NotExecuted},
	{[]int{509, 510, 527, 530, 599, 999}, failure.Unclassified, no, failure.Unknown},
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	for _, tt := range statusRows {
		for _, status := range tt.statuses {
			t.Run(fmt.Sprint(status), func(t *testing.T) {
				t.Parallel()
				want := row{"given", tt.class, tt.retryable, tt.outcome, status}
				check(t, want, failure.Classify(failure.Input{HTTPStatus: status}))
				check(t, want, failure.Classify(failure.Input{HTTPStatus: status, Method: "PATCH"}))

				// The caller's status wins over another in the error.
				want.name = "given beside another"
				check(t, want, failure.Classify(failure.Input{HTTPStatus: status, Error: jsontext.Value(`{"httpCode":"418","message":"x"}`)}))

				want.name = "read"
				want.outcome = failure.NotExecuted
				check(t, want, failure.Classify(failure.Input{HTTPStatus: status, Method: "GET"}))
				check(t, want, failure.Classify(failure.Input{HTTPStatus: status, Method: " head "}))
			})
		}
	}
}

// TestStatusPlaces puts a status where n8n, axios and APIs put it.
func TestStatusPlaces(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		error  string
		status int
	}{
		{`{"httpCode":"503"}`, 503},
		{`{"httpCode":503}`, 503},
		{`{"code":"503"}`, 503},
		{`{"code":503}`, 503},
		{`{"name":"AxiosError","code":"ERR_BAD_RESPONSE","status":503}`, 503},
		{`{"response":{"status":503,"data":{"code":404}}}`, 503},
		{`{"error":{"status":503}}`, 503},
		{`{"error":{"message":"m"},"details":{"httpCode":"503","body":{"status":404}}}`, 503},
		{`{"message":"m","errorResponse":{"httpCode":"503"}}`, 503},
		{`{"message":"m","cause":{"httpCode":"503"}}`, 503},
		{`{"name":"NodeOperationError","message":"m","cause":{"name":"NodeApiError","httpCode":"503"}}`, 503},
		{`{"statusCode":503,"headers":{},"body":{}}`, 503},
		{`{"type":"about:blank","title":"t","status":503,"detail":"d"}`, 503},
		{`{"status":503,"code":"unavailable","message":"m","details":{},"request_id":"r"}`, 503},
		{`{"status":404,"error":"Not Found","path":"/x","timestamp":"t"}`, 404},
		{`"503 - \"{\\\"error\\\":1}\""`, 503},
		{`"503 Service Unavailable"`, 503},
		{`"Request failed with status code 503"`, 503},
		{`"AxiosError: Request failed with status code 503"`, 503},
		{`"{\"httpCode\":\"503\",\"message\":\"as JSON text\"}"`, 503},
		{`[{"json":{"execution":{"error":{"httpCode":"503"}}}}]`, 503},

		{`{"code":190,"message":"an API's own number"}`, 0},
		{`{"code":"23505","message":"a database's"}`, 0},
		{`{"status":"error","message":"m"}`, 0},
		{`"503 orders were lost"`, 0},
		{`"the other service: Request failed with status code 503"`, 0},
		// What an item of an error output had before is no evidence.
		{`{"statusCode":404,"body":{},"headers":{},"status":404,"error":"aborted"}`, 0},
		{`{"statusCode":404,"code":404,"error":{"message":"aborted"}}`, 0},
	} {
		t.Run(tt.error, func(t *testing.T) {
			t.Parallel()
			if got := failure.Classify(failure.Input{Error: jsontext.Value(tt.error)}); got.HTTPStatus != tt.status {
				t.Errorf("status %d, want %d (%s)", got.HTTPStatus, tt.status, got.Summary)
			}
		})
	}
}

// TestReuse covers refusals that are none: the key or reference was used before.
func TestReuse(t *testing.T) {
	t.Parallel()
	conflict := row{"", failure.Conflict, no, failure.Unknown, 400}
	refusal := row{"", failure.Validation, no, failure.NotExecuted, 400}
	for _, tt := range []struct {
		text string
		want row
	}{
		{`{"error":{"type":"idempotency_error","message":"Keys for idempotent requests can only be used with the same parameters they were first used with."}}`, conflict},
		{`{"errors":[{"code":"IDEMPOTENCY_KEY_REUSED"}]}`, conflict},
		{`{"code":"key_reused","message":"m"}`, conflict},
		{`{"error":{"reason":"idempotent_creation_conflict"}}`, conflict},
		{`{"name":"DUPLICATE_REQUEST_ID"}`, conflict},
		{`{"status":false,"message":"Duplicate Transaction Reference"}`, conflict},
		{`{"message":"Transaction reference has already been used"}`, conflict},
		{`{"code":"RESOURCE_ALREADY_EXIST"}`, conflict},
		{`{"detail":"A request with this Idempotency-Key is still being processed"}`, conflict},
		{`{"message":"idempotencyKey was already used with a different payload"}`, conflict},
		{`{"message":"order_id must be unique"}`, conflict},

		{`{"message":"The header Idempotency-Key is required"}`, refusal},
		{`{"message":"Idempotency key missing"}`, refusal},
		{`{"message":"email has already been taken"}`, refusal},
		{`{"message":"the amount is too small"}`, refusal},
		{`{"message":"unknown reference"}`, refusal},
	} {
		t.Run(tt.text, func(t *testing.T) {
			t.Parallel()
			check(t, tt.want, failure.Classify(failure.Input{Error: jsontext.Value(tt.text), HTTPStatus: 400}))

			quoted, err := jsontext.AppendQuote(nil, "400 - "+tt.text)
			if err != nil {
				t.Fatal(err)
			}
			node := `{"name":"NodeApiError","httpCode":"400","message":"Bad request - please check your parameters","messages":[` + string(quoted) + `]}`
			check(t, tt.want, failure.Classify(failure.Input{Error: jsontext.Value(node)}))
		})
	}

	for _, status := range []int{402, 403, 404, 409, 422} {
		want := conflict
		want.status = status
		check(t, want, failure.Classify(failure.Input{Error: jsontext.Value(`"Duplicate transaction reference"`), HTTPStatus: status}))
	}
	// The words do not turn another failure into a conflict.
	check(t, row{"500", failure.Transient, yes, failure.Unknown, 500},
		failure.Classify(failure.Input{Error: jsontext.Value(`"Duplicate transaction reference"`), HTTPStatus: 500}))
}

// TestOriginErrors reads the body of Cloudflare's 530.
func TestOriginErrors(t *testing.T) {
	t.Parallel()
	check(t, row{"1016", failure.Unclassified, no, failure.NotExecuted, 530},
		failure.Classify(failure.Input{Error: jsontext.Value(`"530 - \"error code: 1016\""`)}))
	check(t, row{"1015", failure.Unclassified, no, failure.Unknown, 530},
		failure.Classify(failure.Input{Error: jsontext.Value(`"530 - \"error code: 1015\""`)}))
}
