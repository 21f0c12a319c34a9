package api

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"holdfast/internal/identity"
	"holdfast/internal/inbox"
	"holdfast/internal/ledger"
)

// claimRequest is the body of POST /claim.
type claimRequest struct {
	Source         string         `json:"source"`
	Account        text           `json:"account"`
	Step           string         `json:"step"`
	Kind           string         `json:"kind"`
	IdempotencyKey jsontext.Value `json:"idempotency_key"`
	KeyTemplate    string         `json:"key_template"`
	ClaimID        string         `json:"claim_id"`
	Payload        jsontext.Value `json:"payload"`
	Headers        jsontext.Value `json:"headers"`
	Owner          text           `json:"owner"`
	LeaseSeconds   number         `json:"lease_seconds"`
	WorkflowID     text           `json:"workflow_id"`
	WorkflowName   text           `json:"workflow_name"`
	ExecutionID    text           `json:"execution_id"`
	Node           text           `json:"node"`
	Entity         text           `json:"entity"`
	Version        text           `json:"version"`
	Destination    string         `json:"destination"`
}

// claimAnswer is what POST /claim answers.
type claimAnswer struct {
	Decision       ledger.Decision `json:"decision"`
	Claimed        bool            `json:"claimed"`
	ClaimID        string          `json:"claim_id"`
	Source         string          `json:"source"`
	Account        string          `json:"account"`
	IdempotencyKey string          `json:"idempotency_key"`
	KeyBasis       ledger.KeyBasis `json:"key_basis"`
	Step           string          `json:"step"`
	Kind           ledger.Kind     `json:"kind"`
	Status         ledger.Status   `json:"status"`
	Attempt        int64           `json:"attempt"`
	Reentrant      bool            `json:"reentrant"`
	LeaseToken     *string         `json:"lease_token"`
	LeaseExpiresAt *ledger.Instant `json:"lease_expires_at"`
	RetryAfter     int64           `json:"retry_after_seconds"`
	PayloadHash    *string         `json:"payload_hash"`
	PayloadMatches *bool           `json:"payload_matches"`
	ProviderKey    string          `json:"provider_key"`
	ResultID       *string         `json:"result_id"`
	Result         jsontext.Value  `json:"result"`
	Reference      *string         `json:"reference"`
	FirstSeenAt    ledger.Instant  `json:"first_seen_at"`
}

func (s *server) claim(c call, req *claimRequest) (*claimAnswer, error) {
	r, err := s.parseClaim(req, c.key)
	if err != nil {
		return nil, err
	}
	v, err := s.Store.Claim(c, r)
	if err == nil && v.LookDue && s.Touch != nil && s.Touch(c, &v.Claim) {
		v, err = s.Store.Claim(c, r)
	}
	if err != nil {
		return nil, err
	}
	s.Metrics.decided(v.Decision)
	a := answerClaim(&v)
	if r.ClaimID == "" {
		a.KeyBasis = r.Basis // how this call found the key; the row keeps how it was found first
	}
	return a, nil
}

func answerClaim(v *ledger.Verdict) *claimAnswer {
	c := &v.Claim
	a := &claimAnswer{
		Decision: v.Decision, Claimed: v.Decision == ledger.Proceed, ClaimID: c.ID, Source: c.Key.Source, Account: c.Key.Account,
		IdempotencyKey: c.Key.IdempotencyKey, KeyBasis: c.Basis, Step: c.Key.Step, Kind: c.Kind, Status: c.Status, Attempt: c.Attempt,
		Reentrant: v.Reentrant, RetryAfter: v.RetryAfter, PayloadHash: hexOrNull(c.PayloadHash), PayloadMatches: v.PayloadMatches,
		ProviderKey: c.ProviderKey, ResultID: orNull(c.ResultID), Result: jsonOrNull(c.Result), Reference: orNull(c.Reference),
		FirstSeenAt: c.FirstAt,
	}
	if c.Status == ledger.Processing {
		a.LeaseExpiresAt = instantOrNull(c.LeaseUntil)
	}
	if a.Claimed {
		a.LeaseToken = orNull(c.LeaseToken())
	}
	return a
}

func hexOrNull(b []byte) *string { return orNull(hex.EncodeToString(b)) }

func instantOrNull(i ledger.Instant) *ledger.Instant {
	if i == 0 {
		return nil
	}
	return &i
}

// parseClaim checks the request and finds its key. Nothing is stored for one that is wrong.
func (s *server) parseClaim(r *claimRequest, key Key) (*ledger.Request, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	version, ok := ledger.ParseVersion(string(r.Version))
	if r.Version != "" && !ok {
		return nil, badField("version", "must be a whole number (64 bits) or an RFC 3339 time")
	}
	out := &ledger.Request{
		ClaimID: r.ClaimID, Kind: ledger.Kind(r.Kind), CallerKey: key.Name, LeaseSeconds: r.LeaseSeconds.value,
		Key: ledger.Key{Source: r.Source, Account: string(r.Account), Step: r.Step},
		Origin: ledger.Origin{
			Owner: clip(r.Owner, maxContext), WorkflowID: string(r.WorkflowID), WorkflowName: clip(r.WorkflowName, maxContext),
			ExecutionID: clip(r.ExecutionID, maxContext), Node: clip(r.Node, maxContext),
		},
		Entity: string(r.Entity), Version: version, Destination: r.Destination,
		Fresh: fresh(),
	}
	if !absent(r.Payload) {
		hash, err := identity.Hash(r.Payload)
		if err != nil {
			return nil, inPayload(err)
		}
		out.Payload, out.PayloadHash = r.Payload, hash[:]
	}
	if r.ClaimID == "" {
		return out, s.findKey(r, out)
	}
	return out, nil
}

// inPayload says that an error of the canonical form is about the payload.
func inPayload(err error) error {
	p := problemOf(err)
	return badField("payload", p.Message)
}

func (r *claimRequest) check() error {
	switch {
	case r.ClaimID != "" && (!absent(r.IdempotencyKey) || r.KeyTemplate != "" || r.Step != "" || r.Account != ""):
		return badField("claim_id", "names the claim by itself: leave out idempotency_key, key_template, account and step")
	case r.ClaimID != "" && !isID(r.ClaimID):
		return ledger.ErrNotFound
	case r.ClaimID == "" && r.Source == "":
		return badField("source", "is missing: name where the event comes from, such as stripe")
	case !absent(r.IdempotencyKey) && r.KeyTemplate != "":
		return badField("key_template", "cannot stand beside idempotency_key")
	case r.Kind != "" && r.Kind != string(ledger.Event) && r.Kind != string(ledger.Effect):
		return badField("kind", "must be event or effect")
	}
	return firstError(
		checkName("source", r.Source), checkName("step", r.Step), checkName("destination", r.Destination),
		checkText("account", r.Account), checkText("entity", r.Entity), checkWorkflow("workflow_id", r.WorkflowID),
		r.LeaseSeconds.within("lease_seconds", 1, ledger.MaxLeaseSeconds),
	)
}

// findKey finds the idempotency key: given, by template, by the provider's profile, or by the standard paths.
// There is no fallback to anything that changes from run to run.
func (s *server) findKey(r *claimRequest, out *ledger.Request) (err error) {
	rule := s.rule(r.Source)
	switch {
	case !absent(r.IdempotencyKey):
		out.Basis = ledger.BasisGiven
		out.Key.IdempotencyKey, err = identity.KeyFromValue(r.IdempotencyKey)
	case strings.ContainsRune(r.KeyTemplate, '\uFFFD'):
		return &identity.Error{Code: identity.CodeInvalidKey, Message: "key_template has broken Unicode in it"}
	case r.KeyTemplate != "":
		out.Basis = ledger.BasisTemplate
		out.Key.IdempotencyKey, err = identity.Template(r.KeyTemplate, r.Payload, func() (h [32]byte, err error) {
			if len(out.PayloadHash) == 0 {
				return h, &identity.Error{Code: identity.CodeInvalidKey, Message: "key_template uses {hash}, but there is no payload"}
			}
			copy(h[:], out.PayloadHash)
			return h, nil
		})
	case r.IdempotencyKey != nil:
		return &identity.Error{Code: identity.CodeMissingKey, Message: "idempotency_key is null: the expression that makes it found nothing"}
	case rule.Profile != nil:
		out.Basis = ledger.BasisProfile
		var account string
		out.Key.IdempotencyKey, account, err = rule.Profile.Identify(r.Payload, r.Headers)
		if out.Key.Account == "" {
			out.Key.Account = account
		}
	case rule.KeyPath != "":
		out.Basis = ledger.BasisProfile
		out.Key.IdempotencyKey, err = keyAt(rule.KeyPath, r.Payload, r.Headers)
	default:
		out.Basis = ledger.BasisStandard
		out.Key.IdempotencyKey, err = identity.StandardKey(r.Payload)
	}
	return err
}

// rule is how the key of a source is found: as configured, else by the profile that has the source's name.
func (s *server) rule(source string) KeyRule {
	if rule, ok := s.Sources[source]; ok {
		return rule
	}
	profile, _ := inbox.Find(source)
	return KeyRule{Profile: profile}
}

// keyAt finds a key at a configured path, body.PATH or headers.NAME.
func keyAt(path string, payload, headers []byte) (string, error) {
	in, rest, _ := strings.Cut(path, ".")
	from := payload
	if in == "headers" {
		from, rest = headers, strings.ToLower(rest)
	}
	key, found, err := identity.Lookup(from, rest)
	switch {
	case err != nil:
		return "", err
	case !found:
		return "", &identity.Error{Code: identity.CodeMissingKey, Message: "there is no " + path + ", where this source has its key"}
	}
	return key, identity.CheckDerivedKey(key)
}

func absent(v jsontext.Value) bool { return len(v) == 0 || v.Kind() == 'n' }

// fresh makes the random values of a new claim: its id, the secret of its tokens, and the key for its provider.
func fresh() ledger.Fresh {
	secret := make([]byte, ledger.SecretBytes)
	_, _ = rand.Read(secret) // never fails: it ends the process rather than return too little
	return ledger.Fresh{ID: newID(), Secret: secret, ProviderKey: newProviderKey()}
}

// newID is a UUIDv7, or one without a time in it should the source of random numbers fail once.
func newID() string {
	id, err := uuid.NewV7()
	if err != nil {
		id = uuid.New()
	}
	return id.String()
}

// newProviderKey is 29 characters of a-z, 2-7 and the underscore, which every provider takes.
func newProviderKey() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return "hf_" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))
}

func isID(s string) bool {
	id, err := uuid.Parse(s)
	return err == nil && id.String() == s
}

// Lengths in bytes.
const (
	maxIdentity = 255  // of what identifies: longer is refused
	maxContext  = 255  // of what explains: longer is cut
	maxResultID = 1024 // a receipt is never refused for its size: longer is cut
)

// clip makes text fit to be stored: what a database cannot hold becomes visible, and what is too long is cut
// and ends in a digest of the whole, so that different texts stay different.
func clip(t text, limit int) string {
	s := visible(string(t))
	if len(s) <= limit {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return strings.ToValidUTF8(s[:limit-17], "") + "~" + hex.EncodeToString(sum[:8])
}

func visible(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r == 0 || r == '\uFFFD' }) {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", `\u0000`)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// checkName holds source, step, destination and names in paths to [a-z0-9][a-z0-9._-]{0,63}.
func checkName(field, s string) error {
	ok := len(s) <= 64
	for i, r := range []byte(s) {
		lower := r >= 'a' && r <= 'z' || r >= '0' && r <= '9'
		ok = ok && (lower || i > 0 && (r == '.' || r == '_' || r == '-'))
	}
	if !ok {
		return badField(field, "must be 1 to 64 of a-z 0-9 . _ - and begin with a letter or digit")
	}
	return nil
}

func checkWorkflow(field string, id text) error {
	if len(id) > 64 || strings.ContainsFunc(string(id), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
	}) {
		return badField(field, "must be up to 64 of A-Z a-z 0-9 . _ -")
	}
	return nil
}

// checkText holds what identifies something to plain text of a sane length.
func checkText(field string, t text) error {
	switch {
	case len(t) > maxIdentity:
		return badField(field, "must be at most 255 bytes")
	case strings.ContainsFunc(string(t), func(r rune) bool { return r < 0x20 || r == 0x7f || r == '\uFFFD' }):
		return badField(field, "must not contain control characters or broken Unicode")
	}
	return nil
}
