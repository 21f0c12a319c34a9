package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"holdfast/internal/pgtest"
)

// beside is a connection to the database that no pooler stands before.
func beside(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func count(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// migratedOnce demands a whole schema, made once, and that no lock is left over it.
func migratedOnce(t *testing.T, db *sql.DB) {
	t.Helper()
	if n := count(t, db, `select count(*) - count(distinct version_id) from holdfast_migrations`); n != 0 {
		t.Errorf("%d steps were taken twice", n)
	}
	if n := count(t, db, `select count(*) from pg_locks l join pg_database d on d.oid = l.database
		where d.datname = current_database() and l.pid <> pg_backend_pid() and (l.locktype = 'advisory' or not l.granted)`); n != 0 {
		t.Errorf("%d locks are left", n)
	}
	if n := count(t, db, `select count(*) from pg_class where relname in ('claims', 'history', 'entities', 'pauses', 'claims_readable')`); n != 5 {
		t.Errorf("the schema has %d of 5", n)
	}
}

// The programs of these tests are killed in the end and not stopped: a program that stops may cancel a statement, and
// PgBouncer 1.18 dies when the database of a cancelled one is dropped at the same time. It is the pooler of all tests.

// Behind a pooler in transaction mode: two that start at once on an empty database make one schema, and of all
// callers of both exactly one proceeds for each key.
func TestPoolerTwoStartAtOnce(t *testing.T) {
	t.Parallel()
	pooled, direct := pgtest.Pooled(t)
	programs := startBoth(t, "HOLDFAST_DATABASE_URL="+pooled+"&pgbouncer=true&connection_limit=1")
	migratedOnce(t, beside(t, direct))

	const callers, keys = 64, 20
	var proceeded [keys]atomic.Int64
	var work sync.WaitGroup
	for i := range callers {
		work.Go(func() {
			p := programs[i%2]
			for n := range keys {
				k := (n + i) % keys
				key := fmt.Sprint("order-", k)
				status, a, err := p.try(t.Context(), http.MethodPost, "/claim", claim(key), "")
				if err != nil || status != http.StatusOK || a["idempotency_key"] != key {
					t.Errorf("/claim of %s: %d %v %v", key, status, a, err)
					return
				}
				if a["decision"] != "proceed" {
					continue
				}
				proceeded[k].Add(1)
				done := map[string]any{"lease_token": a["lease_token"], "result_id": "for " + key}
				status, a, err = programs[1-i%2].try(t.Context(), http.MethodPost, "/complete", done, "")
				if err != nil || status != http.StatusOK || a["idempotency_key"] != key || a["result_id"] != "for "+key {
					t.Errorf("/complete of %s: %d %v %v", key, status, a, err)
				}
			}
		})
	}
	work.Wait()
	for k := range proceeded {
		if n := proceeded[k].Load(); n != 1 {
			t.Errorf("order-%d: %d callers got proceed, want 1", k, n)
		}
		if a := programs[k%2].decides(t, fmt.Sprint("order-", k), "completed"); a["result_id"] != fmt.Sprint("for order-", k) {
			t.Errorf("order-%d: the receipt is %v", k, a["result_id"])
		}
	}
}

func startBoth(t *testing.T, env ...string) []*program {
	t.Helper()
	programs := make([]*program, 2)
	var both sync.WaitGroup
	for i := range programs {
		both.Go(func() { programs[i] = start(t, env...) })
	}
	both.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return programs
}

// kill -9 in the middle of the migrations, with the lock held and a step half done: the next start is not held up,
// and goes on from where the step began.
func TestPoolerKilledWhileMigrating(t *testing.T) {
	t.Parallel()
	pooled, direct := pgtest.Pooled(t)
	db := beside(t, direct)
	// A table of the same name that is not committed holds the step up between its first statement and its last.
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `create table pauses (scope text)`); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary(t))
	cmd.Dir, cmd.Env = t.TempDir(), environment("HOLDFAST_ADDR=127.0.0.1:0", "HOLDFAST_DATABASE_URL="+pooled)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		return count(t, db, `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`) > 0
	})
	held := count(t, db, `select count(*) from pg_locks l join pg_database d on d.oid = l.database where d.datname = current_database() and l.locktype = 'advisory'`)
	if held != 1 {
		t.Errorf("%d hold the lock of the migrations, want the one that makes them", held)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // says that it was killed
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	p := start(t, "HOLDFAST_DATABASE_URL="+pooled)
	migratedOnce(t, db)
	p.decides(t, "order-1", "proceed")
}

// The pooler dies and comes back under load. Callers get the right answer or 503 with the advice to ask again; the
// program goes on by itself.
func TestPoolerRestarted(t *testing.T) {
	t.Parallel()
	direct := pgtest.Database(t)
	pooler := pgtest.NewPooler(t, "default_pool_size = 2")
	p := start(t, "HOLDFAST_DATABASE_URL="+pooler.URL(direct))
	var proceeded, without atomic.Int64
	var work sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range 16 {
		work.Go(func() {
			for n := 0; ctx.Err() == nil && !t.Failed(); n++ {
				key := fmt.Sprintf("order-%d-%d", i, n)
				status, a, err := p.try(context.WithoutCancel(ctx), http.MethodPost, "/claim", claim(key), "")
				switch {
				case err == nil && status == http.StatusOK && a["idempotency_key"] == key && a["decision"] == "proceed":
					proceeded.Add(1)
				case err == nil && status == http.StatusServiceUnavailable && a["code"] == "unavailable":
					without.Add(1)
				default:
					t.Errorf("/claim of %s: %d %v %v", key, status, a, err)
				}
			}
		})
	}
	reach := func(of *atomic.Int64) {
		want := of.Load() + 50
		eventually(t, func() bool { return of.Load() >= want || t.Failed() })
	}
	for range 2 {
		reach(&proceeded)
		pooler.Kill()
		reach(&without)
		if status, a := p.call(t, http.MethodGet, "/readyz", nil, ""); status != http.StatusServiceUnavailable {
			t.Errorf("/readyz without a database: %d %v", status, a)
		}
		pooler.Start()
		reach(&proceeded)
	}
	cancel()
	work.Wait()
	if status, a := p.call(t, http.MethodGet, "/readyz", nil, ""); status != http.StatusOK {
		t.Errorf("/readyz: %d %v", status, a)
	}
	// Whoever was told to proceed is in the table.
	if n := count(t, beside(t, direct), `select count(*) from claims`); int64(n) < proceeded.Load() {
		t.Errorf("%d claims, but %d callers proceeded", n, proceeded.Load())
	}
	t.Logf("%d proceeded, %d were told to ask again", proceeded.Load(), without.Load())
	p.stop(t)
}
