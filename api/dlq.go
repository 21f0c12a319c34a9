package api

import (
	"errors"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"holdfast/internal/deadletter"
	"holdfast/internal/failure"
	"holdfast/internal/ledger"
)

// letterCore is what every answer says of a letter.
type letterCore struct {
	ID             string            `json:"id"`
	Status         deadletter.Status `json:"status"`
	Reason         *string           `json:"reason"`
	ErrorClass     failure.Class     `json:"error_class"`
	Retryable      bool              `json:"retryable"`
	Outcome        failure.Outcome   `json:"outcome"`
	AttemptCount   int64             `json:"attempt_count"`
	MaxAttempts    int64             `json:"max_attempts"`
	NextRetryAt    *ledger.Instant   `json:"next_retry_at"`
	BackoffSeconds int64             `json:"backoff_seconds"`
	Escalated      bool              `json:"escalated"`
	Summary        string            `json:"summary"`
	WorkflowID     *string           `json:"workflow_id"`
	WorkflowName   *string           `json:"workflow_name"`
	ExecutionID    *string           `json:"execution_id"`
	FailedNode     *string           `json:"failed_node"`
	HTTPStatus     *int64            `json:"http_status"`
	Source         *string           `json:"source"`
	Account        *string           `json:"account"`
	IdempotencyKey *string           `json:"idempotency_key"`
	Destination    *string           `json:"destination"`
	Play           deadletter.Play   `json:"play"`
	ProviderKey    *string           `json:"provider_key"`
	ReplayID       *string           `json:"replay_id"`
	ReplayURL      string            `json:"replay_url"`
}

// reportAnswer is what POST /dlq answers. duplicate: this failure was known, and nothing changed.
type reportAnswer struct {
	letterCore
	Duplicate bool `json:"duplicate"`
}

func (s *server) core(l *deadletter.Letter) letterCore {
	return letterCore{
		ID: l.ID, Status: l.Status, Reason: orNull(l.Reason), ErrorClass: l.Class, Retryable: l.Retryable, Outcome: l.Outcome,
		AttemptCount: l.AttemptCount, MaxAttempts: l.MaxAttempts, NextRetryAt: instantOrNull(l.NextRetryAt), BackoffSeconds: l.Backoff,
		Escalated: l.Escalated, Summary: l.Summary, WorkflowID: orNull(l.WorkflowID), WorkflowName: orNull(l.WorkflowName),
		ExecutionID: orNull(l.ExecutionID), FailedNode: orNull(l.Node), HTTPStatus: countOrNull(l.HTTPStatus), Source: orNull(l.Key.Source),
		Account: orNull(l.Key.Account), IdempotencyKey: orNull(l.Key.IdempotencyKey), Destination: orNull(l.Destination), Play: l.Play,
		ProviderKey: orNull(l.ProviderKey), ReplayID: orNull(l.ReplayID), ReplayURL: strings.TrimRight(s.PublicURL, "/") + "/console/letters/" + l.ID,
	}
}

func countOrNull(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

// reportFactor is how much larger than other bodies a failure report may be: it repeats the request that failed.
const reportFactor = 4

// report takes a failure. It must be storable whatever is in it: a report that is refused is a failure lost.
func (s *server) report(c echo.Context) error {
	body, err := s.bytes(c, reportFactor*s.MaxBody)
	if err != nil {
		return err
	}
	var rest []jsontext.Value
	if failure.Kind(body) == '[' {
		body, rest = several(body)
	}
	call := newCall(c)
	answered, err := s.takeReport(call, body)
	for _, item := range rest {
		if err == nil {
			_, err = s.takeReport(call, item)
		}
	}
	var refusal *ledger.Refusal
	if errors.As(err, &refusal) && !jsontext.Value(body).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
		return newProblem("invalid_json", "the body is not valid JSON, and no failure can be found in it")
	}
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, answered)
}

func (s *server) takeReport(c call, body []byte) (*reportAnswer, error) {
	r, err := deadletter.Read(body, s.Redact)
	if err != nil {
		return nil, err
	}
	r.CallerKey, r.Fresh = c.key.Name, deadletter.NewFresh()
	l, duplicate, err := s.Letters.Report(c, r)
	if err != nil {
		return nil, err
	}
	if !duplicate {
		s.Metrics.reported(&l)
	}
	return &reportAnswer{s.core(&l), duplicate}, nil
}

// several takes an array of reports apart. n8n sends one at a time; whoever sends more is answered with the first's
// letter, and the others are kept as well.
func several(body []byte) (first []byte, rest []jsontext.Value) {
	var items []jsontext.Value
	failure.Elements(body, func(v jsontext.Value) bool {
		if k := failure.Kind(v); k == '{' || k == '[' || k == '"' {
			items = append(items, v)
		}
		return true
	})
	if len(items) < 2 {
		return body, nil
	}
	return items[0], items[1:]
}
