package proof

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// schedule is one random history of a few paid orders: workers as n8n runs them, reconcilers, retry workers, persons, and
// what is lost, late or killed between them. All that happens is drawn, one choice after the other.
type schedule struct {
	choices
	f           *field
	n           int
	seed        uint64
	source      string
	manners     manners
	eventLease  int64 // seconds
	effectLease int64
	shop        *provider
	orders      []*purchase
	runs        []*run
	actors      []*actor
	asleep      []*actor // until the others have gone on
	parcels     []*parcel
	firstAt     map[string]time.Time // by provider key: when it was first given out
	rotated     bool                 // a person has replaced a provider key: nobody sends under an old one by hand
	paused      bool
	helpers     int
	replayID    string         // of the replay that is open
	quiet       bool           // nothing is lost, late or killed any more
	claims      []ledger.Claim // as read last
	letters     []deadletter.Letter
	told        []string
	wrong       string // the first promise that was broken
}

// purchase is a business action: one charge, for which one or two events ask.
type purchase struct {
	action string
	events []*notice
}

// notice is one event. Its sender sends it again until a run has answered 200, but not for ever.
type notice struct {
	key   string
	order *purchase
	sent  bool
	acked bool
	again int
}

// manners are how the workers of a schedule behave, and what their destination is like.
type manners struct {
	honours bool          // the destination honours an Idempotency-Key
	tries   int           // of the call, by Retry On Fail
	resumes bool          // a hand retry may go on at the call, without a claim
	slow    bool          // a worker may send when its lease is over
	late    time.Duration // how long after it was sent a request may still be done
	lag     time.Duration // of the destination's search
	hasty   bool          // a time-out is taken for a refusal
}

// How the templates have it. A destination that honours keys forgives slow workers, late requests, a search that lags for
// longer than not_found_after, and hand retries at the call, within its window. One that does not needs all of the rules:
// one try, no such retry, and that what was sent can be found when "not found" is believed.
var (
	withKeys    = manners{honours: true, tries: 3, resumes: true, slow: true, late: 30 * time.Minute, lag: 20 * time.Minute}
	withoutKeys = manners{tries: 1, late: 3 * time.Minute, lag: 90 * time.Second}
)

// choices are drawn, and remembered so that a schedule can be played again, also with some left out.
type choices struct {
	rnd   *rand.Rand
	given []int
	taken []int
}

// pick draws one of n. 0 is what is least remarkable: it is also what is drawn where no choice is left.
func (c *choices) pick(n int) int {
	v := 0
	switch {
	case c.rnd != nil:
		v = c.rnd.IntN(n)
	case len(c.given) > 0:
		v, c.given = c.given[0]%n, c.given[1:]
	}
	c.taken = append(c.taken, v)
	return v
}

// once in n draws true, and never when all is quiet.
func (s *schedule) once(n int) bool { return !s.quiet && s.pick(n) == n-1 }

// fate is 1 to kinds once in n for all together, else 0.
func (s *schedule) fate(n, kinds int) int {
	if !s.once(n) {
		return 0
	}
	return 1 + s.pick(kinds)
}

// actor does something step by step; between any two steps anything may happen, also its end.
type actor struct {
	name  string
	run   *run      // what it plays; nil for others than a run
	until time.Time // when it gives up asking; zero: never
	next  func() (struct{}, bool)
	stop  func()
	pause func()
}

// killed is how the end of an actor unwinds it.
type killed struct{}

func (s *schedule) start(name string, r *run, body func(*actor)) {
	a := &actor{name: name, run: r}
	a.next, a.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			if e := recover(); e != nil && e != any(killed{}) {
				panic(e)
			}
		}()
		a.pause = func() {
			if !yield(struct{}{}) {
				panic(killed{})
			}
		}
		body(a)
	})
	s.actors = append(s.actors, a)
}

// step lets an actor go on to its next pause.
func (s *schedule) step(a *actor) {
	if _, more := a.next(); !more {
		s.gone(a)
	}
}

func (s *schedule) kill(a *actor) {
	s.tell("%s is killed", a.name)
	a.stop()
	s.gone(a)
}

func (s *schedule) gone(a *actor) {
	s.actors = slices.DeleteFunc(s.actors, func(b *actor) bool { return a == b })
	if r := a.run; r != nil {
		r.over = true
		r.notice.acked = r.notice.acked || r.answer == "done" || r.answer == "known"
	}
}

// parcel is a request whose sender has given up, and which arrives all the same.
type parcel struct {
	what  string
	until time.Time // not after this
	land  func()
	paid  *purchase // the order that it pays for, if it is a payment
	sure  bool      // it arrives, by then at the latest
}

func (s *schedule) deliver(p *parcel) {
	s.parcels = slices.DeleteFunc(s.parcels, func(q *parcel) bool { return p == q })
	s.tell("arrives late: %s", p.what)
	p.land()
}

func (s *schedule) now() time.Time { return s.f.now() }

func (s *schedule) tell(format string, args ...any) {
	s.told = append(s.told, fmt.Sprintf("%9v  ", s.now().Sub(s.f.began).Truncate(time.Second))+fmt.Sprintf(format, args...))
}

// broke notes the first promise that was broken.
func (s *schedule) broke(format string, args ...any) {
	if s.wrong == "" {
		s.wrong = fmt.Sprintf(format, args...)
		s.tell("==> %s", s.wrong)
	}
}

// errNoAnswer is what a node is left with when none of its tries was answered.
var errNoAnswer = errors.New("no answer")

// ask is a node that calls Holdfast, with Retry On Fail: the same call again until one is answered.
func ask[T any](s *schedule, a *actor, tries int, what string, call func() (T, error)) (out T, err error) {
	for range tries {
		a.pause()
		late := s.now().Add(10 * time.Minute)
		if !a.until.IsZero() && s.now().After(a.until) {
			return out, errNoAnswer
		} else if !a.until.IsZero() {
			late = a.until
		}
		switch s.fate(12, 3) {
		case 1:
			out, err := call()
			s.tell("%s %s: (answer lost) %s", a.name, what, s.answered(out, err))
		case 2:
			s.tell("%s %s: never arrives", a.name, what)
		case 3:
			s.tell("%s %s: no answer", a.name, what)
			s.parcels = append(s.parcels, &parcel{what: a.name + "'s " + what, until: late, land: func() {
				out, err := call()
				s.tell("    %s", s.answered(out, err))
			}})
		default:
			out, err := call()
			s.tell("%s %s: %s", a.name, what, s.answered(out, err))
			return out, err
		}
	}
	return out, errNoAnswer
}

// answered says what was answered, and what may never be.
func (s *schedule) answered(out any, err error) string {
	if err != nil {
		code := refused(err).code
		if strings.HasPrefix(code, "an error") {
			s.broke("%s", code)
		}
		return code
	}
	switch o := out.(type) {
	case ledger.Verdict:
		return words(string(o.Decision), when(o.Decision == ledger.Proceed, fmt.Sprint("attempt ", o.Claim.Attempt)), o.Claim.ResultID)
	case ledger.Ended:
		return words(string(o.Claim.Status), o.Claim.ResultID)
	case deadletter.Ended:
		return string(o.Letter.Status)
	case deadletter.Letter:
		return words(string(o.Status), o.Reason)
	case deadletter.Replay:
		return fmt.Sprintf("%s, %d letters", o.Status, o.Matched)
	case []ledger.Claim:
		list := make([]string, len(o))
		for i := range o {
			list[i] = o[i].Key.IdempotencyKey
		}
		return fmt.Sprint(list)
	case []deadletter.Letter:
		list := make([]string, len(o))
		for i := range o {
			list[i] = fmt.Sprint(o[i].Key.IdempotencyKey, " attempt ", o[i].AttemptCount)
		}
		return fmt.Sprint(list)
	}
	return fmt.Sprint(out)
}

// end is one ending of a claim.
func (s *schedule) end(a *actor, tries int, token string, e ledger.Ending) (ledger.Ended, error) {
	e.Token, e.ByToken = ledger.Token{}, true
	if t, ok := ledger.ParseToken(token); ok {
		e.Token = t
	}
	e.CallerKey = "n8n"
	what := words("/"+string(e.Verb), e.ResultID, when(e.NotExecuted, "not_executed"), when(e.NotNow, "not now"))
	return ask(s, a, tries, what, func() (ledger.Ended, error) {
		one := e
		return s.f.claims.End(context.Background(), &one)
	})
}
