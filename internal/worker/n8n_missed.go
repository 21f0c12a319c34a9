package worker

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"holdfast/internal/deadletter"
)

const (
	// seenMark is up to when n8n's runs were looked through, by n8n's clock.
	seenMark = "n8n_seen"
	// A run may fail long after it began, and n8n lists by the beginning; a crashed run is given the time of its last
	// sign of life as its end. Each look therefore goes back further than the last one ended, and now and then by a
	// day. A run that fails without a report more than a day after it began can be missed.
	lookBack     = time.Hour
	lookFarBack  = 24 * time.Hour
	lookFarEvery = time.Hour
	// A younger failure's own error workflow may still be about to report it.
	reportTime = time.Minute
	// Bounds on one look: pages of one status, and runs that are remembered as dealt with.
	maxPages    = 400
	maxRemember = 100_000
	// So often a run is read in vain before it becomes a letter without its error.
	readTries = 3
)

var failedStatuses = []string{"error", "crashed", "canceled"}

// missed remembers what was looked at.
type missed struct {
	turn
	far      time.Time         // when a look went far back
	outages  int               // how many outages there had been then
	unknown  map[string]bool   // statuses that this n8n cannot be asked for
	finished map[string]string // runs that were dealt with, and the retry that had put them right
	failures map[string]int    // runs that could not be read, and how often
	// Runs that are too young or could not be read: later looks may not go back to them.
	postponed map[string]deadletter.Execution
}

// Missed is one pass that looks for runs that failed without a report: n8n reports no time-out and no stop, no crash
// that it does not recover from, and nothing while its error workflow is broken. Each becomes a letter. Runs that were
// retried with success resolve theirs.
func (w *N8N) Missed(ctx context.Context) error {
	return w.bounded(ctx, func(ctx context.Context) error {
		m := &w.missed
		far := m.far.IsZero() || w.client.now().Sub(m.far) >= lookFarEvery || m.outages != w.client.ended()
		found, err := w.failedRuns(ctx, far)
		if err != nil {
			return err
		}
		seen := w.client.clock()
		for i := range found {
			if err := w.failedRun(ctx, &found[i], seen); err != nil {
				return err
			}
		}
		if far {
			m.far, m.outages = w.client.now(), w.client.ended()
		}
		m.next = w.client.now().Add(n8nInterval)
		return w.store.SetMark(ctx, seenMark, seen.UTC().Format(time.RFC3339))
	})
}

// failedRuns lists the runs that failed since the mark and were not dealt with, the oldest first: an attempt must be
// known before its retry.
func (w *N8N) failedRuns(ctx context.Context, far bool) (found []deadletter.Execution, err error) {
	mark, err := w.store.Mark(ctx, seenMark)
	if err != nil {
		return nil, err
	}
	for _, status := range failedStatuses {
		if w.missed.unknown[status] {
			continue
		}
		runs, err := w.failedWith(ctx, status, mark, far)
		var bad badStatus
		switch {
		case errors.As(err, &bad) && int(bad) == http.StatusBadRequest:
			// Older versions know fewer statuses.
			w.log.Info("this n8n does not list runs by a status", "status", status)
			if w.missed.unknown == nil {
				w.missed.unknown = map[string]bool{}
			}
			w.missed.unknown[status] = true
		case err != nil:
			return nil, err
		}
		found = append(found, runs...)
	}
	listed := map[string]bool{}
	for i := range found {
		listed[runKey(&found[i])] = true
	}
	for key, run := range w.missed.postponed {
		if !listed[key] {
			found = append(found, run)
		}
	}
	slices.SortFunc(found, func(a, b deadletter.Execution) int { return byNumber(a.ID, b.ID) })
	return found, nil
}

func (w *N8N) failedWith(ctx context.Context, status, mark string, far bool) (found []deadletter.Execution, err error) {
	cursor := ""
	for range maxPages {
		runs, next, err := w.client.list(ctx, status, n8nPage, cursor)
		if err != nil {
			return nil, err
		}
		since := lookSince(mark, w.client.clock(), far)
		older := 0
		for _, run := range runs {
			if at, known := beganAt(&run); known && at.Before(since) {
				older++
			}
			at, known := endedAt(&run)
			switch {
			case known && at.Before(since):
			case run.Mode == "manual" || run.Mode == "evaluation": // somebody was watching
			case w.missed.isFinished(&run):
			default:
				found = append(found, run)
			}
		}
		if next == "" || next == cursor || older == len(runs) {
			return found, nil
		}
		cursor = next
	}
	w.log.Warn("n8n has more failed runs than are looked through; the oldest are left out", "status", status, "pages", maxPages)
	return found, nil
}

// lookSince is how far back a look goes. The first one ever goes back a day.
func lookSince(mark string, now time.Time, far bool) time.Time {
	since := now.Add(-lookFarBack)
	seen, ok := n8nInstant(mark)
	if !ok {
		return since
	}
	if recent := seen.Add(-lookBack); !far || recent.Before(since) {
		since = recent
	}
	if latest := now.Add(-lookBack); since.After(latest) { // a clock was put back
		since = latest
	}
	return since
}

// failedRun makes a letter of a failed run, or resolves the letter of one that was put right.
func (w *N8N) failedRun(ctx context.Context, run *deadletter.Execution, now time.Time) error {
	if run.RetrySuccessID != "" {
		return w.putRight(ctx, run)
	}
	if at, ok := endedAt(run); ok && now.Sub(at) < reportTime {
		w.missed.postpone(run)
		return nil
	}
	known, err := w.store.KnowsExecution(ctx, run.WorkflowID, run.ID)
	if err != nil {
		return err
	}
	if known {
		w.missed.finish(run)
		return nil
	}
	r, err := w.reportOf(ctx, run)
	if err != nil || r == nil {
		return err
	}
	r.Fresh = deadletter.NewFresh()
	l, duplicate, err := w.store.Report(ctx, r)
	if err != nil {
		return err
	}
	w.missed.finish(run)
	if !duplicate {
		w.log.Info("a run failed without a report", "workflow", run.WorkflowID, "execution", run.ID, "ended", run.Status, "letter", l.ID)
	}
	return nil
}

// reportOf reads a failed run and makes its report; nil if there is nothing to report now.
func (w *N8N) reportOf(ctx context.Context, run *deadletter.Execution) (*deadletter.Report, error) {
	raw, err := w.client.execution(ctx, run.ID, true)
	var bad badStatus
	var odd unusable
	switch {
	case errors.Is(err, errNoExecution): // pruned meanwhile
		w.missed.finish(run)
		return nil, nil
	case errors.Is(err, errTooLarge):
		raw = run.Bare()
	case errors.As(err, &bad), errors.As(err, &odd):
		// The others must not wait for this one; looks go back far enough to come to it again.
		if !w.missed.giveUp(run) {
			return nil, nil
		}
		raw = run.Bare()
	case err != nil:
		return nil, err
	}
	if read, _ := deadletter.ReadExecution(raw); read.RetrySuccessID != "" {
		return nil, w.putRight(ctx, &read)
	}
	r, ok := deadletter.FromExecution(raw, w.redact)
	if !ok { // it runs again, or says what nobody understands: better a letter that says little
		if !w.missed.giveUp(run) {
			return nil, nil
		}
		if r, ok = deadletter.FromExecution(run.Bare(), w.redact); !ok {
			w.missed.finish(run)
			return nil, nil
		}
	}
	return r, nil
}

// giveUp counts how often a run was read in vain, and tells when that is enough.
func (m *missed) giveUp(run *deadletter.Execution) bool {
	if m.failures == nil {
		m.failures = map[string]int{}
	}
	if m.failures[runKey(run)]++; m.failures[runKey(run)] >= readTries {
		return true
	}
	m.postpone(run)
	return false
}

func (m *missed) postpone(run *deadletter.Execution) {
	if m.postponed == nil {
		m.postponed = map[string]deadletter.Execution{}
	}
	m.postponed[runKey(run)] = *run
}

// putRight resolves what is known of a run whose retry succeeded, and of the run that it retried itself: n8n notes a
// success only at the run that was retried last.
func (w *N8N) putRight(ctx context.Context, run *deadletter.Execution) error {
	for _, id := range []string{run.ID, run.RetryOf} {
		if id == "" {
			continue
		}
		if err := w.succeeded(ctx, run.WorkflowID, id); err != nil {
			return err
		}
	}
	w.missed.finish(run)
	return nil
}

// beganAt is when a run began, or the nearest to it that is known.
func beganAt(run *deadletter.Execution) (time.Time, bool) {
	for _, s := range []string{run.StartedAt, run.CreatedAt, run.StoppedAt} {
		if t, ok := n8nInstant(s); ok {
			return t, true
		}
	}
	return time.Time{}, false
}

func endedAt(run *deadletter.Execution) (time.Time, bool) {
	if t, ok := n8nInstant(run.StoppedAt); ok {
		return t, true
	}
	return beganAt(run)
}

// byNumber orders runs by their number, which n8n counts up.
func byNumber(a, b string) int {
	if d := len(a) - len(b); d != 0 {
		return d
	}
	return strings.Compare(a, b)
}

func runKey(run *deadletter.Execution) string { return run.WorkflowID + "/" + run.ID }

// isFinished tells whether a run was dealt with and nothing has happened to it since.
func (m *missed) isFinished(run *deadletter.Execution) bool {
	retry, ok := m.finished[runKey(run)]
	return ok && retry == run.RetrySuccessID
}

func (m *missed) finish(run *deadletter.Execution) {
	if m.finished == nil || len(m.finished) >= maxRemember {
		m.finished = map[string]string{} // the store knows the rest
	}
	m.finished[runKey(run)] = run.RetrySuccessID
	delete(m.postponed, runKey(run))
	delete(m.failures, runKey(run))
}
