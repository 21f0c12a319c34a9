package deadletter

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"holdfast/internal/ledger"
)

// The reasons of letters that wait for their turn in a replay, or never had it.
const (
	ReasonInReplay  = "in_replay"
	ReasonNotPlayed = "not_played"
)

// The kinds of entries that a replay makes besides requeued.
const (
	kindSelected = "selected"
	kindReleased = "released"
)

// NewReplay is a replay before its letters are chosen.
func NewReplay(r *ReplayRequest, now ledger.Instant) Replay {
	return Replay{
		ID: r.ID, Identity: r.identity(), Rev: 1, Status: ReplaySampling, Selector: r.Selector, Limit: r.Limit, SampleSize: r.SampleSize,
		MaxConcurrency: r.MaxConcurrency, RatePerMinute: r.RatePerMinute, AuthorizedBy: r.AuthorizedBy, Reason: r.Reason,
		ExpectedEffects: r.ExpectedEffects, CallerKey: r.CallerKey, CreatedAt: now, UpdatedAt: now,
	}
}

// identity is the same for an equal choice, in whatever order its ids are named.
func (r *ReplayRequest) identity() string {
	s := r.Selector
	s.IDs = slices.Compact(slices.Sorted(slices.Values(s.IDs)))
	text, _ := json.Marshal(s) // strings and numbers only
	sum := sha256.Sum256(fmt.Appendf(text, "\n%d", r.Limit))
	return hex.EncodeToString(sum[:])
}

// Choose takes a letter into the replay. One that is queued waits for its turn from now on.
func (r *Replay) Choose(l *Letter, now ledger.Instant) (Letter, Entry) {
	out := *l
	out.ReplayID = r.ID
	if l.Status == Queued {
		out.move(decision{to: Dead, reason: ReasonInReplay}, now, 0)
	}
	e := out.entry(kindSelected, now)
	e.By, e.Reason = r.AuthorizedBy, r.Reason
	return out, e
}

// Play queues a letter whose turn it is: one attempt more, due at once.
func (r *Replay) Play(l *Letter, now ledger.Instant) (Letter, Entry) {
	out := *l
	out.void(endedByPerson)
	out.requeue(now)
	e := out.entry(kindRequeued, now)
	e.By, e.Reason = r.By(), r.Reason
	return out, e
}

// By is who answers for what is played: who approved it, else who began it.
func (r *Replay) By() string {
	if r.ApprovedBy != "" {
		return r.ApprovedBy
	}
	return r.AuthorizedBy
}

// Release lets a letter go that was not played.
func (r *Replay) Release(l *Letter, why string, now ledger.Instant) (Letter, Entry) {
	out := *l
	if l.Status == Queued || l.Reason == ReasonInReplay {
		out.move(decision{to: Dead, reason: ReasonNotPlayed}, now, 0)
	}
	e := out.entry(kindReleased, now)
	e.Message = why
	out.ReplayID = ""
	return out, e
}

// After is what becomes of a letter in its replay, by what the letter is now. judged is true where an attempt of the
// replay has ended with it.
func (s ReplayLetterState) After(l *Letter) (next ReplayLetterState, judged bool) {
	switch {
	case l.Status == Resolved && (s == MemberActive || s == MemberFailed):
		return MemberResolved, true
	case l.Status == Resolved && s == MemberWaiting:
		return MemberResolved, false
	case l.Status == Dead && (s == MemberActive || s == MemberResolved):
		return MemberFailed, true
	case l.Status == Discarded && (s == MemberActive || s == MemberWaiting):
		return MemberLeft, false
	}
	return s, false
}

// Tally is how far a replay has come.
type Tally struct {
	Waiting      int64 // for their turn
	SampleWaits  int64 // of the waiting
	Active       int64 // queued or leased
	SampleActive int64 // of the active
	Settled      int64 // attempts that ended
	LastFailed   int64 // of the newest ReplayWindow of them
}

// Next says where the replay goes, and how many of its waiting letters may be queued now.
func (r *Replay) Next(t Tally) (to ReplayStatus, places int64) {
	plays := r.Status.Plays()
	free := max(0, r.MaxConcurrency-t.Active)
	switch {
	case plays && t.Settled >= ReplayWindow && t.LastFailed*stopFailedOfLastShare > ReplayWindow:
		return ReplayStopped, 0
	case (plays || r.Status == ReplayAwaiting) && t.Waiting+t.Active == 0:
		return ReplayDone, 0
	case r.Status == ReplaySampling && t.SampleWaits+t.SampleActive == 0:
		return ReplayAwaiting, 0
	case r.Status == ReplaySampling:
		return r.Status, min(free, t.SampleWaits)
	case r.Status == ReplayRunning:
		return r.Status, min(free, t.Waiting)
	}
	return r.Status, 0
}

// Enter brings the replay into a state.
func (r *Replay) Enter(to ReplayStatus, now ledger.Instant) {
	r.PausedFrom = ""
	if to == ReplayPaused {
		r.PausedFrom = r.Status
	}
	r.Status, r.UpdatedAt = to, now
	if !to.Open() {
		r.EndedAt = now
	}
}

// Move applies a person's word. changed is false where it was said before.
func (r *Replay) Move(m *ReplayMove, now ledger.Instant) (changed bool, err error) {
	to := map[ReplayVerb]ReplayStatus{Approve: ReplayRunning, Pause: ReplayPaused, Cancel: ReplayCancelled}[m.Verb]
	switch {
	case r.Status == to, m.Verb == Approve && m.AuthorizedBy != "" && m.AuthorizedBy == r.letOn():
		return false, nil
	case !r.Status.Open():
		return false, refusal(ledger.InvalidTransition, "the replay is %s: start another for the letters that are dead", r.Status)
	case m.Verb == Approve && r.Status == ReplaySampling:
		return false, refusal(ledger.InvalidTransition, "the sample is not settled yet: wait until the replay is awaiting_approval")
	case m.Verb == Approve && r.PausedFrom == ReplaySampling:
		to = ReplaySampling
	}
	r.ResumedBy = ""
	switch to {
	case ReplayRunning:
		r.ApprovedBy = m.AuthorizedBy
	case ReplaySampling:
		r.ResumedBy = m.AuthorizedBy
	}
	r.Enter(to, now)
	return true, nil
}

// letOn is whose approval has brought the replay where it is: a repeat of it changes nothing.
func (r *Replay) letOn() string {
	switch r.Status {
	case ReplaySampling:
		return r.ResumedBy
	case ReplayDone, ReplayStopped:
		return r.ApprovedBy
	}
	return ""
}

// Overtaken notes that the sample was settled while the replay was paused: whoever lets it go on approves the rest.
func (r *Replay) Overtaken(t Tally) {
	if r.PausedFrom == ReplaySampling && t.SampleWaits+t.SampleActive == 0 {
		r.PausedFrom = ReplayAwaiting
	}
}

// Played is how the letters of a replay fared.
type Played struct {
	Resolved int64 `db:"resolved"`
	Failed   int64 `db:"failed"`
	Unplayed int64 `db:"unplayed"` // waiting, or let go
}

// Alert tells people of a replay that waits for them; nil for any other.
func (r *Replay) Alert(p Played, now ledger.Instant) *Alert {
	a := &Alert{Group: "replay/" + r.ID + "/" + string(r.Status), Path: "/replays/" + r.ID, At: now}
	switch r.Status {
	case ReplayAwaiting:
		a.Title = "replay: the sample is settled, and the rest waits for approval"
		a.Text = fmt.Sprintf("%d letters were resolved, %d failed again, %d wait for their turn.\nLook at how the sample went, then approve or cancel it.", p.Resolved, p.Failed, p.Unplayed)
	case ReplayStopped:
		a.Title = "replay: stopped by itself, too much of it fails"
		a.Text = fmt.Sprintf("%d letters were resolved, %d failed again, %d were not played and stay dead.\nFind the cause, then start another.", p.Resolved, p.Failed, p.Unplayed)
	default:
		return nil
	}
	return a
}

// InReplay refuses to queue a letter that has its turn in a replay.
func InReplay(l *Letter) error {
	return refusal(ledger.InvalidTransition, "the letter waits for its turn in the replay %s: approve or cancel that one", l.ReplayID)
}

// Outside tells whether what failed now is a run that the letter's replay did not start: its claim, nil for none, has
// counted more attempts than the letter knows of.
func (l *Letter) Outside(c *ledger.Claim) bool {
	switch {
	case l.ReplayID == "" || l.Status != Dead:
		return false
	case c == nil:
		return l.Play == PlayRequest // its attempts in a replay are told by /fail, not by reports
	}
	return attempts(c) > l.AttemptCount
}
