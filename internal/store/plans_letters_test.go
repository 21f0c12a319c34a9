package store_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/pgtest"
	"holdfast/internal/store"
)

// waiting makes letters that come due a minute later.
func waiting(t *testing.T, stores []*store.Store, n int) {
	t.Helper()
	crowd(8, func(i int) {
		for k := i; k < n; k += 8 {
			body := fmt.Sprintf(`{"event_id":"order-%d","workflow_id":"wf","error_message":"later","http_status":429,"payload":{"n":%d}}`, k, k)
			r, err := deadletter.Read([]byte(body), nil)
			if err != nil {
				t.Error(err)
				return
			}
			r.Fresh = deadletter.NewFresh()
			if l, _, err := stores[i%len(stores)].Report(t.Context(), r); err != nil || l.Status != deadletter.Queued {
				t.Errorf("%s, %v", l.Status, err)
			}
		}
	})
}

// Limits hold for letters too whatever the planner does: what a worker did not ask for must not be parked until a
// lease ends.
func TestHostilePlansOfLetters(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	database := answer[string](t, url, `select current_database()`)
	for _, s := range hostile {
		execute(t, url, fmt.Sprintf(`alter database %s set %s = off`, database, s))
	}
	var passed atomic.Int64
	now := func() time.Time {
		return time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC).Add(time.Duration(passed.Load()))
	}
	stores := replicas(t, 2, url, store.Options{Now: now})
	const letters = 250 // more than a page of the sweep
	waiting(t, stores, letters)
	passed.Add(int64(2 * time.Minute))
	leases := func() int {
		return answer[int](t, url, `select count(*) from letters where status = 'replaying'`)
	}
	take := func(s *store.Store, limit int64) int {
		out, err := s.LeaseLetters(t.Context(), &deadletter.LeaseRequest{CallerKey: "n8n", Limit: limit, LeaseSeconds: 300})
		if err != nil {
			t.Error(err)
		}
		return len(out)
	}
	if n := take(stores[0], 1); n != 1 || leases() != 1 {
		t.Errorf("limit 1: %d were given, %d are leased", n, leases())
	}
	if n := take(stores[1], 10); n != 10 || leases() != 11 {
		t.Errorf("limit 10: %d were given, %d are leased, want 11", n, leases())
	}
	var given atomic.Int64
	crowd(16, func(i int) { given.Add(int64(take(stores[i%2], 5))) })
	if n := leases(); int64(n) != 11+given.Load() {
		t.Errorf("%d are leased, %d more were given", n, given.Load())
	}
	for n := take(stores[0], 100); n > 0; n = take(stores[0], 100) {
		given.Add(int64(n))
	}
	if leases() != letters || given.Load() != letters-11 {
		t.Errorf("%d are leased, %d were given", leases(), given.Load()+11)
	}
	passed.Add(int64(300 * time.Second))
	if r, err := stores[0].SweepLetters(t.Context()); err != nil || r.Ended != letters || leases() != 0 {
		t.Errorf("the sweep: %+v, %v; %d are leased", r, err, leases())
	}
}

// Who asks for letters, sweeps and watches while nothing is due writes nothing: no dead rows gather while some old
// transaction keeps them from being cleaned up.
func TestIdleLettersWriteNothing(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	s := replicas(t, 1, url, store.Options{})[0]
	waiting(t, []*store.Store{s}, 200)
	if err := s.WatchAlerts(t.Context()); err != nil {
		t.Fatal(err)
	}
	const versions = `select string_agg(v, ' ' order by v) from (
		select 'l' || id || xmin::text || ctid::text as v from letters union all select 'e' || letter_id || n::text || xmin::text || ctid::text from letter_entries
		union all select 'o' || grp || xmin::text || ctid::text from outbox union all select 'm' || name || xmin::text || ctid::text from marks
		union all select 'c' || id || xmin::text || ctid::text from claims union all select 'd' || name || xmin::text || ctid::text from destinations) as all_rows`
	before := answer[string](t, url, versions)
	const callers, turns = 8, 10
	crowd(callers, func(i int) {
		for range turns {
			for _, owner := range []string{"", fmt.Sprint("worker-", i)} {
				out, err := s.LeaseLetters(t.Context(), &deadletter.LeaseRequest{Owner: owner, CallerKey: "n8n", Limit: 25, LeaseSeconds: 300})
				if err != nil || len(out) != 0 {
					t.Errorf("%d letters before their time, %v", len(out), err)
				}
			}
			if r, err := s.SweepLetters(t.Context()); err != nil || r != (deadletter.SweepReport{}) {
				t.Errorf("%+v, %v", r, err)
			}
			if err := s.WatchAlerts(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := s.LetterStats(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	if after := answer[string](t, url, versions); after != before {
		t.Error("rows were written again")
	}
}
