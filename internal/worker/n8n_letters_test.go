package worker

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/internal/deadletter"
)

// data is a run's data: what its webhook received, and what its failing node was given.
func data(body, input string) map[string]any {
	raw := `{"resultData":{"error":{"message":"it broke"},"lastNodeExecuted":"Call","runData":{"Hook":[{"data":{"main":[[{"json":{"body":` + body + `}}]]}}]}},
		"executionData":{"nodeExecutionStack":[{"node":{"name":"Call"},"data":{"main":[[{"json":` + input + `}]]}}]}}`
	return map[string]any{"data": json.RawMessage(raw), "workflowData": json.RawMessage(`{"id":"wf","name":"w","nodes":[{"name":"Hook","type":"n8n-nodes-base.webhook"},{"name":"Call"}]}`)}
}

func (s *n8nTest) input(id string) string {
	s.t.Helper()
	l := s.letter(id)
	return string(l.InputState) + " " + string(l.Payload)
}

func TestInputs(t *testing.T) {
	t.Parallel()
	s := newN8NTest(t)
	ended := captured.Add(-time.Minute)
	request := s.report(failed(40, ""))
	s.n8n.run(40, "error", ended, data(`{"order":1}`, `{"charge":2}`))
	s.claim("evt_1", "41", "")
	workflow := s.report(failed(41, ""))
	s.n8n.run(41, "error", ended, data(`{"order":9007199254740993}`, `{"charge":2}`))
	unsaved := s.report(failed(42, ""))
	other := s.report(failed(43, ""))
	s.n8n.run(43, "error", ended, map[string]any{"workflowId": "another n8n's"})
	reused := s.report(failed(44, ""))
	s.n8n.run(44, "error", captured.Add(time.Hour), data(`{"order":1}`, `{"charge":2}`)) // the numbers began anew
	none := s.report(failed(45, ""))
	s.n8n.run(45, "error", ended, nil)
	odd := s.report(strings.Replace(failed(46, ""), `"46"`, `"../workflows"`, 1))
	word := s.report(strings.Replace(failed(48, ""), `"48"`, `"exec-48"`, 1))
	given := s.report(strings.Replace(failed(47, ""), `{"execution"`, `{"payload":{"own":true},"execution"`, 1))
	s.n8n.run(47, "error", ended, data(`{"order":1}`, `{"charge":2}`))
	if workflow.Play != deadletter.PlayWorkflow || request.InputState != deadletter.InputWanted {
		t.Fatalf("%+v %+v", workflow, request)
	}

	s.inputs()
	for _, c := range []struct{ name, id, want string }{
		{"the failing node's input", request.ID, `stored {"charge":2}`},
		{"the workflow's input", workflow.ID, `stored {"order":9007199254740993}`},
		{"not saved", unsaved.ID, "missing "},
		{"another n8n's run of this number", other.ID, "missing "},
		{"a later run of this number", reused.ID, "missing "},
		{"no data", none.ID, "missing "},
		{"an id that is none", odd.ID, "missing "},
		{"an id that n8n has no use for", word.ID, "missing "},
		{"given", given.ID, `stored {"own":true}`},
	} {
		if got := s.input(c.id); got != c.want {
			t.Errorf("%s: %s, not %s", c.name, got, c.want)
		}
	}
	for _, asked := range s.n8n.requests() {
		if strings.Contains(asked, "..") || strings.Contains(asked, "workflows") || strings.Contains(asked, "/47") {
			t.Errorf("asked for %s", asked)
		}
	}
	s.inputs()
	if asked := s.n8n.requests(); len(asked) != 0 {
		t.Errorf("asked again for %q", asked)
	}
}

// What one run does does not keep the others waiting: still under way, broken, too large, or not answered.
func TestInputsThatMustWait(t *testing.T) {
	t.Parallel()
	s := newN8NTest(t)
	ended := captured.Add(-time.Minute)
	broken, large, under := s.report(failed(50, "")), s.report(failed(51, "")), s.report(failed(52, ""))
	s.n8n.run(52, "running", ended, data(`{"order":1}`, `{"charge":2}`))
	fine := s.report(failed(53, ""))
	s.n8n.run(53, "error", ended, data(`{"order":1}`, `{"charge":3}`))
	s.n8n.fail(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case strings.Contains(r.URL.Path, "/executions/50"):
			answer(w, http.StatusInternalServerError, map[string]any{"message": "Internal server error"})
		case strings.Contains(r.URL.Path, "/executions/51"):
			answer(w, http.StatusOK, map[string]any{"id": "51", "workflowId": "wf", "status": "error", "data": strings.Repeat("x", n8nAnswer)})
		default:
			return false
		}
		return true
	})
	s.inputs()
	for id, want := range map[string]string{broken.ID: "wanted ", large.ID: "missing ", under.ID: "wanted ", fine.ID: `stored {"charge":3}`} {
		if got := s.input(id); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
	// They are left alone for a while, and longer each time.
	s.n8n.requests()
	s.later(inputFirstTry - time.Second)
	s.inputs()
	if asked := s.n8n.requests(); len(asked) != 0 {
		t.Errorf("asked for %q too early", asked)
	}
	s.later(time.Second)
	s.inputs()
	s.later(inputFirstTry)
	s.inputs()
	if asked := s.n8n.requests(); len(asked) != 2 {
		t.Errorf("asked for %q", asked)
	}
	s.n8n.run(52, "error", ended, data(`{"order":1}`, `{"charge":2}`))
	s.later(inputFirstTry)
	s.inputs()
	if got := s.input(under.ID); got != `stored {"charge":2}` {
		t.Errorf("when the run was over: %s", got)
	}
	// What cannot be read for a day is given up.
	for range 30 {
		s.later(time.Hour)
		s.inputs()
	}
	if got := s.input(broken.ID); got != "missing " {
		t.Errorf("after a day: %s", got)
	}
	if n := len(s.w.inputs.waiting); n != 0 {
		s.inputs()
		if n = len(s.w.inputs.waiting); n != 0 {
			t.Errorf("%d letters are remembered", n)
		}
	}
}

// The input of a run whose retry succeeded meanwhile is no longer needed.
func TestInputsTellTheTruth(t *testing.T) {
	t.Parallel()
	s := newN8NTest(t)
	l := s.report(failed(60, ""))
	s.n8n.run(60, "error", captured.Add(-time.Minute), map[string]any{"retrySuccessId": "61"})
	s.inputs()
	if l := s.letter(l.ID); l.Status != deadletter.Resolved || l.Reason != deadletter.ReasonSucceeded {
		t.Errorf("%s %s", l.Status, l.Reason)
	}
}

func TestTruth(t *testing.T) {
	t.Parallel()
	s := newN8NTest(t)
	ended := captured.Add(-time.Minute)
	put := func(id int, status string, more map[string]any) { s.n8n.run(id, status, ended, more) }

	retried := s.report(failed(70, ""))
	put(70, "error", map[string]any{"retrySuccessId": "71"})
	// The report came from inside the run, which went on and ended well.
	inside := s.report(`{"error_message":"the destination said 422","http_status":422,"workflow_id":"wf","execution_id":"72","failed_node":"Call"}`)
	put(72, "success", nil)
	failing := s.report(failed(73, ""))
	put(73, "error", nil)
	// n8n took the run for dead, but it went on.
	crash := s.report(`{"execution":{"id":"74","error":{"name":"WorkflowCrashedError","message":"Workflow did not finish, possible out-of-memory issue"},"mode":"webhook"},"workflow":{"id":"wf"}}`)
	put(74, "success", nil)
	foreign := s.report(failed(75, ""))
	put(75, "error", map[string]any{"workflowId": "other", "retrySuccessId": "76"})
	// 77 failed, its retry 78 failed too, and then 77 was retried again with success.
	put(77, "error", map[string]any{"retrySuccessId": "79"})
	chain := s.report(failed(78, `,"retryOf":"77"`))
	put(78, "error", map[string]any{"retryOf": "77", "mode": "retry"})
	// 80 succeeded by its retry 81; a later retry of it, 82, failed, and that stands.
	put(80, "error", map[string]any{"retrySuccessId": "81"})
	after := s.report(failed(82, `,"retryOf":"80"`))
	put(82, "error", map[string]any{"retryOf": "80", "mode": "retry"})
	gone := s.report(failed(83, ""))

	s.truth()
	for _, c := range []struct {
		name, id string
		right    bool
	}{
		{"retried with success", retried.ID, true},
		{"told from inside", inside.ID, false},
		{"failed", failing.ID, false},
		{"taken for crashed", crash.ID, true},
		{"another n8n's", foreign.ID, false},
		{"retried once more", chain.ID, true},
		{"failed after a success", after.ID, false},
		{"pruned", gone.ID, false},
	} {
		l := s.letter(c.id)
		if (l.Status == deadletter.Resolved) != c.right || c.right && l.Reason != deadletter.ReasonSucceeded {
			t.Errorf("%s: %s %s", c.name, l.Status, l.Reason)
		}
	}
}

// A lease that ended is only a guess: the run may have ended well and nobody said so.
func TestTruthOfAnEndedLease(t *testing.T) {
	t.Parallel()
	s := newN8NTest(t)
	s.claim("evt_1", "90", `{"order":1}`)
	s.claim("evt_2", "91", `{"order":2}`)
	s.n8n.run(90, "success", captured.Add(time.Minute), nil)
	s.n8n.run(91, "running", captured.Add(time.Minute), nil)
	s.later(time.Hour)
	if _, err := s.store.SweepLetters(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.truth()
	letters := s.letters()
	if l := letters["90"]; l.Status != deadletter.Resolved || l.Reason != deadletter.ReasonSucceeded {
		t.Errorf("ended well: %s %s", l.Status, l.Reason)
	}
	if l := letters["91"]; l.Status != deadletter.Queued {
		t.Errorf("still under way: %s %s", l.Status, l.Reason)
	}
	for range 3 {
		s.later(time.Hour)
		if r, err := s.store.SweepLetters(t.Context()); err != nil || r.LeaseExpired != 0 {
			t.Errorf("opened again: %+v %v", r, err)
		}
	}
}

// All open letters are asked for in turn, some at a time.
func TestTruthTakesTurns(t *testing.T) {
	t.Parallel()
	s := newN8NTest(t)
	const n = 130
	for i := range n {
		s.report(failed(2000+i, ""))
	}
	seen := map[string]bool{}
	for range 2 {
		s.truth()
		asked := detailed(s.n8n.requests())
		if len(asked) > truthAtOnce {
			t.Errorf("%d at once", len(asked))
		}
		for _, a := range asked {
			seen[a] = true
		}
	}
	if len(seen) != n {
		t.Errorf("asked for %d of %d", len(seen), n)
	}
}
