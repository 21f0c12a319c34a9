package store_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"

	_ "github.com/lib/pq"
	_ "modernc.org/sqlite"

	"holdfast/internal/deadletter"
	"holdfast/internal/pgtest"
	"holdfast/internal/store"
)

// BenchmarkLeaseLetters leases 25 letters where a thousand are due, and where a million are: the two must cost alike.
func BenchmarkLeaseLetters(b *testing.B) {
	for _, n := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprintf("sqlite/%d", n), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "bench.db")
			benchmarkLease(b, "sqlite://"+path, "sqlite", path, `with recursive g(g) as (select 1 union all select g + 1 from g where g < %d)`, n)
		})
		b.Run(fmt.Sprintf("postgres/%d", n), func(b *testing.B) {
			url := pgtest.Database(b)
			benchmarkLease(b, url, "postgres", url, `with g(g) as (select generate_series(1, %d))`, n)
		})
	}
}

func benchmarkLease(b *testing.B, url, driver, dsn, numbers string, n int) {
	b.Helper()
	s, err := store.Open(b.Context(), url, store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	}()
	if _, err := s.Migrate(b.Context()); err != nil {
		b.Fatal(err)
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	}()
	run := func(query string) {
		if _, err := db.ExecContext(b.Context(), query); err != nil {
			b.Fatal(err)
		}
	}
	run(fmt.Sprintf(numbers, n) + ` insert into letters (id, identity, status, class, retryable, outcome, workflow_id, execution_id, play, next_retry_at, created_at, updated_at, secret, payload, input_state, error, last_result, source, idempotency_key)
		select '019355a0-0000-7000-8000-' || substr('000000000000' || g, length('000000000000' || g) - 11), 'run:' || g, 'queued', 'transient', true, 'not_executed', 'wf', 'e' || g, 'workflow', g, g, g,
		'0123456789abcdef', '{"order":1}', 'stored', '{}', '', 'shop', 'order-' || g from g`)
	b.ReportAllocs()
	for b.Loop() {
		letters, err := s.LeaseLetters(b.Context(), &deadletter.LeaseRequest{CallerKey: "n8n", Limit: 25, LeaseSeconds: 300})
		if err != nil || len(letters) != 25 {
			b.Fatal(len(letters), err)
		}
		b.StopTimer()
		run("update letters set status = 'queued', lease_until = 0, attempt_count = 1 where status = 'replaying'")
		run("delete from letter_entries")
		b.StartTimer()
	}
}
