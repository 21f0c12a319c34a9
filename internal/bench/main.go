// Command bench measures a durable claim over HTTP against the plain insert that people write by hand: pgbench
// inserting the same row, one statement at a time, with as many clients, in turns in one run. It prints ratios,
// and beside each the cost of one commit on this disk at that moment, since absolute times mean little on a
// machine that others share.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	seconds := flag.Int("seconds", 5, "how long each measurement takes")
	rounds := flag.Int("rounds", 3, "how often each pair is measured; the median counts")
	binary := flag.String("holdfast", "bin/holdfast", "the program to measure")
	only := flag.String("only", "", "measure only rows whose name contains this")
	growth := flag.String("growth", "", "also measure with tables of these sizes, such as 10000,1000000")
	deliver := flag.Int("deliver", 0, "instead: deliver so many events to a destination with a rate and failures, and count")
	scale := flag.Int("scale", 20, "with -deliver: how many times 100 requests in 10 seconds the destination allows")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b := &bench{binary: *binary, each: time.Duration(*seconds) * time.Second, rounds: *rounds, only: *only, growths: *growth, events: *deliver, scale: *scale, postgres: os.Getenv("HOLDFAST_TEST_POSTGRES")}
	if err := b.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type bench struct {
	binary   string
	postgres string
	each     time.Duration
	rounds   int
	only     string
	growths  string
	events   int
	scale    int
	dir      string
}

func (b *bench) run(ctx context.Context) (err error) {
	if b.postgres == "" {
		return errors.New("HOLDFAST_TEST_POSTGRES is not set: run make bench")
	}
	if b.dir, err = os.MkdirTemp("", "holdfast-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	if b.events > 0 {
		return b.deliver(ctx, b.events, b.scale)
	}
	var sizes []int
	for _, s := range strings.FieldsFunc(b.growths, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(s)
		if err != nil {
			return fmt.Errorf("-growth: %q is no number", s)
		}
		sizes = append(sizes, n)
	}
	if err := b.table(ctx); err != nil || len(sizes) == 0 {
		return err
	}
	return b.growth(ctx, sizes)
}

// sidecar is the program under test as a process of its own.
type sidecar struct {
	addr string
	cmd  *exec.Cmd
}

func (b *bench) start(ctx context.Context, database string) (*sidecar, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &sidecar{addr: l.Addr().String()}
	if err := l.Close(); err != nil {
		return nil, err
	}
	s.cmd = exec.CommandContext(ctx, b.binary, "serve") //nolint:gosec // the program that is measured
	s.cmd.Env = append(os.Environ(), "HOLDFAST_ADDR="+s.addr, "HOLDFAST_DATABASE_URL="+database, "HOLDFAST_LOG_LEVEL=warn")
	s.cmd.Stderr = os.Stderr
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	for range 500 {
		if ready(ctx, s.addr) {
			return s, nil
		}
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // waits for another process to listen
	}
	return nil, errors.Join(errors.New("the sidecar did not become ready"), s.stop())
}

func ready(ctx context.Context, addr string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	resp, err := (&http.Client{Timeout: time.Second}).Do(req)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}

func (s *sidecar) stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return s.cmd.Wait()
}

// memory is the resident size of the sidecar in MiB.
func (s *sidecar) memory() float64 {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(s.cmd.Process.Pid) + "/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmRSS:" {
			kib, _ := strconv.ParseFloat(f[1], 64)
			return kib / 1024
		}
	}
	return 0
}

// commitCost is the median time of one fdatasync after a small write, on the disk of the temporary folder.
func (b *bench) commitCost() (time.Duration, error) {
	f, err := os.Create(filepath.Join(b.dir, "probe"))
	if err != nil {
		return 0, err
	}
	took := make([]time.Duration, 0, 101)
	block := make([]byte, 8192)
	for range cap(took) {
		begin := time.Now()
		if _, err := f.WriteAt(block, 0); err != nil {
			return 0, errors.Join(err, f.Close())
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return 0, errors.Join(err, f.Close())
		}
		took = append(took, time.Since(begin))
	}
	return median(took), f.Close()
}

// claimBody writes the claim that is measured: a webhook body of a usual size under a key of its own.
func claimBody(b *bytes.Buffer, key, extra string) []byte {
	b.Reset()
	fmt.Fprintf(b, `{"source":"shop","idempotency_key":%q,"owner":"812:0:0","workflow_id":"k3Vt8Xn2","execution_id":"812","node":"Claim"%s,"payload":%s}`, key, extra, payload)
	return b.Bytes()
}

const payload = `{"id":"evt_1QaInvented01","type":"order.paid","created":1767225598,"livemode":true,"data":{"object":{"id":"ord_3QaInv01","object":"order","amount":125000,"currency":"kes","status":"paid","customer":"cus_Inv77","lines":[{"sku":"A-17","quantity":2,"price":50000},{"sku":"B-03","quantity":1,"price":25000}],"metadata":{"order_id":"ORD-1001","channel":"web"}}}}`
