package api

import (
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/ledger"
)

// claimView is a claim as it is read; the token is never in it.
type claimView struct {
	ClaimID        string          `json:"claim_id"`
	Source         string          `json:"source"`
	Account        string          `json:"account"`
	IdempotencyKey string          `json:"idempotency_key"`
	KeyBasis       ledger.KeyBasis `json:"key_basis"`
	Step           string          `json:"step"`
	Kind           ledger.Kind     `json:"kind"`
	Status         ledger.Status   `json:"status"`
	Attempt        int64           `json:"attempt"`
	LeaseExpiresAt *ledger.Instant `json:"lease_expires_at"`
	PayloadHash    *string         `json:"payload_hash"`
	ProviderKey    string          `json:"provider_key"`
	ResultID       *string         `json:"result_id"`
	Result         jsontext.Value  `json:"result"`
	Reference      *string         `json:"reference"`
	FirstSeenAt    ledger.Instant  `json:"first_seen_at"`
	UpdatedAt      ledger.Instant  `json:"updated_at"`
	CompletedAt    *ledger.Instant `json:"completed_at"`
	UnknownSince   *ledger.Instant `json:"unknown_since"`
	WindowEndsAt   *ledger.Instant `json:"window_ends_at"`
	Owner          *string         `json:"owner"`
	WorkflowID     *string         `json:"workflow_id"`
	WorkflowName   *string         `json:"workflow_name"`
	ExecutionID    *string         `json:"execution_id"`
	Node           *string         `json:"node"`
	Entity         *string         `json:"entity"`
	Version        *string         `json:"version"`
	Destination    *string         `json:"destination"`
}

func (s *server) view(c *ledger.Claim) claimView {
	v := claimView{
		ClaimID: c.ID, Source: c.Key.Source, Account: c.Key.Account, IdempotencyKey: c.Key.IdempotencyKey, KeyBasis: c.Basis,
		Step: c.Key.Step, Kind: c.Kind, Status: c.Status, Attempt: c.Attempt, PayloadHash: hexOrNull(c.PayloadHash), ProviderKey: c.ProviderKey,
		ResultID: orNull(c.ResultID), Result: jsonOrNull(c.Result), Reference: orNull(c.Reference), FirstSeenAt: c.FirstAt, UpdatedAt: c.Last.At,
		CompletedAt: instantOrNull(c.CompletedAt), UnknownSince: instantOrNull(c.UnknownSince),
		WindowEndsAt: instantOrNull(c.WindowEnds(s.Store.PolicyFor(c.Key.Source, c.Destination))),
		Owner:        orNull(c.Origin.Owner), WorkflowID: orNull(c.Origin.WorkflowID), WorkflowName: orNull(c.Origin.WorkflowName),
		ExecutionID: orNull(c.Origin.ExecutionID), Node: orNull(c.Origin.Node), Entity: orNull(c.Entity), Version: orNull(c.Version.String()),
		Destination: orNull(c.Destination),
	}
	if c.Status == ledger.Processing {
		v.LeaseExpiresAt = instantOrNull(c.LeaseUntil)
	}
	return v
}

// list is one page; next_cursor is null on the last.
type list[T any] struct {
	Items      []T     `json:"items"`
	NextCursor *string `json:"next_cursor"`
}

type claimDetail struct {
	claimView
	Payload jsontext.Value      `json:"payload"`
	History []claimHistoryEntry `json:"history"`
}

type claimHistoryEntry struct {
	At          ledger.Instant `json:"at"`
	From        *string        `json:"from"`
	To          *string        `json:"to"`
	Attempt     int64          `json:"attempt"`
	Owner       *string        `json:"owner"`
	ExecutionID *string        `json:"execution_id"`
	HTTPStatus  *int64         `json:"http_status"`
	ErrorClass  *string        `json:"error_class"`
	Message     *string        `json:"message"`
	By          *string        `json:"by"`
	Reason      *string        `json:"reason"`
}

func historyView(e *ledger.HistoryEntry) claimHistoryEntry {
	v := claimHistoryEntry{
		At: e.At, From: orNull(string(e.From)), To: orNull(string(e.To)), Attempt: e.Attempt, Owner: orNull(e.Owner), ExecutionID: orNull(e.ExecutionID),
		ErrorClass: orNull(e.ErrorClass), Message: orNull(e.Message), By: orNull(e.By), Reason: orNull(e.Reason),
	}
	if e.HTTPStatus != 0 {
		v.HTTPStatus = &e.HTTPStatus
	}
	return v
}

func (s *server) listClaims(c call) (*list[claimView], error) {
	f := ledger.ClaimFilter{
		Status: ledger.Status(c.query("status")), Source: c.query("source"), IdempotencyKey: c.query("idempotency_key"),
		Reference: c.query("reference"), Kind: ledger.Kind(c.query("kind")), Entity: c.query("entity"), Cursor: c.query("cursor"),
	}
	if c.echo.QueryParams().Has("account") {
		account := c.query("account")
		f.Account = &account
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
		return nil, badField("status", "must be one of pending, processing, completed, failed, unknown, review, stale")
	case f.Kind != "" && f.Kind != ledger.Event && f.Kind != ledger.Effect:
		return nil, badField("kind", "must be event or effect")
	case f.Cursor != "" && !isID(f.Cursor):
		return nil, badField("cursor", "is not one that this list gave")
	}
	claims, next, err := s.Store.List(c, f)
	if err != nil {
		return nil, err
	}
	out := &list[claimView]{Items: make([]claimView, len(claims)), NextCursor: orNull(next)}
	for i := range claims {
		out.Items[i] = s.view(&claims[i])
	}
	return out, nil
}

func limitOf(c call) (int, error) {
	s := c.query("limit")
	if s == "" {
		return 50, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > 200 {
		return 0, badField("limit", "must be between 1 and 200")
	}
	return n, nil
}

func spanOf(c call) (from, to ledger.Instant, err error) {
	for name, at := range map[string]*ledger.Instant{"from": &from, "to": &to} {
		if *at, err = instantOf(name, c.query(name)); err != nil {
			return 0, 0, err
		}
	}
	return from, to, nil
}

// instantOf reads a time; 0 for none.
func instantOf(field, s string) (ledger.Instant, error) {
	if s == "" {
		return 0, nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if year := t.UTC().Year(); err != nil || year < 1 || year > 9999 {
		return 0, badField(field, "must be an RFC 3339 time")
	}
	if at := ledger.At(t); at != 0 {
		return at, nil
	}
	return 1, nil // none is 0, and nothing is that old
}

func (s *server) getClaim(c call) (*claimDetail, error) {
	if !isID(c.param("id")) {
		return nil, ledger.ErrNotFound
	}
	claim, entries, err := s.Store.Get(c, c.param("id"))
	if err != nil {
		return nil, err
	}
	out := &claimDetail{claimView: s.view(&claim), Payload: jsonOrNull(nil), History: make([]claimHistoryEntry, len(entries))}
	if c.key.Role == string(operator) {
		out.Payload = jsonOrNull(claim.Payload)
	}
	for i := range entries {
		out.History[i] = historyView(&entries[i])
	}
	return out, nil
}

type resolveRequest struct {
	Status         string `json:"status"`
	ResultID       text   `json:"result_id"`
	NewProviderKey bool   `json:"new_provider_key"`
	AuthorizedBy   string `json:"authorized_by"`
	Reason         string `json:"reason"`
}

func (s *server) resolve(c call, req *resolveRequest) (*endingAnswer, error) {
	to := ledger.Status(req.Status)
	if to != ledger.Completed && to != ledger.Failed && to != ledger.Review {
		return nil, badField("status", "must be completed, failed or review")
	}
	if err := checkPerson(req.AuthorizedBy, req.Reason); err != nil {
		return nil, err
	}
	if !isID(c.param("id")) {
		return nil, ledger.ErrNotFound
	}
	r := &ledger.Resolution{To: to, ResultID: clip(req.ResultID, maxResultID), AuthorizedBy: clip(text(req.AuthorizedBy), maxContext), Reason: clip(text(req.Reason), maxMessage)}
	if req.NewProviderKey {
		r.NewProviderKey = newProviderKey()
	}
	out, err := s.Store.Resolve(c, c.param("id"), r)
	if err != nil {
		return nil, err
	}
	return answerEnding(&out), nil
}

// checkPerson wants to know who acts and why; more is what is missing besides.
func checkPerson(by, reason string, more ...fieldError) error {
	fields := more
	if strings.TrimSpace(by) == "" {
		fields = append(fields, fieldError{"authorized_by", "is missing: who decides this"})
	}
	if strings.TrimSpace(reason) == "" {
		fields = append(fields, fieldError{"reason", "is missing: why"})
	}
	switch {
	case len(more) > 0:
		return newProblem("invalid_request", "say who decides this, why, and what should happen (authorized_by, reason, "+more[0].Field+")", fields...)
	case len(fields) > 0:
		return newProblem("invalid_request", "say who decides this and why (authorized_by, reason)", fields...)
	}
	return nil
}

type historyItem struct {
	ClaimID *string `json:"claim_id"`
	claimHistoryEntry
}

func (s *server) history(c call) (*list[historyItem], error) {
	f := ledger.HistoryFilter{ClaimID: c.query("claim_id"), By: c.query("by"), Cursor: c.query("cursor")}
	var err error
	if f.Limit, err = limitOf(c); err != nil {
		return nil, err
	}
	if f.From, f.To, err = spanOf(c); err != nil {
		return nil, err
	}
	entries, next, err := s.Store.History(c, f)
	if err != nil {
		return nil, err
	}
	out := &list[historyItem]{Items: make([]historyItem, len(entries)), NextCursor: orNull(next)}
	for i := range entries {
		out.Items[i] = historyItem{orNull(entries[i].ClaimID), historyView(&entries[i])}
	}
	return out, nil
}

type reconcileRequest struct {
	Source       string `json:"source"`
	Owner        text   `json:"owner"`
	Limit        number `json:"limit"`
	LeaseSeconds number `json:"lease_seconds"`
}

// unknownClaim is one claim to be looked up at its destination.
type unknownClaim struct {
	claimView
	Payload    jsontext.Value `json:"payload"`
	LeaseToken string         `json:"lease_token"`
}

func (s *server) reconcileLease(c call, req *reconcileRequest) ([]unknownClaim, error) {
	if err := firstError(checkName("source", req.Source), req.Limit.within("limit", 1, 100), req.LeaseSeconds.within("lease_seconds", 1, ledger.MaxLeaseSeconds)); err != nil {
		return nil, err
	}
	r := &ledger.LookRequest{Source: req.Source, Owner: clip(req.Owner, maxContext), CallerKey: c.key.Name, Limit: 25, LeaseSeconds: ledger.DefaultLookLease}
	if req.Limit.given {
		r.Limit = req.Limit.value
	}
	if req.LeaseSeconds.given {
		r.LeaseSeconds = req.LeaseSeconds.value
	}
	claims, err := s.Store.LeaseUnknown(c, r)
	if err != nil {
		return nil, err
	}
	out := make([]unknownClaim, len(claims))
	for i := range claims {
		out[i] = unknownClaim{s.view(&claims[i]), jsonOrNull(claims[i].Payload), claims[i].LookToken()}
		out[i].LeaseExpiresAt = instantOrNull(claims[i].LookUntil)
	}
	return out, nil
}
