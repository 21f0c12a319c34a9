package deadletter_test

import (
	"path/filepath"
	"strings"
	"testing"

	"holdfast/internal/deadletter"
)

// Every captured run has its input, for either way to play it, and none is made up.
func TestInputOfCaptures(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("..", "failure", "testdata", "captures", "failing-exec-*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "failing-exec-"), ".json")
		raw := execution(t, name)
		body, ok := deadletter.Input(raw, deadletter.PlayWorkflow)
		if !ok || strings.Contains(string(body), "webhookUrl") || strings.Contains(string(body), "Artificial") {
			t.Errorf("%s: the body: %v %.200s", name, ok, body)
		}
		item, ok := deadletter.Input(raw, deadletter.PlayRequest)
		if !ok || strings.Contains(string(item), "Artificial") {
			t.Errorf("%s: the failing node's input: %v %.200s", name, ok, item)
		}
	}
}

func TestInput(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, workflow, request string }{
		{"workflow-timeout", `{"order":1}`, `{"order":1}`}, // which request was under way, nobody knows
		{"workflow-stopped", `{"order":1}`, `{"order":1}`},
		{"crashed-progress-false", `{"o":1}`, `{"o":1}`}, // the run data is made up
		{"crashed-progress-true", `{"o":2}`, `{"ok":true,"n":8}`},
	} {
		for play, want := range map[deadletter.Play]string{deadletter.PlayWorkflow: c.workflow, deadletter.PlayRequest: c.request} {
			got, ok := deadletter.Input(execution(t, c.name), play)
			if !ok || compactJSON(got) != compactJSON([]byte(want)) {
				t.Errorf("%s, %s: %v %s", c.name, play, ok, got)
			}
		}
	}
	got, ok := deadletter.Input(execution(t, "status-422"), deadletter.PlayWorkflow)
	if !ok || !strings.Contains(string(got), `"big": 9007199254740992`) {
		t.Errorf("the body's exact bytes: %v %s", ok, got)
	}
}

// item is one item of n8n's.
func item(content string) string { return `{"json":` + content + `,"pairedItem":{"item":0}}` }

// webhookRun is a run of Webhook -> Call that failed in Call.
func webhookRun(webhookItem, callSource string) string {
	return `{"id":"7","workflowId":"wf","mode":"webhook","status":"error","data":{
		"resultData":{"error":{"message":"x"},"lastNodeExecuted":"Call","runData":{
			"Webhook":[{"executionIndex":0,"source":[],"data":{"main":[[` + webhookItem + `]]}}],
			"Call":[{"executionIndex":1,"source":[` + callSource + `],"error":{"message":"x"}}]}},
		"executionData":{"nodeExecutionStack":[],"runtimeData":{"triggerNode":{"name":"Webhook","type":"n8n-nodes-base.webhook"}}}},
		"workflowData":{"id":"wf","nodes":[{"name":"Webhook","type":"n8n-nodes-base.webhook"},{"name":"Call","type":"n8n-nodes-base.httpRequest"}]}}`
}

func TestInputWebhook(t *testing.T) {
	t.Parallel()
	from := `{"previousNode":"Webhook"}` // absent numbers are 0
	for _, c := range []struct{ name, item, workflow, request string }{
		{"a body", item(`{"headers":{},"query":{},"body":{"a":1}}`), `{"a":1}`, `{"headers":{},"query":{},"body":{"a":1}}`},
		{"an array", item(`{"body":[1,2]}`), `[1,2]`, `{"body":[1,2]}`},
		{"text", item(`{"body":"hello"}`), `"hello"`, `{"body":"hello"}`},
		{"numbers stay as they are", item(`{"body":{"n":9007199254740993,"f":1.0}}`), `{"n":9007199254740993,"f":1.0}`, `{"body":{"n":9007199254740993,"f":1.0}}`},
		{"lone surrogates and NUL stay", item(`{"body":{"s":"\ud800\u0000"}}`), `{"s":"\ud800\u0000"}`, `{"body":{"s":"\ud800\u0000"}}`},
		{"nothing was sent", item(`{"body":{},"query":{}}`), `{}`, `{"body":{},"query":{}}`},
		{"the query has it", item(`{"body":{},"query":{"a":"1"}}`), ``, `{"body":{},"query":{"a":"1"}}`},
		{"a file has it", `{"json":{"body":{}},"binary":{"data":{"mimeType":"application/pdf"}}}`, ``, `{"body":{}}`},
		{"raw body beside a parsed one", `{"json":{"body":{"a":1}},"binary":{"data":{}}}`, `{"a":1}`, `{"body":{"a":1}}`},
		{"made up", item(`{"isArtificialRecoveredEventItem":true}`), ``, ``},
		{"hidden", `{"json":{},"redaction":{"redacted":true,"reason":"workflow_redaction_policy"}}`, ``, ``},
		{"a hidden field", item(`{"body":{"card":{"__redacted":true,"reason":"node_defined_field"}}}`), ``, ``},
		{"no item", ``, ``, ``},
	} {
		raw := []byte(webhookRun(c.item, from))
		for play, want := range map[deadletter.Play]string{deadletter.PlayWorkflow: c.workflow, deadletter.PlayRequest: c.request} {
			if got, ok := deadletter.Input(raw, play); string(got) != want || ok != (want != "") {
				t.Errorf("%s, %s: %v %s, not %s", c.name, play, ok, got, want)
			}
		}
	}
}

func TestInputRequest(t *testing.T) {
	t.Parallel()
	run := func(failed, runs, stack string) string {
		return `{"id":"7","workflowId":"wf","mode":"trigger","status":"error","data":{
			"resultData":{"error":` + failed + `,"lastNodeExecuted":"Call","runData":{` + runs + `}},
			"executionData":{"nodeExecutionStack":[` + stack + `]}},
			"workflowData":{"nodes":[{"name":"Note","type":"n8n-nodes-base.stickyNote"},{"name":"Clock","type":"n8n-nodes-base.scheduleTrigger"},{"name":"Call"}]}}`
	}
	clock := `"Clock":[{"data":{"main":[[` + item(`{"t":1}`) + `]]}}]`
	for _, c := range []struct{ name, raw, workflow, request string }{
		{"a schedule begins with its own item", run(`{}`, clock, ``), `{"t":1}`, `{"t":1}`},
		{"all items", run(`{}`, clock, `{"node":{"name":"Call"},"data":{"main":[[`+item(`{"i":0}`)+`,`+item(`{"i":1}`)+`]]}}`), `{"t":1}`, `[{"i":0},{"i":1}]`},
		{"the failing item", run(`{"context":{"itemIndex":1}}`, clock, `{"node":{"name":"Call"},"data":{"main":[[`+item(`{"i":0}`)+`,`+item(`{"i":1}`)+`]]}}`), `{"t":1}`, `{"i":1}`},
		{"an index that is none", run(`{"context":{"itemIndex":5}}`, clock, `{"node":{"name":"Call"},"data":{"main":[[`+item(`{"i":0}`)+`]]}}`), `{"t":1}`, `{"i":0}`},
		{"the first input that has items", run(`{}`, clock, `{"node":{"name":"Call"},"data":{"main":[null,[`+item(`{"i":3}`)+`]]}}`), `{"t":1}`, `{"i":3}`},
		{"another node's place on the stack", run(`{}`, clock, `{"node":{"name":"Other"},"data":{"main":[[`+item(`{"i":9}`)+`]]}}`), `{"t":1}`, `{"t":1}`},
		{
			"by the node before, of its second run the second output",
			run(`{}`, clock+`,"Switch":[{"data":{"main":[[`+item(`{"i":0}`)+`]]}},{"data":{"main":[[`+item(`{"i":1}`)+`],[`+item(`{"i":2}`)+`]]}}],
				"Call":[{"source":[{"previousNode":"Switch"}]},{"source":[{"previousNode":"Switch","previousNodeOutput":1,"previousNodeRun":1}]}]`, ``), `{"t":1}`, `{"i":2}`,
		},
		{"a source that is not there", run(`{}`, clock+`,"Call":[{"source":[null,{"previousNode":"Gone"},{"previousNode":"Clock","previousNodeRun":-1}]}]`, ``), `{"t":1}`, `{"t":1}`},
		{"nothing at all", run(`{}`, ``, ``), ``, ``},
		{"no data", `{"id":"7","workflowId":"wf","status":"error","dataTooLargeToDisplay":true}`, ``, ``},
		{"not JSON", `<html>`, ``, ``},
		{"cut off", `{"id":"7","status":"error","data":{"resultData":{"lastNodeExecuted":"Call"},"executionData":{"nodeExecutionStack":[{"node":{"name":"Call"},"data":{"main":[[{"json":{"a":1`, ``, ``},
	} {
		for play, want := range map[deadletter.Play]string{deadletter.PlayWorkflow: c.workflow, deadletter.PlayRequest: c.request} {
			if got, ok := deadletter.Input([]byte(c.raw), play); string(got) != want || ok != (want != "") {
				t.Errorf("%s, %s: %v %s, not %s", c.name, play, ok, got, want)
			}
		}
	}
}

// A sub-workflow inherits the trigger's name from its caller, and has one of its own.
func TestInputOfSubWorkflow(t *testing.T) {
	t.Parallel()
	raw := `{"id":"8","workflowId":"sub","mode":"integrated","status":"error","data":{
		"resultData":{"error":{"message":"x"},"lastNodeExecuted":"Call","runData":{"Start":[{"data":{"main":[[` + item(`{"order":1}`) + `]]}}]}},
		"executionData":{"runtimeData":{"parentExecutionId":"7","triggerNode":{"name":"Webhook","type":"n8n-nodes-base.webhook"}}}},
		"workflowData":{"nodes":[{"name":"Webhook","type":"n8n-nodes-base.webhook"},{"name":"Start","type":"n8n-nodes-base.executeWorkflowTrigger"}]}}`
	if got, ok := deadletter.Input([]byte(raw), deadletter.PlayWorkflow); !ok || string(got) != `{"order":1}` {
		t.Errorf("%v %s", ok, got)
	}
}

func FuzzExecution(f *testing.F) {
	f.Add(execution(f, "status-422"))
	f.Add(execution(f, "crashed-progress-false"))
	f.Add([]byte(webhookRun(item(`{"body":{"a":1}}`), `{"previousNode":"Webhook","previousNodeRun":99999999999999999999}`)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, play := range []deadletter.Play{deadletter.PlayRequest, deadletter.PlayWorkflow} {
			if payload, ok := deadletter.Input(raw, play); ok && (len(payload) == 0 || strings.Contains(string(payload), "isArtificialRecoveredEventItem\":true,\"")) {
				t.Errorf("a payload of %q", payload)
			}
		}
		if r, ok := deadletter.FromExecution(raw, nil); ok {
			checkStorable(t, r)
		}
		deadletter.Outcome(raw)
	})
}
