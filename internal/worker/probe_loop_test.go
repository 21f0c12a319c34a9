package worker

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/ledger"
)

const (
	yes = `{"id":"ch_1"}`
	no  = `{"id":null}`
)

func says(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
}

// A search lags behind (F043): "not found" is evidence only after not_found_after, and what is found counts at once.
func TestProbeLag(t *testing.T) {
	t.Parallel()
	for name, lag := range map[string]time.Duration{"found after 70 s": 70 * time.Second, "never found": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newProbeTest(t)
			w := s.probes(s.simple("charge", ledger.Match{Step: "charge"}, "/find"))
			c := s.unknown("cus_7")
			s.answers(says(no))
			began, looked := s.clock(), []string{}
			now := c
			for now.Status == ledger.Unknown && s.clock().Sub(began) < 30*time.Minute {
				s.later(time.Second)
				if s.clock().Sub(began) >= lag {
					s.answers(says(yes))
				}
				s.pass(w)
				if len(s.requests()) > 0 {
					looked = append(looked, fmt.Sprint(s.clock().Sub(began)))
				}
				if now, _ = s.stands(c.ID); now.Status == ledger.Unknown {
					s.decides(ledger.DecisionUnknown, s.request("cus_7"))
				}
			}
			want := "2s 1m2s 3m2s"
			if lag < time.Hour {
				if s.decides(ledger.DecisionCompleted, s.request("cus_7")).ResultID != "ch_1" {
					t.Errorf("%+v", now)
				}
			} else {
				want += " 7m2s"
				if again := s.decides(ledger.Proceed, s.request("cus_7")); again.ProviderKey != c.ProviderKey || again.Attempt != 2 {
					t.Errorf("%+v", again)
				}
			}
			if got := strings.Join(looked, " "); got != want {
				t.Errorf("looked at %s, want %s", got, want)
			}
		})
	}
}

// What a search says is as old as the question: an answer that comes after not_found_after is no evidence where it was
// asked for before.
func TestProbeSlow(t *testing.T) {
	t.Parallel()
	s := newProbeTest(t)
	w := s.probes(s.simple("charge", ledger.Match{Step: "charge"}, "/find"))
	c := s.unknown("cus_7")
	s.answers(func(w http.ResponseWriter, r *http.Request) {
		s.later(8 * time.Second)
		says(no)(w, r)
	})
	for _, look := range []struct {
		at   time.Duration // when it is asked
		want ledger.Status
	}{{4*time.Minute + 55*time.Second, ledger.Unknown}, {time.Minute, ledger.Failed}} {
		s.later(look.at)
		s.pass(w)
		if now, last := s.stands(c.ID); now.Status != look.want || len(s.requests()) != 1 {
			t.Errorf("after %s: %s, %+v", look.at, now.Status, last)
		}
	}
}

// Claims without a value to ask with hold nothing up, however many and old, and are not taken up again for an hour.
func TestProbeBlanks(t *testing.T) {
	t.Parallel()
	s := newProbeTest(t)
	p := s.simple("charge", ledger.Match{Step: "charge"}, "/find/")
	p.URL = append(p.URL, Part{Name: "entity", In: "path"})
	w := s.probes(p)
	blanks := make([]ledger.Claim, 5*probesAtOnce)
	for i := range blanks {
		blanks[i] = s.unknown(fmt.Sprint("blank-", i))
	}
	s.later(time.Second)
	for i := range blanks {
		s.unknown(fmt.Sprint("order-", i), func(r *ledger.Request) { r.Entity = fmt.Sprint("o", i) })
	}
	s.later(2 * time.Second)
	s.pass(w)
	if n := len(s.requests()); n != len(blanks) {
		t.Errorf("%d requests", n)
	}
	for _, step := range []struct {
		wait time.Duration
		look int64
	}{{59 * time.Minute, 1}, {time.Minute, 2}} {
		s.later(step.wait)
		s.pass(w)
		for _, c := range blanks {
			if now, last := s.stands(c.ID); now.Look != step.look || now.Status != ledger.Unknown || last.Message != "probe charge: the claim has no value for {entity}" {
				t.Fatalf("look %d, %+v", now.Look, last)
			}
		}
	}
	// A destination that answers nothing is left alone all the same.
	for i := range 2 * probesAtOnce {
		s.unknown(fmt.Sprint("late-", i), func(r *ledger.Request) { r.Entity = fmt.Sprint("l", i) })
	}
	s.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	s.later(2 * time.Second)
	s.pass(w)
	if n := len(s.requests()); n != probesAtOnce {
		t.Errorf("%d requests in a row to a destination that answers nothing", n)
	}
}

// The look-up itself fails (F046, F047): nothing is decided, it is asked less and less often, and people are told once.
func TestProbeOutage(t *testing.T) {
	t.Parallel()
	s := newProbeTest(t)
	w := s.probes(s.simple("charge", ledger.Match{Step: "charge"}, "/find"))
	const rows = 12
	claims := make([]ledger.Claim, rows)
	for i := range claims {
		claims[i] = s.unknown(fmt.Sprint("order-", i))
	}
	s.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	asked := 0
	for range 60 {
		s.later(time.Minute)
		for range rows / probesAtOnce {
			s.pass(w)
			n := len(s.requests())
			if asked += n; n > probesAtOnce {
				t.Errorf("%d requests in a row to a destination that answers nothing", n)
			}
		}
	}
	if asked != 6*rows { // after 1, 2, 4, 8, 16 and 32 minutes
		t.Errorf("asked %d times in an hour", asked)
	}
	if _, last := s.stands(claims[0].ID); last.Message != "probe charge: it answers 503" || last.To != ledger.Unknown {
		t.Errorf("%+v", last)
	}
	m, ok, err := s.store.LeaseAlert(t.Context(), "")
	if err != nil || !ok || m.Count != 6*rows || m.Group != "unreachable/shop/" {
		t.Errorf("%+v %v", m, err)
	}
	if _, more, _ := s.store.LeaseAlert(t.Context(), ""); more {
		t.Error("another alert")
	}
	s.answers(says(yes))
	s.later(time.Hour)
	s.pass(w)
	for _, c := range claims {
		if now, _ := s.stands(c.ID); now.Status != ledger.Completed {
			t.Errorf("it ended as %s", now.Status)
		}
	}
}

// gate is a destination that answers when it is told to, and counts.
type gate struct {
	open     chan struct{}
	busy     atomic.Int64
	most     atomic.Int64
	arrivals chan struct{}
}

func newGate() *gate { return &gate{open: make(chan struct{}), arrivals: make(chan struct{}, 100)} }

func (g *gate) answer(w http.ResponseWriter, r *http.Request) {
	n := g.busy.Add(1)
	defer g.busy.Add(-1)
	for most := g.most.Load(); n > most && !g.most.CompareAndSwap(most, n); most = g.most.Load() {
	}
	g.arrivals <- struct{}{}
	select {
	case <-g.open:
	case <-r.Context().Done():
	}
	_, _ = io.WriteString(w, yes)
}

// Callers that meet the same unknown claim: one asks, the others are answered at once. A caller waits two seconds at
// most and may go away; what it asked about is settled all the same.
func TestProbeTouch(t *testing.T) {
	t.Parallel()
	for name, patience := range map[string]time.Duration{"goes away": time.Millisecond, "stays": time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newProbeTest(t)
			w := s.probes(s.simple("charge", ledger.Match{Step: "charge"}, "/find"))
			c := s.unknown("order-1")
			if w.Touch(t.Context(), &c) || len(s.requests()) != 0 {
				t.Error("asked before ask_after")
			}
			s.later(2 * time.Second)
			g := newGate()
			s.answers(g.answer)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			first := make(chan bool, 1)
			go func() { first <- w.Touch(ctx, &c) }()
			<-g.arrivals
			var others sync.WaitGroup
			for range 20 {
				others.Go(func() {
					if w.Touch(context.Background(), &c) {
						t.Error("another caller got an answer")
					}
				})
			}
			others.Wait()
			if <-first {
				t.Error("there was no answer yet")
			}
			close(g.open)
			s.settles(c.ID, ledger.Completed)
			if n := len(s.requests()); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
	s := newProbeTest(t)
	w := s.probes(s.simple("charge", ledger.Match{Step: "charge"}, "/find"))
	c := s.unknown("order-2")
	s.later(2 * time.Second)
	if !w.Touch(t.Context(), &c) {
		t.Error("the answer came at once")
	}
	s.decides(ledger.DecisionCompleted, s.request("order-2"))
}

func (s *probeTest) settles(id string, want ledger.Status) {
	s.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 6000 {
		if c, _ := s.stands(id); c.Status == want {
			return
		}
		<-tick.C
	}
	s.Errorf("it did not become %s", want)
}

// A destination that hangs is not asked by more than a few at once, and does not keep the program from ending; what
// was broken off is no answer.
func TestProbeStop(t *testing.T) {
	t.Parallel()
	s := newProbeTest(t)
	w := s.probes(s.simple("charge", ledger.Match{Step: "charge"}, "/find"))
	claims := make([]ledger.Claim, 3*probesAtOnce)
	for i := range claims {
		claims[i] = s.unknown(fmt.Sprint("order-", i))
	}
	s.later(2 * time.Second)
	g := newGate()
	s.answers(g.answer)
	ended := make(chan struct{})
	go func() {
		s.pass(w)
		close(ended)
	}()
	for range probesAtOnce {
		<-g.arrivals
	}
	w.Stop()
	<-ended
	s.pass(w)
	for _, c := range claims {
		w.Touch(t.Context(), &c)
		if now, last := s.stands(c.ID); now.Looks != 0 || last.From == last.To {
			t.Errorf("%d looks, %+v", now.Looks, last)
		}
	}
	if n := len(s.requests()); n != probesAtOnce {
		t.Errorf("%d requests", n)
	}
	close(g.open)
	again := s.probes(s.simple("charge", ledger.Match{Step: "charge"}, "/find"))
	s.later(time.Minute) // the leases of those that were broken off are over
	s.pass(again)
	for _, c := range claims {
		if now, _ := s.stands(c.ID); now.Status != ledger.Completed {
			t.Errorf("it ended as %s", now.Status)
		}
	}
	if most := g.most.Load(); most > probesAtOnce {
		t.Errorf("%d at once", most)
	}
}
