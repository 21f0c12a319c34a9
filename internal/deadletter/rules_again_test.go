package deadletter_test

import (
	"testing"

	"holdfast/internal/deadletter"
	"holdfast/internal/failure"
	"holdfast/internal/ledger"
)

// TestAttempts: "A failed retry, or a new failure of the same claim: another attempt of the one letter".
func TestAttempts(t *testing.T) {
	t.Parallel()
	retryOf := func(id string) func(r *deadletter.Report) {
		return func(r *deadletter.Report) { r.RetryOf = id }
	}
	claimedBy := func(id string) func(c *ledger.Claim) {
		return func(c *ledger.Claim) { c.Origin.ExecutionID = id }
	}

	l := make1(t, failed("5", 429), nothingHeld)
	l = again(t, l, failed("6", 429, retryOf("5")), nothingHeld)
	stands(t, l, deadletter.Queued, "rate_limited", 2)
	if l.ExecutionID != "6" || l.Backoff != 120 || l.NextRetryAt != in(120) {
		t.Errorf("%+v", l)
	}

	l = make1(t, failed("5", 503), held(event(1)))
	l = again(t, l, failed("6", 503), held(event(2, claimedBy("6"))))
	stands(t, l, deadletter.Queued, "transient", 2)
	// n8n resumed behind the claim: the run claimed nothing and is an attempt all the same.
	l = again(t, l, failed("7", 503, retryOf("6")), held(event(2, claimedBy("6"))))
	stands(t, l, deadletter.Queued, "transient", 3)
	// The event counts itself; the letter is never behind it.
	l = again(t, l, failed("9", 503), held(event(5, claimedBy("9"))))
	stands(t, l, deadletter.Queued, "transient", 5)
	l = again(t, l, failed("10", 503), held(event(6, claimedBy("10"))))
	stands(t, l, deadletter.Dead, "attempts_exhausted", 6)
}

// TestReportOfALeasedAttempt: the lease counted the attempt; the report ends it, and what its worker says afterwards
// moves nothing.
func TestReportOfALeasedAttempt(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]deadletter.Facts{"a request": nothingHeld, "an event": held(event(2, func(c *ledger.Claim) { c.Origin.ExecutionID = "6" }))} {
		first := f
		if f.Claim != nil {
			first = held(event(1))
		}
		l, at := leased(t, make1(t, failed("5", 429), first))
		stands(t, l, deadletter.Replaying, "rate_limited", 2)
		f.Now = at.Add(1000)
		token := tokenOf(t, &l)
		l = again(t, l, failed("6", 429), f)
		stands(t, l, deadletter.Queued, "rate_limited", 2)
		if l.VoidLease != l.Lease || l.LeaseUntil != 0 || l.LeaseOwner != "" {
			t.Errorf("%s: the lease goes on: %+v", name, l)
		}
		refused(t, &l, &deadletter.Ending{Verb: deadletter.Resolve, Token: token, ByToken: true}, f.Now, ledger.LeaseLost)
		same(t, &l, &deadletter.Ending{Verb: deadletter.Fail, Token: token, ByToken: true}, f.Now)
	}
}

// TestReportBehindTheLease: a lease that is over counts no attempt any more, whether or not somebody has noticed.
func TestReportBehindTheLease(t *testing.T) {
	t.Parallel()
	l, _ := leased(t, make1(t, failed("5", 429), nothingHeld))
	f := nothingHeld
	f.Now = l.LeaseUntil
	noticed, _, _ := deadletter.Expire(&l, 0, f.Now)
	stands(t, again(t, noticed, failed("6", 429), f), deadletter.Queued, "rate_limited", 3)
	stands(t, again(t, l, failed("6", 429), f), deadletter.Queued, "rate_limited", 3)
}

// TestReopened: "reopened if it was settled".
func TestReopened(t *testing.T) {
	t.Parallel()
	for _, status := range []deadletter.Status{deadletter.Resolved, deadletter.Discarded, deadletter.Dead} {
		l := make1(t, failed("5", 429), nothingHeld)
		l.Status, l.Reason, l.NextRetryAt, l.LastResult, l.ReplayID = status, "whatever", 0, []byte(`1`), ""
		got := again(t, l, failed("6", 429), nothingHeld)
		stands(t, got, deadletter.Queued, "rate_limited", 2)
		if got.LastResult != nil {
			t.Errorf("%s: still has the result of what was undone", status)
		}
		got = again(t, l, failed("6", 422), nothingHeld)
		stands(t, got, deadletter.Dead, "validation", 2)
	}
}

// TestOneFailureTwoReports: "A child's failure reported by the parent too: one letter, two reports", in either order.
func TestOneFailureTwoReports(t *testing.T) {
	t.Parallel()
	child := failed("11", 503, func(r *deadletter.Report) { r.ParentExecutionID, r.WorkflowID, r.Node = "10", "C", "Charge" })
	parent := failed("10", 503, func(r *deadletter.Report) {
		r.ChildExecutionID, r.ChildWorkflowID, r.WorkflowID, r.Node = "11", "C", "P", "Call child"
	})
	claim := event(1, func(c *ledger.Claim) { c.Origin.ExecutionID, c.Origin.WorkflowID = "10", "P" })

	for _, counted := range []bool{true, false} { // told by the store, or seen in the letter
		f := nothingHeld
		f.Counted = counted
		l := make1(t, child, nothingHeld)
		stands(t, l, deadletter.Dead, "outcome_unknown", 1)
		_, _, alert := deadletter.Again(&l, parent, f)
		if alert != nil {
			t.Error("a person is told twice")
		}
		l = again(t, l, parent, f)
		stands(t, l, deadletter.Dead, "outcome_unknown", 1)
		if l.Node != "Charge" || l.WorkflowID != "C" || l.ExecutionID != "11" || l.Reports != 2 {
			t.Errorf("the parent knows less: %+v", l)
		}

		l = again(t, make1(t, parent, nothingHeld), child, f)
		stands(t, l, deadletter.Dead, "outcome_unknown", 1)
		if l.Node != "Charge" || l.WorkflowID != "C" {
			t.Errorf("the child knows more: %+v", l)
		}

		// The parent holds the claim: its event may be run again, whoever reports first.
		f = held(claim)
		f.Counted = counted
		l = again(t, make1(t, child, nothingHeld), parent, f)
		stands(t, l, deadletter.Queued, "transient", 1)
		l = again(t, make1(t, parent, held(claim)), child, nothingHeld)
		stands(t, l, deadletter.Queued, "transient", 1)
		l = again(t, make1(t, child, held(claim)), parent, f)
		stands(t, l, deadletter.Queued, "transient", 1)
		if l.WorkflowID != "P" || l.ExecutionID != "10" || l.Node != "Charge" || l.Play != deadletter.PlayWorkflow {
			t.Errorf("the run that holds the claim is the one to run again: %+v", l)
		}
	}
}

// TestLateNews: a further report of a failure that is counted does not stop what has begun since, nor a person.
func TestLateNews(t *testing.T) {
	t.Parallel()
	f := held(event(1))
	f.Counted = true
	late := failed("4", 422)

	l, _ := leased(t, make1(t, failed("5", 503), held(event(1))))
	if got := again(t, l, late, f); got.Status != deadletter.Replaying || got.LeaseUntil != l.LeaseUntil || got.AttemptCount != 2 || got.VoidLease != 0 {
		t.Errorf("%+v", got)
	}
	for _, status := range []deadletter.Status{deadletter.Resolved, deadletter.Discarded} {
		l.Status, l.Reason, l.LeaseUntil = status, "x", 0
		stands(t, again(t, l, late, f), status, "x", 2)
	}
	requeued := ended(t, ptr(make1(t, failed("5", 422), held(event(1)))), &deadletter.Ending{Verb: deadletter.Requeue, AuthorizedBy: "a", Reason: "b"}, now)
	stands(t, again(t, requeued.Letter, late, f), deadletter.Queued, "requeued", 1)
}

// TestReportAfterTheSweeper: a run that was missed is reported after all: the report brings the cause, and is no
// further attempt.
func TestReportAfterTheSweeper(t *testing.T) {
	t.Parallel()
	lost, _, _ := deadletter.Lost(nil, event(1, expired), deadletter.ReasonLeaseExpired, fresh(0), now)
	stands(t, lost, deadletter.Queued, "lease_expired", 1)

	stands(t, again(t, lost, failed("5", 401), held(event(1))), deadletter.Dead, "auth", 1)
	stands(t, again(t, lost, failed("5", 503), held(event(1))), deadletter.Queued, "transient", 1)
	// The crash is what the ended lease told.
	crash := failed("5", 0, func(r *deadletter.Report) { r.Crash = true })
	stands(t, again(t, lost, crash, held(event(1))), deadletter.Queued, "lease_expired", 1)

	settled, _ := deadletter.Settle(&lost, deadletter.ReasonCompleted, "sweeper", now)
	done := held(event(1))
	done.Completed = true
	stands(t, again(t, settled, failed("5", 503), done), deadletter.Dead, "failed_after_completion", 1)
	stands(t, again(t, settled, crash, done), deadletter.Resolved, "completed", 1)
}

// TestCompletedBefore: "Where its event is already completed", for a letter that is there.
func TestCompletedBefore(t *testing.T) {
	t.Parallel()
	done := held(event(2))
	done.Completed = true
	crash := failed("6", 0, func(r *deadletter.Report) { r.Crash = true })
	l := make1(t, failed("5", 503), held(event(1)))
	stands(t, again(t, l, crash, done), deadletter.Resolved, "completed_meanwhile", 2)
	dead := again(t, l, failed("6", 503), done)
	stands(t, dead, deadletter.Dead, "failed_after_completion", 2)
	// A person looks at the first run; the crash of another is no reason to stop.
	crash.ExecutionID = "7"
	stands(t, again(t, dead, crash, done), deadletter.Dead, "failed_after_completion", 2)

	l, e := deadletter.Settle(&dead, deadletter.ReasonSucceeded, "n8n", now)
	stands(t, l, deadletter.Resolved, "completed_meanwhile", 2) // contradicted by n8n's API
	if e.Kind != "settled" || e.By != "n8n" || e.To != deadletter.Resolved {
		t.Errorf("%+v", e)
	}
}

// TestOwnRefusalLeavesFailuresOpen: a run that our own answer turned away says nothing about the failure that the
// letter waits for.
func TestOwnRefusalLeavesFailuresOpen(t *testing.T) {
	t.Parallel()
	turned := failed("6", 409, func(r *deadletter.Report) { r.OwnCode = "lease_lost" })
	l := make1(t, failed("5", 503), held(event(1)))
	stands(t, again(t, l, turned, held(event(1))), deadletter.Queued, "transient", 1)
	replaying, _ := leased(t, l)
	if got := again(t, replaying, turned, held(event(2))); got.Status != deadletter.Replaying || got.VoidLease != 0 {
		t.Errorf("%+v", got)
	}
	l = make1(t, failed("5", 422), held(event(1)))
	stands(t, again(t, l, turned, held(event(1))), deadletter.Dead, "validation", 1)
	l.Status, l.Escalated = deadletter.Resolved, false
	stands(t, again(t, l, turned, held(event(1))), deadletter.Resolved, "lease_lost", 1)
}

// TestHandlers: "Reports from error workflows: one counted letter per workflow, never retried".
func TestHandlers(t *testing.T) {
	t.Parallel()
	handler := func(execution string) *deadletter.Report {
		return failed(execution, 429, func(r *deadletter.Report) { r.Handler = true })
	}
	l := make1(t, handler("5"), nothingHeld)
	l = again(t, l, handler("6"), nothingHeld)
	l = again(t, l, handler("7"), nothingHeld)
	stands(t, l, deadletter.Dead, "handler_failed", 3)
	if l.Reports != 3 {
		t.Errorf("%d reports", l.Reports)
	}
	refused(t, &l, &deadletter.Ending{Verb: deadletter.Requeue, AuthorizedBy: "a", Reason: "b"}, now, ledger.InvalidTransition)
	l = ended(t, &l, &deadletter.Ending{Verb: deadletter.Resolve, AuthorizedBy: "a", Reason: "b"}, now).Letter
	refused(t, &l, &deadletter.Ending{Verb: deadletter.Requeue, AuthorizedBy: "a", Reason: "b"}, now, ledger.InvalidTransition)
	stands(t, again(t, l, handler("8"), nothingHeld), deadletter.Dead, "handler_failed", 4)
}

// TestLetterOfAReplay: "One that fails again, or whose lease ends, is dead and does not re-enter".
func TestLetterOfAReplay(t *testing.T) {
	t.Parallel()
	queued := make1(t, failed("5", 429), nothingHeld)
	queued.ReplayID = "replay-1"
	l, at := leased(t, queued)

	f := nothingHeld
	f.Now = at
	stands(t, again(t, l, failed("6", 429), f), deadletter.Dead, "rate_limited", 2)
	e := &deadletter.Ending{Verb: deadletter.Fail, Token: tokenOf(t, &l), ByToken: true, HTTPStatus: 429}
	out := ended(t, &l, e, at)
	stands(t, out.Letter, deadletter.Dead, "rate_limited", 2)
	if out.Alert == nil {
		t.Error("nobody is told")
	}
	expired, _, alert := deadletter.Expire(&l, 0, l.LeaseUntil)
	stands(t, expired, deadletter.Dead, "lease_expired", 2)
	if alert == nil {
		t.Error("nobody is told")
	}
	lost, _, _ := deadletter.Lost(&l, event(2, func(c *ledger.Claim) { c.Last.At = at + 1 }), "failed", fresh(0), at+1)
	stands(t, lost, deadletter.Dead, "transient", 2)
	resolved := ended(t, &l, &deadletter.Ending{Verb: deadletter.Resolve, Token: tokenOf(t, &l), ByToken: true}, at).Letter
	resolved = again(t, resolved, failed("7", 429), f)
	stands(t, resolved, deadletter.Queued, "rate_limited", 3)
	if resolved.ReplayID != "" {
		t.Error("the replay is over for this letter")
	}
}

func expired(c *ledger.Claim) {
	c.Status, c.LeaseUntil = ledger.Processing, now
}

func ptr[T any](v T) *T { return &v }

// TestLost: an event becomes a letter when it failed, when its lease ended, when it stayed unclaimed; "such a letter is
// queued as long as attempts are left".
func TestLost(t *testing.T) {
	t.Parallel()
	class := func(word string) func(c *ledger.Claim) {
		return func(c *ledger.Claim) {
			c.Last = ledger.Transition{At: now, From: ledger.Processing, To: ledger.Failed, ErrorClass: word, Message: "no luck", HTTPStatus: 0}
		}
	}
	for _, tt := range []struct {
		name   string
		c      *ledger.Claim
		why    string
		status deadletter.Status
		reason string
		class  failure.Class
	}{
		{"lease over", event(1, expired), "lease_expired", deadletter.Queued, "lease_expired", failure.Transient},
		{"last lease over", event(6, expired), "lease_expired", deadletter.Dead, "lease_expired", failure.Transient},
		{"never claimed", event(0), "never_claimed", deadletter.Queued, "never_claimed", failure.Transient},
		{"never claimed again", event(6), "never_claimed", deadletter.Dead, "attempts_exhausted", failure.Transient},
		{"failed, transient", event(2, class("transient")), "failed", deadletter.Queued, "transient", failure.Transient},
		{"failed, rate limited", event(2, class("rate_limited")), "failed", deadletter.Queued, "rate_limited", failure.RateLimited},
		{"failed for the last time", event(6, class("transient")), "failed", deadletter.Dead, "attempts_exhausted", failure.Transient},
		{"set to failed by a person", event(2, class("")), "failed", deadletter.Queued, "transient", failure.Transient},
		{"failed, validation", event(1, class("validation")), "failed", deadletter.Dead, "validation", failure.Validation},
		{"failed, auth", event(1, class("auth")), "failed", deadletter.Dead, "auth", failure.Auth},
		{"failed, workflow", event(1, class("workflow")), "failed", deadletter.Dead, "workflow", failure.Workflow},
		{"failed, conflict", event(1, class("conflict")), "failed", deadletter.Dead, "conflict", failure.Conflict},
		{"failed, unclassified", event(1, class("unclassified")), "failed", deadletter.Dead, "unclassified", failure.Unclassified},
		{"an effect settled behind its run", event(1, func(c *ledger.Claim) { c.Kind = ledger.Effect }), "settled_late", deadletter.Dead, "settled_late", failure.Unclassified},
	} {
		l, e, alert := deadletter.Lost(nil, tt.c, tt.why, fresh(0.5), now)
		stands(t, l, tt.status, tt.reason, max(1, tt.c.Attempt))
		if l.Class != tt.class || l.Identity != "claim:claim-1" || l.ClaimID != "claim-1" || l.Play != deadletter.PlayWorkflow || l.WorkflowID != "W" || l.ExecutionID != "5" || l.ID == "" ||
			l.Key.IdempotencyKey != "evt_1" || l.Summary == "" || l.Outcome != failure.Unknown || l.InputState != deadletter.InputStored || l.MaxAttempts != 6 || l.Reports != 0 || l.CreatedAt != now {
			t.Errorf("%s: %+v", tt.name, l)
		}
		if e.Kind == "" || e.Kind == "report" || e.To != l.Status || e.ExecutionID != "5" || e.LetterID != l.ID {
			t.Errorf("%s: entry %+v", tt.name, e)
		}
		if (alert != nil) != (tt.status == deadletter.Dead) {
			t.Errorf("%s: alert %+v", tt.name, alert)
		}
		if wait := failure.Jitter(failure.Backoff(int(l.AttemptCount), nil), 0.5); l.Status == deadletter.Queued && l.NextRetryAt != in(wait) {
			t.Errorf("%s: due in %v, want %d s", tt.name, l.NextRetryAt.Sub(now), wait)
		}
		if t.Failed() {
			t.Fatal(tt.name)
		}
	}
	l, _, _ := deadletter.Lost(nil, event(1, func(c *ledger.Claim) { c.Payload = nil }), "lease_expired", fresh(0), now)
	none, _, _ := deadletter.Lost(nil, event(1, func(c *ledger.Claim) { c.Payload, c.Origin = nil, ledger.Origin{} }), "never_claimed", fresh(0), now)
	if l.InputState != deadletter.InputWanted || none.InputState != deadletter.InputMissing {
		t.Errorf("%s, %s", l.InputState, none.InputState)
	}
}

// TestLostWithALetter: "An event has at most one open letter, and the letter's attempts are the event's."
func TestLostWithALetter(t *testing.T) {
	t.Parallel()
	unchanged := func(l deadletter.Letter, c *ledger.Claim, reason string, at ledger.Instant) {
		t.Helper()
		got, e, alert := deadletter.Lost(&l, c, reason, fresh(0), at)
		if e.Kind != "" || alert != nil || got.Rev != l.Rev || got.Status != l.Status || got.NextRetryAt != l.NextRetryAt || got.AttemptCount != l.AttemptCount || got.UpdatedAt != l.UpdatedAt {
			t.Errorf("moved: %+v by %+v", got, e)
		}
	}
	reported := make1(t, failed("5", 503), held(event(1)))
	unchanged(reported, event(1), "failed", in(5))
	unchanged(reported, event(1, func(c *ledger.Claim) { c.Last.At = in(5) }), "failed", in(5)) // queued already
	unchanged(make1(t, failed("5", 422), held(event(1))), event(1), "failed", in(5))

	next, e, _ := deadletter.Lost(&reported, event(2, expired), "lease_expired", fresh(0), in(5))
	stands(t, next, deadletter.Queued, "lease_expired", 2)
	if next.ID != reported.ID || e.Kind != "expired" {
		t.Errorf("%+v", e)
	}

	// Under a lease: the claim has not been taken yet, then it has, and that run is lost.
	replaying, at := leased(t, reported)
	unchanged(replaying, event(1, func(c *ledger.Claim) { c.Last.At = now }), "failed", at.Add(1))
	lost, _, _ := deadletter.Lost(&replaying, event(2, func(c *ledger.Claim) { c.Last.At = at + 5 }), "failed", fresh(0), at.Add(5))
	stands(t, lost, deadletter.Queued, "transient", 2)
	if lost.VoidLease != 1 || lost.LeaseUntil != 0 {
		t.Errorf("the lease goes on: %+v", lost)
	}
	token := tokenOf(t, &replaying)
	refused(t, &lost, &deadletter.Ending{Verb: deadletter.Resolve, Token: token, ByToken: true}, at+9, ledger.LeaseLost)
	same(t, &lost, &deadletter.Ending{Verb: deadletter.Fail, Token: token, ByToken: true}, at+9)

	// The worker was told that the run had begun, and the run died.
	resolved := ended(t, &replaying, &deadletter.Ending{Verb: deadletter.Resolve, Token: token, ByToken: true}, at+9).Letter
	lost, _, _ = deadletter.Lost(&resolved, event(2, func(c *ledger.Claim) { c.LeaseUntil = at + 7 }), "lease_expired", fresh(0), at+20)
	stands(t, lost, deadletter.Queued, "lease_expired", 2)
	unchanged(resolved, event(1), "failed", at+20)

	// A person's word about a failure holds until there is another.
	discarded := ended(t, &reported, &deadletter.Ending{Verb: deadletter.Discard, AuthorizedBy: "a", Reason: "b"}, in(9)).Letter
	unchanged(discarded, event(1, func(c *ledger.Claim) { c.Last.At = now }), "failed", in(20))
	unchanged(discarded, event(1, func(c *ledger.Claim) { c.WaitUntil = in(5) }), "never_claimed", in(99))
	lost, _, _ = deadletter.Lost(&discarded, event(2, func(c *ledger.Claim) { c.Last.At = in(15) }), "failed", fresh(0), in(20))
	stands(t, lost, deadletter.Queued, "transient", 2)
}
