package deadletter

import (
	"holdfast/internal/failure"
	"holdfast/internal/ledger"
)

// How the newest lease ended, as Letter.LastVerb. It is empty while the lease runs.
const (
	endedByResolve = string(Resolve) // its worker said so
	endedByFail    = string(Fail)    // its worker said so
	endedByReport  = "report"        // the run that it started was reported as failed
	endedByTime    = "expire"
	endedByPerson  = "person"
	endedBySettle  = "settle" // its event was completed
)

// leaseLive tells whether a worker holds the letter now.
func (l *Letter) leaseLive(now ledger.Instant) bool {
	return l.Status == Replaying && now < l.LeaseUntil
}

// endLease notes how the newest lease ended. The word of its worker stays, so that it can be repeated.
func (l *Letter) endLease(how string) {
	if l.LastVerb == "" || l.LastVerb == endedByTime {
		l.LastVerb = how
	}
}

// void ends the newest lease without its worker: nothing that comes under it moves the letter.
func (l *Letter) void(how string) {
	if l.Lease == 0 {
		return
	}
	l.VoidLease = l.Lease
	l.endLease(how)
}

// LeaseOwner is how the holder of a letter's lease is kept: by its API key, whose name has no colon, and the name it
// gave. It is empty for who gave none: nobody's lease is handed out again.
func LeaseOwner(r *LeaseRequest) string {
	if r.Owner == "" {
		return ""
	}
	return r.CallerKey + ":" + r.Owner
}

// Take hands a letter out. ok is false where it must not be handed out now; ok without an entry is the same owner's
// live lease again, and nothing is to be written. A lease whose time is over is first to be ended with Expire: its
// next attempt is due after a backoff only.
func Take(l *Letter, r *LeaseRequest, now ledger.Instant) (out Letter, e *Entry, ok bool) {
	out = *l
	owner := LeaseOwner(r)
	if l.leaseLive(now) {
		return out, nil, owner != "" && l.LeaseOwner == owner
	}
	if l.Status != Queued || now < l.NextRetryAt || l.AttemptCount >= l.MaxAttempts {
		return out, nil, false
	}
	seconds := r.LeaseSeconds
	if seconds < 1 {
		seconds = DefaultLease
	}
	out.move(decision{to: Replaying, reason: l.Reason}, now, 0)
	out.AttemptCount++
	out.Lease++
	out.LeaseOwner, out.LeaseUntil, out.LastVerb = owner, later(now, seconds), ""
	entry := out.entry(kindLease, now)
	entry.Owner, entry.By = r.Owner, r.CallerKey
	return out, &entry, true
}

// Expire ends the lease of a replaying letter whose time is over. The next attempt counts from the lease's end,
// whenever somebody notices. A letter whose lease still runs is returned unchanged, and the entry's Kind is empty.
func Expire(l *Letter, jitter float64, now ledger.Instant) (Letter, Entry, *Alert) {
	out := *l
	if l.Status != Replaying || now < l.LeaseUntil {
		return out, Entry{}, nil
	}
	d := decision{to: Dead, reason: ReasonLeaseExpired}
	out.Backoff = failure.Backoff(int(l.AttemptCount), nil)
	if l.AttemptCount < l.MaxAttempts && l.ReplayID == "" {
		d.to, d.due = Queued, later(l.LeaseUntil, failure.Jitter(out.Backoff, jitter))
	}
	out.endLease(endedByTime)
	out.move(d, now, jitter)
	e := out.entry(kindExpired, now)
	e.Owner, e.Message = l.LeaseOwner, "the lease ended without a report"
	return out, e, out.alert(now)
}

// Settle resolves a letter without its worker: its event was completed after all, or n8n says that the run succeeded.
// A letter that waits for nothing is returned unchanged, and the entry's Kind is empty.
func Settle(l *Letter, reason, by string, now ledger.Instant) (Letter, Entry) {
	out := *l
	if !l.Status.Open() {
		return out, Entry{}
	}
	if l.Reason == ReasonFailedAfter && reason == ReasonSucceeded {
		reason = ReasonCompletedMeantime // n8n contradicts the report
	}
	if l.Lease > 0 {
		out.endLease(endedBySettle)
	}
	out.move(decision{to: Resolved, reason: reason}, now, 0)
	e := out.entry(kindSettled, now)
	e.By = by
	return out, e
}
