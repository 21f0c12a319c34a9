package ledger

import (
	"time"

	"holdfast/internal/failure"
)

// Circuit stops work at a destination after Failures failures in a row, for OpenFor. Then one attempt is let
// through to probe: its success closes the circuit, its failure opens it again.
type Circuit struct {
	Failures int64
	OpenFor  time.Duration
}

// Health is what the end of an attempt says of the destination.
type Health int

// An answer that refuses the request, or no word of an error, says nothing.
const (
	Silent Health = iota
	Healthy
	Unhealthy
)

// HealthOf tells whether an error speaks of the destination's health: what time may heal does, and so does what its
// servers say of themselves. A refusal of the request, a credential or the workflow's own error does not.
func HealthOf(class string, status int64) Health {
	switch c := failure.Class(class); {
	case c == failure.Transient, c == failure.RateLimited, c == failure.Unclassified && status >= 500:
		return Unhealthy
	}
	return Silent
}

// Observation is how an attempt at a destination ended, and when it began.
type Observation struct {
	Health Health
	Began  Instant
}

// Observe is what an ending says of the destination. ok is false where no attempt under way ended: a receipt for
// what was long unknown, or a report sent again, says nothing of how the destination is now.
func (e *Ending) Observe(row *Claim, out *Ended) (o Observation, ok bool) {
	if !out.Changed || row.Status != Processing || e.Verb == Extend {
		return o, false
	}
	o.Began = row.Last.At
	switch {
	case e.Verb == Complete:
		o.Health = Healthy
	case !e.NotNow:
		o.Health = HealthOf(e.ErrorClass, e.HTTPStatus)
	}
	return o, true
}

func (c Circuit) room(d *Load, wanted int64, now Instant) (left int64, wait time.Duration) {
	switch {
	case c.Failures == 0 || d.OpenUntil == 0:
		return wanted, 0
	case now < d.OpenUntil:
		return 0, d.OpenUntil.Sub(now)
	case now < d.ProbeUntil:
		return 0, min(d.ProbeUntil.Sub(now), BusyWait)
	}
	return min(wanted, 1), 0
}

// Observe feeds the circuit, and tells whether it opened, and whether the load changed. An attempt that began before
// the circuit last turned says nothing: of many that were under way when the destination failed, those that time out
// after it has recovered must not open the circuit again.
func (c Circuit) Observe(d *Load, o Observation, now Instant) (opened, changed bool) {
	if c.Failures == 0 || o.Began < d.TurnedAt {
		return false, false
	}
	if d.OpenUntil == 0 {
		return c.count(d, o.Health, now)
	}
	if now < d.OpenUntil {
		return false, false
	}
	switch o.Health {
	case Healthy:
		d.Failures, d.TurnedAt, d.OpenUntil, d.ProbeUntil = 0, now, 0, 0
	case Unhealthy:
		d.TurnedAt, d.OpenUntil, d.ProbeUntil = now, now.Add(c.OpenFor), 0
	default:
		d.ProbeUntil = 0 // the next one is the probe
	}
	return false, true
}

// count follows a closed circuit.
func (c Circuit) count(d *Load, h Health, now Instant) (opened, changed bool) {
	switch h {
	case Healthy:
		changed = d.Failures > 0
		d.Failures = 0
		return false, changed
	case Silent:
		return false, false
	}
	if d.Failures++; d.Failures < c.Failures {
		return false, true
	}
	d.TurnedAt, d.OpenUntil, d.ProbeUntil = now, now.Add(c.OpenFor), 0
	return true, true
}
