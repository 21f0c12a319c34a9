package proof

import "time"

// claimCall is one POST /claim.
type claimCall struct {
	slot        slot
	byID        bool // by claim_id instead of the key
	kind        string
	standardKey bool
	payload     string
	caller      caller
	lease       int64
	entity      string
	version     version
	destination string
}

func (q claimCall) kindOf(r *record) string {
	switch {
	case q.kind != "":
		return q.kind
	case q.byID:
		return r.kind
	case q.slot.step != "" || q.destination != "":
		return effect
	}
	return event
}

func (q claimCall) leaseFor(kind string) time.Duration {
	switch {
	case q.lease > 0:
		return time.Duration(q.lease) * time.Second
	case kind == effect:
		return 900 * time.Second
	}
	return 300 * time.Second
}

func (q claimCall) ask(m *model) answer {
	m.settle()
	r := m.records[q.slot]
	if r == nil && q.byID {
		return answer{code: notFound}
	}
	if r == nil {
		m.lastBorn++
		r = &record{
			slot: q.slot, born: m.lastBorn, kind: q.kindOf(nil), standardKey: q.standardKey, firstSeen: m.now, providerKey: 1,
			payload: q.payload,
		}
		m.records[q.slot] = r
		a := m.decide(r, q)
		if q.payload != "" {
			a.matches = "true"
		}
		return a
	}
	matches := ""
	if r.payload != "" && q.payload != "" {
		matches = "false"
		if r.payload == q.payload {
			matches = "true"
		}
	}
	standard := q.standardKey
	if q.byID {
		standard = r.standardKey
	}
	if q.kindOf(r) != r.kind || matches == "false" && (r.kind == effect || standard) {
		return answer{code: keyReused}
	}
	if r.payload == "" && q.payload != "" {
		r.payload, matches = q.payload, "true"
	}
	a := m.decide(r, q)
	a.matches = matches
	return a
}

// decide is the decision table, in its order.
func (m *model) decide(r *record, q claimCall) answer {
	switch {
	case r.state == unknown || r.state == completed || r.state == review || r.state == stale:
		r.lagging = false
		return m.decided(r, r.state)
	case m.live(r) && q.caller.owner != "" && q.caller == r.holder:
		m.adopt(r, q)
		r.leaseEnd = later(r.leaseEnd, m.now.Add(q.leaseFor(r.kind)))
		a := m.decided(r, proceed)
		a.reentrant = true
		return a
	case m.live(r):
		a := m.decided(r, inProgress)
		a.retryAfter = seconds(r.leaseEnd.Sub(m.now))
		return a
	case m.overtaken(r, q):
		if !r.everUnknown {
			m.adopt(r, q)
			m.move(r, stale)
		}
		return m.decided(r, stale)
	case r.state == failed && r.kind == effect && r.everUnknown && m.windowOver(r):
		m.move(r, review)
		return m.decided(r, review)
	}
	if d := max(m.paused(r, q), m.entityBusy(r, q)); d > 0 {
		if r.state == "" {
			m.adopt(r, q)
			m.move(r, pending)
		}
		a := m.decided(r, wait)
		a.retryAfter = seconds(d)
		return a
	}
	m.grant(r, q)
	return m.decided(r, proceed)
}

func (m *model) grant(r *record, q claimCall) {
	m.adopt(r, q)
	r.attempt++
	r.grants++
	r.holder, r.leaseEnd = q.caller, m.now.Add(q.leaseFor(r.kind))
	r.endLook()
	if r.windowFrom.IsZero() {
		r.windowFrom = m.now
	}
	m.move(r, processing)
	m.tokens = append(m.tokens, token{slot: r.slot, grant: r.grants})
}

// adopt: a later entity, version or destination replaces the claim's only if given.
func (m *model) adopt(r *record, q claimCall) {
	if q.entity != "" {
		r.entity = q.entity
	}
	if q.version.given {
		r.version = q.version
	}
	if q.destination != "" {
		r.destination = q.destination
	}
}

func (m *model) decided(r *record, decision string) answer {
	a := answer{
		decision: decision, status: r.state, kind: r.kind, attempt: r.attempt, providerKey: r.providerKey, resultID: r.resultID,
		reference: r.reference, firstSeen: r.firstSeen,
	}
	if r.state == processing {
		a.leaseEnd = r.leaseEnd
	}
	if decision == proceed {
		a.token = token{slot: r.slot, grant: r.grants}
	}
	return a
}

// of is the entity of a claim that is asked for, and its version there.
func (q claimCall) of(r *record) (entity string, v version) {
	entity, v = r.entity, r.version
	if q.entity != "" {
		entity = q.entity
	}
	if q.version.given {
		v = q.version
	}
	return entity, v
}

// overtaken: a newer version of the entity is completed, or processing under a live lease.
func (m *model) overtaken(r *record, q claimCall) bool {
	entity, v := q.of(r)
	if entity == "" {
		return false
	}
	if m.newest[subject{r.source, r.account, entity}].newerThan(v) {
		return true
	}
	for _, o := range m.records {
		if o != r && o.source == r.source && o.account == r.account && o.entity == entity && m.live(o) && o.version.newerThan(v) {
			return true
		}
	}
	return false
}

// entityBusy is how long another key's claim of the entity holds this one back.
func (m *model) entityBusy(r *record, q claimCall) (d time.Duration) {
	entity, _ := q.of(r)
	if entity == "" {
		return 0
	}
	for _, o := range m.records {
		if o.source != r.source || o.account != r.account || o.entity != entity || o.key == r.key {
			continue
		}
		if m.live(o) {
			d = max(d, o.leaseEnd.Sub(m.now))
		}
		if o.kind == effect && o.state == unknown {
			d = max(d, time.Minute)
		}
	}
	return d
}

// entityHeld tells whether another key's claim of the entity is under a live lease. Nobody took this one over, but
// somebody was let in instead: there are never two.
func (m *model) entityHeld(r *record) bool {
	for _, o := range m.records {
		if r.entity != "" && o.source == r.source && o.account == r.account && o.entity == r.entity && o.key != r.key && m.live(o) {
			return true
		}
	}
	return false
}

// paused is how long a pause holds the claim back, at most 300 s at a time.
func (m *model) paused(r *record, q claimCall) (d time.Duration) {
	destination := q.destination
	if destination == "" {
		destination = r.destination
	}
	scopes := []string{"all", "source." + r.source, "destination." + destination, "workflow." + q.caller.workflow}
	for _, scope := range scopes {
		p, ok := m.pauses[scope]
		switch {
		case !ok:
		case p.endless:
			d = max(d, 300*time.Second)
		case m.now.Before(p.until):
			d = max(d, min(p.until.Sub(m.now), 300*time.Second))
		}
	}
	return d
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
