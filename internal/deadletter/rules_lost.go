package deadletter

import (
	"fmt"

	"holdfast/internal/failure"
	"holdfast/internal/ledger"
)

// ReasonFailed is the reason for which Lost is called where an event was reported as failed; the letter's own reason
// is then the class.
const ReasonFailed = "failed"

// Lost is an event whose failure nobody reported (failed, lease_expired, never_claimed), or an effect that was
// settled without its run (settled_late). l is the letter it has, or nil. Where the letter knows of this failure
// already, it is returned unchanged and the entry's Kind is empty.
func Lost(l *Letter, c *ledger.Claim, reason string, fresh Fresh, now ledger.Instant) (Letter, Entry, *Alert) {
	if l != nil && !l.isNews(c, reason) {
		return *l, Entry{}, nil
	}
	out := Letter{Identity: Identity(&Report{}, c), MaxAttempts: DefaultMaxAttempts, AttemptCount: 1, CreatedAt: now}
	if l != nil {
		out = *l
	} else {
		out.ID, out.Secret = fresh.New()
	}
	out.leaveReplay()
	if out.Status == Replaying {
		out.void(endedByReport)
	}
	out.AttemptCount = max(out.AttemptCount, attempts(c))
	out.lost(c, reason)

	out.move(out.decideLost(reason), now, fresh.jitter())
	return out, out.lostEntry(c, reason, now), out.alert(now)
}

// isNews tells whether the claim failed after what the letter knows of it.
func (l *Letter) isNews(c *ledger.Claim, reason string) bool {
	attempt := attempts(c)
	if attempt > l.AttemptCount {
		return true
	}
	after := failedAt(c, reason) > l.UpdatedAt
	switch {
	case l.Status == Queued, l.Status == Dead:
		return false // it waits for this attempt already
	case l.Status == Replaying, l.Reason == ReasonReplayed:
		// Its run claimed the event, which is how the attempts became equal; the worker may have been told that all
		// was well when the run had only begun.
		return after || attempt == l.AttemptCount
	}
	return after
}

// failedAt is when the claim failed, whenever somebody noticed.
func failedAt(c *ledger.Claim, reason string) ledger.Instant {
	switch reason {
	case ReasonLeaseExpired:
		return c.LeaseUntil
	case ReasonNeverClaimed:
		return max(c.WaitUntil, c.DueAt, c.Last.At)
	}
	return c.Last.At
}

// lost fills in what the claim knows of its failure.
func (l *Letter) lost(c *ledger.Claim, reason string) {
	l.belongTo(c)
	l.WorkflowID, l.WorkflowName, l.ExecutionID, l.Node = c.Origin.WorkflowID, c.Origin.WorkflowName, c.Origin.ExecutionID, c.Origin.Node
	l.fill(&Report{ExecutionID: l.ExecutionID}, c, false)
	l.Class, l.Retryable, l.Outcome = failure.Transient, true, failure.Unknown
	l.Method, l.URL, l.HTTPStatus, l.Error = "", "", 0, nil
	l.Backoff = failure.Backoff(int(l.AttemptCount), nil)
	l.Message = c.Last.Message
	switch reason {
	case ReasonLeaseExpired:
		l.Message = fmt.Sprintf("attempt %d ended without a report: its lease is over", attempts(c))
	case ReasonNeverClaimed:
		l.Message = "nobody claimed the event within the time that its caller was told to wait"
	case ReasonSettledLate:
		l.Retryable = false
		l.Class = failure.Unclassified
		if c.Last.ErrorClass != "" {
			l.Class = failure.Class(c.Last.ErrorClass)
		}
		l.Message = fmt.Sprintf("the effect was settled as %s after its run had ended: the rest of the run may never have happened", c.Status)
	default:
		l.HTTPStatus = c.Last.HTTPStatus
		if class := failure.Class(c.Last.ErrorClass); class != "" {
			l.Class = class
			l.Retryable = class == failure.Transient || class == failure.RateLimited
		}
		l.Summary = failureSummary(c)
		return
	}
	l.Summary = reason + ": " + l.Message
	if l.Node != "" {
		l.Summary = reason + " at " + l.Node + ": " + l.Message
	}
}

// failureSummary is one line about an event that was reported as failed.
func failureSummary(c *ledger.Claim) string {
	if c.Last.Message == "" && c.Last.HTTPStatus == 0 {
		return "the event was set to failed, without an error"
	}
	in := failure.Input{HTTPStatus: int(c.Last.HTTPStatus), Node: c.Origin.Node}
	if c.Last.Message != "" {
		in.Error = quote([]byte(c.Last.Message))
	}
	return failure.Summary(in)
}

// decideLost: an event may be run again, as long as attempts are left and nothing says that it would fail again.
func (l *Letter) decideLost(reason string) decision {
	class := string(l.Class)
	switch {
	case reason == ReasonSettledLate:
		return decision{to: Dead, reason: reason}
	case !l.Retryable:
		return decision{to: Dead, reason: class}
	case l.AttemptCount >= l.MaxAttempts && reason == ReasonLeaseExpired:
		return decision{to: Dead, reason: reason}
	case l.AttemptCount >= l.MaxAttempts:
		return decision{to: Dead, reason: ReasonExhausted}
	case reason == ReasonFailed:
		reason = class
	}
	if l.ReplayID != "" {
		return decision{to: Dead, reason: reason} // a replay tries once
	}
	return decision{to: Queued, reason: reason}
}

func (l *Letter) lostEntry(c *ledger.Claim, reason string, now ledger.Instant) Entry {
	kind := kindExpired
	if reason == ReasonFailed || reason == ReasonSettledLate {
		kind = kindFailed
	}
	e := l.entry(kind, now)
	e.ExecutionID, e.WorkflowID, e.Node, e.Owner = l.ExecutionID, l.WorkflowID, l.Node, c.Origin.Owner
	e.HTTPStatus, e.Class, e.Message = l.HTTPStatus, string(l.Class), l.Message
	return e
}

// Undone judges a letter that its worker had resolved, by its event as it stands; c is nil where retention took it. An
// event that is not done opens the letter again: the webhook had answered before the work, or without it, and the
// attempt counts. One that is done is noted as the reason, so that nobody looks again; the entry's Kind is empty then.
// wait is true while a run may still be at it.
func Undone(l *Letter, c *ledger.Claim, jitter float64, now ledger.Instant) (out Letter, e Entry, a *Alert, wait bool) {
	out = *l
	switch {
	case c == nil || c.Kind == ledger.Effect || c.Status == ledger.Completed || c.Status == ledger.Stale:
		out.Reason = ReasonCompleted
		return out, e, nil, false
	case c.Status == ledger.Processing && c.Lettered < c.Moves:
		return out, e, nil, true // or it will be found when its lease is over
	}
	out.Backoff = failure.Backoff(int(l.AttemptCount), nil)
	d := decision{to: Queued, reason: ReasonNotDone}
	if l.AttemptCount >= l.MaxAttempts || l.ReplayID != "" {
		d.to = Dead
	}
	out.VoidLease, out.LastVerb = out.Lease, endedByReport
	out.move(d, now, jitter)
	e = out.entry(kindExpired, now)
	e.Message = "a worker said that it was done, and its event is not"
	return out, e, out.alert(now), false
}
