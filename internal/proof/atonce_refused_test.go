package proof

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// at is a moment of a made-up history, in milliseconds; zero is no moment.
func at(ms int) int64 { return int64(ms+1) * int64(time.Millisecond) }

func happened(from, to int, q asked, a heard) porcupine.Operation {
	q.key, q.call, q.done, a.answered = "k", at(from), at(to), true
	return porcupine.Operation{Input: q, Call: q.call, Output: a, Return: q.done}
}

func unanswered(from int, q asked) porcupine.Operation {
	q.key, q.call, q.done = "k", at(from), never
	return porcupine.Operation{Input: q, Call: q.call, Output: heard{}, Return: never}
}

// The specification can refuse: histories that break a promise are illegal, and their lawful neighbours are not.
func TestAtOnceCanRefuse(t *testing.T) {
	t.Parallel()
	ask := asked{op: "claim", effect: true, lease: time.Second}
	askEvent := asked{op: "claim", lease: time.Second}
	granted := func(attempt, until int) heard {
		return heard{decision: proceed, status: processing, attempt: attempt, until: at(until)}
	}
	busy := heard{decision: inProgress, status: processing, attempt: 1, until: at(1005)}
	done := heard{decision: completed, status: completed, attempt: 1, result: "r"}
	receipt := asked{op: "complete", effect: true, attempt: 1, result: "r"}
	receipted := heard{status: completed, attempt: 1, changed: true, result: "r"}
	notDone := asked{op: "mark-failed", effect: true, attempt: 1}
	first := happened(0, 10, ask, granted(1, 1005))
	for _, h := range []struct {
		name  string
		legal bool
		ops   []porcupine.Operation
	}{
		{"one proceeds, one waits", true, []porcupine.Operation{first, happened(5, 20, ask, busy)}},
		{"two proceed at once", false, []porcupine.Operation{first, happened(5, 20, ask, granted(1, 1010))}},
		{"two proceed one after the other", false, []porcupine.Operation{first, happened(30, 40, ask, granted(2, 1035))}},
		{"a receipt is there afterwards", true, []porcupine.Operation{first, happened(20, 30, receipt, receipted), happened(40, 50, ask, done)}},
		{"a receipt is lost", false, []porcupine.Operation{first, happened(20, 30, receipt, receipted), happened(40, 50, ask, busy)}},
		{"a completed effect proceeds again", false, []porcupine.Operation{
			first, happened(20, 30, receipt, receipted), happened(3000, 3010, ask, granted(2, 4005)),
		}},
		{"an answer came late enough to be either", true, []porcupine.Operation{
			first, happened(20, 30, receipt, receipted), happened(15, 50, ask, busy), happened(16, 50, ask, done),
		}},
		{"an effect's lease is over: unknown", true, []porcupine.Operation{
			first, happened(1300, 1310, ask, heard{decision: unknown, status: unknown, attempt: 1}),
		}},
		{"an effect is unknown before its lease is over", false, []porcupine.Operation{
			first, happened(300, 310, ask, heard{decision: unknown, status: unknown, attempt: 1}),
		}},
		{"time frees an effect", false, []porcupine.Operation{first, happened(1300, 1310, ask, granted(2, 2305))}},
		{"an event is taken over", true, []porcupine.Operation{
			happened(0, 10, askEvent, granted(1, 1005)), happened(1300, 1310, askEvent, granted(2, 2305)),
		}},
		{"an event is taken over too soon", false, []porcupine.Operation{
			happened(0, 10, askEvent, granted(1, 1005)), happened(300, 310, askEvent, granted(2, 1305)),
		}},
		{"a lease lives on after its end", false, []porcupine.Operation{first, happened(1300, 1310, ask, busy)}},
		{"an old token is obeyed", false, []porcupine.Operation{
			first, happened(20, 30, notDone, heard{status: failed, attempt: 1, changed: true}), happened(40, 50, ask, granted(2, 1045)),
			happened(60, 70, notDone, heard{status: failed, attempt: 2, changed: true}),
		}},
		{"an old token is refused", true, []porcupine.Operation{
			first, happened(20, 30, notDone, heard{status: failed, attempt: 1, changed: true}), happened(40, 50, ask, granted(2, 1045)),
			happened(60, 70, notDone, heard{code: leaseLost}),
		}},
		{"a lost claim happened", true, []porcupine.Operation{unanswered(0, ask), happened(20, 30, ask, busy)}},
		{"a lost claim did not happen", true, []porcupine.Operation{unanswered(0, ask), happened(20, 30, ask, granted(1, 1025))}},
		{"a lost claim happened and did not", false, []porcupine.Operation{
			unanswered(0, ask), happened(20, 30, ask, busy), happened(40, 50, ask, granted(1, 1045)),
		}},
	} {
		if got := porcupine.CheckOperations(atOnce(200*time.Millisecond), h.ops); got != h.legal {
			t.Errorf("%s: legal is %v, want %v:\n%s", h.name, got, h.legal, story(h.ops))
		}
	}
}
