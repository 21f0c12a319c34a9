package deadletter_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/internal/deadletter"
	"holdfast/internal/failure"
)

// execution is a failed run as n8n's API showed it.
func execution(tb testing.TB, name string) []byte {
	tb.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "failure", "testdata", "captures", "failing-exec-"+name+".json"))
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

// What n8n's API shows of a run makes the report that its error workflow sends.
func TestFromExecutionLikeTheErrorTrigger(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("..", "failure", "testdata", "captures", "failing-exec-*.json"))
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "failing-exec-"), ".json")
		r, ok := deadletter.FromExecution(execution(t, name), nil)
		if !ok || !r.FromAPI || r.ExecutionID == "" || r.WorkflowID == "" || r.WorkflowName == "" || r.Message == "" || r.Established == 0 || r.Trigger || r.Handler {
			t.Errorf("%s: %v %+v", name, ok, r)
			continue
		}
		raw, err := os.ReadFile(filepath.Join("..", "failure", "testdata", "captures", "error-trigger-"+name+".json"))
		if err != nil {
			continue
		}
		told, err := deadletter.Read(raw, nil)
		if err != nil {
			t.Fatal(err)
		}
		compared++
		if r.ExecutionID != told.ExecutionID { // captured at another time
			t.Logf("%s is another run", name)
		}
		for what, pair := range map[string][2]any{
			"class": {r.Verdict.Class, told.Verdict.Class}, "retryable": {r.Verdict.Retryable, told.Verdict.Retryable},
			"outcome": {r.Verdict.Outcome, told.Verdict.Outcome}, "status": {r.Verdict.HTTPStatus, told.Verdict.HTTPStatus},
			"node": {r.Node, told.Node}, "message": {r.Message, told.Message}, "method": {r.Method, told.Method}, "url": {r.URL, told.URL},
			"request": {string(r.RequestBody), string(told.RequestBody)}, "crash": {r.Crash, told.Crash}, "retry of": {r.RetryOf, told.RetryOf},
			"workflow": {r.WorkflowName, told.WorkflowName},
		} {
			if pair[0] != pair[1] && !(what == "request" && sameJSON(pair[0], pair[1])) {
				t.Errorf("%s: %s is %v by the API and %v by the error workflow", name, what, pair[0], pair[1])
			}
		}
	}
	if compared < 30 {
		t.Errorf("only %d runs could be compared", compared)
	}
}

func sameJSON(a, b any) bool {
	x, y := []byte(a.(string)), []byte(b.(string))
	return len(x) > 0 && len(y) > 0 && compactJSON(x) == compactJSON(y)
}

func compactJSON(raw []byte) string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return ""
	}
	out, _ := json.Marshal(v)
	return string(out)
}

func TestFromExecutionEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, says string
		crash      bool
	}{
		{"workflow-timeout", "ran out of the time", false},
		{"workflow-stopped", "cancelled manually", false},
		{"crashed-progress-false", "did not finish", true},
		{"crashed-progress-true", "did not finish", true},
	} {
		r, ok := deadletter.FromExecution(execution(t, c.name), nil)
		if !ok || !strings.Contains(r.Message, c.says) || r.Crash != c.crash || r.Verdict.Retryable || r.Verdict.Outcome != failure.Unknown || r.Verdict.Class != failure.Unclassified {
			t.Errorf("%s: %v %q crash %v %+v", c.name, ok, r.Message, r.Crash, r.Verdict)
		}
	}
	r, ok := deadletter.FromExecution(execution(t, "retry-progress-true"), nil)
	if !ok || r.RetryOf != "92" {
		t.Errorf("a retry: %v %+v", ok, r)
	}
}

func TestFromExecutionParts(t *testing.T) {
	t.Parallel()
	run := func(rest string) string {
		return `{"id":"7","workflowId":"wf","mode":"webhook","status":"error",` + rest + `}`
	}
	for _, c := range []struct {
		name, raw string
		want      func(*deadletter.Report) bool
	}{
		{
			"no data: better a letter that says little", run(`"data":null,"dataTooLargeToDisplay":true`),
			func(r *deadletter.Report) bool {
				return strings.Contains(r.Message, "does not show") && !r.Verdict.Retryable
			},
		},
		{
			"an error that n8n hides", run(`"data":{"resultData":{"redactedError":{"type":"NodeApiError","httpCode":"422"},"lastNodeExecuted":"Call"}}`),
			func(r *deadletter.Report) bool {
				return r.Verdict.HTTPStatus == 422 && r.Node == "Call" && r.Verdict.Class == failure.Validation
			},
		},
		{
			"a node that retries by itself proves nothing by its last error",
			run(`"data":{"resultData":{"error":{"message":"connect ECONNREFUSED 192.0.2.1:443","code":"ECONNREFUSED"},"lastNodeExecuted":"Call"}},
				"workflowData":{"id":"wf","name":"w","nodes":[{"name":"Other"},{"name":"Call","type":"n8n-nodes-base.httpRequest","retryOnFail":true}]}`),
			func(r *deadletter.Report) bool { return r.Verdict.NodeRetries && r.Verdict.Outcome == failure.Unknown },
		},
		{
			"a child knows its parent", run(`"data":{"resultData":{"error":{"message":"x"}},"executionData":{"runtimeData":{"parentExecutionId":"6","credentials":"sealed"}}}`),
			func(r *deadletter.Report) bool { return r.ParentExecutionID == "6" },
		},
		{
			"also where the context does not say it", run(`"data":{"parentExecution":{"executionId":"6","workflowId":"up"},"resultData":{"error":{"message":"x"}}}`),
			func(r *deadletter.Report) bool { return r.ParentExecutionID == "6" },
		},
		{
			"a parent knows its child", run(`"data":{"resultData":{"error":{"message":"x","executionId":"8","workflowId":"down"}}}`),
			func(r *deadletter.Report) bool { return r.ChildExecutionID == "8" && r.ChildWorkflowID == "down" },
		},
		{
			"an error workflow's own failure", strings.Replace(run(`"data":{"resultData":{"error":{"message":"x"}}}`), `"webhook"`, `"error"`, 1),
			func(r *deadletter.Report) bool { return r.Handler },
		},
		{
			"ids that are numbers", `{"id":7,"workflowId":12,"mode":"trigger","status":"error","retryOf":5,"data":{"resultData":{"error":"it broke"}}}`,
			func(r *deadletter.Report) bool {
				return r.ExecutionID == "7" && r.WorkflowID == "12" && r.RetryOf == "5" && strings.Contains(r.Message, "it broke")
			},
		},
		{
			"secrets", run(`"data":{"resultData":{"error":{"message":"bad token=sk_live_51Habcdefgh","pet":"Rex"}}}`),
			func(r *deadletter.Report) bool {
				return !strings.Contains(r.Message+string(r.Error), "sk_live_51H") && !strings.Contains(string(r.Error), "Rex")
			},
		},
		{
			"lone surrogates and NUL", run(`"data":{"resultData":{"error":{"message":"a\ud800b\u0000c"}}}`),
			func(r *deadletter.Report) bool { return strings.Contains(r.Message, "a") },
		},
	} {
		r, ok := deadletter.FromExecution([]byte(c.raw), []string{"pet"})
		if !ok || r.ExecutionID != "7" || !c.want(r) {
			t.Errorf("%s: %v %+v", c.name, ok, r)
		}
	}
	for _, raw := range []string{
		``, `null`, `[]`, `"x"`, `{"id":"7"}`, run(`"data":`), `{"id":"7","workflowId":"wf","status":"success"}`, `{"id":"7","workflowId":"wf","status":"running"}`,
		`{"id":"7","workflowId":"wf","status":"waiting"}`, `{"workflowId":"wf","status":"error"}`, `{"message":"Not Found"}`,
	} {
		if r, ok := deadletter.FromExecution([]byte(raw), nil); ok && !strings.Contains(raw, `"status":"error","data":}`) {
			t.Errorf("%s makes a report: %+v", raw, r)
		}
	}
}

func TestOutcome(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string][2]bool{
		`{"id":"1","status":"success"}`:                      {true, false},
		`{"id":"1","status":"error","retrySuccessId":"9"}`:   {false, true},
		`{"id":"1","status":"error","retrySuccessId":9}`:     {false, true},
		`{"id":"1","status":"error","retrySuccessId":null}`:  {},
		`{"id":"1","status":"error"}`:                        {},
		`{"id":"1","status":"waiting"}`:                      {},
		`{"message":"Not Found"}`:                            {},
		`<html>`:                                             {},
		string(execution(t, "status-422")):                   {},
		`{"id":"1","status":"success","retrySuccessId":"2"}`: {true, true},
	} {
		if succeeded, retried := deadletter.Outcome([]byte(raw)); [2]bool{succeeded, retried} != want {
			t.Errorf("%.80s: %v %v", raw, succeeded, retried)
		}
	}
}
