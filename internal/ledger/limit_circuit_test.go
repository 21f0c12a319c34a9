package ledger_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"holdfast/internal/ledger"
)

var breaker = ledger.Limit{Circuit: ledger.Circuit{Failures: 3, OpenFor: 30 * time.Second}}

// bench is a circuit under test, at a time of its own.
type bench struct {
	*testing.T
	load ledger.Load
	now  ledger.Instant
}

func (b *bench) ends(h ledger.Health) (opened bool) { return b.began(h, b.now) }

func (b *bench) began(h ledger.Health, at ledger.Instant) (opened bool) {
	opened, _ = breaker.Circuit.Observe(&b.load, ledger.Observation{Health: h, Began: at}, b.now)
	return opened
}

func (b *bench) wait(want time.Duration) {
	b.Helper()
	if room := breaker.Room(&b.load, ledger.Running{}, 5, b.now); room.Wait != want || room.Permits == 0 != (want > 0) {
		b.Errorf("%+v, want a wait of %v", room, want)
	}
}

func (b *bench) open() {
	b.Helper()
	b.ends(ledger.Unhealthy)
	b.ends(ledger.Unhealthy)
	if !b.ends(ledger.Unhealthy) {
		b.Fatal("three failures in a row did not open the circuit")
	}
	b.wait(30 * time.Second)
}

// probe lets the one attempt through, with a lease of five minutes.
func (b *bench) probe() {
	b.Helper()
	if room := breaker.Room(&b.load, ledger.Running{}, 5, b.now); room.Permits != 1 {
		b.Fatalf("the probe: %+v", room)
	}
	breaker.Take(&b.load, 1, 5*time.Minute, b.now)
	b.wait(ledger.BusyWait)
}

func newBench(t *testing.T) *bench {
	t.Parallel()
	return &bench{T: t, now: start}
}

func TestCircuitCountsFailuresInARow(t *testing.T) {
	b := newBench(t)
	for range 10 {
		b.ends(ledger.Unhealthy)
		b.ends(ledger.Silent) // a refusal of the request says nothing, neither good nor bad
		b.ends(ledger.Unhealthy)
		b.ends(ledger.Healthy)
	}
	b.wait(0)
	b.open()
	b.now = b.now.Add(30*time.Second - time.Microsecond)
	b.wait(time.Microsecond)
}

func TestCircuitProbes(t *testing.T) {
	b := newBench(t)
	b.open()
	b.now = b.now.Add(30 * time.Second)
	b.probe()
	b.now = b.now.Add(time.Second)
	if b.ends(ledger.Unhealthy) {
		t.Error("people were told when it opened; each probe that fails is no news")
	}
	b.wait(30 * time.Second)
	b.now = b.now.Add(30 * time.Second)
	b.probe()
	b.ends(ledger.Healthy)
	b.wait(0)
	b.open() // it counts from nothing again
}

func TestCircuitProbeThatSaysNothing(t *testing.T) {
	b := newBench(t)
	b.open()
	b.now = b.now.Add(30 * time.Second)
	b.probe()
	b.ends(ledger.Silent)
	b.probe() // the next one probes
	b.now = b.now.Add(5*time.Minute - 2*time.Second)
	b.wait(2 * time.Second)
	b.now = b.now.Add(2 * time.Second)
	b.probe() // the first one's lease is over
}

// Many are under way when the destination fails, and end at any time later.
func TestCircuitIgnoresOldAttempts(t *testing.T) {
	b := newBench(t)
	old := b.now
	b.now = b.now.Add(time.Second)
	b.open()
	b.began(ledger.Healthy, old)
	b.wait(30 * time.Second)
	b.now = b.now.Add(30 * time.Second)
	b.began(ledger.Healthy, old)
	b.probe()
	b.began(ledger.Unhealthy, old)
	b.began(ledger.Silent, old)
	b.wait(ledger.BusyWait)
	b.ends(ledger.Healthy)
	b.now = b.now.Add(time.Second)
	for range 5 {
		b.began(ledger.Unhealthy, old)
	}
	b.wait(0)
}

// Without a circuit nothing is counted.
func TestCircuitOfNone(t *testing.T) {
	t.Parallel()
	var d ledger.Load
	if opened, changed := (ledger.Circuit{}).Observe(&d, ledger.Observation{Health: ledger.Unhealthy}, start); opened || changed {
		t.Error("it counted")
	}
	if room := (ledger.Limit{}).Room(&ledger.Load{OpenUntil: start + 1}, ledger.Running{N: 9}, 4, start); room.Permits != 4 || room.Wait != 0 {
		t.Errorf("%+v", room)
	}
}

// At any time: work goes on only while fewer than Failures failed in a row; while it is open nobody is let in; and
// between two reports of a half-open circuit at most one is.
func TestCircuitOverRandomHistories(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := ledger.Limit{Circuit: ledger.Circuit{
			Failures: rapid.Int64Range(1, 4).Draw(t, "failures"),
			OpenFor:  time.Duration(rapid.Int64Range(1, 60).Draw(t, "open_for")) * time.Second,
		}}
		var d ledger.Load
		now, openUntil := start, ledger.Instant(0)
		var row int64 // failures in a row, by a count of our own
		var live []ledger.Instant
		probing := ledger.Instant(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, 20_000_000).Draw(t, "later_us")) * time.Microsecond)
			if rapid.Bool().Draw(t, "claim") {
				room := l.Room(&d, ledger.Running{}, 1, now)
				if let := room.Permits == 1; let != (openUntil == 0 || now >= openUntil && now >= probing) {
					t.Fatalf("let in: %v; open until %d, the probe's lease until %d, now %d", let, openUntil-start, probing-start, now-start)
				}
				if room.Permits == 1 {
					l.Take(&d, 1, 40*time.Second, now)
					live = append(live, now)
					if openUntil != 0 {
						probing = now.Add(40 * time.Second)
					}
				}
				continue
			}
			if len(live) == 0 {
				continue
			}
			at := rapid.IntRange(0, len(live)-1).Draw(t, "which")
			began := live[at]
			live = append(live[:at], live[at+1:]...)
			health := rapid.SampledFrom([]ledger.Health{ledger.Healthy, ledger.Unhealthy, ledger.Unhealthy, ledger.Silent}).Draw(t, "health")
			turned := d.TurnedAt
			opened, _ := l.Circuit.Observe(&d, ledger.Observation{Health: health, Began: began}, now)
			switch {
			case began < turned || openUntil != 0 && now < openUntil:
			case openUntil == 0 && health == ledger.Unhealthy:
				if row++; row == l.Circuit.Failures {
					openUntil, probing = now.Add(l.Circuit.OpenFor), 0
				}
				if opened != (row == l.Circuit.Failures) {
					t.Fatalf("opened %v after %d of %d", opened, row, l.Circuit.Failures)
				}
			case openUntil == 0 && health == ledger.Healthy:
				row = 0
			case openUntil == 0:
			case health == ledger.Healthy:
				openUntil, probing, row = 0, 0, 0
			case health == ledger.Unhealthy:
				openUntil, probing = now.Add(l.Circuit.OpenFor), 0
			default:
				probing = 0
			}
		}
	})
}

func TestHealthOf(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		class  string
		status int64
		want   ledger.Health
	}{
		{"transient", 503, ledger.Unhealthy},
		{"transient", 0, ledger.Unhealthy},
		{"rate_limited", 429, ledger.Unhealthy},
		{"unclassified", 529, ledger.Unhealthy},
		{"unclassified", 0, ledger.Silent},
		{"unclassified", 302, ledger.Silent},
		{"validation", 422, ledger.Silent},
		{"validation", 501, ledger.Silent},
		{"auth", 401, ledger.Silent},
		{"conflict", 409, ledger.Silent},
		{"workflow", 0, ledger.Silent},
		{"", 0, ledger.Silent},
	} {
		if got := ledger.HealthOf(test.class, test.status); got != test.want {
			t.Errorf("%s %d: %v", test.class, test.status, got)
		}
	}
}
