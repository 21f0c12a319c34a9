// Package ledger holds the rules of claims: their states, the decision table, leases and fencing tokens,
// the order of versions of one entity, and reconciliation. It is pure: every function takes the time and
// the row and returns what the row becomes, so the same rules hold over any store.
package ledger

import (
	"strconv"
	"time"
)

// Status is where a claim stands.
type Status string

// The states of a claim.
const (
	Pending    Status = "pending"    // received, nobody works on it
	Processing Status = "processing" // leased to a worker
	Completed  Status = "completed"  // done, with a receipt
	Failed     Status = "failed"     // known not to have happened; may be claimed again
	Unknown    Status = "unknown"    // sent, no receipt
	Review     Status = "review"     // a person decides
	Stale      Status = "stale"      // a newer version was taken
)

// Valid tells whether s is one of the states.
func (s Status) Valid() bool {
	switch s {
	case Pending, Processing, Completed, Failed, Unknown, Review, Stale:
		return true
	}
	return false
}

// Kind says what running a claim again means.
type Kind string

// An event may be run again because its effects are claimed on their own; an effect is never repeated blindly.
const (
	Event  Kind = "event"
	Effect Kind = "effect"
)

// KeyBasis says where an idempotency key came from.
type KeyBasis string

// The sources of a key, in the order in which they are tried.
const (
	BasisGiven    KeyBasis = "given"
	BasisTemplate KeyBasis = "template"
	BasisProfile  KeyBasis = "profile"
	BasisStandard KeyBasis = "standard"
)

// Instant is a point in time in microseconds since the Unix epoch, by the database's clock. Zero means none.
type Instant int64

// At turns a time into an Instant.
func At(t time.Time) Instant {
	if t.IsZero() {
		return 0
	}
	return Instant(t.UnixMicro())
}

// Time is i as a UTC time; the zero time for none.
func (i Instant) Time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(i)).UTC()
}

// Add moves i by d.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d.Microseconds()) }

// Sub is the time between two instants.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i-j) * time.Microsecond }

// MarshalText writes RFC 3339 in UTC.
func (i Instant) MarshalText() ([]byte, error) {
	return i.Time().AppendFormat(nil, time.RFC3339Nano), nil
}

// Key is the identity of a claim. It is four columns and never a joined string, so that no choice of
// separators inside the parts can make two claims one.
type Key struct {
	Source         string
	Account        string
	IdempotencyKey string
	Step           string
}

// Less orders keys; writers take their locks in this order.
func (k Key) Less(o Key) bool {
	switch {
	case k.Source != o.Source:
		return k.Source < o.Source
	case k.Account != o.Account:
		return k.Account < o.Account
	case k.IdempotencyKey != o.IdempotencyKey:
		return k.IdempotencyKey < o.IdempotencyKey
	}
	return k.Step < o.Step
}

// Origin says which workflow run asks.
type Origin struct {
	Owner        string // n8n's execution:run:item
	WorkflowID   string
	WorkflowName string
	ExecutionID  string
	Node         string
}

// sameCaller tells whether two calls come from one node run: only then may a live lease be handed out again.
// An empty owner is nobody.
func (o Origin) sameCaller(p Origin) bool {
	return o.Owner != "" && o.Owner == p.Owner && o.WorkflowID == p.WorkflowID && o.Node == p.Node
}

// Transition is one step in a claim's history.
type Transition struct {
	At          Instant
	From        Status // empty for the first
	To          Status
	Attempt     int64
	Owner       string
	ExecutionID string
	HTTPStatus  int64
	ErrorClass  string
	Message     string
	By          string // authorized_by of a person, else the API key's name
	Reason      string
}

// Claim is one row of the ledger.
type Claim struct {
	ID  string // UUIDv7
	Key Key
	Rev int64 // grows with each write; every write repeats it as its condition

	Kind      Kind
	Basis     KeyBasis
	Status    Status
	Attempt   int64 // how many attempts count, as callers see it
	FirstAt   Instant
	DueAt     Instant // of a pending claim: not before
	WaitUntil Instant // of a pending claim: until when its caller was told to wait

	// The worker's lease. Grant numbers every lease handed out; it never repeats and stands in the token.
	Origin     Origin
	CallerKey  string // the API key that holds the lease
	Grant      int64
	VoidGrant  int64 // grants up to this one were ended by a person: they can only complete
	LeaseUntil Instant
	Secret     []byte // tokens are derived from it
	DoneGrant  int64  // the grant whose receipt completed the claim; 0 when no token did

	// The reconciler's lease, with a numbering of its own.
	Look      int64
	LookOwner string
	LookUntil Instant
	Looks     int64 // looks that told nothing, for the backoff
	NextLook  Instant

	EverUnknown  bool
	UnknownSince Instant
	ProviderKey  string
	WindowFrom   Instant // first attempt under ProviderKey

	Payload     []byte // exact bytes; empty when none was given or retention took it
	PayloadHash []byte // 32 bytes; empty when no payload was ever given

	Entity      string
	Version     Version
	Destination string
	Reference   string

	ResultID    string
	Result      []byte // JSON; empty for none
	CompletedAt Instant

	Last  Transition // the newest transition; older ones are in the history
	Moves int64      // how many transitions there were, Last included

	Lettered int64 // how many of its transitions the claim's dead letter knows of; 0: it has none
}

// WindowEnds is when the provider may have forgotten ProviderKey; zero while no attempt was made under it.
func (c *Claim) WindowEnds(p Policy) Instant {
	if c.WindowFrom == 0 {
		return 0
	}
	return c.WindowFrom.Add(p.Window)
}

func (c *Claim) windowOver(now Instant, p Policy) bool {
	end := c.WindowEnds(p)
	return end != 0 && now >= end
}

// leaseLive tells whether a worker holds the claim now.
func (c *Claim) leaseLive(now Instant) bool { return c.Status == Processing && now < c.LeaseUntil }

// effectOver tells whether an effect's lease ended without a report: it is unknown, even if nobody has noticed yet.
func (c *Claim) effectOver(now Instant) bool {
	return c.Status == Processing && c.Kind == Effect && now >= c.LeaseUntil
}

// lookLive tells whether a reconciler holds the claim now.
func (c *Claim) lookLive(now Instant) bool { return c.Status == Unknown && now < c.LookUntil }

// lookDue tells whether a reconciler may be given the claim now.
func (c *Claim) lookDue(p Policy, now Instant) bool {
	return c.Status == Unknown && now >= max(c.UnknownSince.Add(p.AskAfter), c.NextLook, c.LookUntil)
}

// Policy is what a source or destination allows; a destination's values win over a source's.
type Policy struct {
	Window        time.Duration // how long the provider remembers a key
	AskAfter      time.Duration // age of an unknown row before it is handed to a reconciler
	NotFoundAfter time.Duration // age of an unknown row before "not found" is believed
}

// DefaultPolicy holds the contract's defaults.
var DefaultPolicy = Policy{Window: 24 * time.Hour, AskAfter: 60 * time.Second, NotFoundAfter: 5 * time.Minute}

// Limits and defaults of leases, in seconds, and of stored results, in bytes.
const (
	MaxLeaseSeconds     = 86400
	DefaultEventLease   = 300
	DefaultEffectLease  = 900
	DefaultLookLease    = 300
	MaxResultBytes      = 256 << 10
	MaxPauseWaitSeconds = 300
	UnknownWaitSeconds  = 60
)

// Version orders what concerns one entity: an integer, or a time.
type Version struct {
	Kind VersionKind
	Rank int64 // the integer, or nanoseconds since the epoch
}

// VersionKind tells integers from times; the two are never compared with each other.
type VersionKind int64

// The kinds of version.
const (
	NoVersion VersionKind = iota
	IntegerVersion
	TimeVersion
)

// ParseVersion reads an integer (64 bits) or an RFC 3339 time (years 1678 to 2261).
func ParseVersion(s string) (Version, bool) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return Version{IntegerVersion, n}, true
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || t.Year() < 1678 || t.Year() > 2261 {
		return Version{}, false
	}
	return Version{TimeVersion, t.UnixNano()}, true
}

// String writes the version as it is given: digits, or RFC 3339 in UTC; empty for none.
func (v Version) String() string {
	switch v.Kind {
	case IntegerVersion:
		return strconv.FormatInt(v.Rank, 10)
	case TimeVersion:
		return time.Unix(0, v.Rank).UTC().Format(time.RFC3339Nano)
	}
	return ""
}

// NewerThan tells whether v is later than o. Versions of different kinds say nothing about each other.
func (v Version) NewerThan(o Version) bool {
	return v.Kind != NoVersion && v.Kind == o.Kind && v.Rank > o.Rank
}

// Policies gives each source and destination its Policy. The zero value gives DefaultPolicy to all.
type Policies struct {
	Sources      map[string]Policy
	Destinations map[string]Policy
}

// For is the policy of a claim: its destination's, else its source's, else the default.
func (p Policies) For(source, destination string) Policy {
	if policy, ok := p.Destinations[destination]; ok && destination != "" {
		return policy
	}
	if policy, ok := p.Sources[source]; ok {
		return policy
	}
	return DefaultPolicy
}

// ShortestWindow is the shortest of all windows: no claim needs to be looked at for review before it.
func (p Policies) ShortestWindow() time.Duration {
	shortest := DefaultPolicy.Window
	for _, policies := range []map[string]Policy{p.Sources, p.Destinations} {
		for _, policy := range policies {
			shortest = min(shortest, policy.Window)
		}
	}
	return shortest
}
