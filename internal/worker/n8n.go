package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"holdfast/internal/deadletter"
)

const (
	n8nTurn     = 10 * time.Second // how often inputs are looked for
	n8nInterval = 5 * time.Minute  // how often missed runs are looked for
	n8nBudget   = 40 * time.Second // of one pass; what is left over is for the next
)

// Letters is what n8n's side of letters needs of their store.
type Letters interface {
	Report(ctx context.Context, r *deadletter.Report) (deadletter.Letter, bool, error)
	GetLetter(ctx context.Context, id string) (deadletter.Letter, []deadletter.Entry, error)
	Letters(ctx context.Context, f deadletter.Filter) ([]deadletter.Letter, string, error)
	KnowsExecution(ctx context.Context, workflowID, executionID string) (bool, error)
	WantedInputs(ctx context.Context, limit int) ([]deadletter.Letter, error)
	SetInput(ctx context.Context, id string, payload []byte) error
	Succeeded(ctx context.Context, workflowID, executionID string) (int, error)
	Mark(ctx context.Context, name string) (string, error)
	SetMark(ctx context.Context, name, value string) error
}

// N8NOptions say where n8n is.
type N8NOptions struct {
	URL    string
	APIKey string
	Redact []string // further names whose values are secret
	Log    *slog.Logger
	Now    func() time.Time // nil: the real time
}

// N8N asks n8n's public API about letters: for the input of failed runs, for failed runs that nobody reported, and
// whether what failed has succeeded after all. It runs in loops of its own. Reports are stored without it, and wait
// for nothing here.
type N8N struct {
	client *n8nClient
	store  Letters
	redact []string
	log    *slog.Logger

	inputs inputs
	missed missed
	truth  truth

	stopping context.Context //nolint:containedctx // it ends what the loops have under way
	stop     context.CancelFunc
}

// NewN8N prepares the passes; Loops runs them.
func NewN8N(o N8NOptions, store Letters) (*N8N, error) {
	client, err := newN8NClient(o.URL, o.APIKey, o.Log)
	if err != nil {
		return nil, err
	}
	if o.Now != nil {
		client.now = o.Now
	}
	w := &N8N{client: client, store: store, redact: o.Redact, log: o.Log}
	w.stopping, w.stop = context.WithCancel(context.Background())
	return w, nil
}

// Loops are to be started and stopped by the caller; Stop breaks off what they are asking.
func (w *N8N) Loops() []*Loop {
	return []*Loop{
		{Name: "n8n inputs", Interval: n8nTurn, Pass: w.Inputs, Log: w.log},
		{Name: "n8n runs", Interval: n8nTurn, Pass: w.Runs, Log: w.log},
	}
}

// Stop breaks off what is being asked of n8n, and lets nothing be asked any more: a program that ends does not wait
// for n8n.
func (w *N8N) Stop() {
	if w != nil {
		w.stop()
	}
}

// bounded gives a pass its time, and ends it when the program stops.
func (w *N8N) bounded(ctx context.Context, pass func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, n8nBudget)
	defer cancel()
	defer context.AfterFunc(w.stopping, cancel)()
	err := pass(ctx)
	if errors.Is(err, errN8NAway) || ctx.Err() != nil {
		return nil // the client has logged it; or the time is up, and the next pass goes on
	}
	return err
}

// Runs is one pass that looks for missed runs and for the truth about open letters, when it is time for that.
func (w *N8N) Runs(ctx context.Context) error {
	if w.missed.due(w.client.now()) {
		if err := w.Missed(ctx); err != nil {
			return err
		}
	}
	if w.truth.due(w.client.now()) {
		return w.Truth(ctx)
	}
	return nil
}

// turn says when something is due again.
type turn struct{ next time.Time }

func (t *turn) due(now time.Time) bool { return !now.Before(t.next) }
