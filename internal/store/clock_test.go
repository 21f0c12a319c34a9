package store_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/ledger"
	"holdfast/internal/pgtest"
	"holdfast/internal/store"
)

// wall is a clock that is wrong by as much as it was last set.
type wall struct{ off atomic.Int64 }

func (w *wall) now() time.Time      { return time.Now().Add(time.Duration(w.off.Load())) }
func (w *wall) set(d time.Duration) { w.off.Store(int64(d)) }

// tolerance is for what lies between two measurements of one clock over a network.
const tolerance = 100 * time.Millisecond

// askLater has times that a clock ten minutes fast would overrun.
var askLater = ledger.Policies{Sources: map[string]ledger.Policy{"src": {Window: time.Hour, AskAfter: 5 * time.Minute, NotFoundAfter: 8 * time.Minute}}}

// Replicas over one PostgreSQL with a clock ten minutes fast, one ten minutes slow and one that jumps by hours
// decide alike, in every zone of the session: the clock is the database's.
func TestReplicasClocks(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Pacific/Kiritimati", "America/New_York", "Asia/Kathmandu"} {
		t.Run(strings.ReplaceAll(zone, "/", " "), func(t *testing.T) {
			t.Parallel()
			url := pgtest.Database(t)
			name := answer[string](t, url, `select current_database()`)
			execute(t, url, fmt.Sprintf(`alter role current_user in database %s set timezone = '%s'`, name, zone))
			if got := answer[string](t, url, `show timezone`); got != zone {
				t.Fatalf("sessions have the zone %s", got)
			}
			fast, slow, jumps := new(wall), new(wall), new(wall)
			fast.set(10 * time.Minute)
			slow.set(-10 * time.Minute)
			var stores []*store.Store
			for _, w := range []*wall{fast, slow, jumps} {
				stores = append(stores, opened(t, url, store.Options{Wall: w.now, Policies: askLater}))
			}
			if _, err := stores[0].Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			for i, hours := range []time.Duration{3, -26, 5} {
				jumps.set(hours * time.Hour)
				alike(t, url, stores, i)
			}
		})
	}
}

func execute(t *testing.T, url string, statements ...string) {
	t.Helper()
	db, err := sql.Open("postgres", url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func databaseTime(t *testing.T, url string) ledger.Instant {
	t.Helper()
	return ledger.At(answer[time.Time](t, url, `select clock_timestamp()`))
}

// alike lets one replica after the other claim, and all judge.
func alike(t *testing.T, url string, stores []*store.Store, round int) {
	t.Helper()
	for i, s := range stores {
		key := fmt.Sprint("key ", round, i)
		before := databaseTime(t, url)
		c := granted(t, s, ask(key, asEffect, leased(300)))
		after := databaseTime(t, url)
		if c.FirstAt < before.Add(-tolerance) || c.FirstAt > after.Add(tolerance) || c.LeaseUntil.Sub(c.FirstAt) != 300*time.Second {
			t.Errorf("first seen at %v with a lease to %v; by the database between %v and %v", c.FirstAt.Time(), c.LeaseUntil.Time(), before.Time(), after.Time())
		}
		marked := granted(t, s, ask("unknown "+key, asEffect))
		if _, err := s.End(t.Context(), ending(ledger.MarkUnknown, &marked)); err != nil {
			t.Fatal(err)
		}
		// Nobody's sweep ends the live one, nobody's reconciler is given what is not yet five minutes old.
		for _, other := range stores {
			if _, err := other.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			v, err := other.Claim(t.Context(), ask(key, asEffect))
			// Rounded up, by a clock that may be some microseconds behind.
			if err != nil || v.Decision != ledger.InProgress || v.RetryAfter > 301 || v.RetryAfter < 300-int64(patience.Seconds()) {
				t.Errorf("the live one: %s, again in %d, %v", v.Decision, v.RetryAfter, err)
			}
			r := &ledger.LookRequest{Source: "src", CallerKey: "n8n", Limit: 25, LeaseSeconds: 300}
			if claims, err := other.LeaseUnknown(t.Context(), r); err != nil || len(claims) != 0 {
				t.Errorf("%d unknown claims were handed out before their time, %v", len(claims), err)
			}
		}
	}
	overAlike(t, url, stores, round)
}

// overAlike lets one replica claim for a second: that ends for all of them by the database's clock, whoever asks first.
func overAlike(t *testing.T, url string, stores []*store.Store, round int) {
	t.Helper()
	key := fmt.Sprint("short ", round)
	short := granted(t, stores[round], ask(key, asEffect, leased(1)))
	poll(t, func() bool {
		v, err := stores[(round+1)%len(stores)].Claim(t.Context(), ask(key, asEffect))
		if err != nil || v.Decision == ledger.InProgress {
			return err != nil
		}
		if now := databaseTime(t, url); now < short.LeaseUntil.Add(-tolerance) {
			t.Errorf("the lease to %v was over at %v", short.LeaseUntil.Time(), now.Time())
		}
		return true
	})
	for _, s := range stores {
		if v, err := s.Claim(t.Context(), ask(key, asEffect)); err != nil || v.Decision != ledger.DecisionUnknown {
			t.Errorf("the short one, its lease over: %s, %v", v.Decision, err)
		}
	}
}

func granted(t *testing.T, s *store.Store, r *ledger.Request) ledger.Claim {
	t.Helper()
	v, err := s.Claim(t.Context(), r)
	if err != nil || v.Decision != ledger.Proceed {
		t.Fatalf("the claim of %s: %s, %v", r.Key.IdempotencyKey, v.Decision, err)
	}
	return v.Claim
}

// With SQLite the clock is this machine's. Set between two measurements it ends and extends nothing; at the next one
// dates follow it, and what that does to leases is on the safe side.
func TestSQLiteClockIsSet(t *testing.T) {
	t.Parallel()
	w, log := new(wall), new(syncBuffer)
	o := store.Options{Wall: w.now, Policies: lookNow, Log: slog.New(slog.NewTextHandler(log, nil))}
	s := opened(t, sqliteFile(t), o)
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	effect, event := granted(t, s, ask("effect", asEffect, leased(300))), granted(t, s, ask("event", leased(300)))
	for _, hours := range []time.Duration{3, -3, 48, 0} {
		w.set(hours * time.Hour)
		for _, r := range []*ledger.Request{ask("effect", asEffect), ask("event")} {
			if v, err := s.Claim(t.Context(), r); err != nil || v.Decision != ledger.InProgress || v.RetryAfter > 300 || v.RetryAfter < 300-int64(patience.Seconds()) {
				t.Errorf("the clock is %d h off: %s, again in %d, %v", hours, v.Decision, v.RetryAfter, err)
			}
		}
		if c := granted(t, s, ask(fmt.Sprint("at ", hours))); c.FirstAt.Sub(ledger.At(time.Now())).Abs() > patience {
			t.Errorf("the clock is %d h off: first seen at %v", hours, c.FirstAt.Time())
		}
	}

	// Forward: leases are over, and what follows repeats nothing.
	w.set(3 * time.Hour)
	if r, err := s.Sweep(t.Context()); err != nil || r.Expired != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if v, err := s.Claim(t.Context(), ask("effect", asEffect)); err != nil || v.Decision != ledger.DecisionUnknown {
		t.Errorf("the effect: %s, %v", v.Decision, err)
	}
	for _, c := range []*ledger.Claim{&effect, &event} {
		if out, err := s.End(t.Context(), ending(ledger.Complete, c)); err != nil || out.Claim.Status != ledger.Completed {
			t.Errorf("the receipt of %s: %s, %v", c.Key.IdempotencyKey, out.Claim.Status, err)
		}
	}
	if !strings.Contains(log.String(), "clock was set") || !strings.Contains(log.String(), "moved=") {
		t.Errorf("the log does not tell of the step: %s", log.String())
	}

	// Back: a lease lasts longer by as much, and nobody else gets it.
	granted(t, s, ask("later", leased(300)))
	w.set(time.Hour)
	if _, err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v, err := s.Claim(t.Context(), ask("later")); err != nil || v.Decision != ledger.InProgress || v.RetryAfter < 7200 {
		t.Errorf("%s, again in %d, %v", v.Decision, v.RetryAfter, err)
	}
}

// The database's answer is late by as long as the pooler has no connection free. The clock must not run ahead by half
// of that: it would end leases that other replicas see live.
func TestClockMeasuredLate(t *testing.T) {
	t.Parallel()
	direct := pgtest.Database(t)
	replicas(t, 1, direct, store.Options{})
	url := pgtest.NewPooler(t, "default_pool_size = 1").URL(direct)
	s := opened(t, url, store.Options{})
	var busy sync.WaitGroup
	busy.Go(func() { execute(t, url, `select pg_sleep(2)`) })
	poll(t, func() bool {
		return answer[int](t, direct, `select count(*) from pg_stat_activity where datname = current_database() and query = 'select pg_sleep(2)'`) == 1
	})
	if _, err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	busy.Wait()
	before := databaseTime(t, direct)
	c := granted(t, s, ask("key"))
	after := databaseTime(t, direct)
	if c.FirstAt < before.Add(-tolerance) || c.FirstAt > after.Add(tolerance) {
		t.Errorf("first seen at %v; by the database between %v and %v", c.FirstAt.Time(), before.Time(), after.Time())
	}
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
