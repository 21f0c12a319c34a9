package ledger

import (
	"fmt"
	"time"
)

// Resolution is how a person settles a claim.
type Resolution struct {
	To             Status // completed, failed or review
	ResultID       string
	NewProviderKey string // set when a new one was asked for
	AuthorizedBy   string
	Reason         string
}

// Resolve settles a claim under a person's name. What was leased before can afterwards only complete.
func Resolve(row *Claim, r *Resolution, p Policy, now Instant) (Ended, error) {
	out := Ended{Claim: *row}
	if err := settleable(row, r, p, now); err != nil {
		return out, err
	}
	c := &out.Claim
	rotate := r.NewProviderKey != "" && row.WindowFrom != 0
	if row.Status == r.To && !rotate {
		return out, nil
	}
	if settled := *row; !rotate && Settle(&settled, p, now, r.AuthorizedBy) && settled.Status == r.To {
		out.Claim, out.Write = settled, true // time alone had brought it here
		return out, nil
	}
	if rotate {
		c.ProviderKey, c.WindowFrom = r.NewProviderKey, 0
	}
	message := ""
	if row.ResultID != "" {
		message = fmt.Sprintf("had result_id %q", row.ResultID)
	}
	if row.Status == Processing && row.Kind == Effect {
		c.toUnknown(row.LeaseUntil) // its lease is over: it was unknown, whether or not somebody had noticed
	}
	c.VoidGrant = c.Grant
	c.endLook()
	c.DueAt, c.WaitUntil, c.DoneGrant = 0, 0, 0
	c.ResultID, c.Result, c.CompletedAt = "", nil, 0
	if r.To == Completed {
		c.ResultID, c.CompletedAt = r.ResultID, now
	}
	c.Last = Transition{
		At: now, From: row.Status, To: r.To, Attempt: c.Attempt, Owner: c.Origin.Owner,
		ExecutionID: c.Origin.ExecutionID, Message: message, By: r.AuthorizedBy, Reason: r.Reason,
	}
	c.Status, out.Write, out.Changed = r.To, true, true
	return out, nil
}

func settleable(row *Claim, r *Resolution, p Policy, now Instant) error {
	switch {
	case row.leaseLive(now):
		return &Refusal{LeaseLive, "a worker holds this claim: wait for its lease to end", row}
	case row.Status == Completed && r.To == Completed:
		if !sameResult(row.ResultID, r.ResultID) {
			return &Refusal{ResultConflict, "the claim is completed with another result_id", row}
		}
	case row.Status == Completed && (row.Kind == Effect || r.To != Failed):
		return &Refusal{InvalidTransition, "a completed claim stays completed; only an event can be set to failed, to run it again", row}
	case r.To == Failed && row.Status != Failed && row.windowOver(now, p) && r.NewProviderKey == "":
		return &Refusal{InvalidRequest, "the provider's window for this key is over: send new_provider_key:true, since the old key no longer protects", nil}
	}
	return nil
}

// LookRequest asks for unknown claims to be looked up at their destination.
type LookRequest struct {
	Source       string
	Owner        string
	CallerKey    string
	Limit        int64
	LeaseSeconds int64

	// Probe is set where the sidecar itself looks: each look is then one request at the claim's destination, and is
	// handed out only with a permit for it.
	Probe  bool
	Of     Match
	Except []Match // claims of these are left out
	ID     string  // of the one claim that is meant; empty: any
}

// LookOwner is how the holder of a reconciler's lease is kept: by its API key, whose name has no colon, and the
// name it gave.
func LookOwner(r *LookRequest) string { return r.CallerKey + ":" + r.Owner }

// TakeLook hands an unknown claim to a reconciler. ok is false where the row must not be handed out now;
// then Write still holds: a row whose window is over becomes review.
func TakeLook(row *Claim, r *LookRequest, p Policy, now Instant) (out Ended, ok bool) {
	out = Ended{Claim: *row}
	c := &out.Claim
	if c.Status == Processing && c.Kind == Effect && now >= c.LeaseUntil {
		ExpireEffect(c, p, now, r.CallerKey)
		out.Write = true
	}
	if Settle(c, p, now, r.CallerKey) {
		out.Write = true
		return out, false
	}
	if c.lookLive(now) {
		return out, r.Owner != "" && c.LookOwner == LookOwner(r)
	}
	if !c.lookDue(p, now) {
		return out, false
	}
	c.Look++
	c.LookOwner = ""
	if r.Owner != "" {
		c.LookOwner = LookOwner(r)
	}
	c.LookUntil = now.Add(time.Duration(r.LeaseSeconds) * time.Second)
	out.Write, out.Changed = true, true
	return out, true
}

// Settle brings an unknown claim whose window is over before a person, and tells whether it did.
func Settle(c *Claim, p Policy, now Instant, by string) bool {
	if c.effectOver(now) && c.windowOver(now, p) {
		ExpireEffect(c, p, now, by)
		return true
	}
	if c.Status != Unknown || !c.windowOver(now, p) {
		return false
	}
	c.endLook()
	c.Last = Transition{
		At: now, From: Unknown, To: Review, Attempt: c.Attempt, Owner: c.Origin.Owner,
		ExecutionID: c.Origin.ExecutionID, Message: "the provider's window for this key is over", By: by,
	}
	c.Status = Review
	return true
}
