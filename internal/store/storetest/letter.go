package storetest

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/failure"
	"holdfast/internal/ledger"
)

// The tests of dead letters take their expected values from the contract too, and give the store reports that are
// read already. Letters of the running test are told from others by their workflow.

// tell changes a report.
type tell = func(*deadletter.Report)

// The verdicts that the tests need.
var (
	unavailable = failure.Verdict{
		Class: failure.Transient, Retryable: true, Outcome: failure.Unknown, NextStatus: failure.Queued,
		BackoffSeconds: 60, Summary: "503 at Send: Service Unavailable", HTTPStatus: 503,
	}
	refusedConnection = failure.Verdict{
		Class: failure.Transient, Retryable: true, Outcome: failure.NotExecuted, NextStatus: failure.Queued,
		BackoffSeconds: 60, Summary: "ECONNREFUSED at Send",
	}
	wrongCredential = failure.Verdict{
		Class: failure.Auth, Outcome: failure.NotExecuted, NextStatus: failure.Dead,
		BackoffSeconds: 60, Escalate: true, Summary: "401 at Send", HTTPStatus: 401,
	}
)

func verdict(v failure.Verdict) tell { return func(r *deadletter.Report) { r.Verdict = v } }
func method(s string) tell           { return func(r *deadletter.Report) { r.Method = s } }
func ofEvent(id string) tell         { return func(r *deadletter.Report) { r.EventID = id } }
func retryOf(id string) tell         { return func(r *deadletter.Report) { r.RetryOf = id } }
func childOf(id string) tell         { return func(r *deadletter.Report) { r.ParentExecutionID = id } }
func byHandler(r *deadletter.Report) { r.Handler = true }
func crashed(r *deadletter.Report)   { r.Crash = true }
func atComplete(r *deadletter.Report) {
	r.AtComplete = true
}
func maxAttempts(n int64) tell { return func(r *deadletter.Report) { r.MaxAttempts = n } }
func input(json string) tell   { return func(r *deadletter.Report) { r.Payload = []byte(json) } }
func sameBytes(d []byte) tell  { return func(r *deadletter.Report) { r.Digest = d } }
func refusedBy(code string) tell {
	return func(r *deadletter.Report) {
		r.OwnCode, r.Verdict = code, failure.Verdict{Class: failure.Conflict, Outcome: failure.Unknown, HTTPStatus: 409, Summary: code}
	}
}

func inWorkflow(id string) tell { return func(r *deadletter.Report) { r.WorkflowID = id } }

func atDestination(source, destination string) tell {
	return func(r *deadletter.Report) { r.Key.Source, r.Destination = source, destination }
}

// parentOf reports that a child has failed.
func parentOf(workflow, execution string) tell {
	return func(r *deadletter.Report) { r.ChildWorkflowID, r.ChildExecutionID = workflow, execution }
}

// wf is the workflow of the running test.
func (w *world) wf() string { return "Wf." + w.source }

// run is a claim made by an execution of the test's workflow.
func (w *world) run(execution string) mod {
	return func(r *ledger.Request) {
		r.Origin = ledger.Origin{Owner: execution + ":0:0", WorkflowID: w.wf(), WorkflowName: "Orders", ExecutionID: execution, Node: "Claim"}
	}
}

var digests atomic.Int64

// failed is the report of an execution's failure: a POST that was answered with 503, unless the mods say otherwise.
func (w *world) failed(execution string, mods ...tell) *deadletter.Report {
	sum := sha256.Sum256(fmt.Append(nil, "report ", digests.Add(1)))
	r := &deadletter.Report{
		Digest: sum[:], Verdict: unavailable, Established: 1_796_025_600_000,
		WorkflowID: w.wf(), WorkflowName: "Orders", ExecutionID: execution, Node: "Send",
		Message: "Service Unavailable", Error: []byte(`{"message":"Service Unavailable"}`),
		Method: "POST", URL: "https://api.example.test/orders", CallerKey: "n8n",
		Fresh: deadletter.Fresh{New: deadletter.NewFresh().New, Jitter: func() float64 { return 0.5 }},
	}
	for _, m := range mods {
		m(r)
	}
	return r
}

// get bears no effect of a second time, so that its failure comes due by itself.
var harmless = method("GET")

func (w *world) tell(r *deadletter.Report) (deadletter.Letter, bool) {
	w.Helper()
	one := *r
	l, duplicate, err := w.store.Report(w.Context(), &one)
	if err != nil {
		w.Fatalf("report of %s: %v", r.ExecutionID, err)
	}
	return l, duplicate
}

// told reports something new.
func (w *world) told(r *deadletter.Report) deadletter.Letter {
	w.Helper()
	l, duplicate := w.tell(r)
	if duplicate {
		w.Fatalf("the report of execution %q counts as a duplicate of letter %s", r.ExecutionID, l.Identity)
	}
	return l
}

// known reports what changes nothing, and is answered with the letter as it stands.
func (w *world) known(r *deadletter.Report, want string) {
	w.Helper()
	w.unmoved("a duplicate", func() {
		if l, duplicate := w.tell(r); !duplicate || l.ID != want {
			w.Fatalf("letter %s, duplicate %v; want letter %s, duplicate", l.ID, duplicate, want)
		}
	})
}

// letter reads a letter and checks what holds for every one.
func (w *world) letter(id string) (deadletter.Letter, []deadletter.Entry) {
	w.Helper()
	l, entries, err := w.store.GetLetter(w.Context(), id)
	if err != nil {
		w.Fatal(err)
	}
	wrong := func(ok bool, what string) {
		w.Helper()
		if !ok {
			w.Fatalf("%s: %+v", what, l)
		}
	}
	wrong(l.Status.Valid() && l.Reason != "", "a letter says where it stands and why")
	wrong((l.Status == deadletter.Queued) == (l.NextRetryAt != 0), "what is queued is due, and nothing else")
	wrong((l.Status == deadletter.Replaying) == (l.LeaseUntil != 0), "what is leased has a lease, and nothing else")
	wrong(l.Status != deadletter.Queued || l.AttemptCount < l.MaxAttempts, "a queued letter has attempts left")
	wrong((l.InputState == deadletter.InputStored) == (len(l.Payload) > 0), "the state of the payload")
	wrong(l.Escalated == (l.Status == deadletter.Dead), "what is dead is a person's")
	wrong(len(entries) > 0 && entries[len(entries)-1].To == l.Status, "the entries end where the letter stands")
	for i := range entries {
		wrong(entries[i].LetterID == id && entries[i].Kind != "" && entries[i].At != 0, "an entry says what happened when")
		wrong(i == 0 || entries[i].N > entries[i-1].N, "entries are told in order")
	}
	return l, entries
}

// stands checks where a letter stands.
func (w *world) stands(id string, want deadletter.Status, reason string, attempt int64) deadletter.Letter {
	w.Helper()
	l, _ := w.letter(id)
	if l.Status != want || l.Reason != reason || l.AttemptCount != attempt {
		w.Fatalf("the letter is %s (%s) at attempt %d, want %s (%s) at %d", l.Status, l.Reason, l.AttemptCount, want, reason, attempt)
	}
	return l
}

// dueAfter checks that a letter is due this long after from, with up to a fifth more.
func (w *world) dueAfter(l deadletter.Letter, from ledger.Instant, wait time.Duration) {
	w.Helper()
	if got := l.NextRetryAt.Sub(from); got < wait || got > wait+wait/5 {
		w.Errorf("due after %v, want %v and up to a fifth more", got, wait)
	}
}

// backoff is min(1 h, 30 s · 2^attempt).
func backoff(attempt int64) time.Duration { return min(time.Hour, 30*time.Second<<attempt) }

// letters are those of the test's workflow, oldest first.
func (w *world) letters() []deadletter.Letter {
	w.Helper()
	all, _, err := w.store.Letters(w.Context(), deadletter.Filter{WorkflowID: w.wf(), Limit: 200})
	if err != nil {
		w.Fatal(err)
	}
	for i, j := 0, len(all)-1; i < j; i, j = i+1, j-1 {
		all[i], all[j] = all[j], all[i]
	}
	return all
}

// only is the one letter of the test's workflow.
func (w *world) only() deadletter.Letter {
	w.Helper()
	all := w.letters()
	if len(all) != 1 {
		w.Fatalf("%d letters, want 1: %+v", len(all), all)
	}
	return all[0]
}

// alerts counts those of dead letters of the test's workflow.
func (w *world) alerts() int {
	w.Helper()
	var n int
	if err := w.raw.QueryRowContext(w.Context(), "select coalesce(sum(unsent), 0) from outbox where grp like $1", "dead/"+w.wf()+"/%").Scan(&n); err != nil {
		w.Fatal(err)
	}
	return n
}

// letterDump is all that the database holds about the letters of the world's workflow.
func (w *world) letterDump() string {
	w.Helper()
	return w.query("select l.* from letters l where l.workflow_id = $1 order by l.id", w.wf()) +
		w.query("select e.* from letter_entries e join letters l on l.id = e.letter_id where l.workflow_id = $1 order by e.letter_id, e.n", w.wf()) +
		w.query("select grp, unsent from outbox where grp like $1 order by grp", "dead/"+w.wf()+"/%")
}

// unmoved fails unless fn leaves letters and claims as they were.
func (w *world) unmoved(what string, fn func()) {
	w.Helper()
	before := w.letterDump() + w.dump()
	fn()
	if after := w.letterDump() + w.dump(); after != before {
		w.Fatalf("%s moved something\nbefore:\n%s\nafter:\n%s", what, before, after)
	}
}

// ask for letters of the test's workflow.
type leaseMod = func(*deadletter.LeaseRequest)

func (w *world) hand(owner string, mods ...leaseMod) []deadletter.Letter {
	w.Helper()
	r := &deadletter.LeaseRequest{WorkflowID: w.wf(), Owner: owner, CallerKey: "n8n", Limit: deadletter.DefaultLimit, LeaseSeconds: deadletter.DefaultLease}
	for _, m := range mods {
		m(r)
	}
	out, err := w.store.LeaseLetters(w.Context(), r)
	if err != nil {
		w.Fatal(err)
	}
	for i := range out {
		l := &out[i]
		if l.Status != deadletter.Replaying || l.LeaseUntil <= w.now() {
			w.Fatalf("handed out without a lease: %+v", l)
		}
	}
	return out
}

// handed asks and wants exactly one letter.
func (w *world) handed(mods ...leaseMod) deadletter.Letter {
	w.Helper()
	out := w.hand("", mods...)
	if len(out) != 1 {
		w.Fatalf("%d letters were handed out, want 1", len(out))
	}
	return out[0]
}

// withheld wants nothing to be handed out, and nothing to be counted.
func (w *world) withheld(why string, mods ...leaseMod) {
	w.Helper()
	w.unmoved(why, func() {
		if out := w.hand("", mods...); len(out) != 0 {
			w.Fatalf("%s: %d letters were handed out: %+v", why, len(out), out)
		}
	})
}

func letterToken(l deadletter.Letter) deadletter.Token {
	t, ok := deadletter.ParseToken(l.LeaseToken())
	if !ok {
		panic("a token that was handed out cannot be read: " + l.LeaseToken())
	}
	return t
}

// by is a worker's report about the letter as it was handed out.
func by(l deadletter.Letter, verb deadletter.Verb, mods ...func(*deadletter.Ending)) *deadletter.Ending {
	e := &deadletter.Ending{Verb: verb, Token: letterToken(l), ByToken: true, CallerKey: "n8n", Jitter: 0.5}
	if verb == deadletter.Fail {
		e.HTTPStatus = 503
	}
	for _, m := range mods {
		m(e)
	}
	return e
}

// byPerson is an operator's decision.
func byPerson(verb deadletter.Verb) *deadletter.Ending {
	return &deadletter.Ending{Verb: verb, CallerKey: "ops", AuthorizedBy: "ada", Reason: "looked it up", Jitter: 0.5}
}

// close applies an ending; code is the refusal's, "not_found", or empty.
func (w *world) close(id string, e *deadletter.Ending) (deadletter.Ended, string) {
	w.Helper()
	one := *e
	out, err := w.store.EndLetter(w.Context(), id, &one)
	return out, w.code(err)
}

// closed applies an ending that changes the letter.
func (w *world) closed(id string, e *deadletter.Ending, want deadletter.Status, reason string) deadletter.Letter {
	w.Helper()
	out, code := w.close(id, e)
	if code != "" || !out.Changed || out.Letter.Status != want || out.Letter.Reason != reason {
		w.Fatalf("/%s: %s (%s), changed %v, code %q; want %s (%s)", e.Verb, out.Letter.Status, out.Letter.Reason, out.Changed, code, want, reason)
	}
	l, _ := w.letter(id)
	return l
}

// repeated applies an ending that is answered with 200 and changes nothing.
func (w *world) repeated(id string, e *deadletter.Ending, want deadletter.Status) {
	w.Helper()
	w.unmoved("a repeat", func() {
		if out, code := w.close(id, e); code != "" || out.Changed || out.Letter.Status != want {
			w.Fatalf("/%s: %s, changed %v, code %q; want %s, unchanged", e.Verb, out.Letter.Status, out.Changed, code, want)
		}
	})
}

// turnedAway applies an ending that is refused and changes nothing.
func (w *world) turnedAway(id string, e *deadletter.Ending, want string) {
	w.Helper()
	w.unmoved("a refusal", func() {
		if out, code := w.close(id, e); code != want {
			w.Fatalf("/%s: %s, code %q, want code %q", e.Verb, out.Letter.Status, code, want)
		}
	})
}

func (w *world) sweptLetters() deadletter.SweepReport {
	w.Helper()
	r, err := w.store.SweepLetters(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// kinds are those of entries, such as "report lease".
func kinds(entries []deadletter.Entry) string {
	var out []string
	for i := range entries {
		out = append(out, entries[i].Kind)
	}
	return strings.Join(out, " ")
}
