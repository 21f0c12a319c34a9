package api

import (
	"cmp"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/deadletter"
	"holdfast/internal/failure"
	"holdfast/internal/ledger"
)

// letterView is a letter as it is read; the token is never in it.
type letterView struct {
	letterCore
	CreatedAt      ledger.Instant        `json:"created_at"`
	UpdatedAt      ledger.Instant        `json:"updated_at"`
	ClaimID        *string               `json:"claim_id"`
	Message        *string               `json:"message"`
	Method         *string               `json:"method"`
	URL            *string               `json:"url"`
	Input          deadletter.InputState `json:"input"`
	Reports        int64                 `json:"reports"`
	LeaseExpiresAt *ledger.Instant       `json:"lease_expires_at"`
}

func (s *server) letterView(l *deadletter.Letter) letterView {
	v := letterView{
		letterCore: s.core(l), CreatedAt: l.CreatedAt, UpdatedAt: l.UpdatedAt, ClaimID: orNull(l.ClaimID),
		Message: orNull(l.Message), Method: orNull(l.Method), URL: orNull(l.URL), Input: l.InputState, Reports: l.Reports,
	}
	if l.Status == deadletter.Replaying {
		v.LeaseExpiresAt = instantOrNull(l.LeaseUntil)
	}
	return v
}

type letterDetail struct {
	letterView
	Payload  jsontext.Value  `json:"payload"`
	Attempts []letterAttempt `json:"attempts"`
}

// letterAttempt is one thing that happened to a letter: a report, an attempt, or an act of a person.
type letterAttempt struct {
	At          ledger.Instant `json:"at"`
	Kind        string         `json:"kind"`
	Status      *string        `json:"status"`
	Attempt     int64          `json:"attempt"`
	ExecutionID *string        `json:"execution_id"`
	WorkflowID  *string        `json:"workflow_id"`
	FailedNode  *string        `json:"failed_node"`
	HTTPStatus  *int64         `json:"http_status"`
	ErrorClass  *string        `json:"error_class"`
	Message     *string        `json:"message"`
	Owner       *string        `json:"owner"`
	By          *string        `json:"by"`
	Reason      *string        `json:"reason"`
	ReplayID    *string        `json:"replay_id"`
}

func attemptView(e *deadletter.Entry) letterAttempt {
	return letterAttempt{
		At: e.At, Kind: e.Kind, Status: orNull(string(e.To)), Attempt: e.Attempt, ExecutionID: orNull(e.ExecutionID), WorkflowID: orNull(e.WorkflowID),
		FailedNode: orNull(e.Node), HTTPStatus: countOrNull(e.HTTPStatus), ErrorClass: orNull(e.Class), Message: orNull(e.Message), Owner: orNull(e.Owner),
		By: orNull(e.By), Reason: orNull(e.Reason), ReplayID: orNull(e.ReplayID),
	}
}

// classes are the words of error_class.
var classes = []failure.Class{
	failure.Auth, failure.RateLimited, failure.Conflict, failure.Transient, failure.Validation, failure.Workflow, failure.Unclassified,
}

func (s *server) listLetters(c call) (*list[letterView], error) {
	f := deadletter.Filter{
		Status: deadletter.Status(c.query("status")), WorkflowID: c.query("workflow_id"), Source: c.query("source"),
		Destination: c.query("destination"), Class: c.query("error_class"), Cursor: c.query("cursor"),
	}
	var err error
	if f.Limit, err = limitOf(c); err != nil {
		return nil, err
	}
	if f.From, f.To, err = spanOf(c); err != nil {
		return nil, err
	}
	switch {
	case f.Status != "" && !f.Status.Valid():
		return nil, badField("status", "must be one of queued, replaying, resolved, dead, discarded")
	case f.Class != "" && !slices.Contains(classes, failure.Class(f.Class)):
		return nil, badField("error_class", "must be one of auth, rate_limited, conflict, transient, validation, workflow, unclassified")
	case f.Cursor != "" && !isID(f.Cursor):
		return nil, badField("cursor", "is not one that this list gave")
	}
	if err := firstError(checkWorkflow("workflow_id", text(f.WorkflowID)), checkName("source", f.Source), checkName("destination", f.Destination)); err != nil {
		return nil, err
	}
	letters, next, err := s.Letters.Letters(c, f)
	if err != nil {
		return nil, err
	}
	out := &list[letterView]{Items: make([]letterView, len(letters)), NextCursor: orNull(next)}
	for i := range letters {
		out.Items[i] = s.letterView(&letters[i])
	}
	return out, nil
}

func (s *server) getLetter(c call) (*letterDetail, error) {
	if !isID(c.param("id")) {
		return nil, ledger.ErrNotFound
	}
	l, entries, err := s.Letters.GetLetter(c, c.param("id"))
	if err != nil {
		return nil, err
	}
	out := &letterDetail{letterView: s.letterView(&l), Payload: jsonOrNull(nil), Attempts: make([]letterAttempt, len(entries))}
	if c.key.Role == string(operator) {
		out.Payload = jsonOrNull(l.Payload)
	}
	for i := range entries {
		out.Attempts[i] = attemptView(&entries[i])
	}
	return out, nil
}

// letterStats has the workflows in an array: an id is no good as the name of a member, which n8n drops where it
// means something to JavaScript.
type letterStats struct {
	ByStatus      map[deadletter.Status]int64 `json:"by_status"`
	ByClass       map[failure.Class]int64     `json:"by_class"`
	ByWorkflow    []workflowCount             `json:"by_workflow"`
	Due           int64                       `json:"due"`
	OldestDueAt   *ledger.Instant             `json:"oldest_due_at"`
	OldestDeadAt  *ledger.Instant             `json:"oldest_dead_at"`
	InputsMissing int64                       `json:"inputs_missing"`
}

type workflowCount struct {
	WorkflowID *string `json:"workflow_id"`
	Letters    int64   `json:"letters"`
}

// letterStatuses are the states in the order in which people read them.
var letterStatuses = []deadletter.Status{deadletter.Queued, deadletter.Replaying, deadletter.Resolved, deadletter.Dead, deadletter.Discarded}

func (s *server) letterStats(c call) (*letterStats, error) {
	stats, err := s.Letters.LetterStats(c)
	if err != nil {
		return nil, err
	}
	out := &letterStats{
		ByStatus: make(map[deadletter.Status]int64, len(letterStatuses)), ByClass: make(map[failure.Class]int64, len(classes)),
		ByWorkflow: make([]workflowCount, 0, len(stats.ByWorkflow)), Due: stats.Due, OldestDueAt: instantOrNull(stats.OldestDueAt),
		OldestDeadAt: instantOrNull(stats.OldestDeadAt), InputsMissing: stats.InputsMissing,
	}
	for _, status := range letterStatuses {
		out.ByStatus[status] = stats.ByStatus[status]
	}
	for _, class := range classes {
		out.ByClass[class] = stats.ByClass[string(class)]
	}
	for id, n := range stats.ByWorkflow {
		out.ByWorkflow = append(out.ByWorkflow, workflowCount{orNull(id), n})
	}
	slices.SortFunc(out.ByWorkflow, func(a, b workflowCount) int {
		return cmp.Or(cmp.Compare(b.Letters, a.Letters), cmp.Compare(orEmpty(a.WorkflowID), orEmpty(b.WorkflowID)))
	})
	return out, nil
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
