package ledger

import (
	"fmt"
	"time"
)

// Verb is what a worker or reconciler reports about a claim.
type Verb string

// The endings.
const (
	Complete    Verb = "complete"
	MarkUnknown Verb = "mark-unknown"
	MarkFailed  Verb = "mark-failed"
	Extend      Verb = "extend"
)

// Ending is a report about a claim. The row is found by Token; for Complete also by Key or Reference,
// since a receipt needs no fence.
type Ending struct {
	Verb      Verb
	Token     Token
	ByToken   bool
	Key       Key    // with an IdempotencyKey: the claim itself
	RefKey    string // else the reference of a claim of Key.Source
	CallerKey string

	ResultID   string
	Result     []byte
	HTTPStatus int64

	ErrorClass string
	Message    string
	// NotExecuted: the caller knows that nothing happened. ClassNotExecuted: only the error's class says so.
	NotExecuted      bool
	ClassNotExecuted bool
	Tries            int64 // how often the attempt may have been sent; 0: not proven
	NotNow           bool  // retry_after alone: nothing was tried
	RetryAfter       int64

	Reference    string
	LeaseSeconds int64

	AskedAt Instant // when the question of a look was sent; 0: now
	Unasked bool    // nothing was sent: no question can be made for this claim
}

// Ended is what an ending does.
type Ended struct {
	Claim   Claim // as it stands afterwards
	Write   bool  // Claim must be written
	Changed bool  // what the caller is told
	// Late is a report that moved nothing and is kept in the history all the same.
	Late *Transition
	// Alert says what a person should know; empty for nothing.
	Alert string
	// Look is what a reconciler's report says of the destination.
	Look LookAnswer
	// Err is the refusal to answer with. Write and Late hold all the same.
	Err *Refusal
}

// End applies the table of endings to the row that the ending names. The error is ErrNotFound for a token
// that was never issued for this row.
func End(row *Claim, e *Ending, p Policy, now Instant) (Ended, error) {
	if e.ByToken && !row.Issued(e.Token) {
		return Ended{}, ErrNotFound
	}
	current := *row
	out := Ended{Write: e.Verb != Complete && Settle(&current, p, now, e.CallerKey)}
	row, out.Claim = &current, current
	out.keepReference(row, e)
	switch {
	case e.Verb == Complete:
		out.complete(row, e, now)
	case !row.newest(e.Token):
		out.refuse(e, now, LeaseLost, "a newer lease was given or a person settled the claim: this report came too late and moves nothing")
	case e.Verb == MarkUnknown:
		out.markUnknown(row, e, now)
	case e.Verb == MarkFailed:
		out.markFailed(row, e, p, now)
	default:
		out.extend(row, e, p, now)
	}
	return out, nil
}

// Revives tells whether a report gives the lease of an event with an entity new life after its end.
func (e *Ending) Revives(row *Claim, now Instant) bool {
	return e.Verb == Extend && row.Status == Processing && row.Kind == Event && row.Entity != "" && now >= row.LeaseUntil
}

// EndUnderEntity is End where the claim's entity is locked and known: a lease that is over is not revived beside
// another version that was let in meanwhile. facts is nil for a claim without an entity.
func EndUnderEntity(row *Claim, e *Ending, p Policy, facts *EntityFacts, now Instant) (Ended, error) {
	out, err := End(row, e, p, now)
	if err == nil && out.Err == nil && facts != nil && e.Revives(row, now) && facts.Busy(row.Key, now) {
		// The lease stays over; the reference is kept whatever the answer.
		out.Claim.LeaseUntil, out.Changed, out.Write = row.LeaseUntil, false, out.Claim.Reference != row.Reference
		out.Err = &Refusal{LeaseLost, "the lease is over and the entity is being worked on under another key", row}
	}
	return out, err
}

// keepReference keeps the destination's own id whatever becomes of the report. The newest worker's word
// replaces an older one; a late report only fills a gap.
func (out *Ended) keepReference(row *Claim, e *Ending) {
	if e.Reference == "" || e.Reference == row.Reference || row.Reference != "" && !row.newest(e.Token) {
		return
	}
	out.Claim.Reference, out.Write = e.Reference, true
}

func (out *Ended) complete(row *Claim, e *Ending, now Instant) {
	older := e.ByToken && e.Token.Grant < row.Grant
	switch {
	case !e.ByToken && row.leaseLive(now):
		out.refuse(e, now, LeaseLive, "a worker holds this claim: only its lease_token can complete it now; this receipt is kept in the history")
		if row.Kind == Effect && row.EverUnknown {
			out.Alert = "a receipt came while the action is being tried again: it may happen twice"
		}
	case older && (row.Status == Processing && !row.effectOver(now) || row.Status == Completed && row.DoneGrant > e.Token.Grant):
		out.refuse(e, now, LeaseLost, "a newer attempt is being worked on or has completed: this receipt is kept in the history")
		if row.Status == Processing || !sameResult(row.ResultID, e.ResultID) {
			out.Alert = "a receipt came from an older attempt: the action may have happened twice"
		}
	case row.Status == Completed && !sameResult(row.ResultID, e.ResultID):
		out.refuse(e, now, ResultConflict, "the claim is completed with another result_id: the action may have happened twice")
		out.Alert = "two different receipts for one claim"
	case row.Status == Completed:
	case row.Status == Stale:
		out.late(e, now, "kept: the claim is stale, a newer version was taken")
		out.Alert = "a receipt came for a claim that a newer version had replaced"
		out.Err = transition(row, e)
	case row.Status == Failed && row.Kind == Effect:
		out.late(e, now, "believed: the claim was taken for failed, and the action happened all the same")
		out.Alert = "a receipt came for an action that was taken for failed"
		out.finish(e, now)
	default:
		out.finish(e, now)
	}
}

// sameResult: where one side names no id, there is nothing to contradict and the first stays.
func sameResult(stored, given string) bool { return stored == "" || given == "" || stored == given }

func (out *Ended) finish(e *Ending, now Instant) {
	c := &out.Claim
	c.ResultID, c.Result, c.CompletedAt = e.ResultID, e.Result, now
	c.DoneGrant = 0
	if e.ByToken {
		c.DoneGrant = e.Token.Grant
	}
	if e.Token.Look > 0 {
		out.Look = Answered
	}
	c.endLook()
	out.move(e, now, Completed)
}

// The reasons in the history of looks that told nothing.
const (
	CouldNotBeAsked = "kept: the destination could not be asked"
	NothingToAsk    = "kept: no question can be made for this claim"
)

func (out *Ended) markUnknown(row *Claim, e *Ending, now Instant) {
	c := &out.Claim
	switch row.Status {
	case Processing:
		c.toUnknown(min(now, row.LeaseUntil))
		out.move(e, now, Unknown)
	case Failed:
		if row.Kind == Event {
			out.Err = transition(row, e)
			return
		}
		c.toUnknown(now)
		out.move(e, now, Unknown)
	case Unknown:
		// Asked and not told, or the worker's word over the reconciler's: the look ends without an answer.
		if row.LookUntil == 0 {
			return
		}
		out.Write = true
		switch {
		case e.Token.Look == 0:
			c.noAnswer(now)
		case e.Unasked:
			c.lookAgain(now, c.Looks, slowestLook)
			out.Look = Unasked
			out.late(e, now, NothingToAsk)
		default:
			c.noAnswer(now)
			out.Look = Unanswered
			out.late(e, now, CouldNotBeAsked)
		}
	case Completed, Review:
	default:
		out.Err = transition(row, e)
	}
}

func (out *Ended) markFailed(row *Claim, e *Ending, p Policy, now Instant) {
	c := &out.Claim
	switch row.Status {
	case Processing:
		switch {
		case row.Kind == Event && e.NotNow:
			c.Attempt--
			c.DueAt = now.Add(time.Duration(e.RetryAfter) * time.Second)
			out.move(e, now, Pending)
		case row.Kind == Event, nothingHappened(row, e, now):
			out.move(e, now, Failed)
		default:
			c.toUnknown(min(now, row.LeaseUntil))
			out.move(e, now, Unknown)
		}
	case Unknown:
		switch {
		case e.Token.Look == 0 || !row.lookLive(now):
			out.late(e, now, "kept: only a reconciler that holds the claim can say that nothing happened")
		case !e.NotExecuted:
			out.late(e, now, "kept: only outcome not_executed says that nothing happened")
		case e.askedAt(now) < row.UnknownSince.Add(p.NotFoundAfter):
			c.noAnswer(now)
			out.Write, out.Look = true, Answered
			out.late(e, now, "kept: \"not found\" is not believed this early")
		default:
			c.endLook()
			out.Look = Answered
			out.move(e, now, Failed)
		}
	case Completed:
		out.late(e, now, "kept: the claim is completed")
		out.Alert = "a failure was reported for a completed claim"
	case Failed, Review:
	case Pending:
		// The same "not now" again, after a lost answer; any other report finds nothing under way.
		if !e.NotNow {
			out.Err = transition(row, e)
		}
	default:
		out.Err = transition(row, e)
	}
}

// askedAt is when a look's question was sent: what happened later its answer does not know.
func (e *Ending) askedAt(now Instant) Instant {
	if e.AskedAt == 0 {
		return now
	}
	return min(e.AskedAt, now)
}

// nothingHappened tells whether an effect under way may be called failed, and so be tried again.
func nothingHappened(row *Claim, e *Ending, now Instant) bool {
	if !row.leaseLive(now) {
		return false
	}
	return e.NotExecuted || e.ClassNotExecuted && e.Tries == 1
}

func (out *Ended) extend(row *Claim, e *Ending, p Policy, now Instant) {
	c := &out.Claim
	until := now.Add(time.Duration(e.LeaseSeconds) * time.Second)
	switch {
	case row.Status == Processing && e.Token.Look == 0:
		if row.Kind == Effect && now >= row.LeaseUntil {
			ExpireEffect(c, p, now, e.CallerKey)
			out.Write = true
			out.Err = transition(c, e)
			return
		}
		c.LeaseUntil = max(row.LeaseUntil, until)
		out.Changed = c.LeaseUntil != row.LeaseUntil
		out.Write = out.Write || out.Changed
	case row.Status == Unknown && e.Token.Look > 0 && row.LookUntil > 0:
		c.LookUntil = max(row.LookUntil, until)
		out.Changed = c.LookUntil != row.LookUntil
		out.Write = out.Write || out.Changed
	case row.Status == Completed:
		out.Err = &Refusal{LeaseLost, "the claim is completed", row}
	default:
		out.Err = transition(row, e)
	}
}

// ExpireEffect turns an effect whose lease is over into unknown, or brings it before a person where the
// provider's window is over as well. The moment is the lease's end, whenever somebody notices, so that no
// decision depends on how often the sweeper comes by.
func ExpireEffect(c *Claim, p Policy, now Instant, by string) {
	to := Unknown
	if c.windowOver(now, p) {
		to = Review
	}
	c.toUnknown(c.LeaseUntil)
	c.Last = Transition{
		At: now, From: c.Status, To: to, Attempt: c.Attempt, Owner: c.Origin.Owner,
		ExecutionID: c.Origin.ExecutionID, Message: "the lease ended without a report", By: by,
	}
	c.Status = to
}

func (c *Claim) toUnknown(since Instant) {
	c.EverUnknown, c.UnknownSince = true, since
	c.endLook()
}

// endLook ends the reconciler's lease: its token can still complete, and repeat what it said, but decide nothing.
func (c *Claim) endLook() {
	c.LookUntil, c.LookOwner, c.Looks, c.NextLook = 0, "", 0, 0
}

// slowestLook is the longest time between two looks.
const slowestLook = time.Hour

// noAnswer ends a look that told nothing; the next one comes after 1 min, doubling to 1 h.
func (c *Claim) noAnswer(now Instant) {
	wait := slowestLook
	if c.Looks < 6 {
		wait = time.Minute << c.Looks
	}
	c.lookAgain(now, c.Looks+1, wait)
}

func (c *Claim) lookAgain(now Instant, looks int64, wait time.Duration) {
	c.endLook()
	c.Looks, c.NextLook = looks, now.Add(wait)
}

func (out *Ended) move(e *Ending, now Instant, to Status) {
	c := &out.Claim
	out.Claim.Last = e.transition(c, now, to)
	c.Status, out.Write, out.Changed = to, true, true
}

func (e *Ending) transition(c *Claim, now Instant, to Status) Transition {
	return Transition{
		At: now, From: c.Status, To: to, Attempt: c.Attempt, Owner: c.Origin.Owner, ExecutionID: c.Origin.ExecutionID,
		HTTPStatus: e.HTTPStatus, ErrorClass: e.ErrorClass, Message: e.Message, By: e.CallerKey,
	}
}

// late keeps a report that moves nothing.
func (out *Ended) late(e *Ending, now Instant, why string) {
	t := e.transition(&out.Claim, now, out.Claim.Status)
	t.Reason = why
	switch {
	case e.ResultID != "":
		t.Message = fmt.Sprintf("/%s with result_id %q", e.Verb, e.ResultID)
	case t.Message == "":
		t.Message = "/" + string(e.Verb)
	}
	out.Late = &t
}

func (out *Ended) refuse(e *Ending, now Instant, code Code, why string) {
	out.late(e, now, why)
	claim := out.Claim
	out.Err = &Refusal{code, why, &claim}
}

func transition(c *Claim, e *Ending) *Refusal {
	claim := *c
	return &Refusal{InvalidTransition, fmt.Sprintf("a claim that is %s cannot take /%s", c.Status, e.Verb), &claim}
}

// Reported ends the lease of an event whose execution has failed, as the failure report says. ok is false where there
// is no lease to end: another execution holds the claim, or nobody does.
func Reported(row *Claim, e *Ending, executionID string, now Instant) (c Claim, ok bool) {
	c = *row
	if row.Kind != Event || row.Status != Processing || row.Origin.ExecutionID != executionID {
		return c, false
	}
	c.Last, c.Status = e.transition(row, now, Failed), Failed
	return c, true
}
