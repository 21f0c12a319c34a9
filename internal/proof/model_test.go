package proof

import (
	"time"
)

// The states, decisions and codes are written out in the contract's words, so that a renamed constant of the
// program cannot rename what is expected of it.
const (
	pending    = "pending"
	processing = "processing"
	completed  = "completed"
	failed     = "failed"
	unknown    = "unknown"
	review     = "review"
	stale      = "stale"

	proceed    = "proceed"
	inProgress = "in_progress"
	wait       = "wait"

	event  = "event"
	effect = "effect"

	notFound          = "not_found"
	keyReused         = "key_reused"
	leaseLost         = "lease_lost"
	leaseLive         = "lease_live"
	resultConflict    = "result_conflict"
	invalidTransition = "invalid_transition"
	invalidRequest    = "invalid_request"
)

// slot is the identity of a claim: four columns.
type slot struct{ source, account, key, step string }

// rules are the times of a source or a destination.
type rules struct{ window, askAfter, notFoundAfter time.Duration }

// The policies of all histories. A destination's win over its source's.
var (
	defaultRules     = rules{24 * time.Hour, time.Minute, 5 * time.Minute}
	sourceRules      = map[string]rules{"quick": {time.Hour, 10 * time.Second, 20 * time.Second}}
	destinationRules = map[string]rules{"slow": {7 * 24 * time.Hour, 0, time.Hour}}
)

// token is what the model knows of a lease_token: whose it is, and that it was the grant-th lease of a worker and, if
// look is set, the look-th of a reconciler.
type token struct {
	slot        slot
	grant, look int
}

// caller is what must be equal for a live lease to be handed out again; owner must not be empty besides.
type caller struct{ owner, workflow, node, apiKey string }

// version orders what concerns one entity; the zero value is none.
type version struct {
	given bool
	n     int64
}

func (v version) newerThan(o version) bool { return v.given && o.given && v.n > o.n }

// record is one claim as the contract describes it.
type record struct {
	slot
	born        int // the order in which the claims came
	kind        string
	standardKey bool // the key was found by a standard path
	state       string
	attempt     int
	firstSeen   time.Time
	payload     string
	entity      string
	version     version
	destination string
	reference   string
	resultID    string
	completedAt time.Time

	holder   caller
	leaseEnd time.Time
	grants   int // worker's leases handed out so far
	void     int // grants up to this one were ended by a person
	doneBy   int // the grant whose token completed it; 0: a key, a reference or a person

	looks      int // reconciler's leases handed out so far
	looker     string
	lookOut    bool // handed out and not reported yet
	lookEnd    time.Time
	unanswered int
	nextLook   time.Time

	everUnknown  bool
	unknownSince time.Time
	windowFrom   time.Time
	providerKey  int // how often a person has replaced it, and 1

	trail []transition
	// Reports that moved nothing: whether one must be in the history, and how many there are at most (the same one,
	// sent again, is kept once).
	kept     bool
	keptMost int
	// lagging: time alone has moved the claim, and the tables may not show it yet. What callers are told must not
	// depend on it, except that a report of what time had decided already may count as the change.
	lagging bool
}

// transition is one entry that the history must have, or may have where time alone moved the claim: only a sweep
// or the next call writes that down, and a later one may overtake it.
type transition struct {
	to       string
	attempt  int
	at       time.Time
	optional bool
}

// model is the whole ledger, answering one call after the other.
type model struct {
	now      time.Time
	records  map[slot]*record
	tokens   []token // as handed out
	newest   map[subject]version
	pauses   map[string]pause
	lastBorn int
}

// subject is an entity within its source and account.
type subject struct{ source, account, entity string }

type pause struct {
	endless bool
	until   time.Time
}

func newModel(now time.Time) *model {
	return &model{now: now, records: map[slot]*record{}, newest: map[subject]version{}, pauses: map[string]pause{}}
}

func (m *model) rules(r *record) rules {
	if p, ok := destinationRules[r.destination]; ok {
		return p
	}
	if p, ok := sourceRules[r.source]; ok {
		return p
	}
	return defaultRules
}

func (m *model) windowOver(r *record) bool {
	return !r.windowFrom.IsZero() && !m.now.Before(r.windowFrom.Add(m.rules(r).window))
}

func (m *model) live(r *record) bool { return r.state == processing && m.now.Before(r.leaseEnd) }

func (m *model) lookLive(r *record) bool {
	return r.state == unknown && r.lookOut && m.now.Before(r.lookEnd)
}

// settle does what time alone does, before each call: an effect whose lease is over is unknown since then, and an
// unknown claim whose window is over is before a person. There is no sweep in the model, since nothing that callers
// are told may depend on one.
func (m *model) settle() {
	for _, r := range m.records {
		if r.kind == effect && r.state == processing && !m.now.Before(r.leaseEnd) {
			r.becomeUnknown(r.leaseEnd)
			r.byTime(unknown)
		}
		if r.state == unknown && m.windowOver(r) {
			r.endLook()
			r.byTime(review)
		}
	}
}

func (r *record) byTime(to string) {
	r.state, r.lagging = to, true
	r.trail = append(r.trail, transition{to: to, attempt: r.attempt, optional: true})
}

func (m *model) move(r *record, to string) {
	r.state, r.lagging = to, false
	r.trail = append(r.trail, transition{to: to, attempt: r.attempt, at: m.now})
}

func (r *record) becomeUnknown(since time.Time) {
	r.everUnknown, r.unknownSince = true, since
	r.endLook()
}

// endLook ends a reconciler's lease for good, with its backoff.
func (r *record) endLook() {
	r.lookOut, r.looker, r.unanswered, r.lookEnd, r.nextLook = false, "", 0, time.Time{}, time.Time{}
}

// noAnswer ends a look that told nothing: the next comes after 1 min, doubling to 1 h.
func (m *model) noAnswer(r *record) {
	backoff := time.Minute
	for range r.unanswered {
		backoff = min(2*backoff, time.Hour)
	}
	n := r.unanswered + 1
	r.endLook()
	r.unanswered, r.nextLook = n, m.now.Add(backoff)
}

// isNewest tells whether t may do more than complete.
func (r *record) isNewest(t token) bool {
	return t.grant == r.grants && t.grant > r.void && (t.look == 0 || t.look == r.looks)
}

// seconds rounds up, at least 1.
func seconds(d time.Duration) int64 {
	return max(1, int64((d+time.Second-1)/time.Second))
}

// tokensOf are the tokens of a claim, in the order in which they were handed out.
func (m *model) tokensOf(s slot) (out []token) {
	for _, t := range m.tokens {
		if t.slot == s {
			out = append(out, t)
		}
	}
	return out
}

// keepNewest remembers the newest completed version of an entity, for ever.
func (m *model) keepNewest(r *record) {
	s := subject{r.source, r.account, r.entity}
	if r.entity != "" && r.version.given && (!m.newest[s].given || r.version.newerThan(m.newest[s])) {
		m.newest[s] = r.version
	}
}
