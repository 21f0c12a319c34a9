package deadletter

import (
	"holdfast/internal/failure"
	"holdfast/internal/ledger"
)

// fail is a worker's word that the attempt failed, or that nothing was tried.
func (out *Ended) fail(e *Ending, now ledger.Instant) {
	l := &out.Letter
	l.endLease(endedByFail)
	if e.NotNow {
		l.AttemptCount = max(0, l.AttemptCount-1)
		l.Backoff = notNowSeconds(e.RetryAfter)
		l.move(decision{to: Queued, reason: ReasonNotNow, due: later(now, l.Backoff)}, now, 0)
		out.write(l.entry(kindFailed, now))
		return
	}
	in := failure.Input{
		Error: e.Error, HTTPStatus: int(e.HTTPStatus), AttemptCount: int(l.AttemptCount), MaxAttempts: int(l.MaxAttempts),
		RetryAfter: e.RetryAfter, Redact: e.Redact,
	}
	if l.Play == PlayRequest {
		in.Method, in.Node = l.Method, l.Node // it is this request that was sent again
	}
	v := failure.Classify(in)
	l.judged(v)
	l.Message, l.Error = failText(e, v), failError(e)
	l.move(l.retry(), now, e.Jitter)

	entry := l.entry(kindFailed, now)
	entry.HTTPStatus, entry.Class, entry.Message = l.HTTPStatus, string(l.Class), l.Message
	out.write(entry)
	out.Alert = l.alert(now)
}

// notNowSeconds is what a worker was told to wait, within reason.
func notNowSeconds(retryAfter *int64) int64 {
	const week = 7 * 24 * 3600
	if retryAfter == nil {
		return 0
	}
	return min(max(*retryAfter, 0), week)
}

func failText(e *Ending, v failure.Verdict) string {
	if text := failure.Text(e.Error, maxMessage, e.Redact...); text != "" {
		return text
	}
	return v.Summary
}

// failError is the error without its secrets. One that is too long to keep is replaced by its text.
func failError(e *Ending) []byte {
	if len(e.Error) == 0 {
		return nil
	}
	if clean := failure.RedactJSON(e.Error, e.Redact); len(clean) <= maxError {
		return clean
	}
	return quote([]byte(failure.Text(e.Error, maxMessage, e.Redact...)))
}
