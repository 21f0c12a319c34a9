package deadletter

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/failure"
	"holdfast/internal/identity"
	"holdfast/internal/ledger"
)

// maxGivenAttempts bounds what a sender may ask for: at an hour each they last six weeks.
const maxGivenAttempts = 1000

// reportMembers mark an object as a report; n8n sends one of the first two, the flat form has one of the others.
var reportMembers = []string{"execution", "trigger", "event_id", "error_message"}

// Read reads the body of a failure report: the item of n8n's Error Trigger, also in an array, under "json", or as JSON
// inside a string, or the flat form. redact names further members that are secret.
//
// A report is never refused for what stands in it. Broken JSON is read as far as it goes, odd types are taken for what
// they mean, long fields are cut and marked, and what was given but cannot be used is named at the end of Message. The
// one refusal is of a body that is no report at all. The time is linear in the body. Payload and RequestBody are parts
// of body, which must stay as it is.
func Read(body []byte, redact []string) (*Report, error) {
	members, more, err := findReport(body)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(body)
	in := intake{Members: members, redact: redact, report: &Report{Digest: digest[:]}}
	if more > 0 {
		in.note("the array held more reports", strconv.Itoa(more)+" not read")
	}

	in.run = members.Members("execution")
	if in.run == nil {
		in.run = members.Members("trigger")
		in.report.Trigger = in.run != nil
	}
	fault := in.fault()
	in.readOrigin(fault)
	path := in.readRequest(fault)
	in.readAdded()
	in.judge(fault)

	in.report.OwnCode = ownRefusal(fault, 0)
	if in.report.OwnCode == "" {
		in.report.OwnCode = ownRefusal(members["details"], 0) // an item of an error output has the answer there
	}
	in.report.Error = in.storedError(fault, path)
	return in.report, nil
}

// findReport unwraps the report, and counts the ones behind it in its array.
func findReport(body []byte) (members failure.Members, more int, err error) {
	v := jsontext.Value(bytes.TrimPrefix(body, []byte("\uFEFF")))
	const wrappings = 5
	for range wrappings {
		switch failure.Kind(v) {
		case '{':
			o := failure.ReadMembers(v)
			for _, name := range reportMembers {
				if o[name] != nil {
					return o, more, nil
				}
			}
			if o["json"] == nil {
				return nil, 0, refuse("the body has none of " + strings.Join(reportMembers, ", ") +
					": send the item of n8n's Error Trigger as it is, or at least error_message")
			}
			v = o["json"]
		case '[':
			var first jsontext.Value
			count := 0
			failure.Elements(v, func(item jsontext.Value) bool {
				if count++; count == 1 {
					first = item
				}
				return true
			})
			v, more = first, more+max(0, count-1)
		case '"':
			v = jsontext.Value(failure.Unquote(v))
		case 0:
			return nil, 0, refuse("the body is empty: send the item of n8n's Error Trigger as it is")
		default:
			return nil, 0, refuse("the body is no JSON object: send the item of n8n's Error Trigger as it is")
		}
	}
	return nil, 0, refuse("the report is wrapped too often")
}

func refuse(message string) error {
	return &ledger.Refusal{Code: ledger.InvalidRequest, Message: message}
}

// Judge is the verdict for another attempt than the first.
func (r *Report) Judge(attempt, maxAttempts int64) failure.Verdict {
	if maxAttempts < 1 {
		maxAttempts = DefaultMaxAttempts
	}
	v := r.Verdict
	// The wait after the first attempt is the destination's wish where that is the longer one, and else no longer than
	// any later wait: either way it is the floor.
	floor := v.BackoffSeconds
	v.BackoffSeconds = failure.Backoff(int(min(max(attempt, 1), math.MaxInt32)), &floor)
	v.Escalate = !v.Retryable || attempt >= maxAttempts
	v.NextStatus = failure.Queued
	if v.Escalate {
		v.NextStatus = failure.Dead
	}
	return v
}

// intake is a report that is being read.
type intake struct {
	failure.Members
	run    failure.Members // what stands under execution or trigger; nil in the flat form
	redact []string
	unused []string // what was given but cannot be used
	report *Report
}

// note keeps in sight what cannot be used.
func (in *intake) note(name, value string) {
	in.unused = append(in.unused, name+": "+cut(value, maxNote))
}

// readOrigin reads which run failed, and what it belongs to.
func (in *intake) readOrigin(fault jsontext.Value) {
	r, run, workflow := in.report, in.run, in.Members.Members("workflow")
	context := run.Members("executionContext")

	r.ExecutionID = in.firstID("execution_id", run["id"], in.Members["execution_id"])
	if r.ExecutionID == "" && run == nil {
		r.ExecutionID = in.firstID("execution", in.Members["execution"]) // the bare id
	}
	r.RetryOf = in.firstID("retry_of", run["retryOf"], in.Members["retry_of"])
	r.EventID = in.firstID("event_id", in.Members["event_id"])
	r.WorkflowID = cleanWorkflow(in.firstID("workflow_id", workflow["id"], in.Members["workflow_id"]))
	r.WorkflowName = in.name(firstText(scalar(workflow["name"]), scalar(in.Members["workflow_name"])))
	r.Node = in.name(firstText(run.Text("lastNodeExecuted"), scalar(in.Members["failed_node"]),
		failure.ReadMembers(fault).Members("node").Text("name")))

	mode := firstText(run.Text("mode"), in.Text("mode"))
	// A retried error workflow has the mode of a retry.
	trigger := context.Members("triggerNode").Text("type")
	r.Handler = mode == "error" || mode == "retry" && strings.HasSuffix(trigger, ".errorTrigger")
	r.Established, _ = context.Number("establishedAt")

	r.ParentExecutionID = in.firstID("parentExecutionId", context["parentExecutionId"])
	child := failure.ReadMembers(fault)
	if child["executionId"] == nil {
		child = child.Members("errorResponse")
	}
	if id := in.firstID("executionId", child["executionId"]); id != r.ExecutionID {
		r.ChildExecutionID = id
		r.ChildWorkflowID = cleanWorkflow(in.firstID("workflowId", child["workflowId"]))
	}
}

// firstID is the first of the values that can be an id. An id is text or a number; what JavaScript makes of a missing
// value is none, or unrelated failures would be taken for one.
func (in *intake) firstID(name string, values ...jsontext.Value) string {
	for _, v := range values {
		s := strings.TrimSpace(scalar(v))
		if s == "" {
			if k := failure.Kind(v); k != 0 && k != 'n' && k != '"' {
				in.note(name, in.shown(v))
			}
			continue
		}
		id := clipID(failure.Visible(s))
		if identity.CheckKey(id) == nil {
			return id
		}
		in.note(name, in.shown(v))
	}
	return ""
}

// name makes a name fit to be stored and shown.
func (in *intake) name(s string) string {
	return clipID(failure.Visible(failure.Redact(strings.TrimSpace(s), in.redact)))
}

// shown is a given value for a person to see.
func (in *intake) shown(v jsontext.Value) string {
	return failure.Visible(string(failure.RedactJSON(v, in.redact)))
}

// readAdded reads what the sender put beside n8n's own members.
func (in *intake) readAdded() {
	r := in.report
	if v := in.Members["payload"]; !isNull(v) {
		var asCame bool
		if r.Payload, asCame = keep(v); !asCame {
			in.note("payload", "broken, or nested too deep: kept as text")
		}
	}
	r.Key.Source = in.givenName("source")
	r.Destination = in.givenName("destination")
	if v := in.Members["account"]; !isNull(v) {
		if s := scalar(v); checkAccount(s) {
			r.Key.Account = s
		} else {
			in.note("account", in.shown(v))
		}
	}
	if v := in.Members["idempotency_key"]; !isNull(v) && string(v) != `""` {
		key, err := identity.KeyFromValue(v)
		if err != nil {
			in.note("idempotency_key", in.shown(v))
		}
		r.Key.IdempotencyKey = key
	}
	r.SafeToRepeat = in.True("safe_to_repeat")
	if v := in.Members["max_attempts"]; !isNull(v) {
		n, ok := in.Number("max_attempts")
		if ok && n >= 1 {
			r.MaxAttempts = min(n, maxGivenAttempts)
		} else if string(v) != `""` {
			in.note("max_attempts", in.shown(v))
		}
	}
}

// givenName reads a member that must be a name as in paths.
func (in *intake) givenName(member string) string {
	v := in.Members[member]
	s := scalar(v)
	if isName(s) {
		return s
	}
	if !isNull(v) && string(v) != `""` {
		in.note(member, in.shown(v))
	}
	return ""
}

// judge classifies the failure and puts it into words.
func (in *intake) judge(fault jsontext.Value) {
	r := in.report
	about := failure.Input{Error: fault, Method: r.Method, Node: r.Node, AttemptCount: 1, MaxAttempts: int(r.MaxAttempts), Redact: in.redact}
	if n, ok := in.Number("http_status"); ok && n >= 100 && n <= 599 {
		about.HTTPStatus = int(n)
	}
	if n, ok := in.Number("retry_after"); ok && n >= 0 {
		about.RetryAfter = &n
	}
	r.Verdict = failure.Classify(about)
	r.Crash = isCrash(fault)

	extra := ""
	if len(in.unused) > 0 {
		extra = cut(fmt.Sprintf("\n(not usable: %s)", strings.Join(in.unused, "; ")), maxMessage/2)
	}
	r.Message = failure.Text(fault, maxMessage-len(extra), in.redact...)
	if r.Message == "" {
		r.Message = r.Verdict.Summary
	}
	r.Message += extra
}
