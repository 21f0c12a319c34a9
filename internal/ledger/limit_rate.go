package ledger

import "time"

// Rate lets at most N grants start in any window of length Per; a window begins with a grant, and the first moment
// after it is outside.
type Rate struct {
	N   int64
	Per time.Duration
}

// Grants are some that count as if all had started at one time, that of the last of them: never earlier than they
// did, so that what is counted too late is never let through too early.
type Grants struct {
	At Instant
	N  int64
}

const (
	// exactGrants is the rate up to which each grant is counted by itself.
	exactGrants = 64
	// grantSpans is into how many parts the window of a higher rate is cut; the grants of a part count together. A
	// rate of 1000/10s then gives 1000 grants in 10 to 10.3 s.
	grantSpans = 32
)

// room tells how many grants may start now, or how long until one may.
func (r Rate) room(log []Grants, now Instant) (left int64, wait time.Duration) {
	left = r.N
	for _, g := range log {
		if g.At.Add(r.Per) > now {
			left -= g.N
		}
	}
	if left > 0 {
		return left, 0
	}
	for _, g := range log {
		if at := g.At.Add(r.Per); at > now {
			if left += g.N; left > 0 {
				return 0, at.Sub(now)
			}
		}
	}
	return 0, r.Per
}

// add counts n grants that start now, and forgets those that no window reaches any more. They are kept a little
// longer than they count, for a replica whose reading of the clock is a little behind.
func (r Rate) add(log []Grants, n int64, now Instant) []Grants {
	var kept []Grants
	for _, g := range log {
		if g.At.Add(r.Per+clockSkew) > now {
			kept = append(kept, g)
		}
	}
	if len(kept) > 0 {
		last := &kept[len(kept)-1]
		now = max(now, last.At)
		if last.At == now || r.N > exactGrants && r.span(last.At) == r.span(now) {
			last.At, last.N = now, last.N+n
			return kept
		}
	}
	return append(kept, Grants{now, n})
}

func (r Rate) span(t Instant) Instant {
	return t / max(1, Instant((r.Per/grantSpans).Microseconds()))
}
