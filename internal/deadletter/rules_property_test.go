package deadletter_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"holdfast/internal/deadletter"
	"holdfast/internal/failure"
	"holdfast/internal/ledger"
)

// history drives one letter through whatever may happen to it, and keeps beside it what the contract promises: who
// holds the lease, and which token may still move something.
type history struct {
	now        ledger.Instant
	letter     deadletter.Letter
	claim      *ledger.Claim // nil: a letter without one
	executions int
	tokens     []deadletter.Token
	holder     int            // index of the token that holds the letter; -1: none
	until      ledger.Instant // of its lease
	last       *deadletter.Ending
	jitter     float64
}

func (h *history) execution() string {
	h.executions++
	return fmt.Sprint(h.executions)
}

func (h *history) report(t *rapid.T) *deadletter.Report {
	status := rapid.SampledFrom([]int{0, 401, 409, 422, 429, 503, 521}).Draw(t, "status")
	r := failed(h.execution(), status)
	r.Fresh = fresh(h.jitter)
	r.SafeToRepeat = rapid.Bool().Draw(t, "safe")
	r.MaxAttempts = rapid.SampledFrom([]int64{0, 1, 2, 3}).Draw(t, "max")
	r.Crash = status == 0 && rapid.Bool().Draw(t, "crash")
	r.Handler = rapid.IntRange(0, 19).Draw(t, "handler") == 0
	if rapid.IntRange(0, 9).Draw(t, "own") == 0 {
		r.OwnCode = "lease_lost"
	}
	return r
}

func (h *history) facts(t *rapid.T) deadletter.Facts {
	f := deadletter.Facts{Now: h.now, Claim: h.claim, HoldsClaims: h.claim != nil}
	f.Completed = h.claim != nil && rapid.IntRange(0, 9).Draw(t, "completed") == 0
	f.Counted = rapid.IntRange(0, 9).Draw(t, "counted") == 0
	return f
}

// moved takes the letter's new state and settles who holds it now.
func (h *history) moved(l deadletter.Letter) {
	h.letter = l
	if l.Status != deadletter.Replaying {
		h.holder = -1
	}
}

// again adds another attempt to the letter.
func (h *history) again(t *rapid.T) {
	if h.claim != nil && rapid.Bool().Draw(t, "claimed") {
		h.claim.Attempt++
	}
	r := h.report(t)
	if h.claim != nil {
		h.claim.Origin.ExecutionID = r.ExecutionID
	}
	before := h.letter
	f := h.facts(t)
	l, e, alert := deadletter.Again(&before, r, f)
	if (alert != nil) && l.Status != deadletter.Dead {
		t.Fatalf("%s alerts", l.Status)
	}
	if e.Kind != "report" || l.Reports != before.Reports+1 {
		t.Fatalf("a report is lost: %+v", e)
	}
	if !deadletter.Known(&l, r, []deadletter.Entry{e}) {
		t.Fatal("reported, and not known")
	}
	h.moved(l)
}

func (h *history) take(t *rapid.T) {
	r := &deadletter.LeaseRequest{Owner: rapid.SampledFrom([]string{"", "v", "w"}).Draw(t, "owner"), CallerKey: "n8n", LeaseSeconds: 60}
	before := h.letter
	held := h.holder >= 0 && h.now < h.until
	l, e, ok := deadletter.Take(&before, r, h.now)
	switch {
	case ok && e != nil && held:
		t.Fatal("two workers hold one letter")
	case ok && e == nil && !held:
		t.Fatal("a lease that is over is handed out again")
	case ok && e == nil && (r.Owner == "" || before.LeaseOwner != deadletter.LeaseOwner(r)), (!ok || e == nil) && !reflect.DeepEqual(l, before):
		t.Fatalf("%+v becomes %+v", before, l)
	case ok && e != nil:
		if before.NextRetryAt > h.now || l.AttemptCount != before.AttemptCount+1 {
			t.Fatalf("taken early or uncounted: %+v", l)
		}
		token, _ := deadletter.ParseToken(l.LeaseToken())
		h.letter, h.until = l, h.now+60e6
		h.tokens = append(h.tokens, token)
		h.holder = len(h.tokens) - 1
	}
}

// worker sends any verb under any token ever given.
func (h *history) worker(t *rapid.T) {
	if len(h.tokens) == 0 {
		return
	}
	which := rapid.IntRange(max(0, len(h.tokens)-3), len(h.tokens)-1).Draw(t, "token")
	e := &deadletter.Ending{
		Verb: rapid.SampledFrom([]deadletter.Verb{deadletter.Resolve, deadletter.Fail, deadletter.Extend}).Draw(t, "verb"), Token: h.tokens[which], ByToken: true,
		HTTPStatus: rapid.SampledFrom([]int64{0, 422, 429, 503}).Draw(t, "status"), LeaseSeconds: rapid.Int64Range(1, 90).Draw(t, "seconds"), Jitter: h.jitter,
	}
	if e.Verb == deadletter.Fail && rapid.IntRange(0, 3).Draw(t, "not now") == 0 {
		wait := int64(30)
		e.NotNow, e.RetryAfter, e.HTTPStatus = true, &wait, 0
	}
	h.end(t, e, which == h.holder && h.now < h.until)
}

func (h *history) person(t *rapid.T) {
	e := &deadletter.Ending{
		Verb:         rapid.SampledFrom([]deadletter.Verb{deadletter.Resolve, deadletter.Requeue, deadletter.Discard}).Draw(t, "verb"),
		AuthorizedBy: "ada@example.test", Reason: "because",
	}
	h.end(t, e, h.holder < 0 || h.now >= h.until)
}

// end applies an ending that may move the letter only if allowed says so.
func (h *history) end(t *rapid.T, e *deadletter.Ending, allowed bool) {
	before := h.letter
	out, err := deadletter.End(&before, e, h.now)
	var refusal *ledger.Refusal
	if err != nil && !errors.As(err, &refusal) {
		t.Fatalf("%v", err)
	}
	if out.Write && !allowed {
		t.Fatalf("/%s moved a letter that it does not hold: %+v", e.Verb, before)
	}
	if !out.Write && !reflect.DeepEqual(out.Letter, before) {
		t.Fatalf("changed and not written: %+v", out.Letter)
	}
	if out.Write != out.Changed || out.Write != (out.Entry != nil) {
		t.Fatalf("%+v", out)
	}
	if err == nil && e.Verb != deadletter.Extend {
		h.last = e
	}
	if e.Verb == deadletter.Extend && out.Write {
		h.until = out.Letter.LeaseUntil
	}
	h.moved(out.Letter)

	// "Every POST may be sent again and then has no second effect."
	if err != nil {
		return
	}
	repeated, err := deadletter.End(&out.Letter, e, h.now)
	if err != nil || repeated.Write || repeated.Changed {
		t.Fatalf("/%s again: %+v, %v", e.Verb, repeated, err)
	}
}

func (h *history) lose(t *rapid.T) {
	if h.claim == nil {
		return
	}
	if rapid.Bool().Draw(t, "claimed") {
		h.claim.Attempt++
	}
	c := *h.claim
	c.Last = ledger.Transition{At: h.now, ErrorClass: rapid.SampledFrom([]string{"", "transient", "auth"}).Draw(t, "class")}
	c.LeaseUntil = h.now
	reason := rapid.SampledFrom([]string{"failed", "lease_expired", "never_claimed"}).Draw(t, "reason")
	before := h.letter
	l, e, _ := deadletter.Lost(&before, &c, reason, fresh(h.jitter), h.now)
	if e.Kind == "" && !reflect.DeepEqual(l, before) {
		t.Fatalf("changed and not written: %+v", l)
	}
	h.moved(l)
	if e.Kind == "" {
		return
	}
	if again, e, _ := deadletter.Lost(&l, &c, reason, fresh(h.jitter), h.now); e.Kind != "" {
		t.Fatalf("lost twice: %+v", again)
	}
}

func (h *history) settle(t *rapid.T) {
	if rapid.IntRange(0, 4).Draw(t, "settle") > 0 {
		return
	}
	l, _ := deadletter.Settle(&h.letter, deadletter.ReasonCompleted, "sweeper", h.now)
	h.moved(l)
}

// check is what holds at every moment.
func (h *history) check(t *rapid.T) {
	l := &h.letter
	live := l.Status == deadletter.Replaying && h.now < l.LeaseUntil
	if held := h.holder >= 0 && h.now < h.until; live != held {
		t.Fatalf("a lease is live: %t; somebody was given one: %t; %+v", live, held, l)
	}
	if l.Status != deadletter.Replaying && (l.LeaseUntil != 0 || l.LeaseOwner != "") {
		t.Fatalf("%s under a lease", l.Status)
	}
	if l.Status == deadletter.Queued && (l.AttemptCount >= l.MaxAttempts || l.NextRetryAt == 0) {
		t.Fatalf("queued after %d of %d attempts, due %d", l.AttemptCount, l.MaxAttempts, l.NextRetryAt)
	}
	if l.Status == deadletter.Replaying && l.AttemptCount > l.MaxAttempts {
		t.Fatalf("replaying attempt %d of %d", l.AttemptCount, l.MaxAttempts)
	}
	if l.Status != deadletter.Queued && l.NextRetryAt != 0 {
		t.Fatalf("%s and due", l.Status)
	}
	if !l.Status.Valid() || l.Reason == "" || l.AttemptCount < 1 || l.Escalated != (l.Status == deadletter.Dead) || l.VoidLease > l.Lease || l.Lease != int64(len(h.tokens)) {
		t.Fatalf("%+v", l)
	}
	if l.Status == deadletter.Queued && l.Reason != deadletter.ReasonRequeued && l.Reason != deadletter.ReasonNotNow && l.Reason != deadletter.ReasonLeaseExpired &&
		(!l.Retryable || l.Class == failure.Auth || l.Class == failure.Validation) {
		t.Fatalf("comes due by itself: %+v", l)
	}
}

// TestHistories: never two live leases, no more attempts than allowed, no lease on what is settled, no old token that
// moves anything, no repeat that changes something.
func TestHistories(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := &history{now: now, holder: -1, jitter: rapid.Float64Range(0, 1).Draw(t, "jitter")}
		if rapid.Bool().Draw(t, "claim") {
			h.claim = event(1)
		}
		r := h.report(t)
		h.letter, _, _ = deadletter.New(r, deadletter.Facts{Now: h.now, Claim: h.claim, HoldsClaims: h.claim != nil})
		t.Repeat(map[string]func(*rapid.T){
			"report": h.again,
			"take":   h.take,
			"worker": h.worker,
			"person": h.person,
			"lost":   h.lose,
			"settle": h.settle,
			"expire": func(*rapid.T) {
				l, e, _ := deadletter.Expire(&h.letter, h.jitter, h.now)
				if e.Kind == "" && !reflect.DeepEqual(l, h.letter) {
					t.Fatalf("changed and not written: %+v", l)
				}
				h.moved(l)
			},
			"wait": func(t *rapid.T) { h.now += ledger.Instant(rapid.Int64Range(1, 90).Draw(t, "seconds") * 1e6) },
			"due":  func(*rapid.T) { h.now = max(h.now, h.letter.NextRetryAt) },
			"":     h.check,
		})
	})
}
