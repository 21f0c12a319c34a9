package proof

import (
	"fmt"
	"strings"
	"time"
)

// call is one call of a history: what the model and the real store are both asked, written so that a person can
// read a counterexample aloud.
type call interface {
	fmt.Stringer
	// ask is the model's answer.
	ask(m *model) answer
	// do is the real answer.
	do(w *world, m *model) answer
}

// answer is what both say. It is comparable: every difference is a finding.
type answer struct {
	code     string // of a refusal, in the contract's words
	decision string
	status   string // with a refusal: what its details say

	kind        string
	attempt     int
	changed     bool
	reentrant   bool
	retryAfter  int64
	matches     string // payload_matches: true, false, or empty for null
	token       token
	leaseEnd    time.Time
	providerKey int
	resultID    string
	reference   string
	firstSeen   time.Time
	completedAt time.Time
	alerted     bool
	handed      string // what /reconcile/lease hands out

	// Of the model: time alone has moved the claim and nobody may have noticed, so that changed may be either, and a
	// refusal may show the status of before.
	loose bool
}

// agrees tells whether the real answer is the one that the model gave.
func (a answer) agrees(real answer) bool {
	if a.loose {
		real.changed = a.changed
	}
	if a.loose && a.code != "" {
		real.status = a.status
	}
	a.loose, real.loose = false, false
	return a == real
}

func (a answer) String() string {
	var out []string
	say := func(condition bool, format string, args ...any) {
		if condition {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	say(a.code != "", "refused: %s", a.code)
	say(a.decision != "", "%s", a.decision)
	say(a.status != "", "status %s", a.status)
	say(a.kind != "" && a.kind != event, "%s", a.kind)
	say(a.attempt != 0, "attempt %d", a.attempt)
	say(a.changed, "changed")
	say(a.loose, "(changed or not)")
	say(a.reentrant, "re-entrant")
	say(a.retryAfter != 0, "retry after %d s", a.retryAfter)
	say(a.matches != "", "payload matches: %s", a.matches)
	say(a.token != token{}, "token %v", a.token)
	say(!a.leaseEnd.IsZero(), "lease until %s", clockTime(a.leaseEnd))
	say(a.providerKey > 1, "provider key %d", a.providerKey)
	say(a.resultID != "", "result_id %s", a.resultID)
	say(a.reference != "", "reference %s", a.reference)
	say(!a.firstSeen.IsZero(), "first seen %s", clockTime(a.firstSeen))
	say(!a.completedAt.IsZero(), "completed at %s", clockTime(a.completedAt))
	say(a.alerted, "alerted")
	say(a.handed != "", "%s", a.handed)
	if len(out) == 0 {
		return "done"
	}
	return strings.Join(out, ", ")
}

func (s slot) String() string {
	out := s.source + "/" + s.key
	if s.account != "" {
		out = s.source + "(" + s.account + ")/" + s.key
	}
	if s.step != "" {
		out += "#" + s.step
	}
	return out
}

func (t token) String() string {
	if t.look > 0 {
		return fmt.Sprintf("%v:%d.%d", t.slot, t.grant, t.look)
	}
	return fmt.Sprintf("%v:%d", t.slot, t.grant)
}

// words joins what is there.
func words(parts ...string) string {
	var out []string
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return strings.Join(out, " ")
}

func named(name, value string) string {
	if value == "" {
		return ""
	}
	return name + "=" + value
}

func when(condition bool, text string) string {
	if condition {
		return text
	}
	return ""
}

func (q claimCall) String() string {
	v := ""
	if q.version.given {
		v = fmt.Sprint(q.version.n)
	}
	how := "/claim " + q.slot.String()
	if q.byID {
		how = "/claim by claim_id of " + q.slot.String()
	}
	return words(
		how, named("kind", q.kind), when(q.standardKey, "standard key"), named("payload", q.payload), named("owner", q.caller.owner),
		named("node", q.caller.node), named("workflow", q.caller.workflow), named("api_key", q.caller.apiKey),
		when(q.lease > 0, fmt.Sprintf("lease=%ds", q.lease)), named("entity", q.entity), named("version", v), named("destination", q.destination),
	)
}

func (q endCall) String() string {
	how := "by its " + q.by
	if q.by == "token" {
		how = "by its newest token"
		if q.back > 0 {
			how = fmt.Sprintf("by its newest token but %d", q.back)
		}
	}
	reference := named("reference", q.reference)
	return words(
		"/"+q.verb+" "+q.slot.String(), how, reference, named("result_id", q.resultID), when(q.notExecuted, "outcome=not_executed"),
		when(q.refusal, "error=401"), when(q.tries > 0, fmt.Sprintf("tries=%d", q.tries)), when(q.notNow, "retry_after alone"),
		when(q.lease > 0, fmt.Sprintf("lease=%ds", q.lease)),
	)
}

func (q resolveCall) String() string {
	return words("/resolve "+q.slot.String(), "to "+q.to, named("result_id", q.resultID), when(q.newKey, "new_provider_key"))
}

func (q lookCall) String() string {
	return words("/reconcile/lease", named("source", q.source), named("owner", q.owner), fmt.Sprintf("limit=%d lease=%ds", q.limit, q.lease))
}

func (q pauseCall) String() string {
	if q.resume {
		return "resume " + q.scope
	}
	return words("pause "+q.scope, when(q.seconds > 0, fmt.Sprintf("for %d s", q.seconds)))
}

func (sweepCall) String() string { return "the sweeper comes by" }

func (q passCall) String() string {
	if q.to == "" {
		return fmt.Sprintf("%v pass", q.by)
	}
	what := map[string]string{
		"lease": "the lease", "window": "the window", "ask": "ask_after", "not found": "not_found_after", "look": "the reconciler's lease",
		"next look": "the wait for the next look",
	}[q.to]
	off := ""
	if q.off != 0 {
		off = fmt.Sprintf(" %+v", q.off)
	}
	return fmt.Sprintf("time passes to the end of %s of %v%s", what, q.of, off)
}
