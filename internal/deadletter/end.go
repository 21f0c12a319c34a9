package deadletter

import (
	"fmt"

	"holdfast/internal/ledger"
)

// reasonByPerson is the reason of a letter that a person resolved; what the person said stands in the entry.
const reasonByPerson = "resolved_by_person"

// End applies what a worker (by its token) or a person (without one) says about a letter. The error is
// ledger.ErrNotFound for a token that was never issued for this letter, else a *ledger.Refusal; nothing is to be
// written then.
func End(l *Letter, e *Ending, now ledger.Instant) (Ended, error) {
	switch {
	case e.ByToken:
		return endByWorker(l, e, now)
	case e.Verb == Resolve, e.Verb == Requeue, e.Verb == Discard:
		return endByPerson(l, e, now)
	}
	return Ended{Letter: *l}, refusal(ledger.InvalidRequest, "/%s needs the lease_token", e.Verb)
}

func endByWorker(l *Letter, e *Ending, now ledger.Instant) (Ended, error) {
	out := Ended{Letter: *l}
	switch {
	case !l.Issued(e.Token):
		return out, ledger.ErrNotFound
	case e.Verb != Resolve && e.Verb != Fail && e.Verb != Extend:
		return out, refusal(ledger.InvalidRequest, "/%s is a person's: it takes authorized_by and reason, and no lease_token", e.Verb)
	case e.Verb == Extend && (e.LeaseSeconds < 1 || e.LeaseSeconds > ledger.MaxLeaseSeconds):
		return out, refusal(ledger.InvalidRequest, "lease_seconds must be 1 to %d", ledger.MaxLeaseSeconds)
	case e.Token.Lease != l.Lease:
		return out, refusal(ledger.LeaseLost, "the letter was leased again since: this token is too old and moves nothing")
	case l.leaseLive(now):
		out.worker(e, now)
		return out, nil
	case l.repeats(e.Verb):
		return out, nil
	}
	return out, refusal(ledger.LeaseLost, "%s", l.whyLost())
}

// repeats tells whether a report under the newest lease, which has ended, says nothing new: the same again after a
// lost answer, or a failure that is known, or a success that is.
func (l *Letter) repeats(verb Verb) bool {
	switch l.LastVerb {
	case endedByResolve, endedBySettle:
		return verb == Resolve || verb == Fail
	case endedByFail:
		return verb == Fail
	case endedByReport:
		return verb == Fail || verb == Resolve && l.Status == Resolved
	}
	return false
}

func (l *Letter) whyLost() string {
	switch l.LastVerb {
	case endedByResolve, endedBySettle:
		return "the letter was resolved: there is no lease to extend"
	case endedByFail:
		return "this lease ended with /fail"
	case endedByReport:
		return "the run was reported as failed, which ended this lease"
	case endedByPerson:
		return "a person decided about the letter, which ended this lease"
	}
	return "the lease is over and the letter is due again: another worker may be at it"
}

// worker is a report under the live lease.
func (out *Ended) worker(e *Ending, now ledger.Instant) {
	l := &out.Letter
	owner := l.LeaseOwner
	switch e.Verb {
	case Resolve:
		l.endLease(endedByResolve)
		l.move(decision{to: Resolved, reason: ReasonReplayed}, now, 0)
		l.LastResult = e.Result
		out.write(l.entry(kindResolved, now))
	case Fail:
		out.fail(e, now)
	default:
		until := max(l.LeaseUntil, later(now, e.LeaseSeconds))
		if until == l.LeaseUntil {
			return
		}
		l.LeaseUntil, l.UpdatedAt = until, now
		out.write(l.entry(kindExtended, now))
	}
	out.Entry.Owner, out.Entry.By = owner, e.CallerKey
}

func (out *Ended) write(e Entry) {
	out.Write, out.Changed, out.Entry = true, true, &e
}

func endByPerson(l *Letter, e *Ending, now ledger.Instant) (Ended, error) {
	out := Ended{Letter: *l}
	switch {
	case e.AuthorizedBy == "" || e.Reason == "":
		return out, refusal(ledger.InvalidRequest, "authorized_by and reason are required: who decides, and why")
	case l.leaseLive(now):
		return out, refusal(ledger.LeaseLive, "a worker holds this letter: wait for its lease to end")
	case l.decided(e.Verb, now):
		return out, nil
	}
	if err := l.forbids(e.Verb); err != nil {
		return out, err
	}
	next := &out.Letter
	next.void(endedByPerson)
	kind := kindResolved
	switch e.Verb {
	case Requeue:
		kind = kindRequeued
		next.ReplayID = "" // its replay is done with it
		next.requeue(now)
	case Discard:
		kind = kindDiscarded
		next.move(decision{to: Discarded, reason: ReasonDiscarded}, now, 0)
	default:
		next.move(decision{to: Resolved, reason: reasonByPerson}, now, 0)
		next.LastResult = e.Result
	}
	entry := next.entry(kind, now)
	entry.By, entry.Reason = e.AuthorizedBy, e.Reason
	out.write(entry)
	return out, nil
}

// requeue makes the letter due at once, with one attempt more if they are used up.
func (l *Letter) requeue(now ledger.Instant) {
	if l.AttemptCount >= l.MaxAttempts {
		l.MaxAttempts = l.AttemptCount + 1
	}
	l.move(decision{to: Queued, reason: ReasonRequeued, due: now}, now, 0)
}

// decided tells whether the letter stands already where the person wants it.
func (l *Letter) decided(verb Verb, now ledger.Instant) bool {
	switch verb {
	case Requeue: // a replica's clock may be a little behind that of the one which made it due
		return l.Status == Queued && (l.NextRetryAt <= now || l.Reason == ReasonRequeued)
	case Discard:
		return l.Status == Discarded
	}
	return l.Status == Resolved
}

func (l *Letter) forbids(verb Verb) error {
	switch {
	case verb == Discard && l.Status == Resolved:
		return refusal(ledger.InvalidTransition, "the letter is resolved: there is nothing to discard")
	case verb == Requeue && l.isHandler():
		return refusal(ledger.InvalidTransition, "an error workflow that failed itself is never run again: mend it, then resolve or discard the letter")
	}
	return nil
}

func refusal(code ledger.Code, format string, args ...any) error {
	return &ledger.Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Runnable refuses to queue a letter whose event c is completed: a run would be told so, and the letter be resolved.
func Runnable(l *Letter, c *ledger.Claim) error {
	if c == nil || c.Kind != ledger.Event || c.Status != ledger.Completed {
		return nil
	}
	return refusal(ledger.InvalidTransition, "the letter's event is completed, so running it again would do nothing: set the claim to failed first (POST /claims/%s/resolve), or resolve the letter", l.ClaimID)
}
