package worker

import (
	"context"
	"errors"
	"time"

	"holdfast/internal/deadletter"
)

const (
	truthAtOnce = 100
	// How far the clocks of n8n and of the database may be apart, beyond what is known of it, when their times are
	// compared.
	clocksApart = time.Minute
	maxRetries  = 10 // of retries of retries, how many are followed
)

// truth remembers how far the open letters were gone through.
type truth struct {
	turn
	status deadletter.Status
	cursor string
}

// Truth is one pass that asks n8n whether the failed runs of open letters were put right. It goes through all of
// them in turn, some at each pass.
func (w *N8N) Truth(ctx context.Context) error {
	return w.bounded(ctx, func(ctx context.Context) error {
		t := &w.truth
		for left := truthAtOnce; left > 0; {
			if t.status == "" {
				t.status = deadletter.Dead
			}
			letters, next, err := w.store.Letters(ctx, deadletter.Filter{Status: t.status, Limit: min(left, 50), Cursor: t.cursor})
			if err != nil {
				return err
			}
			for i := range letters {
				if err := w.check(ctx, &letters[i]); err != nil {
					return err
				}
			}
			left -= len(letters)
			t.cursor = next
			if next != "" {
				continue
			}
			if t.status == deadletter.Queued { // all were asked for
				t.status = ""
				break
			}
			t.status = deadletter.Queued
		}
		t.next = w.client.now().Add(n8nInterval)
		return nil
	})
}

func (w *N8N) check(ctx context.Context, l *deadletter.Letter) error {
	if l.ExecutionID == "" || l.WorkflowID == "" {
		return nil
	}
	raw, err := w.client.execution(ctx, l.ExecutionID, false)
	switch {
	case errors.Is(err, errN8NAway), ctx.Err() != nil:
		return err
	case err != nil:
		return nil //nolint:nilerr // n8n does not know: the letter stays as it is
	}
	run, _ := deadletter.ReadExecution(raw)
	return w.settle(ctx, l, &run)
}

// settle resolves a letter whose run was put right: by a retry that succeeded, or because it had not failed.
func (w *N8N) settle(ctx context.Context, l *deadletter.Letter, run *deadletter.Execution) error {
	if !w.sameRun(l, run) {
		return nil
	}
	right, err := run.RetrySuccessID != "", error(nil)
	if !right {
		right, err = w.notFailed(ctx, l, run)
	}
	if !right && err == nil {
		right, err = w.retriedLater(ctx, run)
	}
	if err != nil || !right {
		return err
	}
	return w.succeeded(ctx, run.WorkflowID, run.ID)
}

// retriedLater tells whether a run that was a failed retry was followed by a retry that succeeded, of the run that it
// had retried: n8n notes that there.
func (w *N8N) retriedLater(ctx context.Context, run *deadletter.Execution) (bool, error) {
	for at, n := *run, 0; at.RetryOf != "" && n < maxRetries; n++ {
		raw, err := w.client.execution(ctx, at.RetryOf, false)
		switch {
		case errors.Is(err, errN8NAway), ctx.Err() != nil:
			return false, err
		case err != nil:
			return false, nil //nolint:nilerr // n8n does not know
		}
		at, _ = deadletter.ReadExecution(raw)
		if at.WorkflowID != run.WorkflowID {
			return false, nil
		}
		if at.RetrySuccessID != "" && byNumber(at.RetrySuccessID, run.ID) > 0 {
			return true, nil
		}
	}
	return false, nil
}

func (w *N8N) succeeded(ctx context.Context, workflowID, executionID string) error {
	n, err := w.store.Succeeded(ctx, workflowID, executionID)
	if n > 0 {
		w.log.Info("n8n says that a run was put right: its letters are resolved", "workflow", workflowID, "execution", executionID, "letters", n)
	}
	return err
}

// sameRun tells whether n8n's execution is the one that a letter is about. Executions are numbered by each n8n for
// itself, and anew by one that was set up again: the workflow must be the same too, and the run not younger than
// what is known of it.
func (w *N8N) sameRun(l *deadletter.Letter, run *deadletter.Execution) bool {
	if l.WorkflowID == "" || l.WorkflowID != run.WorkflowID || l.ExecutionID != run.ID {
		return false
	}
	began, ok := w.ourTime(run.StartedAt)
	return !ok || !began.After(l.UpdatedAt.Time().Add(clocksApart))
}

// notFailed tells whether a run that n8n calls a success proves that a letter has no cause. It does where nobody
// reported a failure and only the lease had ended, and where n8n itself had taken the run for crashed. Any other report
// is believed: one from inside a run that goes on, by the error output of a node, is true although the run ends well.
func (w *N8N) notFailed(ctx context.Context, l *deadletter.Letter, run *deadletter.Execution) (bool, error) {
	if run.Status != "success" {
		return false, nil
	}
	if l.Reports == 0 {
		return l.Reason == deadletter.ReasonLeaseExpired, nil
	}
	whole, _, err := w.store.GetLetter(ctx, l.ID)
	return err == nil && whole.Crashed(), err
}

// ourTime reads a time of n8n's clock and tells it by ours.
func (w *N8N) ourTime(s string) (time.Time, bool) {
	t, ok := n8nInstant(s)
	return t.Add(w.client.now().Sub(w.client.clock())), ok
}

// n8nInstant reads a time as n8n writes it.
func n8nInstant(s string) (time.Time, bool) {
	t, err := time.Parse(time.RFC3339, s)
	return t, err == nil
}
