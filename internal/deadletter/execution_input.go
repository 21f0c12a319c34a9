package deadletter

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/failure"
)

// Input finds in a run, as n8n's API shows it with its data, what a replay needs. For PlayWorkflow that is what the
// workflow began with: the body that its webhook received, else its trigger's items. For PlayRequest it is what the
// failing node was given; where no failing node is known (a crash, a stop) it is again what the workflow began with.
// One item is its JSON, several are an array. ok is false where n8n has no such items, or only made them up: it
// fills in artificial ones after a crash, and empty ones where it is told to hide data.
func Input(raw []byte, play Play) (payload []byte, ok bool) {
	e := readExecution(raw)
	var found jsontext.Value
	if play == PlayRequest {
		found = e.failingInput()
	}
	if found == nil {
		found = e.beginning()
	}
	// A field that n8n hid stands in a value that otherwise looks whole.
	if found == nil || !found.IsValid(lenient...) || bytes.Contains(found, []byte(`"__redacted":`)) {
		return nil, false
	}
	// Items behind a claim carry its token, which is nothing to run again with and is not to be shown.
	return leaseToken.ReplaceAll(found, []byte("[redacted]")), true
}

// failingInput is what the node that failed was given: of several items the one that failed, if the error says which.
func (e *execution) failingInput() jsontext.Value {
	name := scalar(e.result["lastNodeExecuted"])
	if name == "" || e.Status != "error" && e.Status != "crashed" {
		return nil // of a run that was stopped, the last node is one that had ended well
	}
	items := e.waiting(name)
	if items == nil {
		items = e.before(name)
	}
	at, err := strconv.Atoi(scalar(e.result.Members("error").Members("context")["itemIndex"]))
	if err == nil && at >= 0 && at < len(items) {
		items = items[at : at+1]
	}
	return joined(items)
}

// waiting is what lies on n8n's stack for a node: its input, as the run was saved.
func (e *execution) waiting(name string) []jsontext.Value {
	for _, v := range e.stack {
		if entry := failure.ReadMembers(v); scalar(entry.Members("node")["name"]) == name {
			return genuine(entry["data"], -1)
		}
	}
	return nil
}

// before is what the node before this one handed to its last run.
func (e *execution) before(name string) []jsontext.Value {
	runs := entries(e.runs[name])
	if len(runs) == 0 {
		return nil
	}
	for _, v := range entries(failure.ReadMembers(runs[len(runs)-1])["source"]) {
		source := failure.ReadMembers(v)
		earlier := entries(e.runs[scalar(source["previousNode"])])
		// Absent numbers are 0.
		run, _ := strconv.Atoi(scalar(source["previousNodeRun"]))
		output, _ := strconv.Atoi(scalar(source["previousNodeOutput"]))
		if run >= 0 && run < len(earlier) && output >= 0 {
			return genuine(failure.ReadMembers(earlier[run])["data"], output)
		}
	}
	return nil
}

const webhookType = "n8n-nodes-base.webhook"

// beginning is what the workflow began with.
func (e *execution) beginning() jsontext.Value {
	for _, trigger := range e.triggers() {
		name := scalar(trigger["name"])
		items := e.waiting(name)
		if items == nil {
			if runs := entries(e.runs[name]); len(runs) > 0 {
				items = genuine(failure.ReadMembers(runs[0])["data"], -1)
			}
		}
		switch {
		case items == nil:
		case scalar(trigger["type"]) == webhookType:
			return receivedBody(items[0])
		default:
			return joined(items)
		}
	}
	return nil
}

// triggers are the nodes that may have begun the run, the one that n8n names first. A sub-workflow inherits the name
// from its caller, so that the node itself need not be here.
func (e *execution) triggers() (out []failure.Members) {
	named := scalar(e.context.Members("triggerNode")["name"])
	for _, v := range entries(e.workflow["nodes"]) {
		node := failure.ReadMembers(v)
		kind := scalar(node["type"])
		switch {
		case named != "" && scalar(node["name"]) == named:
			out = append([]failure.Members{node}, out...)
		case kind == webhookType || strings.HasSuffix(strings.ToLower(kind), "trigger"):
			out = append(out, node)
		}
	}
	return out
}

// receivedBody is the body that a Webhook node received. A request whose content is elsewhere, in a file or in the
// query of a GET, has an empty one here, and to replay that would be wrong.
func receivedBody(v jsontext.Value) jsontext.Value {
	item := failure.ReadMembers(v)
	received := item.Members("json")
	body := jsontext.Value(bytes.TrimSpace(received["body"]))
	if len(body) == 0 {
		return nil
	}
	elsewhere := len(item.Members("binary")) > 0 || len(received.Members("query")) > 0
	if body.Kind() == 'n' || body.Kind() == '{' && len(failure.ReadMembers(body)) == 0 && elsewhere {
		return nil
	}
	return body
}

// genuine are the items of one connection: of the given output, or (-1) of the first that has any. It is nil if there
// are none, or if one of them is not what the node really handled.
func genuine(data jsontext.Value, output int) []jsontext.Value {
	for i, v := range entries(failure.ReadMembers(data)["main"]) {
		items := entries(v)
		if output >= 0 && i != output || len(items) == 0 {
			continue
		}
		for _, item := range items {
			if !isGenuine(item) {
				return nil
			}
		}
		return items
	}
	return nil
}

func isGenuine(v jsontext.Value) bool {
	item := failure.ReadMembers(v)
	content := item.Members("json")
	return item["json"] != nil && item["redaction"] == nil && content["isArtificialRecoveredEventItem"] == nil
}

// joined is the JSON of one item, or the array of the JSON of several.
func joined(items []jsontext.Value) jsontext.Value {
	contents := make([][]byte, len(items))
	for i, item := range items {
		contents[i] = bytes.TrimSpace(failure.ReadMembers(item)["json"])
	}
	switch len(contents) {
	case 0:
		return nil
	case 1:
		return contents[0]
	}
	return jsontext.Value("[" + string(bytes.Join(contents, []byte(","))) + "]")
}
