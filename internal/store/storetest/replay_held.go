package storetest

import (
	"fmt"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// replayHeld: what nobody knows, what is done and what is overtaken is left alone, and the forecast says so before.
func replayHeld(w *world) {
	event := func(w *world, mods ...mod) ledger.Claim { return w.grant(w.event("key", append(mods, w.run("7"))...)) }
	effect := func(w *world, key, execution string, mods ...mod) ledger.Claim {
		return w.grant(w.effect(key, append([]mod{w.run(execution), lease(86400)}, mods...)...))
	}
	unknown := func(w *world, c ledger.Claim) { w.ended(markUnknown(worker(c)), ledger.Unknown) }
	done := func(w *world, c ledger.Claim) { w.ended(complete(worker(c), "r"), ledger.Completed) }
	broken := func(w *world, mods ...tell) {
		w.told(w.failed("7", append([]tell{verdict(wrongCredential)}, mods...)...))
	}
	// after makes the letter of an event, version 1 of an entity, and then completes another claim.
	after := func(mods ...mod) func(*world) {
		return func(w *world) {
			event(w, of("e", "1"))
			broken(w)
			done(w, w.grant(w.event("next", mods...)))
		}
	}
	for _, row := range []struct {
		name  string
		setup func(*world)
		want  string
	}{
		{"no claim", func(w *world) { broken(w) }, ""},
		{"its event failed", func(w *world) { event(w); broken(w) }, ""},
		{"its effect completed", func(w *world) { event(w); done(w, effect(w, "key", "7")); broken(w) }, ""},
		{"its effect failed", func(w *world) { event(w); w.ended(refused(worker(effect(w, "key", "7")), 1), ledger.Failed); broken(w) }, ""},
		{"its effect is under way", func(w *world) { event(w); effect(w, "key", "7"); broken(w) }, ""},
		{"its effect's lease is over", func(w *world) { event(w); effect(w, "key", "7", lease(60)); broken(w); w.pass(time.Minute) }, "unknown"},
		{"its effect is unknown", func(w *world) { event(w); unknown(w, effect(w, "key", "7")); broken(w) }, "unknown"},
		{"its effect is in review", func(w *world) {
			event(w)
			c := effect(w, "key", "7")
			unknown(w, c)
			w.resolved(c.ID, ledger.Review)
			broken(w)
		}, "unknown"},
		{"another run's effect of its key is unknown", func(w *world) { event(w); unknown(w, effect(w, "key", "6")); broken(w) }, "unknown"},
		{"one of two effects is unknown", func(w *world) {
			event(w)
			done(w, effect(w, "key", "7"))
			unknown(w, effect(w, "key", "7", step("mail")))
			broken(w)
		}, "unknown"},
		{"an effect of another key that its run claimed is unknown", func(w *world) { event(w); unknown(w, effect(w, "other", "7")); broken(w) }, "unknown"},
		{"an effect of another key that its run claimed is over", func(w *world) { event(w); effect(w, "other", "7", lease(60)); broken(w); w.pass(time.Minute) }, "unknown"},
		{"an effect of another key and run is unknown", func(w *world) { event(w); unknown(w, effect(w, "other", "6")); broken(w) }, ""},
		{"an effect of a run with its number elsewhere is unknown", func(w *world) {
			event(w)
			unknown(w, effect(w, "other", "7", workflow("Other."+w.source)))
			broken(w)
		}, ""},
		{"an effect of its key in another account is unknown", func(w *world) { event(w); unknown(w, effect(w, "key", "6", account("b"))); broken(w) }, ""},
		{"its event is unknown", func(w *world) { unknown(w, event(w)); broken(w) }, "unknown"},
		{"its event is in review", func(w *world) {
			c := event(w)
			unknown(w, c)
			w.resolved(c.ID, ledger.Review)
			broken(w)
		}, "unknown"},
		{"its event is completed", func(w *world) { done(w, event(w)); broken(w) }, "completed"},
		{"its event is completed, an effect unknown", func(w *world) {
			unknown(w, effect(w, "key", "7"))
			done(w, event(w))
			broken(w)
		}, "unknown"},
		{"its event is completed, and an effect was settled late", func(w *world) {
			done(w, event(w))
			w.ended(refused(worker(effect(w, "key", "7")), 1), ledger.Failed)
		}, "completed"},
		{"another event of its key is completed", func(w *world) {
			event(w)
			done(w, w.grant(w.event("key", kind(ledger.Event), step("copy"), w.run("6"))))
			broken(w)
		}, ""},
		{"its event has a step, and the one without is completed", func(w *world) {
			event(w, kind(ledger.Event), step("copy"))
			done(w, w.grant(w.event("key", w.run("6"))))
			broken(w)
		}, ""},
		{"its event is stale", func(w *world) {
			after(of("e", "2"))(w)
			w.decide(w.event("key", of("e", "1")), ledger.DecisionStale)
		}, "superseded"},
		{"a newer version is completed", after(of("e", "2")), "superseded"},
		{"a newer version is completed by an effect", after(of("e", "2"), step("charge")), "superseded"},
		{"a newer version is completed, an effect unknown", func(w *world) { unknown(w, effect(w, "key", "7")); after(of("e", "2"))(w) }, "unknown"},
		{"a newer version is completed, and so is its event", func(w *world) {
			done(w, event(w, of("e", "1")))
			broken(w)
			done(w, w.grant(w.event("next", of("e", "2"))))
		}, "completed"},
		{"an equal version is completed", after(of("e", "1")), ""},
		{"an older version is completed", after(of("e", "0")), ""},
		{"a version of another sort is completed", after(of("e", "2026-01-01T00:00:00Z")), ""},
		{"a newer version of another entity is completed", after(of("f", "2")), ""},
		{"a newer version in another account is completed", after(of("e", "2"), account("b")), ""},
		{"a newer version is under way", func(w *world) { event(w, of("e", "1")); broken(w); w.grant(w.event("next", of("e", "2"))) }, ""},
		{"an effect alone is unknown", func(w *world) { unknown(w, effect(w, "key", "7")); broken(w) }, "unknown"},
		{"an effect alone is completed", func(w *world) { done(w, effect(w, "key", "7")); broken(w) }, ""},
		{"an effect alone failed", func(w *world) { w.ended(refused(worker(effect(w, "key", "7")), 1), ledger.Failed) }, ""},
		{"an effect alone failed, and a newer version is completed", func(w *world) {
			w.ended(refused(worker(effect(w, "key", "7", of("e", "1"))), 1), ledger.Failed)
			done(w, w.grant(w.event("next", of("e", "2"))))
		}, "superseded"},
		{"an effect of the key that its sender gave is unknown", func(w *world) {
			unknown(w, effect(w, "key", "6"))
			broken(w, func(r *deadletter.Report) { r.Key = ledger.Key{Source: w.source, IdempotencyKey: "key"} })
		}, "unknown"},
		{"the event of the key that its sender gave is completed", func(w *world) {
			done(w, w.grant(w.event("key", w.run("6"))))
			broken(w, func(r *deadletter.Report) { r.Key = ledger.Key{Source: w.source, IdempotencyKey: "key"} })
		}, "completed"},
	} {
		w.row(row.name, func(w *world) {
			row.setup(w)
			letter := w.only()
			want := deadletter.Forecast{Matched: 1, WouldRun: 1}
			switch row.want {
			case "unknown":
				want.WouldRun, want.Held.Unknown = 0, 1
			case "completed":
				want.WouldRun, want.Held.Completed = 0, 1
			case "superseded":
				want.WouldRun, want.Held.Superseded = 0, 1
			}
			r := w.replayOf()
			if f := w.forecast(r); f != want {
				w.Errorf("forecast %+v, want %+v", f, want)
			}
			if row.want == "" {
				rep, _ := w.start(r)
				w.plays(rep.ID, deadletter.ReplaySampling, counts(0, 1, 0, 0, 0))
				if m := w.member(rep.ID, letter.ID); m.State != deadletter.MemberActive || rep.Held != want.Held || rep.Matched != 1 {
					w.Errorf("%+v, %+v", m, rep)
				}
				return
			}
			w.unmoved("a replay that leaves the letter alone", func() {
				rep, _ := w.start(r)
				w.plays(rep.ID, deadletter.ReplayDone, counts(0, 0, 0, 0, 1))
				if m := w.member(rep.ID, letter.ID); m.State != deadletter.MemberHeld || m.Held != row.want || rep.Held != want.Held || rep.Matched != 1 {
					w.Errorf("%+v, %+v", m, rep)
				}
			})
		})
	}
}

// replayHeldAmong: held letters count for the limit, take no place in the sample, and the replay ends without them.
func replayHeldAmong(w *world) {
	ids, _ := w.deadEvents(6)
	w.ended(markUnknown(worker(w.grant(w.effect("key0", w.run("9"))))), ledger.Unknown)
	w.ended(markUnknown(worker(w.grant(w.effect("key2", w.run("9"))))), ledger.Unknown)
	r := w.replayOf(limitOf(5), sampleOf(2))
	want := deadletter.Forecast{Matched: 5, WouldRun: 3, Held: deadletter.Held{Unknown: 2}}
	if f := w.forecast(r); f != want {
		w.Errorf("%+v, want %+v", f, want)
	}
	rep, _ := w.start(r)
	w.plays(rep.ID, deadletter.ReplaySampling, counts(1, 2, 0, 0, 2))
	if got := idsOf(w.hand("")); fmt.Sprint(got) != fmt.Sprint(sorted(ids[1], ids[3])) || rep.Held != want.Held {
		w.Errorf("%v were handed out, want the first two of %v that are not held", got, ids)
	}
	w.pass(300 * time.Second)
	w.sweptLetters()
	w.said(rep.ID, deadletter.Approve, deadletter.ReplayRunning)
	w.play(deadletter.Resolve)
	w.plays(rep.ID, deadletter.ReplayDone, counts(0, 0, 0, 1, 4))
	w.stands(ids[0], deadletter.Dead, "auth", 1)
}

// replayPassedOver: a letter that becomes held before its turn is passed over; one that is free again is not.
func replayPassedOver(w *world) {
	for _, row := range []struct {
		name string
		mods []mod
		act  func(*world)
		held string
	}{
		{"unknown", nil, func(w *world) { w.ended(markUnknown(worker(w.grant(w.effect("key1", w.run("9"))))), ledger.Unknown) }, "unknown"},
		{"superseded", []mod{func(r *ledger.Request) {
			r.Entity = r.Key.IdempotencyKey
			r.Version = ledger.Version{Kind: ledger.IntegerVersion, Rank: 1}
		}}, func(w *world) {
			w.ended(complete(worker(w.grant(w.event("next", of("key1", "2")))), "r"), ledger.Completed)
		}, "superseded"},
		{"unknown, and settled in time", nil, func(w *world) {
			c := w.grant(w.effect("key1", w.run("9")))
			w.ended(markUnknown(worker(c)), ledger.Unknown)
			w.resolved(c.ID, ledger.Completed, resultID("r"))
		}, ""},
	} {
		w.row(row.name, func(w *world) {
			ids, _ := w.deadEvents(3, row.mods...)
			id := w.started(allSampled)
			row.act(w)
			w.plays(id, deadletter.ReplaySampling, counts(2, 1, 0, 0, 0))
			if got := w.play(deadletter.Resolve); got != ids[0] {
				w.Fatalf("letter %s, want %s", got, ids[0])
			}
			if row.held == "" {
				w.plays(id, deadletter.ReplaySampling, counts(1, 1, 0, 1, 0))
				if got := w.play(deadletter.Resolve); got != ids[1] {
					w.Errorf("letter %s, want %s", got, ids[1])
				}
				w.ends(id)
				return
			}
			w.plays(id, deadletter.ReplaySampling, counts(0, 1, 0, 1, 1))
			if m := w.member(id, ids[1]); m.State != deadletter.MemberHeld || m.Held != row.held {
				w.Errorf("%+v", m)
			}
			w.stands(ids[1], deadletter.Dead, "auth", 1)
			w.play(deadletter.Resolve)
			w.plays(id, deadletter.ReplayDone, counts(0, 0, 0, 2, 1))
		})
	}
	w.row("all that is left", func(w *world) {
		w.deadEvents(3)
		id := w.started(sampleOf(1), atMost(1))
		for i := range 2 {
			w.ended(markUnknown(worker(w.grant(w.effect(fmt.Sprint("key", i+1), w.run("9"))))), ledger.Unknown)
		}
		w.play(deadletter.Resolve)
		w.plays(id, deadletter.ReplayAwaiting, counts(2, 0, 0, 1, 0))
		w.said(id, deadletter.Approve, deadletter.ReplayDone)
		w.plays(id, deadletter.ReplayDone, counts(0, 0, 0, 1, 2))
	})
}
