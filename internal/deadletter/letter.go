// Package deadletter holds the rules of dead letters: what a failure report says, which letter it belongs to, what
// comes due by itself and what waits for a person, leases, and how a letter ends. It is pure: every function takes
// the time and the letter and returns what the letter becomes.
package deadletter

import (
	"holdfast/internal/failure"
	"holdfast/internal/ledger"
)

// Status is where a letter stands.
type Status string

// The states of a letter.
const (
	Queued    Status = "queued"    // due at NextRetryAt
	Replaying Status = "replaying" // leased to a worker
	Resolved  Status = "resolved"
	Dead      Status = "dead" // a person decides
	Discarded Status = "discarded"
)

// Valid tells whether s is one of the states.
func (s Status) Valid() bool {
	switch s {
	case Queued, Replaying, Resolved, Dead, Discarded:
		return true
	}
	return false
}

// Open tells whether the letter still waits for something.
func (s Status) Open() bool { return s == Queued || s == Replaying || s == Dead }

// Play says how a letter is run again.
type Play string

// The ways to run a letter again.
const (
	PlayWorkflow Play = "workflow" // its workflow, with the payload: every step claims first
	PlayRequest  Play = "request"  // the one failed request, with the provider key
)

// The reasons of a letter, besides the error classes and the codes of our own refusals.
const (
	ReasonOutcomeUnknown    = "outcome_unknown"
	ReasonExhausted         = "attempts_exhausted"
	ReasonLeaseExpired      = "lease_expired"
	ReasonNeverClaimed      = "never_claimed"
	ReasonSettledLate       = "settled_late"
	ReasonCompletedMeantime = "completed_meanwhile"
	ReasonFailedAfter       = "failed_after_completion"
	ReasonHandlerFailed     = "handler_failed" // an error workflow failed itself
	ReasonCompleted         = "completed"      // its event was completed after all
	ReasonSucceeded         = "succeeded"      // n8n's API says that the run, or a retry of it, succeeded
	ReasonNotNow            = "not_now"
	ReasonJoined            = "joined" // the failure has another letter: its parent's
	ReasonRequeued          = "requeued"
	ReasonDiscarded         = "discarded"
	ReasonReplayed          = "replayed" // resolved by a worker
	ReasonNotDone           = "not_done" // resolved by a worker, and yet its event is not done
)

// InputState says what is known of a letter's payload.
type InputState string

// The states of a payload.
const (
	InputStored  InputState = "stored"  // Payload is what there is
	InputWanted  InputState = "wanted"  // to be fetched from n8n's API
	InputMissing InputState = "missing" // nobody has it
	InputAged    InputState = "aged"    // retention removed it
)

// Letter is a failure that is kept until it is settled.
type Letter struct {
	ID       string // UUIDv7
	Identity string // what makes another report the same letter's; unique
	Rev      int64  // grows with each write; every write repeats it as its condition

	Status       Status
	Reason       string
	Class        failure.Class
	Retryable    bool
	Outcome      failure.Outcome
	AttemptCount int64
	MaxAttempts  int64
	NextRetryAt  ledger.Instant // 0: not due
	Backoff      int64          // seconds, without jitter
	Escalated    bool
	Reports      int64 // how many reports it gathered
	SafeToRepeat bool

	Summary      string
	Message      string // the error in a person's words, redacted
	WorkflowID   string
	WorkflowName string
	ExecutionID  string // of the newest failure
	Node         string
	HTTPStatus   int64
	Method       string // of the failing request, upper case
	URL          string // of the failing request, redacted

	ClaimID     string // empty where the execution held no claim
	Key         ledger.Key
	Destination string
	Play        Play
	ProviderKey string

	Payload    []byte // exact bytes of JSON; empty for none
	InputState InputState
	Error      []byte // the reported error, redacted JSON; empty for none

	// The worker's lease. Lease numbers every lease handed out and stands in the token.
	Secret     []byte
	Lease      int64
	LeaseOwner string
	LeaseUntil ledger.Instant
	VoidLease  int64 // leases up to this one are over: a person or a report ended them
	LastVerb   string
	LastResult []byte // what the last resolve said, JSON

	ReplayID  string // the replay that has it; empty for none
	CreatedAt ledger.Instant
	UpdatedAt ledger.Instant
}

// Entry is one thing that happened to a letter: a report, an attempt, or an act of a person.
type Entry struct {
	LetterID    string
	N           int64
	At          ledger.Instant
	Kind        string // report, lease, failed, resolved, expired, extended, requeued, discarded, settled, selected, released
	To          Status
	Attempt     int64
	ExecutionID string
	WorkflowID  string
	Node        string
	HTTPStatus  int64
	Class       string
	Message     string
	Owner       string
	By          string
	Reason      string
	Digest      []byte // SHA-256 of a report's bytes
	ReplayID    string // the replay in which it happened; empty for none
}

// Report is what a failure report says, in whatever shape it came. Text is safe for a database's text column and
// carries no secret.
type Report struct {
	Digest  []byte // SHA-256 of the bytes as received
	Verdict failure.Verdict

	Trigger     bool // the trigger itself failed: there was no execution
	Handler     bool // it comes from an error workflow (mode error)
	Crash       bool
	OwnCode     string // lease_lost, lease_live or result_conflict, where our own answer is the error
	AtComplete  bool   // the failing request went to /complete
	EventID     string // of the flat form
	Established int64  // executionContext.establishedAt in ms

	WorkflowID, WorkflowName string
	ExecutionID              string
	RetryOf                  string // the execution that this one retried
	ParentExecutionID        string // this is a child of that execution
	ChildExecutionID         string // this reports the failure of a child
	ChildWorkflowID          string
	Node                     string
	Message                  string
	Error                    []byte // the error as redacted JSON, cut to size

	Method, URL    string // of the failing request
	IdempotencyKey string // the failing request's own Idempotency-Key header
	RequestBody    []byte // the failing request's body as JSON; empty for none

	// What the sender added.
	Payload      []byte
	Key          ledger.Key // Source, Account and IdempotencyKey as given
	Destination  string
	SafeToRepeat bool
	MaxAttempts  int64 // 0: the default
	CallerKey    string

	FromAPI bool // found by asking n8n, not reported
	Fresh   Fresh
}

// Fresh holds the random values of new letters, made outside so that the rules stay pure.
type Fresh struct {
	New    func() (id string, secret []byte)
	Jitter func() float64 // in [0, 1)
}

// Defaults and limits.
const (
	DefaultMaxAttempts = 6
	DefaultLease       = 300
	DefaultLimit       = 25
	MaxLimit           = 100
)
