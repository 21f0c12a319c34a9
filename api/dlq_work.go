package api

import (
	"math/rand/v2"

	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/deadletter"
	"holdfast/internal/failure"
	"holdfast/internal/ledger"
)

type letterLeaseRequest struct {
	WorkflowID   text   `json:"workflow_id"`
	Source       string `json:"source"`
	Destination  string `json:"destination"`
	Owner        text   `json:"owner"`
	Limit        number `json:"limit"`
	LeaseSeconds number `json:"lease_seconds"`
}

// leasedLetter is one letter to be run again.
type leasedLetter struct {
	letterView
	Payload    jsontext.Value `json:"payload"`
	LeaseToken string         `json:"lease_token"`
}

func (s *server) leaseLetters(c call, req *letterLeaseRequest) ([]leasedLetter, error) {
	err := firstError(
		checkWorkflow("workflow_id", req.WorkflowID), checkName("source", req.Source), checkName("destination", req.Destination),
		req.Limit.within("limit", 1, deadletter.MaxLimit), req.LeaseSeconds.within("lease_seconds", 1, ledger.MaxLeaseSeconds),
	)
	if err != nil {
		return nil, err
	}
	r := &deadletter.LeaseRequest{
		WorkflowID: string(req.WorkflowID), Source: req.Source, Destination: req.Destination, Owner: clip(req.Owner, maxContext), CallerKey: c.key.Name,
		Limit: req.Limit.or(deadletter.DefaultLimit), LeaseSeconds: req.LeaseSeconds.or(deadletter.DefaultLease),
	}
	letters, err := s.Letters.LeaseLetters(c, r)
	if err != nil {
		return nil, err
	}
	out := make([]leasedLetter, len(letters))
	for i := range letters {
		out[i] = leasedLetter{s.letterView(&letters[i]), jsonOrNull(letters[i].Payload), letters[i].LeaseToken()}
	}
	return out, nil
}

// or is the number, or another where none was given.
func (n number) or(other int64) int64 {
	if n.given {
		return n.value
	}
	return other
}

// letterEnding is what all endings of letters answer.
type letterEnding struct {
	ID             string            `json:"id"`
	Status         deadletter.Status `json:"status"`
	Reason         *string           `json:"reason"`
	Changed        bool              `json:"changed"`
	AttemptCount   int64             `json:"attempt_count"`
	NextRetryAt    *ledger.Instant   `json:"next_retry_at"`
	BackoffSeconds int64             `json:"backoff_seconds"`
}

func answerLetter(out *deadletter.Ended) letterEnding {
	l := &out.Letter
	return letterEnding{l.ID, l.Status, orNull(l.Reason), out.Changed, l.AttemptCount, instantOrNull(l.NextRetryAt), l.Backoff}
}

// letterResolveRequest is a worker's with lease_token, a person's with authorized_by and reason.
type letterResolveRequest struct {
	LeaseToken   string         `json:"lease_token"`
	Result       jsontext.Value `json:"result"`
	AuthorizedBy string         `json:"authorized_by"`
	Reason       string         `json:"reason"`
}

func (s *server) resolveLetter(c call, req *letterResolveRequest) (*letterEnding, error) {
	e := &deadletter.Ending{Verb: deadletter.Resolve, Result: keepResult(req.Result)}
	byPerson := req.LeaseToken == "" && c.key.Role == string(operator)
	if req.LeaseToken == "" && !byPerson && (req.AuthorizedBy != "" || req.Reason != "") {
		return nil, newProblem("forbidden", "resolving a letter without its lease_token is an operator's")
	}
	if !byPerson {
		if err := withLetterToken(e, c, req.LeaseToken); err != nil {
			return nil, err
		}
	} else if err := checkPerson(req.AuthorizedBy, req.Reason); err != nil {
		return nil, err
	}
	return s.endLetter(c, withPerson(e, req.AuthorizedBy, req.Reason))
}

type letterFailRequest struct {
	LeaseToken string         `json:"lease_token"`
	Error      jsontext.Value `json:"error"`
	HTTPStatus number         `json:"http_status"`
	RetryAfter number         `json:"retry_after"`
}

// letterFailed says what the error means too; without one, what the letter's last error meant.
type letterFailed struct {
	letterEnding
	ErrorClass failure.Class   `json:"error_class"`
	Retryable  bool            `json:"retryable"`
	Outcome    failure.Outcome `json:"outcome"`
}

// maxNotNow is a month: a letter may wait longer than a claim.
const maxNotNow = 30 * 86400

func (s *server) failLetter(c call, req *letterFailRequest) (*letterFailed, error) {
	e := &deadletter.Ending{Verb: deadletter.Fail, HTTPStatus: req.HTTPStatus.value}
	if !absent(req.Error) {
		e.Error = req.Error
	}
	if req.RetryAfter.given {
		e.RetryAfter = &req.RetryAfter.value
		e.NotNow = absent(req.Error) && !req.HTTPStatus.given
	}
	err := firstError(withLetterToken(e, c, req.LeaseToken), req.HTTPStatus.within("http_status", 100, 599), req.RetryAfter.within("retry_after", 0, maxNotNow))
	if err != nil {
		return nil, err
	}
	out, err := s.applyToLetter(c, e)
	if err != nil {
		return nil, err
	}
	return &letterFailed{answerLetter(&out), out.Letter.Class, out.Letter.Retryable, out.Letter.Outcome}, nil
}

type letterExtendRequest struct {
	LeaseToken   string `json:"lease_token"`
	LeaseSeconds number `json:"lease_seconds"`
}

type letterExtended struct {
	letterEnding
	LeaseExpiresAt *ledger.Instant `json:"lease_expires_at"`
}

func (s *server) extendLetter(c call, req *letterExtendRequest) (*letterExtended, error) {
	e := &deadletter.Ending{Verb: deadletter.Extend, LeaseSeconds: req.LeaseSeconds.value}
	if err := withLetterToken(e, c, req.LeaseToken); err != nil {
		return nil, err
	}
	if !req.LeaseSeconds.given {
		return nil, badField("lease_seconds", "is missing: 1 to 86400")
	}
	if err := req.LeaseSeconds.within("lease_seconds", 1, ledger.MaxLeaseSeconds); err != nil {
		return nil, err
	}
	out, err := s.applyToLetter(c, e)
	if err != nil {
		return nil, err
	}
	return &letterExtended{answerLetter(&out), instantOrNull(out.Letter.LeaseUntil)}, nil
}

// personRequest is who decides and why.
type personRequest struct {
	AuthorizedBy string `json:"authorized_by"`
	Reason       string `json:"reason"`
}

// byPerson is /requeue and /discard.
func (s *server) byPerson(verb deadletter.Verb) func(call, *personRequest) (*letterEnding, error) {
	return func(c call, req *personRequest) (*letterEnding, error) {
		if err := checkPerson(req.AuthorizedBy, req.Reason); err != nil {
			return nil, err
		}
		return s.endLetter(c, withPerson(&deadletter.Ending{Verb: verb}, req.AuthorizedBy, req.Reason))
	}
}

func withPerson(e *deadletter.Ending, by, reason string) *deadletter.Ending {
	e.AuthorizedBy, e.Reason = clip(text(by), maxContext), clip(text(reason), maxMessage)
	return e
}

func withLetterToken(e *deadletter.Ending, c call, s string) (err error) {
	if s == "" {
		return badField("lease_token", "is missing")
	}
	token, ok := deadletter.ParseToken(s)
	if !ok || token.LetterID != c.param("id") {
		return ledger.ErrNotFound
	}
	e.Token, e.ByToken = token, true
	return nil
}

func (s *server) endLetter(c call, e *deadletter.Ending) (*letterEnding, error) {
	out, err := s.applyToLetter(c, e)
	if err != nil {
		return nil, err
	}
	a := answerLetter(&out)
	return &a, nil
}

// letterStanding is where a letter stands, with a refusal.
type letterStanding struct {
	ID     string            `json:"id"`
	Status deadletter.Status `json:"status"`
	Reason *string           `json:"reason"`
}

// applyToLetter applies an ending; a refusal says where the letter stands.
func (s *server) applyToLetter(c call, e *deadletter.Ending) (deadletter.Ended, error) {
	id := c.param("id")
	if !isID(id) {
		return deadletter.Ended{}, ledger.ErrNotFound
	}
	e.CallerKey, e.Redact, e.Jitter = c.key.Name, s.Redact, rand.Float64()
	out, err := s.Letters.EndLetter(c, id, e)
	return out, refusedWith(err, letterStanding{id, out.Letter.Status, orNull(out.Letter.Reason)})
}
