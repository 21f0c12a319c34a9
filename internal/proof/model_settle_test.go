package proof

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// resolveCall is one POST /claims/{id}/resolve by a person.
type resolveCall struct {
	slot     slot
	to       string
	resultID string
	newKey   bool
}

func (q resolveCall) ask(m *model) answer {
	m.settle()
	r := m.records[q.slot]
	switch {
	case r == nil:
		return answer{code: notFound}
	case m.live(r):
		return m.refuse(r, leaseLive)
	case r.state == completed && q.to == completed && r.resultID != "" && q.resultID != "" && r.resultID != q.resultID:
		return m.refuse(r, resultConflict)
	case r.state == completed && q.to != completed && (r.kind == effect || q.to != failed):
		return m.refuse(r, invalidTransition)
	case q.to == failed && r.state != failed && m.windowOver(r) && !q.newKey:
		return answer{code: invalidRequest}
	}
	// A key under which nothing was tried yet is as good as new: the call sent again replaces nothing.
	replace := q.newKey && !r.windowFrom.IsZero()
	if r.state == q.to && !replace {
		return m.ended(r, false)
	}
	if replace {
		r.providerKey++
		r.windowFrom = time.Time{}
	}
	r.void, r.doneBy = r.grants, 0
	r.endLook()
	r.resultID, r.completedAt = "", time.Time{}
	if q.to == completed {
		r.resultID, r.completedAt = q.resultID, m.now
	}
	m.move(r, q.to)
	if q.to == completed {
		m.keepNewest(r)
	}
	return m.ended(r, true)
}

// lookCall is one POST /reconcile/lease.
type lookCall struct {
	source, owner string
	limit         int64
	lease         int64
}

func (q lookCall) ask(m *model) answer {
	m.settle()
	var open []*record
	for _, r := range m.records {
		if r.state == unknown && r.source == q.source && m.paused(r, claimCall{caller: r.holder}) == 0 {
			open = append(open, r)
		}
	}
	slices.SortFunc(open, func(a, b *record) int {
		return cmp.Or(a.unknownSince.Compare(b.unknownSince), cmp.Compare(a.born, b.born))
	})
	var handed []*record
	for _, r := range open { // the same owner's unreported batch
		if q.owner != "" && m.lookLive(r) && r.looker == q.owner && len(handed) < int(q.limit) {
			handed = append(handed, r)
		}
	}
	if len(handed) > 0 {
		return m.handed(handed)
	}
	for _, r := range open {
		if m.lookLive(r) || m.now.Before(r.unknownSince.Add(m.rules(r).askAfter)) || m.now.Before(r.nextLook) || len(handed) == int(q.limit) {
			continue
		}
		r.looks++
		r.looker, r.lookOut, r.lookEnd = q.owner, true, m.now.Add(time.Duration(q.lease)*time.Second)
		handed = append(handed, r)
		m.tokens = append(m.tokens, token{r.slot, r.grants, r.looks})
	}
	return m.handed(handed)
}

func (m *model) handed(list []*record) answer {
	var a answer
	for _, r := range list {
		a.handed += handedOut(token{r.slot, r.grants, r.looks}, r.attempt, r.unknownSince, r.lookEnd, r.reference)
	}
	return a
}

// handedOut writes one element of what /reconcile/lease answers.
func handedOut(t token, attempt int, since, end time.Time, reference string) string {
	return fmt.Sprintf("[%v attempt %d, unknown since %s, until %s, reference %q]", t, attempt, clockTime(since), clockTime(end), reference)
}

// pauseCall is PUT or, with resume, DELETE /pauses/{scope}.
type pauseCall struct {
	scope   string
	seconds int64 // 0: until it is cleared
	resume  bool
}

func (q pauseCall) ask(m *model) answer {
	if q.resume {
		_, had := m.pauses[q.scope]
		delete(m.pauses, q.scope)
		return answer{changed: had}
	}
	m.pauses[q.scope] = pause{q.seconds == 0, m.now.Add(time.Duration(q.seconds) * time.Second)}
	return answer{}
}

// sweepCall lets the sweeper come by. All it does in the model is that the tables show what time has decided: no
// decision may depend on it.
type sweepCall struct{}

func (sweepCall) ask(m *model) answer {
	m.settle()
	for _, r := range m.records {
		r.lagging = false
	}
	return answer{}
}

// passCall lets time go by: for a while, or to where something of a claim ends.
type passCall struct {
	by  time.Duration
	to  string // lease, window, ask, not found, look, next look; empty: by
	of  slot
	off time.Duration
}

// target is when the call ends; not before now.
func (q passCall) target(m *model) time.Time {
	if q.to == "" {
		return m.now.Add(q.by)
	}
	r := m.records[q.of]
	if r == nil {
		return m.now
	}
	at := time.Time{}
	switch q.to {
	case "lease":
		at = r.leaseEnd
	case "window":
		if !r.windowFrom.IsZero() {
			at = r.windowFrom.Add(m.rules(r).window)
		}
	case "ask":
		at = r.unknownSince.Add(m.rules(r).askAfter)
	case "not found":
		at = r.unknownSince.Add(m.rules(r).notFoundAfter)
	case "look":
		at = r.lookEnd
	case "next look":
		at = r.nextLook
	}
	return later(m.now, at.Add(q.off))
}

func (q passCall) ask(m *model) answer {
	m.now = q.target(m)
	return answer{}
}

func clockTime(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return strings.TrimSuffix(t.UTC().Format("Jan 2 15:04:05.000000"), ".000000")
}
