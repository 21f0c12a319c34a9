package deadletter

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/internal/failure"
	"holdfast/internal/ledger"
)

// The kinds of entries.
const (
	kindReport    = "report"
	kindLease     = "lease"
	kindFailed    = "failed"
	kindResolved  = "resolved"
	kindExpired   = "expired"
	kindExtended  = "extended"
	kindRequeued  = "requeued"
	kindDiscarded = "discarded"
	kindSettled   = "settled"
)

// attemptLimit is the most that a sender may allow.
const attemptLimit = 100

// decision is what becomes of a letter.
type decision struct {
	to     Status
	reason string
	due    ledger.Instant // of a queued letter; 0: after the backoff
}

// take keeps what holds for the letter as a whole: what the sender added, the claim, and the payload.
func (l *Letter) take(r *Report, f Facts) {
	l.SafeToRepeat = l.SafeToRepeat || r.SafeToRepeat
	if r.MaxAttempts >= 1 && r.MaxAttempts <= attemptLimit {
		l.MaxAttempts = r.MaxAttempts
	}
	if l.Key == (ledger.Key{}) {
		l.Key = r.Key
	}
	if r.Destination != "" {
		l.Destination = r.Destination
	}
	wasRequest := l.Play == PlayRequest
	if f.HoldsClaims {
		l.Play = PlayWorkflow
	}
	if f.Claim != nil {
		l.belongTo(f.Claim)
	}
	l.fill(r, f.Claim, wasRequest && l.Play == PlayWorkflow)
}

// belongTo ties the letter to its claim. Where claims are held, a run repeats nothing that was done.
func (l *Letter) belongTo(c *ledger.Claim) {
	l.ClaimID, l.Key, l.Play = c.ID, c.Key, PlayWorkflow
	if c.Kind == ledger.Event {
		l.Key.Step = ""
	}
	if l.Destination == "" {
		l.Destination = c.Destination
	}
	l.ProviderKey = c.ProviderKey
}

// fill finds the payload: given, else the claim's, else the failing request's body. What is stored stays, unless the
// letter turns from a request into a workflow, which takes another payload.
func (l *Letter) fill(r *Report, c *ledger.Claim, turned bool) {
	payload := r.Payload
	if len(payload) == 0 && c != nil {
		payload = c.Payload
	}
	stored := l.InputState == InputStored
	if stored && !(turned && len(payload) > 0) {
		return
	}
	if len(payload) == 0 {
		payload = r.RequestBody
	}
	switch {
	case len(payload) > 0:
		l.Payload, l.InputState = payload, InputStored
	case r.ExecutionID != "" && (l.Play == PlayWorkflow || r.Method == ""):
		l.InputState = InputWanted // a request that is known is sent again as it was: with no body, or with one that nobody has
	case l.InputState == "":
		l.InputState = InputMissing
	}
}

// describe tells of the newest failure. It is taken as a whole: an older request is not the one that failed now.
func (l *Letter) describe(r *Report, c *ledger.Claim) {
	l.judged(r.Judge(l.AttemptCount, l.MaxAttempts))
	l.Message, l.Error = r.Message, r.Error
	l.WorkflowID, l.WorkflowName, l.ExecutionID, l.Node = r.WorkflowID, r.WorkflowName, r.ExecutionID, r.Node
	if c != nil && r.ParentExecutionID != "" && !oneWorkflow(c.Origin.WorkflowID, r.WorkflowID) {
		// A child failed in the run that holds the claim: that run is to be run again.
		l.WorkflowID, l.WorkflowName, l.ExecutionID = c.Origin.WorkflowID, c.Origin.WorkflowName, c.Origin.ExecutionID
	}
	l.Method, l.URL = strings.ToUpper(r.Method), r.URL
	if l.ClaimID == "" {
		l.ProviderKey = r.IdempotencyKey
	}
}

func (l *Letter) judged(v failure.Verdict) {
	l.Class, l.Retryable, l.Outcome = v.Class, v.Retryable, v.Outcome
	l.Backoff, l.Summary, l.HTTPStatus = v.BackoffSeconds, v.Summary, int64(v.HTTPStatus)
}

// decide says what becomes of a letter after a report.
func (l *Letter) decide(r *Report, f Facts) decision {
	switch {
	case r.Handler:
		return decision{to: Dead, reason: ReasonHandlerFailed}
	case r.OwnCode != "" && !f.Ended: // a run that held an open event has left it undone
		return decision{to: Resolved, reason: r.OwnCode}
	case f.Completed && l.Status == Dead && l.Reason == ReasonFailedAfter:
		return decision{to: Dead, reason: ReasonFailedAfter} // an earlier run still needs a person
	case f.Completed && (r.Crash || r.AtComplete):
		return decision{to: Resolved, reason: ReasonCompletedMeantime}
	case f.Completed:
		return decision{to: Dead, reason: ReasonFailedAfter}
	}
	return l.retry()
}

// retry says whether the letter comes due by itself: only what may be tried again without doing anything twice.
func (l *Letter) retry() decision {
	switch {
	case !l.Retryable:
		return decision{to: Dead, reason: string(l.Class)}
	case !l.repeatable():
		return decision{to: Dead, reason: ReasonOutcomeUnknown}
	case l.AttemptCount >= l.MaxAttempts:
		return decision{to: Dead, reason: ReasonExhausted}
	case l.ReplayID != "":
		return decision{to: Dead, reason: string(l.Class)} // a replay tries once
	}
	return decision{to: Queued, reason: string(l.Class)}
}

// repeatable tells whether running the letter again can do nothing twice.
func (l *Letter) repeatable() bool {
	switch {
	case l.Outcome == failure.NotExecuted, l.Play == PlayWorkflow, l.ProviderKey != "", l.SafeToRepeat:
		return true
	}
	return slices.Contains([]string{"GET", "HEAD", "PUT", "DELETE"}, l.Method)
}

// move brings the letter where d says.
func (l *Letter) move(d decision, now ledger.Instant, jitter float64) {
	l.Status, l.Reason, l.Escalated = d.to, d.reason, d.to == Dead
	l.LeaseOwner, l.LeaseUntil, l.NextRetryAt, l.UpdatedAt = "", 0, 0, now
	if d.to == Queued {
		l.NextRetryAt = d.due
		if d.due == 0 {
			l.NextRetryAt = later(now, failure.Jitter(l.Backoff, jitter))
		}
	}
	if d.to != Resolved {
		l.LastResult = nil
	}
}

func later(t ledger.Instant, seconds int64) ledger.Instant {
	return t.Add(time.Duration(seconds) * time.Second)
}

// entry is something that happened to the letter as it stands.
func (l *Letter) entry(kind string, now ledger.Instant) Entry {
	return Entry{LetterID: l.ID, At: now, Kind: kind, To: l.Status, Attempt: l.AttemptCount, Reason: l.Reason, ReplayID: l.ReplayID}
}

func (l *Letter) reported(r *Report, now ledger.Instant) Entry {
	e := l.entry(kindReport, now)
	e.ExecutionID, e.WorkflowID, e.Node = r.ExecutionID, r.WorkflowID, r.Node
	e.HTTPStatus, e.Class, e.Message = int64(r.Verdict.HTTPStatus), string(r.Verdict.Class), r.Message
	e.By, e.Digest = r.CallerKey, r.Digest
	return e
}

// alert tells a person of a dead letter; nil for any other.
func (l *Letter) alert(now ledger.Instant) *Alert {
	if l.Status != Dead {
		return nil
	}
	workflow := l.WorkflowName
	if workflow == "" {
		workflow = l.WorkflowID
	}
	if workflow == "" {
		workflow = "unknown"
	}
	return &Alert{
		Group: "dead/" + l.WorkflowID + "/" + string(l.Class),
		Title: "dead letter: " + l.Summary,
		Text:  fmt.Sprintf("workflow: %s\nreason: %s\nattempt: %d of %d\nIt waits for a person: requeue, resolve or discard it.", workflow, l.Reason, l.AttemptCount, l.MaxAttempts),
		Path:  "/dlq/" + l.ID,
		At:    now,
	}
}

func (f Fresh) jitter() float64 {
	if f.Jitter == nil {
		return 0
	}
	return f.Jitter()
}
