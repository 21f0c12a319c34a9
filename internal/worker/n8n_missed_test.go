package worker

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"holdfast/internal/deadletter"
)

// Runs that failed without a report become letters; what was reported, watched, is too young or was put right does not.
func TestMissedRuns(t *testing.T) {
	t.Parallel()
	s := newN8NTest(t)
	told := s.report(reported("status-422"))
	s.n8n.capture(t, "status-422", map[string]any{"id": told.ExecutionID})
	stopped := s.n8n.capture(t, "workflow-stopped", nil)
	timeout := s.n8n.capture(t, "workflow-timeout", nil)
	crash := s.n8n.capture(t, "crashed-progress-false", nil)
	lost := s.n8n.capture(t, "status-503-empty", nil)
	handler := s.n8n.capture(t, "status-500", map[string]any{"id": "9001", "mode": "error", "workflowId": "handlers"})
	s.n8n.capture(t, "status-500", map[string]any{"id": "9002", "mode": "manual"})
	young := s.n8n.capture(t, "status-500", map[string]any{"id": "9003", "startedAt": "2026-11-30T18:58:00Z", "stoppedAt": "2026-11-30T18:59:30Z"})
	s.n8n.capture(t, "status-500", map[string]any{"id": "9004", "retrySuccessId": "9005"})
	s.n8n.run(9005, "success", captured.Add(-time.Hour), nil)
	s.n8n.run(9006, "waiting", captured.Add(-time.Hour), nil)

	s.missed()
	letters := s.letters()
	for _, id := range []int{stopped, timeout, crash, lost, handler} {
		l, ok := letters[strconv.Itoa(id)]
		if !ok || l.Message == "" || l.WorkflowID == "" {
			t.Errorf("execution %d has no letter: %+v", id, l)
		}
		if l.Status != deadletter.Dead && id != lost {
			t.Errorf("execution %d: %s", id, l.Status)
		}
	}
	if l := letters["9001"]; l.Reason != deadletter.ReasonHandlerFailed {
		t.Errorf("an error workflow's failure: %+v", l)
	}
	if len(letters) != 6 {
		t.Errorf("%d letters", len(letters))
	}
	if l := s.letter(told.ID); l.Reports != 1 {
		t.Errorf("what was reported was reported again: %+v", l)
	}

	// Nothing is read twice, until the young one is of age.
	s.n8n.requests()
	s.later(n8nInterval)
	s.missed()
	asked := s.n8n.requests()
	if n := len(detailed(asked)); n != 1 || !strings.Contains(detailed(asked)[0], strconv.Itoa(young)) {
		t.Errorf("asked for %q", asked)
	}
	s.later(n8nInterval)
	s.missed()
	if asked := detailed(s.n8n.requests()); len(asked) != 0 || len(s.letters()) != 7 {
		t.Errorf("asked again for %q; %d letters", asked, len(s.letters()))
	}
	// After a restart the store knows.
	s.again()
	s.missed()
	if asked := detailed(s.n8n.requests()); len(asked) != 0 || len(s.letters()) != 7 {
		t.Errorf("after a restart: asked for %q; %d letters", asked, len(s.letters()))
	}
	if mark, err := s.store.Mark(t.Context(), seenMark); err != nil || mark != s.clock().Format(time.RFC3339) {
		t.Errorf("the mark is %q: %v", mark, err)
	}
}

// detailed are the requests for one execution.
func detailed(asked []string) []string {
	return slices.DeleteFunc(slices.Clone(asked), func(a string) bool { return !strings.Contains(a, "/executions/") })
}

// All pages are read, however many; the oldest run is reported first, so that a retry finds the run that it retried.
func TestMissedRunsPaged(t *testing.T) {
	t.Parallel()
	s := newN8NTest(t)
	const n, one = 620, 31 // one of so many was not watched
	for i := range n {
		mode := "manual"
		if i%one == 0 {
			mode = "webhook"
		}
		s.n8n.run(1000+i, "error", captured.Add(-2*time.Hour+time.Duration(i)*time.Second), map[string]any{
			"mode": mode, "data": map[string]any{"resultData": map[string]any{"error": map[string]any{"message": "it broke"}, "lastNodeExecuted": "Call"}},
		})
	}
	s.n8n.run(1700, "error", captured.Add(-time.Hour), map[string]any{"mode": "retry", "retryOf": "1000"})
	s.missed()
	asked := s.n8n.requests()
	pages := len(asked) - len(detailed(asked)) - 2 // one page each of crashed and canceled
	if letters := s.letters(); pages != 3 || len(letters) != n/one || letters["1700"].Reports != 2 {
		t.Errorf("%d pages, %d letters, the retried one %+v", pages, len(letters), letters["1700"])
	}
}

// The first look goes back a day; later ones to what can have ended since the last, which was before a stop of ours.
func TestMissedRunsSince(t *testing.T) {
	t.Parallel()
	s := newN8NTest(t)
	s.n8n.run(1, "error", captured.Add(-25*time.Hour), nil)
	s.n8n.run(2, "error", captured.Add(-23*time.Hour), nil)
	s.missed()
	if letters := s.letters(); len(letters) != 1 || letters["2"].ID == "" {
		t.Errorf("the first look: %+v", letters)
	}
	// We are away for three days.
	s.later(72 * time.Hour)
	s.n8n.run(3, "crashed", captured.Add(time.Minute), nil)
	s.n8n.run(4, "canceled", captured.Add(71*time.Hour), nil)
	s.again()
	s.missed()
	if letters := s.letters(); len(letters) != 3 {
		t.Errorf("after three days: %+v", letters)
	}
	// A crash that n8n notices later has an early end.
	s.later(n8nInterval)
	s.missed()
	s.n8n.run(5, "crashed", captured.Add(60*time.Hour), nil)
	s.later(lookFarEvery)
	s.missed()
	if letters := s.letters(); len(letters) != 4 {
		t.Errorf("a crash that is noticed late: %+v", letters)
	}
}

// An execution that n8n cannot show still becomes a letter, and keeps no other waiting.
func TestMissedRunThatCannotBeRead(t *testing.T) {
	t.Parallel()
	s := newN8NTest(t)
	for i, status := range []string{"error", "crashed", "canceled"} {
		s.n8n.run(10+i, status, captured.Add(-time.Hour), nil)
	}
	huge := strings.Repeat("x", n8nAnswer)
	s.n8n.fail(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case strings.Contains(r.URL.Path, "/executions/10"):
			answer(w, http.StatusInternalServerError, map[string]any{"message": "Internal server error"})
		case strings.Contains(r.URL.Path, "/executions/11"):
			answer(w, http.StatusOK, map[string]any{"id": "11", "workflowId": "wf", "status": "crashed", "data": huge})
		default:
			return false
		}
		return true
	})
	s.missed()
	if letters := s.letters(); len(letters) != 2 || letters["11"].Status != deadletter.Dead {
		t.Errorf("at once: %+v", letters)
	}
	for range readTries {
		s.later(n8nInterval)
		s.missed()
	}
	if l := s.letters()["10"]; l.Status != deadletter.Dead || !strings.Contains(l.Message, "does not show") {
		t.Errorf("in the end: %+v", l)
	}
}

// Older versions of n8n do not list by every status.
func TestMissedRunsOfAnOlderN8N(t *testing.T) {
	t.Parallel()
	s := newN8NTest(t)
	s.n8n.run(10, "error", captured.Add(-time.Hour), nil)
	s.n8n.fail(func(w http.ResponseWriter, r *http.Request) bool {
		if status := r.URL.Query().Get("status"); status == "crashed" || status == "canceled" {
			answer(w, http.StatusBadRequest, map[string]any{"message": "request/query/status must be one of"})
			return true
		}
		return false
	})
	s.missed()
	s.later(n8nInterval)
	s.missed()
	if log := s.log(); len(s.letters()) != 1 || strings.Count(log, "does not list runs by a status") != 2 {
		t.Errorf("%d letters, log %s", len(s.letters()), log)
	}
}

// A retry that succeeded resolves the letter of the run, and of the run that it had retried.
func TestRetriedWithSuccess(t *testing.T) {
	t.Parallel()
	s := newN8NTest(t)
	s.n8n.run(20, "error", captured.Add(-time.Hour), nil)
	first := s.report(failed(20, ""))
	// It is retried by hand: 21 fails unreported, 22 succeeds.
	s.n8n.run(21, "error", captured.Add(-50*time.Minute), map[string]any{"mode": "retry", "retryOf": "20", "retrySuccessId": "22"})
	s.n8n.run(22, "success", captured.Add(-40*time.Minute), map[string]any{"mode": "retry", "retryOf": "21"})
	other := s.report(failed(30, ""))
	s.n8n.run(30, "error", captured.Add(-time.Hour), nil)
	s.missed()
	if l := s.letter(first.ID); l.Status != deadletter.Resolved || l.Reason != deadletter.ReasonSucceeded {
		t.Errorf("%s %s", l.Status, l.Reason)
	}
	if l := s.letter(other.ID); l.Status != deadletter.Dead || len(s.letters()) != 2 {
		t.Errorf("another: %s, %d letters", l.Status, len(s.letters()))
	}
}

// The passes run by themselves: at once, and then when they are due.
func TestRunsWhenDue(t *testing.T) {
	t.Parallel()
	s := newN8NTest(t)
	runs := func() int {
		s.t.Helper()
		s.pass(func() error { return s.w.Runs(t.Context()) })
		return len(s.n8n.requests())
	}
	if n := runs(); n != len(failedStatuses) {
		t.Errorf("%d requests at the start", n)
	}
	s.later(n8nTurn)
	if n := runs(); n != 0 {
		t.Errorf("%d requests at the next turn", n)
	}
	s.later(n8nInterval)
	if n := runs(); n != len(failedStatuses) {
		t.Errorf("%d requests when it was due", n)
	}
}

func TestByNumber(t *testing.T) {
	t.Parallel()
	ids := []string{"100", "9", "10", "99", "1000"}
	slices.SortFunc(ids, byNumber)
	if fmt.Sprint(ids) != "[9 10 99 100 1000]" {
		t.Error(ids)
	}
}
