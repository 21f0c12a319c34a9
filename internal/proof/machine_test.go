package proof

import (
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// steps counts the calls that were compared.
var steps atomic.Int64

// budget bounds each part of the default run, on machines of any speed. Who asks for a number of histories gets it.
var budget = 6 * time.Second

// TestMain shortens the default run; what a person asks for on the command line stands.
func TestMain(m *testing.M) {
	flag.Parse()
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range map[string]string{"rapid.checks": "80", "rapid.shrinktime": "20s", "rapid.nofailfile": "true"} {
		if !given[name] {
			if err := flag.Set(name, value); err != nil {
				panic(err)
			}
		}
	}
	if given["rapid.checks"] {
		budget = 24 * time.Hour
	}
	code := m.Run()
	if testing.Verbose() {
		fmt.Fprintln(os.Stderr, "calls compared:", steps.Load())
	}
	if programDir != "" {
		_ = os.RemoveAll(programDir)
	}
	os.Exit(code)
}

// The claims of a history. Few, so that calls meet; what comes first is drawn most.
var slots = []slot{
	{"quick", "", "k1", "charge"},
	{"quick", "", "k1", ""},
	{"quick", "", "k2", "charge"},
	{"quick", "", "k3", ""},
	{"plain", "acct", "k1", "charge"},
	{"plain", "acct", "k2", ""},
	{"quick", "", "k1", "mail"},
}

// one draws from a list, the first most often.
func one[T any](t *rapid.T, label string, of ...T) T {
	return of[rapid.IntRange(0, len(of)-1).Draw(t, label)]
}

// rarely draws true once in n.
func rarely(t *rapid.T, label string, n int) bool {
	return rapid.IntRange(0, n-1).Draw(t, label) == n-1
}

func drawSlot(t *rapid.T) slot {
	if rapid.Bool().Draw(t, "focus") {
		return one(t, "slot", slots...)
	}
	return one(t, "slot", slots[0], slots[0], slots[1])
}

func drawCaller(t *rapid.T) caller {
	c := caller{owner: one(t, "owner", "", "1", "1", "2")}
	if rarely(t, "another caller", 6) {
		c.node, c.workflow, c.apiKey = one(t, "node", "", "B"), one(t, "workflow", "w1", ""), one(t, "api key", "", "2")
	}
	return c
}

var drawClaim = rapid.Custom(func(t *rapid.T) call {
	q := claimCall{
		slot: drawSlot(t), caller: drawCaller(t), payload: one(t, "payload", "", "", "p", "p", "other"),
		lease: one[int64](t, "lease", 0, 60, 1, 7200), byID: rarely(t, "by id", 8), standardKey: rarely(t, "standard key", 6),
	}
	if rarely(t, "explicit kind", 10) {
		q.kind = one(t, "kind", event, effect)
	}
	if rarely(t, "with entity", 3) {
		q.entity, q.version = "e", one(t, "version", version{}, version{true, 1}, version{true, 2}, version{true, 3})
	}
	if rarely(t, "with destination", 6) {
		q.destination = one(t, "destination", "slow", "fast")
	}
	return q
})

var drawEnd = rapid.Custom(func(t *rapid.T) call {
	q := endCall{verb: one(t, "verb", "complete", "mark-unknown", "mark-failed", "mark-failed", "extend"), slot: drawSlot(t), by: "token"}
	q.back = one(t, "back", 0, 0, 0, 0, 1, 1, 2, 3)
	switch q.verb {
	case "complete":
		q.by = one(t, "by", "token", "token", "token", "key", "reference")
		q.resultID = one(t, "result", "r1", "r1", "", "r2")
		if q.by == "reference" {
			q.reference = one(t, "reference", "ref1", "ref2")
		}
		return q
	case "mark-failed":
		switch one(t, "how", "not executed", "not executed", "refusal", "not now", "") {
		case "not executed":
			q.notExecuted = true
		case "refusal":
			q.refusal, q.tries = true, one[int64](t, "tries", 1, 0, 2)
		case "not now":
			q.notNow = true
		}
		return q
	case "extend":
		q.lease = one[int64](t, "lease", 60, 1, 7200)
	}
	q.reference = one(t, "reference", "", "", "", "ref1", "ref2")
	return q
})

var drawPass = rapid.Custom(func(t *rapid.T) call {
	if rarely(t, "for a while", 3) {
		return passCall{by: one(t, "while", time.Second, time.Microsecond, time.Minute, 5*time.Minute, time.Hour, 24*time.Hour)}
	}
	return passCall{
		to: one(t, "to", "lease", "lease", "lease", "ask", "not found", "window", "look", "next look"), of: drawSlot(t),
		off: one(t, "off", 0, 0, -time.Microsecond, time.Microsecond),
	}
})

var drawOther = rapid.Custom(func(t *rapid.T) call {
	switch one(t, "other", "look", "look", "look", "sweep", "sweep", "resolve", "resolve", "pause") {
	case "look":
		return lookCall{
			source: one(t, "source", "quick", "quick", "plain"), owner: one(t, "owner", "", "r1", "r1", "r2"),
			limit: one[int64](t, "limit", 25, 25, 1, 2), lease: one[int64](t, "lease", 300, 30),
		}
	case "resolve":
		return resolveCall{
			slot: drawSlot(t), to: one(t, "to", failed, completed, review), resultID: one(t, "result", "", "r1", "r2"),
			newKey: rapid.Bool().Draw(t, "new key"),
		}
	case "pause":
		q := pauseCall{
			scope:  one(t, "scope", "source.quick", "all", "destination.slow", "workflow.w1"),
			resume: rapid.Bool().Draw(t, "resume"),
		}
		if !q.resume {
			q.seconds = one[int64](t, "seconds", 0, 10, 1000)
		}
		return q
	}
	return sweepCall{}
})

// drawHistory draws histories in which claims, reports and the passing of time are about as frequent.
func drawHistory(t *rapid.T) (calls []call) {
	add := func(draw *rapid.Generator[call]) func(*rapid.T) {
		return func(t *rapid.T) { calls = append(calls, draw.Draw(t, "call")) }
	}
	t.Repeat(map[string]func(*rapid.T){
		"1 claim": add(drawClaim), "2 claim": add(drawClaim), "3 report": add(drawEnd), "4 report": add(drawEnd), "5 pass": add(drawPass),
		"6 other": add(drawOther),
	})
	return calls
}

// A random history of calls gets the model's answers from the real store, and breaks no promise.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b *base) {
		until, failed, played := time.Now().Add(budget), false, 0
		rapid.Check(t, func(rt *rapid.T) {
			calls := drawHistory(rt)
			if !failed && time.Now().After(until) {
				return // but a failure is made smaller in the time that it takes
			}
			played++
			if err := b.history(nil).play(calls, all); err != nil {
				failed = true
				rt.Fatal(err)
			}
		})
		t.Logf("%d histories", played)
	})
}
