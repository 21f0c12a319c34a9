package ledger

import (
	"context"
	"time"
)

// Store keeps claims. Every method is one transaction, or several that are each complete by themselves;
// nothing is answered before it is durable. Errors are *Refusal, ErrNotFound, ErrUnavailable (also when the
// outcome of a commit is not known), ErrOverloaded, or an internal error.
type Store interface {
	// Claim applies Decide: of all callers that race for a key, one proceeds.
	Claim(ctx context.Context, r *Request) (Verdict, error)
	// End applies End. With a Refusal the Ended is valid too.
	End(ctx context.Context, e *Ending) (Ended, error)
	// Resolve applies Resolve to the claim with this id.
	Resolve(ctx context.Context, id string, r *Resolution) (Ended, error)
	// LeaseUnknown hands unknown claims to a reconciler, oldest first, never one to two owners.
	LeaseUnknown(ctx context.Context, r *LookRequest) ([]Claim, error)

	// Get returns a claim and its whole history, oldest transition first.
	Get(ctx context.Context, id string) (Claim, []HistoryEntry, error)
	// List returns claims, newest first; next is the cursor of the following page or empty.
	List(ctx context.Context, f ClaimFilter) (claims []Claim, next string, err error)
	// History returns what was overwritten and what people did, newest first.
	History(ctx context.Context, f HistoryFilter) (entries []HistoryEntry, next string, err error)

	// Sweep settles what time alone has decided: ended leases of effects, windows that are over.
	Sweep(ctx context.Context) (SweepReport, error)

	// Retain removes what is older than the rules allow, some pages at a time; it goes on where it stopped.
	Retain(ctx context.Context, keep Retention, pages int) (RetentionReport, error)

	// SetPause stops a scope and returns the pause as it stands; the newest word for a scope counts. ClearPause
	// lets it go on.
	SetPause(ctx context.Context, p Pause) (Pause, error)
	ClearPause(ctx context.Context, scope, by string) (bool, error)
	Pauses(ctx context.Context) ([]Pause, error)

	// Ready tells whether the database can be reached and has the schema of this program.
	Ready(ctx context.Context) error
	// PolicyFor is the policy by which a claim is judged.
	PolicyFor(source, destination string) Policy
}

// HistoryEntry is one transition of one claim, a report that moved nothing, or an act of a person that
// concerns no claim.
type HistoryEntry struct {
	ID      string // place within the claim's history
	ClaimID string // empty where no claim is concerned
	Transition
}

// ClaimFilter selects claims; empty fields select all.
type ClaimFilter struct {
	Status         Status
	Source         string
	Account        *string
	IdempotencyKey string
	Reference      string
	Kind           Kind
	Entity         string
	From, To       Instant // of the first claim: From <= first_seen_at < To
	Limit          int
	Cursor         string
}

// HistoryFilter selects history entries; empty fields select all.
type HistoryFilter struct {
	ClaimID  string
	By       string
	From, To Instant
	Limit    int
	Cursor   string
}

// SweepReport counts what a sweep did and found.
type SweepReport struct {
	Expired  int // effects whose lease had ended: now unknown
	Reviewed int // unknown claims whose window was over: now before a person
	Overdue  int // leases past their end that still stand, events included

	Unknown, InReview int           // claims that wait for an answer, and for a person
	OldestUnknown     time.Duration // for how long the oldest has been unknown
}

// Retention says how long what is settled is kept. Effects and the versions of entities are kept for ever, and so is
// everything that still waits for something.
type Retention struct {
	Payloads time.Duration // of settled claims and letters
	Events   time.Duration // events that are done
	History  time.Duration // the history, and settled letters
}

// DefaultRetention holds the contract's values.
var DefaultRetention = Retention{Payloads: 30 * 24 * time.Hour, Events: 35 * 24 * time.Hour, History: 400 * 24 * time.Hour}

// RetentionReport counts what was removed.
type RetentionReport struct{ Payloads, Events, Letters, History int }

// Pause stops work in a scope: all, source.NAME, destination.NAME or workflow.ID.
type Pause struct {
	Scope        string
	AuthorizedBy string
	Reason       string
	Since        Instant
	Until        Instant // 0: until it is cleared
}

// PauseWait is how long pauses, by scope, hold a request of these scopes back: until the longest ends, at most 300
// seconds at a time, so that a caller notices when a person lets work go on.
func PauseWait(pauses map[string]Pause, scopes []string, now Instant) (wait time.Duration) {
	for _, scope := range scopes {
		pause, ok := pauses[scope]
		switch {
		case !ok || pause.Until != 0 && pause.Until <= now:
		case pause.Until == 0:
			wait = MaxPauseWaitSeconds * time.Second
		default:
			wait = max(wait, min(pause.Until.Sub(now), MaxPauseWaitSeconds*time.Second))
		}
	}
	return wait
}

// Scopes are the pauses that concern a request.
func (r *Request) Scopes(row *Claim) []string {
	source, destination := r.Key.Source, r.Place(row)
	if row != nil {
		source = row.Key.Source
	}
	scopes := []string{"all", "source." + source}
	if destination != "" {
		scopes = append(scopes, "destination."+destination)
	}
	if r.Origin.WorkflowID != "" {
		scopes = append(scopes, "workflow."+r.Origin.WorkflowID)
	}
	return scopes
}
