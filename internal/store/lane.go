package store

import (
	"context"
	"fmt"
	"sync"

	"holdfast/internal/ledger"
)

// A lane gathers concurrent calls into one transaction without waiting for a timer: while one commit is under
// way the next batch fills. A caller that finds the lane free runs its batch itself, so that one caller alone
// pays neither a delay nor a change of goroutine; when it is done it wakes those it served and hands the lane to
// the first of those that came meanwhile.
type lane[Q, A any] struct {
	run     func(batch []*call[Q, A])
	name    string
	seen    func(lane string, size int)
	leaders int // batches that may be under way at once

	mu      sync.Mutex
	idle    sync.Cond // signalled when the last leader leaves
	waiting []*call[Q, A]
	leading int
	closed  bool
}

// call is one caller's question and the place for its answer.
type call[Q, A any] struct {
	q    Q
	size int // bytes, roughly
	a    A
	err  error
	wake chan bool // true: the answer is there; false: lead
	told bool      // it leads, has led, or was told to; guarded by the lane
}

const (
	maxBatch      = 256
	maxBatchBytes = 1 << 20
	maxWaiting    = 8192
	// overlap is how many calls must wait before a second batch starts beside the first: below it a wake-up and a
	// transaction of their own cost more than they win.
	overlap = 16
)

func newLane[Q, A any](name string, leaders int, seen func(string, int), run func([]*call[Q, A])) *lane[Q, A] {
	l := &lane[Q, A]{run: run, name: name, seen: seen, leaders: leaders}
	l.idle.L = &l.mu
	return l
}

// do waits for the answer to q. A caller that goes away leaves its call behind: it is decided all the same,
// as if the answer had been lost.
func (l *lane[Q, A]) do(ctx context.Context, q Q, size int) (a A, err error) {
	c := &call[Q, A]{q: q, size: size, wake: make(chan bool, 2)}
	lead, err := l.enter(c)
	if err != nil {
		return a, err
	}
	if lead {
		l.lead()
	}
	for {
		select {
		case answered := <-c.wake:
			if answered {
				return c.a, c.err
			}
			l.lead()
		case <-ctx.Done():
			go l.abandon(c) // it may be told to lead
			return a, errGone
		}
	}
}

// errGone is for a caller that did not wait for its answer.
var errGone = fmt.Errorf("%w: the caller went away", ledger.ErrUnavailable)

func (l *lane[Q, A]) abandon(c *call[Q, A]) {
	for answered := range c.wake {
		if answered {
			return
		}
		l.lead()
	}
}

// enter adds a call to those that wait, and tells whether its caller must lead.
func (l *lane[Q, A]) enter(c *call[Q, A]) (lead bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return false, ledger.ErrUnavailable
	case len(l.waiting) >= maxWaiting:
		return false, ledger.ErrOverloaded
	}
	l.waiting = append(l.waiting, c)
	if l.leading == 0 || l.leading < l.leaders && len(l.waiting) >= overlap {
		l.leading++
		c.told = true
		return true, nil
	}
	return false, nil
}

// lead runs a batch and hands the lane on; it goes on itself only when nobody else is left to do it.
func (l *lane[Q, A]) lead() {
	for {
		if batch := l.take(); len(batch) > 0 {
			if l.seen != nil {
				l.seen(l.name, len(batch))
			}
			l.run(batch)
			for _, c := range batch {
				c.wake <- true
			}
		}
		if l.handOn() {
			return
		}
	}
}

// handOn gives the lane to the first of those that wait, or leaves it free. It is false when all that wait have
// had their turn.
func (l *lane[Q, A]) handOn() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.waiting {
		if !c.told {
			c.told = true
			c.wake <- false // never blocks: each call is told once and answered once
			return true
		}
	}
	if len(l.waiting) > 0 {
		return false
	}
	if l.leading--; l.leading == 0 {
		l.idle.Broadcast()
	}
	return true
}

// take removes the next batch from those that wait, in the order in which they came.
func (l *lane[Q, A]) take() []*call[Q, A] {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, size := 0, 0
	for n < len(l.waiting) && n < maxBatch && (n == 0 || size < maxBatchBytes) {
		size += l.waiting[n].size
		n++
	}
	batch := l.waiting[:n:n]
	l.waiting = l.waiting[n:]
	if len(l.waiting) == 0 {
		l.waiting = nil // lets go of the served calls' memory
	}
	return batch
}

// stop takes no more calls and waits until those that came are answered.
func (l *lane[Q, A]) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for l.leading > 0 {
		l.idle.Wait()
	}
}
