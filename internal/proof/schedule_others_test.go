package proof

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// reconcile is one pass of the reconciler: it takes what is unknown, asks the destination, and settles in one of three ways.
func (s *schedule) reconcile(name string) {
	s.start(name, nil, func(a *actor) {
		list, _ := ask(s, a, 3, "/reconcile/lease", func() ([]ledger.Claim, error) {
			return s.f.claims.LeaseUnknown(context.Background(), &ledger.LookRequest{Source: s.source, Owner: name, CallerKey: "n8n", Limit: 25, LeaseSeconds: ledger.DefaultLookLease})
		})
		s.lookUp(a, list)
	})
}

// prompt is how soon a "not found" is reported: with what a request and the search may take before, it stays below
// not_found_after. An older answer would be believed as if it were new.
const prompt = 30 * time.Second

// lookUp asks the destination about each claim, as n8n does with all items of a node, and then reports.
func (s *schedule) lookUp(a *actor, list []ledger.Claim) {
	out, heard := make([]ledger.Ending, len(list)), make([]time.Time, len(list))
	for i := range list {
		c, e := &list[i], &out[i]
		a.pause()
		heard[i] = s.now()
		id, found := s.shop.find(payment{action: c.Key.IdempotencyKey, key: c.ProviderKey})
		switch {
		case c.Kind == ledger.Event || s.once(4):
			*e = ledger.Ending{Verb: ledger.MarkUnknown, HTTPStatus: 503} // it cannot be asked
		case found:
			*e = ledger.Ending{Verb: ledger.Complete, ResultID: id}
		default:
			*e = ledger.Ending{Verb: ledger.MarkFailed, NotExecuted: true}
		}
		s.tell("%s asks about %s: %s", a.name, c.Key.IdempotencyKey, words(string(e.Verb), id))
	}
	for i := range list {
		if a.until = (time.Time{}); out[i].Verb == ledger.MarkFailed {
			a.until = heard[i].Add(prompt)
		}
		_, _ = s.end(a, 3, list[i].LookToken(), out[i])
	}
}

// retryWorker takes a letter that is due, and plays it.
func (s *schedule) retryWorker(name string) {
	s.start(name, nil, func(a *actor) {
		list, _ := ask(s, a, 3, "/dlq/lease", func() ([]deadletter.Letter, error) {
			return s.f.letters.LeaseLetters(context.Background(), &deadletter.LeaseRequest{Source: s.source, Owner: name, CallerKey: "n8n", Limit: 1, LeaseSeconds: deadletter.DefaultLease})
		})
		for i := range list {
			s.replay(a, &list[i])
		}
	})
}

// replay runs a letter's workflow again, and tells how that went. The letter of a charge alone has no event in its payload:
// the workflow finds no key in it.
func (s *schedule) replay(a *actor, l *deadletter.Letter) {
	r, status := &run{over: true, answer: "failed"}, int64(500)
	if n := s.noticeOf(l.Payload); n != nil {
		r = s.newRun(n)
		s.begin(r)
	} else if l.Play != deadletter.PlayWorkflow || l.Key.Step == "" {
		s.broke("a letter that cannot be played: %s of %s", l.Play, l.Key.IdempotencyKey)
	} else {
		status = 422
	}
	for patience := 100; !r.over && patience > 0 && !s.once(12); patience-- { // when it is over the run goes on
		a.pause()
	}
	e := deadletter.Ending{Verb: deadletter.Fail, ByToken: true, CallerKey: "n8n"}
	e.Token, _ = deadletter.ParseToken(l.LeaseToken())
	switch {
	case !r.over:
		e.Error = asJSON(n8nError(timedOut))
	case r.answer == "done":
		e.Verb = deadletter.Resolve
	case r.answer == "known", r.answer == "wait":
		e.NotNow, e.RetryAfter = true, new(int64(60))
	case r.answer == "failed":
		e.HTTPStatus = status
	default:
		e.Error = asJSON(n8nError(hungUp))
	}
	_, _ = ask(s, a, 5, words("/dlq/"+string(e.Verb), when(e.NotNow, "not now")), func() (deadletter.Ended, error) {
		one := e
		return s.f.letters.EndLetter(context.Background(), l.ID, &one)
	})
}

func (s *schedule) noticeOf(payload []byte) *notice {
	var p struct{ Event string }
	_ = json.Unmarshal(payload, &p) // no event is found in what cannot be read
	for _, o := range s.orders {
		for _, n := range o.events {
			if n.key == p.Event {
				return n
			}
		}
	}
	return nil
}

// maySend tells whether a payment for the action may still be made under a key that was given out.
func (s *schedule) maySend(action string) bool {
	for _, p := range s.parcels {
		if p.paid != nil && p.paid.action == action {
			return true
		}
	}
	for _, a := range s.actors {
		if a.run != nil && a.run.notice.order.action == action && a.run.node <= atPay {
			return true
		}
	}
	return false
}

// handle is what n8n, or somebody before it, does about a run that is over: a crash report, or a retry by hand, which goes
// on at the node that failed with what the run had, under another id.
func (s *schedule) handle() {
	var over []*run
	for _, r := range s.runs {
		if r.over && (r.answer == "" || r.failed) {
			over = append(over, r)
		}
	}
	if len(over) == 0 {
		return
	}
	of := over[s.pick(len(over))]
	atCall := of.node == atPay && of.effectToken != ""
	switch {
	case of.failed && of.node != atPay, atCall && s.manners.resumes && !s.rotated && s.pick(2) == 1:
		r := s.newRun(of.notice)
		id := r.id
		*r = *of
		r.id, r.retryOf, r.over, r.failed, r.answer = id, of.id, false, false, ""
		s.tell("%s is retried by hand", of)
		s.begin(r)
	case of.answer == "":
		s.start("the report of "+of.String(), nil, func(a *actor) {
			s.report(a, of, "Pay", fields{"name": "WorkflowCrashedError", "message": "Workflow did not finish, possible out-of-memory issue"})
		})
	}
}

// move is one thing that happens.
func (s *schedule) move() {
	switch s.pick(18) {
	case 10:
		o := s.orders[s.pick(len(s.orders))]
		s.notify(o.events[s.pick(len(o.events))])
	case 11:
		if len(s.actors) > 0 {
			s.kill(s.actors[s.pick(len(s.actors))])
		}
	case 12:
		if len(s.parcels) > 0 {
			s.deliver(s.parcels[s.pick(len(s.parcels))])
		}
	case 13:
		s.helpers++
		s.reconcile(fmt.Sprint("reconciler ", s.helpers))
	case 14:
		s.helpers++
		s.retryWorker(fmt.Sprint("retry worker ", s.helpers))
	case 15:
		s.person()
	case 16:
		s.handle()
	case 17:
		if s.pick(4) == 3 {
			s.pause()
		} else {
			s.operate([]deadletter.ReplayVerb{deadletter.Approve, deadletter.Approve, deadletter.Pause, deadletter.Cancel}[s.pick(4)])
		}
	default:
		if len(s.actors) > 0 {
			s.step(s.actors[s.pick(len(s.actors))])
			return
		}
		for _, o := range s.orders {
			for _, n := range o.events {
				if !n.sent {
					s.notify(n)
					return
				}
			}
		}
	}
}

// notify has an event sent, for the first time or again.
func (s *schedule) notify(n *notice) {
	n.sent = true
	s.begin(s.newRun(n))
}
