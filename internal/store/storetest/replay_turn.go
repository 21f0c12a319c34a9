package storetest

import (
	"fmt"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// replayPlaces: however a letter ends, its place goes to the next in the same transaction.
func replayPlaces(w *world) {
	const resolved, dead = true, false // the letter, in the end
	run := func(w *world, mods ...mod) ledger.Claim {
		return w.grant(w.event("key0", append([]mod{w.run("200")}, mods...)...))
	}
	for _, row := range []struct {
		name     string
		act      func(w *world, l deadletter.Letter, c ledger.Claim) // l is leased
		resolved bool
	}{
		{"/resolve", func(w *world, l deadletter.Letter, _ ledger.Claim) { w.close(l.ID, by(l, deadletter.Resolve)) }, resolved},
		{"/fail", func(w *world, l deadletter.Letter, _ ledger.Claim) { w.close(l.ID, by(l, deadletter.Fail)) }, dead},
		{"a failure that no time heals", func(w *world, l deadletter.Letter, _ ledger.Claim) {
			w.close(l.ID, by(l, deadletter.Fail, status(401)))
		}, dead},
		{"the lease ends, as a sweep finds", func(w *world, _ deadletter.Letter, _ ledger.Claim) {
			w.pass(300 * time.Second)
			w.sweptLetters()
		}, dead},
		{"the lease ends, as a worker finds that looks elsewhere", func(w *world, _ deadletter.Letter, _ ledger.Claim) {
			w.pass(300 * time.Second)
			w.hand("", func(r *deadletter.LeaseRequest) { r.WorkflowID = "Elsewhere" })
		}, dead},
		{"its run completes the event", func(w *world, _ deadletter.Letter, _ ledger.Claim) {
			w.ended(complete(worker(run(w)), "r"), ledger.Completed)
		}, resolved},
		{"its run completes the event, then its worker resolves", func(w *world, l deadletter.Letter, _ ledger.Claim) {
			w.ended(complete(worker(run(w)), "r"), ledger.Completed)
			w.repeated(l.ID, by(l, deadletter.Resolve), deadletter.Resolved)
		}, resolved},
		{"the first run completes the event", func(w *world, _ deadletter.Letter, c ledger.Claim) {
			w.ended(complete(worker(c), "r"), ledger.Completed)
		}, resolved},
		{"a receipt by key completes the event", func(w *world, _ deadletter.Letter, c ledger.Claim) {
			w.ended(completeKey(c.Key, "r"), ledger.Completed)
		}, resolved},
		{"a person completes the event", func(w *world, _ deadletter.Letter, c ledger.Claim) { w.resolved(c.ID, ledger.Completed) }, resolved},
		{"its run is reported", func(w *world, _ deadletter.Letter, _ ledger.Claim) {
			run(w)
			w.told(w.failed("200"))
		}, dead},
		{"its run says /mark-failed", func(w *world, _ deadletter.Letter, _ ledger.Claim) {
			w.ended(transiently(worker(run(w))), ledger.Failed)
		}, dead},
		{"its run loses the event's lease", func(w *world, _ deadletter.Letter, _ ledger.Claim) {
			run(w, lease(60))
			w.pass(time.Minute)
			w.sweptLetters()
		}, dead},
	} {
		w.row(row.name, func(w *world) {
			ids, claims := w.deadEvents(3)
			id := w.started(allSampled)
			l := w.handed()
			w.plays(id, deadletter.ReplaySampling, counts(2, 0, 1, 0, 0))
			row.act(w, l, claims[0])
			want, state := counts(1, 1, 0, 0, 1), deadletter.MemberFailed
			if row.resolved {
				want, state = counts(1, 1, 0, 1, 0), deadletter.MemberResolved
			}
			w.plays(id, deadletter.ReplaySampling, want)
			if m := w.member(id, l.ID); m.State != state {
				w.Errorf("%+v, want %s", m, state)
			}
			if got := w.handed(); got.ID != ids[1] {
				w.Errorf("%s was handed out, want %s", got.ID, ids[1])
			}
		})
	}
	person := func(verb deadletter.Verb) func(*world, string) {
		return func(w *world, id string) { w.close(id, byPerson(verb)) }
	}
	for name, row := range map[string]struct {
		act  func(w *world, id string) // no worker holds the letter
		want deadletter.ReplayCounts
	}{
		"a person discards it": {person(deadletter.Discard), counts(1, 1, 0, 0, 1)},
		"a person resolves it": {person(deadletter.Resolve), counts(1, 1, 0, 1, 0)},
		"its event is completed": {func(w *world, _ string) {
			w.ended(completeKey(w.event("key0").Key, "r"), ledger.Completed)
		}, counts(1, 1, 0, 1, 0)},
		"n8n says that a retry by hand has succeeded": {func(w *world, _ string) { w.succeeded("100") }, counts(1, 1, 0, 1, 0)},
	} {
		w.row("not leased, "+name, func(w *world) {
			ids, _ := w.deadEvents(3)
			id := w.started(allSampled)
			row.act(w, ids[0])
			w.plays(id, deadletter.ReplaySampling, row.want)
			if got := w.handed(); got.ID != ids[1] {
				w.Errorf("%s was handed out, want %s", got.ID, ids[1])
			}
		})
	}
	w.row("its worker said done, and its event is not", func(w *world) {
		ids, _ := w.deadEvents(2)
		id := w.started(allSampled)
		w.play(deadletter.Resolve)
		w.pass(6 * time.Minute)
		w.sweptLetters()
		w.stands(ids[0], deadletter.Dead, "not_done", 2)
		w.plays(id, deadletter.ReplaySampling, counts(0, 1, 0, 0, 1))
		w.play(deadletter.Resolve)
		w.plays(id, deadletter.ReplayDone, counts(0, 0, 0, 1, 1))
		w.pass(6 * time.Minute)
		w.sweptLetters()
		w.stands(ids[1], deadletter.Dead, "not_done", 2)
		w.pass(2 * time.Hour)
		w.withheld("each has had its try")
	})
}

// succeeded is n8n's word about an execution that has one letter.
func (w *world) succeeded(execution string) {
	w.Helper()
	if n, err := w.store.Succeeded(w.Context(), w.wf(), execution); n != 1 || err != nil {
		w.Fatalf("%d letters were resolved, %v; want 1", n, err)
	}
}

// replayTriesOnce: a letter that failed in its replay is dead, in whatever order, and how often, that is told.
func replayTriesOnce(w *world) {
	acts := map[string]func(w *world, l deadletter.Letter, run ledger.Claim){
		"resolve": func(w *world, l deadletter.Letter, _ ledger.Claim) { w.close(l.ID, by(l, deadletter.Resolve)) },
		"fail":    func(w *world, l deadletter.Letter, _ ledger.Claim) { w.close(l.ID, by(l, deadletter.Fail)) },
		"not now": func(w *world, l deadletter.Letter, _ ledger.Claim) { w.close(l.ID, by(l, deadletter.Fail, later(1))) },
		"report":  func(w *world, _ deadletter.Letter, _ ledger.Claim) { w.tell(w.failed("200")) },
		"mark":    func(w *world, _ deadletter.Letter, run ledger.Claim) { w.end(transiently(worker(run))) },
		"over": func(w *world, _ deadletter.Letter, _ ledger.Claim) {
			w.pass(300 * time.Second)
			w.sweptLetters()
		},
	}
	for _, row := range [][]string{
		{"fail", "report"},
		{"report", "fail"},
		{"report", "report", "not now"},
		{"fail", "fail", "report", "report"},
		{"mark", "report", "fail"},
		{"mark", "fail", "report"},
		{"fail", "mark", "report"},
		{"over", "report", "fail"},
		{"over", "mark", "report"},
		{"over", "over", "report"},
		{"fail", "over", "report"},
		// A webhook that answers at once says that it was received, and not that the run went well.
		{"resolve", "report"},
		{"resolve", "mark", "report"},
		{"resolve", "over"},
	} {
		for _, last := range []bool{false, true} { // the last letter's end ends the replay, and the rest is told afterwards
			w.row(fmt.Sprint(row, " last: ", last), func(w *world) {
				letters, status, want := 2, deadletter.ReplaySampling, counts(0, 1, 0, 0, 1)
				if last {
					letters, status, want = 1, deadletter.ReplayDone, counts(0, 0, 0, 0, 1)
				}
				ids, _ := w.deadEvents(letters)
				id := w.started(allSampled)
				l := w.handed()
				run := w.grant(w.event("key0", w.run("200")))
				for _, act := range row {
					if acts[act](w, l, run); act == "resolve" {
						continue
					}
					if now, _ := w.letter(l.ID); now.Status != deadletter.Dead || now.AttemptCount != 2 {
						w.Fatalf("after %s the letter is %s (%s) at attempt %d", act, now.Status, now.Reason, now.AttemptCount)
					}
					w.plays(id, status, want)
				}
				w.pass(2 * time.Hour)
				w.sweptLetters()
				for _, got := range w.hand("") {
					if got.ID != ids[letters-1] || last {
						w.Errorf("letter %s has had its try", got.ID)
					}
				}
				if m := w.member(id, l.ID); m.State != deadletter.MemberFailed {
					w.Errorf("%+v", m)
				}
			})
		}
	}
	w.row("a person runs it again: that is none of the replay's", func(w *world) {
		ids := w.deadLetters(3, safeToRepeat)
		id := w.started(allSampled)
		w.play(deadletter.Fail)
		if l := w.closed(ids[0], byPerson(deadletter.Requeue), deadletter.Queued, "requeued"); l.ReplayID != "" {
			w.Errorf("%+v", l)
		}
		w.plays(id, deadletter.ReplaySampling, counts(1, 1, 0, 0, 1))
		for _, l := range w.hand("") {
			if l.ID == ids[0] {
				w.closed(l.ID, by(l, deadletter.Fail), deadletter.Queued, "transient")
			}
		}
		w.plays(id, deadletter.ReplaySampling, counts(1, 0, 1, 0, 1))
	})
	w.row("its receipt comes late", func(w *world) {
		w.deadEvents(2)
		id := w.started(allSampled)
		l := w.handed()
		run := w.grant(w.event("key0", w.run("200")))
		w.closed(l.ID, by(l, deadletter.Fail), deadletter.Dead, "transient")
		w.plays(id, deadletter.ReplaySampling, counts(0, 1, 0, 0, 1))
		w.ended(complete(worker(run), "r"), ledger.Completed)
		w.plays(id, deadletter.ReplaySampling, counts(0, 1, 0, 1, 0))
		if m := w.member(id, l.ID); m.State != deadletter.MemberResolved || m.Status != deadletter.Resolved {
			w.Errorf("%+v", m)
		}
	})
	w.row("not now is no failure: it keeps its place", func(w *world) {
		w.deadLetters(2)
		id := w.started(allSampled)
		for range 3 {
			l := w.handed()
			if l.AttemptCount != 2 {
				w.Errorf("attempt %d", l.AttemptCount)
			}
			w.closed(l.ID, by(l, deadletter.Fail, later(45)), deadletter.Queued, "not_now")
			w.plays(id, deadletter.ReplaySampling, counts(1, 1, 0, 0, 0))
			w.pass(44 * time.Second)
			w.withheld("not before it is due")
			w.pass(time.Second)
		}
		w.play(deadletter.Resolve)
		w.plays(id, deadletter.ReplaySampling, counts(0, 1, 0, 1, 0))
	})
}

// replayWaiting: what is said about a letter that waits for its turn.
func replayWaiting(w *world) {
	again := func(w *world) ledger.Claim { return w.grant(w.event("key1", w.run("9"))) }
	still, left := counts(2, 0, 1, 0, 0), counts(1, 0, 1, 1, 0)
	for _, row := range []struct {
		name   string
		act    func(w *world, id string, c ledger.Claim)
		status deadletter.Status
		want   deadletter.ReplayCounts
	}{
		{"requeue is refused", func(w *world, id string, _ ledger.Claim) {
			w.turnedAway(id, byPerson(deadletter.Requeue), "invalid_transition")
		}, deadletter.Dead, still},
		{"resolve", func(w *world, id string, _ ledger.Claim) {
			w.closed(id, byPerson(deadletter.Resolve), deadletter.Resolved, "resolved_by_person")
		}, deadletter.Resolved, left},
		{"discard", func(w *world, id string, _ ledger.Claim) { w.letterOut(id) }, deadletter.Discarded, counts(1, 0, 1, 0, 1)},
		{"its event is completed", func(w *world, _ string, c ledger.Claim) { w.ended(complete(worker(c), "r"), ledger.Completed) }, deadletter.Resolved, left},
		{"its event is completed by another run", func(w *world, _ string, _ ledger.Claim) { w.ended(complete(worker(again(w)), "r"), ledger.Completed) }, deadletter.Resolved, left},
		{"n8n says that it has succeeded", func(w *world, _ string, _ ledger.Claim) { w.succeeded("101") }, deadletter.Resolved, left},
		{"another run is reported as failed", func(w *world, _ string, _ ledger.Claim) { again(w); w.told(w.failed("9")) }, deadletter.Dead, still},
		{"a retry by hand is reported as failed", func(w *world, _ string, _ ledger.Claim) { w.told(w.failed("9", retryOf("101"))) }, deadletter.Dead, still},
		{"another run says /mark-failed", func(w *world, _ string, _ ledger.Claim) { w.ended(transiently(worker(again(w))), ledger.Failed) }, deadletter.Dead, still},
		{"another run loses the event's lease", func(w *world, _ string, _ ledger.Claim) {
			w.grant(w.event("key1", w.run("9"), lease(60)))
			w.pass(time.Minute)
			w.sweptLetters()
		}, deadletter.Dead, still},
	} {
		for _, queued := range []bool{false, true} {
			w.row(fmt.Sprint(row.name, ", from the queue: ", queued), func(w *world) {
				ids, claims := w.deadEvents(3)
				mods := []replayMod{allSampled}
				if queued {
					for _, id := range ids {
						w.closed(id, byPerson(deadletter.Requeue), deadletter.Queued, "requeued")
					}
					mods = append(mods, choosingQueued)
				}
				id := w.started(mods...)
				l := w.handed()
				row.act(w, ids[1], claims[1])
				if now, _ := w.letter(ids[1]); now.Status != row.status {
					w.Fatalf("the letter is %s (%s), want %s", now.Status, now.Reason, row.status)
				}
				w.plays(id, deadletter.ReplaySampling, row.want)
				w.withheld("its turn has not come")
				w.closed(l.ID, by(l, deadletter.Resolve), deadletter.Resolved, "replayed")
				want := ids[1]
				if row.status != deadletter.Dead {
					want = ids[2]
				}
				if got := w.handed(); got.ID != want {
					w.Errorf("%s was handed out, want %s of %v", got.ID, want, ids)
				}
			})
		}
	}
	for name, act := range map[string]func(w *world, id string, c ledger.Claim){
		"discarded": func(w *world, id string, _ ledger.Claim) { w.letterOut(id) },
		"resolved":  func(w *world, id string, _ ledger.Claim) { w.close(id, byPerson(deadletter.Resolve)) },
		"completed": func(w *world, _ string, c ledger.Claim) { w.ended(complete(worker(c), "r"), ledger.Completed) },
	} {
		w.row("the last that waits is "+name, func(w *world) {
			ids, claims := w.deadEvents(3)
			id := w.started(sampleOf(2), atMost(1))
			act(w, ids[1], claims[1]) // of the sample
			w.play(deadletter.Resolve)
			rep, _ := w.replay(id)
			w.plays(id, deadletter.ReplayAwaiting, rep.Counts)
			act(w, ids[2], claims[2])
			rep, _ = w.replay(id)
			if rep = w.plays(id, deadletter.ReplayDone, rep.Counts); rep.Counts.Waiting != 0 || rep.EndedAt != w.now() {
				w.Errorf("%+v", rep)
			}
		})
	}
}
