package deadletter

import (
	"context"

	"holdfast/internal/ledger"
)

// Store keeps letters. Every method is one transaction, or several that are each complete by themselves; nothing
// is answered before it is durable. Errors are *ledger.Refusal, ledger.ErrNotFound, ledger.ErrUnavailable or an
// internal error.
type Store interface {
	// Report takes a failure: it finds or makes the letter, ends the leases of the events that the execution holds,
	// and tells whether the report was known. Of several letters the first event's is returned.
	Report(ctx context.Context, r *Report) (l Letter, duplicate bool, err error)
	// LeaseLetters hands out letters that are due, oldest first, never one to two workers.
	LeaseLetters(ctx context.Context, r *LeaseRequest) ([]Letter, error)
	// EndLetter applies End to the letter with this id.
	EndLetter(ctx context.Context, id string, e *Ending) (Ended, error)

	// GetLetter returns a letter with what happened to it, oldest first.
	GetLetter(ctx context.Context, id string) (Letter, []Entry, error)
	// Letters returns letters without payloads, newest first; next is the cursor of the following page or empty.
	Letters(ctx context.Context, f Filter) (letters []Letter, next string, err error)
	LetterStats(ctx context.Context) (Stats, error)

	// SweepLetters makes letters of events that were lost in silence, ends leases that are over, and settles what
	// completed meanwhile.
	SweepLetters(ctx context.Context) (SweepReport, error)

	// KnowsExecution tells whether a letter has a report of this execution.
	KnowsExecution(ctx context.Context, workflowID, executionID string) (bool, error)
	// WantedInputs returns letters whose payload is to be fetched, oldest first, without payloads.
	WantedInputs(ctx context.Context, limit int) ([]Letter, error)
	// SetInput stores the payload of a letter that waits for one; nil: nobody has it.
	SetInput(ctx context.Context, id string, payload []byte) error
	// Succeeded resolves open letters of an execution that n8n says has succeeded, or was retried with success.
	Succeeded(ctx context.Context, workflowID, executionID string) (int, error)
	// Mark and SetMark keep a named position, such as how far n8n's executions were looked through.
	Mark(ctx context.Context, name string) (string, error)
	SetMark(ctx context.Context, name, value string) error

	ReplayStore
}

// LeaseRequest asks for letters to be run again; empty fields select all.
type LeaseRequest struct {
	WorkflowID   string
	Source       string
	Destination  string
	Owner        string
	CallerKey    string
	Limit        int64
	LeaseSeconds int64
}

// Verb is how a letter's attempt ends.
type Verb string

// The verbs.
const (
	Resolve Verb = "resolve"
	Fail    Verb = "fail"
	Extend  Verb = "extend"
	Requeue Verb = "requeue"
	Discard Verb = "discard"
)

// Ending is a report about a letter. Without a token it is a person's.
type Ending struct {
	Verb    Verb
	Token   Token
	ByToken bool

	Result       []byte // JSON, of resolve
	Error        []byte // the error as given, JSON; of fail
	HTTPStatus   int64
	RetryAfter   *int64 // seconds
	NotNow       bool   // retry_after alone: nothing was tried
	LeaseSeconds int64

	CallerKey    string
	AuthorizedBy string
	Reason       string
	Redact       []string
	Jitter       float64 // in [0, 1)
}

// Ended is what an ending does.
type Ended struct {
	Letter  Letter
	Write   bool // Letter must be written
	Changed bool // what the caller is told
	Entry   *Entry
	Alert   *Alert
}

// Filter selects letters; empty fields select all.
type Filter struct {
	Status      Status
	WorkflowID  string
	Source      string
	Destination string
	Class       string
	From, To    ledger.Instant // From <= created_at < To
	Limit       int
	Cursor      string
}

// Stats counts letters.
type Stats struct {
	ByStatus      map[Status]int64
	ByClass       map[string]int64 // of the open ones
	ByWorkflow    map[string]int64 // of the open ones, the ten with the most
	Due           int64            // queued and due now
	OldestDueAt   ledger.Instant
	OldestDeadAt  ledger.Instant
	InputsMissing int64
	Replays       map[ReplayStatus]int64 // the open ones
}

// SweepReport counts what a sweep did.
type SweepReport struct {
	LeaseExpired int // events whose lease had ended: now letters
	NeverClaimed int // events that nobody claimed after a wait: now letters
	Ended        int // letters whose lease had ended
	Settled      int // letters whose event completed
	Undone       int // letters that a worker had resolved, and whose event is not done: open again
}
