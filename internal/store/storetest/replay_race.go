package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
	"holdfast/internal/store"
)

// replicas are two Stores over the database; SQLite has one process only, and so one Store.
func (w *world) replicas() []*store.Store {
	w.Helper()
	if isSQLite(w.url) {
		return []*store.Store{w.store}
	}
	return []*store.Store{w.store, w.beside()}
}

// raceReplayStarts: callers that ask at once for one replay get one, and those that ask for different ones share no letter.
func raceReplayStarts(w *world) {
	const callers = 8
	stores := w.replicas()
	for round := range 4 {
		same := round%2 == 0
		w.row(fmt.Sprint("the same: ", same, " ", round), func(w *world) {
			ids := w.deadLetters(12)
			requests := make([]*deadletter.ReplayRequest, callers)
			for i := range requests {
				requests[i] = w.replayOf(limitOf(12))
				if !same {
					requests[i] = w.replayOf(limitOf(int64(4 + i)))
				}
			}
			var fresh atomic.Int64
			var made sync.Map
			atOnce(stores, callers, func(s *store.Store, i int) {
				rep, known, err := s.StartReplay(context.WithoutCancel(w.Context()), requests[i])
				if err != nil {
					w.Errorf("start: %v", err)
					return
				}
				if !known {
					fresh.Add(1)
				}
				made.Store(rep.ID, true)
			})
			in := map[string]string{}
			replays := 0
			made.Range(func(id, _ any) bool {
				replays++
				for _, letter := range w.members(id.(string)) {
					if in[letter] != "" {
						w.Errorf("letter %s is in two replays", letter)
					}
					in[letter] = id.(string)
				}
				return true
			})
			if want := map[bool]int{true: 1, false: callers}[same]; replays != want || fresh.Load() != int64(want) || len(in) != len(ids) {
				w.Errorf("%d replays, %d of them new, with %d letters; want %d with %d", replays, fresh.Load(), len(in), want, len(ids))
			}
		})
	}
}

// raceReplayLeases: workers at all replicas play one replay: every letter once, never more at a time than allowed.
func raceReplayLeases(w *world) {
	const letters, atATime, workers = 30, 3, 4
	ids := w.deadLetters(letters)
	id := w.started(sampleOf(5), atMost(atATime))
	var played sync.Map
	var n, held atomic.Int64
	ctx := context.WithoutCancel(w.Context())
	atOnce(w.replicas(), workers, func(s *store.Store, i int) {
		for tries := 0; n.Load() < letters && tries < 5000; tries++ {
			out, err := s.LeaseLetters(ctx, &deadletter.LeaseRequest{WorkflowID: w.wf(), CallerKey: "n8n", Limit: int64(1 + i%3), LeaseSeconds: 300})
			if err != nil {
				w.Errorf("lease: %v", err)
				return
			}
			if now := held.Add(int64(len(out))); now > atATime {
				w.Errorf("%d letters are leased at once", now)
			}
			for _, l := range out {
				if other, taken := played.LoadOrStore(l.ID, i); taken {
					w.Errorf("worker %d and worker %v played letter %s", i, other, l.ID)
				}
				held.Add(-1)
				verb := deadletter.Resolve
				if n.Add(1)%6 == 0 { // too few to stop it
					verb = deadletter.Fail
				}
				if _, err := s.EndLetter(ctx, l.ID, by(l, verb)); err != nil {
					w.Errorf("/%s: %v", verb, err)
				}
			}
			if len(out) == 0 {
				rep, _, err := s.GetReplay(ctx, id)
				if err == nil && rep.Status == deadletter.ReplayAwaiting {
					_, _, err = s.MoveReplay(ctx, id, &deadletter.ReplayMove{Verb: deadletter.Approve, AuthorizedBy: "duty"})
				}
				if err != nil || rep.Counts.Queued+rep.Counts.Replaying > atATime {
					w.Errorf("%v: %+v", err, rep)
				}
			}
		}
	})
	w.plays(id, deadletter.ReplayDone, counts(0, 0, 0, 25, 5))
	for _, letter := range ids {
		if l, _ := w.letter(letter); l.AttemptCount != 2 || l.Status != deadletter.Resolved && l.Status != deadletter.Dead {
			w.Errorf("%+v", l)
		}
	}
}

// raceReplayEnds: workers, persons, reports, completions and the sweeper at one replay at once: nobody is refused for
// another reason than that someone was first, no letter is lost, and the counts are right.
func raceReplayEnds(w *world) {
	stores := w.replicas()
	for round := range 10 {
		w.row(fmt.Sprint(round), func(w *world) {
			ids, claims := w.deadEvents(6)
			id := w.started(sampleOf(6), atMost(2))
			l := w.handed(handLimit(1))
			run := w.grant(w.event("key0", w.run("200")))
			if round%3 == 2 {
				w.pass(300 * time.Second)
			}
			ctx := context.WithoutCancel(w.Context())
			end := func(letter string, e *deadletter.Ending) func(*store.Store) error {
				return func(s *store.Store) error { _, err := s.EndLetter(ctx, letter, e); return err }
			}
			move := func(verb deadletter.ReplayVerb) func(*store.Store) error {
				return func(s *store.Store) error {
					_, _, err := s.MoveReplay(ctx, id, &deadletter.ReplayMove{Verb: verb, AuthorizedBy: "duty"})
					return err
				}
			}
			acts := []func(*store.Store) error{
				end(l.ID, by(l, deadletter.Resolve)), end(l.ID, by(l, deadletter.Fail)), end(ids[1], byPerson(deadletter.Discard)),
				end(ids[3], byPerson(deadletter.Resolve)), move(deadletter.Pause), move(deadletter.Approve),
				func(s *store.Store) error { _, _, err := s.Report(ctx, w.failed("200")); return err },
				func(s *store.Store) error { _, err := s.SweepLetters(ctx); return err },
				func(s *store.Store) error { _, err := s.End(ctx, complete(worker(run), "r")); return err },
				func(s *store.Store) error { _, err := s.End(ctx, complete(worker(claims[2]), "r")); return err },
				func(s *store.Store) error {
					_, err := s.LeaseLetters(ctx, &deadletter.LeaseRequest{WorkflowID: w.wf(), CallerKey: "n8n", Limit: 5, LeaseSeconds: 60})
					return err
				},
			}
			if round%2 == 1 {
				acts = append(acts, move(deadletter.Cancel))
			}
			rand.Shuffle(len(acts), func(i, j int) { acts[i], acts[j] = acts[j], acts[i] })
			atOnce(stores, len(acts), func(s *store.Store, i int) {
				switch code := w.code(acts[i](s)); code {
				case "", "lease_lost", "lease_live", "invalid_transition":
				default:
					w.Errorf("act %d: %s", i, code)
				}
			})
			w.status(run.ID, ledger.Completed)
			w.ends(id)
		})
	}
}

// replayWalks: long random histories, in which the rules that hold at any time are checked after each step; at the end
// every letter is resolved, dead or discarded.
func replayWalks(w *world) {
	for seed := range uint64(6) {
		w.row(fmt.Sprint(seed), func(w *world) {
			r := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // the same walk each time
			ids, claims := w.deadEvents(12)
			id := w.started(limitOf(10+int64(r.IntN(3))), sampleOf(int64(r.IntN(6))), atMost(1+int64(r.IntN(3))), perMinute(int64(r.IntN(2)*20)))
			var leased []deadletter.Letter
			some := func() int { return r.IntN(len(ids)) }
			for i := range 60 {
				switch r.IntN(12) {
				case 0, 1, 2:
					leased = append(leased, w.hand("", handLimit(1+int64(r.IntN(2))))...)
				case 3, 4, 5, 6:
					if len(leased) > 0 {
						l := leased[r.IntN(len(leased))]
						w.close(l.ID, by(l, []deadletter.Verb{deadletter.Resolve, deadletter.Resolve, deadletter.Fail}[r.IntN(3)]))
					}
				case 7:
					if len(leased) > 0 {
						l := leased[len(leased)-1]
						w.close(l.ID, by(l, deadletter.Fail, later(10)))
					}
				case 8:
					if v := w.claim(w.event(fmt.Sprint("key", some()), w.run(fmt.Sprint(200+i)))); v.Decision == ledger.Proceed && r.IntN(2) == 0 {
						w.tell(w.failed(fmt.Sprint(200 + i)))
					}
				case 9:
					w.close(ids[some()], byPerson([]deadletter.Verb{deadletter.Discard, deadletter.Requeue}[r.IntN(2)]))
				case 10:
					if c := claims[some()]; r.IntN(2) == 0 {
						w.end(completeKey(c.Key, "r"))
					}
					w.pass(time.Duration(r.IntN(200)) * time.Second)
					w.sweptLetters()
				default:
					w.say(id, []deadletter.ReplayVerb{deadletter.Pause, deadletter.Approve, deadletter.Approve}[r.IntN(3)])
				}
				w.replay(id)
			}
			w.ends(id)
		})
	}
}
