package deadletter

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/failure"
)

// Execution is what n8n's API says of a run without its data: GET /api/v1/executions/{id}, and each element of the
// list.
type Execution struct {
	ID, WorkflowID string
	Status         string // success, error, crashed, canceled, running, waiting, new, unknown
	Mode           string
	RetryOf        string // the run that this one retried
	RetrySuccessID string // the retry of this run that succeeded
	// The times as n8n writes them. A crashed run has the time of its last sign of life as its end.
	CreatedAt, StartedAt, StoppedAt string
}

// ReadExecution reads a run. It is false for what is none.
func ReadExecution(raw []byte) (Execution, bool) {
	e := readExecution(raw)
	return e.Execution, e.ID != "" && e.WorkflowID != ""
}

// Over tells whether the run has ended.
func (e *Execution) Over() bool { return e.Status == "success" || e.Failed() }

// Failed tells whether the run ended in error, in a crash, or by a stop or time-out, which n8n calls canceled.
func (e *Execution) Failed() bool {
	return e.Status == "error" || e.Status == "crashed" || e.Status == "canceled"
}

// Bare is the run without its data, in the form of n8n's API.
func (e *Execution) Bare() []byte {
	return valueOf(map[string]string{
		"id": e.ID, "workflowId": e.WorkflowID, "status": e.Status, "mode": e.Mode, "retryOf": e.RetryOf, "retrySuccessId": e.RetrySuccessID,
		"createdAt": e.CreatedAt, "startedAt": e.StartedAt, "stoppedAt": e.StoppedAt,
	})
}

// Outcome tells whether the run succeeded, and whether a retry of it did.
func Outcome(raw []byte) (succeeded, retried bool) {
	e := readExecution(raw)
	return e.Status == "success", e.RetrySuccessID != ""
}

// FromExecution makes a report of a failed run that n8n's API shows with its data: the one that the run's error
// workflow would have sent. It is false for a run that has not failed. Without data, which n8n leaves out when there
// is too much of it, the report says less.
func FromExecution(raw []byte, redact []string) (*Report, bool) {
	e := readExecution(raw)
	if e.ID == "" || e.WorkflowID == "" || !e.Failed() {
		return nil, false
	}
	r, err := Read(valueOf(e.errorTriggerItem()), redact)
	if err != nil {
		return nil, false
	}
	r.FromAPI = true
	return r, true
}

// Crashed tells whether n8n reported the run as crashed: what it found broken off when it started again.
func (l *Letter) Crashed() bool { return isCrash(l.Error) }

// execution is a run with its data, opened as far as it is needed.
type execution struct {
	Execution
	result   failure.Members // data.resultData
	runs     failure.Members // data.resultData.runData: by node, its runs
	stack    []jsontext.Value
	context  failure.Members // data.executionData.runtimeData, which the Error Trigger calls executionContext
	parent   string          // the run that called this one as a sub-workflow
	workflow failure.Members
}

func readExecution(raw []byte) *execution {
	top := failure.ReadMembers(raw)
	data := top.Members("data")
	work := data.Members("executionData")
	e := &execution{
		Execution: Execution{
			ID: scalar(top["id"]), WorkflowID: scalar(top["workflowId"]), Status: scalar(top["status"]), Mode: scalar(top["mode"]),
			RetryOf: scalar(top["retryOf"]), RetrySuccessID: scalar(top["retrySuccessId"]),
			CreatedAt: scalar(top["createdAt"]), StartedAt: scalar(top["startedAt"]), StoppedAt: scalar(top["stoppedAt"]),
		},
		result:   data.Members("resultData"),
		stack:    entries(work["nodeExecutionStack"]),
		context:  work.Members("runtimeData"),
		workflow: top.Members("workflowData"),
	}
	e.runs = e.result.Members("runData")
	e.parent = scalar(e.context["parentExecutionId"])
	if e.parent == "" {
		e.parent = scalar(data.Members("parentExecution")["executionId"])
	}
	if e.WorkflowID == "" {
		e.WorkflowID = scalar(e.workflow["id"])
	}
	return e
}

// errorTriggerItem is the item that n8n would have handed to the run's error workflow.
func (e *execution) errorTriggerItem() map[string]any {
	about := map[string]any{"id": e.ID, "mode": e.Mode, "error": e.failure()}
	if last := scalar(e.result["lastNodeExecuted"]); last != "" {
		about["lastNodeExecuted"] = last
	}
	if e.RetryOf != "" {
		about["retryOf"] = e.RetryOf
	}
	// Of the context only what a report has a use for: it may hold credentials, encrypted.
	context := map[string]any{}
	for _, name := range []string{"version", "establishedAt", "source", "triggerNode"} {
		if v := e.context[name]; v != nil {
			context[name] = v
		}
	}
	if e.parent != "" {
		context["parentExecutionId"] = e.parent
	}
	about["executionContext"] = context
	return map[string]any{"execution": about, "workflow": map[string]any{"id": e.WorkflowID, "name": scalar(e.workflow["name"])}}
}

// failure is the run's error. Where it does not name its node, the workflow does: whether a node retries by itself
// decides what the last error proves.
func (e *execution) failure() jsontext.Value {
	given := e.result["error"]
	failed := failure.ReadMembers(given)
	if failed == nil && failure.Kind(given) == '"' {
		return given
	}
	if failed == nil {
		failed = e.unsaid()
	}
	if failed["node"] == nil {
		if node := e.node(scalar(e.result["lastNodeExecuted"])); node != nil && e.Status == "error" {
			brief := failure.Members{}
			for _, name := range []string{"id", "name", "type", "typeVersion", "retryOnFail", "maxTries"} {
				if node[name] != nil {
					brief[name] = node[name]
				}
			}
			failed["node"] = valueOf(brief)
		}
	}
	return valueOf(failed)
}

// unsaid is the error of a run that shows none: a time-out leaves none, and n8n may be told to hide them.
func (e *execution) unsaid() failure.Members {
	hidden := e.result.Members("redactedError")
	name, message := scalar(hidden["type"]), "the run failed, and n8n does not show its error"
	switch {
	case hidden != nil:
	case e.Status == "canceled":
		// The beginning of this text is what n8n says itself of a run that somebody stopped.
		message = "The execution was cancelled: it was stopped, or ran out of the time that its workflow allows"
	case e.Status == "crashed":
		name, message = "WorkflowCrashedError", "the run crashed: n8n ended while it was under way"
	}
	out := failure.Members{"message": valueOf(message)}
	if name != "" {
		out["name"] = valueOf(name)
	}
	if code := hidden["httpCode"]; code != nil {
		out["httpCode"] = code
	}
	return out
}

// node finds a node of the workflow by its name.
func (e *execution) node(name string) failure.Members {
	for _, v := range entries(e.workflow["nodes"]) {
		if node := failure.ReadMembers(v); name != "" && scalar(node["name"]) == name {
			return node
		}
	}
	return nil
}

// entries are the elements of an array.
func entries(v jsontext.Value) (out []jsontext.Value) {
	failure.Elements(v, func(e jsontext.Value) bool {
		out = append(out, e)
		return true
	})
	return out
}

// valueOf writes what is made of text and of values that were read.
func valueOf(v any) jsontext.Value {
	out, err := json.Marshal(v, append([]json.Options{json.Deterministic(true), jsontext.PreserveRawStrings(true)}, lenient...)...)
	if err != nil {
		return nil
	}
	return out
}
