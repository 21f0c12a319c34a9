package deadletter

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"holdfast/internal/failure"
	"holdfast/internal/ledger"
)

// Facts are what a decision needs to know besides the report.
type Facts struct {
	Now         ledger.Instant
	Claim       *ledger.Claim // the claim the letter belongs to, as it stands after the report ended its lease; nil: none
	HoldsClaims bool          // the execution holds claims
	Completed   bool          // its event was completed before the report came
	Ended       bool          // the report ended the claim's lease: the run held an open event
	Counted     bool          // this attempt is counted already: a child and its parent report one failure
}

// maxIdentity bounds what an index has to take; longer ones stand in it as their hash.
const maxIdentity = 512

// handlerIdentity begins the identity of an error workflow's own failures.
const handlerIdentity = "handler:"

// Identity is what makes two reports one letter's: the claim c where the execution holds one, else what the report
// says of itself. Each kind has a prefix of its own. What says nothing of itself is only like its own bytes: no two
// reports are one because both lack an id.
func Identity(r *Report, c *ledger.Claim) string {
	switch {
	case c != nil:
		return "claim:" + c.ID
	case r.Handler && r.WorkflowID != "":
		return identityOf(handlerIdentity, r.WorkflowID)
	case r.EventID != "":
		return identityOf("event:", part(r.WorkflowID)+"\n"+r.EventID)
	case r.ExecutionID != "":
		return identityOf("run:", part(r.WorkflowID)+"\n"+part(r.ExecutionID)+"\n"+strconv.FormatInt(r.Established, 10))
	}
	return "bytes:" + hex.EncodeToString(r.Digest)
}

func identityOf(kind, text string) string {
	if len(text) > maxIdentity {
		sum := sha256.Sum256([]byte(text))
		text = "sha256 " + hex.EncodeToString(sum[:])
	}
	return kind + text
}

// part is s in front of a line break: no choice of ids can make two identities one.
func part(s string) string {
	if strings.Contains(s, "\n") || strings.HasPrefix(s, `"`) {
		return strconv.Quote(s)
	}
	return s
}

// OtherRun tells whether the letter is about an execution that had the report's number in another n8n: one that was set
// up anew counts from 1 again, and its failures are none of the old ones.
func OtherRun(l *Letter, r *Report) bool {
	established, same := strings.CutPrefix(l.Identity, "run:"+part(r.WorkflowID)+"\n"+part(r.ExecutionID)+"\n")
	return same && established != "0" && r.Established != 0 && established != strconv.FormatInt(r.Established, 10)
}

// Known tells whether the report, or the execution that it is about, has been reported to the letter already. An
// execution that was only missed by the sweeper has not: its report brings the cause.
func Known(l *Letter, r *Report, entries []Entry) bool {
	for i := range entries {
		e := &entries[i]
		if e.Kind != kindReport {
			continue
		}
		if len(r.Digest) > 0 && string(e.Digest) == string(r.Digest) {
			return true
		}
		if r.ExecutionID != "" && e.ExecutionID == r.ExecutionID && oneWorkflow(e.WorkflowID, r.WorkflowID) {
			return true
		}
	}
	return false
}

// oneWorkflow: an id that one side does not know contradicts nothing.
func oneWorkflow(a, b string) bool { return a == "" || b == "" || a == b }

// Adopts tells whether a report that has no letter of its own goes on with this one, to which its executions lead:
// what it retried had claimed nothing, or a child and its parent each hold an effect.
func (l *Letter) Adopts(f Facts) bool {
	return f.Claim == nil || l.ClaimID == "" || f.Counted && f.Claim.Kind == ledger.Effect
}

// New makes the letter of a first report.
func New(r *Report, f Facts) (Letter, Entry, *Alert) {
	l := Letter{Identity: Identity(r, f.Claim), MaxAttempts: DefaultMaxAttempts, Play: PlayRequest, AttemptCount: attempts(f.Claim), CreatedAt: f.Now}
	l.ID, l.Secret = r.Fresh.New()
	l.take(r, f)
	l.describe(r, f.Claim)
	return l.conclude(r, f, l.decide(r, f))
}

// Again adds the report of another attempt to its letter. The lease under which the attempt ran ends; what was
// settled is open again if the decision says so.
func Again(l *Letter, r *Report, f Facts) (Letter, Entry, *Alert) {
	out := *l
	if f.Counted || out.isAbout(r) {
		return out.hearAgain(r, f)
	}
	if r.OwnCode != "" && !r.Handler && out.Status.Open() {
		// A run was turned away by our own answer. That says nothing about the failure which the letter waits for.
		return out.note(r, f)
	}
	out.leaveReplay()
	out.count(r, f)
	if out.Status == Replaying {
		out.void(endedByReport)
	}
	out.take(r, f)
	out.describe(r, f.Claim)
	return out.conclude(r, f, out.decide(r, f))
}

// leaveReplay: a new failure of what is settled is none of its replay's. A worker's word that it was done settles nothing,
// though: the run that it started may fail yet, and has had its one try.
func (l *Letter) leaveReplay() {
	if !l.Status.Open() && !(l.Reason == ReasonReplayed && l.Play == PlayWorkflow) {
		l.ReplayID = ""
	}
}

// isAbout tells whether the report is about the failure that the letter holds as its newest: the sweeper had missed
// that run, or a child and its parent report one failure.
func (l *Letter) isAbout(r *Report) bool {
	switch {
	case l.ExecutionID == "":
		return false
	case r.ExecutionID == l.ExecutionID:
		return oneWorkflow(r.WorkflowID, l.WorkflowID)
	}
	return r.ParentExecutionID == l.ExecutionID || r.ChildExecutionID == l.ExecutionID && oneWorkflow(r.ChildWorkflowID, l.WorkflowID)
}

// hearAgain takes a further report of the failure that is counted already. While the letter waits, the decision is
// made anew, since this report may know the cause, or that claims are held. Once it is being replayed or settled, or a
// person has decided, the report is too late to move anything.
func (l *Letter) hearAgain(r *Report, f Facts) (Letter, Entry, *Alert) {
	// A crash says no more than a lease that ended, and our own refusal nothing about the failure.
	silent := r.OwnCode != "" || r.Crash && !f.Completed || l.wasTold(r, f)
	waits := l.Status == Dead || l.Status == Queued && l.Reason != ReasonRequeued && l.ReplayID == ""
	// The run was slow, not lost: it completed its event late, and failed behind that.
	failedAfter := l.Status == Resolved && l.Reason == ReasonCompleted && f.Completed && !r.Crash && !r.AtComplete
	if silent || !waits && !failedAfter {
		return l.note(r, f)
	}
	was := *l
	l.AttemptCount = max(l.AttemptCount, attempts(f.Claim))
	l.take(r, f)
	if r.ChildExecutionID == "" { // the parent knows less about it than the child
		l.describe(r, f.Claim)
	}
	out, e, alert := l.conclude(r, f, l.decide(r, f))
	if was.Status == Dead && out.Reason == was.Reason {
		alert = nil // a person was told
	}
	return out, e, alert
}

// wasTold tells whether the run had said itself, by /mark-failed, what failed it. That it stops afterwards with an error
// of its own making, so as to be seen in n8n, is no new failure.
func (l *Letter) wasTold(r *Report, f Facts) bool {
	c := f.Claim
	return c != nil && c.ID == l.ClaimID && c.Status == ledger.Failed && !f.Ended && !f.Completed && c.Origin.ExecutionID == r.ExecutionID &&
		l.Reason != ReasonLeaseExpired && l.Class != failure.Unclassified
}

// note keeps a report that moves nothing.
func (l *Letter) note(r *Report, f Facts) (Letter, Entry, *Alert) {
	l.Reports++
	l.UpdatedAt = f.Now
	return *l, l.reported(r, f.Now), nil
}

func (l *Letter) conclude(r *Report, f Facts, d decision) (Letter, Entry, *Alert) {
	l.move(d, f.Now, r.Fresh.jitter())
	l.Reports++
	return *l, l.reported(r, f.Now), l.alert(f.Now)
}

// count counts the attempt that failed. An event counts its own attempts, as its runs claim it; a run that did not
// claim, such as a retry from the failed node, counts here, unless the lease under which it ran has counted it.
func (l *Letter) count(r *Report, f Facts) {
	leased := l.leaseLive(f.Now)
	claimed := f.Claim != nil && l.ClaimID != "" && (r.RetryOf == "" || f.Claim.Origin.ExecutionID == r.ExecutionID)
	if !leased && !claimed {
		l.AttemptCount++
	}
	l.AttemptCount = max(l.AttemptCount, attempts(f.Claim))
}

// attempts are those that a claim has counted.
func attempts(c *ledger.Claim) int64 {
	if c == nil {
		return 1
	}
	return max(1, c.Attempt)
}

// isHandler tells whether the letter is of an error workflow that failed itself.
func (l *Letter) isHandler() bool {
	return l.Reason == ReasonHandlerFailed || strings.HasPrefix(l.Identity, handlerIdentity)
}
