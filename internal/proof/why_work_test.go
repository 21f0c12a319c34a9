package proof

import (
	"net/http"
	"slices"
)

// tracesOfWork are the traces about what surrounds a charge: events, letters, versions of an entity, and replays.
var tracesOfWork = map[string]func(*tale){
	"F6 effect only, and a later node fails": func(s *tale) {
		c := s.effect("1", "order", proceed)
		s.complete(c.LeaseToken, s.paid("order", c), completed)
		s.reported("1", fields{"node": "Write it down", "status": 503}, "queued", "transient")
		s.charges("order", 1)
	},
	"F6 the event is completed before the later part": func(s *tale) {
		e := s.event("1", "evt", proceed)
		s.complete(e.LeaseToken, "", completed)
		s.reported("1", fields{"node": "Write it down", "status": 503}, "dead", "failed_after_completion")
	},
	"F6 only a crash, or its own complete, settles a letter by a completed event": func(s *tale) {
		for run, fault := range map[string]fields{"1": {"crash": true}, "2": {"node": "Complete", "status": timedOut, "uri": "http://holdfast:8088/complete"}} {
			e := s.event(run, "evt-"+run, proceed)
			s.complete(e.LeaseToken, "", completed)
			s.reported(run, fault, "resolved", "completed_meanwhile")
		}
	},
	"F6 effect only, and the run is never heard of": func(s *tale) {
		c := s.effect("1", "order", proceed, lease(1))
		s.lost("order", c)
		s.soon(unknown, s.ask("2", "order", charged))
		s.found("order", s.look())
		s.letter(func(l word) bool { return l.short() == "dead" && l.Reason == "settled_late" })
		s.charges("order", 1)
	},
	"F6 an event whose effect is not known stays undone, and is run again": func(s *tale) {
		s.event("1", "evt", proceed, lease(1))
		c := s.effect("1", "order", proceed)
		id := s.lost("order", c)
		s.unknown(c.LeaseToken, unknown)
		s.letter(func(l word) bool { return l.short() == "queued" && l.Reason == "lease_expired" })
		e := s.event("2", "evt", proceed)
		s.effect("2", "order", unknown) // so it does not complete the event
		s.say("/mark-failed", fields{"lease_token": e.LeaseToken, "retry_after": 1}, pending)
		s.found("order", s.look())
		e = s.event("3", "evt", proceed)
		if again := s.effect("3", "order", completed); again.ResultID != id {
			s.Errorf("goes on with %q, and the truth is %q", again.ResultID, id)
		}
		s.complete(e.LeaseToken, "", completed)
		s.letter(func(l word) bool { return l.short() == "resolved" })
		s.charges("order", 1)
	},
	"F7 an event that was told to wait is kept": func(s *tale) {
		one := s.event("1", "v1", proceed, ofVersion(1))
		two := s.event("2", "v2", wait, ofVersion(2))
		if w := s.do(workflowKey, http.MethodGet, "/claims/"+two.ClaimID, nil); w.short() != pending || two.RetryAfter < 1 {
			s.Errorf("the claim that waits is %s, to be asked again after %d s", w.short(), two.RetryAfter)
		}
		s.complete(one.LeaseToken, "", completed)
		s.event("2", "v2", proceed, ofVersion(2))
	},
	"F7 an effect does not wait for its own event": func(s *tale) {
		s.event("1", "order", proceed, ofVersion(1))
		s.effect("1", "order", proceed, ofVersion(1))
	},
	"F7 a zombie's write, and one that timed out": func(s *tale) {
		one := s.effect("1", "v1", proceed, ofVersion(1), lease(1))
		if w := s.soon(wait, s.ask("2", "v2", charged, ofVersion(2))); w.RetryAfter < 1 {
			s.Errorf("wait %d s", w.RetryAfter)
		}
		s.soon(unknown, s.ask("3", "v1", charged, ofVersion(1)))
		s.effect("2", "v2", wait, ofVersion(2)) // the write may still land
		s.complete(one.LeaseToken, s.paid("v1", one), completed)
		two := s.effect("2", "v2", proceed, ofVersion(2))
		s.unknown(two.LeaseToken, unknown)
		s.effect("4", "v3", wait, ofVersion(3))
		s.complete(two.LeaseToken, s.paid("v2", two), completed)
		s.effect("4", "v3", proceed, ofVersion(3))
		s.effect("5", "v1b", stale, ofVersion(1))
	},
	"F7 an executed effect is never called stale": func(s *tale) {
		one := s.effect("1", "v1", proceed, ofVersion(1), lease(1))
		id := s.lost("v1", one)
		s.soon(unknown, s.ask("3", "v1", charged, ofVersion(1)))
		s.effect("2", "v2", wait, ofVersion(2))
		s.say("/complete", fields{"source": s.source, "idempotency_key": "v2", "step": "charge", "result_id": "w2"}, completed)
		s.effect("3", "v1", unknown, ofVersion(1))
		s.complete(one.LeaseToken, id, completed)
	},
	"F9 nothing of a replay is handed out before its turn": func(s *tale) {
		l := s.died("1", "evt", "order")
		s.person("/dlq/"+l.ID+"/requeue", nil, "queued")
		r := s.replay("queued", 0)
		s.none()
		s.event("2", "other", proceed)
		s.person("/replays/"+r.ID+"/approve", nil, "running")
		s.resolved(s.take(300))
		s.ended(r, "done", "resolved")
		s.charges("order", 1)
	},
	"F9 a lease that ends inside a replay": func(s *tale) {
		l := s.died("1", "evt", "order")
		r := s.replay("dead", 1)
		s.take(1)
		s.ended(r, "done", "dead")
		s.none()
		if w := s.do(workflowKey, http.MethodGet, "/dlq/"+l.ID, nil); w.short() != "dead" || w.Reason != "lease_expired" {
			s.Errorf("the letter is %s (%s)", w.short(), w.Reason)
		}
	},
	"F9 a lease that ends after its replay was cancelled": func(s *tale) {
		l := s.died("1", "evt", "order")
		r := s.replay("dead", 1)
		s.take(1)
		s.person("/replays/"+r.ID+"/cancel", nil, "cancelled")
		s.until("the letter is dead", func() bool {
			return s.do(workflowKey, http.MethodGet, "/dlq/"+l.ID, nil).short() == "dead"
		})
		s.none()
	},
	"F9 a failure inside a replay": func(s *tale) {
		s.died("1", "evt", "order")
		r := s.replay("dead", 1)
		l := s.take(300)
		s.say("/dlq/"+l.ID+"/fail", fields{"lease_token": l.LeaseToken, "error": n8nError(503)}, "dead")
		s.ended(r, "done", "dead")
		s.none()
	},
	"by reading: not now costs no attempt": func(s *tale) {
		s.died("1", "evt", "order")
		l := s.letter(func(word) bool { return true })
		s.person("/dlq/"+l.ID+"/requeue", nil, "queued")
		for range 8 { // more than there are attempts
			l = s.take(300)
			s.say("/dlq/"+l.ID+"/fail", fields{"lease_token": l.LeaseToken, "retry_after": 0}, "queued")
		}
		if again := s.take(300); again.AttemptCount != l.AttemptCount {
			s.Errorf("attempt %d after %d", again.AttemptCount, l.AttemptCount)
		}
	},
	"by reading: a failure report ends the event's lease": func(s *tale) {
		s.event("1", "evt", proceed, lease(86400))
		s.event("2", "evt", inProgress)
		s.reported("1", fields{"node": "Pay", "status": 503}, "queued", "transient")
		s.event("2", "evt", proceed)
	},
	"by reading: an old token does not resolve what another runs": func(s *tale) {
		s.died("1", "evt", "order")
		l := s.letter(func(word) bool { return true })
		s.person("/dlq/"+l.ID+"/requeue", nil, "queued")
		old := s.take(1)
		s.until("the lease is over", func() bool {
			return s.do(workflowKey, http.MethodGet, "/dlq/"+l.ID, nil).short() != "replaying"
		})
		s.person("/dlq/"+l.ID+"/requeue", nil, "queued")
		newer := s.take(300)
		s.say("/dlq/"+l.ID+"/resolve", fields{"lease_token": old.LeaseToken}, leaseLost)
		s.say("/dlq/"+l.ID+"/resolve", fields{}, "invalid_request") // a workflow needs a token
		s.resolved(newer)
		s.charges("order", 1)
	},
}

// reported is the failure report of a run; its letter must stand so.
func (s *tale) reported(run string, of fields, want, reason string) word {
	s.Helper()
	fault := fields{"name": "WorkflowCrashedError", "message": "Workflow did not finish, possible out-of-memory issue"}
	if of["crash"] == nil {
		fault = n8nError(of["status"].(int))
		if uri, ok := of["uri"]; ok {
			fault["context"] = fields{"request": fields{"method": "POST", "uri": uri, "body": fields{"lease_token": "hidden"}}}
		}
	}
	w := s.say("/dlq", fields{
		"execution": fields{"id": run, "mode": "webhook", "error": fault, "lastNodeExecuted": of["node"]}, "workflow": fields{"id": s.workflow(), "name": "Orders"},
	}, want)
	if w.Reason != reason {
		s.Fatalf("the letter's reason is %q, want %q", w.Reason, reason)
	}
	return w
}

// letter waits for a letter of the trace to be so.
func (s *tale) letter(is func(word) bool) (l word) {
	s.Helper()
	s.until("there is such a letter", func() bool {
		items := s.do(workflowKey, http.MethodGet, "/dlq?source="+s.source, nil).Items
		i := slices.IndexFunc(items, is)
		if i >= 0 {
			l = items[i]
		}
		return i >= 0
	})
	return l
}

// died is a run that paid, wrote that down, and then failed for good: its event's letter is dead.
func (s *tale) died(run, event, order string) word {
	s.Helper()
	s.event(run, event, proceed)
	c := s.effect(run, order, proceed)
	s.complete(c.LeaseToken, s.paid(order, c), completed)
	return s.reported(run, fields{"node": "Write it down", "status": 401}, "dead", "auth")
}

func (s *tale) replay(status string, sample int) word {
	s.Helper()
	want := "sampling"
	if sample == 0 {
		want = "awaiting_approval"
	}
	return s.person("/replays", fields{
		"expected_effects": "nothing is charged again", "selector": fields{"source": s.source, "status": status}, "limit": 10, "sample_size": sample,
	}, want)
}

// none checks that no letter of the trace is handed out.
func (s *tale) none() {
	s.Helper()
	if got := s.do(workflowKey, http.MethodPost, "/dlq/lease", fields{"source": s.source}); len(got.Items) > 0 {
		s.Fatalf("handed out: %+v", got.Items)
	}
}

// take waits for a letter to be handed out.
func (s *tale) take(seconds int) (l word) {
	s.Helper()
	s.until("a letter is handed out", func() bool {
		got := s.do(workflowKey, http.MethodPost, "/dlq/lease", fields{"source": s.source, "lease_seconds": seconds})
		if len(got.Items) == 1 {
			l = got.Items[0]
		}
		return len(got.Items) == 1
	})
	return l
}

// resolved runs a letter's workflow again: what was charged is not charged again.
func (s *tale) resolved(l word) {
	s.Helper()
	e := s.event("again", "evt", proceed)
	s.effect("again", "order", completed)
	s.complete(e.LeaseToken, "", completed)
	s.say("/dlq/"+l.ID+"/resolve", fields{"lease_token": l.LeaseToken}, "resolved")
}

// ended waits for a replay to end with its one letter so.
func (s *tale) ended(r word, status, letter string) {
	s.Helper()
	s.until("the replay is "+status+" and its letter "+letter, func() bool {
		w := s.do(operatorKey, http.MethodGet, "/replays/"+r.ID, nil)
		return w.short() == status && w.Counts[letter] == 1
	})
}
