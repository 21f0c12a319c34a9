package proof

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
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

// patience is how long a test waits for what must happen; it proves nothing about speed.
const patience = 60 * time.Second

// programDir is where the program was built; empty as long as it was not.
var programDir string

// programFile is the program as it is shipped, built once.
var programFile = sync.OnceValues(func() (file string, err error) {
	if programDir, err = os.MkdirTemp("", "holdfast-proof"); err != nil {
		return "", err
	}
	file = filepath.Join(programDir, "holdfast")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", file, "holdfast/cmd/holdfast")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return file, nil
})

// settings are the times that let a reconciler ask at once, so that seconds are enough for a whole life of a claim.
const settings = "destinations: {bank: {ask_after: 0s, not_found_after: 0s}}\n"

// replica is one running program, which may be killed and started again.
type replica struct {
	file   string
	dir    string
	url    string // of the database
	env    []string
	client *http.Client

	mu      sync.Mutex
	cmd     *exec.Cmd
	address string
	up      chan struct{} // closed while it runs
}

func newReplica(t *testing.T, database string) *replica { return newReplicaWith(t, database, settings) }

func newReplicaWith(t *testing.T, database, settings string, env ...string) *replica {
	t.Helper()
	file, err := programFile()
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{
		file: file, dir: t.TempDir(), url: database, env: env, up: make(chan struct{}),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: patience},
	}
	if err := os.WriteFile(filepath.Join(r.dir, "holdfast.yaml"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.kill)
	return r
}

// start runs the program on a free port and waits until it listens.
func (r *replica) start() error {
	cmd := exec.Command(r.file)
	cmd.Dir = r.dir
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "HOLDFAST_") {
			cmd.Env = append(cmd.Env, pair)
		}
	}
	cmd.Env = append(cmd.Env, "HOLDFAST_ADDR=127.0.0.1:0", "HOLDFAST_DATABASE_URL="+r.url, "HOLDFAST_CONFIG=holdfast.yaml", "HOLDFAST_SWEEP_INTERVAL=1s")
	cmd.Env = append(cmd.Env, r.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	logs, write, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		return err
	}
	_ = write.Close() // the program has its own
	listening := make(chan string, 1)
	go func() {
		defer func() { _ = logs.Close() }()
		defer close(listening)
		found := false
		for lines := bufio.NewScanner(logs); lines.Scan(); {
			if _, rest, ok := strings.Cut(lines.Text(), "listening="); ok && !found {
				found = true
				listening <- strings.Fields(rest)[0]
			}
		}
	}()
	select {
	case address, ok := <-listening:
		if !ok {
			return errors.Join(errors.New("the program ended at its start"), cmd.Wait())
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.cmd, r.address = cmd, "http://"+address
		close(r.up)
		return nil
	case <-time.After(patience):
		return errors.New("the program does not listen")
	}
}

// kill ends it as a power cut does, and waits until it is gone.
func (r *replica) kill() {
	r.mu.Lock()
	cmd := r.cmd
	if cmd != nil {
		r.cmd, r.up = nil, make(chan struct{})
	}
	r.mu.Unlock()
	if cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}
}

// base waits until the replica runs, and tells where.
func (r *replica) base(ctx context.Context) (string, bool) {
	for {
		r.mu.Lock()
		up, address, running := r.up, r.address, r.cmd != nil
		r.mu.Unlock()
		if running {
			return address, true
		}
		select {
		case <-up:
		case <-ctx.Done():
			return "", false
		}
	}
}

// errNotSent is a call that never reached the program.
var errNotSent = errors.New("it was not sent")

// post makes one call and no second one. Any error but errNotSent leaves open whether it happened.
func (r *replica) post(address, path string, body any, answer any) (status int, err error) {
	sent, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequest(http.MethodPost, address+path, bytes.NewReader(sent))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.client.Do(req)
	var op *net.OpError
	switch {
	case errors.As(err, &op) && op.Op == "dial":
		return 0, errNotSent
	case err != nil:
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests {
		return resp.StatusCode, fmt.Errorf("status %d", resp.StatusCode)
	}
	return resp.StatusCode, json.NewDecoder(resp.Body).Decode(answer)
}
