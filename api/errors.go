package api

import (
	"errors"
	"net/http"
	"runtime/debug"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"holdfast/internal/identity"
	"holdfast/internal/ledger"
)

// statuses is the one table of error codes.
var statuses = map[string]int{
	"invalid_json":           http.StatusBadRequest,
	"invalid_request":        http.StatusBadRequest,
	"unauthorized":           http.StatusUnauthorized,
	"forbidden":              http.StatusForbidden,
	"not_found":              http.StatusNotFound,
	"lease_lost":             http.StatusConflict,
	"lease_live":             http.StatusConflict,
	"result_conflict":        http.StatusConflict,
	"invalid_transition":     http.StatusConflict,
	"too_large":              http.StatusRequestEntityTooLarge,
	"unsupported_media_type": http.StatusUnsupportedMediaType,
	"missing_key":            http.StatusUnprocessableEntity,
	"invalid_key":            http.StatusUnprocessableEntity,
	"key_reused":             http.StatusUnprocessableEntity,
	"looks_like_failure":     http.StatusUnprocessableEntity,
	"overloaded":             http.StatusTooManyRequests,
	"unavailable":            http.StatusServiceUnavailable,
	"internal":               http.StatusInternalServerError,
}

// problem is an error for the caller: nothing of the inside stands in it.
type problem struct {
	Status    int    `json:"status"`
	Code      string `json:"code"`
	Message   string `json:"message"`
	Details   any    `json:"details"` // fieldDetails, or where the claim, letter or replay stands
	RequestID string `json:"request_id"`
}

func (p *problem) Error() string { return p.Code + ": " + p.Message }

type fieldDetails struct {
	Fields []fieldError `json:"fields,omitempty"`
}

// standing is where the claim stands, with a refusal of the ledger.
type standing struct {
	ClaimID  string         `json:"claim_id"`
	Status   ledger.Status  `json:"status"`
	Attempt  int64          `json:"attempt"`
	ResultID *string        `json:"result_id"`
	Result   jsontext.Value `json:"result"`
}

type fieldError struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

func newProblem(code, message string, fields ...fieldError) *problem {
	return &problem{Status: statuses[code], Code: code, Message: message, Details: fieldDetails{fields}}
}

// badField refuses one member by name.
func badField(field, message string) *problem {
	return newProblem("invalid_request", field+": "+message, fieldError{field, message})
}

// problemOf turns any error into one for the caller. What nobody foresaw becomes a fixed text.
func problemOf(err error) *problem {
	var p *problem
	var refusal *ledger.Refusal
	var key *identity.Error
	var echoErr *echo.HTTPError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &refusal):
		p := newProblem(string(refusal.Code), refusal.Message)
		if c := refusal.Claim; c != nil {
			p.Details = standing{c.ID, c.Status, c.Attempt, orNull(c.ResultID), jsonOrNull(c.Result)}
		}
		return p
	case errors.As(err, &key):
		return newProblem(key.Code, key.Message, fieldError{"idempotency_key", key.Message})
	case errors.Is(err, ledger.ErrNotFound):
		return newProblem("not_found", "there is no such claim, letter or replay, or the lease_token was never issued")
	case errors.Is(err, ledger.ErrOverloaded):
		return newProblem("overloaded", "too many calls are waiting: try again shortly")
	case errors.Is(err, ledger.ErrUnavailable):
		return newProblem("unavailable", "the database cannot be reached or did not confirm: nothing is acknowledged, ask again")
	case errors.As(err, &echoErr) && (echoErr.Code == http.StatusNotFound || echoErr.Code == http.StatusMethodNotAllowed):
		return newProblem("not_found", "no such route: see /openapi.yaml")
	}
	return newProblem("internal", "something went wrong inside; the log has the request_id")
}

// refusedWith tells with a refusal where that stands which it is about.
func refusedWith(err error, standing any) error {
	var refusal *ledger.Refusal
	if !errors.As(err, &refusal) || refusal.Code == ledger.InvalidRequest {
		return err
	}
	p := problemOf(err)
	p.Details = standing
	return p
}

// answerError is the only place that writes an error.
func (s *server) answerError(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	p := *problemOf(err)
	p.RequestID, _ = c.Get(requestID).(string)
	if p.Status >= http.StatusInternalServerError {
		s.Log.Error("request failed", "request_id", p.RequestID, "route", c.Path(), "code", p.Code, "cause", err)
	}
	switch p.Code {
	case "unavailable", "overloaded":
		c.Response().Header().Set("Retry-After", strconv.Itoa(retryAfterSeconds))
	case "unauthorized":
		c.Response().Header().Set("WWW-Authenticate", "Bearer")
	}
	if err := answer(c, p.Status, &p); err != nil {
		s.Log.Error("the answer was not written", "request_id", p.RequestID, "cause", err)
		if !c.Response().Committed {
			_ = c.JSONBlob(http.StatusInternalServerError, []byte(`{"status":500,"code":"internal","message":"something went wrong inside","details":{},"request_id":"`+p.RequestID+`"}`))
		}
	}
}

// retryAfterSeconds is what a caller is told to wait when the database is away.
const retryAfterSeconds = 2

// recover keeps one broken request from ending the process.
func (s *server) recover(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			if r := recover(); r != nil {
				s.Log.Error("panic", "route", c.Path(), "value", r, "stack", string(debug.Stack()))
				err = newProblem("internal", "something went wrong inside; the log has the request_id")
			}
		}()
		return next(c)
	}
}
