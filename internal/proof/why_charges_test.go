package proof

import (
	"net/http"
	"time"
)

// tracesOfCharges are the traces in which a destination is called. Each is played with one that honours keys and with one
// that does not; what only keys can save is then left out by the rules of the templates, and said so.
var tracesOfCharges = map[string]func(*tale){
	"F1 a refusal on a later try hides an executed earlier one": func(s *tale) {
		c := s.effect("1", "order", proceed)
		land := s.underWay("order", c)
		s.shop.next("order", fate{refuse: 401})
		if status, _ := s.pay(s.Context(), "order", c, ""); status != 401 {
			s.Fatalf("the second try is answered with %d", status)
		}
		s.refused(c.LeaseToken, 401, 2, unknown)
		s.effect("2", "order", unknown)
		id := land()
		s.found("order", s.look())
		if again := s.effect("3", "order", completed); again.ResultID != id {
			s.Errorf("completed with %q, and the truth is %q", again.ResultID, id)
		}
		s.charges("order", 1)
	},
	"F1 the parameters of a later try differ": func(s *tale) {
		c := s.effect("1", "order", proceed)
		id := s.lost("order", c)
		if s.shop.honours {
			if status, _ := s.pay(s.Context(), "order", c, " said differently"); status != http.StatusBadRequest {
				s.Fatalf("another body under the same key is answered with %d", status)
			}
		}
		s.refused(c.LeaseToken, 400, 0, unknown) // how often it was tried is not said
		s.effect("2", "order", unknown)
		s.found("order", s.look())
		s.effect("3", "order", completed)
		s.complete(c.LeaseToken, id, completed)
		s.charges("order", 1)
	},
	"F1 one try is not enough: the provider key never rotates by itself": func(s *tale) {
		c := s.effect("1", "order", proceed, via("prompt"))
		if !s.shop.honours { // its search must not lag behind not_found_after: that is F2
			s.notFound(c.LeaseToken, failed)
			if again := s.effect("2", "order", proceed, via("prompt")); again.ProviderKey != c.ProviderKey {
				s.Error("another provider key")
			}
			s.charges("order", 0)
			return
		}
		s.shop.lag = time.Hour
		s.lost("order", c)
		s.unknown(c.LeaseToken, unknown)
		s.notYetFound("order", s.look(), failed) // false
		second := s.effect("2", "order", proceed, via("prompt"))
		s.shop.next("order", fate{refuse: 401})
		if status, _ := s.pay(s.Context(), "order", second, ""); status != 401 {
			s.Fatalf("answered with %d", status)
		}
		s.refused(second.LeaseToken, 401, 1, failed)
		third := s.effect("3", "order", proceed, via("prompt"))
		if third.ProviderKey != c.ProviderKey || third.Attempt != 3 {
			s.Errorf("attempt %d has another provider key than the first", third.Attempt)
		}
		s.complete(third.LeaseToken, s.paid("order", third), completed) // the provider answers from memory
		s.charges("order", 1)
	},
	"F2 not found because the search lags": func(s *tale) {
		s.shop.lag = time.Hour
		c := s.effect("1", "order", proceed)
		land := s.underWay("order", c)
		s.unknown(c.LeaseToken, unknown)
		id := land()
		s.notYetFound("order", s.look(), unknown)
		s.effect("2", "order", unknown)
		s.say("/complete", fields{"source": s.source, "idempotency_key": "order", "step": "charge", "result_id": id}, completed) // its callback
		s.effect("3", "order", completed)
		s.charges("order", 1)
	},
	"F2 a slow worker outlives its lease": func(s *tale) {
		c := s.effect("1", "order", proceed, lease(1))
		s.soon(unknown, s.ask("2", "order", charged))
		look := s.look()
		s.notYetFound("order", look, unknown)
		id := s.paid("order", c) // only now
		s.effect("2", "order", unknown)
		s.complete(c.LeaseToken, id, completed)
		s.effect("3", "order", completed)
		s.notFound(look.LeaseToken, completed)
		s.charges("order", 1)
	},
	"F2 a slow worker, and not found is believed": func(s *tale) {
		c := s.effect("1", "order", proceed, lease(1), via("prompt"))
		s.soon(unknown, s.ask("2", "order", charged))
		s.notYetFound("order", s.look(), failed)
		if !s.shop.honours { // then nobody may send who is covered neither by the lease nor by not_found_after
			second := s.effect("2", "order", proceed, via("prompt"))
			s.unknown(c.LeaseToken, leaseLost)
			s.complete(second.LeaseToken, s.paid("order", second), completed)
			s.charges("order", 1)
			return
		}
		id := s.paid("order", c)
		second := s.effect("2", "order", proceed, via("prompt"))
		s.complete(second.LeaseToken, s.paid("order", second), completed)
		s.complete(c.LeaseToken, id, leaseLost) // kept; the newer attempt has the same receipt
		s.charges("order", 1)
	},
	"F3 a crash with the request under way": func(s *tale) {
		s.event("1", "evt", proceed, lease(1))
		c := s.effect("1", "order", proceed, lease(1))
		land := s.underWay("order", c)
		if s.shop.honours { // a retry that resumes at the call sends without a claim, under the same key
			if status, _ := s.pay(s.Context(), "order", c, ""); status != http.StatusConflict {
				s.Fatalf("while the first is under way it is answered with %d", status)
			}
		}
		// Without save execution progress a retry begins at the trigger, and claims.
		retry := s.soon(proceed, s.ask("2", "evt"))
		s.soon(unknown, s.ask("2", "order", charged))
		id := land()
		s.found("order", s.look())
		if again := s.effect("3", "order", completed); again.ResultID != id {
			s.Errorf("completed with %q, and the truth is %q", again.ResultID, id)
		}
		s.complete(retry.LeaseToken, "", completed)
		s.charges("order", 1)
	},
	"F4 a genuine receipt during a reconciler's lease": func(s *tale) {
		c := s.effect("1", "order", proceed, lease(1))
		id := s.paid("order", c)
		s.soon(unknown, s.ask("2", "order", charged))
		look := s.look()
		s.complete(c.LeaseToken, id, completed)
		if w := s.notFound(look.LeaseToken, completed); w.Changed {
			s.Error("the reconciler's not found changed a completed claim")
		}
		s.effect("2", "order", completed)
		s.charges("order", 1)
	},
	"F4 a genuine receipt after not found": func(s *tale) {
		s.shop.lag = time.Hour
		c := s.effect("1", "order", proceed, lease(1), via("prompt"))
		id := s.paid("order", c)
		s.soon(unknown, s.ask("2", "order", charged))
		s.notYetFound("order", s.look(), failed)
		s.complete(c.LeaseToken, id, completed)
		s.effect("2", "order", completed, via("prompt"))
		s.charges("order", 1)
	},
	"F4 the worker's word outranks the reconciler's": func(s *tale) {
		s.shop.lag = time.Hour
		c := s.effect("1", "order", proceed, lease(1), via("prompt"))
		id := s.lost("order", c)
		s.soon(unknown, s.ask("2", "order", charged))
		look := s.look()
		s.notYetFound("order", look, failed)
		s.unknown(c.LeaseToken, unknown)
		s.effect("2", "order", unknown, via("prompt"))
		if w := s.notFound(look.LeaseToken, unknown); w.Changed {
			s.Error("the reconciler's old token decided")
		}
		s.effect("2", "order", unknown, via("prompt"))
		s.shop.lag = 0
		s.found("order", s.look())
		if again := s.effect("3", "order", completed, via("prompt")); again.ResultID != id {
			s.Errorf("completed with %q, and the truth is %q", again.ResultID, id)
		}
		s.charges("order", 1)
	},
	"F5 the window runs from the first send": func(s *tale) {
		s.shop.lag = time.Hour
		c := s.effect("1", "order", proceed, via("forgetful"))
		s.lost("order", c)
		s.unknown(c.LeaseToken, unknown)
		s.notYetFound("order", s.look(), failed) // false
		window := s.do(workflowKey, http.MethodGet, "/claims/"+c.ClaimID, nil).WindowEndsAt
		s.until("the window is over", func() bool { return time.Now().After(window.Add(100 * time.Millisecond)) })
		s.ahead = 2 * keyMemory // the provider has forgotten the key
		s.effect("2", "order", review, via("forgetful"))
		s.person("/claims/"+c.ClaimID+"/resolve", fields{"status": failed}, "invalid_request")
		s.person("/claims/"+c.ClaimID+"/resolve", fields{"status": completed, "result_id": s.shop.charged("order")[0]}, completed)
		s.effect("3", "order", completed, via("forgetful"))
		s.charges("order", 1)
	},
	"F8 two claim nodes of one execution": func(s *tale) {
		c := s.effect("1", "order", proceed)
		s.effect("1", "order", inProgress, fields{"node": "Claim1"})
		s.effect("1", "order", inProgress, fields{"owner": "1:0:1"})
		if again := s.effect("1", "order", proceed); again.LeaseToken != c.LeaseToken || !again.Reentrant || again.Attempt != 1 {
			s.Errorf("the same node run is given another lease: %+v", again)
		}
		s.complete(c.LeaseToken, s.paid("order", c), completed)
		s.effect("1", "order", completed, fields{"node": "Claim1"})

		s.effect("1", "nobody's", proceed, fields{"owner": ""})
		s.effect("1", "nobody's", inProgress, fields{"owner": ""})
		s.charges("order", 1)
	},
	"F10 a mark by key has no fence": func(s *tale) {
		c := s.effect("1", "order", proceed)
		s.shop.next("order", fate{refuse: 401})
		if status, _ := s.pay(s.Context(), "order", c, ""); status != 401 {
			s.Fatalf("answered with %d", status)
		}
		s.refused(c.LeaseToken, 401, 1, failed)
		second := s.effect("2", "order", proceed)
		id := s.paid("order", second)
		for _, verb := range []string{"/mark-failed", "/mark-unknown", "/extend"} {
			s.say(verb, fields{"source": s.source, "idempotency_key": "order", "step": "charge"}, "invalid_request")
		}
		s.effect("3", "order", inProgress)
		s.complete(second.LeaseToken, id, completed)
		s.effect("3", "order", completed)
		s.charges("order", 1)
	},
	"t13 G an ordinary retry of a lost answer": func(s *tale) {
		c := s.effect("1", "order", proceed)
		s.shop.next("order", fate{refuse: 401})
		if status, _ := s.pay(s.Context(), "order", c, ""); status != 401 {
			s.Fatalf("answered with %d", status)
		}
		s.refused(c.LeaseToken, 401, 1, failed) // its answer is lost
		second := s.effect("2", "order", proceed)
		s.refused(c.LeaseToken, 401, 1, leaseLost) // n8n sends it again
		id := s.paid("order", second)
		s.effect("3", "order", inProgress)
		s.complete(second.LeaseToken, id, completed)
		s.refused(c.LeaseToken, 401, 1, leaseLost)
		s.unknown(c.LeaseToken, leaseLost)
		s.effect("3", "order", completed)
		s.charges("order", 1)
	},
	"held: an old token with the reconciler's receipt": func(s *tale) {
		c := s.effect("1", "order", proceed, lease(1))
		id := s.lost("order", c)
		s.soon(unknown, s.ask("2", "order", charged))
		s.found("order", s.look())
		if w := s.complete(c.LeaseToken, id, completed); w.Changed {
			s.Error("the same receipt again changed something")
		}
		s.complete(c.LeaseToken, "ch_another", resultConflict)
		s.charges("order", 1)
	},
	"held: an event that is taken over finds its effects done": func(s *tale) {
		s.event("1", "evt", proceed, lease(1))
		c := s.effect("1", "order", proceed)
		s.complete(c.LeaseToken, s.paid("order", c), completed)
		second := s.soon(proceed, s.ask("2", "evt"))
		if second.Attempt != 2 {
			s.Errorf("attempt %d", second.Attempt)
		}
		s.effect("2", "order", completed)
		s.complete(second.LeaseToken, "", completed)
		s.charges("order", 1)
	},
}

// found asks the destination, which has it, and reports so.
func (s *tale) found(action string, look word) {
	s.Helper()
	id, found := s.search(action, look)
	if !found {
		s.Fatalf("the search does not find %s", action)
	}
	s.complete(look.LeaseToken, id, completed)
}

// notYetFound asks the destination, which has nothing or does not show it, and reports so.
func (s *tale) notYetFound(action string, look word, want string) {
	s.Helper()
	if id, found := s.search(action, look); found {
		s.Fatalf("the search finds %s", id)
	}
	s.notFound(look.LeaseToken, want)
}
