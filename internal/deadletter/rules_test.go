package deadletter_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/failure"
	"holdfast/internal/ledger"
)

// These tests are written from the contract's section on dead letters, sentence by sentence.

const now = ledger.Instant(1_780_000_000_000_000)

func in(seconds int64) ledger.Instant { return now.Add(time.Duration(seconds) * time.Second) }

// fresh gives ids in order and always the same jitter.
func fresh(jitter float64) deadletter.Fresh {
	n := 0
	return deadletter.Fresh{
		New: func() (string, []byte) {
			n++
			return fmt.Sprintf("01a22e60-e4f3-7bdd-84d7-%012d", n), bytes.Repeat([]byte{7}, 16)
		},
		Jitter: func() float64 { return jitter },
	}
}

// failed is a report of an execution of workflow W whose request met this status.
func failed(execution string, status int, change ...func(r *deadletter.Report)) *deadletter.Report {
	r := &deadletter.Report{
		Digest: []byte("digest of " + execution), WorkflowID: "W", WorkflowName: "Orders", ExecutionID: execution, Established: 17,
		Node: "Charge", Message: "it failed", CallerKey: "n8n", Method: "POST", URL: "https://pay.example.test/charges", Fresh: fresh(0),
	}
	r.Verdict = failure.Classify(failure.Input{HTTPStatus: status, Method: "POST", Node: "Charge"})
	for _, c := range change {
		c(r)
	}
	return r
}

func as(method string) func(r *deadletter.Report) {
	return func(r *deadletter.Report) {
		r.Verdict = failure.Classify(failure.Input{HTTPStatus: r.Verdict.HTTPStatus, Method: method})
		r.Method = method
	}
}

func event(attempt int64, change ...func(c *ledger.Claim)) *ledger.Claim {
	c := &ledger.Claim{
		ID: "claim-1", Key: ledger.Key{Source: "stripe", Account: "acct", IdempotencyKey: "evt_1"}, Kind: ledger.Event, Status: ledger.Failed,
		Attempt: attempt, ProviderKey: "hf_0123456789abcdef", Payload: []byte(`{"of":"the claim"}`),
		Origin: ledger.Origin{Owner: "5:0:0", WorkflowID: "W", WorkflowName: "Orders", ExecutionID: "5", Node: "Claim"},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func held(c *ledger.Claim) deadletter.Facts {
	return deadletter.Facts{Now: now, Claim: c, HoldsClaims: true}
}

var nothingHeld = deadletter.Facts{Now: now}

func make1(t *testing.T, r *deadletter.Report, f deadletter.Facts) deadletter.Letter {
	t.Helper()
	l, _, _ := deadletter.New(r, f)
	return l
}

func again(t *testing.T, l deadletter.Letter, r *deadletter.Report, f deadletter.Facts) deadletter.Letter {
	t.Helper()
	out, e, _ := deadletter.Again(&l, r, f)
	if e.Kind != "report" || e.LetterID != l.ID || out.Reports != l.Reports+1 || e.To != out.Status {
		t.Errorf("entry %+v, reports %d after %d", e, out.Reports, l.Reports)
	}
	return out
}

// leased takes the letter as soon as it is due.
func leased(t *testing.T, l deadletter.Letter) (deadletter.Letter, ledger.Instant) {
	t.Helper()
	at := max(now, l.NextRetryAt)
	out, e, ok := deadletter.Take(&l, &deadletter.LeaseRequest{Owner: "worker", CallerKey: "n8n", LeaseSeconds: 300}, at)
	if !ok || e == nil {
		t.Fatalf("not handed out: %s %s", l.Status, l.Reason)
	}
	return out, at
}

func stands(t *testing.T, l deadletter.Letter, status deadletter.Status, reason string, attempts int64) {
	t.Helper()
	if l.Status != status || l.Reason != reason || l.AttemptCount != attempts {
		t.Errorf("%s %q after %d attempts, want %s %q after %d", l.Status, l.Reason, l.AttemptCount, status, reason, attempts)
	}
	if l.Escalated != (status == deadletter.Dead) {
		t.Errorf("escalated: %t while %s", l.Escalated, l.Status)
	}
	if (l.NextRetryAt != 0) != (status == deadletter.Queued) {
		t.Errorf("next_retry_at %d while %s", l.NextRetryAt, l.Status)
	}
}

// TestIdentity: "the claim made by that execution; else (workflow, event_id); else (workflow, execution id,
// establishedAt); else the SHA-256 of the report".
func TestIdentity(t *testing.T) {
	t.Parallel()
	type report = deadletter.Report
	claim := event(1)
	for _, tt := range []struct {
		name string
		r    report
		c    *ledger.Claim
		want string
	}{
		{"the claim before all", report{WorkflowID: "W", EventID: "e", ExecutionID: "5"}, claim, "claim:claim-1"},
		{"the claim of an error workflow", report{WorkflowID: "W", Handler: true}, claim, "claim:claim-1"},
		{"event", report{WorkflowID: "W", EventID: "e", ExecutionID: "5"}, nil, "event:W\ne"},
		{"event of no workflow", report{EventID: "e"}, nil, "event:\ne"},
		{"run", report{WorkflowID: "W", ExecutionID: "5", Established: 17}, nil, "run:W\n5\n17"},
		{"bytes", report{WorkflowID: "W", Digest: []byte{0xab, 1}}, nil, "bytes:ab01"},
		{"one per error workflow", report{WorkflowID: "H", ExecutionID: "5", Handler: true}, nil, "handler:H"},
		{"an error workflow without an id", report{Handler: true, Digest: []byte{1}}, nil, "bytes:01"},
	} {
		if got := deadletter.Identity(&tt.r, tt.c); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	for _, pair := range [][2]report{
		{{WorkflowID: "a\nb", EventID: "c"}, {WorkflowID: "a", EventID: "b\nc"}},
		{{WorkflowID: "a\nb", ExecutionID: "1"}, {WorkflowID: "a", ExecutionID: "b\n1"}},
		{{WorkflowID: "a\nb", EventID: "c"}, {WorkflowID: `"a\nb"`, EventID: "c"}},
		{{WorkflowID: "W", EventID: strings.Repeat("x", 3000) + "1"}, {WorkflowID: "W", EventID: strings.Repeat("x", 3000) + "2"}},
		{{ExecutionID: "5", Established: 1}, {ExecutionID: "5", Established: 2}},
		{{WorkflowID: "V", ExecutionID: "5"}, {WorkflowID: "W", ExecutionID: "5"}},
	} {
		a, b := deadletter.Identity(&pair[0], nil), deadletter.Identity(&pair[1], nil)
		if a == b || len(a) > 600 {
			t.Errorf("%.80q and %.80q", a, b)
		}
	}
}

// TestKnown: "The same bytes or an execution id already known to the letter: duplicate".
func TestKnown(t *testing.T) {
	t.Parallel()
	l := make1(t, failed("5", 503), nothingHeld)
	entries := []deadletter.Entry{
		{Kind: "report", WorkflowID: "W", ExecutionID: "5", Digest: []byte("a")},
		{Kind: "report", ExecutionID: "6", Digest: []byte("b")},
		{Kind: "expired", WorkflowID: "W", ExecutionID: "7"},
		{Kind: "lease"},
	}
	for _, tt := range []struct {
		name string
		r    deadletter.Report
		want bool
	}{
		{"the same bytes", deadletter.Report{Digest: []byte("b")}, true},
		{"the same execution", deadletter.Report{WorkflowID: "W", ExecutionID: "5", Digest: []byte("x")}, true},
		{"the same execution, its workflow unknown", deadletter.Report{ExecutionID: "5", Digest: []byte("x")}, true},
		{"the same execution, reported without its workflow", deadletter.Report{WorkflowID: "V", ExecutionID: "6", Digest: []byte("x")}, true},
		{"another workflow's execution of that number", deadletter.Report{WorkflowID: "V", ExecutionID: "5", Digest: []byte("x")}, false},
		{"another execution", deadletter.Report{WorkflowID: "W", ExecutionID: "8", Digest: []byte("x")}, false},
		{"no id is like no other", deadletter.Report{Digest: []byte("x")}, false},
		{"neither bytes nor id", deadletter.Report{}, false},
		{"missed by the sweeper, never reported", deadletter.Report{WorkflowID: "W", ExecutionID: "7", Digest: []byte("x")}, false},
	} {
		if got := deadletter.Known(&l, &tt.r, entries); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

// TestDecision: "What comes due by itself: retryable, and (outcome not_executed, or the execution holds claims, or the
// request was GET, HEAD, PUT or DELETE or carried an Idempotency-Key, or safe_to_repeat). Otherwise dead:
// outcome_unknown or the class."
func TestDecision(t *testing.T) {
	t.Parallel()
	holds := deadletter.Facts{Now: now, HoldsClaims: true}
	done := deadletter.Facts{Now: now, HoldsClaims: true, Completed: true}
	doubtful := func(r *deadletter.Report) { r.Verdict.Outcome = failure.Unknown } // the node itself retried
	with := func(f func(r *deadletter.Report)) func(r *deadletter.Report) { return f }
	for _, tt := range []struct {
		name   string
		r      *deadletter.Report
		f      deadletter.Facts
		status deadletter.Status
		reason string
	}{
		{"429: rejected before work", failed("5", 429), nothingHeld, deadletter.Queued, "rate_limited"},
		{"521: the destination was away", failed("5", 521), nothingHeld, deadletter.Queued, "transient"},
		{"503: who knows", failed("5", 503), nothingHeld, deadletter.Dead, "outcome_unknown"},
		{"503 while claims are held", failed("5", 503), holds, deadletter.Queued, "transient"},
		{"503 of a claim", failed("5", 503), held(event(1)), deadletter.Queued, "transient"},
		{"503 to GET", failed("5", 503, as("GET")), nothingHeld, deadletter.Queued, "transient"},
		{"503 to HEAD", failed("5", 503, as("HEAD")), nothingHeld, deadletter.Queued, "transient"},
		{"503 to PUT", failed("5", 503, as("PUT")), nothingHeld, deadletter.Queued, "transient"},
		{"503 to delete, in small letters", failed("5", 503, as("delete")), nothingHeld, deadletter.Queued, "transient"},
		{"503 to HEAD, after tries of which nobody knows", failed("5", 503, as("HEAD"), doubtful), nothingHeld, deadletter.Queued, "transient"},
		{"503 to GET, after tries of which nobody knows", failed("5", 503, as("GET"), doubtful), nothingHeld, deadletter.Queued, "transient"},
		{"429, after tries of which nobody knows", failed("5", 429, doubtful), nothingHeld, deadletter.Dead, "outcome_unknown"},
		{"503 to PATCH", failed("5", 503, as("PATCH")), nothingHeld, deadletter.Dead, "outcome_unknown"},
		{"503 to nobody knows what", failed("5", 503, as("")), nothingHeld, deadletter.Dead, "outcome_unknown"},
		{"503 with an Idempotency-Key", failed("5", 503, with(func(r *deadletter.Report) { r.IdempotencyKey = "k" })), nothingHeld, deadletter.Queued, "transient"},
		{"503, safe to repeat", failed("5", 503, with(func(r *deadletter.Report) { r.SafeToRepeat = true })), nothingHeld, deadletter.Queued, "transient"},
		{"401", failed("5", 401), holds, deadletter.Dead, "auth"},
		{"422", failed("5", 422), holds, deadletter.Dead, "validation"},
		{"409", failed("5", 409), holds, deadletter.Dead, "conflict"},
		{"422 to GET, safe to repeat", failed("5", 422, as("GET"), with(func(r *deadletter.Report) { r.SafeToRepeat = true })), nothingHeld, deadletter.Dead, "validation"},
		{"nobody knows", failed("5", 0), holds, deadletter.Dead, "unclassified"},
		{"the only attempt", failed("5", 429, with(func(r *deadletter.Report) { r.MaxAttempts = 1 })), nothingHeld, deadletter.Dead, "attempts_exhausted"},
		{"the event's last attempt", failed("5", 503), held(event(6)), deadletter.Dead, "attempts_exhausted"},
		{"error workflow", failed("5", 429, with(func(r *deadletter.Report) { r.Handler = true })), holds, deadletter.Dead, "handler_failed"},
		{"our own lease_lost", failed("5", 409, with(func(r *deadletter.Report) { r.OwnCode = "lease_lost" })), holds, deadletter.Resolved, "lease_lost"},
		{"our own lease_live", failed("5", 409, with(func(r *deadletter.Report) { r.OwnCode = "lease_live" })), holds, deadletter.Resolved, "lease_live"},
		{"our own result_conflict", failed("5", 409, with(func(r *deadletter.Report) { r.OwnCode = "result_conflict" })), done, deadletter.Resolved, "result_conflict"},
		{"completed, then the crash", failed("5", 0, with(func(r *deadletter.Report) { r.Crash = true })), done, deadletter.Resolved, "completed_meanwhile"},
		{"completed, the answer was lost", failed("5", 503, with(func(r *deadletter.Report) { r.AtComplete = true })), done, deadletter.Resolved, "completed_meanwhile"},
		{"completed, then a failure", failed("5", 503), done, deadletter.Dead, "failed_after_completion"},
		{"a crash, nothing completed", failed("5", 0, with(func(r *deadletter.Report) { r.Crash = true })), holds, deadletter.Dead, "unclassified"},
	} {
		l, e, alert := deadletter.New(tt.r, tt.f)
		attempts := int64(1)
		if tt.f.Claim != nil {
			attempts = tt.f.Claim.Attempt
		}
		stands(t, l, tt.status, tt.reason, attempts)
		if (alert != nil) != (tt.status == deadletter.Dead) {
			t.Errorf("%s: alert %+v", tt.name, alert)
		}
		if e.Kind != "report" || e.To != l.Status || e.ExecutionID != "5" || e.WorkflowID != "W" || !bytes.Equal(e.Digest, tt.r.Digest) || e.By != "n8n" || e.LetterID != l.ID {
			t.Errorf("%s: entry %+v", tt.name, e)
		}
		if t.Failed() {
			t.Fatal(tt.name)
		}
	}
}

// TestAlert: every dead letter is told, grouped by workflow and class, with a link that only shows it.
func TestAlert(t *testing.T) {
	t.Parallel()
	l, _, alert := deadletter.New(failed("5", 422), nothingHeld)
	if alert == nil || alert.Group != "dead/W/validation" || alert.Path != "/dlq/"+l.ID || alert.At != now || !strings.Contains(alert.Title, l.Summary) || strings.Contains(alert.Title, "\n") {
		t.Errorf("%+v", alert)
	}
}

// TestLetterSaysWhatFailed: the letter in the answer of POST /dlq.
func TestLetterSaysWhatFailed(t *testing.T) {
	t.Parallel()
	l := make1(t, failed("5", 429), nothingHeld)
	if l.ID == "" || len(l.Secret) != 16 || l.Reports != 1 || l.CreatedAt != now || l.UpdatedAt != now || l.MaxAttempts != 6 || l.HTTPStatus != 429 || l.Class != failure.RateLimited ||
		!l.Retryable || l.Outcome != failure.NotExecuted || l.WorkflowID != "W" || l.WorkflowName != "Orders" || l.ExecutionID != "5" || l.Node != "Charge" ||
		l.Method != "POST" || l.URL == "" || l.Message != "it failed" || !strings.HasPrefix(l.Summary, "429 at Charge") || l.Play != deadletter.PlayRequest || l.ClaimID != "" || l.ProviderKey != "" {
		t.Errorf("%+v", l)
	}
	l = make1(t, failed("5", 503), held(event(2, func(c *ledger.Claim) { c.Destination = "hubspot" })))
	if l.ClaimID != "claim-1" || l.Key != (ledger.Key{Source: "stripe", Account: "acct", IdempotencyKey: "evt_1"}) || l.Destination != "hubspot" || l.Play != deadletter.PlayWorkflow || l.ProviderKey != "hf_0123456789abcdef" {
		t.Errorf("%+v", l)
	}
}

// TestBackoff: 30·2^attempt, at least Retry-After, and up to 20 % on top.
func TestBackoff(t *testing.T) {
	t.Parallel()
	wish := int64(5000)
	for _, tt := range []struct {
		attempt int64
		jitter  float64
		wish    *int64
		backoff int64
		due     int64
	}{
		{1, 0, nil, 60, 60},
		{1, 0.5, nil, 60, 66},
		{2, 0, nil, 120, 120},
		{5, 0, nil, 960, 960},
		{1, 0, &wish, 5000, 5000},
	} {
		r := failed("5", 0)
		r.Verdict = failure.Classify(failure.Input{HTTPStatus: 503, RetryAfter: tt.wish})
		r.Fresh = fresh(tt.jitter)
		l := make1(t, r, held(event(tt.attempt)))
		if l.Status != deadletter.Queued || l.Backoff != tt.backoff || l.NextRetryAt != in(tt.due) {
			t.Errorf("%+v: %s, backoff %d, due in %v", tt, l.Status, l.Backoff, l.NextRetryAt.Sub(now))
		}
	}
}

// TestPlay: "workflow where its execution holds claims, else request, with provider_key: the claim's, else the failing
// request's own Idempotency-Key, else null".
func TestPlay(t *testing.T) {
	t.Parallel()
	keyed := func(r *deadletter.Report) { r.IdempotencyKey = "own" }
	for _, tt := range []struct {
		name string
		f    deadletter.Facts
		play deadletter.Play
		key  string
	}{
		{"nothing held", nothingHeld, deadletter.PlayRequest, "own"},
		{"claims held, none of them the letter's", deadletter.Facts{Now: now, HoldsClaims: true}, deadletter.PlayWorkflow, "own"},
		{"an event", held(event(1)), deadletter.PlayWorkflow, "hf_0123456789abcdef"},
		{"an effect", held(event(1, func(c *ledger.Claim) { c.Kind, c.Key.Step = ledger.Effect, "charge" })), deadletter.PlayWorkflow, "hf_0123456789abcdef"},
	} {
		l := make1(t, failed("5", 503, keyed), tt.f)
		if l.Play != tt.play || l.ProviderKey != tt.key {
			t.Errorf("%s: %s %q", tt.name, l.Play, l.ProviderKey)
		}
	}
}

// TestPayload: "given; else the claim's; else the failing request's own body; else the failed execution's input,
// fetched later".
func TestPayload(t *testing.T) {
	t.Parallel()
	given := func(r *deadletter.Report) { r.Payload = []byte(`"given"`) }
	body := func(r *deadletter.Report) { r.RequestBody = []byte(`"body"`) }
	nobody := func(r *deadletter.Report) { r.ExecutionID = "" }
	bare := event(1, func(c *ledger.Claim) { c.Payload = nil })
	for _, tt := range []struct {
		name  string
		r     *deadletter.Report
		f     deadletter.Facts
		want  string
		state deadletter.InputState
	}{
		{"given", failed("5", 503, given, body), held(event(1)), `"given"`, deadletter.InputStored},
		{"the claim's", failed("5", 503, body), held(event(1)), `{"of":"the claim"}`, deadletter.InputStored},
		{"the request's", failed("5", 503, body), held(bare), `"body"`, deadletter.InputStored},
		{"fetched later", failed("5", 503), held(bare), "", deadletter.InputWanted},
		{"nobody has it", failed("", 503, nobody), nothingHeld, "", deadletter.InputMissing},
	} {
		l := make1(t, tt.r, tt.f)
		if string(l.Payload) != tt.want || l.InputState != tt.state {
			t.Errorf("%s: %s %s", tt.name, l.Payload, l.InputState)
		}
	}

	l := make1(t, failed("5", 503, given), held(bare))
	other := func(r *deadletter.Report) { r.Payload = []byte(`"other"`) }
	if l = again(t, l, failed("6", 503), held(bare)); string(l.Payload) != `"given"` || l.InputState != deadletter.InputStored {
		t.Errorf("replaced by nothing: %s %s", l.Payload, l.InputState)
	}
	if l = again(t, l, failed("7", 503, other), held(bare)); string(l.Payload) != `"given"` {
		t.Errorf("replaced by a later one: %s", l.Payload)
	}
	for _, state := range []deadletter.InputState{deadletter.InputWanted, deadletter.InputMissing, deadletter.InputAged} {
		l.Payload, l.InputState = nil, state
		if got := again(t, l, failed("8", 503, other), held(bare)); string(got.Payload) != `"other"` || got.InputState != deadletter.InputStored {
			t.Errorf("%s not filled: %s %s", state, got.Payload, got.InputState)
		}
		if got := again(t, l, failed("8", 503), held(bare)); got.InputState != deadletter.InputWanted {
			t.Errorf("%s: a new run has its input, but it is %s", state, got.InputState)
		}
	}
	// What stands for one request does not start a workflow.
	l = make1(t, failed("5", 503, body), nothingHeld)
	if l = again(t, l, failed("6", 503), held(event(1))); l.Play != deadletter.PlayWorkflow || string(l.Payload) != `{"of":"the claim"}` {
		t.Errorf("%s with %s", l.Play, l.Payload)
	}
}

// TestGivenSticks: safe_to_repeat and max_attempts hold for later reports too; what is no number of attempts is not
// taken.
func TestGivenSticks(t *testing.T) {
	t.Parallel()
	l := make1(t, failed("5", 503, func(r *deadletter.Report) { r.SafeToRepeat, r.MaxAttempts = true, 3 }), nothingHeld)
	stands(t, l, deadletter.Queued, "transient", 1)
	l = again(t, l, failed("6", 503), nothingHeld)
	stands(t, l, deadletter.Queued, "transient", 2)
	l = again(t, l, failed("7", 503), nothingHeld)
	stands(t, l, deadletter.Dead, "attempts_exhausted", 3)
	for given, want := range map[int64]int64{0: 6, -1: 6, 1: 1, 100: 100, 101: 6} {
		if l := make1(t, failed("5", 429, func(r *deadletter.Report) { r.MaxAttempts = given }), nothingHeld); l.MaxAttempts != want {
			t.Errorf("max_attempts %d: %d", given, l.MaxAttempts)
		}
	}
}
