package storetest

import (
	"fmt"
	"slices"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
	"holdfast/internal/store"
)

func handLimit(n int64) leaseMod { return func(r *deadletter.LeaseRequest) { r.Limit = n } }

// dueLetters makes n letters of executions that are due, a second apart, and returns their ids in the order in which
// they are due.
func (w *world) dueLetters(n int, mods ...tell) []string {
	w.Helper()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = w.told(w.failed(fmt.Sprint(100+i), append([]tell{harmless}, mods...)...)).ID
		w.pass(time.Second)
	}
	w.pass(backoff(1) * 2)
	return ids
}

func idsOf(letters []deadletter.Letter) []string {
	ids := make([]string, len(letters))
	for i := range letters {
		ids[i] = letters[i].ID
	}
	slices.Sort(ids)
	return ids
}

func sorted(ids ...string) []string {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return ids
}

// letterHeld: while a claim of its key is being worked on, or nobody knows how it ended, a letter is held and nothing
// is counted.
func letterHeld(w *world) {
	failing := func(w *world) (id string) {
		w.grant(w.event("key", w.run("7")))
		id = w.told(w.failed("7")).ID
		w.pass(backoff(1) * 2)
		return id
	}
	free := func(w *world, id string) {
		w.Helper()
		if l := w.handed(); l.ID != id || l.AttemptCount < 2 {
			w.Errorf("%+v", l)
		}
	}
	w.row("its event is leased", func(w *world) {
		id := failing(w)
		w.grant(w.event("key", w.run("8"), lease(60)))
		w.withheld("its event is being worked on")
		w.pass(time.Minute - time.Microsecond)
		w.withheld("its event is being worked on")
		w.pass(time.Microsecond)
		free(w, id)
	})
	w.row("its event is unknown", func(w *world) {
		id := failing(w)
		c := w.grant(w.event("key", w.run("8")))
		w.ended(markUnknown(worker(c)), ledger.Unknown)
		w.withheld("nobody knows whether its event was done")
		w.resolved(c.ID, ledger.Failed) // that attempt has failed too
		w.pass(backoff(2) * 2)
		free(w, id)
	})
	w.row("its effect is under way, then unknown", func(w *world) {
		id := failing(w)
		c := w.grant(w.effect("key", w.run("7"), lease(60)))
		w.withheld("its effect is under way")
		w.pass(time.Minute)
		w.withheld("the effect's lease is over: it is unknown, swept or not")
		w.swept()
		w.pass(6 * time.Minute)
		w.withheld("its effect is unknown")
		w.ended(complete(looker(w.looked("rec."+w.source)), "r"), ledger.Completed)
		if w.only().ID != id {
			w.Error("the settled effect has a letter beside its event's")
		}
		w.status(c.ID, ledger.Completed)
		free(w, id)
	})
	w.row("its effect failed", func(w *world) {
		id := failing(w)
		c := w.grant(w.effect("key", w.run("7")))
		w.ended(refused(worker(c), 1), ledger.Failed)
		free(w, id)
	})
	w.row("an effect of another key is unknown", func(w *world) {
		id := failing(w)
		w.ended(markUnknown(worker(w.grant(w.effect("other", w.run("6"))))), ledger.Unknown)
		w.grant(w.event("key", w.run("6"), account("acct_2")))
		free(w, id)
	})
	w.row("the letter of an effect", func(w *world) {
		c := w.grant(w.effect("key", w.run("7"), lease(60)))
		id := w.told(w.failed("7")).ID
		w.pass(time.Hour)
		w.withheld("its effect is unknown")
		w.ended(notExecuted(looker(w.looked("rec."+w.source))), ledger.Failed)
		w.status(c.ID, ledger.Failed)
		if l, _ := w.letter(id); !l.Status.Open() || w.only().ID != id {
			w.Errorf("%+v", l)
		}
	})
	w.row("one that is held holds up no other", func(w *world) {
		failing(w)
		w.grant(w.event("key", w.run("8"), lease(3600)))
		other := w.told(w.failed("9", harmless)).ID
		w.pass(backoff(1) * 2)
		if l := w.handed(handLimit(1)); l.ID != other {
			w.Errorf("%+v", l)
		}
	})
	w.row("its event is done", func(w *world) {
		// Its completion is not noticed where the letter comes from a child's report, or is made at the same time.
		id := failing(w)
		c := w.grant(w.event("key", w.run("8")))
		w.ended(complete(worker(c), "r"), ledger.Completed)
		w.withheld("its event is done")
		w.stands(id, deadletter.Resolved, "completed", 1)
	})
}

// letterOrder: what has been due for longest comes first, what is not due does not come, and each comes once.
func letterOrder(w *world) {
	w.row("order and limit", func(w *world) {
		late := w.told(w.failed("50", harmless, maxAttempts(3), input(`{"late":true}`)))
		w.told(w.failed("51", harmless, retryOf("50"))) // due after 120 s only
		ids := w.dueLetters(5, input(`{"n":1}`))
		w.stands(late.ID, deadletter.Queued, "transient", 2)
		if l := w.handed(handLimit(1)); l.ID != ids[0] || l.AttemptCount != 2 || string(l.Payload) != `{"n":1}` || l.LeaseUntil != w.now().Add(300*time.Second) {
			w.Errorf("%+v", l)
		}
		if got := idsOf(w.hand("", handLimit(2))); !slices.Equal(got, sorted(ids[1], ids[2])) {
			w.Errorf("%v, want the two that were due first of %v", got, ids)
		}
		if got := idsOf(w.hand("")); !slices.Equal(got, sorted(ids[3], ids[4])) && !slices.Equal(got, sorted(ids[3], ids[4], late.ID)) {
			w.Errorf("%v, want the rest of %v", got, ids)
		}
	})
	w.row("not before it is due", func(w *world) {
		l := w.told(w.failed("7", harmless))
		w.pass(l.NextRetryAt.Sub(w.now()) - time.Microsecond)
		w.withheld("it is not due")
		w.pass(time.Microsecond)
		if got := w.handed(func(r *deadletter.LeaseRequest) { r.LeaseSeconds = 7 }); got.ID != l.ID || got.LeaseUntil != w.now().Add(7*time.Second) {
			w.Errorf("%+v", got)
		}
		w.withheld("it is leased")
		if _, entries := w.letter(l.ID); kinds(entries) != "report lease" || entries[1].Attempt != 2 || entries[1].By != "n8n" {
			w.Errorf("%+v", entries)
		}
	})
}

// letterFilters: a worker asks for what it can play.
func letterFilters(w *world) {
	ids := map[string]string{}
	for _, source := range []string{"stripe", "github"} {
		for _, destination := range []string{"", "crm", "mail"} {
			name := source + "/" + destination
			ids[name] = w.told(w.failed(name, harmless, atDestination(source, destination))).ID
		}
	}
	elsewhere := w.told(w.failed("7", harmless, inWorkflow("Other"), atDestination("stripe", "crm"))).ID
	w.pass(backoff(1) * 2)
	for _, row := range []struct {
		r    deadletter.LeaseRequest
		want []string
	}{
		{deadletter.LeaseRequest{WorkflowID: "Nowhere"}, nil},
		{deadletter.LeaseRequest{WorkflowID: "other"}, nil},
		{deadletter.LeaseRequest{WorkflowID: w.wf(), Source: "github", Destination: "mail"}, []string{ids["github/mail"]}},
		{deadletter.LeaseRequest{WorkflowID: w.wf(), Destination: "crm"}, []string{ids["stripe/crm"], ids["github/crm"]}},
		{deadletter.LeaseRequest{Destination: "crm"}, []string{elsewhere}},
		{deadletter.LeaseRequest{Source: "stripe"}, []string{ids["stripe/"], ids["stripe/mail"]}},
		{deadletter.LeaseRequest{}, []string{ids["github/"]}},
		{deadletter.LeaseRequest{}, nil},
	} {
		got := w.hand("", func(r *deadletter.LeaseRequest) {
			r.WorkflowID, r.Source, r.Destination = row.r.WorkflowID, row.r.Source, row.r.Destination
		})
		if !slices.Equal(idsOf(got), sorted(row.want...)) {
			w.Errorf("%+v: %v, want %v", row.r, idsOf(got), row.want)
		}
	}
}

// letterPauses: what is paused is not handed out, and waiting costs no attempt.
func letterPauses(w *world) {
	id := w.told(w.failed("7", harmless, atDestination(w.source, "crm"))).ID
	other := w.told(w.failed("8", harmless, inWorkflow("Other"), atDestination("elsewhere", "mail"))).ID
	w.pass(backoff(1) * 2)
	for _, scope := range []string{"all", "source." + w.source, "destination.crm", "workflow." + w.wf()} {
		w.pause(scope, 0)
		w.withheld(scope)
		w.pass(time.Minute)
		w.stands(id, deadletter.Queued, "transient", 1)
		w.resume(scope)
	}
	for _, scope := range []string{"source.else", "destination.mail", "workflow.Other", "destination." + w.source} {
		w.pause(scope, 0)
	}
	w.pause("workflow."+w.wf(), time.Minute)
	w.withheld("its workflow, for a minute")
	w.pass(time.Minute)
	if l := w.handed(); l.ID != id || l.AttemptCount != 2 {
		w.Errorf("%+v", l)
	}
	w.stands(other, deadletter.Queued, "transient", 1)
}

// letterOwner: the same owner with the same key gets what it has not reported again, uncounted; nobody else does.
func letterOwner(w *world) {
	ids := w.dueLetters(4)
	batch := w.hand("poll", handLimit(3))
	if !slices.Equal(idsOf(batch), sorted(ids[:3]...)) {
		w.Fatalf("%v", idsOf(batch))
	}
	w.pass(time.Second)
	same := func(want []deadletter.Letter) {
		w.Helper()
		w.unmoved("the same batch again", func() {
			got := w.hand("poll", handLimit(3))
			if !slices.Equal(idsOf(got), idsOf(want)) {
				w.Fatalf("%v, want %v", idsOf(got), idsOf(want))
			}
			for _, l := range got {
				i := slices.IndexFunc(want, func(o deadletter.Letter) bool { return o.ID == l.ID })
				if l.LeaseToken() != want[i].LeaseToken() || l.AttemptCount != 2 || l.LeaseUntil != want[i].LeaseUntil {
					w.Errorf("%+v, want %+v", l, want[i])
				}
			}
		})
	}
	same(batch)
	w.closed(batch[1].ID, by(batch[1], deadletter.Resolve), deadletter.Resolved, "replayed")
	rest := []deadletter.Letter{batch[0], batch[2]}
	same(rest)
	for name, mod := range map[string]leaseMod{
		"another owner": func(r *deadletter.LeaseRequest) { r.Owner = "Poll" },
		"another key":   func(r *deadletter.LeaseRequest) { r.CallerKey = "other" },
	} {
		if got := w.hand("poll", mod); slices.ContainsFunc(got, func(l deadletter.Letter) bool { return l.ID != ids[3] }) {
			w.Errorf("%s got %v", name, idsOf(got))
		}
	}
	w.pass(300 * time.Second)
	for _, l := range rest {
		w.turnedAway(l.ID, by(l, deadletter.Resolve), "lease_lost")
	}
	if got := w.hand("poll"); len(got) != 0 {
		w.Errorf("what ran out was handed out again before its backoff: %v", idsOf(got))
	}
	w.row("nobody", func(w *world) {
		w.dueLetters(1)
		w.handed()
		w.withheld("an empty owner is nobody")
	})
}

// letterLeaseEnd: a lease that runs out has used its attempt. Whether somebody noticed makes no difference.
func letterLeaseEnd(w *world) {
	for _, sweeps := range []bool{true, false} {
		w.row(fmt.Sprint("swept ", sweeps), func(w *world) {
			notice := func() {
				if !sweeps {
					w.hand("")
				} else if r := w.sweptLetters(); r != (deadletter.SweepReport{Ended: 1}) {
					w.Errorf("%+v, want one lease ended", r)
				}
			}
			id := w.dueLetters(1)[0]
			var held deadletter.Letter
			for n := int64(2); n <= 6; n++ {
				held = w.handed()
				w.pass(300*time.Second - time.Microsecond)
				w.unmoved("a sweep", func() { w.sweptLetters() })
				w.pass(time.Microsecond)
				for _, verb := range []deadletter.Verb{deadletter.Resolve, deadletter.Fail} {
					w.turnedAway(id, by(held, verb), "lease_lost")
				}
				end := w.now()
				notice()
				for _, verb := range []deadletter.Verb{deadletter.Resolve, deadletter.Fail} {
					w.turnedAway(id, by(held, verb), "lease_lost")
				}
				if n == 6 {
					break
				}
				l, _ := w.letter(id)
				if l.Status != deadletter.Queued || l.AttemptCount != n {
					w.Fatalf("%s at attempt %d, want queued at %d", l.Status, l.AttemptCount, n)
				}
				w.dueAfter(l, end, backoff(n))
				w.pass(backoff(n) + backoff(n)/5)
			}
			w.stands(id, deadletter.Dead, "lease_expired", 6)
			if n := w.alerts(); n != 1 {
				w.Errorf("%d alerts, want 1", n)
			}
			w.unmoved("the next sweep", func() { w.sweptLetters() })
		})
	}
	w.row("noticed long after", func(w *world) {
		id := w.dueLetters(1)[0]
		w.handed()
		w.pass(time.Hour)
		if l := w.handed(); l.ID != id || l.AttemptCount != 3 || l.Lease != 2 {
			w.Errorf("%+v", l)
		}
	})
}

// letterDestinations: a destination that takes no more holds up nothing else, and waiting for it costs no attempt.
func letterDestinations(w *world) {
	limits := map[string]ledger.Limit{"crm": {Rate: ledger.Rate{N: 2, Per: time.Hour}}}
	w.store = openStore(w.T, w.url, store.Options{Now: w.clock.now, Policies: testPolicies, Limits: limits})
	full := w.dueLetters(30, atDestination("", "crm"))
	free := w.told(w.failed("9", harmless)).ID
	w.pass(backoff(1) * 2)
	var got []string
	for range 3 {
		got = append(got, idsOf(w.hand("", handLimit(5)))...)
	}
	if want := sorted(full[0], full[1], free); !slices.Equal(sorted(got...), want) {
		w.Errorf("%v, want the two that were due first and the one without a destination: %v", sorted(got...), want)
	}
	w.stands(full[2], deadletter.Queued, "transient", 1)
	w.pass(time.Hour)
	if got := idsOf(w.hand("", handLimit(5))); len(got) != 2 {
		w.Errorf("%v, want two more", got)
	}
}
