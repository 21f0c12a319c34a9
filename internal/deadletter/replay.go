package deadletter

import (
	"context"

	"holdfast/internal/ledger"
)

// ReplayStatus is where a replay stands.
type ReplayStatus string

// The states of a replay.
const (
	ReplaySampling  ReplayStatus = "sampling"          // its sample is being played
	ReplayAwaiting  ReplayStatus = "awaiting_approval" // the sample is settled; a person looks at it
	ReplayRunning   ReplayStatus = "running"           // approved: the rest is being played
	ReplayPaused    ReplayStatus = "paused"            // nothing of it is handed out until it is approved again
	ReplayDone      ReplayStatus = "done"
	ReplayCancelled ReplayStatus = "cancelled" // by a person; what was not played is dead
	ReplayStopped   ReplayStatus = "stopped"   // by itself: too much of it failed
)

// Open tells whether the replay still has letters to play, or waits for a person.
func (s ReplayStatus) Open() bool {
	switch s {
	case ReplaySampling, ReplayAwaiting, ReplayRunning, ReplayPaused:
		return true
	}
	return false
}

// Plays tells whether its letters are queued and handed out.
func (s ReplayStatus) Plays() bool { return s == ReplaySampling || s == ReplayRunning }

// Limits and defaults of a replay.
const (
	MaxReplayLetters      = 10_000
	DefaultSample         = 5
	DefaultReplayAtOnce   = 2
	MaxReplayAtOnce       = 100
	MaxReplayRate         = 10_000 // per minute
	ReplayLettersShown    = 1_000
	ReplayWindow          = 20 // of the newest ended attempts: a replay is judged by them
	stopFailedOfLastShare = 4  // it stops when more than a quarter of them
)

// Selector chooses letters; empty fields choose all, and at least one must be set besides Status.
type Selector struct {
	IDs         []string
	WorkflowID  string
	Source      string
	Destination string
	Class       string
	Status      Status         // dead or queued
	From, To    ledger.Instant // From <= created_at < To
}

// Empty tells whether nothing is chosen: all letters there are.
func (s *Selector) Empty() bool {
	return len(s.IDs) == 0 && s.WorkflowID == "" && s.Source == "" && s.Destination == "" && s.Class == "" && s.From == 0 && s.To == 0
}

// ReplayRequest asks for a set of letters to be run again, under a person's name.
type ReplayRequest struct {
	ID              string // of the new replay: UUIDv7
	Selector        Selector
	Limit           int64 // at most so many letters, the oldest first
	SampleSize      int64
	MaxConcurrency  int64
	RatePerMinute   int64 // 0: not limited
	AuthorizedBy    string
	Reason          string
	ExpectedEffects []byte // JSON, as given
	CallerKey       string
}

// Why a replay leaves a letter alone.
const (
	HeldUnknown    = "unknown"
	HeldSuperseded = "superseded"
	HeldCompleted  = "completed"
)

// Held counts letters that a replay leaves alone, and why.
type Held struct {
	Unknown    int64 // nobody knows how one of its effects ended
	Superseded int64 // a newer version of its entity was completed
	Completed  int64 // its event is completed
}

// Add counts a letter by why it is held; empty is not held.
func (h *Held) Add(why string) {
	switch why {
	case HeldUnknown:
		h.Unknown++
	case HeldSuperseded:
		h.Superseded++
	case HeldCompleted:
		h.Completed++
	}
}

// Total is how many are held.
func (h Held) Total() int64 { return h.Unknown + h.Superseded + h.Completed }

// Forecast is what a replay would do.
type Forecast struct {
	Matched  int64 // letters chosen, held ones included
	WouldRun int64
	Held     Held
}

// ReplayCounts are the letters of a replay by where they stand. Held ones are dead.
type ReplayCounts struct {
	Waiting   int64 // for their turn
	Queued    int64
	Replaying int64
	Resolved  int64
	Dead      int64
}

// Replay is a frozen set of letters that is run again, the sample first.
type Replay struct {
	ID              string
	Identity        string // an open replay with the same selector and limit is the same one
	Rev             int64
	Status          ReplayStatus
	PausedFrom      ReplayStatus // the state to go back to; empty unless paused
	Selector        Selector
	Limit           int64
	SampleSize      int64
	MaxConcurrency  int64
	RatePerMinute   int64
	AuthorizedBy    string
	ApprovedBy      string
	ResumedBy       string // who let the sample go on after a pause
	Reason          string
	ExpectedEffects []byte
	CallerKey       string
	Matched         int64
	Held            Held
	CreatedAt       ledger.Instant
	UpdatedAt       ledger.Instant
	EndedAt         ledger.Instant // 0 while it is open

	Counts ReplayCounts // read with it
}

// ReplayLetter is one letter of a replay.
type ReplayLetter struct {
	LetterID string
	N        int64 // its place; the sample comes first
	Sample   bool
	State    ReplayLetterState
	Held     string // why it is held: unknown, superseded or completed; empty for none
	// What the letter is now; empty where retention took it.
	Status     Status
	Reason     string
	Class      string
	Summary    string
	ClaimID    string
	WorkflowID string
}

// ReplayLetterState is what became of a letter in its replay.
type ReplayLetterState string

// The states of a letter in a replay.
const (
	MemberWaiting  ReplayLetterState = "waiting"  // for its turn
	MemberActive   ReplayLetterState = "active"   // queued or replaying
	MemberResolved ReplayLetterState = "resolved" // played, with success
	MemberFailed   ReplayLetterState = "failed"   // played, and dead again
	MemberHeld     ReplayLetterState = "held"     // not played: see Held
	MemberLeft     ReplayLetterState = "left"     // settled otherwise before its turn
	MemberReleased ReplayLetterState = "released" // not played: the replay was cancelled or stopped
)

// ReplayVerb is what a person does with a replay.
type ReplayVerb string

// The verbs.
const (
	Approve ReplayVerb = "approve"
	Pause   ReplayVerb = "pause"
	Cancel  ReplayVerb = "cancel"
)

// ReplayMove is a person's word about a replay. Reason may be empty.
type ReplayMove struct {
	Verb         ReplayVerb
	AuthorizedBy string
	Reason       string
}

// ReplayFilter selects replays; an empty status selects all.
type ReplayFilter struct {
	Status ReplayStatus
	Limit  int
	Cursor string
}

// ReplayStore keeps replays. What a letter becomes moves its replay in the same transaction.
type ReplayStore interface {
	// ForecastReplay tells what a replay would do, and changes nothing.
	ForecastReplay(ctx context.Context, r *ReplayRequest) (Forecast, error)
	// StartReplay freezes the set and queues the sample. Where an equal replay is open, that one is returned and known
	// is true.
	StartReplay(ctx context.Context, r *ReplayRequest) (rep Replay, known bool, err error)
	// MoveReplay applies a person's word. Said again it changes nothing; where it cannot be the error is a *ledger.Refusal
	// with InvalidTransition, and the replay is valid too.
	MoveReplay(ctx context.Context, id string, m *ReplayMove) (rep Replay, changed bool, err error)
	// GetReplay returns a replay and its letters, the first ReplayLettersShown of them.
	GetReplay(ctx context.Context, id string) (Replay, []ReplayLetter, error)
	// Replays returns replays, newest first; next is the cursor of the following page or empty.
	Replays(ctx context.Context, f ReplayFilter) (replays []Replay, next string, err error)
}
