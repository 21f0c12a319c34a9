package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// built is the program as it is shipped, made once.
var built struct {
	once sync.Once
	dir  string
	err  error
}

func binary(tb testing.TB) string {
	tb.Helper()
	built.once.Do(build)
	if built.err != nil {
		tb.Fatal(built.err)
	}
	return filepath.Join(built.dir, "holdfast")
}

func build() {
	if built.dir, built.err = os.MkdirTemp("", "holdfast-cmd"); built.err != nil {
		return
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags", "-s -w -X main.version=v9.8.7-test", "-o", filepath.Join(built.dir, "holdfast"), ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		built.err = fmt.Errorf("go build: %w\n%s", err, out)
	}
}

// patience is how long a test waits for what must happen; it proves nothing about speed.
const patience = 90 * time.Second

// environment is the test's own, without what is meant for the program, and with what the test gives it.
func environment(with ...string) []string {
	var env []string
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "HOLDFAST_") {
			env = append(env, pair)
		}
	}
	return append(env, with...)
}

// command runs the program to its end.
func command(tb testing.TB, env []string, args ...string) (code int, out, errs string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(tb), args...)
	cmd.Dir, cmd.Env = tb.TempDir(), environment(env...)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		tb.Fatal(err)
	}
	if ctx.Err() != nil {
		tb.Fatalf("holdfast %s did not end: %s", strings.Join(args, " "), e.String())
	}
	return cmd.ProcessState.ExitCode(), o.String(), e.String()
}

// program is a running Holdfast.
type program struct {
	url   string
	cmd   *exec.Cmd
	ended chan struct{}

	mu   sync.Mutex
	logs bytes.Buffer
}

func (p *program) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.logs.String()
}

// start runs the program on a free port and waits until it is ready.
func start(tb testing.TB, env ...string) *program {
	tb.Helper()
	p := &program{cmd: exec.Command(binary(tb)), ended: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env = tb.TempDir(), environment(append([]string{"HOLDFAST_ADDR=127.0.0.1:0"}, env...)...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	read, write, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = write, write
	if err := p.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	_ = write.Close() // the program has its own
	tb.Cleanup(func() {
		_ = p.cmd.Process.Kill() // fails where it has ended already
		<-p.ended
	})
	listening := make(chan string, 1)
	go func() {
		p.read(read, listening)
		_ = p.cmd.Wait() // the exit code is in ProcessState
		close(p.ended)
	}()
	select {
	case address := <-listening:
		p.url = "http://" + address
	case <-p.ended:
		tb.Fatalf("the program ended: %s", p.log())
	case <-time.After(patience):
		tb.Fatalf("the program does not listen: %s", p.log())
	}
	if status, body := p.call(tb, http.MethodGet, "/readyz", nil, ""); status != http.StatusOK {
		tb.Fatalf("not ready: %d %v", status, body)
	}
	return p
}

// read keeps the log and finds the address in it.
func (p *program) read(from io.ReadCloser, listening chan<- string) {
	defer from.Close()
	lines := bufio.NewScanner(from)
	for found := false; lines.Scan(); {
		p.mu.Lock()
		p.logs.WriteString(lines.Text() + "\n")
		p.mu.Unlock()
		if _, rest, ok := strings.Cut(lines.Text(), "listening="); ok && !found {
			found = true
			listening <- strings.Fields(rest)[0]
		}
	}
}

// stop sends SIGTERM and demands a clean end in the time that the contract gives.
func (p *program) stop(tb testing.TB) {
	tb.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		tb.Fatal(err)
	}
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		tb.Fatalf("still running 10 s after SIGTERM: %s", p.log())
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		tb.Errorf("exit code %d after SIGTERM: %s", code, p.log())
	}
}

// client makes no second attempt by itself and keeps no proxy in between.
var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: patience}

func (p *program) call(tb testing.TB, method, path string, body any, secret string) (int, map[string]any) {
	tb.Helper()
	status, answer, err := p.try(tb.Context(), method, path, body, secret)
	if err != nil {
		tb.Fatalf("%s %s: %v", method, path, err)
	}
	return status, answer
}

func (p *program) try(ctx context.Context, method, path string, body any, secret string) (int, map[string]any, error) {
	sent, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, p.url+path, bytes.NewReader(sent))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if secret != "" {
		req.Header.Set("Authorization", "Bearer "+secret)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	var answer map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return 0, nil, err
	}
	return resp.StatusCode, answer, nil
}

// decides claims and demands the decision.
func (p *program) decides(tb testing.TB, key, want string) map[string]any {
	tb.Helper()
	status, a := p.call(tb, http.MethodPost, "/claim", claim(key), "")
	if status != http.StatusOK || a["decision"] != want {
		tb.Fatalf("/claim of %s: %d %v, want %s", key, status, a, want)
	}
	return a
}

func claim(key string) map[string]any {
	return map[string]any{"source": "shop", "idempotency_key": key}
}

func sqliteURL(tb testing.TB) string {
	tb.Helper()
	return "sqlite://" + filepath.Join(tb.TempDir(), "data", "holdfast.db")
}
