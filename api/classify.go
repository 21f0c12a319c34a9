package api

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"holdfast/internal/failure"
)

type classifyAnswer struct {
	ErrorClass     failure.Class   `json:"error_class"`
	Retryable      bool            `json:"retryable"`
	Outcome        failure.Outcome `json:"outcome"`
	NextStatus     string          `json:"next_status"`
	BackoffSeconds int64           `json:"backoff_seconds"`
	Escalate       bool            `json:"escalate"`
	Summary        string          `json:"summary"`
	HTTPStatus     *int            `json:"http_status"`
}

// classify takes whatever comes: a failure that cannot be described must not be lost on top.
func (s *server) classify(c echo.Context) error {
	body, err := s.anyBody(c)
	if err != nil {
		return err
	}
	v := failure.Classify(classifyInput(body))
	out := classifyAnswer{
		ErrorClass: v.Class, Retryable: v.Retryable, Outcome: v.Outcome, NextStatus: v.NextStatus, BackoffSeconds: v.BackoffSeconds,
		Escalate: v.Escalate, Summary: v.Summary,
	}
	if v.HTTPStatus != 0 {
		out.HTTPStatus = &v.HTTPStatus
	}
	return answer(c, http.StatusOK, out)
}

// classifyInput reads the members it knows, each as far as it makes sense. A body without any of them is taken
// as the error itself.
func classifyInput(body []byte) failure.Input {
	var members map[string]jsontext.Value
	lenient := json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if json.Unmarshal(body, &members, lenient) != nil {
		return failure.Input{Error: body}
	}
	in := failure.Input{Error: members["error"], Method: asText(members["method"])}
	// An item of n8n holds more about its error beside it.
	item := members["details"] != nil || members["execution"] != nil
	if item || absent(in.Error) && members["http_status"] == nil {
		in.Error = body
	}
	if n, ok := asNumber(members["http_status"]); ok && n >= 100 && n <= 599 {
		in.HTTPStatus = int(n)
	}
	if n, ok := asNumber(members["attempt_count"]); ok && n > 0 {
		in.AttemptCount = int(min(n, 1<<30))
	}
	if n, ok := asNumber(members["retry_after"]); ok && n >= 0 {
		in.RetryAfter = &n
	}
	return in
}

func asText(v jsontext.Value) (s string) {
	if v.Kind() != '"' || json.Unmarshal(v, &s) != nil {
		return ""
	}
	return s
}

func asNumber(v jsontext.Value) (int64, bool) {
	f, err := strconv.ParseFloat(strings.TrimSpace(strings.Trim(string(v), `"`)), 64)
	if err != nil || f != f || f > 1e15 || f < -1e15 {
		return 0, false
	}
	return int64(f), true
}
