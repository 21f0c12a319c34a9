package store

import (
	"context"
	"fmt"
	"sync"

	"holdfast/internal/ledger"
)

// A lane gathers concurrent calls into one transaction without waiting for a timer: while one commit is under
// way the next batch fills, so that one caller alone pays no delay and hundreds share a commit.
type lane[Q, A any] struct {
	calls chan *call[Q, A]
	run   func(batch []*call[Q, A])
	name  string
	seen  func(lane string, size int)
	done  sync.WaitGroup

	mu     sync.RWMutex
	closed bool
}

// call is one caller's question and the place for its answer.
type call[Q, A any] struct {
	q     Q
	size  int // bytes, roughly
	a     A
	err   error
	ready chan struct{}
}

const (
	maxBatch      = 256
	maxBatchBytes = 1 << 20
	maxWaiting    = 8192
)

func newLane[Q, A any](name string, workers int, seen func(string, int), run func([]*call[Q, A])) *lane[Q, A] {
	l := &lane[Q, A]{calls: make(chan *call[Q, A], maxWaiting), run: run, name: name, seen: seen}
	for range workers {
		l.done.Go(l.work)
	}
	return l
}

// do waits for the answer to q. A caller that goes away leaves its call behind: it is decided all the same,
// as if the answer had been lost.
func (l *lane[Q, A]) do(ctx context.Context, q Q, size int) (a A, err error) {
	c := &call[Q, A]{q: q, size: size, ready: make(chan struct{})}
	if err := l.enter(c); err != nil {
		return a, err
	}
	select {
	case <-c.ready:
		return c.a, c.err
	case <-ctx.Done():
		return a, errGone
	}
}

// errGone is for a caller that did not wait for its answer.
var errGone = fmt.Errorf("%w: the caller went away", ledger.ErrUnavailable)

func (l *lane[Q, A]) enter(c *call[Q, A]) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return ledger.ErrUnavailable
	}
	select {
	case l.calls <- c:
		return nil
	default:
		return ledger.ErrOverloaded
	}
}

func (l *lane[Q, A]) work() {
	for first := range l.calls {
		batch := l.gather(first)
		if l.seen != nil {
			l.seen(l.name, len(batch))
		}
		l.run(batch)
		for _, c := range batch {
			close(c.ready)
		}
	}
}

func (l *lane[Q, A]) gather(first *call[Q, A]) []*call[Q, A] {
	batch, size := []*call[Q, A]{first}, first.size
	for len(batch) < maxBatch && size < maxBatchBytes {
		select {
		case c, ok := <-l.calls:
			if !ok {
				return batch
			}
			batch, size = append(batch, c), size+c.size
		default:
			return batch
		}
	}
	return batch
}

// stop answers what has been asked and then ends the workers.
func (l *lane[Q, A]) stop() {
	l.mu.Lock()
	already := l.closed
	l.closed = true
	l.mu.Unlock()
	if !already {
		close(l.calls)
	}
	l.done.Wait()
}
