package store_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/ledger"
	"holdfast/internal/pgtest"
	"holdfast/internal/store"
)

// hostile are planner settings under which `where id in (select … limit n for update skip locked)` takes every row:
// the inner query runs once for each row of the outer. A table's statistics can bring the same plan about.
var hostile = []string{
	"enable_hashjoin", "enable_mergejoin", "enable_material", "enable_hashagg", "enable_sort", "enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan",
	"jit", // what is off counts as very dear, and every statement would be compiled
}

// Limits hold whatever the planner does.
func TestHostilePlans(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string][]string{"textbook": hostile, "no nested loops": {"enable_nestloop", "enable_seqscan", "enable_indexscan", "jit"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.Database(t)
			database := answer[string](t, url, `select current_database()`)
			for _, s := range settings {
				execute(t, url, fmt.Sprintf(`alter database %s set %s = off`, database, s))
			}
			var passed atomic.Int64
			now := func() time.Time {
				return time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC).Add(time.Duration(passed.Load()))
			}
			stores := replicas(t, 2, url, store.Options{Now: now, Policies: lookNow})
			const unknown, live = 50, 201 // more than a page of the sweep
			crowd(unknown+live, func(i int) {
				v, err := stores[i%2].Claim(t.Context(), ask(fmt.Sprint("key ", i), asEffect, leased(300)))
				if err == nil && i < unknown {
					_, err = stores[i%2].End(t.Context(), ending(ledger.MarkUnknown, &v.Claim))
				}
				if err != nil {
					t.Error(err)
				}
			})
			leases := func() int { return answer[int](t, url, `select count(*) from claims where look_until > 0`) }
			take := func(s *store.Store, limit int64) int {
				claims, err := s.LeaseUnknown(t.Context(), &ledger.LookRequest{Source: "src", CallerKey: "n8n", Limit: limit, LeaseSeconds: 300})
				if err != nil {
					t.Error(err)
				}
				return len(claims)
			}
			if n := take(stores[0], 1); n != 1 || leases() != 1 {
				t.Errorf("limit 1: %d were given, %d are leased", n, leases())
			}
			if n := take(stores[1], 10); n != 10 || leases() != 11 {
				t.Errorf("limit 10: %d were given, %d are leased, want 11", n, leases())
			}
			var given atomic.Int64
			crowd(16, func(i int) { given.Add(int64(take(stores[i%2], 5))) })
			if n := leases(); int64(n) != 11+given.Load() || n > unknown {
				t.Errorf("%d are leased, %d more were given", n, given.Load())
			}
			if n := answer[int](t, url, `select count(*) from claims where status = 'processing'`); n != live {
				t.Errorf("%d are still live, want %d", n, live)
			}
			var won atomic.Int64
			crowd(32, func(i int) {
				v, err := stores[i%2].Claim(t.Context(), ask("contested"))
				if err != nil {
					t.Error(err)
				}
				if v.Decision == ledger.Proceed {
					won.Add(1)
				}
			})
			if won.Load() != 1 {
				t.Errorf("%d callers got proceed, want 1", won.Load())
			}
			passed.Store(int64(300 * time.Second))
			if r, err := stores[0].Sweep(t.Context()); err != nil || r.Expired != live {
				t.Errorf("the sweep: %+v, %v; want %d expired", r, err, live)
			}
		})
	}
}

func crowd(n int, fn func(i int)) {
	var work sync.WaitGroup
	for i := range n {
		work.Go(func() { fn(i) })
	}
	work.Wait()
}

// What changes nothing writes nothing: a queue that is polled must not grow dead rows while some old transaction
// keeps them from being cleaned up.
func TestNothingWrittenForNothing(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	s, err := store.Open(t.Context(), url, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	live := granted(t, s, ask("live", asEffect))
	done, unknown := granted(t, s, ask("done", asEffect)), granted(t, s, ask("unknown", asEffect))
	endings := []*ledger.Ending{ending(ledger.Complete, &done), ending(ledger.MarkUnknown, &unknown)}
	for _, e := range endings {
		if _, err := s.End(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	const versions = `select coalesce(string_agg(id || xmin::text || ctid::text, ' ' order by id), '') from claims`
	before := answer[string](t, url, versions)
	crowd(32, func(i int) {
		for range 20 {
			for key, want := range map[string]ledger.Decision{"live": ledger.InProgress, "done": ledger.DecisionCompleted, "unknown": ledger.DecisionUnknown} {
				if v, err := s.Claim(t.Context(), ask(key, asEffect)); err != nil || v.Decision != want {
					t.Errorf("%s: %s, %v", key, v.Decision, err)
				}
			}
			for _, e := range endings {
				if out, err := s.End(t.Context(), e); err != nil || out.Changed {
					t.Errorf("a report sent again: changed %v, %v", out.Changed, err)
				}
			}
		}
		if _, err := s.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		r := &ledger.LookRequest{Source: "src", CallerKey: "n8n", Limit: 10, LeaseSeconds: 300}
		if claims, err := s.LeaseUnknown(t.Context(), r); err != nil || len(claims) != 0 {
			t.Errorf("%d unknown claims were handed out before their time, %v", len(claims), err)
		}
	})
	if after := answer[string](t, url, versions); after != before {
		t.Errorf("rows were written again: %s, then %s", before, after)
	}
	if out, err := s.End(t.Context(), ending(ledger.Complete, &live)); err != nil || out.Claim.Status != ledger.Completed {
		t.Errorf("%s, %v", out.Claim.Status, err)
	}
	// A server connection reports its counts when it ends.
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	const counts = `select format('%s inserted, %s updated, %s deleted', n_tup_ins, n_tup_upd, n_tup_del) from pg_stat_user_tables where relname = 'claims'`
	const want = "3 inserted, 3 updated, 0 deleted"
	got := ""
	poll(t, func() bool {
		got = answer[string](t, url, counts)
		return got == want
	})
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
