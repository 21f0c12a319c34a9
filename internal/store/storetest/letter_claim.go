package storetest

import (
	"fmt"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// transiently is /mark-failed of an event with an error that time may heal.
func transiently(t ledger.Token) *ledger.Ending {
	e := report(ledger.MarkFailed, t)
	e.HTTPStatus, e.ErrorClass, e.Message = 503, "transient", "Service Unavailable"
	return e
}

// letterMarkFailed: an event that is reported as failed has a letter at once, and needs none when it completes.
func letterMarkFailed(w *world) {
	w.row("then completed", func(w *world) {
		c := w.grant(w.event("key", w.run("7"), payload(`{"n":1}`)))
		w.ended(transiently(worker(c)), ledger.Failed)
		l := w.only()
		l = w.stands(l.ID, deadletter.Queued, "transient", 1)
		if l.ClaimID != c.ID || l.Play != deadletter.PlayWorkflow || l.ProviderKey != c.ProviderKey || string(l.Payload) != `{"n":1}` || l.ExecutionID != "7" ||
			l.Key.Source != w.source || l.Key.IdempotencyKey != "key" {
			w.Errorf("%+v", l)
		}
		w.dueAfter(l, w.now(), backoff(1))
		w.unmoved("a repeat", func() { w.end(transiently(worker(c))) })
		w.unmoved("a sweep", func() { w.sweptLetters() })
		again := w.grant(w.event("key", w.run("8")))
		w.stands(l.ID, deadletter.Queued, "transient", 1)
		w.ended(complete(worker(again), "r"), ledger.Completed)
		w.stands(l.ID, deadletter.Resolved, "completed", 1)
		w.unmoved("a sweep", func() { w.sweptLetters() })
	})
	w.row("then reported", func(w *world) {
		c := w.grant(w.event("key", w.run("7")))
		w.ended(transiently(worker(c)), ledger.Failed)
		id := w.only().ID
		if l := w.told(w.failed("7")); l.ID != id {
			w.Fatalf("another letter: %q", l.Identity)
		}
		w.stands(id, deadletter.Queued, "transient", 1)
		w.known(w.failed("7"), id)
	})
	w.row("again and again", func(w *world) {
		for i := range 6 {
			c := w.grant(w.event("key", w.run(fmt.Sprint(7+i))))
			w.ended(transiently(worker(c)), ledger.Failed)
			if l := w.only(); l.AttemptCount != int64(i+1) {
				w.Fatalf("attempt %d, want %d", l.AttemptCount, i+1)
			}
			w.pass(time.Second)
		}
		w.stands(w.only().ID, deadletter.Dead, "attempts_exhausted", 6)
		if n := w.alerts(); n != 1 {
			w.Errorf("%d alerts, want 1", n)
		}
	})
	w.row("known not to have happened", func(w *world) {
		c := w.grant(w.event("key", w.run("7")))
		w.ended(notExecuted(worker(c)), ledger.Failed)
		if l := w.only(); l.Status != deadletter.Queued || l.AttemptCount != 1 {
			w.Errorf("%+v", l)
		}
	})
	w.row("not now", func(w *world) {
		c := w.grant(w.event("key", w.run("7")))
		w.ended(notNow(worker(c), 30), ledger.Pending)
		if n := len(w.letters()); n != 0 {
			w.Errorf("%d letters, want none", n)
		}
	})
	w.row("of an entity", func(w *world) {
		c := w.grant(w.event("key", w.run("7"), of("e", "1")))
		w.ended(transiently(worker(c)), ledger.Failed)
		id := w.only().ID
		again := w.grant(w.event("key", w.run("8"), of("e", "1")))
		w.ended(complete(worker(again), "r"), ledger.Completed)
		w.stands(id, deadletter.Resolved, "completed", 1)
	})
}

// letterLeaseExpired: an event whose run is lost becomes a letter, once for each attempt, and stays claimable.
func letterLeaseExpired(w *world) {
	c := w.grant(w.event("key", w.run("1"), lease(60), payload(`{"n":1}`)))
	last := c
	w.grant(w.effect("key", w.run("1"), step("task"), lease(86400)))
	w.pass(time.Minute - time.Microsecond)
	if r := w.sweptLetters(); r != (deadletter.SweepReport{}) {
		w.Errorf("%+v, want nothing", r)
	}
	w.pass(time.Microsecond)
	if r := w.sweptLetters(); r != (deadletter.SweepReport{LeaseExpired: 1}) {
		w.Errorf("%+v, want one event whose lease ended", r)
	}
	id := w.only().ID
	l := w.stands(id, deadletter.Queued, "lease_expired", 1)
	if l.ClaimID != c.ID || l.Play != deadletter.PlayWorkflow || string(l.Payload) != `{"n":1}` || l.ExecutionID != "1" || l.Key.IdempotencyKey != "key" {
		w.Errorf("%+v", l)
	}
	w.dueAfter(l, w.now(), backoff(1))
	w.status(c.ID, ledger.Processing)
	w.unmoved("the next sweep", func() { w.sweptLetters() })
	for n := int64(2); n <= 6; n++ {
		last = w.grant(w.event("key", w.run(fmt.Sprint(n)), lease(60)))
		w.unmoved("a sweep while a run is at it", func() { w.sweptLetters() })
		w.pass(time.Minute)
		if r := w.sweptLetters(); r != (deadletter.SweepReport{LeaseExpired: 1}) {
			w.Errorf("attempt %d: %+v, want one event whose lease ended", n, r)
		}
		w.unmoved("the next sweep", func() { w.sweptLetters() })
		want := deadletter.Queued
		if n == 6 {
			want = deadletter.Dead
		}
		l := w.stands(id, want, "lease_expired", n)
		if want == deadletter.Queued {
			w.dueAfter(l, w.now(), backoff(n))
		}
	}
	if n := w.alerts(); n != 1 || w.only().ID != id {
		w.Errorf("%d alerts, want 1", n)
	}
	w.ended(complete(worker(last), "late"), ledger.Completed)
	w.stands(id, deadletter.Resolved, "completed", 6)
	w.unmoved("a sweep", func() { w.sweptLetters() })
}

// letterExpiredThenReported: the report of a run that the sweeper missed brings the cause and no second attempt.
func letterExpiredThenReported(w *world) {
	for _, row := range []struct {
		name   string
		mods   []tell
		status deadletter.Status
		reason string
	}{
		{"a cause", nil, deadletter.Queued, "transient"},
		{"a cause that time does not heal", []tell{verdict(wrongCredential)}, deadletter.Dead, "auth"},
	} {
		w.row(row.name, func(w *world) {
			c := w.grant(w.event("key", w.run("7"), lease(60)))
			w.pass(time.Minute)
			w.sweptLetters()
			id := w.only().ID
			if known, err := w.store.KnowsExecution(w.Context(), w.wf(), "7"); err != nil || known {
				w.Errorf("nobody has reported this execution: %v, %v", known, err)
			}
			if l := w.told(w.failed("7", row.mods...)); l.ID != id {
				w.Fatalf("another letter: %q", l.Identity)
			}
			w.stands(id, row.status, row.reason, 1)
			w.status(c.ID, ledger.Failed)
			w.unmoved("a sweep", func() { w.sweptLetters() })
		})
	}
}

// letterNeverClaimed: an event whose caller was told to wait and never came back, once.
func letterNeverClaimed(w *world) {
	const told = 300 * time.Second // of a pause without an end
	ask := func(w *world) ledger.Verdict {
		return w.decide(w.event("key", w.run("7"), payload(`{"n":1}`)), ledger.Wait)
	}
	scope := func(w *world) string { return "source." + w.source }
	w.row("once", func(w *world) {
		w.pause(scope(w), 0)
		v := ask(w)
		w.decide(w.effect("other", w.run("7")), ledger.Wait)
		if v.RetryAfter != 300 {
			w.Fatalf("retry after %d", v.RetryAfter)
		}
		w.pass(told)
		ask(w) // it came back, and was told to wait again
		w.pass(told + time.Minute - time.Microsecond)
		if r := w.sweptLetters(); r != (deadletter.SweepReport{}) {
			w.Errorf("%+v, want nothing yet", r)
		}
		w.pass(time.Microsecond)
		if r := w.sweptLetters(); r != (deadletter.SweepReport{NeverClaimed: 1}) {
			w.Errorf("%+v, want one that nobody claimed", r)
		}
		id := w.only().ID
		l := w.stands(id, deadletter.Queued, "never_claimed", 1)
		if l.ClaimID != v.Claim.ID || l.Play != deadletter.PlayWorkflow || string(l.Payload) != `{"n":1}` {
			w.Errorf("%+v", l)
		}
		w.status(v.Claim.ID, ledger.Pending)
		w.unmoved("the next sweep", func() { w.sweptLetters() })
		w.pass(time.Hour)
		w.unmoved("a later sweep", func() { w.sweptLetters() })
		w.withheld("its source is paused")
		w.resume(scope(w))
		if got := w.handed(); got.ID != id || got.AttemptCount != 2 {
			w.Errorf("%+v", got)
		}
		c := w.grant(w.event("key", w.run("8"), payload(`{"n":1}`)))
		w.ended(complete(worker(c), "r"), ledger.Completed)
		w.stands(id, deadletter.Resolved, "completed", 2)
	})
	w.row("it came back", func(w *world) {
		w.pause(scope(w), 0)
		ask(w)
		w.resume(scope(w))
		w.pass(time.Minute)
		w.grant(w.event("key", w.run("7"), payload(`{"n":1}`), lease(86400)))
		w.pass(time.Hour)
		if r := w.sweptLetters(); r != (deadletter.SweepReport{}) || len(w.letters()) != 0 {
			w.Errorf("%+v, want nothing", r)
		}
	})
	w.row("not now, and never again", func(w *world) {
		c := w.grant(w.event("key", w.run("7")))
		w.ended(notNow(worker(c), 600), ledger.Pending)
		w.pass(660*time.Second - time.Microsecond)
		if r := w.sweptLetters(); r != (deadletter.SweepReport{}) {
			w.Errorf("%+v, want nothing yet", r)
		}
		w.pass(time.Microsecond)
		if r := w.sweptLetters(); r != (deadletter.SweepReport{NeverClaimed: 1}) {
			w.Errorf("%+v, want one that nobody claimed", r)
		}
	})
}

// letterSettledLate: an effect that was settled while nothing stands for the rest of its run.
func letterSettledLate(w *world) {
	unknown := func(w *world, c ledger.Claim) ledger.Claim {
		w.ended(markUnknown(worker(c)), ledger.Unknown)
		w.pass(6 * time.Minute)
		return w.looked("rec." + w.source)
	}
	for _, row := range []struct {
		name   string
		before func(*world)
		settle func(*world, ledger.Claim)
		want   bool
	}{
		{"refused", nil, func(w *world, c ledger.Claim) { w.ended(refused(worker(c), 1), ledger.Failed) }, true},
		{"found", nil, func(w *world, c ledger.Claim) {
			w.ended(complete(looker(unknown(w, c)), "r"), ledger.Completed)
		}, true},
		{"not found", nil, func(w *world, c ledger.Claim) { w.ended(notExecuted(looker(unknown(w, c))), ledger.Failed) }, true},
		{"its event is done", func(w *world) {
			w.ended(complete(worker(w.grant(w.event("key", w.run("7")))), "r"), ledger.Completed)
		}, func(w *world, c ledger.Claim) { w.ended(refused(worker(c), 1), ledger.Failed) }, true},
		{
			"another run's event is open", func(w *world) { w.grant(w.event("other", w.run("6"))) },
			func(w *world, c ledger.Claim) { w.ended(refused(worker(c), 1), ledger.Failed) }, true,
		},
		{
			"its event is open", func(w *world) { w.grant(w.event("key", w.run("7"))) },
			func(w *world, c ledger.Claim) { w.ended(refused(worker(c), 1), ledger.Failed) }, false,
		},
		{
			"an event of its run is open", func(w *world) { w.grant(w.event("other", w.run("7"))) },
			func(w *world, c ledger.Claim) { w.ended(refused(worker(c), 1), ledger.Failed) }, false,
		},
		{
			"found, while its event is open", func(w *world) { w.grant(w.event("key", w.run("7"), lease(86400))) },
			func(w *world, c ledger.Claim) { w.ended(complete(looker(unknown(w, c)), "r"), ledger.Completed) }, false,
		},
		{"completed by its worker", nil, func(w *world, c ledger.Claim) { w.ended(complete(worker(c), "r"), ledger.Completed) }, false},
		{"completed by its worker after all", nil, func(w *world, c ledger.Claim) {
			w.ended(markUnknown(worker(c)), ledger.Unknown)
			w.ended(complete(worker(c), "r"), ledger.Completed)
		}, false},
		{"completed by a callback", nil, func(w *world, c ledger.Claim) {
			w.ended(markUnknown(worker(c)), ledger.Unknown)
			w.ended(completeKey(c.Key, "r"), ledger.Completed)
		}, false},
	} {
		w.row(row.name, func(w *world) {
			if row.before != nil {
				row.before(w)
			}
			c := w.grant(w.effect("key", w.run("7"), payload(`{"n":1}`), lease(86400)))
			row.settle(w, c)
			if !row.want {
				if letters := w.letters(); len(letters) != 0 {
					w.Fatalf("%+v, want none", letters)
				}
				return
			}
			l := w.only()
			l = w.stands(l.ID, deadletter.Dead, "settled_late", 1)
			if l.ClaimID != c.ID || string(l.Payload) != `{"n":1}` || w.alerts() != 1 {
				w.Errorf("%d alerts, %+v", w.alerts(), l)
			}
			w.unmoved("a sweep", func() { w.sweptLetters() })
			w.withheld("a person decides")
			w.closed(l.ID, byPerson(deadletter.Requeue), deadletter.Queued, "requeued")
			if got := w.handed(); got.ID != l.ID {
				w.Errorf("%+v", got)
			}
		})
	}
}

// letterEventDone: a letter is resolved when its event completes after all, whoever says so and wherever it stands.
func letterEventDone(w *world) {
	ways := map[string]func(*world, ledger.Claim){
		"by the failed run's token": func(w *world, c ledger.Claim) { w.ended(complete(worker(c), "r"), ledger.Completed) },
		"by key":                    func(w *world, c ledger.Claim) { w.ended(completeKey(c.Key, "r"), ledger.Completed) },
		"by a person":               func(w *world, c ledger.Claim) { w.resolved(c.ID, ledger.Completed) },
		"by another run": func(w *world, c ledger.Claim) {
			w.ended(complete(worker(w.grant(w.event("key", w.run("8")))), "r"), ledger.Completed)
		},
	}
	for name, finish := range ways {
		w.row("queued, "+name, func(w *world) {
			c := w.grant(w.event("key", w.run("7")))
			id := w.told(w.failed("7")).ID
			finish(w, c)
			w.stands(id, deadletter.Resolved, "completed", 1)
			w.unmoved("a sweep", func() { w.sweptLetters() })
		})
		w.row("dead, "+name, func(w *world) {
			c := w.grant(w.event("key", w.run("7")))
			id := w.told(w.failed("7", verdict(wrongCredential))).ID
			finish(w, c)
			w.stands(id, deadletter.Resolved, "completed", 1)
		})
		w.row("leased, "+name, func(w *world) {
			c := w.grant(w.event("key", w.run("7")))
			id := w.told(w.failed("7")).ID
			w.pass(backoff(1) * 2)
			held := w.handed()
			finish(w, c)
			w.stands(id, deadletter.Resolved, "completed", 2)
			w.repeated(id, by(held, deadletter.Resolve), deadletter.Resolved)
			w.repeated(id, by(held, deadletter.Fail), deadletter.Resolved)
			w.turnedAway(id, by(held, deadletter.Extend, leaseFor(60)), "lease_lost")
			w.pass(time.Hour)
			w.unmoved("a sweep", func() { w.sweptLetters() })
		})
	}
	w.row("settled already", func(w *world) {
		c := w.grant(w.event("key", w.run("7")))
		id := w.told(w.failed("7")).ID
		w.closed(id, byPerson(deadletter.Discard), deadletter.Discarded, "discarded")
		w.ended(complete(worker(c), "r"), ledger.Completed)
		w.stands(id, deadletter.Discarded, "discarded", 1)
	})
}
