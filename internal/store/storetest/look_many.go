package storetest

import (
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/ledger"
	"holdfast/internal/store"
)

// unlimited is the world as it was before its destinations had limits.
func (w *world) unlimited() *world {
	one := *w
	one.store = openStore(w.T, w.url, store.Options{Now: w.clock.now, Policies: testPolicies})
	return &one
}

// manyUnknown makes unknown claims at once, also where limits would hold them back.
func (w *world) manyUnknown(from, to int, mods ...mod) {
	w.Helper()
	one := w.unlimited()
	var wg sync.WaitGroup
	for i := from; i < to; i++ {
		wg.Go(func() {
			v, err := one.ask(one.effect(one.key(i), mods...))
			if err == nil {
				_, err = one.store.End(one.Context(), markUnknown(worker(v.Claim)))
			}
			if err != nil {
				one.Error(err)
			}
		})
	}
	wg.Wait()
}

// lookManyLimited: what a destination has no permits for is passed over at one stroke, however much it is; each page
// of it would cost a turn at the destination's lock.
func lookManyLimited(w *world) {
	var reads atomic.Int64
	probed := *w
	probed.store = openStore(w.T, w.url, store.Options{Policies: testPolicies, Limits: testLimits, Now: func() time.Time {
		reads.Add(1)
		return w.clock.now()
	}})
	cost := func(last string) int64 {
		w.Helper()
		before := reads.Load()
		got := probed.probing(ledger.Match{})
		cost := reads.Load() - before
		if len(got) != 4 || got[3] != last {
			w.Fatalf("asked about %v, want three and %s", got, last)
		}
		return cost
	}
	w.manyUnknown(0, 250, to(rated))
	first := w.unknownAt("first")
	w.pass(time.Hour)
	few := cost("first")
	w.ended(completeKey(first.Key, "called back"), ledger.Completed)
	w.manyUnknown(250, 900, to(rated))
	w.unknownAt("second")
	w.pass(2 * time.Minute)
	if many := cost("second"); many != few {
		w.Errorf("the clock was read %d times among 250, and %d times among 900", few, many)
	}
	w.wantProbed(ledger.Match{Destination: rated})
	w.pass(10 * time.Second)
	if got := w.probing(ledger.Match{Destination: rated}); len(got) != 3 {
		w.Errorf("%v, want three", got)
	}
}

// lookFails: what was taken is handed out, although the database fails when it comes to more.
func lookFails(w *world) {
	w.manyUnknown(0, 201, to(rated))
	w.pass(time.Second)
	w.unknownAt("bad")
	w.pass(time.Hour)
	broken := []string{`create trigger broken before update on claims when old.idempotency_key = 'bad' begin select raise(abort, 'broken'); end`}
	mended := `drop trigger broken`
	if !isSQLite(w.url) {
		broken = []string{
			`create function broken() returns trigger language plpgsql as $$ begin if old.idempotency_key = 'bad' then raise 'broken'; end if; return new; end $$`,
			`create trigger broken before update on claims for each row execute function broken()`,
		}
		mended += ` on claims`
	}
	for _, s := range broken {
		w.query(s)
	}
	if got := w.probing(ledger.Match{}); len(got) != 3 {
		w.Errorf("%v, want the three that were taken", got)
	}
	if got, err := w.store.LeaseUnknown(w.Context(), &ledger.LookRequest{CallerKey: "probe", Probe: true, Limit: 4, LeaseSeconds: 60}); err == nil {
		w.Errorf("%d were handed out, and the error was not told", len(got))
	}
	w.query(mended)
	w.wantProbed(ledger.Match{}, "bad")
}

// lookNothing: where nothing is due, who asks waits for no lock, however many claims are too young.
func lookNothing(w *world) {
	w.manyUnknown(0, 250, to(rated))
	w.pass(time.Minute - time.Microsecond)
	tx, err := w.raw.Conn(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = tx.Close() }()
	lock := []string{"begin immediate"}
	if !isSQLite(w.url) {
		lock = []string{"begin", "lock table claims, destinations in exclusive mode"}
	}
	for _, s := range append(lock, "") {
		if _, err := tx.ExecContext(w.Context(), s); err != nil {
			w.Fatal(err)
		}
	}
	w.wantProbed(ledger.Match{})
	w.wantProbed(ledger.Match{Source: w.source, Destination: rated})
	if got := w.look("rec"); len(got) != 0 {
		w.Errorf("%d were handed out too early", len(got))
	}
	if _, err := tx.ExecContext(w.Context(), "rollback"); err != nil {
		w.Fatal(err)
	}
	w.pass(time.Microsecond)
	if got := w.probing(ledger.Match{}); len(got) != 3 {
		w.Errorf("%v, want three", got)
	}
}

// lookTurn: work that uses up a rate all the time leaves a permit to claims that have waited long to be asked about,
// and goes on besides; never more than the rate is let through.
func lookTurn(w *world) {
	for _, test := range []struct {
		place       string
		rate        int
		looks, work int // at least, in 40 windows
	}{{rated, 3, 5, 100}, {single, 1, 2, 30}} {
		w.row(test.place, func(w *world) {
			w.manyUnknown(0, 12, to(test.place))
			w.pass(14 * time.Minute)
			looks, work := 0, 0
			turn := func() {
				n := 0
				for range test.rate + 1 {
					v := w.claim(w.effect(w.key(1000+work), to(test.place)))
					if v.Decision != ledger.Proceed {
						break
					}
					w.ended(complete(worker(v.Claim), "r"), ledger.Completed)
					n, work = n+1, work+1
				}
				got := w.probing(ledger.Match{Source: w.source})
				if looks += len(got); n+len(got) > test.rate {
					w.Fatalf("%d pieces of work and %d looks in one window", n, len(got))
				}
				w.pass(10 * time.Second)
			}
			for range 5 {
				turn()
			}
			if looks != 0 || work != 5*test.rate {
				w.Fatalf("%d looks and %d pieces of work before anything has waited long", looks, work)
			}
			for range 40 {
				turn()
			}
			if looks < test.looks || work < test.work {
				w.Errorf("%d looks and %d pieces of work in 40 windows", looks, work)
			}
		})
	}
}

// lookAskedAt: "not found" counts from when it was asked, not from when the answer came.
func lookAskedAt(w *world) {
	w.each("", both, func(x *subject) {
		x.toState("unknown")
		since := x.now()
		says := func(asked ledger.Instant, want ledger.Status) {
			x.Helper()
			e := notExecuted(looker(x.looked("rec")))
			e.AskedAt = asked
			x.ended(e, want)
		}
		x.pass(5*time.Minute + 3*time.Second)
		says(since.Add(5*time.Minute-time.Microsecond), ledger.Unknown)
		x.pass(time.Minute)
		says(since.Add(5*time.Minute), ledger.Failed)
	})
	w.each("by a clock that is ahead", both, func(x *subject) {
		x.toState("unknown")
		x.pass(4 * time.Minute)
		e := notExecuted(looker(x.looked("rec")))
		e.AskedAt = x.now().Add(time.Hour)
		x.ended(e, ledger.Unknown)
	})
}
