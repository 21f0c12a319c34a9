// Package worker runs what happens by itself: loops around one pass, each with its own interval and time limit.
package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Loop runs Pass every Interval until it is stopped. A pass that fails is logged and tried again at the next
// turn; passes never overlap.
type Loop struct {
	Name     string
	Interval time.Duration
	Pass     func(context.Context) error
	Log      *slog.Logger

	mu     sync.Mutex
	cancel context.CancelFunc
	done   chan struct{}
}

// Start begins the loop, with a first pass at once. Starting twice does nothing.
func (l *Loop) Start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel, l.done = cancel, make(chan struct{})
	go l.run(ctx, l.done)
}

// Stop ends the loop and waits for the pass under way, which is not broken off. It may be called twice, or without
// Start.
func (l *Loop) Stop() {
	l.mu.Lock()
	cancel, done := l.cancel, l.done
	l.mu.Unlock()
	if cancel == nil {
		return
	}
	cancel()
	<-done
}

func (l *Loop) run(ctx context.Context, done chan struct{}) {
	defer close(done)
	ticker := time.NewTicker(l.Interval)
	defer ticker.Stop()
	for {
		l.once(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// passTime bounds one pass.
const passTime = time.Minute

func (l *Loop) once(ctx context.Context) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), passTime)
	defer cancel()
	if err := l.Pass(limited); err != nil {
		l.Log.Warn("a pass failed and will be tried again", "worker", l.Name, "cause", err)
	}
}
