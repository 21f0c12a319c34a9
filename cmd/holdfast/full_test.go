package main

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// fileSize sets the size beyond which a running program cannot write a file, as on a disk that is full.
func fileSize(t *testing.T, p *program, bytes uint64) {
	t.Helper()
	limit := syscall.Rlimit{Cur: bytes, Max: noLimit}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(p.cmd.Process.Pid), syscall.RLIMIT_FSIZE, uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	if errno != 0 {
		t.Fatalf("prlimit: %v", errno)
	}
}

const noLimit = ^uint64(0)

// A disk that is full: nobody is told to proceed whose claim is not kept, nothing is forgotten to make room, what is
// known is still answered, and when there is room again work goes on by itself.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	p := start(t, "HOLDFAST_DATABASE_URL="+sqliteURL(t))
	post := func(path string, body map[string]any) (int, map[string]any) {
		t.Helper()
		return p.call(t, http.MethodPost, path, body, "")
	}
	for i := range 10 {
		token := p.decides(t, fmt.Sprint("done-", i), "proceed")["lease_token"]
		if status, a := post("/complete", map[string]any{"lease_token": token, "result_id": "r"}); status != http.StatusOK {
			t.Fatalf("/complete: %d %v", status, a)
		}
	}
	live := p.decides(t, "live", "proceed")["lease_token"]
	large := strings.Repeat("x", 64<<10) // no room that is left over is enough for it
	claim := func(i int) map[string]any {
		return map[string]any{"source": "shop", "idempotency_key": fmt.Sprint("new-", i), "payload": map[string]any{"text": large}}
	}
	report := func(i int) map[string]any {
		return map[string]any{"event_id": fmt.Sprint("failed-", i), "error_message": "later", "http_status": 429, "payload": large}
	}

	fileSize(t, p, 4096)
	for i := range 5 {
		for path, body := range map[string]map[string]any{"/claim": claim(i), "/dlq": report(i)} {
			if status, a := post(path, body); status != http.StatusServiceUnavailable || a["code"] != "unavailable" {
				t.Errorf("%s on a full disk: %d %v", path, status, a)
			}
		}
	}
	if status, a := post("/complete", map[string]any{"lease_token": live, "result_id": "r", "result": large}); status != http.StatusServiceUnavailable {
		t.Errorf("/complete on a full disk: %d %v", status, a)
	}
	for i := range 10 {
		p.decides(t, fmt.Sprint("done-", i), "completed")
	}
	p.decides(t, "live", "in_progress")
	figures := metricsOf(t, p)
	if !strings.Contains(figures, `holdfast_database_errors_total{kind="away"}`) {
		t.Errorf("/metrics does not show it: %s", figures)
	}

	fileSize(t, p, noLimit)
	for i := range 5 {
		if status, a := post("/claim", claim(i)); status != http.StatusOK || a["decision"] != "proceed" || a["attempt"] != 1.0 {
			t.Errorf("/claim when there is room again: %d %v", status, a)
		}
		if status, a := post("/dlq", report(i)); status != http.StatusOK || a["duplicate"] != false || a["attempt_count"] != 1.0 {
			t.Errorf("/dlq when there is room again: %d %v", status, a)
		}
	}
	if status, a := post("/complete", map[string]any{"lease_token": live, "result_id": "r", "result": large}); status != http.StatusOK || a["changed"] != true {
		t.Errorf("/complete when there is room again: %d %v", status, a)
	}
	p.stop(t)
}
