package api

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// replayView is a replay as it is answered.
type replayView struct {
	ID              string                  `json:"id"`
	Status          deadletter.ReplayStatus `json:"status"`
	Matched         int64                   `json:"matched"`
	Held            heldCounts              `json:"held"`
	AuthorizedBy    string                  `json:"authorized_by"`
	ApprovedBy      *string                 `json:"approved_by"`
	Reason          string                  `json:"reason"`
	ExpectedEffects jsontext.Value          `json:"expected_effects"`
	Selector        selectorView            `json:"selector"`
	Limit           int64                   `json:"limit"`
	SampleSize      int64                   `json:"sample_size"`
	MaxConcurrency  int64                   `json:"max_concurrency"`
	RatePerMinute   *int64                  `json:"rate_per_minute"`
	Counts          replayCounts            `json:"counts"`
	CreatedAt       ledger.Instant          `json:"created_at"`
	UpdatedAt       ledger.Instant          `json:"updated_at"`
	EndedAt         *ledger.Instant         `json:"ended_at"`
}

type heldCounts struct {
	Unknown    int64 `json:"unknown"`
	Superseded int64 `json:"superseded"`
	Completed  int64 `json:"completed"`
}

type replayCounts struct {
	Waiting   int64 `json:"waiting"`
	Queued    int64 `json:"queued"`
	Replaying int64 `json:"replaying"`
	Resolved  int64 `json:"resolved"`
	Dead      int64 `json:"dead"`
}

// selectorView repeats the members that were given, and the status.
type selectorView struct {
	IDs         []string          `json:"ids,omitempty"`
	WorkflowID  string            `json:"workflow_id,omitempty"`
	Source      string            `json:"source,omitempty"`
	Destination string            `json:"destination,omitempty"`
	ErrorClass  string            `json:"error_class,omitempty"`
	Status      deadletter.Status `json:"status"`
	From        ledger.Instant    `json:"from,omitzero"`
	To          ledger.Instant    `json:"to,omitzero"`
}

func viewReplay(r *deadletter.Replay) replayView {
	sel := &r.Selector
	return replayView{
		ID: r.ID, Status: r.Status, Matched: r.Matched, Held: heldCounts(r.Held), AuthorizedBy: r.AuthorizedBy, ApprovedBy: orNull(r.ApprovedBy), Reason: r.Reason,
		ExpectedEffects: jsonOrNull(r.ExpectedEffects), Selector: selectorView{sel.IDs, sel.WorkflowID, sel.Source, sel.Destination, sel.Class, sel.Status, sel.From, sel.To},
		Limit: r.Limit, SampleSize: r.SampleSize, MaxConcurrency: r.MaxConcurrency, RatePerMinute: countOrNull(r.RatePerMinute), Counts: replayCounts(r.Counts),
		CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, EndedAt: instantOrNull(r.EndedAt),
	}
}

// replayMoved is what every POST answers. changed is false for a repetition.
type replayMoved struct {
	replayView
	Changed bool `json:"changed"`
}

type replayDetail struct {
	replayView
	Letters []replayLetter `json:"letters"`
}

// replayLetter is one letter of a replay, and how it stands now.
type replayLetter struct {
	ID         string                       `json:"id"`
	Sample     bool                         `json:"sample"`
	State      deadletter.ReplayLetterState `json:"state"`
	Held       *string                      `json:"held"`
	Status     *string                      `json:"status"`
	Reason     *string                      `json:"reason"`
	ErrorClass *string                      `json:"error_class"`
	Summary    *string                      `json:"summary"`
	WorkflowID *string                      `json:"workflow_id"`
	ClaimID    *string                      `json:"claim_id"`
}

func viewReplayLetter(l *deadletter.ReplayLetter) replayLetter {
	return replayLetter{
		ID: l.LetterID, Sample: l.Sample, State: l.State, Held: orNull(l.Held), Status: orNull(string(l.Status)), Reason: orNull(l.Reason), ErrorClass: orNull(l.Class),
		Summary: orNull(l.Summary), WorkflowID: orNull(l.WorkflowID), ClaimID: orNull(l.ClaimID),
	}
}

// replayStatuses are the states in the order in which a replay goes through them.
var replayStatuses = []deadletter.ReplayStatus{
	deadletter.ReplaySampling, deadletter.ReplayAwaiting, deadletter.ReplayRunning, deadletter.ReplayPaused,
	deadletter.ReplayDone, deadletter.ReplayCancelled, deadletter.ReplayStopped,
}

func (s *server) listReplays(c call) (*list[replayView], error) {
	f := deadletter.ReplayFilter{Status: deadletter.ReplayStatus(c.query("status")), Cursor: c.query("cursor")}
	var err error
	if f.Limit, err = limitOf(c); err != nil {
		return nil, err
	}
	switch {
	case f.Status != "" && !slices.Contains(replayStatuses, f.Status):
		return nil, badField("status", "must be one of sampling, awaiting_approval, running, paused, done, cancelled, stopped")
	case f.Cursor != "" && !isID(f.Cursor):
		return nil, badField("cursor", "is not one that this list gave")
	}
	replays, next, err := s.Letters.Replays(c, f)
	if err != nil {
		return nil, err
	}
	out := &list[replayView]{Items: make([]replayView, len(replays)), NextCursor: orNull(next)}
	for i := range replays {
		out.Items[i] = viewReplay(&replays[i])
	}
	return out, nil
}

func (s *server) getReplay(c call) (*replayDetail, error) {
	if !isID(c.param("id")) {
		return nil, ledger.ErrNotFound
	}
	rep, letters, err := s.Letters.GetReplay(c, c.param("id"))
	if err != nil {
		return nil, err
	}
	out := &replayDetail{replayView: viewReplay(&rep), Letters: make([]replayLetter, len(letters))}
	for i := range letters {
		out.Letters[i] = viewReplayLetter(&letters[i])
	}
	return out, nil
}
