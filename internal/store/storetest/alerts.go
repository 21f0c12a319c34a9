package storetest

import (
	"strings"
	"time"

	"holdfast/internal/ledger"
	"holdfast/internal/store"
)

// alertOfReceipts: what a late report says reaches people once, however often it is sent, and with the report or not
// at all.
func alertOfReceipts(w *world) {
	c := w.grant(w.effect("key"))
	w.ended(complete(worker(c), "r1"), ledger.Completed)
	for range 3 {
		if _, code := w.end(complete(worker(c), "r2")); code != string(ledger.ResultConflict) {
			w.Fatalf("code %q", code)
		}
	}
	w.end(notExecuted(worker(c)))
	w.pass(gather)
	first := w.due("")
	second := w.due("")
	if first == nil || second == nil {
		w.Fatal("two alerts are due")
	}
	if first.Group > second.Group {
		first, second = second, first
	}
	if first.Group != "claim/a-failure-was-reported-for-a-completed-claim/src" || second.Group != "claim/two-different-receipts-for-one-claim/src" {
		w.Errorf("%q, %q", first.Group, second.Group)
	}
	if second.Count != 1 || second.Path != "/claims/"+c.ID || !strings.Contains(second.Text, "step charge") || strings.Contains(second.Text, "key") {
		w.Errorf("%+v", second)
	}
	w.wantNone("no more")
}

// alertOfReviews: rows that come before a person are one group for each source and destination.
func alertOfReviews(w *world) {
	for _, key := range []string{"a", "b", "c"} {
		w.ended(markUnknown(worker(w.grant(w.effect(key, to("crm"))))), ledger.Unknown)
	}
	w.ended(markUnknown(worker(w.grant(w.effect("d", to("bank"))))), ledger.Unknown)
	w.ended(markUnknown(worker(w.grant(w.event("e")))), ledger.Unknown)
	w.ended(markUnknown(worker(w.grant(w.effect("person", to("crm"))))), ledger.Unknown)
	c, _ := w.get(w.decide(w.effect("person", to("crm")), ledger.DecisionUnknown).Claim.ID)
	w.resolved(c.ID, ledger.Review)
	w.pass(day)
	w.decide(w.effect("a", to("crm")), ledger.DecisionReview) // before the sweeper came
	w.swept()
	w.swept()
	w.pass(gather)
	got := map[string]int64{}
	for m := w.due(""); m != nil; m = w.due("") {
		got[m.Group] = m.Count
		if m.Path != "/claims?status=review&source=src" {
			w.Errorf("%+v", m)
		}
		w.sent(m)
	}
	if len(got) != 3 || got["review/src/crm"] != 3 || got["review/src/bank"] != 1 || got["review/src/"] != 1 {
		w.Errorf("%v", got)
	}
	// The destination stays away: the next ones are told of later, together.
	w.ended(markUnknown(worker(w.grant(w.effect("f", to("crm"))))), ledger.Unknown)
	w.pass(time.Hour)
	w.ended(markUnknown(worker(w.grant(w.effect("g", to("crm"))))), ledger.Unknown)
	w.pass(day)
	w.swept()
	w.pass(gather)
	if m := w.due(""); m == nil || m.Count != 2 {
		w.Errorf("%+v, want two more", m)
	}
}

// alertOfPauses: a pause older than a day is told once a day, whichever replica looks.
func alertOfPauses(w *world) {
	w.pause("source.a", 0)
	w.pass(day - time.Microsecond)
	w.watch()
	w.pass(gather)
	w.wantNone("not a day old")
	for range 2 {
		for range 3 {
			w.pass(time.Minute)
			w.watch()
			other := *w
			other.store = openStore(w.T, w.url, store.Options{Now: w.clock.now})
			other.watch()
		}
		m := w.wantDue("", "Work is still paused: source.a", 1)
		if !strings.Contains(m.Text, "ada") || m.Group != "pause/source.a" {
			w.Errorf("%+v", m)
		}
		w.sent(m)
		w.pass(day - 2*time.Minute)
	}
	if _, err := w.store.ClearPause(w.Context(), "source.a", "ada"); err != nil {
		w.Fatal(err)
	}
	w.pass(2 * day)
	w.watch()
	w.pass(gather)
	w.wantNone("it is over")
}

// silence: a source that is not heard from alarms once, and again only after it spoke. Time in which nobody listened
// does not count.
func silence(w *world) {
	listen := func() *world {
		one := *w
		one.store = openStore(w.T, w.url, store.Options{Now: w.clock.now, Alerts: store.AlertOptions{Silence: map[string]time.Duration{"src": time.Hour}}})
		return &one
	}
	a, b := listen(), listen()
	passing := func(d time.Duration) {
		for until := w.now().Add(d); w.now() < until; w.pass(time.Minute) {
			a.watch()
			b.watch()
		}
	}
	alarms := func(want int64) {
		w.Helper()
		w.pass(gather)
		m := w.due("")
		if want == 0 && m != nil || want > 0 && (m == nil || m.Count != want || m.Group != "silence/src") {
			w.Fatalf("%+v, want %d alarms", m, want)
		}
		if m != nil {
			w.sent(m)
		}
	}
	passing(59 * time.Minute)
	a.grant(a.event("1"))
	passing(59 * time.Minute)
	alarms(0)
	b.grant(b.event("2")) // by the other replica
	passing(59 * time.Minute)
	alarms(0)
	b.grant(b.event("2")) // the same again is nothing new
	passing(5 * time.Minute)
	alarms(1)
	passing(5 * time.Hour)
	alarms(0)
	a.grant(a.event("3"))
	passing(58 * time.Minute)
	alarms(0)
	passing(5 * time.Minute)
	alarms(1)
	a.grant(a.event("4"))
	passing(2 * time.Minute)
	w.pass(3 * time.Hour) // nobody was there
	passing(58 * time.Minute)
	alarms(0)
	passing(5 * time.Minute)
	alarms(1)
	w.source = "other" // a source that nobody listens for
	a.grant(a.event("5"))
}
