package ledger_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"holdfast/internal/ledger"
)

const start = ledger.Instant(1_800_000_000_000_000)

// drawRate draws a rate, small ones that are counted exactly and large ones that are not.
func drawRate(t *rapid.T) ledger.Limit {
	return ledger.Limit{Rate: ledger.Rate{
		N:   rapid.OneOf(rapid.Int64Range(1, 5), rapid.Int64Range(60, 300)).Draw(t, "n"),
		Per: time.Duration(rapid.Int64Range(1000, 20_000).Draw(t, "per_ms")) * time.Millisecond,
	}}
}

// grants is the times of single grants, as the replicas that gave them read the clock.
type grants []ledger.Instant

// within fails where a window holds more grants than the rate allows.
func (g grants) within(t *rapid.T, r ledger.Rate) {
	sorted := slices.Clone(g)
	slices.Sort(sorted)
	for first := 0; first+int(r.N) < len(sorted); first++ {
		if beyond := sorted[first+int(r.N)]; beyond < sorted[first].Add(r.Per) {
			t.Fatalf("%d grants within %v of %d, allowed are %d in %v", r.N+1, beyond.Sub(sorted[first]), sorted[first]-start, r.N, r.Per)
		}
	}
}

// A rate never lets more than N grants start in any window, however callers come, and whichever of the replicas,
// whose readings of the clock are a little apart, lets them in.
func TestRateHoldsInAnyWindow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := drawRate(t)
		var d ledger.Load
		var given grants
		at := start
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			at = at.Add(rapid.OneOf(
				rapid.Just(time.Duration(0)),
				rapid.Map(rapid.Int64Range(0, 1000), func(us int64) time.Duration { return time.Duration(us) * time.Microsecond }),
				rapid.Map(rapid.Int64Range(0, int64(l.Rate.Per)), func(ns int64) time.Duration { return time.Duration(ns).Truncate(time.Microsecond) }),
			).Draw(t, "later"))
			now := at.Add(time.Duration(rapid.SampledFrom([]int64{0, 0, 7, 400, 999}).Draw(t, "ahead_ms")) * time.Millisecond)
			wanted := rapid.Int64Range(1, 2*l.Rate.N).Draw(t, "wanted")
			l.Settle(&d, now)
			room := l.Room(&d, ledger.Running{}, wanted, now)
			if room.Permits < 0 || room.Permits > wanted || (room.Permits == 0) != (room.Wait > 0) || room.Wait > l.Rate.Per+time.Second {
				t.Fatalf("room %+v of %d", room, wanted)
			}
			if room.Permits == 0 {
				continue
			}
			l.Take(&d, room.Permits, time.Minute, now)
			for range room.Permits {
				given = append(given, now)
			}
		}
		if len(d.Grants) > 160 {
			t.Fatalf("%d entries are kept", len(d.Grants))
		}
		given.within(t, l.Rate)
	})
}

// A wait is enough, and nobody waits longer than it takes for the grants of a window to leave it.
func TestRateWaits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := drawRate(t)
		var d ledger.Load
		at := start
		var given grants
		for range rapid.IntRange(1, 300).Draw(t, "grants") {
			at = at.Add(time.Duration(rapid.Int64Range(0, int64(l.Rate.Per)/l.Rate.N).Draw(t, "later")).Truncate(time.Microsecond))
			room := l.Room(&d, ledger.Running{}, 1, at)
			if room.Permits == 0 {
				earliest := given[len(given)-int(l.Rate.N)].Add(l.Rate.Per)
				slack := time.Duration(0)
				if l.Rate.N > 64 {
					slack = l.Rate.Per / 32 // of higher rates, the grants of a 32nd count as one
				}
				if next := at.Add(room.Wait); next < earliest || next > earliest.Add(slack) {
					t.Fatalf("told to come back at %d, the window frees a place at %d", next-start, earliest-start)
				}
				at = at.Add(room.Wait)
				if room = l.Room(&d, ledger.Running{}, 1, at); room.Permits != 1 {
					t.Fatalf("waited as told, and have to wait again: %+v", room)
				}
			}
			l.Take(&d, 1, time.Minute, at)
			given = append(given, at)
		}
		given.within(t, l.Rate)
	})
}

// A clock that was set back holds work back for one window, or for the time that the circuit is open, and no longer.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	l := ledger.Limit{Rate: ledger.Rate{N: 2, Per: 10 * time.Second}, Circuit: ledger.Circuit{Failures: 1, OpenFor: time.Minute}}
	var d ledger.Load
	tomorrow := start.Add(24 * time.Hour)
	l.Take(&d, 2, time.Minute, tomorrow)
	l.Circuit.Observe(&d, ledger.Observation{Health: ledger.Unhealthy, Began: tomorrow}, tomorrow)
	if !l.Settle(&d, start) {
		t.Fatal("nothing was settled")
	}
	if l.Settle(&d, start.Add(time.Second)) {
		t.Fatal("settled again, a second later: it would never come to an end")
	}
	if room := l.Room(&d, ledger.Running{}, 1, start); room.Wait != time.Minute || room.For != ledger.CircuitOpen {
		t.Errorf("%+v", room)
	}
	d.OpenUntil = 0
	if room := l.Room(&d, ledger.Running{}, 1, start); room.Wait != 10*time.Second || room.For != ledger.RateUsedUp {
		t.Errorf("%+v", room)
	}
	if room := l.Room(&d, ledger.Running{}, 5, start.Add(10*time.Second)); room.Permits != 2 {
		t.Errorf("%+v", room)
	}
}

// Whoever lowers a rate waits until what was let in before has left the window.
func TestRateLowered(t *testing.T) {
	t.Parallel()
	wide, tight := ledger.Limit{Rate: ledger.Rate{N: 4, Per: 10 * time.Second}}, ledger.Limit{Rate: ledger.Rate{N: 2, Per: 10 * time.Second}}
	var d ledger.Load
	for i := range 4 {
		wide.Take(&d, 1, time.Minute, start.Add(time.Duration(i)*time.Second))
	}
	now := start.Add(4 * time.Second)
	if room := tight.Room(&d, ledger.Running{}, 1, now); room.Permits != 0 || room.Wait != 8*time.Second {
		t.Errorf("%+v, want a wait of 8s: until the third has left", room)
	}
}

func TestConcurrency(t *testing.T) {
	t.Parallel()
	l := ledger.Limit{MaxConcurrency: 3}
	for _, test := range []struct {
		running int64
		left    time.Duration // of the first lease
		wanted  int64
		want    ledger.Room
	}{
		{0, 0, 1, ledger.Room{Permits: 1}},
		{0, 0, 9, ledger.Room{Permits: 3}},
		{2, time.Hour, 9, ledger.Room{Permits: 1}},
		{3, 4 * time.Second, 1, ledger.Room{Wait: 4 * time.Second, For: ledger.Busy}},
		{3, time.Hour, 1, ledger.Room{Wait: ledger.BusyWait, For: ledger.Busy}},
		{7, time.Hour, 1, ledger.Room{Wait: ledger.BusyWait, For: ledger.Busy}}, // the limit was lowered
	} {
		if got := l.Room(&ledger.Load{}, ledger.Running{N: test.running, Until: start.Add(test.left)}, test.wanted, start); got != test.want {
			t.Errorf("%d running, %d wanted: %+v, want %+v", test.running, test.wanted, got, test.want)
		}
	}
}

// The longest wait counts: a caller that comes back earlier would only be told the rest.
func TestAllLimitsHold(t *testing.T) {
	t.Parallel()
	l := ledger.Limit{Rate: ledger.Rate{N: 1, Per: time.Hour}, MaxConcurrency: 1, Circuit: ledger.Circuit{Failures: 1, OpenFor: time.Minute}}
	var d ledger.Load
	l.Take(&d, 1, time.Minute, start)
	l.Circuit.Observe(&d, ledger.Observation{Health: ledger.Unhealthy, Began: start}, start)
	if room := l.Room(&d, ledger.Running{N: 1, Until: start.Add(time.Minute)}, 1, start); room.Wait != time.Hour || room.For != ledger.RateUsedUp {
		t.Errorf("%+v", room)
	}
}
