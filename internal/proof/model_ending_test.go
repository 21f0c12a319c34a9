package proof

import "time"

// endCall is one POST of /complete, /mark-unknown, /mark-failed or /extend.
type endCall struct {
	verb string // complete, mark-unknown, mark-failed, extend
	slot slot
	// How the claim is named: by the back-th newest of its tokens, by its key, or by a reference.
	by        string // token, key, reference
	back      int
	reference string // what it is named by, or what a report brings

	resultID    string
	notExecuted bool // outcome: not_executed
	refusal     bool // an error whose class says not_executed
	tries       int64
	notNow      bool // retry_after alone
	lease       int64
}

// token is the token that the call names, if it has been handed out.
func (q endCall) token(m *model) (token, bool) {
	have := m.tokensOf(q.slot)
	if q.by != "token" || q.back >= len(have) {
		return token{}, false
	}
	return have[len(have)-1-q.back], true
}

// idle: the call names a token that nobody has.
func (q endCall) idle(m *model) bool {
	_, ok := q.token(m)
	return q.by == "token" && !ok
}

func (q endCall) ask(m *model) answer {
	m.settle()
	t, byToken := q.token(m)
	var r *record
	switch q.by {
	case "reference":
		r = m.withReference(q.slot.source, q.reference)
	default:
		r = m.records[q.slot]
	}
	if r == nil {
		return answer{code: notFound}
	}
	if q.verb == "complete" {
		return m.complete(r, q, t, byToken)
	}
	if q.reference != "" && q.reference != r.reference && (r.reference == "" || r.isNewest(t)) {
		if m.withReference(r.source, q.reference) != nil {
			return answer{code: keyReused}
		}
		r.reference = q.reference
	}
	if !r.isNewest(t) {
		return m.keep(r, m.refuse(r, leaseLost))
	}
	switch q.verb {
	case "mark-unknown":
		return m.markUnknown(r, t)
	case "mark-failed":
		return m.markFailed(r, q, t)
	}
	return m.extend(r, q, t)
}

func (m *model) withReference(source, reference string) *record {
	for _, r := range m.records {
		if r.source == source && r.reference == reference && reference != "" {
			return r
		}
	}
	return nil
}

// ended is what an ending answers. Where time alone moved the claim and nobody has noticed, the report itself may
// count as the change.
func (m *model) ended(r *record, changed bool) answer {
	return answer{
		status: r.state, attempt: r.attempt, changed: changed, loose: r.lagging, resultID: r.resultID, completedAt: r.completedAt,
	}
}

// refuse: what a refusal says of the status is read, and may lag like every reading.
func (m *model) refuse(r *record, code string) answer {
	return answer{code: code, status: r.state, loose: r.lagging}
}

// keep notes that a report that moved nothing is in the history all the same.
// One that says what time alone had decided may stand there as the transition instead.
func (m *model) keep(r *record, a answer) answer {
	r.keptMost++
	if !r.lagging {
		r.kept = true
	}
	r.lagging = false
	return a
}

func (m *model) complete(r *record, q endCall, t token, byToken bool) answer {
	same := r.resultID == "" || q.resultID == "" || r.resultID == q.resultID
	older := byToken && t.grant < r.grants
	switch {
	case !byToken && m.live(r):
		a := m.refuse(r, leaseLive)
		a.alerted = r.kind == effect && r.everUnknown // it is being tried again, and had happened
		return m.keep(r, a)
	case older && r.state == processing, older && r.state == completed && r.doneBy > t.grant:
		a := m.refuse(r, leaseLost)
		a.alerted = r.state == processing || !same
		return m.keep(r, a)
	case r.state == completed && !same:
		a := m.refuse(r, resultConflict)
		a.alerted = true
		return m.keep(r, a)
	case r.state == completed:
		return m.ended(r, false)
	case r.state == stale: // the action happened all the same: a person must know
		a := m.refuse(r, invalidTransition)
		a.alerted = true
		return m.keep(r, a)
	}
	flips := r.state == failed && r.kind == effect // what nobody must overlook: it had been taken for failed
	r.resultID, r.completedAt, r.doneBy = q.resultID, m.now, 0
	if byToken {
		r.doneBy = t.grant
	}
	r.endLook()
	m.move(r, completed)
	m.keepNewest(r)
	a := m.ended(r, true)
	if a.alerted = flips; flips {
		return m.keep(r, a)
	}
	return a
}

func (m *model) markUnknown(r *record, t token) answer {
	switch {
	case r.state == processing:
		since := m.now
		if since.After(r.leaseEnd) {
			since = r.leaseEnd
		}
		r.becomeUnknown(since)
		m.move(r, unknown)
		return m.ended(r, true)
	case r.state == failed && r.kind == effect:
		r.becomeUnknown(m.now)
		m.move(r, unknown)
		return m.ended(r, true)
	case r.state == unknown:
		asked := r.lookOut
		if asked {
			m.noAnswer(r)
		}
		a := m.ended(r, false)
		r.lagging = false
		if asked && t.look > 0 {
			return m.keep(r, a)
		}
		return a
	case r.state == completed || r.state == review:
		return m.ended(r, false)
	}
	return m.refuse(r, invalidTransition)
}

func (m *model) markFailed(r *record, q endCall, t token) answer {
	switch r.state {
	case processing:
		switch {
		case r.kind == event && q.notNow:
			r.attempt--
			m.move(r, pending)
		case r.kind == event, q.notExecuted, q.refusal && q.tries == 1: // the lease of an effect is live here
			m.move(r, failed)
		default:
			r.becomeUnknown(m.now)
			m.move(r, unknown)
		}
		return m.ended(r, true)
	case unknown:
		switch {
		case t.look == 0 || !m.lookLive(r) || !q.notExecuted:
			return m.keep(r, m.ended(r, false))
		case m.now.Before(r.unknownSince.Add(m.rules(r).notFoundAfter)):
			m.noAnswer(r)
			return m.keep(r, m.ended(r, false))
		}
		r.endLook()
		m.move(r, failed)
		return m.ended(r, true)
	case completed:
		a := m.ended(r, false)
		a.alerted = true
		return m.keep(r, a)
	case failed, review:
		return m.ended(r, false)
	case pending:
		if q.notNow { // sent again after a lost answer: no second effect, and no error either
			return m.ended(r, false)
		}
	}
	return m.refuse(r, invalidTransition)
}

func (m *model) extend(r *record, q endCall, t token) answer {
	end := m.now.Add(time.Duration(q.lease) * time.Second)
	switch {
	case r.state == processing && !m.live(r) && m.entityHeld(r):
		return m.refuse(r, leaseLost)
	case r.state == processing: // an event's also after its end, since nobody took over
		changed := end.After(r.leaseEnd)
		r.leaseEnd = later(r.leaseEnd, end)
		a := m.ended(r, changed)
		a.leaseEnd = r.leaseEnd
		return a
	case r.state == unknown && t.look > 0 && r.lookOut:
		changed := end.After(r.lookEnd)
		r.lookEnd = later(r.lookEnd, end)
		a := m.ended(r, changed)
		a.leaseEnd = r.lookEnd
		return a
	case r.state == completed:
		return m.refuse(r, leaseLost)
	}
	return m.refuse(r, invalidTransition)
}
