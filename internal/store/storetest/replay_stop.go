package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/internal/deadletter"
)

// playAll plays letters one after the other, with approval where it is asked for: S succeeds, F fails. It returns how many
// of them were handed out.
func (w *world) playAll(id, outcomes string) int {
	w.Helper()
	for i, outcome := range outcomes {
		out := w.hand("", handLimit(1))
		if len(out) == 0 {
			if _, changed, _ := w.say(id, deadletter.Approve); !changed {
				return i
			}
			out = w.hand("", handLimit(1))
		}
		verb := deadletter.Resolve
		if outcome == 'F' {
			verb = deadletter.Fail
		}
		if _, code := w.close(out[0].ID, by(out[0], verb)); code != "" {
			w.Fatalf("/%s: %q", verb, code)
		}
	}
	return len(outcomes)
}

func fails(n int) string    { return strings.Repeat("F", n) }
func succeeds(n int) string { return strings.Repeat("S", n) }

// replayStops: more than a quarter of the last 20 settled ones failed, judged from the 20th on.
func replayStops(w *world) {
	for _, row := range []struct {
		name     string
		sample   int64
		outcomes string
		played   int // the replay has stopped by itself after so many; 0: it goes on
	}{
		{"5 of 20", 0, fails(5) + succeeds(15), 0},
		{"6 of 20", 0, fails(6) + succeeds(14), 20},
		{"6 of 20, the sample", 30, fails(6) + succeeds(14), 20},
		{"6 of 20, the last of them fails", 0, succeeds(14) + fails(6), 20},
		{"the sample is counted", 5, fails(4) + "S" + fails(2) + succeeds(13), 20},
		{"19 of 19 do not, the 20th does", 30, fails(19), 20},
		{"5 of 20, the sample of 20", 20, succeeds(15) + fails(5), 0},
		{"only the last 20: what failed long ago is past", 0, fails(5) + succeeds(15) + fails(6), 26},
		{"only the last 20: successes of long ago do not help", 0, succeeds(20) + fails(6), 26},
		{"a quarter all the way", 0, strings.Repeat("FSSS", 7), 0},
	} {
		w.row(row.name, func(w *world) {
			ids := w.deadLetters(30)
			id := w.started(sampleOf(row.sample), atMost(1))
			played := w.playAll(id, row.outcomes+"SS")
			rep, _ := w.replay(id)
			if row.played == 0 {
				if want := min(len(row.outcomes)+2, len(ids)); played != want || rep.Status == deadletter.ReplayStopped {
					w.Errorf("%s after %d letters, want it to go on", rep.Status, played)
				}
				return
			}
			if rep.Status != deadletter.ReplayStopped || played != row.played {
				w.Fatalf("%s after %d letters, want it to be stopped after %d", rep.Status, played, row.played)
			}
			for _, letter := range ids[played:] {
				if l, _ := w.letter(letter); l.Status != deadletter.Dead {
					w.Errorf("a letter that was not played is %s", l.Status)
				}
			}
		})
	}
	w.row("what is leased runs on", func(w *world) {
		w.deadLetters(30)
		id := w.started(sampleOf(30), atMost(3))
		slow := w.handed(handLimit(1))
		w.playAll(id, fails(6)+succeeds(14))
		w.plays(id, deadletter.ReplayStopped, counts(0, 0, 1, 14, 15))
		if out := w.hand(""); len(out) != 0 {
			w.Errorf("%d letters of a stopped replay were handed out", len(out))
		}
		w.closed(slow.ID, by(slow, deadletter.Resolve), deadletter.Resolved, "replayed")
		w.plays(id, deadletter.ReplayStopped, counts(0, 0, 0, 15, 15))
		w.ends(id)
	})
}

// replayAlerts: a person is told when one has to look, once.
func replayAlerts(w *world) {
	told := func(w *world, id string, titles ...string) {
		w.Helper()
		rows := w.query("select title, unsent from outbox where path = $1 order by title", "/replays/"+id)
		for _, title := range titles {
			if !strings.Contains(rows, title) {
				w.Errorf("the alerts are %q, want one of %q", rows, title)
			}
		}
		if strings.Count(rows, "unsent=1 ") != len(titles) || strings.Count(rows, "\n") != len(titles) {
			w.Errorf("the alerts are %q, want those of %q", rows, titles)
		}
	}
	w.row("awaiting approval", func(w *world) {
		w.deadLetters(3)
		id := w.started(sampleOf(1))
		told(w, id)
		w.play(deadletter.Resolve)
		told(w, id, "approval")
		w.sweptLetters()
		w.said(id, deadletter.Pause, deadletter.ReplayPaused)
		w.said(id, deadletter.Approve, deadletter.ReplayRunning)
		w.ends(id)
		told(w, id, "approval")
	})
	w.row("stopped", func(w *world) {
		id := w.replayIn("stopped")
		told(w, id, "stopped")
		w.sweptLetters()
		w.say(id, deadletter.Cancel)
		told(w, id, "stopped")
	})
	w.row("stopped soon after the approval", func(w *world) {
		w.deadLetters(30)
		id := w.started(sampleOf(10), atMost(1))
		w.playAll(id, fails(25))
		told(w, id, "approval", "stopped")
	})
	for _, state := range []string{"done", "sampling"} {
		w.row("none when "+state, func(w *world) {
			id := w.replayIn(state)
			if state == "sampling" {
				w.said(id, deadletter.Pause, deadletter.ReplayPaused)
				w.said(id, deadletter.Cancel, deadletter.ReplayCancelled)
			}
			told(w, id)
		})
	}
}

// replayRate: no more leases than that in any minute, whichever replica is asked, and nobody else waits for it.
func replayRate(w *world) {
	w.row("any minute", func(w *world) {
		w.deadLetters(8)
		id := w.started(sampleOf(8), atMost(8), perMinute(3))
		take := func(limit int64, want int) (out []deadletter.Letter) {
			w.Helper()
			if out = w.hand("", handLimit(limit)); len(out) != want {
				w.Fatalf("%d letters were handed out, want %d", len(out), want)
			}
			return out
		}
		first := take(1, 1)[0]
		w.pass(30 * time.Second)
		take(25, 2)
		w.withheld("the rate is used up")
		w.pass(30*time.Second - time.Microsecond)
		w.withheld("the rate is used up")
		w.closed(first.ID, by(first, deadletter.Fail, later(0)), deadletter.Queued, "not_now") // nothing was tried, and still it was a lease
		w.withheld("the rate is used up")
		w.pass(time.Microsecond)
		one := *w
		one.store = w.beside()
		if out := one.hand("", handLimit(25)); len(out) != 1 {
			w.Fatalf("%d letters were handed out by another replica, want 1", len(out))
		}
		w.withheld("the rate is used up")
		w.pass(30 * time.Second)
		take(25, 2)
		w.pass(2 * time.Minute)
		take(25, 3)
		w.plays(id, deadletter.ReplaySampling, counts(0, 0, 8, 0, 0))
	})
	w.row("one letter again and again", func(w *world) {
		w.deadLetters(1)
		w.started(sampleOf(1), perMinute(2))
		for range 2 {
			l := w.handed()
			w.closed(l.ID, by(l, deadletter.Fail, later(0)), deadletter.Queued, "not_now")
			w.pass(time.Second)
		}
		w.withheld("the rate is used up")
		w.pass(58 * time.Second)
		w.handed()
	})
	w.row("whose lease it is already", func(w *world) {
		w.deadLetters(2)
		w.started(sampleOf(2), perMinute(1))
		l := w.hand("poll")
		again := w.hand("poll")
		if len(l) != 1 || len(again) != 1 || l[0].LeaseToken() != again[0].LeaseToken() {
			w.Errorf("%v, then %v", idsOf(l), idsOf(again))
		}
	})
	w.row("others do not wait", func(w *world) {
		w.deadLetters(30)
		w.started(sampleOf(30), atMost(30), perMinute(1), func(r *deadletter.ReplayRequest) { r.Selector.Class = "auth" })
		w.handed(handLimit(1))
		var apart []string
		for i := range 3 {
			l := w.told(w.failed(fmt.Sprint(7+i), harmless))
			w.closed(l.ID, byPerson(deadletter.Requeue), deadletter.Queued, "requeued")
			apart = append(apart, l.ID)
		}
		if l := w.handed(handLimit(1)); l.ID != apart[0] && l.ID != apart[1] && l.ID != apart[2] {
			w.Errorf("%s was handed out, want one of %v", l.ID, apart)
		}
		if got := idsOf(w.hand("")); len(got) != 2 || !slices.Contains(apart, got[0]) || !slices.Contains(apart, got[1]) {
			w.Errorf("%v were handed out, want the other two of %v", got, apart)
		}
	})
}
