package proof

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// Without further losses, and with time and sweeps between: longWait is past every lease, backoff and wait.
const (
	longWait   = 70 * time.Minute
	mostRounds = 40
	mostSent   = 3 // by a sender, before it gives up
)

// calm drives schedules on until nothing is left to be done: senders send again, a reconciler asks, a retry worker plays
// what is due, and helping adds persons who decide what waits for them. until tells where that has been reached.
func (f *field) calm(all map[string]*schedule, helping bool, until func(*schedule) bool) {
	left := maps.Clone(all)
	for range mostRounds {
		together(left, func(s *schedule) {
			if helping {
				s.settle()
				s.requeue()
				if s.replayID != "" {
					s.operate(deadletter.Approve)
				}
			}
			s.sendAgain()
		})
		f.handOut(left)
		together(left, (*schedule).look)
		if maps.DeleteFunc(left, func(_ string, s *schedule) bool { return s.wrong != "" || until(s) }); len(left) == 0 {
			return
		}
		f.pass(longWait)
		f.sweep(left)
	}
	for _, s := range left {
		s.broke("there is no end to it: %s", s.standing())
	}
}

// handOut leases what is to be done for all schedules, until nothing is left.
func (f *field) handOut(all map[string]*schedule) {
	for {
		claims, err := f.claims.LeaseUnknown(context.Background(), &ledger.LookRequest{CallerKey: "n8n", Limit: 100, LeaseSeconds: ledger.DefaultLookLease})
		letters, err2 := f.letters.LeaseLetters(context.Background(), &deadletter.LeaseRequest{CallerKey: "n8n", Limit: 100, LeaseSeconds: deadletter.DefaultLease})
		if f.failed(all, "leasing", errors.Join(err, err2)); len(claims)+len(letters) == 0 {
			return
		}
		for i := range claims {
			if s := all[claims[i].Key.Source]; s != nil && s.wrong == "" {
				s.start("the reconciler", nil, func(a *actor) { s.lookUp(a, claims[i:i+1]) })
			}
		}
		for i := range letters {
			if s := all[letters[i].Key.Source]; s != nil && s.wrong == "" {
				s.start("the retry worker", nil, func(a *actor) { s.replay(a, &letters[i]) })
			}
		}
		together(all, (*schedule).drain)
	}
}

// drain lets all that was begun go on to its end.
func (s *schedule) drain() {
	for len(s.parcels) > 0 {
		s.deliver(s.parcels[0])
	}
	for n := 0; len(s.actors) > 0; n++ {
		if n > 1000 {
			s.broke("%s never ends", s.actors[0].name)
			return
		}
		for _, a := range slices.Clone(s.actors) {
			s.step(a)
		}
	}
}

// sendAgain has the senders send what was not answered with 200. When the losses have ended it also lets go on what was
// under way: at once, or when the others have long gone on.
func (s *schedule) sendAgain() {
	if !s.quiet {
		s.quiet = true
		if s.paused {
			s.pause()
		}
		if s.replayID != "" {
			s.operate(deadletter.Approve)
		}
		s.actors = slices.DeleteFunc(s.actors, func(a *actor) bool {
			sleeps := s.pick(2) == 1
			if sleeps {
				s.asleep = append(s.asleep, a)
			}
			return sleeps
		})
	} else {
		s.actors, s.asleep = append(s.actors, s.asleep...), nil
	}
	s.drain()
	for _, o := range s.orders {
		for _, n := range o.events {
			if n.sent && !n.acked && n.again < mostSent {
				n.again++
				s.begin(s.newRun(n))
			}
		}
	}
	s.drain()
}

// settled tells whether nothing is still to come without a person.
func (s *schedule) settled() bool {
	if len(s.asleep) > 0 {
		return false
	}
	open := s.open()
	for i := range s.claims {
		c := &s.claims[i]
		// What waits for its letter to be played waits for a person, or else is due: see below.
		waits := open[c.Key.IdempotencyKey] || c.Kind == ledger.Effect && s.anyOpen(c.Key.IdempotencyKey, open)
		switch {
		case c.Status == ledger.Unknown, c.Status == ledger.Processing && (c.Kind == ledger.Effect || !waits), c.Status == ledger.Pending && !waits:
			return false
		}
	}
	return !slices.ContainsFunc(s.letters, func(l deadletter.Letter) bool {
		return (l.Status == deadletter.Queued || l.Status == deadletter.Replaying) && !s.inReview(l.Key.IdempotencyKey)
	})
}

// inReview tells whether a person must decide about the charge before anything can be done about the event.
func (s *schedule) inReview(event string) bool {
	action := s.purchase(event).action
	return slices.ContainsFunc(s.claims, func(c ledger.Claim) bool { return c.Key.IdempotencyKey == action && c.Status == ledger.Review })
}

// open are the keys that have an open letter.
func (s *schedule) open() map[string]bool {
	open := map[string]bool{}
	for i := range s.letters {
		if l := &s.letters[i]; l.Status.Open() {
			open[l.Key.IdempotencyKey] = true
		}
	}
	return open
}

func (s *schedule) anyOpen(action string, open map[string]bool) bool {
	return slices.ContainsFunc(s.purchase(action).events, func(n *notice) bool { return open[n.key] })
}

func (s *schedule) standing() (out string) {
	for i := range s.claims {
		out += fmt.Sprintf("%s is %s, ", s.claims[i].Key.IdempotencyKey, s.claims[i].Status)
	}
	for i := range s.letters {
		out += fmt.Sprintf("the letter of %s is %s (%s), ", s.letters[i].Key.IdempotencyKey, s.letters[i].Status, s.letters[i].Reason)
	}
	return out
}

// judge looks at what stands when all is settled, before any person has helped: nothing is undecided that the destination
// could have told, what is known is true, and nothing was lost in silence.
func (s *schedule) judge() {
	open := s.open()
	for i := range s.claims {
		c := &s.claims[i]
		name, action := c.Key.IdempotencyKey, s.purchase(c.Key.IdempotencyKey).action
		ids := s.shop.charged(action)
		switch {
		case c.Kind == ledger.Event && c.Status != ledger.Completed && !open[name]:
			s.broke("event %s is %s and has no open letter: it is lost in silence", name, c.Status)
		case c.Kind == ledger.Event && c.Status == ledger.Completed && len(ids) == 0:
			s.broke("event %s is completed, and %s was never charged", name, action)
		case c.Kind == ledger.Event:
		case c.Status == ledger.Completed && !slices.Equal(ids, []string{c.ResultID}):
			s.broke("%s is completed with %q, and the truth is %v", name, c.ResultID, ids)
		case c.Status == ledger.Failed, c.Status == ledger.Pending:
			// With a key it may be sent again whatever happened, and somebody is to do so.
			if len(ids) > 0 && !(s.manners.honours && s.anyOpen(name, open)) {
				s.broke("%s is %s, and was charged: %v", name, c.Status, ids)
			}
		case c.Status == ledger.Review && s.now().Before(c.WindowFrom.Time().Add(window)):
			s.broke("%s is before a person while its window is open", name)
		case c.Status != ledger.Completed && c.Status != ledger.Review:
			s.broke("%s is %s, and the destination could have told: %v", name, c.Status, ids)
		}
	}
}

// purchase is the one that is named, or for which an event of that name asks.
func (s *schedule) purchase(name string) *purchase {
	for _, o := range s.orders {
		if o.action == name || slices.ContainsFunc(o.events, func(n *notice) bool { return n.key == name }) {
			return o
		}
	}
	return &purchase{}
}

// done tells whether every event is completed; then every order that was asked for was charged once.
func (s *schedule) done() bool {
	if slices.ContainsFunc(s.claims, func(c ledger.Claim) bool { return c.Kind == ledger.Event && c.Status != ledger.Completed }) {
		return false
	}
	for _, o := range s.orders {
		sent := slices.ContainsFunc(o.events, func(n *notice) bool { return n.sent })
		if ids := s.shop.charged(o.action); sent && len(ids) != 1 {
			s.broke("all is done, and %s was charged as %v", o.action, ids)
		}
	}
	return true
}
