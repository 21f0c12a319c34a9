package deadletter_test

import (
	"errors"
	"strings"
	"testing"

	"holdfast/internal/deadletter"
	"holdfast/internal/failure"
	"holdfast/internal/ledger"
)

func tokenOf(t *testing.T, l *deadletter.Letter) deadletter.Token {
	t.Helper()
	token, ok := deadletter.ParseToken(l.LeaseToken())
	if !ok {
		t.Fatalf("no token of %q", l.ID)
	}
	return token
}

func ended(t *testing.T, l *deadletter.Letter, e *deadletter.Ending, at ledger.Instant) deadletter.Ended {
	t.Helper()
	out, err := deadletter.End(l, e, at)
	if err != nil || !out.Write || !out.Changed || out.Entry == nil {
		t.Fatalf("/%s of a letter that is %s: %+v, %v", e.Verb, l.Status, out, err)
	}
	if out.Entry.LetterID != l.ID || out.Entry.At != at || out.Entry.To != out.Letter.Status {
		t.Errorf("entry %+v", out.Entry)
	}
	return out
}

// same is 200 with changed false.
func same(t *testing.T, l *deadletter.Letter, e *deadletter.Ending, at ledger.Instant) {
	t.Helper()
	out, err := deadletter.End(l, e, at)
	if err != nil || out.Write || out.Changed || out.Entry != nil || out.Alert != nil || out.Letter.Status != l.Status || out.Letter.AttemptCount != l.AttemptCount {
		t.Errorf("/%s of a letter that is %s: %+v, %v", e.Verb, l.Status, out, err)
	}
}

func refused(t *testing.T, l *deadletter.Letter, e *deadletter.Ending, at ledger.Instant, code ledger.Code) {
	t.Helper()
	out, err := deadletter.End(l, e, at)
	var r *ledger.Refusal
	if !errors.As(err, &r) || r.Code != code || r.Message == "" || r.Claim != nil || out.Write || out.Changed {
		t.Errorf("/%s of a letter that is %s: %+v, %v, want %s", e.Verb, l.Status, out, err, code)
	}
}

func by(verb deadletter.Verb) *deadletter.Ending {
	return &deadletter.Ending{Verb: verb, AuthorizedBy: "ada@example.test", Reason: "it was paid by hand", CallerKey: "ops"}
}

func under(token deadletter.Token, verb deadletter.Verb, change ...func(e *deadletter.Ending)) *deadletter.Ending {
	e := &deadletter.Ending{Verb: verb, Token: token, ByToken: true, CallerKey: "n8n", LeaseSeconds: 600}
	for _, f := range change {
		f(e)
	}
	return e
}

func replaying(t *testing.T) (deadletter.Letter, ledger.Instant, deadletter.Token) {
	t.Helper()
	l, at := leased(t, make1(t, failed("5", 429), nothingHeld))
	return l, at, tokenOf(t, &l)
}

// TestLease: "Never the same letter to two workers; the same non-empty owner gets its unreported batch again,
// uncounted"; attempt_count is "already counted".
func TestLease(t *testing.T) {
	t.Parallel()
	l := make1(t, failed("5", 429), nothingHeld)
	ask := func(owner, key string) *deadletter.LeaseRequest {
		return &deadletter.LeaseRequest{Owner: owner, CallerKey: key, LeaseSeconds: 300}
	}
	if _, _, ok := deadletter.Take(&l, ask("w", "n8n"), l.NextRetryAt-1); ok {
		t.Error("handed out before it is due")
	}
	due := l.NextRetryAt
	first, e, ok := deadletter.Take(&l, ask("w", "n8n"), due)
	if !ok || e.Kind != "lease" || e.Attempt != 2 || first.AttemptCount != 2 || first.Status != deadletter.Replaying || first.LeaseUntil != due.Add(300e9) || first.Lease != 1 || first.NextRetryAt != 0 {
		t.Fatalf("%+v %+v", first, e)
	}
	for _, tt := range []struct {
		name  string
		r     *deadletter.LeaseRequest
		holds bool
	}{
		{"the same owner", ask("w", "n8n"), true},
		{"another owner", ask("v", "n8n"), false},
		{"nobody", ask("", "n8n"), false},
		{"another key", ask("w", "other"), false},
	} {
		got, e, ok := deadletter.Take(&first, tt.r, due+1)
		if ok != tt.holds || e != nil || got.AttemptCount != 2 || got.LeaseUntil != first.LeaseUntil || got.LeaseToken() != first.LeaseToken() {
			t.Errorf("%s: %t %+v", tt.name, ok, got)
		}
	}
	anonymous, _, _ := deadletter.Take(&l, ask("", "n8n"), due)
	if _, _, ok := deadletter.Take(&anonymous, ask("", "n8n"), due+1); ok {
		t.Error("nobody's lease is handed out again")
	}
	if _, _, ok := deadletter.Take(&first, ask("w", "n8n"), first.LeaseUntil); ok {
		t.Error("the lease is over")
	}
	for _, status := range []deadletter.Status{deadletter.Dead, deadletter.Resolved, deadletter.Discarded} {
		l.Status = status
		if _, _, ok := deadletter.Take(&l, ask("w", "n8n"), due); ok {
			t.Errorf("%s letters are not handed out", status)
		}
	}
}

// TestLeaseEnd: "A lease that runs out: queued, due after its attempt's backoff, or dead (lease_expired) when attempts
// are used up."
func TestLeaseEnd(t *testing.T) {
	t.Parallel()
	l, _, token := replaying(t)
	if got, e, alert := deadletter.Expire(&l, 0, l.LeaseUntil-1); e.Kind != "" || alert != nil || got.Status != deadletter.Replaying {
		t.Error("a live lease ended")
	}
	for _, noticed := range []ledger.Instant{l.LeaseUntil, l.LeaseUntil + 1e9} {
		got, e, alert := deadletter.Expire(&l, 0.5, noticed)
		stands(t, got, deadletter.Queued, "lease_expired", 2)
		if got.NextRetryAt != l.LeaseUntil.Add(132e9) || e.Kind != "expired" || e.To != deadletter.Queued || alert != nil {
			t.Errorf("due %v after the lease's end, %+v, %+v", got.NextRetryAt.Sub(l.LeaseUntil), e, alert)
		}
		for _, verb := range []deadletter.Verb{deadletter.Resolve, deadletter.Fail, deadletter.Extend} {
			refused(t, &got, under(token, verb), noticed, ledger.LeaseLost)
			refused(t, &l, under(token, verb), noticed, ledger.LeaseLost) // whether or not somebody has noticed
		}
	}
	l.AttemptCount = 6
	got, _, alert := deadletter.Expire(&l, 0, l.LeaseUntil)
	stands(t, got, deadletter.Dead, "lease_expired", 6)
	if alert == nil {
		t.Error("nobody is told")
	}
}

// TestResolve: by its worker, and by a person.
func TestResolve(t *testing.T) {
	t.Parallel()
	l, at, token := replaying(t)
	out := ended(t, &l, under(token, deadletter.Resolve, func(e *deadletter.Ending) { e.Result = []byte(`{"id":1}`) }), at+1)
	stands(t, out.Letter, deadletter.Resolved, "replayed", 2)
	if string(out.Letter.LastResult) != `{"id":1}` || out.Letter.LeaseUntil != 0 || out.Entry.Kind != "resolved" || out.Entry.By != "n8n" || out.Alert != nil {
		t.Errorf("%+v %+v", out.Letter, out.Entry)
	}
	same(t, &out.Letter, under(token, deadletter.Resolve), at+2)
	same(t, &out.Letter, under(token, deadletter.Fail), at+2)
	refused(t, &out.Letter, under(token, deadletter.Extend), at+2, ledger.LeaseLost)

	refused(t, &l, by(deadletter.Resolve), at+1, ledger.LeaseLive)
	for _, status := range []deadletter.Status{deadletter.Queued, deadletter.Dead} {
		waits := make1(t, failed("5", 429), nothingHeld)
		waits.Status = status
		out := ended(t, &waits, by(deadletter.Resolve), now+1)
		stands(t, out.Letter, deadletter.Resolved, "resolved_by_person", 1)
		if out.Entry.By != "ada@example.test" || out.Entry.Reason != "it was paid by hand" {
			t.Errorf("%+v", out.Entry)
		}
		same(t, &out.Letter, by(deadletter.Resolve), now+2)
	}
}

// TestSettled: "It is resolved when the event completes after all": the worker that played it is told the same.
func TestSettled(t *testing.T) {
	t.Parallel()
	l, at, token := replaying(t)
	out, e := deadletter.Settle(&l, deadletter.ReasonCompleted, "sweeper", at+1)
	stands(t, out, deadletter.Resolved, "completed", 2)
	if e.Kind != "settled" || e.Reason != "completed" {
		t.Errorf("%+v", e)
	}
	same(t, &out, under(token, deadletter.Resolve), at+2)
	same(t, &out, under(token, deadletter.Fail), at+2)
	if got, e := deadletter.Settle(&out, deadletter.ReasonCompleted, "sweeper", at+9); e.Kind != "" || got.UpdatedAt != out.UpdatedAt {
		t.Errorf("settled twice: %+v", e)
	}
	over, _, _ := deadletter.Expire(&l, 0, l.LeaseUntil)
	out, _ = deadletter.Settle(&over, deadletter.ReasonCompleted, "sweeper", l.LeaseUntil+1)
	same(t, &out, under(token, deadletter.Resolve), l.LeaseUntil+2) // the run was slow, and is done
}

// TestFail: classified like a report, with the attempt that the lease counted.
func TestFail(t *testing.T) {
	t.Parallel()
	wish, week := int64(4000), int64(1e9)
	status := func(n int64) func(e *deadletter.Ending) { return func(e *deadletter.Ending) { e.HTTPStatus = n } }
	claims := func(l *deadletter.Letter) { l.Play = deadletter.PlayWorkflow }
	last := func(l *deadletter.Letter) { l.AttemptCount = 6 }
	for _, tt := range []struct {
		name    string
		letter  func(l *deadletter.Letter)
		ending  func(e *deadletter.Ending)
		status  deadletter.Status
		reason  string
		backoff int64
	}{
		{"429", nil, status(429), deadletter.Queued, "rate_limited", 120},
		{"503 of a request", nil, status(503), deadletter.Dead, "outcome_unknown", 120},
		{"503 of a workflow", claims, status(503), deadletter.Queued, "transient", 120},
		{"503 with a provider key", func(l *deadletter.Letter) { l.ProviderKey = "k" }, status(503), deadletter.Queued, "transient", 120},
		{"503 to PUT", func(l *deadletter.Letter) { l.Method = "PUT" }, status(503), deadletter.Queued, "transient", 120},
		{"503 to GET", func(l *deadletter.Letter) { l.Method = "GET" }, status(503), deadletter.Queued, "transient", 120},
		{"503, safe to repeat", func(l *deadletter.Letter) { l.SafeToRepeat = true }, status(503), deadletter.Queued, "transient", 120},
		{"422", claims, status(422), deadletter.Dead, "validation", 120},
		{"the last attempt", last, status(429), deadletter.Dead, "attempts_exhausted", 1920},
		{"neither error nor status", claims, func(*deadletter.Ending) {}, deadletter.Dead, "unclassified", 120},
		{"Retry-After is a floor", nil, func(e *deadletter.Ending) { e.HTTPStatus, e.RetryAfter = 429, &wish }, deadletter.Queued, "rate_limited", 4000},
		{"Retry-After has a bound", nil, func(e *deadletter.Ending) { e.HTTPStatus, e.RetryAfter = 429, &week }, deadletter.Queued, "rate_limited", 7 * 86400},
		{"an error", nil, func(e *deadletter.Ending) { e.Error = []byte(`{"name":"NodeApiError","httpCode":"ECONNREFUSED"}`) }, deadletter.Queued, "transient", 120},
	} {
		l, at, token := replaying(t)
		if tt.letter != nil {
			tt.letter(&l)
		}
		out := ended(t, &l, under(token, deadletter.Fail, tt.ending), at+1)
		stands(t, out.Letter, tt.status, tt.reason, l.AttemptCount)
		if out.Letter.Backoff != tt.backoff || out.Entry.Kind != "failed" || (out.Alert != nil) != (tt.status == deadletter.Dead) || out.Letter.Summary == "" || out.Letter.Message == "" {
			t.Errorf("%s: backoff %d, %+v, %+v", tt.name, out.Letter.Backoff, out.Entry, out.Alert)
		}
		if tt.status == deadletter.Queued && out.Letter.NextRetryAt != at+1+ledger.Instant(tt.backoff*1e6) {
			t.Errorf("%s: due in %v", tt.name, out.Letter.NextRetryAt.Sub(at+1))
		}
		same(t, &out.Letter, under(token, deadletter.Fail, tt.ending), at+2)
		refused(t, &out.Letter, under(token, deadletter.Resolve), at+2, ledger.LeaseLost)
		refused(t, &out.Letter, under(token, deadletter.Extend), at+2, ledger.LeaseLost)
		if t.Failed() {
			t.Fatal(tt.name)
		}
	}
}

// TestFailKnowsTheRequest: what a request's method says of the outcome holds when it is sent again; what a workflow met
// is another request.
func TestFailKnowsTheRequest(t *testing.T) {
	t.Parallel()
	for play, want := range map[deadletter.Play]failure.Outcome{deadletter.PlayRequest: failure.NotExecuted, deadletter.PlayWorkflow: failure.Unknown} {
		l, at, token := replaying(t)
		l.Method, l.Play = "GET", play
		out := ended(t, &l, under(token, deadletter.Fail, func(e *deadletter.Ending) { e.HTTPStatus = 503 }), at)
		if out.Letter.Outcome != want {
			t.Errorf("%s: %s", play, out.Letter.Outcome)
		}
	}
}

// TestRepeatsSurviveAPerson: a report that is sent again after a lost answer says nothing new, whatever a person or
// another report has done since.
func TestRepeatsSurviveAPerson(t *testing.T) {
	t.Parallel()
	for _, verb := range []deadletter.Verb{deadletter.Resolve, deadletter.Fail} {
		l, at, token := replaying(t)
		e := under(token, verb, func(e *deadletter.Ending) { e.HTTPStatus = 422 })
		l = ended(t, &l, e, at).Letter
		requeued := ended(t, &l, by(deadletter.Requeue), at+1).Letter
		same(t, &requeued, e, at+2)
		f := nothingHeld
		f.Now = at + 1
		reopened := again(t, l, failed("9", 429), f)
		same(t, &reopened, e, at+2)
	}
}

// TestNotNow: "with retry_after alone: not now, uncounted".
func TestNotNow(t *testing.T) {
	t.Parallel()
	for given, wait := range map[int64]int64{90: 90, 0: 0, -5: 0, 1e12: 7 * 86400} {
		l, at, token := replaying(t)
		e := under(token, deadletter.Fail, func(e *deadletter.Ending) { e.NotNow, e.RetryAfter, e.Jitter = true, &given, 0.9 })
		out := ended(t, &l, e, at)
		stands(t, out.Letter, deadletter.Queued, "not_now", 1)
		if out.Letter.NextRetryAt != at+ledger.Instant(wait*1e6) || out.Letter.Class != failure.RateLimited || out.Alert != nil {
			t.Errorf("%d: due in %v, %+v", given, out.Letter.NextRetryAt.Sub(at), out.Alert)
		}
		same(t, &out.Letter, e, at+1)
	}
}

// TestFailKeepsNoSecrets: "Stored errors are redacted".
func TestFailKeepsNoSecrets(t *testing.T) {
	t.Parallel()
	l, at, token := replaying(t)
	secret := `{"message":"token=SECRET1 for ada@example.test","config":{"headers":{"Authorization":"Bearer SECRET2"}},"email":"SECRET3"}`
	for _, raw := range []string{secret, `{"message":"x","filler":"` + strings.Repeat("y", 1<<20) + `","more":` + secret + `}`} {
		out := ended(t, &l, under(token, deadletter.Fail, func(e *deadletter.Ending) { e.Error, e.Redact = []byte(raw), []string{"email"} }), at)
		kept := string(out.Letter.Error) + out.Letter.Message + out.Letter.Summary + out.Entry.Message + out.Alert.Title + out.Alert.Text
		if strings.Contains(kept, "SECRET") || len(kept) > 300<<10 || len(out.Letter.Error) == 0 {
			t.Errorf("%d bytes: %.300s", len(kept), kept)
		}
	}
}

// TestExtend: a new end, never earlier.
func TestExtend(t *testing.T) {
	t.Parallel()
	l, at, token := replaying(t)
	out := ended(t, &l, under(token, deadletter.Extend), at+5)
	if out.Letter.LeaseUntil != at+5+600e6 || out.Letter.Status != deadletter.Replaying || out.Letter.AttemptCount != 2 || out.Entry.Kind != "extended" {
		t.Errorf("%+v", out)
	}
	same(t, &l, under(token, deadletter.Extend, func(e *deadletter.Ending) { e.LeaseSeconds = 1 }), at+5)
	for _, seconds := range []int64{0, -1, 86401} {
		refused(t, &l, under(token, deadletter.Extend, func(e *deadletter.Ending) { e.LeaseSeconds = seconds }), at, ledger.InvalidRequest)
	}
	refused(t, &l, by(deadletter.Extend), at, ledger.InvalidRequest)
	refused(t, &l, by(deadletter.Fail), at, ledger.InvalidRequest)
}

// TestRequeue: "due at once, also when queued for later; one more attempt if used up"; "not while leased".
func TestRequeue(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status             deadletter.Status
		attempts, max, now int64
	}{
		{deadletter.Queued, 2, 6, 6},
		{deadletter.Dead, 2, 6, 6},
		{deadletter.Dead, 6, 6, 7},
		{deadletter.Dead, 9, 6, 10},
		{deadletter.Resolved, 2, 6, 6},
		{deadletter.Discarded, 2, 6, 6},
	} {
		l := make1(t, failed("5", 429), nothingHeld)
		l.Status, l.AttemptCount, l.Escalated = tt.status, tt.attempts, true
		out := ended(t, &l, by(deadletter.Requeue), now+1)
		stands(t, out.Letter, deadletter.Queued, "requeued", tt.attempts)
		if out.Letter.NextRetryAt != now+1 || out.Letter.MaxAttempts != tt.now || out.Entry.Kind != "requeued" || out.Entry.By != "ada@example.test" || out.Entry.Reason != "it was paid by hand" {
			t.Errorf("%+v: %+v %+v", tt, out.Letter, out.Entry)
		}
		same(t, &out.Letter, by(deadletter.Requeue), now+1)
		same(t, &out.Letter, by(deadletter.Requeue), now) // through a replica whose clock is behind
		if _, _, ok := deadletter.Take(&out.Letter, &deadletter.LeaseRequest{}, now+1); !ok {
			t.Errorf("%+v: not handed out", tt)
		}
	}
	l, at, token := replaying(t)
	refused(t, &l, by(deadletter.Requeue), at, ledger.LeaseLive)
	refused(t, &l, under(token, deadletter.Requeue), at, ledger.InvalidRequest)
	out := ended(t, &l, by(deadletter.Requeue), l.LeaseUntil)
	if out.Letter.VoidLease != 1 {
		t.Errorf("%+v", out.Letter)
	}
	for _, verb := range []deadletter.Verb{deadletter.Resolve, deadletter.Fail, deadletter.Extend} {
		refused(t, &out.Letter, under(token, verb), l.LeaseUntil+1, ledger.LeaseLost)
	}
}

// TestDiscard is for good, until a person says otherwise.
func TestDiscard(t *testing.T) {
	t.Parallel()
	for _, status := range []deadletter.Status{deadletter.Queued, deadletter.Dead} {
		l := make1(t, failed("5", 429), nothingHeld)
		l.Status = status
		out := ended(t, &l, by(deadletter.Discard), now+1)
		stands(t, out.Letter, deadletter.Discarded, "discarded", 1)
		same(t, &out.Letter, by(deadletter.Discard), now+2)
	}
	l, at, token := replaying(t)
	refused(t, &l, by(deadletter.Discard), at, ledger.LeaseLive)
	refused(t, &l, under(token, deadletter.Discard), at, ledger.InvalidRequest)
	out := ended(t, &l, by(deadletter.Discard), l.LeaseUntil)
	stands(t, out.Letter, deadletter.Discarded, "discarded", 2)
	refused(t, &out.Letter, under(token, deadletter.Resolve), l.LeaseUntil, ledger.LeaseLost)
	l.Status = deadletter.Resolved
	refused(t, &l, by(deadletter.Discard), at, ledger.InvalidTransition)
}

// TestPersonIsNamed: what a person does carries who and why.
func TestPersonIsNamed(t *testing.T) {
	t.Parallel()
	l := make1(t, failed("5", 422), nothingHeld)
	for _, verb := range []deadletter.Verb{deadletter.Resolve, deadletter.Requeue, deadletter.Discard} {
		refused(t, &l, &deadletter.Ending{Verb: verb, AuthorizedBy: "a"}, now, ledger.InvalidRequest)
		refused(t, &l, &deadletter.Ending{Verb: verb, Reason: "b"}, now, ledger.InvalidRequest)
	}
}

// TestOldTokens: "An old token: 409 lease_lost"; one that was never given: 404.
func TestOldTokens(t *testing.T) {
	t.Parallel()
	l, at, old := replaying(t)
	l = ended(t, &l, under(old, deadletter.Fail, func(e *deadletter.Ending) { e.HTTPStatus = 429 }), at).Letter
	l, at = leased(t, l)
	for _, verb := range []deadletter.Verb{deadletter.Resolve, deadletter.Fail, deadletter.Extend} {
		refused(t, &l, under(old, verb), at+1, ledger.LeaseLost)
	}
	other := l
	other.Secret = []byte("another secret..")
	never := tokenOf(t, &l)
	never.Lease = 9
	for _, token := range []deadletter.Token{{}, tokenOf(t, &other), never} {
		if _, err := deadletter.End(&l, under(token, deadletter.Resolve), at+1); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("%+v: %v", token, err)
		}
	}
}
