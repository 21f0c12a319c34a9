package storetest

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"holdfast/internal/ledger"
)

// mod changes a request.
type mod = func(*ledger.Request)

func payload(json string) mod {
	return func(r *ledger.Request) {
		sum := sha256.Sum256([]byte(json))
		r.Payload, r.PayloadHash = []byte(json), sum[:]
	}
}

func owner(s string) mod    { return func(r *ledger.Request) { r.Origin.Owner = s } }
func node(s string) mod     { return func(r *ledger.Request) { r.Origin.Node = s } }
func workflow(s string) mod { return func(r *ledger.Request) { r.Origin.WorkflowID = s } }
func caller(s string) mod   { return func(r *ledger.Request) { r.CallerKey = s } }
func lease(n int64) mod     { return func(r *ledger.Request) { r.LeaseSeconds = n } }
func to(s string) mod       { return func(r *ledger.Request) { r.Destination = s } }
func step(s string) mod     { return func(r *ledger.Request) { r.Key.Step = s } }
func account(s string) mod  { return func(r *ledger.Request) { r.Key.Account = s } }
func kind(k ledger.Kind) mod {
	return func(r *ledger.Request) { r.Kind = k }
}

func basis(b ledger.KeyBasis) mod {
	return func(r *ledger.Request) { r.Basis = b }
}

func byID(id string) mod {
	return func(r *ledger.Request) { r.ClaimID, r.Key, r.Basis, r.Kind = id, ledger.Key{}, "", "" }
}

// of names the entity and its version; an empty version is none.
func of(entity, version string) mod {
	return func(r *ledger.Request) {
		r.Entity = entity
		if version == "" {
			return
		}
		v, ok := ledger.ParseVersion(version)
		if !ok {
			panic("not a version: " + version)
		}
		r.Version = v
	}
}

// event is a claim of a delivery; effect one of the step "charge" of a delivery.
func (w *world) event(key string, mods ...mod) *ledger.Request {
	r := &ledger.Request{Key: ledger.Key{Source: w.source, IdempotencyKey: key}, Basis: ledger.BasisGiven, CallerKey: "n8n"}
	for _, m := range mods {
		m(r)
	}
	return r
}

func (w *world) effect(key string, mods ...mod) *ledger.Request {
	return w.event(key, append([]mod{step("charge")}, mods...)...)
}

// ask claims, with fresh random values as each call to /claim has.
func (w *world) ask(r *ledger.Request) (ledger.Verdict, error) {
	one := *r
	one.Fresh = fresh(w.T)
	return w.store.Claim(w.Context(), &one)
}

func fresh(t *testing.T) ledger.Fresh {
	id, err := uuid.NewV7()
	if err != nil {
		t.Error(err)
	}
	secret := make([]byte, ledger.SecretBytes)
	_, _ = rand.Read(secret)
	return ledger.Fresh{ID: id.String(), Secret: secret, ProviderKey: "hf_" + strings.ToLower(rand.Text())}
}

func (w *world) claim(r *ledger.Request) ledger.Verdict {
	w.Helper()
	v, err := w.ask(r)
	if err != nil {
		w.Fatalf("claim %v: %v", r.Key, err)
	}
	return v
}

// decide claims and checks the decision.
func (w *world) decide(r *ledger.Request, want ledger.Decision) ledger.Verdict {
	w.Helper()
	v := w.claim(r)
	if v.Decision != want {
		w.Fatalf("claim %v: decision %q, want %q", r.Key, v.Decision, want)
	}
	return v
}

func (w *world) grant(r *ledger.Request) ledger.Claim {
	w.Helper()
	return w.decide(r, ledger.Proceed).Claim
}

func parse(text string) ledger.Token {
	t, ok := ledger.ParseToken(text)
	if !ok {
		panic("a token that was handed out cannot be read: " + text)
	}
	return t
}

func worker(c ledger.Claim) ledger.Token { return parse(c.LeaseToken()) }
func looker(c ledger.Claim) ledger.Token { return parse(c.LookToken()) }

func report(verb ledger.Verb, t ledger.Token) *ledger.Ending {
	return &ledger.Ending{Verb: verb, Token: t, ByToken: true, CallerKey: "n8n"}
}

func complete(t ledger.Token, resultID string) *ledger.Ending {
	e := report(ledger.Complete, t)
	e.ResultID = resultID
	return e
}

func completeKey(k ledger.Key, resultID string) *ledger.Ending {
	return &ledger.Ending{Verb: ledger.Complete, Key: k, CallerKey: "n8n", ResultID: resultID}
}

func completeReference(source, reference, resultID string) *ledger.Ending {
	return &ledger.Ending{Verb: ledger.Complete, Key: ledger.Key{Source: source}, RefKey: reference, CallerKey: "n8n", ResultID: resultID}
}

func markUnknown(t ledger.Token) *ledger.Ending { return report(ledger.MarkUnknown, t) }

// notExecuted is /mark-failed with outcome not_executed.
func notExecuted(t ledger.Token) *ledger.Ending {
	e := report(ledger.MarkFailed, t)
	e.NotExecuted = true
	return e
}

// refused is /mark-failed whose error's class says not_executed; tries 0 is not given.
func refused(t ledger.Token, tries int64) *ledger.Ending {
	e := report(ledger.MarkFailed, t)
	e.ClassNotExecuted, e.Tries, e.HTTPStatus, e.ErrorClass, e.Message = true, tries, 401, "auth", "401 Unauthorized"
	return e
}

// notNow is /mark-failed with retry_after alone.
func notNow(t ledger.Token, seconds int64) *ledger.Ending {
	e := report(ledger.MarkFailed, t)
	e.NotNow, e.RetryAfter = true, seconds
	return e
}

func extend(t ledger.Token, seconds int64) *ledger.Ending {
	e := report(ledger.Extend, t)
	e.LeaseSeconds = seconds
	return e
}

func withReference(e *ledger.Ending, reference string) *ledger.Ending {
	e.Reference = reference
	return e
}

// end reports; code is the refusal's, "not_found", or empty.
func (w *world) end(e *ledger.Ending) (out ledger.Ended, code string) {
	w.Helper()
	one := *e
	out, err := w.store.End(w.Context(), &one)
	return out, w.code(err)
}

func (w *world) code(err error) string {
	w.Helper()
	var refusal *ledger.Refusal
	switch {
	case err == nil:
		return ""
	case errors.As(err, &refusal):
		return string(refusal.Code)
	case errors.Is(err, ledger.ErrNotFound):
		return "not_found"
	}
	w.Fatalf("an error that no caller can act on: %v", err)
	return ""
}

// ended reports and checks the status that the answer shows.
func (w *world) ended(e *ledger.Ending, want ledger.Status) ledger.Ended {
	w.Helper()
	out, code := w.end(e)
	if code != "" || out.Claim.Status != want {
		w.Fatalf("/%s: status %q code %q, want status %q", e.Verb, out.Claim.Status, code, want)
	}
	return out
}

// refusedWith reports and checks the code.
func (w *world) refusedWith(e *ledger.Ending, want string) {
	w.Helper()
	if out, code := w.end(e); code != want {
		w.Fatalf("/%s: status %q code %q, want code %q", e.Verb, out.Claim.Status, code, want)
	}
}

func (w *world) resolve(id string, to ledger.Status, mods ...func(*ledger.Resolution)) (ledger.Ended, string) {
	w.Helper()
	r := &ledger.Resolution{To: to, AuthorizedBy: "ada", Reason: "looked it up"}
	for _, m := range mods {
		m(r)
	}
	out, err := w.store.Resolve(w.Context(), id, r)
	return out, w.code(err)
}

func (w *world) resolved(id string, to ledger.Status, mods ...func(*ledger.Resolution)) {
	w.Helper()
	if out, code := w.resolve(id, to, mods...); code != "" || out.Claim.Status != to {
		w.Fatalf("resolve to %s: status %q code %q", to, out.Claim.Status, code)
	}
}

func resultID(id string) func(*ledger.Resolution) {
	return func(r *ledger.Resolution) { r.ResultID = id }
}

func newProviderKey(key string) func(*ledger.Resolution) {
	return func(r *ledger.Resolution) { r.NewProviderKey = key }
}

// look asks for the unknown claims of the world's source.
func (w *world) look(owner string) []ledger.Claim {
	w.Helper()
	return w.lookFor(&ledger.LookRequest{Source: w.source, Owner: owner, CallerKey: "n8n", Limit: 25, LeaseSeconds: 300})
}

func (w *world) lookFor(r *ledger.LookRequest) []ledger.Claim {
	w.Helper()
	claims, err := w.store.LeaseUnknown(w.Context(), r)
	if err != nil {
		w.Fatal(err)
	}
	return claims
}

// looked asks and wants exactly one.
func (w *world) looked(owner string) ledger.Claim {
	w.Helper()
	claims := w.look(owner)
	if len(claims) != 1 {
		w.Fatalf("%d claims were handed out, want 1", len(claims))
	}
	return claims[0]
}

func (w *world) pause(scope string, until time.Duration) {
	w.Helper()
	p := ledger.Pause{Scope: scope, AuthorizedBy: "ada", Reason: "maintenance"}
	if until != 0 {
		p.Until = w.now().Add(until)
	}
	if _, err := w.store.SetPause(w.Context(), p); err != nil {
		w.Fatal(err)
	}
}

func (w *world) resume(scope string) {
	w.Helper()
	if _, err := w.store.ClearPause(w.Context(), scope, "ada"); err != nil {
		w.Fatal(err)
	}
}

func (w *world) swept() ledger.SweepReport {
	w.Helper()
	r, err := w.store.Sweep(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// get reads a claim and checks that its history hangs together: each transition goes on where the one before
// ended, and the last says where the claim stands.
func (w *world) get(id string) (ledger.Claim, []ledger.HistoryEntry) {
	w.Helper()
	c, history, err := w.store.Get(w.Context(), id)
	if err != nil {
		w.Fatal(err)
	}
	var at ledger.Status
	for i, h := range history {
		if kept(h) {
			continue
		}
		if h.From != at {
			w.Fatalf("transition %d goes from %q, but the claim was %q: %+v", i, h.From, at, history)
		}
		at = h.To
	}
	if at != c.Status {
		w.Fatalf("the history ends in %q, the claim is %q", at, c.Status)
	}
	return c, history
}

// kept tells whether an entry is a report that moved nothing.
func kept(h ledger.HistoryEntry) bool { return h.From == h.To }

func (w *world) status(id string, want ledger.Status) {
	w.Helper()
	if c, _ := w.get(id); c.Status != want {
		w.Fatalf("the claim is %s, want %s", c.Status, want)
	}
}
