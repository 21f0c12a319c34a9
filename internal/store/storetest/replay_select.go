package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// mentions tells whether an entry names a replay.
func mentions(h ledger.HistoryEntry, replay string) bool {
	return strings.Contains(h.Message+" "+h.Reason, replay)
}

// replaySelectors: each member of a selector narrows the choice, and never do letters come along that no replay may have.
func replaySelectors(w *world) {
	wf, other := w.wf(), "Other"
	made := map[string]deadletter.Letter{}
	letter := func(name string, mods ...tell) {
		w.Helper()
		made[name] = w.told(w.failed(name, mods...))
		w.pass(time.Second)
	}
	letter("a", verdict(wrongCredential), atDestination("stripe", "crm"))
	letter("b", atDestination("github", "crm"))
	letter("c", verdict(wrongCredential), atDestination("stripe", "mail"), inWorkflow(other))
	letter("d", atDestination("stripe", ""))
	letter("e", harmless, atDestination("stripe", "crm"))
	letter("f", harmless, atDestination("github", "mail"))
	letter("handler", byHandler, atDestination("stripe", "crm"))
	for name, verb := range map[string]deadletter.Verb{"resolved": deadletter.Resolve, "discarded": deadletter.Discard} {
		letter(name, atDestination("stripe", "crm"))
		w.close(made[name].ID, byPerson(verb))
	}
	letter("leased", atDestination("stripe", "crm"))
	w.closed(made["leased"].ID, byPerson(deadletter.Requeue), deadletter.Queued, "requeued")
	w.handed()
	unknownIDs := make([]string, deadletter.MaxReplayLetters-2)
	for i := range unknownIDs {
		unknownIDs[i] = fmt.Sprintf("01926b3e-0000-7000-8000-%012d", i)
	}

	type selector = deadletter.Selector
	dead, queued := deadletter.Dead, deadletter.Queued
	for _, row := range []struct {
		s     selector
		limit int64
		want  string
	}{
		{selector{WorkflowID: wf, Status: dead}, 50, "a b d"},
		{selector{WorkflowID: wf, Status: dead}, 2, "a b"},
		{selector{WorkflowID: wf, Status: dead}, 1, "a"},
		{selector{WorkflowID: strings.ToLower(wf), Status: dead}, 50, ""},
		{selector{WorkflowID: other, Status: dead}, 50, "c"},
		{selector{Source: "stripe", Status: dead}, 50, "a c d"},
		{selector{Destination: "crm", Status: dead}, 50, "a b"},
		{selector{Class: "auth", Status: dead}, 50, "a c"},
		{selector{Class: "transient", Status: dead}, 50, "b d"},
		{selector{From: made["b"].CreatedAt, Status: dead}, 50, "b c d"},
		{selector{To: made["c"].CreatedAt, Status: dead}, 50, "a b"},
		{selector{From: made["b"].CreatedAt, To: made["d"].CreatedAt, Status: dead}, 50, "b c"},
		{selector{WorkflowID: wf, Source: "stripe", Destination: "crm", Class: "auth", Status: dead}, 50, "a"},
		{selector{WorkflowID: wf, Source: "github", Destination: "mail", Status: dead}, 50, ""},
		{selector{IDs: []string{made["d"].ID, made["b"].ID, made["d"].ID}, Status: dead}, 50, "b d"},
		{selector{IDs: append([]string{made["c"].ID, made["a"].ID}, unknownIDs...), Status: dead}, 1, "a"},
		{selector{IDs: []string{made["a"].ID, made["b"].ID}, Source: "github", Status: dead}, 50, "b"},
		{selector{IDs: []string{made["resolved"].ID, made["leased"].ID, made["handler"].ID, made["discarded"].ID, made["e"].ID}, Status: dead}, 50, ""},
		{selector{WorkflowID: wf, Status: queued}, 1, "e"},
		{selector{Source: "github", Status: queued}, 50, "f"},
		{selector{IDs: []string{made["handler"].ID, made["leased"].ID, made["a"].ID}, Status: queued}, 50, ""},
	} {
		want := strings.Fields(row.want)
		for i := range want {
			want[i] = made[want[i]].ID
		}
		r := w.replayOf(choosing(row.s), limitOf(row.limit))
		if f := w.forecast(r); f != (deadletter.Forecast{Matched: int64(len(want)), WouldRun: int64(len(want))}) {
			w.Errorf("%+v, limit %d: forecast %+v, want %s", row.s, row.limit, f, row.want)
		}
		rep, _ := w.start(r)
		if got := w.members(rep.ID); !slices.Equal(got, want) {
			w.Errorf("%+v, limit %d: %v, want %s = %v", row.s, row.limit, got, row.want, want)
		}
		if rep.Status.Open() {
			w.said(rep.ID, deadletter.Cancel, deadletter.ReplayCancelled)
		}
	}
}

// replayQueued: what was queued is taken out of the queue until its turn.
func replayQueued(w *world) {
	ids := w.dueLetters(4)
	id := w.started(choosingQueued, limitOf(3), sampleOf(2), atMost(1))
	w.plays(id, deadletter.ReplaySampling, counts(2, 1, 0, 0, 0))
	for _, l := range ids[1:3] {
		if l := w.stands(l, deadletter.Dead, deadletter.ReasonInReplay, 1); l.ReplayID != id {
			w.Errorf("%+v", l)
		}
	}
	if n := w.alerts(); n != 0 {
		w.Errorf("%d alerts: nobody has to do anything about what waits for its turn", n)
	}
	if l := w.stands(ids[0], deadletter.Queued, deadletter.ReasonRequeued, 1); l.NextRetryAt != w.now() {
		w.Errorf("due %v", l.NextRetryAt.Time())
	}
	if got := w.hand(""); !slices.Equal(idsOf(got), sorted(ids[0], ids[3])) {
		w.Errorf("%v, want the first one and the one that was not selected of %v", idsOf(got), ids)
	}
	w.said(id, deadletter.Cancel, deadletter.ReplayCancelled)
	w.stands(ids[1], deadletter.Dead, deadletter.ReasonNotPlayed, 1)
	w.stands(ids[2], deadletter.Dead, deadletter.ReasonNotPlayed, 1)
	w.stands(ids[0], deadletter.Replaying, deadletter.ReasonRequeued, 2)
}

// replaysApart: a letter is in one open replay at most, and the others do not count it.
func replaysApart(w *world) {
	ids := w.deadLetters(6)
	first := w.started(limitOf(2), sampleOf(0))
	rest := w.replayOf()
	if f := w.forecast(rest); f != (deadletter.Forecast{Matched: 4, WouldRun: 4}) {
		w.Errorf("%+v", f)
	}
	second := w.started(limitOf(3), sampleOf(2), atMost(1))
	if got := w.members(second); !slices.Equal(got, ids[2:5]) {
		w.Errorf("%v, want %v", got, ids[2:5])
	}
	named := w.started(choosing(deadletter.Selector{IDs: ids[:5], Status: deadletter.Dead}))
	w.plays(named, deadletter.ReplayDone, counts(0, 0, 0, 0, 0))
	w.said(first, deadletter.Cancel, deadletter.ReplayCancelled)
	third := w.started(limitOf(1), sampleOf(1))
	if got := w.members(third); !slices.Equal(got, ids[:1]) {
		w.Errorf("%v, want what the cancelled replay has released: %v", got, ids[:1])
	}
	w.plays(first, deadletter.ReplayCancelled, counts(0, 0, 0, 0, 2))
	for range 3 { // two replays side by side, each in its own time
		w.play(deadletter.Resolve)
	}
	w.plays(second, deadletter.ReplayAwaiting, counts(1, 0, 0, 2, 0))
	w.plays(third, deadletter.ReplayDone, counts(0, 0, 0, 1, 0))
	w.plays(first, deadletter.ReplayCancelled, counts(0, 0, 0, 0, 2))
}
