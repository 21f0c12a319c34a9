package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// replayIn makes a replay that stands there.
func (w *world) replayIn(state string) (id string) {
	w.Helper()
	from, paused := strings.CutPrefix(state, "paused from ")
	switch from {
	case "done":
		return w.started()
	case "stopped":
		w.deadLetters(21)
		id = w.started(allSampled)
		w.playAll(id, strings.Repeat("F", 20))
		return id
	}
	w.deadLetters(3)
	id = w.started(sampleOf(1), atMost(1))
	if from != "sampling" {
		w.play(deadletter.Resolve)
	}
	if from == "running" || from == "cancelled" {
		w.said(id, deadletter.Approve, deadletter.ReplayRunning)
	}
	if from == "cancelled" {
		w.said(id, deadletter.Cancel, deadletter.ReplayCancelled)
	}
	if paused {
		w.said(id, deadletter.Pause, deadletter.ReplayPaused)
	}
	return id
}

// replayVerbs: what a person may say in which state, and what it makes of the replay.
func replayVerbs(w *world) {
	const refused = ""
	for state, want := range map[string]map[deadletter.ReplayVerb]deadletter.ReplayStatus{
		"sampling":                      {deadletter.Approve: refused, deadletter.Pause: "paused", deadletter.Cancel: "cancelled"},
		"awaiting_approval":             {deadletter.Approve: "running", deadletter.Pause: "paused", deadletter.Cancel: "cancelled"},
		"running":                       {deadletter.Approve: "running", deadletter.Pause: "paused", deadletter.Cancel: "cancelled"},
		"paused from sampling":          {deadletter.Approve: "sampling", deadletter.Pause: "paused", deadletter.Cancel: "cancelled"},
		"paused from awaiting_approval": {deadletter.Approve: "running", deadletter.Pause: "paused", deadletter.Cancel: "cancelled"},
		"paused from running":           {deadletter.Approve: "running", deadletter.Pause: "paused", deadletter.Cancel: "cancelled"},
		"done":                          {deadletter.Approve: refused, deadletter.Pause: refused, deadletter.Cancel: refused},
		"stopped":                       {deadletter.Approve: refused, deadletter.Pause: refused, deadletter.Cancel: refused},
		"cancelled":                     {deadletter.Approve: refused, deadletter.Pause: refused, deadletter.Cancel: "cancelled"},
	} {
		for verb, to := range want {
			w.row(fmt.Sprint(state, ", ", verb), func(w *world) {
				id := w.replayIn(state)
				before, _ := w.replay(id)
				w.pass(time.Second)
				if to == refused {
					w.unmoved("a refusal", func() {
						if rep, changed, code := w.say(id, verb); code != "invalid_transition" || changed || fmt.Sprintf("%+v", rep) != fmt.Sprintf("%+v", before) {
							w.Errorf("%s, changed %v, code %q", rep.Status, changed, code)
						}
					})
					return
				}
				if to != before.Status {
					w.said(id, verb, to)
				}
				said, _ := w.replay(id)
				w.unmoved("a repeat", func() {
					if rep, changed, code := w.say(id, verb); code != "" || changed || fmt.Sprintf("%+v", rep) != fmt.Sprintf("%+v", said) {
						w.Errorf("again: %+v, changed %v, code %q", rep, changed, code)
					}
				})
			})
		}
	}
}

// replayPause: nothing is handed out, what is leased ends and is counted, and approval goes on from there.
func replayPause(w *world) {
	w.row("while sampling", func(w *world) {
		ids := w.deadLetters(5)
		id := w.started(sampleOf(4), atMost(3))
		held := w.hand("", handLimit(2))
		w.said(id, deadletter.Pause, deadletter.ReplayPaused)
		w.pass(10 * time.Second)
		w.withheld("the replay is paused")
		apart := w.told(w.failed("7")).ID
		w.closed(apart, byPerson(deadletter.Requeue), deadletter.Queued, "requeued")
		if got := w.play(deadletter.Resolve); got != apart {
			w.Errorf("%s was handed out, want what has no part in the replay", got)
		}
		w.closed(held[0].ID, by(held[0], deadletter.Resolve), deadletter.Resolved, "replayed")
		w.plays(id, deadletter.ReplayPaused, counts(2, 1, 1, 1, 0))
		w.pass(300 * time.Second)
		w.sweptLetters()
		w.plays(id, deadletter.ReplayPaused, counts(2, 1, 0, 1, 1))
		w.stands(held[1].ID, deadletter.Dead, "lease_expired", 2)
		w.pass(2 * time.Hour)
		w.withheld("the replay is paused")
		w.said(id, deadletter.Approve, deadletter.ReplaySampling)
		w.plays(id, deadletter.ReplaySampling, counts(1, 2, 0, 1, 1))
		if got := idsOf(w.hand("")); !slices.Equal(got, sorted(ids[2:4]...)) {
			w.Errorf("%v, want the rest of the sample of %v", got, ids)
		}
	})
	w.row("the sample ends meanwhile", func(w *world) {
		w.deadLetters(3)
		id := w.started(sampleOf(1), atMost(1))
		l := w.handed()
		w.said(id, deadletter.Pause, deadletter.ReplayPaused)
		w.closed(l.ID, by(l, deadletter.Resolve), deadletter.Resolved, "replayed")
		w.plays(id, deadletter.ReplayPaused, counts(2, 0, 0, 1, 0))
		w.withheld("the replay is paused")
		w.said(id, deadletter.Approve, deadletter.ReplayRunning) // sent again it must not approve what nobody has seen
		w.ends(id)
	})
	w.row("the last one ends meanwhile", func(w *world) {
		w.deadLetters(1)
		id := w.started()
		l := w.handed()
		w.said(id, deadletter.Pause, deadletter.ReplayPaused)
		w.closed(l.ID, by(l, deadletter.Fail), deadletter.Dead, "outcome_unknown")
		w.ends(id)
		w.plays(id, deadletter.ReplayDone, counts(0, 0, 0, 0, 1))
	})
	w.row("its worker asks again, and says not now", func(w *world) {
		w.deadLetters(2)
		id := w.started(sampleOf(1), atMost(1))
		l := w.hand("poll")[0]
		w.said(id, deadletter.Pause, deadletter.ReplayPaused)
		if again := w.hand("poll"); len(again) != 1 || again[0].LeaseToken() != l.LeaseToken() {
			w.Errorf("%+v, want the lease that is live", again)
		}
		w.closed(l.ID, by(l, deadletter.Fail, later(30)), deadletter.Queued, "not_now")
		w.pass(time.Minute)
		w.withheld("the replay is paused")
		w.said(id, deadletter.Approve, deadletter.ReplaySampling)
		if again := w.handed(); again.ID != l.ID || again.AttemptCount != 2 {
			w.Errorf("%+v", again)
		}
	})
}

// replayCancel: what no worker holds is dead at once, what is leased runs on and is counted, and all is a person's again.
func replayCancel(w *world) {
	type ending struct {
		end    func(*world, deadletter.Letter)
		want   deadletter.Status
		reason string
	}
	failedByWorker := ending{func(w *world, l deadletter.Letter) { w.close(l.ID, by(l, deadletter.Fail)) }, deadletter.Dead, "outcome_unknown"}
	for name, row := range map[string]ending{
		"resolved": {func(w *world, l deadletter.Letter) { w.close(l.ID, by(l, deadletter.Resolve)) }, deadletter.Resolved, "replayed"},
		"failed":   failedByWorker,
		"not now":  {func(w *world, l deadletter.Letter) { w.close(l.ID, by(l, deadletter.Fail, later(30))) }, deadletter.Dead, deadletter.ReasonNotPlayed},
		"over": {func(w *world, _ deadletter.Letter) {
			w.pass(300 * time.Second)
			w.sweptLetters()
		}, deadletter.Dead, "lease_expired"},
	} {
		w.row("what is leased is "+name, func(w *world) {
			ids := w.deadLetters(5)
			id := w.started(sampleOf(4), atMost(2))
			l := w.handed(handLimit(1))
			w.pass(time.Minute)
			w.said(id, deadletter.Cancel, deadletter.ReplayCancelled)
			if rep := w.plays(id, deadletter.ReplayCancelled, counts(0, 0, 1, 0, 4)); rep.EndedAt != w.now() {
				w.Errorf("%+v", rep)
			}
			w.stands(ids[1], deadletter.Dead, deadletter.ReasonNotPlayed, 1)
			for _, waited := range ids[2:] {
				l := w.stands(waited, deadletter.Dead, "auth", 1)
				if m := w.member(id, waited); m.State != deadletter.MemberReleased || l.ReplayID != "" {
					w.Errorf("%+v, and the letter names replay %q", m, l.ReplayID)
				}
			}
			w.withheld("the replay is cancelled")
			if name == "resolved" { // and it may be asked for another lease
				if out, code := w.close(l.ID, by(l, deadletter.Extend, leaseFor(900))); code != "" || !out.Changed {
					w.Errorf("extend: %q", code)
				}
			}
			row.end(w, l)
			got := w.stands(l.ID, row.want, row.reason, map[bool]int64{true: 1, false: 2}[name == "not now"])
			if row.want == deadletter.Resolved {
				w.plays(id, deadletter.ReplayCancelled, counts(0, 0, 0, 1, 4))
			} else {
				w.plays(id, deadletter.ReplayCancelled, counts(0, 0, 0, 0, 5))
			}
			w.pass(2 * time.Hour)
			w.sweptLetters()
			w.withheld("the replay is cancelled")
			w.stands(got.ID, row.want, row.reason, got.AttemptCount)
		})
	}
	w.row("what is released is run by hand, by the rules of other letters", func(w *world) {
		ids := w.deadLetters(3, safeToRepeat)
		id := w.started(sampleOf(1), atMost(1))
		w.said(id, deadletter.Cancel, deadletter.ReplayCancelled)
		for _, letter := range ids {
			w.closed(letter, byPerson(deadletter.Requeue), deadletter.Queued, "requeued")
		}
		for _, l := range w.hand("") {
			w.closed(l.ID, by(l, deadletter.Fail), deadletter.Queued, "transient")
		}
		w.plays(id, deadletter.ReplayCancelled, counts(0, 0, 0, 0, 3))
	})
	w.row("what is released is selected again", func(w *world) {
		ids := w.deadLetters(4)
		first := w.started(sampleOf(2), atMost(2))
		l := w.handed(handLimit(1))
		w.said(first, deadletter.Cancel, deadletter.ReplayCancelled)
		second := w.started()
		if got := w.members(second); !slices.Equal(got, ids[1:]) {
			w.Errorf("%v, want what no worker holds of %v", got, ids)
		}
		w.closed(l.ID, by(l, deadletter.Resolve), deadletter.Resolved, "replayed")
		w.plays(first, deadletter.ReplayCancelled, counts(0, 0, 0, 1, 3))
		w.ends(second)
		w.plays(second, deadletter.ReplayDone, counts(0, 0, 0, 3, 0))
		w.plays(first, deadletter.ReplayCancelled, counts(0, 0, 0, 1, 3))
	})
}

func safeToRepeat(r *deadletter.Report) { r.SafeToRepeat = true }

// replayWhy holds the traces that broke the first draft of the rules of replays (F9).
func replayWhy(w *world) {
	w.row("a letter that is queued already runs before the approval", func(w *world) {
		w.dueLetters(2)
		w.started(choosingQueued, sampleOf(0))
		w.withheld("nothing is approved")
		w.pass(2 * time.Hour)
		w.sweptLetters()
		w.withheld("nothing is approved")
	})
	for name, cancelled := range map[string]bool{"a lease that ends queues the letter again": false, "and so after the cancel": true} {
		w.row(name, func(w *world) {
			c := w.grant(w.event("key", w.run("7")))
			w.told(w.failed("7"))
			w.pass(time.Hour)
			id := w.started(choosingQueued)
			l := w.handed()
			if cancelled {
				w.said(id, deadletter.Cancel, deadletter.ReplayCancelled)
			}
			w.pass(300 * time.Second)
			w.sweptLetters()
			w.stands(l.ID, deadletter.Dead, "lease_expired", 2)
			w.pass(2 * time.Hour)
			w.sweptLetters()
			w.withheld("it has had its try")
			w.status(c.ID, ledger.Failed)
		})
	}
	w.row("/fail queues the letter again", func(w *world) {
		w.grant(w.event("key", w.run("7")))
		w.told(w.failed("7"))
		w.pass(time.Hour)
		w.started(choosingQueued)
		l := w.handed()
		w.closed(l.ID, by(l, deadletter.Fail), deadletter.Dead, "transient")
		w.pass(2 * time.Hour)
		w.sweptLetters()
		w.withheld("it has had its try")
	})
}
