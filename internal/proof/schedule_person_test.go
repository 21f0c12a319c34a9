package proof

import (
	"context"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// look reads what stands, of this schedule alone.
func (s *schedule) look() {
	s.claims, _, _ = s.f.claims.List(context.Background(), ledger.ClaimFilter{Source: s.source, Limit: 200})
	s.letters, _, _ = s.f.letters.Letters(context.Background(), deadletter.Filter{Source: s.source, Limit: 200})
}

// person looks at what waits for a person, finds out the truth, and decides rightly.
func (s *schedule) person() {
	s.look()
	switch s.pick(3) {
	case 0:
		s.settle()
	case 1:
		s.requeue()
	default: // once more, from the start: what was done is claimed on its own
		for i := range s.claims {
			if c := &s.claims[i]; c.Kind == ledger.Event && c.Status == ledger.Completed {
				out, err := s.f.claims.Resolve(context.Background(), c.ID, &ledger.Resolution{To: ledger.Failed, AuthorizedBy: person, Reason: "run it again"})
				s.tell("%s has %s run again: %s", person, c.Key.IdempotencyKey, s.answered(out, err))
			}
		}
	}
}

// requeue has every letter run again that waits for a person. One that is about a charge alone is settled: its event
// has a letter of its own where anything is left to be done.
func (s *schedule) requeue() {
	for i := range s.letters {
		l := &s.letters[i]
		if l.Status != deadletter.Dead {
			continue
		}
		e := deadletter.Ending{Verb: deadletter.Requeue, AuthorizedBy: person, Reason: "looked at it", CallerKey: "ops"}
		if l.Reason == deadletter.ReasonSettledLate {
			e.Verb = deadletter.Resolve
		}
		out, err := s.f.letters.EndLetter(context.Background(), l.ID, &e)
		s.tell("%s has the letter of %s: %s, %s", person, l.Key.IdempotencyKey, e.Verb, s.answered(out, err))
	}
}

// settle settles the charges of which the truth is certain, and which Holdfast does not have as it is.
func (s *schedule) settle() {
	for i := range s.claims {
		c := &s.claims[i]
		action := c.Key.IdempotencyKey
		if c.Kind != ledger.Effect || c.Status == ledger.Completed || s.maySend(action) {
			continue
		}
		r := ledger.Resolution{To: ledger.Failed, AuthorizedBy: person, Reason: "looked at the account"}
		if ids := s.shop.charged(action); len(ids) > 0 {
			r.To, r.ResultID = ledger.Completed, ids[0]
		} else {
			r.NewProviderKey, s.rotated = newKey(), true // the old one may be remembered as declined, or not at all
		}
		out, err := s.f.claims.Resolve(context.Background(), c.ID, &r)
		s.tell("%s settles %s as %s: %s", person, action, r.To, s.answered(out, err))
	}
}

// pause lets a person stop the source, or let it go on.
func (s *schedule) pause() {
	scope := "source." + s.source
	if s.paused = !s.paused; s.paused {
		_, _ = s.f.claims.SetPause(context.Background(), ledger.Pause{Scope: scope, AuthorizedBy: person, Reason: "maintenance"})
	} else {
		_, _ = s.f.claims.ClearPause(context.Background(), scope, person)
	}
	s.tell("%s pauses: %v", person, s.paused)
}

// operate is an operator's work with replays: one is begun where none is open, else a word is said about it.
func (s *schedule) operate(verb deadletter.ReplayVerb) {
	if s.replayID == "" {
		r := &deadletter.ReplayRequest{
			ID: fresh().ID, Selector: deadletter.Selector{Source: s.source, Status: deadletter.Dead}, Limit: int64(1 + s.pick(4)), SampleSize: int64(s.pick(2)),
			MaxConcurrency: int64(1 + s.pick(2)), AuthorizedBy: person, Reason: "the outage is over", ExpectedEffects: []byte(`"one charge each"`), CallerKey: "ops",
		}
		if s.pick(4) == 3 {
			r.Selector.Status = deadletter.Queued
		}
		rep, _, err := s.f.letters.StartReplay(context.Background(), r)
		s.tell("%s starts a replay: %s", person, s.answered(rep, err))
		if rep.Status.Open() {
			s.replayID = rep.ID
		}
		return
	}
	rep, _, err := s.f.letters.MoveReplay(context.Background(), s.replayID, &deadletter.ReplayMove{Verb: verb, AuthorizedBy: person})
	s.tell("%s wants the replay to %s: %s", person, verb, s.answered(rep, err))
	if !rep.Status.Open() {
		s.replayID = ""
	}
}
