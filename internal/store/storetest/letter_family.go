package storetest

import (
	"fmt"
	"strings"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// letterFamilies: a failure that a child and its parent report is one letter, two reports and one attempt, in
// whatever order they come.
func letterFamilies(w *world) {
	inChild := func(w *world) tell { return inWorkflow("Child." + w.source) }
	// A child does not know its parent's workflow: the numbers must differ from row to row.
	parentID, childID := func(w *world) string { return "70" + w.source }, func(w *world) string { return "71" + w.source }
	child := func(w *world) *deadletter.Report {
		return w.failed(childID(w), inChild(w), harmless, childOf(parentID(w)))
	}
	parent := func(w *world) *deadletter.Report {
		return w.failed(parentID(w), harmless, parentOf("Child."+w.source, childID(w)))
	}
	for _, row := range []struct {
		name  string
		claim func(*world) *ledger.Request
	}{
		{"no claims", nil},
		{"the parent holds the event", func(w *world) *ledger.Request { return w.event("key", w.run(parentID(w))) }},
		{"the child holds the event", func(w *world) *ledger.Request { return w.event("key", w.run(childID(w)), workflow("Child."+w.source)) }},
	} {
		for _, childFirst := range []bool{true, false} {
			w.row(fmt.Sprintf("%s, child first %v", row.name, childFirst), func(w *world) {
				var c ledger.Claim
				if row.claim != nil {
					c = w.grant(row.claim(w))
				}
				first, second := parent(w), child(w)
				if childFirst {
					first, second = second, first
				}
				a := w.told(first)
				w.pass(time.Second)
				b := w.told(second)
				if a.ID != b.ID {
					w.Fatalf("two letters: %q, %q", a.Identity, b.Identity)
				}
				l := w.stands(a.ID, deadletter.Queued, "transient", 1)
				if l.Reports != 2 || l.ClaimID != c.ID {
					w.Errorf("%+v", l)
				}
				if row.claim != nil {
					w.status(c.ID, ledger.Failed)
				}
				w.known(first, a.ID)
				w.known(second, a.ID)
			})
		}
	}
	w.row("a parent that goes on", func(w *world) {
		c := w.grant(w.event("key", w.run(parentID(w))))
		id := w.told(child(w)).ID
		w.status(c.ID, ledger.Processing)
		w.pass(4 * time.Minute)
		w.unmoved("held while its parent works", func() {
			out, err := w.store.LeaseLetters(w.Context(), &deadletter.LeaseRequest{Source: w.source, CallerKey: "n8n", Limit: 25, LeaseSeconds: 60})
			if err != nil || len(out) != 0 {
				w.Errorf("%v, %+v", err, out)
			}
		})
		w.ended(complete(worker(c), "r"), ledger.Completed)
		w.stands(id, deadletter.Resolved, "completed", 1)
	})
}

// letterOpenEvents: a report ends the lease of every open event of its execution, each with a letter of its own.
func letterOpenEvents(w *world) {
	claims := map[string]ledger.Claim{}
	for _, key := range []string{"done", "b", "c", "charge"} {
		r := w.event(key, w.run("7"), payload(`"`+key+`"`))
		if key == "charge" {
			r = w.effect(key, w.run("7"))
		}
		claims[key] = w.grant(r)
		w.pass(time.Second)
	}
	claims["other"] = w.grant(w.event("other", w.run("6")))
	w.ended(complete(worker(claims["done"]), "r"), ledger.Completed)

	r := w.failed("7")
	first := w.told(r)
	if first.ClaimID != claims["b"].ID {
		w.Errorf("the answer is the letter of %q", first.Key.IdempotencyKey)
	}
	letters := w.letters()
	if len(letters) != 2 {
		w.Fatalf("%d letters, want 2: %+v", len(letters), letters)
	}
	for _, key := range []string{"b", "c"} {
		w.status(claims[key].ID, ledger.Failed)
		l := letters[0]
		if l.ClaimID != claims[key].ID {
			l = letters[1]
		}
		l = w.stands(l.ID, deadletter.Queued, "transient", 1)
		if l.ClaimID != claims[key].ID || string(l.Payload) != `"`+key+`"` || l.Reports != 1 {
			w.Errorf("%s: %+v", key, l)
		}
	}
	w.status(claims["done"].ID, ledger.Completed)
	w.status(claims["charge"].ID, ledger.Processing)
	w.status(claims["other"].ID, ledger.Processing)
	w.known(r, first.ID)
	w.known(w.failed("7"), first.ID)

	again := w.grant(w.event("b", w.run("8"), payload(`"b"`)))
	w.ended(complete(worker(again), "r"), ledger.Completed)
	w.stands(first.ID, deadletter.Resolved, "completed", 1)
	for _, l := range letters {
		if l.ID != first.ID {
			w.stands(l.ID, deadletter.Queued, "transient", 1)
		}
	}
}

// letterTakenOver: the report of a run whose event another run has taken over is about that event, and leaves the
// other run's lease alone.
func letterTakenOver(w *world) {
	takeover := func(w *world) (ledger.Claim, ledger.Claim) {
		first := w.grant(w.event("key", w.run("7"), lease(60)))
		w.pass(time.Minute)
		return first, w.grant(w.event("key", w.run("8"), lease(3600)))
	}
	w.row("reported late", func(w *world) {
		_, second := takeover(w)
		r := w.failed("7")
		l := w.told(r)
		if l.ClaimID != second.ID {
			w.Fatalf("the letter is not the event's: %q", l.Identity)
		}
		w.status(second.ID, ledger.Processing)
		w.pass(10 * time.Minute)
		w.withheld("its event is being worked on")
		w.known(r, l.ID)
		w.ended(complete(worker(second), "r"), ledger.Completed)
		if l := w.only(); l.Status != deadletter.Resolved || l.Reason != "completed" {
			w.Errorf("%s (%s)", l.Status, l.Reason)
		}
		w.known(r, l.ID)
	})
	w.row("and then the other run fails too", func(w *world) {
		_, second := takeover(w)
		id := w.told(w.failed("7")).ID
		w.told(w.failed("8"))
		l := w.stands(id, deadletter.Queued, "transient", 2)
		if l.Reports != 2 || w.only().ID != id {
			w.Errorf("%+v", l)
		}
		w.status(second.ID, ledger.Failed)
	})
	w.row("missed by the sweeper before", func(w *world) {
		c := w.grant(w.event("key", w.run("7"), lease(60)))
		w.pass(time.Minute)
		w.sweptLetters()
		id := w.only().ID
		w.stands(id, deadletter.Queued, "lease_expired", 1)
		second := w.grant(w.event("key", w.run("8"), lease(3600)))
		if l := w.told(w.failed("7")); l.ID != id {
			w.Errorf("another letter: %q", l.Identity)
		}
		w.status(c.ID, ledger.Processing)
		w.ended(complete(worker(second), "r"), ledger.Completed)
		if l := w.only(); l.Status != deadletter.Resolved {
			w.Errorf("%s (%s)", l.Status, l.Reason)
		}
	})
	w.row("and then the other run is lost", func(w *world) {
		takeover(w)
		id := w.told(w.failed("7")).ID
		w.closed(id, byPerson(deadletter.Discard), deadletter.Discarded, "discarded")
		w.pass(time.Hour)
		w.sweptLetters()
		w.stands(id, deadletter.Queued, "lease_expired", 2)
	})
	w.row("a duplicate of the first, and then the other run is lost", func(w *world) {
		w.grant(w.event("key", w.run("7")))
		r := w.failed("7")
		id := w.told(r).ID
		w.grant(w.event("key", w.run("8"), lease(60)))
		w.known(r, id)
		w.pass(time.Minute)
		w.sweptLetters()
		w.stands(id, deadletter.Queued, "lease_expired", 2)
	})
	w.row("while the other run has open events too", func(w *world) {
		_, second := takeover(w)
		own := w.grant(w.event("own", w.run("7")))
		if l := w.told(w.failed("7")); l.ClaimID != own.ID {
			w.Errorf("the answer is about %q", l.Key.IdempotencyKey)
		}
		w.status(own.ID, ledger.Failed)
		w.status(second.ID, ledger.Processing)
	})
}

// letterCompletedBefore: what a run reports after it has completed its event.
func letterCompletedBefore(w *world) {
	for _, row := range []struct {
		name   string
		mods   []tell
		status deadletter.Status
		reason string
	}{
		{"a crash", []tell{crashed}, deadletter.Resolved, "completed_meanwhile"},
		{"the answer to /complete was lost", []tell{atComplete}, deadletter.Resolved, "completed_meanwhile"},
		{"a failure of what came behind", nil, deadletter.Dead, "failed_after_completion"},
		{"a failure that would be retryable", []tell{harmless, verdict(refusedConnection)}, deadletter.Dead, "failed_after_completion"},
	} {
		w.row(row.name, func(w *world) {
			c := w.grant(w.event("key", w.run("7")))
			w.ended(complete(worker(c), "r"), ledger.Completed)
			r := w.failed("7", row.mods...)
			id := w.told(r).ID
			w.stands(id, row.status, row.reason, 1)
			w.status(c.ID, ledger.Completed)
			w.known(r, id)
			w.pass(time.Hour)
			w.unmoved("a sweep", func() { w.sweptLetters() })
			w.withheld("it is not queued")
		})
	}
	w.row("completed by the next run", func(w *world) {
		w.grant(w.event("key", w.run("7"), lease(60)))
		w.pass(time.Minute)
		c := w.grant(w.event("key", w.run("8")))
		w.ended(complete(worker(c), "r"), ledger.Completed)
		w.stands(w.told(w.failed("7", crashed)).ID, deadletter.Resolved, "completed_meanwhile", 2)
	})
	w.row("effects alone settle nothing", func(w *world) {
		a := w.grant(w.effect("key", w.run("7")))
		w.ended(complete(worker(a), "r"), ledger.Completed)
		b := w.grant(w.effect("key", w.run("7"), step("task")))
		id := w.told(w.failed("7", crashed)).ID
		w.stands(id, deadletter.Queued, "transient", 1)
		w.ended(complete(worker(b), "r"), ledger.Completed)
		w.stands(id, deadletter.Queued, "transient", 1)
		w.sweptLetters()
		w.stands(id, deadletter.Queued, "transient", 1)
	})
	w.row("the first effect is completed after the report", func(w *world) {
		a := w.grant(w.effect("key", w.run("7")))
		id := w.told(w.failed("7")).ID
		w.ended(complete(worker(a), "r"), ledger.Completed)
		w.stands(id, deadletter.Queued, "transient", 1)
		w.pass(backoff(1) * 2)
		if l := w.handed(); l.ID != id {
			w.Errorf("%+v", l)
		}
	})
}

// letterReopened: a new failure of the same claim is another attempt, whatever became of the letter meanwhile.
func letterReopened(w *world) {
	for _, verb := range []deadletter.Verb{deadletter.Resolve, deadletter.Discard, deadletter.Requeue} {
		w.row(string(verb), func(w *world) {
			c := w.grant(w.event("key", w.run("7")))
			id := w.told(w.failed("7")).ID
			if _, code := w.close(id, byPerson(verb)); code != "" {
				w.Fatal(code)
			}
			w.grant(w.event("key", w.run("8")))
			w.pass(time.Second)
			if l := w.told(w.failed("8")); l.ID != id {
				w.Fatalf("another letter: %q", l.Identity)
			}
			l := w.stands(id, deadletter.Queued, "transient", 2)
			w.dueAfter(l, w.now(), backoff(2))
			w.status(c.ID, ledger.Failed)
		})
	}
	w.row("completed, and set to failed by a person", func(w *world) {
		w.grant(w.event("key", w.run("7")))
		id := w.told(w.failed("7")).ID
		c := w.grant(w.event("key", w.run("8")))
		w.ended(complete(worker(c), "r"), ledger.Completed)
		w.stands(id, deadletter.Resolved, "completed", 1)
		w.resolved(c.ID, ledger.Failed)
		w.grant(w.event("key", w.run("9")))
		w.told(w.failed("9"))
		w.stands(id, deadletter.Queued, "transient", 3)
		if l := w.only(); l.ID != id {
			w.Errorf("%+v", l)
		}
	})
	w.row("until attempts are used up", func(w *world) {
		var id string
		for i := range 6 {
			w.pass(time.Second)
			w.grant(w.event("key", w.run(fmt.Sprint(7+i))))
			id = w.told(w.failed(fmt.Sprint(7 + i))).ID
		}
		w.stands(id, deadletter.Dead, "attempts_exhausted", 6)
		if n := w.alerts(); n != 1 {
			w.Errorf("%d alerts, want 1", n)
		}
	})
}

// letterWhileLeased: the report of the attempt that a lease started ends that lease; its worker comes too late.
func letterWhileLeased(w *world) {
	for _, row := range []struct {
		name    string
		claimed bool
	}{{"by a claim", true}, {"by an event id", false}} {
		w.row(row.name, func(w *world) {
			fail := func(execution string, mods ...tell) deadletter.Letter {
				if row.claimed {
					w.grant(w.event("key", w.run(execution)))
				}
				return w.told(w.failed(execution, append(mods, harmless, ofEvent("evt"))...))
			}
			id := fail("7").ID
			w.pass(backoff(1) * 2)
			held := w.handed()
			w.stands(id, deadletter.Replaying, "transient", 2)
			w.pass(time.Second)
			if l := fail("8"); l.ID != id {
				w.Fatalf("another letter: %q", l.Identity)
			}
			l := w.stands(id, deadletter.Queued, "transient", 2)
			w.dueAfter(l, w.now(), backoff(2))
			w.turnedAway(id, by(held, deadletter.Resolve), "lease_lost")
			w.turnedAway(id, by(held, deadletter.Extend, leaseFor(60)), "lease_lost")
			w.repeated(id, by(held, deadletter.Fail), deadletter.Queued)
			w.pass(backoff(2) * 2)
			if next := w.handed(); next.ID != id || next.AttemptCount != 3 || next.Lease != held.Lease+1 {
				w.Errorf("%+v", next)
			}
			if _, entries := w.letter(id); !strings.HasPrefix(kinds(entries), "report lease report lease") {
				w.Errorf("%s", kinds(entries))
			}
		})
	}
}

func leaseFor(seconds int64) func(*deadletter.Ending) {
	return func(e *deadletter.Ending) { e.LeaseSeconds = seconds }
}
