package ledger

import "time"

// Limit is what a destination bears, of all replicas together. A zero member limits nothing.
type Limit struct {
	Rate           Rate
	MaxConcurrency int64
	Circuit        Circuit
}

// Limits tells whether anything is limited.
func (l Limit) Limits() bool {
	return l.Rate.N > 0 || l.MaxConcurrency > 0 || l.Circuit.Failures > 0
}

// BusyWait is the longest wait that work under way causes. Its lease may have much longer left, but is mostly given
// back long before it ends.
const BusyWait = 10 * time.Second

// clockSkew is how far the replicas' readings of the database's clock may be apart. What lies further in the future
// was written before the clock was set back.
const clockSkew = time.Second

// Load is what a destination's limits have counted: one row, whatever the number of replicas.
type Load struct {
	Grants     []Grants // oldest first, as long as the rate needs them
	Failures   int64    // in a row, while the circuit is closed
	TurnedAt   Instant  // when the circuit last opened or closed
	OpenUntil  Instant  // 0: the circuit is closed
	ProbeUntil Instant  // when the lease of the probe ends; 0: there is none
	Kept       int64    // permits of the rate that are kept from work, for looks; not stored
}

// Running is the work that is under way at a destination.
type Running struct {
	N     int64
	Until Instant // when the first of its leases ends
}

// Obstacle is what keeps work from a destination.
type Obstacle string

// The obstacles.
const (
	CircuitOpen Obstacle = "circuit"
	Busy        Obstacle = "concurrency"
	RateUsedUp  Obstacle = "rate"
)

// Room is what a destination has room for: Permits, or where there are none, how long to wait and what for.
type Room struct {
	Permits int64
	Wait    time.Duration
	For     Obstacle
}

// Settle brings the load to the present, and tells whether it changed: what a clock that was set back has left in
// the future would else hold work back until the clock is there again.
func (l Limit) Settle(d *Load, now Instant) (changed bool) {
	for i := range d.Grants {
		changed = pull(&d.Grants[i].At, now, now) || changed
	}
	changed = pull(&d.TurnedAt, now, now) || changed
	changed = pull(&d.OpenUntil, now.Add(l.Circuit.OpenFor), now.Add(l.Circuit.OpenFor)) || changed
	return pull(&d.ProbeUntil, now.Add(MaxLeaseSeconds*time.Second), now) || changed
}

func pull(t *Instant, limit, to Instant) bool {
	if *t <= limit.Add(clockSkew) {
		return false
	}
	*t = to
	return true
}

// Room tells how many of wanted permits there are now. The longest wait counts, since all limits hold.
func (l Limit) Room(d *Load, run Running, wanted int64, now Instant) Room {
	room := Room{Permits: wanted}
	left, wait := l.Circuit.room(d, wanted, now)
	room.narrow(left, wait, CircuitOpen)
	if l.MaxConcurrency > 0 {
		room.narrow(max(0, l.MaxConcurrency-run.N), min(run.Until.Sub(now), BusyWait), Busy)
	}
	if l.Rate.N > 0 {
		left, wait = Rate{l.Rate.N - d.Kept, l.Rate.Per}.room(d.Grants, now)
		room.narrow(left, wait, RateUsedUp)
	}
	return room
}

// narrow adds what one limit leaves. What holds work back now does so for a moment at least.
func (r *Room) narrow(left int64, wait time.Duration, o Obstacle) {
	r.Permits = min(r.Permits, left)
	if wait = max(wait, time.Microsecond); left == 0 && wait > r.Wait {
		r.Wait, r.For = wait, o
	}
}

// Take notes that n permits are used, each for as long as lease.
func (l Limit) Take(d *Load, n int64, lease time.Duration, now Instant) {
	if l.Rate.N > 0 {
		d.Grants = l.Rate.add(d.Grants, n, now)
	}
	if l.Circuit.Failures > 0 && d.OpenUntil > 0 {
		d.ProbeUntil = now.Add(lease)
	}
}

// Place is the destination that a request works at: its own, else the row's.
func (r *Request) Place(row *Claim) string {
	if r.Destination == "" && row != nil {
		return row.Destination
	}
	return r.Destination
}
