package api

import (
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/deadletter"
	"holdfast/internal/failure"
	"holdfast/internal/ledger"
)

// replayRequest is the body of POST /replays. With dry_run nobody needs to answer for it.
type replayRequest struct {
	AuthorizedBy    string         `json:"authorized_by"`
	Reason          string         `json:"reason"`
	ExpectedEffects jsontext.Value `json:"expected_effects"`
	Selector        selectorMember `json:"selector"`
	Limit           number         `json:"limit"`
	SampleSize      number         `json:"sample_size"`
	MaxConcurrency  number         `json:"max_concurrency"`
	RatePerMinute   number         `json:"rate_per_minute"`
	DryRun          bool           `json:"dry_run"`
}

// selectorMember chooses letters. Empty text is absent; an empty array is not, for it would choose all letters where
// it means none.
type selectorMember struct {
	IDs         []text `json:"ids"`
	WorkflowID  text   `json:"workflow_id"`
	Source      string `json:"source"`
	Destination string `json:"destination"`
	ErrorClass  string `json:"error_class"`
	Status      string `json:"status"`
	From        string `json:"from"`
	To          string `json:"to"`
}

// maxExpected is how long expected_effects may be: it stands in every answer about its replay.
const maxExpected = 64 << 10

// forecast is the answer to dry_run.
type forecast struct {
	Matched  int64      `json:"matched"`
	WouldRun int64      `json:"would_run"`
	Held     heldCounts `json:"held"`
}

func (s *server) startReplay(c call, req *replayRequest) (any, error) {
	r, err := req.parse(c.key)
	if err != nil {
		return nil, err
	}
	if req.DryRun {
		f, err := s.Letters.ForecastReplay(c, r)
		if err != nil {
			return nil, err
		}
		return &forecast{f.Matched, f.WouldRun, heldCounts(f.Held)}, nil
	}
	rep, known, err := s.Letters.StartReplay(c, r)
	if err != nil {
		return nil, err
	}
	return &replayMoved{viewReplay(&rep), !known}, nil
}

func (r *replayRequest) parse(key Key) (*deadletter.ReplayRequest, error) {
	selector, err := r.Selector.parse()
	if err != nil {
		return nil, err
	}
	if !r.Limit.given {
		return nil, badField("limit", "is missing: how many letters at most, 1 to "+strconv.Itoa(deadletter.MaxReplayLetters))
	}
	err = firstError(
		r.Limit.within("limit", 1, deadletter.MaxReplayLetters), r.SampleSize.within("sample_size", 0, deadletter.MaxReplayLetters),
		r.MaxConcurrency.within("max_concurrency", 1, deadletter.MaxReplayAtOnce), r.RatePerMinute.within("rate_per_minute", 1, deadletter.MaxReplayRate),
		r.checkWord(),
	)
	if err != nil {
		return nil, err
	}
	return &deadletter.ReplayRequest{
		ID: newID(), Selector: selector, Limit: r.Limit.value, SampleSize: min(r.SampleSize.or(deadletter.DefaultSample), r.Limit.value),
		MaxConcurrency: r.MaxConcurrency.or(deadletter.DefaultReplayAtOnce), RatePerMinute: r.RatePerMinute.value,
		AuthorizedBy: clip(text(r.AuthorizedBy), maxContext), Reason: clip(text(r.Reason), maxMessage), ExpectedEffects: r.ExpectedEffects, CallerKey: key.Name,
	}, nil
}

// checkWord wants to know who starts this, why, and what they expect of it.
func (r *replayRequest) checkWord() error {
	var missing []fieldError
	switch {
	case r.DryRun:
		return nil
	case len(r.ExpectedEffects) > maxExpected:
		return badField("expected_effects", "must be at most "+strconv.Itoa(maxExpected)+" bytes")
	case absent(r.ExpectedEffects):
		missing = append(missing, fieldError{"expected_effects", "is missing: what should happen at the destinations, in any JSON"})
	}
	return checkPerson(r.AuthorizedBy, r.Reason, missing...)
}

func (m *selectorMember) parse() (out deadletter.Selector, err error) {
	out = deadletter.Selector{
		WorkflowID: string(m.WorkflowID), Source: m.Source, Destination: m.Destination, Class: m.ErrorClass, Status: deadletter.Status(m.Status),
	}
	if out.Status == "" {
		out.Status = deadletter.Dead
	}
	for _, id := range m.IDs {
		out.IDs = append(out.IDs, string(id))
	}
	if out.From, err = instantOf("selector.from", m.From); err != nil {
		return out, err
	}
	if out.To, err = instantOf("selector.to", m.To); err != nil {
		return out, err
	}
	switch {
	case out.Status != deadletter.Dead && out.Status != deadletter.Queued:
		return out, badField("selector.status", "must be dead or queued")
	case m.IDs != nil && (len(m.IDs) == 0 || len(m.IDs) > deadletter.MaxReplayLetters):
		return out, badField("selector.ids", "must be 1 to "+strconv.Itoa(deadletter.MaxReplayLetters)+" ids of letters, or be left out")
	case slices.ContainsFunc(out.IDs, func(id string) bool { return !isID(id) }):
		return out, badField("selector.ids", "must hold ids of letters (UUIDs) only")
	case m.ErrorClass != "" && !slices.Contains(classes, failure.Class(m.ErrorClass)):
		return out, badField("selector.error_class", "must be one of auth, rate_limited, conflict, transient, validation, workflow, unclassified")
	case out.Empty():
		return out, badField("selector", "must choose letters by at least one of ids, workflow_id, source, destination, error_class, from, to")
	}
	return out, firstError(checkWorkflow("selector.workflow_id", m.WorkflowID), checkName("selector.source", m.Source), checkName("selector.destination", m.Destination))
}

// moveRequest is a person's word about a replay.
type moveRequest struct {
	AuthorizedBy string `json:"authorized_by"`
	Reason       string `json:"reason"`
}

// replayStanding is where a replay stands, with a refusal.
type replayStanding struct {
	ID     string                  `json:"id"`
	Status deadletter.ReplayStatus `json:"status"`
}

// moveReplay is /approve, /pause and /cancel. Who approves must say who they are; holding back is never refused for that.
func (s *server) moveReplay(verb deadletter.ReplayVerb) func(call, *moveRequest) (*replayMoved, error) {
	return func(c call, req *moveRequest) (*replayMoved, error) {
		id, by := c.param("id"), req.AuthorizedBy
		if strings.TrimSpace(by) == "" {
			if verb == deadletter.Approve {
				return nil, badField("authorized_by", "is missing: who approves this")
			}
			by = c.key.Name
		}
		if !isID(id) {
			return nil, ledger.ErrNotFound
		}
		rep, changed, err := s.Letters.MoveReplay(c, id, &deadletter.ReplayMove{Verb: verb, AuthorizedBy: clip(text(by), maxContext), Reason: clip(text(req.Reason), maxMessage)})
		if err != nil {
			return nil, refusedWith(err, replayStanding{id, rep.Status})
		}
		return &replayMoved{viewReplay(&rep), changed}, nil
	}
}
