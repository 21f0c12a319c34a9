package store

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"holdfast/internal/ledger"
)

// within fails the test where fn does not come back: a caller that never gets its answer hangs for ever.
func within(t *testing.T, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("somebody never got an answer")
	}
}

// doubled answers each question with its double, and counts the batches under way.
func doubled(t *testing.T, leaders int) *lane[int, int] {
	t.Helper()
	var mu sync.Mutex
	under := 0
	return newLane("test", leaders, nil, func(batch []*call[int, int]) {
		mu.Lock()
		if under++; under > leaders {
			t.Errorf("%d batches are under way at once, at most %d may be", under, leaders)
		}
		mu.Unlock()
		for _, c := range batch {
			runtime.Gosched()
			if c.a = 2 * c.q; c.q%7 == 0 {
				c.err = ledger.ErrNotFound
			}
		}
		mu.Lock()
		under--
		mu.Unlock()
	})
}

// TestLaneAnswersAll: each caller gets its own answer, however many come and go.
func TestLaneAnswersAll(t *testing.T) {
	t.Parallel()
	for leaders := 1; leaders <= 3; leaders++ {
		t.Run(fmt.Sprint(leaders), func(t *testing.T) {
			t.Parallel()
			l := doubled(t, leaders)
			within(t, func() {
				var wg sync.WaitGroup
				for i := range 96 {
					wg.Go(func() {
						for n := range 300 {
							q := i*1000 + n
							a, err := l.do(context.Background(), q, 1)
							if a != 2*q || (q%7 == 0) != errors.Is(err, ledger.ErrNotFound) {
								t.Errorf("%d is answered with %d, %v", q, a, err)
							}
						}
					})
				}
				wg.Wait()
				l.stop()
			})
		})
	}
}

// TestLaneCallersGone: callers that hang up leave the lane in order.
func TestLaneCallersGone(t *testing.T) {
	t.Parallel()
	for leaders := 1; leaders <= 2; leaders++ {
		t.Run(fmt.Sprint(leaders), func(t *testing.T) {
			t.Parallel()
			l := doubled(t, leaders)
			within(t, func() {
				var wg sync.WaitGroup
				for i := range 64 {
					wg.Go(func() {
						for n := range 200 {
							ctx, cancel := context.WithCancel(context.Background())
							if n%3 == 0 {
								go cancel()
							}
							q := i*1000 + n
							a, err := l.do(ctx, q, 1)
							if gone := errors.Is(err, ledger.ErrUnavailable); !gone && a != 2*q || gone && n%3 != 0 {
								t.Errorf("%d is answered with %d, %v", q, a, err)
							}
							cancel()
						}
					})
				}
				wg.Wait()
				l.stop()
			})
		})
	}
}

// TestLaneStops: what was asked before is answered, what comes later is refused.
func TestLaneStops(t *testing.T) {
	t.Parallel()
	for leaders := 1; leaders <= 2; leaders++ {
		t.Run(fmt.Sprint(leaders), func(t *testing.T) {
			t.Parallel()
			within(t, func() {
				for range 50 {
					l := doubled(t, leaders)
					var wg sync.WaitGroup
					for i := range 40 {
						wg.Go(func() {
							if a, err := l.do(context.Background(), i*7+1, 1); err == nil && a != 2*(i*7+1) || err != nil && !errors.Is(err, ledger.ErrUnavailable) {
								t.Errorf("%d, %v", a, err)
							}
						})
					}
					l.stop()
					if _, err := l.do(context.Background(), 1, 1); !errors.Is(err, ledger.ErrUnavailable) {
						t.Errorf("a stopped lane answers %v", err)
					}
					wg.Wait()
					l.stop()
				}
			})
		})
	}
}
