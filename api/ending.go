package api

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/failure"
	"holdfast/internal/identity"
	"holdfast/internal/ledger"
)

// completeRequest is the body of POST /complete: a lease_token, or source with idempotency_key or reference.
type completeRequest struct {
	LeaseToken     string         `json:"lease_token"`
	Source         string         `json:"source"`
	Account        text           `json:"account"`
	IdempotencyKey jsontext.Value `json:"idempotency_key"`
	Step           string         `json:"step"`
	Reference      text           `json:"reference"`
	ResultID       text           `json:"result_id"`
	Result         jsontext.Value `json:"result"`
	HTTPStatus     number         `json:"http_status"`
	Force          bool           `json:"force"`
}

type markUnknownRequest struct {
	LeaseToken string         `json:"lease_token"`
	Error      jsontext.Value `json:"error"`
	HTTPStatus number         `json:"http_status"`
	Reference  text           `json:"reference"`
}

type markFailedRequest struct {
	LeaseToken string         `json:"lease_token"`
	Outcome    string         `json:"outcome"`
	Tries      number         `json:"tries"`
	Error      jsontext.Value `json:"error"`
	HTTPStatus number         `json:"http_status"`
	RetryAfter number         `json:"retry_after"`
}

type extendRequest struct {
	LeaseToken   string `json:"lease_token"`
	LeaseSeconds number `json:"lease_seconds"`
	Reference    text   `json:"reference"`
}

// endingAnswer is what all endings answer.
type endingAnswer struct {
	ClaimID        string          `json:"claim_id"`
	Source         string          `json:"source"`
	Account        string          `json:"account"`
	IdempotencyKey string          `json:"idempotency_key"`
	Step           string          `json:"step"`
	Status         ledger.Status   `json:"status"`
	Changed        bool            `json:"changed"`
	Attempt        int64           `json:"attempt"`
	ResultID       *string         `json:"result_id"`
	Result         jsontext.Value  `json:"result"`
	CompletedAt    *ledger.Instant `json:"completed_at"`
}

type failedAnswer struct {
	endingAnswer
	ErrorClass     failure.Class   `json:"error_class"`
	Retryable      bool            `json:"retryable"`
	Outcome        failure.Outcome `json:"outcome"`
	BackoffSeconds int64           `json:"backoff_seconds"`
}

type extendAnswer struct {
	endingAnswer
	LeaseExpiresAt *ledger.Instant `json:"lease_expires_at"`
}

func (s *server) complete(c call, req *completeRequest) (*endingAnswer, error) {
	e := &ledger.Ending{
		Verb: ledger.Complete, CallerKey: c.key.Name, HTTPStatus: req.HTTPStatus.value,
		ResultID: clip(req.ResultID, maxResultID), Result: keepResult(req.Result),
	}
	if err := req.address(e); err != nil {
		return nil, err
	}
	if err := req.HTTPStatus.within("http_status", 100, 599); err != nil {
		return nil, err
	}
	if !req.Force && (req.HTTPStatus.value >= 400 || looksFailed(req.Result)) {
		return nil, newProblem("looks_like_failure", "this result looks like a failure (http_status of 400 or more, or an error member): send /mark-failed or /mark-unknown, or force:true if it is a receipt")
	}
	out, err := s.end(c, e)
	if err != nil {
		return nil, err
	}
	return answerEnding(&out), nil
}

// address finds what the receipt is for.
func (r *completeRequest) address(e *ledger.Ending) error {
	// A null key is none where something else names the claim, and a missing one where nothing does.
	byReference := r.Reference != ""
	byKey := !absent(r.IdempotencyKey) || r.IdempotencyKey != nil && r.LeaseToken == "" && !byReference
	switch {
	case r.LeaseToken != "" && (byKey || byReference || r.Source != ""):
		return badField("lease_token", "names the claim by itself: leave out source, idempotency_key and reference")
	case r.LeaseToken != "":
		return withToken(e, r.LeaseToken)
	case r.Source == "":
		return badField("lease_token", "is missing: send lease_token, or source with idempotency_key or reference")
	case byKey == byReference:
		return badField("idempotency_key", "send source with either idempotency_key or reference")
	}
	e.Key = ledger.Key{Source: r.Source, Account: string(r.Account), Step: r.Step}
	if byReference {
		e.RefKey = string(r.Reference)
		return firstError(checkName("source", r.Source), checkText("reference", r.Reference))
	}
	key, err := storedKey(r.IdempotencyKey)
	e.Key.IdempotencyKey = key
	return firstError(err, checkName("source", r.Source), checkName("step", r.Step), checkText("account", r.Account))
}

// storedKey reads the key of a claim that may have been found by a profile: such keys need not pass the rules
// for keys that people write.
func storedKey(raw jsontext.Value) (string, error) {
	key, err := identity.KeyFromValue(raw)
	var wrong *identity.Error
	if !errors.As(err, &wrong) || wrong.Code != identity.CodeInvalidKey || raw.Kind() != '"' {
		return key, err
	}
	if json.Unmarshal(raw, &key) != nil || identity.CheckDerivedKey(key) != nil {
		return "", err
	}
	return key, nil
}

func withToken(e *ledger.Ending, s string) (err error) {
	if s == "" {
		return badField("lease_token", "is missing")
	}
	token, ok := ledger.ParseToken(s)
	if !ok {
		return ledger.ErrNotFound
	}
	e.Token, e.ByToken = token, true
	return nil
}

func (s *server) markUnknown(c call, req *markUnknownRequest) (*endingAnswer, error) {
	e := &ledger.Ending{Verb: ledger.MarkUnknown, CallerKey: c.key.Name, HTTPStatus: req.HTTPStatus.value, Reference: string(req.Reference)}
	if err := firstError(withToken(e, req.LeaseToken), req.HTTPStatus.within("http_status", 100, 599), checkText("reference", req.Reference)); err != nil {
		return nil, err
	}
	s.describe(e, failure.Input{Error: req.Error, HTTPStatus: int(req.HTTPStatus.value)})
	out, err := s.end(c, e)
	if err != nil {
		return nil, err
	}
	return answerEnding(&out), nil
}

func (s *server) markFailed(c call, req *markFailedRequest) (*failedAnswer, error) {
	e := &ledger.Ending{
		Verb: ledger.MarkFailed, CallerKey: c.key.Name, HTTPStatus: req.HTTPStatus.value, Tries: req.Tries.value,
		NotExecuted: req.Outcome != "", RetryAfter: req.RetryAfter.value,
		NotNow: req.RetryAfter.given && req.Outcome == "" && !req.Tries.given && absent(req.Error) && !req.HTTPStatus.given,
	}
	if err := firstError(withToken(e, req.LeaseToken), req.check()); err != nil {
		return nil, err
	}
	in := failure.Input{Error: req.Error, HTTPStatus: int(req.HTTPStatus.value)}
	if req.RetryAfter.given {
		in.RetryAfter = &req.RetryAfter.value
	}
	v := s.describe(e, in)
	e.ClassNotExecuted = v.Outcome == failure.NotExecuted
	out, err := s.end(c, e)
	if err != nil {
		return nil, err
	}
	a := &failedAnswer{
		endingAnswer: *answerEnding(&out), ErrorClass: v.Class, Retryable: v.Retryable, Outcome: v.Outcome,
		BackoffSeconds: failure.Backoff(int(max(1, out.Claim.Attempt)), in.RetryAfter),
	}
	if e.NotExecuted {
		a.Outcome = failure.NotExecuted
	}
	return a, nil
}

func (r *markFailedRequest) check() error {
	if r.Outcome != "" && r.Outcome != string(failure.NotExecuted) {
		return badField("outcome", "can only be not_executed; leave it out where that is not known, or send /mark-unknown")
	}
	return firstError(r.Tries.within("tries", 1, 1000), r.HTTPStatus.within("http_status", 100, 599), r.RetryAfter.within("retry_after", 0, maxRetryAfter))
}

// maxRetryAfter is a week: nobody means more.
const maxRetryAfter = 7 * 86400

// describe puts the error's class and a safe text into the ending.
func (s *server) describe(e *ledger.Ending, in failure.Input) failure.Verdict {
	in.Redact = s.Redact
	v := failure.Classify(in)
	if absent(in.Error) && in.HTTPStatus == 0 {
		return v
	}
	e.ErrorClass = string(v.Class)
	if e.Message = failure.Text(in.Error, maxMessage, s.Redact...); e.Message == "" {
		e.Message = v.Summary
	}
	if e.HTTPStatus == 0 {
		e.HTTPStatus = int64(v.HTTPStatus)
	}
	return v
}

// maxMessage is how much of an error's text is kept, in bytes.
const maxMessage = 4096

func (s *server) extend(c call, req *extendRequest) (*extendAnswer, error) {
	e := &ledger.Ending{Verb: ledger.Extend, CallerKey: c.key.Name, LeaseSeconds: req.LeaseSeconds.value, Reference: string(req.Reference)}
	if err := withToken(e, req.LeaseToken); err != nil {
		return nil, err
	}
	if !req.LeaseSeconds.given {
		return nil, badField("lease_seconds", "is missing: 1 to 86400")
	}
	if err := firstError(req.LeaseSeconds.within("lease_seconds", 1, ledger.MaxLeaseSeconds), checkText("reference", req.Reference)); err != nil {
		return nil, err
	}
	out, err := s.end(c, e)
	if err != nil {
		return nil, err
	}
	a := &extendAnswer{endingAnswer: *answerEnding(&out), LeaseExpiresAt: instantOrNull(out.Claim.LeaseUntil)}
	if out.Claim.Status == ledger.Unknown {
		a.LeaseExpiresAt = instantOrNull(out.Claim.LookUntil)
	}
	return a, nil
}

// end applies an ending and says aloud what a person should know.
func (s *server) end(c call, e *ledger.Ending) (ledger.Ended, error) {
	out, err := s.Store.End(c, e)
	if out.Alert != "" {
		s.Log.Warn(out.Alert, "claim_id", out.Claim.ID, "source", out.Claim.Key.Source, "step", out.Claim.Key.Step, "key", c.key.Name)
	}
	return out, err
}

func answerEnding(out *ledger.Ended) *endingAnswer {
	c := &out.Claim
	return &endingAnswer{
		ClaimID: c.ID, Source: c.Key.Source, Account: c.Key.Account, IdempotencyKey: c.Key.IdempotencyKey, Step: c.Key.Step,
		Status: c.Status, Changed: out.Changed, Attempt: c.Attempt, ResultID: orNull(c.ResultID), Result: jsonOrNull(c.Result),
		CompletedAt: instantOrNull(c.CompletedAt),
	}
}

// keepResult keeps a receipt's JSON, however large: beyond the limit it is cut and marked.
func keepResult(raw jsontext.Value) []byte {
	raw = bytes.TrimSpace(raw)
	if absent(raw) {
		return nil
	}
	if len(raw) <= ledger.MaxResultBytes {
		return raw
	}
	// Quoting at most doubles JSON, which holds no raw control characters; the rest is for the frame.
	head := strings.ToValidUTF8(string(raw[:ledger.MaxResultBytes/2-128]), "")
	quoted, err := jsontext.AppendQuote(nil, head)
	if err != nil {
		quoted = []byte(`""`)
	}
	return fmt.Appendf(nil, `{"truncated":true,"bytes":%d,"head":%s}`, len(raw), quoted)
}

// looksFailed tells whether a result has an error that is neither null, false nor empty.
func looksFailed(raw jsontext.Value) bool {
	if raw.Kind() != '{' {
		return false
	}
	var result struct {
		Error jsontext.Value `json:"error"`
	}
	if json.Unmarshal(raw, &result, jsontext.AllowInvalidUTF8(true)) != nil {
		return false
	}
	if result.Error == nil || result.Error.Compact() != nil {
		return false
	}
	switch string(result.Error) {
	case "null", "false", `""`, "{}", "[]":
		return false
	}
	return true
}
