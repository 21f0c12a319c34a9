package worker

import (
	"context"
	"errors"
	"time"

	"holdfast/internal/deadletter"
)

const (
	inputsAtOnce  = 50
	inputFirstTry = 30 * time.Second
	inputLastTry  = time.Hour
	// n8n may fail for hours and still have the run; its own pruning keeps two weeks.
	inputPatience = 24 * time.Hour
)

// inputs remembers which letters are to be asked for later.
type inputs struct{ waiting map[string]*waiting }

type waiting struct {
	since, next time.Time
	tries       int
}

// Inputs is one pass that fetches the inputs of letters that want one. A letter that nobody can have the input of
// stops wanting it.
func (w *N8N) Inputs(ctx context.Context) error {
	return w.bounded(ctx, func(ctx context.Context) error {
		now := w.client.now()
		letters, err := w.store.WantedInputs(ctx, inputsAtOnce+len(w.inputs.waiting))
		if err != nil {
			return err
		}
		w.inputs.keep(letters)
		for i := range letters {
			if !w.inputs.due(letters[i].ID, now) {
				continue
			}
			if err := w.input(ctx, &letters[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// input fetches one letter's input. An error ends the pass; what concerns this letter alone does not.
func (w *N8N) input(ctx context.Context, l *deadletter.Letter) error {
	raw, err := w.client.execution(ctx, l.ExecutionID, true)
	switch {
	case errors.Is(err, errN8NAway), ctx.Err() != nil:
		// It may be this one execution on which n8n hangs: others come first when n8n answers again.
		w.inputs.later(l.ID, w.client.now())
		return err
	case errors.Is(err, errNoExecution), errors.Is(err, errTooLarge):
		w.log.Info("n8n has no input for a letter", "letter", l.ID, "workflow", l.WorkflowID, "execution", l.ExecutionID, "cause", err)
		return w.store.SetInput(ctx, l.ID, nil)
	case err != nil:
		return w.tryLater(ctx, l, err)
	}
	run, _ := deadletter.ReadExecution(raw)
	if !w.sameRun(l, &run) {
		w.log.Info("n8n's execution of this number is another run than the letter's", "letter", l.ID, "workflow", l.WorkflowID, "execution", l.ExecutionID)
		return w.store.SetInput(ctx, l.ID, nil)
	}
	if !run.Over() && l.Play != deadletter.PlayWorkflow {
		return w.tryLater(ctx, l, errors.New("the run is not over"))
	}
	payload, ok := deadletter.Input(raw, l.Play)
	switch {
	case !ok && !run.Over():
		return w.tryLater(ctx, l, errors.New("the run is not over"))
	case !ok:
		payload = nil
	}
	if err := w.store.SetInput(ctx, l.ID, payload); err != nil {
		return err
	}
	return w.settle(ctx, l, &run)
}

// tryLater puts a letter off, or gives its input up when that has been tried long enough.
func (w *N8N) tryLater(ctx context.Context, l *deadletter.Letter, why error) error {
	if w.inputs.later(l.ID, w.client.now()) < inputPatience {
		return nil
	}
	w.log.Warn("the input of a letter is given up", "letter", l.ID, "workflow", l.WorkflowID, "execution", l.ExecutionID, "cause", why)
	return w.store.SetInput(ctx, l.ID, nil)
}

func (in *inputs) due(id string, now time.Time) bool {
	at := in.waiting[id]
	return at == nil || !now.Before(at.next)
}

// later puts a letter off and tells how long it has been waiting.
func (in *inputs) later(id string, now time.Time) time.Duration {
	at := in.waiting[id]
	if at == nil {
		if in.waiting == nil {
			in.waiting = map[string]*waiting{}
		}
		at = &waiting{since: now}
		in.waiting[id] = at
	}
	at.next = now.Add(min(inputFirstTry<<min(at.tries, 10), inputLastTry))
	at.tries++
	return now.Sub(at.since)
}

// keep forgets the letters that want nothing any more.
func (in *inputs) keep(letters []deadletter.Letter) {
	wanted := make(map[string]bool, len(letters))
	for i := range letters {
		wanted[letters[i].ID] = true
	}
	for id := range in.waiting {
		if !wanted[id] {
			delete(in.waiting, id)
		}
	}
}
