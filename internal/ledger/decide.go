package ledger

import (
	"bytes"
	"time"
)

// Decision is the answer to a claim: the word that a workflow switches on.
type Decision string

// The decisions. Only Proceed lets the caller act.
const (
	Proceed           Decision = "proceed"
	InProgress        Decision = "in_progress"
	DecisionCompleted Decision = "completed"
	DecisionUnknown   Decision = "unknown"
	DecisionReview    Decision = "review"
	DecisionStale     Decision = "stale"
	Wait              Decision = "wait"
)

// Request is a claim that is asked for.
type Request struct {
	ClaimID string // instead of Key: a claim that exists
	Key     Key
	Basis   KeyBasis
	Kind    Kind // empty: the row's, else by Step and Destination

	Payload     []byte
	PayloadHash []byte // 32 bytes, or empty without a payload

	Origin       Origin
	CallerKey    string
	LeaseSeconds int64 // 0: the default of the kind

	Entity      string
	Version     Version
	Destination string

	Fresh Fresh
}

// Fresh holds the random values of a new row, made outside so that the rules stay pure.
type Fresh struct {
	ID          string
	Secret      []byte
	ProviderKey string
}

// Facts are what a decision needs to know besides the row and the request.
type Facts struct {
	Now    Instant
	Policy Policy
	// Pause is how long a pause, rate or circuit still holds the claim back; 0 when nothing does.
	Pause time.Duration
	// Entity is set when the request or the row names one.
	Entity *EntityFacts
}

// EntityFacts tell what else concerns the entity within (source, account).
type EntityFacts struct {
	Completed []Version // the newest completed one of each kind
	Others    []Other
}

// Busy tells whether a claim of another key is under a live lease.
func (f *EntityFacts) Busy(key Key, now Instant) bool {
	for _, o := range f.Others {
		other := o.Key
		other.Step = key.Step
		if other != key && o.Status == Processing && now < o.LeaseUntil {
			return true
		}
	}
	return false
}

// Other is another claim of the entity that is processing or unknown.
type Other struct {
	Key        Key
	Kind       Kind
	Status     Status
	Version    Version
	LeaseUntil Instant
}

// Verdict is the answer to a claim and what becomes of its row.
type Verdict struct {
	Decision   Decision
	Claim      Claim // as it stands after the decision
	Changed    bool  // Claim must be written: inserted when there was no row, else updated
	Reentrant  bool
	RetryAfter int64 // whole seconds; 0 where it has no meaning
	LookDue    bool  // the claim is unknown, and its destination may be asked now
	// PayloadMatches is nil when there was nothing to compare.
	PayloadMatches *bool
}

// Entity is the entity that a request's decision depends on: its own, else the row's.
func (r *Request) entity(row *Claim) string {
	if r.Entity != "" || row == nil {
		return r.Entity
	}
	return row.Entity
}

// Free tells whether a request may go on to be granted: there is no row, or nobody holds it and nothing has
// settled it. Only then does more than the row matter: pauses, and what else concerns the entity.
func Free(row *Claim, now Instant) bool {
	return row == nil || row.Status == Pending || row.Status == Failed ||
		row.Status == Processing && row.Kind == Event && now >= row.LeaseUntil
}

// NeedsFacts tells whether the decision depends on an entity: then the caller must read the facts under the
// entity's lock and decide again.
func (r *Request) NeedsFacts(row *Claim, now Instant) bool {
	return r.entity(row) != "" && Free(row, now)
}

// Decide applies the decision table to one request. row is nil when there is none.
// The rows of the contract's table stand in the same order below; the first that applies decides.
func Decide(row *Claim, req *Request, f Facts) (Verdict, error) {
	if row == nil {
		return decideNew(req, f), nil
	}
	v := Verdict{Claim: *row}
	if len(row.PayloadHash) > 0 && len(req.PayloadHash) > 0 {
		same := bytes.Equal(row.PayloadHash, req.PayloadHash)
		v.PayloadMatches = &same
	}
	if err := reused(row, req, v.PayloadMatches); err != nil {
		return Verdict{}, err
	}
	if len(row.PayloadHash) == 0 && len(req.PayloadHash) > 0 {
		v.Claim.Payload, v.Claim.PayloadHash, v.Changed = req.Payload, req.PayloadHash, true
		v.PayloadMatches = new(true)
	}
	v.standing(row, req, f)
	v.LookDue = v.Claim.lookDue(f.Policy, f.Now)
	return v, nil
}

func decideNew(req *Request, f Facts) Verdict {
	c := Claim{
		ID: req.Fresh.ID, Key: req.Key, Kind: req.kindOf(), Basis: req.Basis, FirstAt: f.Now,
		Secret: req.Fresh.Secret, ProviderKey: req.Fresh.ProviderKey,
		Payload: req.Payload, PayloadHash: req.PayloadHash,
	}
	v := Verdict{Claim: c, Changed: true}
	if len(req.PayloadHash) > 0 {
		v.PayloadMatches = new(true)
	}
	v.open(&c, req, f)
	return v
}

func (r *Request) kindOf() Kind {
	switch {
	case r.Kind != "":
		return r.Kind
	case r.Key.Step != "" || r.Destination != "":
		return Effect
	}
	return Event
}

// reused refuses a key that already means something else.
func reused(row *Claim, req *Request, matches *bool) error {
	kind, basis := req.kindOf(), req.Basis
	if req.ClaimID != "" {
		basis = row.Basis
		if req.Kind == "" {
			kind = row.Kind
		}
	}
	switch {
	case req.ClaimID != "" && req.Key.Source != "" && req.Key.Source != row.Key.Source:
		return &Refusal{InvalidRequest, "claim_id names a claim of another source", nil}
	case kind != row.Kind:
		return &Refusal{KeyReused, "this key was claimed as " + string(row.Kind) + ", not as " + string(kind) + ": a key keeps its kind; give another key or step", row}
	case matches != nil && !*matches && (row.Kind == Effect || basis == BasisStandard):
		return &Refusal{KeyReused, "this key was claimed with another payload: one key means one thing; give a key that names this one", row}
	}
	return nil
}

// standing decides by where the row stands.
func (v *Verdict) standing(row *Claim, req *Request, f Facts) {
	switch row.Status {
	case Unknown:
		if row.windowOver(f.Now, f.Policy) {
			v.move(req, f.Now, Review, "the provider's window for this key is over")
			v.Decision = DecisionReview
			return
		}
		v.Decision = DecisionUnknown
	case Completed:
		v.Decision = DecisionCompleted
	case Review:
		v.Decision = DecisionReview
	case Stale:
		v.Decision = DecisionStale
	case Processing:
		v.processing(row, req, f)
	default:
		v.open(row, req, f)
	}
}

func (v *Verdict) processing(row *Claim, req *Request, f Facts) {
	switch {
	case f.Now < row.LeaseUntil && row.CallerKey == req.CallerKey && row.Origin.sameCaller(req.Origin):
		v.Decision, v.Reentrant = Proceed, true
		v.adopt(req)
		v.Claim.LeaseUntil = max(row.LeaseUntil, f.Now.Add(req.lease(row.Kind)))
		v.Changed = v.Changed || v.Claim.LeaseUntil != row.LeaseUntil || v.Claim.Entity != row.Entity ||
			v.Claim.Version != row.Version || v.Claim.Destination != row.Destination
	case f.Now < row.LeaseUntil:
		v.Decision = InProgress
		v.RetryAfter = Seconds(row.LeaseUntil.Sub(f.Now))
	case row.Kind == Effect:
		ExpireEffect(&v.Claim, f.Policy, f.Now, req.CallerKey)
		v.Decision, v.Changed = DecisionUnknown, true
		if v.Claim.Status == Review {
			v.Decision = DecisionReview
		}
	default:
		v.open(row, req, f)
	}
}

// open decides for a claim that nobody holds: none, pending, failed, or an event whose lease is over.
func (v *Verdict) open(row *Claim, req *Request, f Facts) {
	wait := f.wait(row)
	switch {
	case f.newer(row, req):
		v.Decision = DecisionStale
		// What was ever sent may have happened: it must stay visible as it is and never be filed as superseded.
		if !row.EverUnknown {
			v.adopt(req)
			v.move(req, f.Now, Stale, "a newer version was taken")
		}
	case row.Status == Failed && row.Kind == Effect && row.EverUnknown && row.windowOver(f.Now, f.Policy):
		v.move(req, f.Now, Review, "the provider's window for this key is over")
		v.Decision = DecisionReview
	case wait > 0:
		v.wait(row, req, f.Now, Seconds(wait))
	default:
		v.grant(req, f.Now)
		v.Decision = Proceed
	}
}

// wait keeps a new row as pending and notes until when its caller was told to wait, so that one whose caller
// never returns can be noticed; a failed or expired row stays what it is.
func (v *Verdict) wait(row *Claim, req *Request, now Instant, seconds int64) {
	v.Decision, v.RetryAfter = Wait, seconds
	if row.Status == "" {
		v.adopt(req)
		v.Claim.Origin = req.Origin // should nobody come back, this is the run to be made again
		v.move(req, now, Pending, "")
	}
	if v.Claim.Status == Pending {
		v.Claim.WaitUntil, v.Changed = now.Add(time.Duration(seconds)*time.Second), true
	}
}

func (v *Verdict) grant(req *Request, now Instant) {
	c := &v.Claim
	v.adopt(req)
	c.Attempt++
	c.Grant++
	c.Origin, c.CallerKey = req.Origin, req.CallerKey
	c.LeaseUntil = now.Add(req.lease(c.Kind))
	c.DueAt, c.WaitUntil = 0, 0
	c.LookUntil, c.LookOwner, c.Looks, c.NextLook, c.UnknownSince = 0, "", 0, 0, 0
	if c.WindowFrom == 0 {
		c.WindowFrom = now
	}
	v.move(req, now, Processing, "")
}

// adopt takes over what a later call says about the order and the place of the work.
func (v *Verdict) adopt(req *Request) {
	if req.Entity != "" {
		v.Claim.Entity = req.Entity
	}
	if req.Version.Kind != NoVersion {
		v.Claim.Version = req.Version
	}
	if req.Destination != "" {
		v.Claim.Destination = req.Destination
	}
}

func (v *Verdict) move(req *Request, now Instant, to Status, message string) {
	c := &v.Claim
	c.Last = Transition{
		At: now, From: c.Status, To: to, Attempt: c.Attempt, Owner: req.Origin.Owner,
		ExecutionID: req.Origin.ExecutionID, Message: message, By: req.CallerKey,
	}
	c.Status, v.Changed = to, true
}

// lease is how long a granted lease lasts.
func (r *Request) lease(kind Kind) time.Duration {
	seconds := r.LeaseSeconds
	switch {
	case seconds > 0:
	case kind == Effect:
		seconds = DefaultEffectLease
	default:
		seconds = DefaultEventLease
	}
	return time.Duration(seconds) * time.Second
}

// newer tells whether a version later than this one is completed or being worked on.
func (f Facts) newer(row *Claim, req *Request) bool {
	if f.Entity == nil {
		return false
	}
	mine := row.Version
	if req.Version.Kind != NoVersion {
		mine = req.Version
	}
	for _, done := range f.Entity.Completed {
		if mine.Kind != NoVersion && done.NewerThan(mine) {
			return true
		}
	}
	for _, o := range f.Entity.Others {
		if o.Key != row.Key && o.Status == Processing && f.Now < o.LeaseUntil && o.Version.NewerThan(mine) {
			return true
		}
	}
	return false
}

// wait is how long the claim must wait; 0 when nothing holds it back. Claims of one key (an event and its
// effects by step) never wait for each other: an effect would wait for its own event for ever.
func (f Facts) wait(row *Claim) time.Duration {
	wait := f.Pause
	if f.Entity == nil {
		return wait
	}
	for _, o := range f.Entity.Others {
		other := o.Key
		other.Step = row.Key.Step
		switch {
		case other == row.Key:
		case o.Status == Processing && f.Now < o.LeaseUntil:
			wait = max(wait, o.LeaseUntil.Sub(f.Now))
		case o.Kind == Effect && (o.Status == Unknown || o.Status == Processing):
			// Its lease may be over and not yet swept: it is unknown all the same.
			wait = max(wait, UnknownWaitSeconds*time.Second)
		}
	}
	return wait
}

// Seconds rounds a wait up to whole seconds, at least 1.
func Seconds(d time.Duration) int64 {
	return max(1, int64((d+time.Second-1)/time.Second))
}
