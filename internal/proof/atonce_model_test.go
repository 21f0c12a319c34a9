package proof

import (
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"
)

// asked is one call of many at once, about one key.
type asked struct {
	op      string // claim, complete, complete by key, mark-unknown, mark-failed, extend, look
	key     string
	effect  bool
	owner   string
	attempt int    // of the token
	look    string // the token, where it is a reconciler's
	result  string
	lease   time.Duration
	call    int64 // nanoseconds by the wall, as the caller's clock has it
	done    int64 // never, for a call that got no answer
}

const never = math.MaxInt64 / 2

// heard is what came back; a call without an answer may have happened or not.
type heard struct {
	answered  bool
	code      string
	decision  string
	status    string
	attempt   int
	reentrant bool
	changed   bool
	result    string
	until     int64  // lease_expires_at
	look      string // the token that a look got; empty for none
}

// claimed is the state of one key. What a lost answer would have told is known only within bounds.
type claimed struct {
	status  string
	attempt int
	owner   string
	lo, hi  int64 // the worker's lease ends between
	result  string
	doneBy  int

	look           string // the newest reconciler's token
	lookOut        bool
	lookLo, lookHi int64
	nextLook       int64
}

// atOnce is the sequential specification for porcupine. Time is not one of its clocks: a call happened at some moment
// between its sending and its answer, by a server whose clock is within slack of the caller's, so a lease may or may not
// be over for it wherever both are possible.
func atOnce(slack time.Duration) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{claimed{}} },
		Step: func(state, input, output any) (next []any) {
			q, a := input.(asked), output.(heard)
			s := state.(claimed)
			if !a.answered {
				next = append(next, s)
			}
			for _, v := range s.moments(q, int64(slack)) {
				for _, o := range v.outcomes(q, a) {
					if !a.answered || o.says(a) {
						next = append(next, o.next)
					}
				}
			}
			return next
		},
		DescribeOperation: func(input, output any) string { return describe(input.(asked), output.(heard)) },
	}
	return m.ToModel()
}

// moment is a state together with what the time may be for a call.
type moment struct {
	claimed
	early, late int64 // the server's time is between
	live        bool  // the worker's lease
	lookLive    bool
	settled     bool // the effect's lease was over: a report may count as the change
}

func (s claimed) moments(q asked, slack int64) (out []moment) {
	base := moment{claimed: s, early: q.call - slack, late: min(q.done+slack, never)}
	var workers []moment
	switch {
	case s.status != processing:
		workers = []moment{base}
	default:
		if base.early < s.hi {
			m := base
			m.live = true
			workers = append(workers, m)
		}
		if base.late >= s.lo {
			m := base
			if q.effect {
				m.status, m.settled, m.lookOut, m.nextLook = unknown, true, false, 0
			}
			workers = append(workers, m)
		}
	}
	for _, m := range workers {
		if m.status != unknown || !m.lookOut {
			out = append(out, m)
			continue
		}
		if m.early < m.lookHi {
			live := m
			live.lookLive = true
			out = append(out, live)
		}
		if m.late >= m.lookLo {
			out = append(out, m)
		}
	}
	return out
}

// outcome is one way in which a call can go.
type outcome struct {
	want         heard
	next         claimed
	anyChanged   bool
	minUntil     int64 // the bounds of lease_expires_at, where it is shown
	maxUntil     int64
	untilMatters bool
}

func (o outcome) says(a heard) bool {
	w := o.want
	if w.code != "" || a.code != "" {
		return w.code == a.code
	}
	if o.untilMatters && (a.until < o.minUntil || a.until > o.maxUntil) {
		return false
	}
	return w.decision == a.decision && w.status == a.status && w.attempt == a.attempt && w.reentrant == a.reentrant &&
		(w.changed == a.changed || o.anyChanged) && w.result == a.result && w.look == a.look
}

func (m moment) outcomes(q asked, a heard) []outcome {
	switch q.op {
	case "claim":
		return []outcome{m.claim(q, a)}
	case "complete", "complete by key":
		return []outcome{m.complete(q)}
	case "look":
		return m.lookUp(q, a)
	}
	if q.attempt != m.attempt || q.look != "" && q.look != m.look {
		return []outcome{{want: heard{code: leaseLost}, next: m.claimed}}
	}
	switch q.op {
	case "mark-unknown":
		return []outcome{m.markUnknown(q)}
	case "mark-failed":
		return []outcome{m.markFailed(q)}
	}
	return []outcome{m.extend(q, a)}
}

// leased gives s a lease from now on: exact where the answer tells.
func (m moment) leased(s claimed, q asked, a heard) (claimed, int64, int64) {
	lo, hi := m.early+int64(q.lease), min(m.late+int64(q.lease), never)
	s.lo, s.hi = lo, hi
	if a.until != 0 {
		s.lo, s.hi = a.until, a.until
	}
	return s, lo, hi
}

func (m moment) claim(q asked, a heard) outcome {
	s := m.claimed
	want := heard{decision: s.status, status: s.status, attempt: s.attempt, result: s.result}
	switch {
	case s.status == processing && m.live && q.owner != "" && q.owner == s.owner:
		want.decision, want.reentrant = proceed, true
		next, lo, hi := m.leased(s, q, a)
		if a.until == 0 {
			next.lo, next.hi = max(s.lo, next.lo), max(s.hi, next.hi)
		}
		return outcome{want: want, next: next, untilMatters: true, minUntil: max(lo, s.lo), maxUntil: max(hi, s.hi)}
	case s.status == processing && m.live:
		want.decision = inProgress
		next := s
		if a.until != 0 {
			next.lo, next.hi = a.until, a.until
		}
		return outcome{want: want, next: next, untilMatters: true, minUntil: s.lo, maxUntil: s.hi}
	case s.status == "" || s.status == failed || s.status == processing:
		next, lo, hi := m.leased(s, q, a)
		next.status, next.attempt, next.owner, next.lookOut, next.nextLook = processing, s.attempt+1, q.owner, false, 0
		want = heard{decision: proceed, status: processing, attempt: next.attempt}
		return outcome{want: want, next: next, untilMatters: true, minUntil: lo, maxUntil: hi}
	}
	return outcome{want: want, next: s}
}

func (m moment) ended(changed bool) outcome {
	return outcome{
		want: heard{status: m.status, attempt: m.attempt, changed: changed, result: m.result}, next: m.claimed, anyChanged: m.settled,
	}
}

func (m moment) refused(code string) outcome {
	return outcome{want: heard{code: code}, next: m.claimed}
}

func (m moment) complete(q asked) outcome {
	byKey := q.op == "complete by key"
	older := !byKey && q.attempt < m.attempt
	switch {
	case m.status == "":
		return m.refused(notFound)
	case byKey && m.live:
		return m.refused(leaseLive)
	case older && (m.status == processing || m.status == completed && m.doneBy > q.attempt):
		return m.refused(leaseLost)
	case m.status == completed && m.result != q.result:
		return m.refused(resultConflict)
	case m.status == completed:
		return m.ended(false)
	}
	m.status, m.result, m.doneBy, m.lookOut = completed, q.result, q.attempt, false
	return m.ended(true)
}

func (m moment) markUnknown(q asked) outcome {
	switch {
	case m.status == processing, m.status == failed && q.effect:
		m.status, m.lookOut, m.nextLook = unknown, false, 0
		return m.ended(true)
	case m.status == failed:
		return m.refused(invalidTransition)
	case m.status == unknown && m.lookOut:
		m.lookOut, m.nextLook = false, m.early+int64(time.Minute)
	}
	return m.ended(false)
}

func (m moment) markFailed(q asked) outcome {
	if m.status == processing || m.status == unknown && q.look != "" && m.lookLive {
		m.status, m.lookOut, m.nextLook = failed, false, 0
		return m.ended(true)
	}
	return m.ended(false)
}

func (m moment) extend(q asked, a heard) outcome {
	switch m.status {
	case processing:
		next, lo, hi := m.leased(m.claimed, q, a)
		if a.until == 0 {
			next.lo, next.hi = max(m.lo, next.lo), max(m.hi, next.hi)
		}
		o := m.ended(true)
		o.next, o.anyChanged, o.untilMatters, o.minUntil, o.maxUntil = next, true, true, max(lo, m.lo), max(hi, m.hi)
		return o
	case completed:
		return m.refused(leaseLost)
	}
	return m.refused(invalidTransition)
}

// lookUp: a reconciler may always come back with empty hands, since another may just have been there.
func (m moment) lookUp(q asked, a heard) []outcome {
	out := []outcome{{next: m.claimed}}
	if m.status != unknown || m.lookLive || m.late < m.nextLook {
		return out
	}
	next := m.claimed
	next.look, next.lookOut = a.look, true
	next.lookLo, next.lookHi = m.early+int64(q.lease), min(m.late+int64(q.lease), never)
	if a.until != 0 {
		next.lookLo, next.lookHi = a.until, a.until
	}
	return append(out, outcome{want: heard{look: a.look, attempt: m.attempt}, next: next})
}

func describe(q asked, a heard) string {
	did := q.op
	switch {
	case q.look != "":
		did += " by a reconciler"
	case q.attempt > 0:
		did += fmt.Sprintf(" by attempt %d", q.attempt)
	}
	at := func(n int64) string {
		if n == 0 || n >= never {
			return "-"
		}
		return time.Unix(0, n).UTC().Format("05.000")
	}
	got := "no answer"
	if a.answered {
		got = words(
			named("refused", a.code), a.decision, named("status", a.status), fmt.Sprintf("attempt=%d", a.attempt), when(a.reentrant, "re-entrant"),
			when(a.changed, "changed"), named("result", a.result), named("until", at(a.until)), when(a.look != "", "one handed out"),
		)
	}
	return words(fmt.Sprintf("%s..%s %-6s", at(q.call), at(q.done), q.key), did, named("owner", q.owner), named("result", q.result),
		when(q.lease > 0, fmt.Sprintf("lease=%v", q.lease)), "->", got)
}
