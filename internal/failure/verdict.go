package failure

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Class is the kind of a failure, a stable word to switch on.
type Class string

// The classes.
const (
	// Auth is HTTP 401, 403 and 407: the credential needs a person.
	Auth Class = "auth"
	// RateLimited is HTTP 429: rejected before work, to be sent later.
	RateLimited Class = "rate_limited"
	// Conflict is HTTP 409, and any 4xx that names a reused idempotency key or
	// a duplicate reference: the work may be done or under way.
	Conflict Class = "conflict"
	// Transient is what time may heal: network faults, 408, 425 and most 5xx.
	Transient Class = "transient"
	// Validation is every other 4xx, 501, 505 and 506: the same request will
	// be refused again.
	Validation Class = "validation"
	// Workflow is an error of the workflow itself: its code, an expression, a
	// missing credential, a bad address.
	Workflow Class = "workflow"
	// Unclassified is the rest, certificate errors and crashes among it.
	Unclassified Class = "unclassified"
)

// Outcome says whether the destination can have done the work.
type Outcome string

// The outcomes.
const (
	// NotExecuted is a promise: the failed request did nothing there.
	NotExecuted Outcome = "not_executed"
	// Unknown is everything that is not proven.
	Unknown Outcome = "unknown"
)

// What a failure does to the work, as Verdict.NextStatus.
const (
	Queued = "queued" // due again after the backoff
	Dead   = "dead"   // a person decides
)

const (
	defaultAttempts    = 1
	defaultMaxAttempts = 6
)

// Input is a failure as it was reported. Every field may be zero.
type Input struct {
	// Error is the error in any shape that Classify knows, or nil.
	Error jsontext.Value
	// HTTPStatus is the status if the caller knows it. It wins over what Error
	// says. 0, and what is no three-digit number, counts as not given.
	HTTPStatus int
	// Method is the request's HTTP method if the caller knows it. It wins over
	// the one in Error.
	Method string
	// Node is the failed node's name if the caller knows it, for the summary.
	Node string
	// AttemptCount counts the attempts so far, this one included; at least 1.
	AttemptCount int
	// MaxAttempts bounds them; 6 unless given.
	MaxAttempts int
	// RetryAfter is the destination's wish in seconds. If nil, a Retry-After
	// header inside Error is used, a date only beside the answer's own Date: n8n
	// shows headers only with its options "full response" and "never error".
	RetryAfter *int64
	// Redact are names whose values are secret here besides the usual ones.
	Redact []string
}

// Verdict is what a failure means.
type Verdict struct {
	Class     Class
	Retryable bool
	Outcome   Outcome
	// NextStatus is Queued if the failure is retryable and attempts are left,
	// else Dead.
	NextStatus string
	// BackoffSeconds is the wait before the next attempt, without jitter. It is
	// there for a dead letter too, should a person requeue it.
	BackoffSeconds int64
	// Escalate asks for a person: not retryable, or no attempts left.
	Escalate bool
	// Summary is one line for a person, see the function of that name.
	Summary string
	// HTTPStatus is the status that was judged, 0 if there was none.
	HTTPStatus int
	// NodeRetries is true where the report says that the node itself retries
	// (Retry On Fail). n8n shows only the last try's error, which does not
	// speak for the tries before it.
	NodeRetries bool
}

// finding is the part of a verdict that the tables hold.
type finding struct {
	class     Class
	retryable bool
	outcome   Outcome
}

// The findings that the tables share.
var (
	notSent     = finding{Transient, true, NotExecuted}     // the fault came before the request
	maybeSent   = finding{Transient, true, Unknown}         // the fault came at any time
	unreadable  = finding{Unclassified, false, Unknown}     // executed, but the answer is no use
	misuse      = finding{Workflow, false, NotExecuted}     // the workflow could not make a request
	ownCode     = finding{Workflow, false, Unknown}         // the workflow's code threw, after who knows what
	certificate = finding{Unclassified, false, NotExecuted} // TLS refused before the request
	reused      = finding{Conflict, false, Unknown}         // an earlier request with the key did it, or is at it
	nobodyKnows = finding{Unclassified, false, Unknown}
)

// Classify judges a failure. Error may be: a string; the Error Trigger's item
// ({execution:{error,…},workflow} or {trigger:{error},workflow}) or an array of
// it; an item of an error output ({…, error, details}); an error object of n8n,
// Node, axios or undici; an execution of n8n's API; a full response
// ({statusCode, headers, body}); a problem document (RFC 9457); an API's own
// error body; or any of these as JSON text inside a string. It takes time
// linear in the input and never fails.
func Classify(in Input) Verdict {
	r := readReport(in.Error)
	status := in.status(r)
	found := r.judge(in.givenStatus(), status)

	method := strings.ToUpper(strings.TrimSpace(in.Method))
	if method == "" {
		method = r.method
	}
	if method == "GET" || method == "HEAD" {
		found.outcome = NotExecuted
	}
	if r.nodeRetries {
		found.outcome = Unknown
	}

	attempts := in.AttemptCount
	if attempts < 1 {
		attempts = defaultAttempts
	}
	limit := in.MaxAttempts
	if limit < 1 {
		limit = defaultMaxAttempts
	}
	retryAfter := in.RetryAfter
	if retryAfter == nil {
		retryAfter = r.retryAfter
	}

	v := Verdict{
		Class:          found.class,
		Retryable:      found.retryable,
		Outcome:        found.outcome,
		NextStatus:     Queued,
		BackoffSeconds: Backoff(attempts, retryAfter),
		Escalate:       !found.retryable || attempts >= limit,
		Summary:        in.summary(r, status, found.class),
		HTTPStatus:     status,
		NodeRetries:    r.nodeRetries,
	}
	if v.Escalate {
		v.NextStatus = Dead
	}
	return v
}

// givenStatus is the caller's status, 0 if it is none.
func (in Input) givenStatus() int {
	if in.HTTPStatus < 100 || in.HTTPStatus > 999 {
		return 0
	}
	return in.HTTPStatus
}

// status is the status to judge: the caller's, else the report's.
func (in Input) status(r *report) int {
	if given := in.givenStatus(); given != 0 {
		return given
	}
	return r.statusOrText()
}

// judge weighs the evidence, the strongest first: what the caller knows, a
// refused tunnel, an HTTP status, then who threw, network codes and texts.
func (r *report) judge(given, status int) finding {
	if given == 0 {
		if f, ok := r.judgeProxy(); ok {
			return f
		}
	}
	if status >= 400 {
		f := r.judgeStatus(status)
		if given == 0 && r.thrownByCode() {
			// The code may have sent other requests before the refused one.
			f.outcome = Unknown
		}
		return f
	}

	f := r.judgeFault(status)
	if status != 0 {
		// The destination had begun an answer, so it had the request.
		f.outcome = Unknown
	}
	return f
}

// judgeFault judges a failure that no HTTP error status explains.
func (r *report) judgeFault(status int) finding {
	if f, ok := r.judgeThrower(); ok {
		return f
	}
	if f, ok := r.judgeNetwork(); ok {
		return f
	}
	if f, ok := r.judgeWording(); ok {
		return f
	}
	if r.namesReuse() {
		return reused
	}
	if f, ok := r.judgeName(); ok {
		return f
	}
	if status != 0 {
		return r.judgeStatus(status)
	}
	return nobodyKnows
}
