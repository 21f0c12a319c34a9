package storetest

import (
	"fmt"
	"time"

	"holdfast/internal/ledger"
)

// entityDecisions: what a version of one entity is told while others are completed or under way.
func entityDecisions(w *world) {
	proceed := func(attempt int64) answer {
		return answer{decision: ledger.Proceed, status: ledger.Processing, attempt: attempt, token: "new"}
	}
	stale := func(attempt int64) answer {
		return answer{decision: ledger.DecisionStale, status: ledger.Stale, attempt: attempt}
	}
	wait := func(seconds int64) answer {
		return answer{decision: ledger.Wait, status: ledger.Pending, retry: seconds}
	}
	for _, row := range []struct {
		name    string
		version string // of the subject
		setup   func(*subject)
		want    answer
	}{
		{"a newer version is completed: stale, a new row is kept so", "1", func(x *subject) { x.another("2") }, stale(0)},
		{"a newer version is completed, by time", "2026-01-01T00:00:00Z", func(x *subject) { x.another("2026-01-01T00:00:00.000000001Z") }, stale(0)},
		{"a newer version is completed, in another zone", "2026-01-01T01:59:59+02:00", func(x *subject) { x.another("2026-01-01T00:00:00Z") }, stale(0)},
		{"a newer version is completed, below zero", "-9223372036854775808", func(x *subject) { x.another("-9223372036854775807") }, stale(0)},
		{"a newer version is completed, beyond 2^53", "9007199254740992", func(x *subject) { x.another("9007199254740993") }, stale(0)},
		{"a newer version is completed, paused: stale comes first", "1", func(x *subject) { x.another("2"); pausing(x) }, stale(0)},
		{"an equal version is completed: it is not newer", "2", func(x *subject) { x.another("2") }, proceed(1)},
		{"an equal time in another zone", "2026-01-01T02:00:00+02:00", func(x *subject) { x.another("2026-01-01T00:00:00Z") }, proceed(1)},
		{"an older version is completed", "3", func(x *subject) { x.another("2") }, proceed(1)},
		{"a version of another sort is completed", "1", func(x *subject) { x.another("2026-01-01T00:00:00Z") }, proceed(1)},
		{"no version of its own", "", func(x *subject) { x.another("2") }, proceed(1)},
		{"a newer version is processing under a live lease: stale", "1", func(x *subject) { x.other(ledger.Event, "2") }, stale(0)},
		{"a newer effect is processing under a live lease: stale", "1", func(x *subject) { x.other(ledger.Effect, "2") }, stale(0)},
		{"a newer event's lease is over: it counts no more", "1", func(x *subject) { x.other(ledger.Event, "2"); x.pass(eventLease) }, proceed(1)},
		{
			"a newer effect's lease is over: 60 behind an unknown effect", "1",
			func(x *subject) { x.other(ledger.Effect, "2"); x.pass(effectLease) }, wait(60),
		},
		{"a newer effect is unknown", "1", func(x *subject) { x.ended(markUnknown(worker(x.other(ledger.Effect, "2"))), ledger.Unknown) }, wait(60)},
		{
			"a newer event is unknown: it holds nothing back", "1",
			func(x *subject) { x.ended(markUnknown(worker(x.other(ledger.Event, "2"))), ledger.Unknown) }, proceed(1),
		},
		{
			"an older one is under a live lease: wait for what it has left", "3",
			func(x *subject) { x.other(ledger.Event, "2"); x.pass(10*time.Second - time.Millisecond) }, wait(291),
		},
		{"an equal one is under a live lease", "2", func(x *subject) { x.other(ledger.Event, "2") }, wait(300)},
		{"one without a version is under a live lease", "2", func(x *subject) { x.other(ledger.Effect, "") }, wait(900)},
		{"no version of its own, one is under a live lease", "", func(x *subject) { x.other(ledger.Event, "2") }, wait(300)},
		{"one of another sort of version is under a live lease", "1", func(x *subject) { x.other(ledger.Event, "2026-01-01T00:00:00Z") }, wait(300)},
		{"an older effect is unknown", "3", func(x *subject) { x.ended(markUnknown(worker(x.other(ledger.Effect, "2"))), ledger.Unknown) }, wait(60)},
		{"an older effect failed", "3", func(x *subject) { x.ended(notExecuted(worker(x.other(ledger.Effect, "2"))), ledger.Failed) }, proceed(1)},
		{"a newer one failed", "1", func(x *subject) { x.ended(notExecuted(worker(x.other(ledger.Event, "2"))), ledger.Failed) }, proceed(1)},
		{"the lease of an older event is over", "3", func(x *subject) { x.other(ledger.Event, "2"); x.pass(eventLease) }, proceed(1)},
		{"another account", "1", func(x *subject) { x.world.grant(x.event("other", account("b"), of("e", "2"))) }, proceed(1)},
		{"another entity", "1", func(x *subject) { x.world.grant(x.event("other", of("E", "2"))) }, proceed(1)},
		{"no entity", "1", func(x *subject) { x.world.grant(x.event("other")) }, proceed(1)},
	} {
		w.each(row.name, both, func(x *subject) {
			x.mods = append(x.mods, of("e", row.version))
			row.setup(x)
			x.answers(nil, row.want)
		})
	}
	entityStanding(w)
}

// other holds another key of the subject's entity.
func (x *subject) other(k ledger.Kind, version string) ledger.Claim {
	x.Helper()
	return x.world.grant(x.event("other", kind(k), of("e", version)))
}

// entityStanding: what becomes of a row that stands when a newer version is completed.
func entityStanding(w *world) {
	still := func(d ledger.Decision, s ledger.Status) answer {
		return answer{decision: d, status: s, attempt: 1, still: true}
	}
	for _, row := range []struct {
		name  string
		kinds []ledger.Kind
		setup func(*subject)
		want  answer
	}{
		{
			"failed, never unknown: stale", both, func(x *subject) { x.toState("failed"); x.another("2") },
			answer{decision: ledger.DecisionStale, status: ledger.Stale, attempt: 1},
		},
		{
			"processing, lease over, event: stale", eventOnly, func(x *subject) { x.toState("processing, over"); x.another("2") },
			answer{decision: ledger.DecisionStale, status: ledger.Stale, attempt: 1},
		},
		{"unknown: never stale", both, func(x *subject) { x.toState("unknown"); x.complete2() }, still(ledger.DecisionUnknown, ledger.Unknown)},
		{
			"processing, lease over, effect: unknown, never stale", effectOnly, func(x *subject) { x.toState("processing"); x.complete2(); x.pass(effectLease) },
			answer{decision: ledger.DecisionUnknown, status: ledger.Unknown, attempt: 1},
		},
		{"processing, lease live: in_progress", both, func(x *subject) { x.toState("processing"); x.complete2() }, still(ledger.InProgress, ledger.Processing)},
		{
			"completed", both, func(x *subject) { x.toState("completed"); x.complete2() },
			answer{decision: ledger.DecisionCompleted, status: ledger.Completed, attempt: 1, resultID: "r1", still: true},
		},
		{"review", both, func(x *subject) { x.toState("review"); x.complete2() }, still(ledger.DecisionReview, ledger.Review)},
		{
			"failed, once unknown: told stale, and not kept so", both, func(x *subject) { unknownThenFailed(x); x.another("2") },
			still(ledger.DecisionStale, ledger.Failed),
		},
		{
			"failed effect, once unknown, past its window: stale comes first", effectOnly,
			func(x *subject) { unknownThenFailed(x); x.another("2"); x.pass(day) }, still(ledger.DecisionStale, ledger.Failed),
		},
		{
			"failed: wait behind a live lease, it stays failed", both, func(x *subject) { x.toState("failed"); x.other(ledger.Effect, "1") },
			answer{decision: ledger.Wait, status: ledger.Failed, attempt: 1, retry: 900, still: true},
		},
	} {
		w.each(row.name, row.kinds, func(x *subject) {
			x.mods = append(x.mods, of("e", "1"))
			row.setup(x)
			x.answers(nil, row.want)
		})
	}
	w.each("same owner under a live lease: the lease comes before the newer version", both, func(x *subject) {
		x.mods = append([]mod{of("e", "1")}, owned...)
		x.toState("processing")
		x.complete2()
		x.answers(nil, answer{decision: ledger.Proceed, status: ledger.Processing, attempt: 1, token: "same", reentrant: true, still: true})
	})
	w.each("a decision that changes nothing names no new entity", both, func(x *subject) {
		x.toState("completed")
		x.answers([]mod{of("new", "1")}, answer{decision: ledger.DecisionCompleted, status: ledger.Completed, attempt: 1, resultID: "r1", still: true})
	})
}

// complete2 completes version 2 although the subject's own attempt stands: a receipt needs no fence.
func (x *subject) complete2() {
	x.Helper()
	other := x.event("another", of("e", "2"))
	x.pause("source."+x.source, 0)
	v := x.claim(other)
	x.resume("source." + x.source)
	if v.Decision != ledger.Wait {
		x.Fatalf("decision %q, want wait", v.Decision)
	}
	x.ended(completeKey(other.Key, "other"), ledger.Completed)
}

// entityVersions: the newest completed version is for ever, whatever happens to its claim, and whoever completed it.
func entityVersions(w *world) {
	ways := map[string]func(*subject){
		"by its token": func(x *subject) {
			x.ended(complete(worker(x.other(ledger.Event, "5")), "r"), ledger.Completed)
		},
		"by key": func(x *subject) {
			c := x.other(ledger.Event, "5")
			x.pass(eventLease)
			x.ended(completeKey(c.Key, "r"), ledger.Completed)
		},
		"by reference": func(x *subject) {
			c := x.other(ledger.Effect, "5")
			x.ended(withReference(markUnknown(worker(c)), "ref"), ledger.Unknown)
			x.ended(completeReference(x.source, "ref", "r"), ledger.Completed)
		},
		"by a reconciler": func(x *subject) {
			x.ended(markUnknown(worker(x.other(ledger.Effect, "5"))), ledger.Unknown)
			x.pass(time.Minute)
			x.ended(complete(looker(x.looked("rec")), "r"), ledger.Completed)
		},
		"by a person": func(x *subject) {
			c := x.other(ledger.Effect, "5")
			x.ended(markUnknown(worker(c)), ledger.Unknown)
			x.resolved(c.ID, ledger.Completed, resultID("r"))
		},
		"and run again": func(x *subject) {
			c := x.other(ledger.Event, "5")
			x.ended(complete(worker(c), "r"), ledger.Completed)
			x.resolved(c.ID, ledger.Failed)
		},
	}
	for name, way := range ways {
		w.each(name, both, func(x *subject) {
			way(x)
			x.mods = append(x.mods, of("e", "4"))
			x.decide(x.request(), ledger.DecisionStale)
			x.decide(x.event("time", of("e", "1999-01-01T00:00:00Z")), ledger.Proceed)
			x.pass(399 * day)
			x.decide(x.effect("later", of("e", "4")), ledger.DecisionStale)
			x.decide(x.effect("equal", of("e", "5")), ledger.Proceed)
		})
	}
	w.row("out of order completion does not go back", func(w *world) {
		one := w.grant(w.event("v1", of("e", "1")))
		w.pass(eventLease)
		w.ended(complete(worker(w.grant(w.event("v3", of("e", "3")))), "r3"), ledger.Completed)
		w.ended(complete(worker(one), "r1"), ledger.Completed)
		w.decide(w.event("v2", of("e", "2")), ledger.DecisionStale)
		w.decide(w.event("v4", of("e", "4")), ledger.Proceed)
	})
}

// entityLateReceipt: a stale claim refuses a receipt, also from the token that it once gave.
func entityLateReceipt(w *world) {
	c := w.grant(w.event("v1", of("e", "1")))
	w.pass(eventLease)
	w.ended(complete(worker(w.grant(w.event("v2", of("e", "2")))), "r2"), ledger.Completed)
	w.decide(w.event("v1", of("e", "1")), ledger.DecisionStale)
	w.refusedWith(complete(worker(c), "r1"), "invalid_transition")
	w.refusedWith(completeKey(c.Key, "r1"), "invalid_transition")
	w.status(c.ID, ledger.Stale)
}

// entityReplaced: a later entity or version replaces the row's only if given.
func entityReplaced(w *world) {
	w.each("on proceed", both, func(x *subject) {
		x.grant(of("e", "1"))
		x.must(notExecuted(worker(x.last)))
		x.grant()
		x.shows("e", "1")
		x.must(notExecuted(worker(x.last)))
		x.grant(of("f", "2"))
		x.shows("f", "2")
	})
	w.each("on a lease that is live", both, func(x *subject) {
		x.mods = append(x.mods, owned...)
		x.grant(of("e", "1"))
		x.grant(of("e", "3"))
		x.shows("e", "3")
		x.decide(x.event("between", of("e", "2")), ledger.DecisionStale)
	})
	w.each("never by a decision that only tells", both, func(x *subject) {
		x.mods = append(x.mods, of("e", "1"))
		x.toState("completed")
		x.decide(x.request(of("e", "9")), ledger.DecisionCompleted)
		x.decide(x.event("between", of("e", "2")), ledger.Proceed)
	})
}

func (x *subject) shows(entity, version string) {
	x.Helper()
	if c, _ := x.get(x.last.ID); c.Entity != entity || c.Version.String() != version {
		x.Fatalf("the row shows %s %s, want %s %s", c.Entity, c.Version, entity, version)
	}
}

// entityOfOneKey: claims of one key (its event and the effects by step) never wait for each other.
func entityOfOneKey(w *world) {
	event := w.grant(w.event("evt", of("e", "1")))
	var effects []ledger.Claim
	for i := range 3 {
		effects = append(effects, w.grant(w.event("evt", step(fmt.Sprint("step", i)), of("e", "1"))))
	}
	w.ended(markUnknown(worker(effects[0])), ledger.Unknown)
	w.decide(w.event("evt", step("more"), of("e", "1")), ledger.Proceed)
	w.decide(w.event("next", of("e", "2")), ledger.Wait)
	w.decide(w.event("evt", account("b"), step("step0"), of("e", "1")), ledger.Proceed)
	w.ended(complete(worker(event), ""), ledger.Completed)
	w.decide(w.event("evt", step("last"), of("e", "1")), ledger.Proceed)
}
