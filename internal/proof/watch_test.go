package proof

import (
	"fmt"
	"time"

	"holdfast/internal/ledger"
)

// watch judges a history by its answers alone: the promises that must hold whatever the tables say. It knows of the
// model only what was asked, never what should have been answered.
type watch struct {
	of map[slot]*seen
}

// seen is what callers have been told about one claim.
type seen struct {
	kind        string
	token       token
	liveUntil   time.Time // of a worker's lease that nothing has ended
	completed   bool
	resultID    string
	unknown     bool
	providerKey int
	replaced    bool     // a person asked for a new provider key since
	reference   string   // one that a caller was told is kept
	moved       []string // the states that callers were told they brought about
}

func newWatch() *watch { return &watch{of: map[slot]*seen{}} }

func (w *watch) claim(s slot) *seen {
	if w.of[s] == nil {
		w.of[s] = &seen{}
	}
	return w.of[s]
}

// about is what a call is about, as far as the caller knows.
type about struct {
	slot  slot
	token token
	known bool
}

func (w *watch) names(c call, m *model) about {
	switch q := c.(type) {
	case claimCall:
		return about{slot: q.slot, known: true}
	case resolveCall:
		return about{slot: q.slot, known: true}
	case endCall:
		t, _ := q.token(m)
		if q.by != "reference" {
			return about{q.slot, t, true}
		}
		for s, seen := range w.of {
			if s.source == q.slot.source && seen.reference == q.reference && q.reference != "" {
				return about{s, token{}, true}
			}
		}
	}
	return about{}
}

// see looks at one answer, and says which promise it breaks.
func (w *watch) see(m *model, c call, n about, a answer) string {
	if !n.known {
		return ""
	}
	s := w.claim(n.slot)
	s.timePasses(m.now)
	switch q := c.(type) {
	case claimCall:
		return s.claimed(m.now, a)
	case endCall:
		return s.reported(q, n.token, a)
	case resolveCall:
		if a.code == "" && q.newKey {
			s.replaced = true
		}
		if a.code == "" {
			s.status(a, true)
			s.completed, s.resultID = a.status == completed, a.resultID
		}
	}
	return ""
}

// timePasses: no lease outlives its end, and an effect whose lease ended without a report is unknown from then on.
func (s *seen) timePasses(now time.Time) {
	if !s.liveUntil.IsZero() && !now.Before(s.liveUntil) {
		s.liveUntil, s.unknown = time.Time{}, s.unknown || s.kind == effect
	}
}

func (s *seen) claimed(now time.Time, a answer) string {
	if a.code != "" {
		return ""
	}
	s.kind = a.kind
	if s.providerKey != 0 && a.providerKey != s.providerKey && !s.replaced {
		return "the provider key changed without a person"
	}
	s.providerKey, s.replaced = a.providerKey, false
	if s.completed && (a.decision != completed || a.resultID != s.resultID) {
		return fmt.Sprintf("it was completed with %q, and that is not what a claim is told", s.resultID)
	}
	live := now.Before(s.liveUntil)
	switch {
	case a.decision == proceed && a.reentrant && (!live || a.token != s.token):
		return "a lease was handed out again that is not the live one"
	case a.decision == proceed && !a.reentrant && live:
		return "two leases are live at once"
	case a.decision == proceed && !a.reentrant && a.token == s.token:
		return "a new lease has the token of an old one"
	case a.decision == proceed && s.unknown:
		return "what was unknown became free without a word from the destination or a person"
	case a.decision == proceed && !a.reentrant:
		s.moved = append(s.moved, processing)
	}
	if a.decision == proceed {
		s.token, s.liveUntil = a.token, a.leaseEnd
	}
	if a.reference != s.reference && s.reference != "" {
		return fmt.Sprintf("the reference %q is lost", s.reference)
	}
	s.reference = a.reference
	s.status(a, false)
	return ""
}

func (s *seen) reported(q endCall, t token, a answer) string {
	if a.code != "" {
		if q.verb != "complete" && q.reference != "" {
			s.reference = "" // it may be kept whatever the answer
		}
		return ""
	}
	if older := t.grant > 0 && t.grant < s.token.grant; older && (q.verb != "complete" || !s.liveUntil.IsZero()) {
		return "a token that is not the newest was obeyed"
	}
	switch {
	case q.verb == "extend" && t.look == 0:
		if s.completed {
			return "the lease of a completed claim was extended"
		}
		s.liveUntil = a.leaseEnd
	case a.changed && a.status == failed && s.unknown && t.look == 0:
		return "a worker's word made free what was unknown"
	}
	if q.verb != "complete" && q.reference != "" {
		s.reference = q.reference
	}
	if s.completed && a.resultID != s.resultID {
		return fmt.Sprintf("it was completed with %q, and now has %q", s.resultID, a.resultID)
	}
	if q.verb == "complete" && q.resultID != "" && a.changed && a.resultID != q.resultID {
		return "a receipt was taken and another id was kept"
	}
	if a.changed && q.verb != "extend" {
		s.moved = append(s.moved, a.status)
	}
	s.status(a, a.changed)
	return ""
}

// status takes over what an answer says about where the claim stands; decided tells that a word ended an unknown.
func (s *seen) status(a answer, decided bool) {
	switch a.status {
	case processing:
	case unknown:
		s.unknown, s.liveUntil = true, time.Time{}
	case completed:
		s.completed, s.resultID = true, a.resultID
		s.unknown, s.liveUntil = false, time.Time{}
	case failed:
		s.liveUntil = time.Time{}
		s.unknown = s.unknown && !decided
	default:
		s.liveUntil = time.Time{}
	}
}

// atEnd looks at what is stored: what was acknowledged is there, and the history tells it in order and once.
func (w *watch) atEnd(s slot, c *ledger.Claim, history []ledger.HistoryEntry) string {
	told := w.claim(s)
	if told.completed && (string(c.Status) != completed || c.ResultID != told.resultID) {
		return fmt.Sprintf("it was acknowledged as completed with %q and is %s with %q", told.resultID, c.Status, c.ResultID)
	}
	if told.reference != "" && c.Reference != told.reference {
		return fmt.Sprintf("the reference %q is lost", told.reference)
	}
	at := ledger.Status("")
	ids := map[string]bool{}
	var before ledger.Instant
	next := 0
	for i, h := range history {
		switch {
		case ids[h.ID]:
			return fmt.Sprintf("entry %d stands there twice", i+1)
		case h.At < before:
			return fmt.Sprintf("entry %d is out of order", i+1)
		case !isKept(h) && h.From != at:
			return fmt.Sprintf("entry %d goes from %q, but the claim was %q", i+1, h.From, at)
		}
		ids[h.ID], before = true, h.At
		if isKept(h) {
			continue
		}
		at = h.To
		if next < len(told.moved) && string(h.To) == told.moved[next] {
			next++
		}
	}
	if at != c.Status {
		return fmt.Sprintf("the claim is %s, and that is not how its history ends", c.Status)
	}
	if next < len(told.moved) {
		return fmt.Sprintf("callers were told of %v, of which number %d is missing", told.moved, next+1)
	}
	return ""
}
