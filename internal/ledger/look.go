package ledger

// Match selects claims; an empty member selects all.
type Match struct{ Source, Step, Destination string }

// Fits tells whether a claim is among those that are selected.
func (m Match) Fits(c *Claim) bool {
	return (m.Source == "" || m.Source == c.Key.Source) && (m.Step == "" || m.Step == c.Key.Step) && (m.Destination == "" || m.Destination == c.Destination)
}

// Weight orders matches that fit one claim: the more is named the better, and rather the destination than the step
// than the source.
func (m Match) Weight() (weight int) {
	for i, member := range []string{m.Source, m.Step, m.Destination} {
		if member != "" {
			weight += 8 + 1<<i
		}
	}
	return weight
}

// LookAnswer is what the end of a reconciler's look says of the destination.
type LookAnswer int

// An ending that is none of a look says nothing.
const (
	NoLook     LookAnswer = iota
	Answered              // found or not found
	Unanswered            // it could not be asked
	Unasked               // nothing, since it was not asked
)

// LimitsLooks tells whether a look needs a permit.
func (l Limit) LimitsLooks() bool { return l.Rate.N > 0 || l.Circuit.Failures > 0 }

// Look takes a permit for a look, if there is one. A look is a request but no attempt: it uses the rate and waits
// while the circuit is open, but holds no place, and neither probes the circuit nor feeds it.
func (l Limit) Look(d *Load, now Instant) bool {
	if l.Circuit.Failures > 0 && now < d.OpenUntil {
		return false
	}
	if l.Rate.N == 0 {
		return true
	}
	if left, _ := l.Rate.room(d.Grants, now); left == 0 {
		return false
	}
	d.Grants = l.Rate.add(d.Grants, 1, now)
	return true
}
