package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
	"holdfast/internal/store"
)

// beside is another Store over the same database and clock.
func (w *world) beside() *store.Store {
	w.Helper()
	return openStore(w.T, w.url, store.Options{Now: w.clock.now, Policies: testPolicies})
}

// atOnce runs n callers over the stores at once.
func atOnce(stores []*store.Store, n int, fn func(s *store.Store, i int)) {
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			fn(stores[i%len(stores)], i)
		})
	}
	close(start)
	wg.Wait()
}

// raceLetterLeases: workers, at two Stores where there can be two, that ask at once never share a letter, and get all of them.
func raceLetterLeases(w *world) {
	letters, workers, stores := 200, 16, []*store.Store{w.store}
	if isSQLite(w.url) {
		letters = 60 // its driver is slow under the race detector
	} else {
		stores = append(stores, w.beside())
	}
	for i := range letters {
		w.told(w.failed(fmt.Sprint(i), harmless, input(fmt.Sprintf(`{"n":%d}`, i))))
	}
	w.pass(backoff(1) * 2)
	var got sync.Map
	var n atomic.Int64
	atOnce(stores, workers, func(s *store.Store, i int) {
		for tries := 0; n.Load() < int64(letters) && tries < 200; tries++ {
			r := &deadletter.LeaseRequest{WorkflowID: w.wf(), CallerKey: "n8n", Limit: int64(1 + i%25), LeaseSeconds: 300}
			out, err := s.LeaseLetters(context.WithoutCancel(w.Context()), r)
			if err != nil {
				w.Errorf("lease: %v", err)
				return
			}
			for _, l := range out {
				if other, taken := got.LoadOrStore(l.ID, i); taken {
					w.Errorf("worker %d and worker %d hold letter %s", i, other, l.ID)
				}
				if len(l.Payload) == 0 || l.AttemptCount != 2 || l.Lease != 1 {
					w.Errorf("%+v", l)
				}
				n.Add(1)
			}
		}
	})
	if n.Load() != int64(letters) {
		w.Errorf("%d letters were handed out, want %d", n.Load(), letters)
	}
	for _, l := range w.letters() {
		w.stands(l.ID, deadletter.Replaying, "transient", 2)
	}
}

// raceReports: one report that comes many times at once is one letter with one attempt, whatever it is known by.
func raceReports(w *world) {
	const callers = 8
	stores := []*store.Store{w.store, w.beside()}
	for _, row := range []struct {
		name     string
		claim    func(*world) *ledger.Request
		mods     []tell
		attempts int64
		reports  int64
		report   func(*world, int) string // the execution of the n-th caller
	}{
		{"a run", nil, []tell{harmless}, 1, 1, nil},
		{"an event id", nil, []tell{harmless, ofEvent("evt")}, 1, 1, nil},
		{"nothing but bytes", nil, []tell{harmless, func(r *deadletter.Report) { r.ExecutionID = "" }}, 1, 1, nil},
		{"an event", func(w *world) *ledger.Request { return w.event("key", w.run("7")) }, nil, 1, 1, nil},
		{"an event of an entity", func(w *world) *ledger.Request { return w.event("key", w.run("7"), of("e", "1")) }, nil, 1, 1, nil},
		{"an effect", func(w *world) *ledger.Request { return w.effect("key", w.run("7")) }, nil, 1, 1, nil},
		{"an error workflow", nil, []tell{byHandler}, 1, 1, nil},
		{"one event id, a run each", nil, []tell{harmless, ofEvent("evt"), maxAttempts(50)}, callers, callers, func(_ *world, i int) string { return fmt.Sprint(i) }},
	} {
		for round := range 5 {
			w.row(fmt.Sprint(row.name, " ", round), func(w *world) {
				if row.claim != nil {
					w.grant(row.claim(w))
				}
				plain := w.failed("7", row.mods...)
				plain.Digest = fmt.Append(nil, w.source)
				var fresh atomic.Int64
				var ids sync.Map
				atOnce(stores, callers, func(s *store.Store, i int) {
					one := *plain
					if row.report != nil {
						one.ExecutionID, one.Digest = row.report(w, i), fmt.Append(nil, w.source, i)
					}
					l, duplicate, err := s.Report(context.WithoutCancel(w.Context()), &one)
					if err != nil {
						w.Errorf("report: %v", err)
						return
					}
					ids.Store(l.ID, true)
					if !duplicate {
						fresh.Add(1)
					}
				})
				l := w.only()
				l, _ = w.letter(l.ID)
				ids.Range(func(id, _ any) bool {
					if id != l.ID {
						w.Errorf("somebody was told of letter %v", id)
					}
					return true
				})
				if fresh.Load() != row.reports || l.Reports != row.reports || l.AttemptCount != row.attempts {
					w.Errorf("%d were new, %d reports, attempt %d; want %d, %d", fresh.Load(), l.Reports, l.AttemptCount, row.reports, row.attempts)
				}
			})
		}
	}
}

// raceFamilies: a child and its parent fail at the same time, as they do in n8n.
func raceFamilies(w *world) {
	stores := []*store.Store{w.store, w.beside()}
	for round := range 20 {
		w.row(fmt.Sprint(round), func(w *world) {
			if round%2 == 1 {
				w.grant(w.event("key", w.run("70"+w.source)))
			}
			child, parent := "71"+w.source, "70"+w.source
			reports := []*deadletter.Report{w.failed(child, harmless, childOf(parent)), w.failed(parent, harmless, parentOf(w.wf(), child))}
			atOnce(stores, 2, func(s *store.Store, i int) {
				if _, duplicate, err := s.Report(context.WithoutCancel(w.Context()), reports[i]); err != nil || duplicate {
					w.Errorf("report: %v, duplicate %v", err, duplicate)
				}
			})
			l := w.only()
			if l.Reports != 2 || l.AttemptCount != 1 {
				w.Errorf("%d reports, attempt %d", l.Reports, l.AttemptCount)
			}
		})
	}
}

// raceLetterEnds: a worker, a report, a person, the sweeper and the event's own completion, all at once: one of them
// wins, nobody is refused for another reason than that, and the letter hangs together.
func raceLetterEnds(w *world) {
	stores := []*store.Store{w.store, w.beside()}
	for round := range 10 {
		w.row(fmt.Sprint(round), func(w *world) {
			w.grant(w.event("key", w.run("7")))
			id := w.told(w.failed("7")).ID
			w.pass(backoff(1) * 2)
			held := w.handed()
			c := w.grant(w.event("key", w.run("8")))
			if round%3 == 2 {
				w.pass(300 * time.Second)
			}
			ctx := context.WithoutCancel(w.Context())
			end := func(e *deadletter.Ending) func(*store.Store) error {
				return func(s *store.Store) error { _, err := s.EndLetter(ctx, id, e); return err }
			}
			acts := []func(*store.Store) error{
				end(by(held, deadletter.Resolve)), end(by(held, deadletter.Fail)), end(by(held, deadletter.Extend, leaseFor(900))), end(byPerson(deadletter.Discard)),
				func(s *store.Store) error { _, _, err := s.Report(ctx, w.failed("8")); return err },
				func(s *store.Store) error { _, err := s.SweepLetters(ctx); return err },
				func(s *store.Store) error { _, err := s.End(ctx, complete(worker(c), "r")); return err },
				func(s *store.Store) error {
					_, err := s.LeaseLetters(ctx, &deadletter.LeaseRequest{WorkflowID: w.wf(), CallerKey: "n8n", Limit: 5, LeaseSeconds: 60})
					return err
				},
			}
			atOnce(stores, len(acts), func(s *store.Store, i int) {
				switch code := w.code(acts[i](s)); code {
				case "", "lease_lost", "lease_live", "invalid_transition":
				default:
					w.Errorf("act %d: %s", i, code)
				}
			})
			w.status(c.ID, ledger.Completed)
			w.sweptLetters()
			l, _ := w.letter(id)
			if l.Status.Open() && l.Reason != "failed_after_completion" {
				w.Errorf("its event is completed, and the letter is %s (%s)", l.Status, l.Reason)
			}
			w.only()
		})
	}
}
