package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"holdfast/internal/config"
	"holdfast/internal/pgtest"
)

// The wiring itself, in this process: what Start makes serves, and Close takes it apart.
func TestMainServesAndCloses(t *testing.T) {
	t.Parallel()
	logs := new(lockedBuffer)
	cfg := &config.Config{
		Addr: "127.0.0.1:0", DatabaseURL: sqliteURL(t), PublicURL: "http://127.0.0.1:8088", LogFormat: "json", LogLevel: slog.LevelDebug, MaxBody: 1 << 20, SweepInterval: 100 * time.Millisecond, File: new(config.File),
		APIKeys: config.Keys{{Name: "n8n", Role: "workflow", Secret: "wiring-secret-1"}, {Name: "asha", Role: "operator", Secret: "wiring-secret-2"}},
	}
	m, err := Start(t.Context(), cfg, logs)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- m.Run(ctx) }()
	p := &program{url: "http://" + m.Addr}
	if status, _ := p.call(t, http.MethodGet, "/readyz", nil, ""); status != http.StatusOK {
		t.Errorf("/readyz: %d", status)
	}
	if status, _ := p.call(t, http.MethodPost, "/claim", claim("wired-1"), ""); status != http.StatusUnauthorized {
		t.Errorf("/claim without a key: %d", status)
	}
	if status, a := p.call(t, http.MethodPost, "/claim", claim("wired-1"), "wiring-secret-1"); status != http.StatusOK || a["decision"] != "proceed" {
		t.Errorf("/claim: %d %v", status, a)
	}
	if status, _ := p.call(t, http.MethodGet, "/history", nil, "wiring-secret-1"); status != http.StatusForbidden {
		t.Errorf("/history for a workflow: %d", status)
	}
	// The sweeper runs: an effect whose lease ended becomes unknown although nobody asks for it.
	short := map[string]any{"source": "shop", "idempotency_key": "wired-2", "step": "charge", "lease_seconds": 1}
	if status, a := p.call(t, http.MethodPost, "/claim", short, "wiring-secret-1"); status != http.StatusOK {
		t.Errorf("/claim: %d %v", status, a)
	}
	eventually(t, func() bool {
		_, a := p.call(t, http.MethodGet, "/claims?status=unknown", nil, "wiring-secret-1")
		items, _ := a["items"].([]any)
		return len(items) == 1
	})
	cancel()
	if err := <-ran; err != nil {
		t.Errorf("Run: %v", err)
	}
	if _, _, err := p.try(t.Context(), http.MethodGet, "/healthz", nil, ""); err == nil {
		t.Error("it still serves after Run has returned")
	}
	for _, secret := range []string{"wiring-secret", "wired-1"} {
		if strings.Contains(logs.String(), secret) {
			t.Errorf("the log holds %q", secret)
		}
	}
}

// What was started and never run can be closed; a port that is taken is an error of its variable.
func TestMainThatNeverRan(t *testing.T) {
	t.Parallel()
	cfg := &config.Config{Addr: "127.0.0.1:0", DatabaseURL: sqliteURL(t), PublicURL: "http://127.0.0.1:8088", LogFormat: "text", MaxBody: 1 << 20, SweepInterval: time.Second, File: new(config.File)}
	m, err := Start(t.Context(), cfg, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	taken := *cfg
	taken.Addr, taken.DatabaseURL = m.Addr, sqliteURL(t)
	if _, err := Start(t.Context(), &taken, io.Discard); err == nil || !strings.Contains(err.Error(), "HOLDFAST_ADDR") {
		t.Errorf("a port that is taken: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// SIGTERM under load: what was acknowledged is there after the restart.
func TestStopLosesNothing(t *testing.T) {
	t.Parallel()
	database := "HOLDFAST_DATABASE_URL=" + sqliteURL(t)
	p := start(t, database)
	var (
		mu    sync.Mutex
		acked []string
		count atomic.Int64
		work  sync.WaitGroup
		busy  = make(chan struct{})
	)
	for worker := range 50 {
		work.Go(func() {
			for n := 0; ; n++ {
				key := fmt.Sprintf("load-%d-%d", worker, n)
				status, a, err := p.try(context.Background(), http.MethodPost, "/claim", claim(key), "")
				if err != nil {
					return // it has stopped
				}
				if status != http.StatusOK || a["decision"] != "proceed" {
					t.Errorf("/claim of %s: %d %v", key, status, a)
					return
				}
				mu.Lock()
				acked = append(acked, key)
				mu.Unlock()
				if count.Add(1) == 200 {
					close(busy)
				}
			}
		})
	}
	select {
	case <-busy:
	case <-time.After(patience):
		t.Fatal("no load")
	}
	p.stop(t)
	work.Wait()
	again := start(t, database)
	for _, key := range acked {
		again.decides(t, key, "in_progress")
	}
	if len(acked) < 200 {
		t.Errorf("only %d claims were acknowledged", len(acked))
	}
	again.stop(t)
}

// A caller that never finishes its request does not hold up the end.
func TestStopDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	p := start(t, "HOLDFAST_DATABASE_URL="+sqliteURL(t))
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	// The server asks for the body, so it is inside the call; the body never ends.
	if _, err := io.WriteString(conn, "POST /claim HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, len("HTTP/1.1 100 Continue\r\n"))); err != nil {
		t.Fatal(err)
	}
	p.stop(t)
}

// kill -9 between the claim and its ending: the claim stands, and its token is still good.
func TestKillBetweenClaimAndComplete(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"sqlite": sqliteURL(t), "postgres": pgtest.Database(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := "HOLDFAST_DATABASE_URL=" + url
			p := start(t, database)
			token := p.decides(t, "order-1", "proceed")["lease_token"]
			if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			<-p.ended
			again := start(t, database)
			again.decides(t, "order-1", "in_progress")
			done := map[string]any{"lease_token": token, "result_id": "ch_1", "result": map[string]any{"charge": "ch_1"}}
			if status, a := again.call(t, http.MethodPost, "/complete", done, ""); status != http.StatusOK || a["status"] != "completed" {
				t.Fatalf("/complete: %d %v", status, a)
			}
			if err := again.cmd.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			<-again.ended
			third := start(t, database)
			if a := third.decides(t, "order-1", "completed"); a["result_id"] != "ch_1" {
				t.Errorf("the receipt is %v", a)
			}
			third.stop(t)
		})
	}
}

// Two that start at once on an empty database make one schema and agree.
func TestTwoStartAtOnce(t *testing.T) {
	t.Parallel()
	database := "HOLDFAST_DATABASE_URL=" + pgtest.Database(t)
	programs := make([]*program, 2)
	var both sync.WaitGroup
	for i := range programs {
		both.Go(func() { programs[i] = start(t, database) })
	}
	both.Wait()
	if t.Failed() {
		return
	}
	token := programs[0].decides(t, "order-1", "proceed")["lease_token"]
	programs[1].decides(t, "order-1", "in_progress")
	if status, a := programs[1].call(t, http.MethodPost, "/complete", map[string]any{"lease_token": token}, ""); status != http.StatusOK {
		t.Errorf("/complete through the other: %d %v", status, a)
	}
	programs[0].decides(t, "order-1", "completed")
	for _, p := range programs {
		p.stop(t)
	}
}

// A schema from the future is left alone.
func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"sqlite": sqliteURL(t), "postgres": pgtest.Database(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := "HOLDFAST_DATABASE_URL=" + url
			if code, _, errs := command(t, []string{database}, "migrate", "up"); code != 0 {
				t.Fatalf("migrate up: %d %s", code, errs)
			}
			driver, dsn := "postgres", url
			if name == "sqlite" {
				driver, dsn = "sqlite", strings.TrimPrefix(url, "sqlite://")
			}
			db, err := sql.Open(driver, dsn)
			if err != nil {
				t.Fatal(err)
			}
			_, err = db.ExecContext(t.Context(), `insert into holdfast_migrations (version_id, is_applied) values (999999, true)`)
			if closed := db.Close(); err != nil || closed != nil {
				t.Fatal(err, closed)
			}
			for _, args := range [][]string{{"serve"}, {"migrate", "up"}} {
				code, _, errs := command(t, []string{database, "HOLDFAST_ADDR=127.0.0.1:0"}, args...)
				if code == 0 || !strings.Contains(errs, "999999") {
					t.Errorf("%v on a newer schema: exit %d: %s", args, code, errs)
				}
			}
		})
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("it never came true")
		}
	}
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
