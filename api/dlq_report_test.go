package api_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// Every report that n8n was seen to send, with what section 6 makes of it: none of these executions holds a claim, so
// what may have been done waits for a person unless the request carried an Idempotency-Key.
func TestReportsAsN8nSendsThem(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		for _, c := range []struct{ status, reason, class, captures string }{
			{"queued", "transient", "transient", "conn-refused dns tls retry-of-failed-progress-false retry-of-failed-progress-true"},
			{"queued", "rate_limited", "rate_limited", "status-429 status-429-text"},
			{"dead", "outcome_unknown", "rate_limited", "status-429-retried-3"},
			{"dead", "outcome_unknown", "transient", "binary-body-500 hangup status-500 status-502-html status-503-empty timeout timeout-body trigger-failure-poll"},
			{"dead", "auth", "auth", "status-401 status-401-bearer-cred status-401-header-cred status-403"},
			{"dead", "conflict", "conflict", "status-409-problem"},
			{"dead", "validation", "validation", "5items-2-fail code-httprequest-422 status-400 status-404 status-422 status-422-fullresponse status-422-literal-secret-header " +
				"status-422-responseformat-json status-422-responseformat-text status-422-typeversion-4.2 trigger-failure-schedule-fails trigger-failure-schedule-fails-1 unsaved-execution"},
			{"dead", "workflow", "workflow", "bad-json-body-param bad-url code-bad-return code-syntax code-throw-custom code-throw-error code-throw-string code-typeerror " +
				"expression-error expression-error-body expression-error-body-syntax missing-credential stop-and-error-message stop-and-error-object"},
			{"dead", "unclassified", "unclassified", "bad-json-200 crash-0 crash-1"},
		} {
			for _, name := range strings.Fields(c.captures) {
				report := capture(t, name)[0]
				a := w.reports(t, report)
				want := obj{"status": c.status, "reason": c.reason, "error_class": c.class, "duplicate": false, "attempt_count": 1, "max_attempts": 6, "play": "request"}
				if c.status == "dead" {
					want["next_retry_at"] = nil
				} else {
					w.comesDue(t, a.body, 60)
				}
				a.has(t, want).has(t, saidBy(t, report)).has(t, obj{"replay_url": publicURL + "/console/letters/" + a.text("id")})
				if a.body["escalated"] != (c.status == "dead") || a.text("summary") == "" {
					t.Errorf("escalated %v, summary %q", a.body["escalated"], a.text("summary"))
				}
				w.reports(t, report).has(t, obj{"id": a.text("id"), "duplicate": true, "attempt_count": 1, "status": c.status})
				if a.body["execution_id"] != nil { // else other bytes are another failure
					w.reports(t, "["+report+"]").has(t, obj{"id": a.text("id"), "attempt_count": 1, "duplicate": true})
				}
				detail := w.letter(t, a.text("id")).has(t, saidBy(t, report)).has(t, inputOf(t, report))
				if t.Failed() {
					t.Fatalf("%s: %s", name, clip(detail.raw))
				}
			}
		}
	})
}

type errorItem struct {
	Execution struct {
		ID    string
		Error struct {
			Context struct {
				Request struct {
					Method  string
					Headers map[string]any
					Body    json.RawMessage
				}
			}
		}
		LastNodeExecuted string
	}
	Workflow struct{ ID, Name string }
}

func read(tb testing.TB, report string) (item errorItem) {
	tb.Helper()
	if err := json.Unmarshal([]byte(report), &item); err != nil {
		tb.Fatal(err)
	}
	return item
}

// saidBy is what a report says of its execution.
func saidBy(tb testing.TB, report string) obj {
	tb.Helper()
	item := read(tb, report)
	out := obj{"workflow_id": item.Workflow.ID, "workflow_name": item.Workflow.Name, "execution_id": nil, "failed_node": nil, "provider_key": nil}
	if item.Execution.ID != "" {
		out["execution_id"], out["failed_node"] = item.Execution.ID, item.Execution.LastNodeExecuted
	}
	if key := item.Execution.Error.Context.Request.Headers["idempotency-key"]; key != nil {
		out["provider_key"] = key
	}
	return out
}

// inputOf is the failed request, as far as a report has it: n8n shows the bytes of a body that is no JSON in a form that
// nobody can send again.
func inputOf(tb testing.TB, report string) obj {
	tb.Helper()
	request := read(tb, report).Execution.Error.Context.Request
	if len(request.Body) == 0 || bytes.Contains(request.Body, []byte(`"Buffer"`)) {
		return obj{"payload": nil}
	}
	var body any
	d := json.NewDecoder(strings.NewReader(string(request.Body)))
	d.UseNumber()
	if err := d.Decode(&body); err != nil {
		tb.Fatal(err)
	}
	return obj{"payload": body, "input": "stored", "method": request.Method}
}

// The flat form, from an error path.
func TestFlatReports(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		flat := obj{
			"event_id": "order-7001", "workflow_id": "kT4bS0qX", "workflow_name": "Orders", "execution_id": 1042, "failed_node": "Charge",
			"error_message": "The service refused", "error_stack": "Error: The service refused\n    at Charge", "http_status": "422", "method": "post", "payload": obj{"order_id": 7001},
		}
		a := w.reports(t, flat).has(t, obj{
			"status": "dead", "reason": "validation", "error_class": "validation", "http_status": 422, "execution_id": "1042", "workflow_id": "kT4bS0qX", "workflow_name": "Orders",
			"failed_node": "Charge", "play": "request", "duplicate": false, "attempt_count": 1,
		})
		w.letter(t, a.text("id")).has(t, obj{"payload": obj{"order_id": 7001}, "input": "stored", "method": "POST", "message": "The service refused", "reports": 1})
		w.reports(t, and(flat, obj{"extra": true})).has(t, obj{"id": a.text("id"), "duplicate": true}) // the execution is known
		// The same event from another execution is another attempt; another workflow's is another letter.
		w.reports(t, and(flat, obj{"execution_id": 1043, "http_status": 429})).has(t, obj{"id": a.text("id"), "duplicate": false, "attempt_count": 2, "status": "queued", "execution_id": "1043"})
		other := w.reports(t, and(flat, obj{"workflow_id": "other"}))
		if other.text("id") == a.text("id") {
			t.Error("two workflows share a letter")
		}
		// One member is enough, and what has neither id is known by its bytes alone.
		bare := w.reports(t, `{"error_message":"boom"}`).has(t, obj{"attempt_count": 1, "workflow_id": nil, "execution_id": nil})
		w.reports(t, `{"error_message":"boom"}`).has(t, obj{"id": bare.text("id"), "duplicate": true})
		if again := w.reports(t, `{"error_message": "boom"}`); again.text("id") == bare.text("id") {
			t.Error("two reports without an id were taken for one")
		}
		w.reports(t, `{"event_id":"order-7002"}`).has(t, obj{"error_class": "unclassified", "status": "dead"})
	})
}

// Beside the item the sender may say more.
func TestSiblingsOfAReport(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		report := failing("kT4bS0qX", "1042", "503", posting(obj{"amount": 1200}))
		a := w.reports(t, and(report, obj{
			"payload": obj{"order_id": json.Number("9007199254740993")}, "source": "shop", "account": "eu", "idempotency_key": "order-7001", "destination": "hubspot",
			"safe_to_repeat": true, "max_attempts": 3,
		})).has(t, obj{"status": "queued", "reason": "transient", "outcome": "unknown", "source": "shop", "account": "eu", "idempotency_key": "order-7001", "destination": "hubspot", "max_attempts": 3})
		w.letter(t, a.text("id")).has(t, obj{"payload": obj{"order_id": json.Number("9007199254740993")}})
		// What may be repeated: a request that changes nothing twice, or one with a key of its own.
		for i, method := range []string{"GET", "HEAD", "PUT", "DELETE"} {
			request := and(posting(nil), obj{"method": method})
			w.reports(t, failing("kT4bS0qX", "200"+string(rune('0'+i)), "503", request)).has(t, obj{"status": "queued", "reason": "transient"})
		}
		keyed := and(posting(obj{"amount": 1}), obj{"headers": obj{"Idempotency-Key": "charge-7001-abcdef"}})
		w.reports(t, failing("kT4bS0qX", "2100", "503", keyed)).has(t, obj{"status": "queued", "provider_key": "charge-7001-abcdef", "play": "request"})
		w.reports(t, failing("kT4bS0qX", "2101", "503", and(posting(nil), obj{"method": "PATCH"}))).has(t, obj{"status": "dead", "reason": "outcome_unknown"})
		w.reports(t, failing("kT4bS0qX", "2102", "422", keyed)).has(t, obj{"status": "dead", "reason": "validation", "next_retry_at": nil, "escalated": true})
		// Attempts are used up at once where there is only one.
		once := and(failing("kT4bS0qX", "2103", "429", posting(nil)), obj{"max_attempts": 1})
		w.reports(t, once).has(t, obj{"status": "dead", "reason": "attempts_exhausted", "escalated": true, "attempt_count": 1})
	})
}

// What belongs to a letter: retries of its execution, the other half of a sub-workflow's failure, and nothing else.
func TestReportsOfOneFailure(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		report := func(execution string, more obj) obj {
			return within(failing("kT4bS0qX", execution, "429", posting(obj{"n": 1})), more)
		}
		first := w.reports(t, report("100", nil)).text("id")
		w.comesDue(t, w.reports(t, report("101", obj{"retryOf": "100", "mode": "retry"})).has(t, obj{"id": first, "duplicate": false, "attempt_count": 2, "execution_id": "101"}).body, 120)
		w.reports(t, report("102", obj{"retryOf": "101", "mode": "retry"})).has(t, obj{"id": first, "attempt_count": 3})
		w.reports(t, report("100", obj{"note": "sent again"})).has(t, obj{"id": first, "duplicate": true, "attempt_count": 3})
		// The same number in a new n8n, or in another workflow, is another execution.
		later := report("100", obj{"executionContext": obj{"establishedAt": 1796069999999}})
		if got := w.reports(t, later).has(t, obj{"duplicate": false, "attempt_count": 1}).text("id"); got == first {
			t.Error("an execution of another time has the same letter")
		}
		if got := w.reports(t, and(report("101", nil), obj{"workflow": obj{"id": "other"}})).has(t, obj{"duplicate": false, "attempt_count": 1}).text("id"); got == first {
			t.Error("two workflows share a letter")
		}
		attempts, _ := w.letter(t, first).body["attempts"].([]any)
		if len(attempts) != 3 {
			t.Errorf("%d attempts are kept, want 3", len(attempts))
		}
	})
}

func TestParentAndChildAreOneFailure(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		pair := capture(t, "subworkflow-all")
		parent := w.reports(t, pair[0]).has(t, obj{"attempt_count": 1, "error_class": "validation", "duplicate": false})
		w.reports(t, pair[1]).has(t, obj{"id": parent.text("id"), "attempt_count": 1})
		w.letter(t, parent.text("id")).has(t, obj{"reports": 2, "attempt_count": 1, "payload": obj{"order": 1}})
		items, _ := w.get(t, "/dlq").ok(t).body["items"].([]any)
		if len(items) != 1 {
			t.Errorf("%d letters, want 1", len(items))
		}
	})
}

func TestChildAndParentAreOneFailure(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		pair := capture(t, "subworkflow-all")
		child := w.reports(t, pair[1])
		w.reports(t, pair[0]).has(t, obj{"id": child.text("id"), "attempt_count": 1})
		w.letter(t, child.text("id")).has(t, obj{"reports": 2})
	})
}

// An error workflow that fails must not keep itself going.
func TestReportsOfErrorWorkflows(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		handler := func(execution string) obj {
			return within(failing("errWf", execution, "429", posting(nil)), obj{"mode": "error"})
		}
		a := w.reports(t, handler("1")).has(t, obj{"status": "dead", "next_retry_at": nil, "attempt_count": 1})
		for i, execution := range []string{"2", "3", "4"} {
			w.reports(t, handler(execution)).has(t, obj{"id": a.text("id"), "status": "dead", "next_retry_at": nil})
			w.letter(t, a.text("id")).has(t, obj{"reports": i + 2})
		}
		w.clock.advance(25 * time.Hour)
		w.leasedLetters(t, obj{}, 0)
	})
}
