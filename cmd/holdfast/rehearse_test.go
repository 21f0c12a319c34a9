package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"holdfast/internal/pgtest"
	"holdfast/internal/rehearse"
)

const (
	operatorSecret = "rehearse-operator"
	workflowSecret = "rehearse-workflow"
	bothRoles      = "HOLDFAST_API_KEYS=n8n:workflow:" + workflowSecret + ",asha:operator:" + operatorSecret
)

// between stands before programs, hands each call to the next of them, and may change what is answered.
type between struct {
	*httptest.Server
	calls atomic.Int64
}

// standBetween: alter gets the path and the answer, changes its members (an array has none), and returns the status, or
// 0 to hang up; nil changes nothing.
func standBetween(t *testing.T, alter func(path string, status int, answer map[string]any) int, programs ...*program) *between {
	t.Helper()
	b := new(between)
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := programs[int(b.calls.Add(1))%len(programs)]
		req, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, p.url+r.URL.RequestURI(), r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		req.Header = r.Header
		resp, err := client.Do(req)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		status, answer := resp.StatusCode, map[string]any{}
		object := json.Unmarshal(text, &answer) == nil
		if alter != nil {
			if status = alter(r.URL.Path, status, answer); status == 0 {
				panic(http.ErrAbortHandler)
			}
		}
		if object {
			if text, err = json.Marshal(answer); err != nil {
				t.Error(err)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(text) // who has gone needs no answer
	}))
	t.Cleanup(b.Close)
	return b
}

// nothingOpen demands that all rehearsals have cleaned up behind themselves.
func nothingOpen(t *testing.T, p *program) {
	t.Helper()
	for path, ended := range map[string][]string{
		"/claims?source=rehearsal&limit=200": {"completed", "stale", "failed"}, "/dlq?source=rehearsal&limit=200": {"resolved", "discarded"}, "/replays?limit=200": {"done", "cancelled"},
	} {
		status, a := p.call(t, http.MethodGet, path, nil, operatorSecret)
		items, _ := a["items"].([]any)
		if status != http.StatusOK || a["next_cursor"] != nil {
			t.Errorf("%s: %d %v", path, status, a)
		}
		for _, item := range items {
			item, _ := item.(map[string]any)
			if word, _ := item["status"].(string); !slices.Contains(ended, word) {
				t.Errorf("%s: left open: %v", path, item)
			}
		}
	}
}

// The rehearsal of a sidecar that keeps its promises passes, leaves nothing open and alerts nobody: on SQLite as it is
// configured by default, and through two programs that share a PostgreSQL.
func TestRehearse(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		p := start(t, "HOLDFAST_DATABASE_URL="+sqliteURL(t), bothRoles)
		rehearsalPasses(t, []string{"HOLDFAST_ADDR=" + strings.TrimPrefix(p.url, "http://"), bothRoles}, p)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		database := pgtest.Database(t)
		programs := startBoth(t, "HOLDFAST_DATABASE_URL="+database, "HOLDFAST_SWEEP_INTERVAL=100ms", bothRoles)
		b := standBetween(t, nil, programs...)
		rehearsalPasses(t, []string{"HOLDFAST_REHEARSE_KEY=" + operatorSecret}, programs[0], "--url", b.URL+"/")
		if n := count(t, beside(t, database), `select count(*) from outbox`); n != 0 {
			t.Errorf("%d alerts", n)
		}
	})
}

func rehearsalPasses(t *testing.T, env []string, p *program, args ...string) {
	t.Helper()
	code, out, errs := command(t, env, append([]string{"rehearse"}, args...)...)
	if code != 0 || errs != "" {
		t.Errorf("exit %d: %s", code, errs)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 7 || !regexp.MustCompile(`^SCENARIO +SEEN +RESULT$`).MatchString(lines[0]) {
		t.Fatalf("the table:\n%s", out)
	}
	for i, scenario := range []string{
		"the same event twice +1 proceed, 19 in_progress, then completed; done once",
		"two events for one effect +a proceed, b in_progress, then completed; charged once",
		"the destination's answer is lost +unknown, with its receipt completed; charged once",
		"a stale event after a newer one +version 2 proceed, 1 stale, 3 proceed; written once, never, once",
		"a worker killed in the middle +event proceed again, old token lease_lost; effect unknown, by hand completed; charged once",
		"a replay of what had half succeeded +a completed, b proceed; letter resolved, replay done; a done once, b once",
	} {
		if !regexp.MustCompile("^" + scenario + " +pass$").MatchString(lines[i+1]) {
			t.Errorf("row %d: %s", i+1, lines[i+1])
		}
	}
	if strings.Contains(out, operatorSecret) {
		t.Error("the key is shown")
	}
	nothingOpen(t, p)
}

// proceedAfter lets callers go on whom the sidecar has answered something else, with a token as there would be.
func proceedAfter(from string) func(string, int, map[string]any) int {
	return func(path string, status int, a map[string]any) int {
		if path == "/claim" && a["decision"] == from {
			a["decision"], a["claimed"], a["lease_token"] = "proceed", true, "hft_AaIueXVTeGaRsxUL0RQILgAAAAEAAAAAojSI2x1L7q7c4X8ck3SlsQ"
		}
		return status
	}
}

// A sidecar that breaks one promise is found out, by the scenarios that live by it, and left as clean.
func TestRehearseFindsBrokenPromises(t *testing.T) {
	t.Parallel()
	const twice, shared, lost, stale, killed, half = "the same event twice", "two events for one effect", "the destination's answer is lost",
		"a stale event after a newer one", "a worker killed in the middle", "a replay of what had half succeeded"
	p := start(t, "HOLDFAST_DATABASE_URL="+sqliteURL(t), bothRoles)
	promises := map[string]struct {
		alter func(string, int, map[string]any) int
		fails []string
		says  string
	}{
		"who comes second proceeds": {proceedAfter("in_progress"), []string{twice, shared, killed}, "the destination's count of charges is 2, want 1"},
		"what is done is forgotten": {proceedAfter("completed"), []string{twice, shared, lost, killed, half}, "the destination's count of a is 2, want 1"},
		"unknown is repeated":       {proceedAfter("unknown"), []string{lost, killed}, "the destination's count of charges is 2, want 1"},
		"the older event is let in": {proceedAfter("stale"), []string{stale}, "the destination's count of writes of version 1 is 1, want 0"},
		"work is paused": {func(path string, status int, a map[string]any) int {
			if path == "/mark-unknown" {
				word := map[string]any{"authorized_by": "asha@example.test", "reason": "maintenance"}
				if status, a, err := p.try(t.Context(), http.MethodPut, fmt.Sprint("/pauses/workflow.rehearsal-", a["account"]), word, operatorSecret); status != http.StatusOK {
					t.Errorf("/pauses: %d %v %v", status, a, err)
				}
			}
			return status
		}, []string{stale, killed, half}, "version 2 is wait, want proceed"},
		"the provider_key rotates": {func(path string, status int, a map[string]any) int {
			if path == "/claim" && a["step"] == "b" && a["attempt"] == 2.0 {
				a["provider_key"] = "hf_tmftdtgcp342kioukr7l4clp2m"
			}
			return status
		}, []string{half}, "b's provider_key in the replay is hf_tmftdtgcp342kioukr7l4clp2m"},
		"the stored result is lost": {func(path string, status int, a map[string]any) int {
			if path == "/claim" && a["decision"] == "completed" {
				a["result_id"], a["result"] = nil, nil
			}
			return status
		}, []string{twice, shared, lost, killed, half}, "result_id is empty"},
		"an old token is obeyed": {func(path string, status int, a map[string]any) int {
			if path == "/mark-failed" && a["code"] == "lease_lost" {
				clear(a)
				a["status"] = "failed"
				return http.StatusOK
			}
			return status
		}, []string{killed}, "the answer to the old token is taken: failed, want lease_lost"},
		"a receipt is refused": {func(path string, status int, a map[string]any) int {
			if ref, _ := a["idempotency_key"].(string); path == "/complete" && strings.Contains(ref, "-3-") {
				clear(a)
				a["status"], a["code"], a["message"] = 404, "not_found", "there is no such claim"
				return http.StatusNotFound
			}
			return status
		}, []string{lost}, "POST /complete: 404 not_found: there is no such claim"},
		"the letter is not resolved": {func(path string, status int, a map[string]any) int {
			if strings.HasPrefix(path, "/dlq/") && a["attempts"] != nil {
				a["status"] = "dead"
			}
			return status
		}, []string{half}, "the letter afterwards is dead, want resolved"},
	}
	t.Run("broken", func(t *testing.T) {
		for name, broken := range promises {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := standBetween(t, broken.alter, p)
				code, out, errs := command(t, nil, "rehearse", "--url", b.URL, "--key", operatorSecret, "--json")
				var report rehearse.Report
				if err := json.Unmarshal([]byte(out), &report); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				var failed []string
				for _, s := range report.Scenarios {
					if !s.Passed {
						failed = append(failed, s.Scenario)
					}
				}
				if code != 1 || report.Passed || !strings.HasPrefix(errs, "holdfast: the rehearsal failed") || !slices.Equal(failed, broken.fails) || !strings.Contains(out, broken.says) {
					t.Errorf("exit %d, failed %q, want %q and %q:\n%s%s", code, failed, broken.fails, broken.says, out, errs)
				}
				if len(report.Left) > 0 {
					t.Errorf("left: %v", report.Left)
				}
			})
		}
	})
	nothingOpen(t, p)
}

// Where nothing can be rehearsed, one line says why.
func TestRehearseIsImpossible(t *testing.T) {
	t.Parallel()
	p := start(t, "HOLDFAST_DATABASE_URL="+sqliteURL(t), bothRoles)
	impossible := func(says string, env []string, args ...string) {
		t.Helper()
		code, out, errs := command(t, env, append([]string{"rehearse"}, args...)...)
		if code != 1 || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, says) || strings.Contains(errs, "rehearse-") {
			t.Errorf("exit %d, want one line with %q: %s%s", code, says, out, errs)
		}
	}
	impossible("the key is refused by the sidecar at "+p.url+" (401", nil, "--url", p.url, "--key", "rehearse-nobody")
	impossible("the key is refused by the sidecar at "+p.url+" (401", nil, "--url", p.url)
	impossible("the key is refused by the sidecar at "+p.url+" (403", nil, "--url", p.url, "--key", workflowSecret)
	for _, address := range []string{"holdfast", "ftp://127.0.0.1", "http://asha:rehearse-x@127.0.0.1:8088", "http://127.0.0.1:8088?x=1"} {
		impossible("--url: must be", nil, "--url", address)
	}
	impossible("HOLDFAST_ADDR: must be", []string{"HOLDFAST_ADDR=nonsense"})
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	impossible("is not ready: HTTP 404, which is no answer of Holdfast", nil, "--url", other.URL)

	word := map[string]any{"authorized_by": "asha@example.test", "reason": "maintenance"}
	for _, scope := range []string{"all", "source.rehearsal"} {
		if status, a := p.call(t, http.MethodPut, "/pauses/"+scope, word, operatorSecret); status != http.StatusOK {
			t.Fatalf("/pauses: %d %v", status, a)
		}
		impossible("work is paused ("+scope+", by asha@example.test: maintenance)", nil, "--url", p.url, "--key", operatorSecret)
		if status, a := p.call(t, http.MethodDelete, "/pauses/"+scope, nil, operatorSecret); status != http.StatusOK {
			t.Fatalf("/pauses: %d %v", status, a)
		}
	}
	p.stop(t)
	impossible("the sidecar is not reachable at "+p.url, nil, "--url", p.url, "--key", operatorSecret)
}

// Ctrl-C at any place: what is open is ended all the same.
func TestRehearseInterrupted(t *testing.T) {
	t.Parallel()
	p := start(t, "HOLDFAST_DATABASE_URL="+sqliteURL(t), bothRoles)
	t.Run("at", func(t *testing.T) {
		for path, nth := range map[string]int64{"/claim": 10, "/complete": 3, "/mark-unknown": 1, "/mark-failed": 2, "/dlq": 1, "/replays": 2, "/dlq/lease": 1} {
			t.Run(path, func(t *testing.T) {
				t.Parallel()
				cmd, started := exec.Command(binary(t), "rehearse"), make(chan struct{})
				var met atomic.Int64
				b := standBetween(t, func(called string, status int, _ map[string]any) int {
					if called == path && met.Add(1) == nth {
						<-started
						if err := cmd.Process.Signal(os.Interrupt); err != nil {
							t.Error(err)
						}
					}
					return status
				}, p)
				var out bytes.Buffer
				cmd.Args = append(cmd.Args, "--url", b.URL, "--key", operatorSecret)
				cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = t.TempDir(), environment(), &out, &out
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				close(started)
				_ = cmd.Wait() // the exit code is in ProcessState
				if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(out.String(), ": interrupted\n") || strings.Contains(out.String(), "not cleaned up") {
					t.Errorf("exit %d: %s", code, &out)
				}
			})
		}
	})
	nothingOpen(t, p)
}

// A sidecar that goes away in the middle: the rehearsal ends soon, and says what it could not clean up and where to look.
func TestRehearseOfWhatGoesAway(t *testing.T) {
	t.Parallel()
	p := start(t, "HOLDFAST_DATABASE_URL="+sqliteURL(t), bothRoles)
	var gone atomic.Bool
	b := standBetween(t, func(path string, status int, _ map[string]any) int {
		if gone.Load() || path == "/mark-unknown" {
			gone.Store(true)
			return 0
		}
		return status
	}, p)
	code, out, _ := command(t, nil, "rehearse", "--url", b.URL, "--key", operatorSecret)
	for _, text := range []string{"no answer", "not played", "not cleaned up: perhaps more, look at GET /claims?account="} {
		if !strings.Contains(out, text) {
			t.Errorf("it does not say %q", text)
		}
	}
	if code != 1 || strings.Count(out, "pass\n") != 2 {
		t.Errorf("exit %d: %s", code, out)
	}
}
