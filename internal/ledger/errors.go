package ledger

import "errors"

// ErrNotFound is returned for an id, key, reference or token that names no claim.
var ErrNotFound = errors.New("no such claim")

// Refusal is a call that the rules of the ledger do not allow. Message is for the caller.
type Refusal struct {
	Code    Code
	Message string
	Claim   *Claim // where the claim stands, for the answer's details; nil when it says nothing
}

// Code names a refusal in the contract's words.
type Code string

// The refusals.
const (
	LeaseLost         Code = "lease_lost"
	LeaseLive         Code = "lease_live"
	ResultConflict    Code = "result_conflict"
	InvalidTransition Code = "invalid_transition"
	KeyReused         Code = "key_reused"
	InvalidRequest    Code = "invalid_request"
)

func (r *Refusal) Error() string { return string(r.Code) + ": " + r.Message }

// ErrUnavailable is returned when the store cannot say what happened: the caller must ask again.
var ErrUnavailable = errors.New("the database cannot be reached")

// ErrOverloaded is returned when more calls wait than the store takes.
var ErrOverloaded = errors.New("too many calls are waiting")
