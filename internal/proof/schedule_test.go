package proof

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
	"holdfast/internal/store"
)

// window is how long a key is trusted. It is shorter than the provider's memory by as long as a worker may take that was
// let in at its very end.
const window = 23 * time.Hour

// field is where schedules are played, many side by side: they share a store, a clock and a sweeper.
type field struct {
	clock   *clock
	ticks   atomic.Int64
	began   time.Time // of the schedules that are played now
	claims  ledger.Store
	letters deadletter.Store
	played  int
}

func newField(tb testing.TB, url string) *field {
	tb.Helper()
	f := &field{clock: &clock{at: began}}
	policy := ledger.Policy{Window: window, NotFoundAfter: ledger.DefaultPolicy.NotFoundAfter}
	s, err := store.Open(context.Background(), url, store.Options{
		Now: f.now, Policies: ledger.Policies{Destinations: map[string]ledger.Policy{"stripe": policy, "till": policy}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	if _, err := s.Migrate(context.Background()); err != nil {
		tb.Fatal(err)
	}
	f.claims, f.letters = s, s
	return f
}

// now is never the same twice: what happens one after the other does not happen at one time.
func (f *field) now() time.Time {
	return f.clock.now().Add(time.Duration(f.ticks.Add(1)) * time.Microsecond)
}

func (f *field) pass(by time.Duration) { f.clock.set(f.clock.now().Add(by)) }

// sweep does what the program's loops do every few seconds.
func (f *field) sweep(all map[string]*schedule) {
	_, err := f.claims.Sweep(context.Background())
	_, err2 := f.letters.SweepLetters(context.Background())
	f.failed(all, "the sweep", errors.Join(err, err2))
}

// failed notes an error that no schedule has to expect.
func (f *field) failed(all map[string]*schedule, what string, err error) {
	for _, s := range all {
		if err != nil {
			s.broke("%s failed: %v", what, err)
		}
	}
}

// schedule makes one that is yet to be played.
func (f *field) schedule(m manners, c choices) *schedule {
	f.played++
	s := &schedule{choices: c, f: f, n: f.played, source: fmt.Sprintf("src%d", f.played), manners: m, firstAt: map[string]time.Time{}}
	// A lease outlasts the call of 60 s and its report; the event's may end before.
	s.eventLease, s.effectLease = ledger.DefaultEventLease, ledger.DefaultEffectLease
	switch s.pick(3) {
	case 1:
		s.eventLease = ledger.DefaultEffectLease
	case 2:
		s.effectLease = 120
	}
	s.shop = newProvider(m.honours, m.lag, f.now)
	for i := range 1 + s.pick(4)/3 {
		o := &purchase{action: fmt.Sprintf("order-%d", i+1)}
		for j := range 1 + s.pick(2) {
			o.events = append(o.events, &notice{key: fmt.Sprintf("evt-%d%c", i+1, 'a'+j), order: o})
		}
		s.orders = append(s.orders, o)
	}
	return s
}

// passes is how long time may go by between two rounds.
var passes = []time.Duration{
	time.Second, 20 * time.Second, time.Minute, 90 * time.Second, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute, 5 * time.Minute, 10 * time.Minute, 16 * time.Minute,
	16 * time.Minute, time.Hour, 8 * time.Hour, 22 * time.Hour,
}

// play lets schedules happen side by side, some rounds of what is drawn with time and sweeps between them, and then, without
// further losses, as long as there is something to do.
func (f *field) play(c *choices, all map[string]*schedule) {
	f.pass(365 * 24 * time.Hour) // far from what was played before
	f.began = f.clock.now()
	for range 3 + c.pick(6) {
		by := passes[c.pick(len(passes))]
		together(all, func(s *schedule) { s.round(by) })
		f.pass(by)
		if c.pick(3) > 0 {
			f.sweep(all)
		}
	}
	f.calm(all, false, (*schedule).settled)
	together(all, (*schedule).judge)
	f.calm(all, true, (*schedule).done)
	for _, s := range all {
		for _, a := range append(s.actors, s.asleep...) {
			a.stop()
		}
	}
}

func together(all map[string]*schedule, do func(*schedule)) {
	var work sync.WaitGroup
	for _, s := range all {
		if s.wrong == "" {
			work.Go(func() { do(s) })
		}
	}
	work.Wait()
}

// round is what happens at one moment; time passes behind it.
func (s *schedule) round(by time.Duration) {
	for range s.pick(12) {
		if s.wrong == "" {
			s.move()
		}
	}
	for i := 0; i < len(s.parcels); {
		p := s.parcels[i]
		switch {
		case s.now().Add(by).Before(p.until):
			i++
		case p.sure || s.pick(2) == 0:
			s.deliver(p)
		default:
			s.parcels = append(s.parcels[:i], s.parcels[i+1:]...)
			s.tell("never arrives: %s", p.what)
		}
	}
}

// sideBySide is how many schedules share one clock.
const sideBySide = 64

// search plays n schedules, unless the time is over before, until one breaks a promise. moments is how time passed then.
func (f *field) search(seed uint64, n int, until time.Time, of ...manners) (found *schedule, moments []int, played int) {
	for ; found == nil && played < n && time.Now().Before(until); seed++ {
		moment, all := choices{rnd: rand.New(rand.NewPCG(seed, 0))}, map[string]*schedule{}
		for len(all) < min(sideBySide, n-played) {
			s := f.schedule(of[len(all)%len(of)], choices{rnd: rand.New(rand.NewPCG(seed, uint64(len(all)+1)))})
			s.seed, all[s.source] = seed, s
		}
		played += len(all)
		f.play(&moment, all)
		for _, s := range all {
			if s.wrong != "" && (found == nil || len(s.taken) < len(found.taken)) {
				found, moments = s, moment.taken
			}
		}
	}
	return found, moments, played
}

// shorter leaves out what it can, as long as the same promise is broken.
func (f *field) shorter(moments []int, found *schedule) *schedule {
	until := time.Now().Add(20 * time.Second)
	try := func(moments, taken []int) bool {
		s, moment := f.schedule(found.manners, choices{given: taken}), choices{given: moments}
		f.play(&moment, map[string]*schedule{s.source: s})
		if s.wrong == "" || strings.Fields(s.wrong)[1] != strings.Fields(found.wrong)[1] {
			return false
		}
		s.seed = found.seed
		found = s
		return true
	}
	taken := found.taken
	for shorter := true; shorter; {
		shorter = false
		for _, list := range []*[]int{&taken, &moments} {
			for size := len(*list) / 2; size > 0; size /= 2 {
				for i := 0; i+size <= len(*list) && time.Now().Before(until); {
					was := *list
					*list = slices.Delete(slices.Clone(was), i, i+size)
					if try(moments, taken) {
						shorter = true
						continue
					}
					*list = was
					i += size
				}
			}
			for i := 0; i < len(*list) && time.Now().Before(until); i++ {
				if was := *list; was[i] > 0 {
					*list = slices.Clone(was)
					(*list)[i] = 0
					if !try(moments, taken) {
						*list = was
					}
				}
			}
		}
	}
	return found
}

func (s *schedule) Error() string {
	return fmt.Sprintf("seed %d: %s\n%s", s.seed, s.wrong, strings.Join(s.told, "\n"))
}

// checks is how many schedules are played on a database, and until when at most: what was asked for on the command line,
// or what fits into a default run.
func checks(byDefault int, within time.Duration) (n int, until time.Time) {
	if given, err := strconv.Atoi(flag.Lookup("rapid.checks").Value.String()); err == nil && budget > time.Hour {
		return given, time.Now().Add(budget)
	}
	return byDefault, time.Now().Add(within)
}

// firstSeed is the one that was asked for, or any.
func firstSeed() uint64 {
	if seed, err := strconv.ParseUint(flag.Lookup("rapid.seed").Value.String(), 10, 64); err == nil && seed != 0 {
		return seed
	}
	return uint64(rand.Uint32())
}

// Whatever is lost, late, killed or run again, no order is charged twice; and when the losses end, all that the destination
// can tell is known, nothing was lost in silence, and in the end each order is charged once.
func TestSchedules(t *testing.T) {
	t.Parallel()
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newField(t, open(t))
			n, until := checks(2048, 25*time.Second)
			found, moments, played := f.search(firstSeed(), n, until, withKeys, withoutKeys)
			if found != nil {
				t.Fatal(f.shorter(moments, found))
			}
			t.Logf("%d schedules", played)
		})
	}
}
