package storetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"holdfast/internal/ledger"
	"holdfast/internal/store"
)

func rand8() string { return rand.Text()[:8] }

// racer is one caller over one of several Stores, with the real clock.
type racer struct {
	*testing.T
	ctx   context.Context
	store *store.Store
}

func (r *racer) claim(q *ledger.Request) (ledger.Verdict, error) {
	one := *q
	one.Fresh = fresh(r.T)
	v, err := r.store.Claim(r.ctx, &one)
	if err != nil {
		r.Errorf("claim %v: %v", q.Key, err)
	}
	return v, err
}

// together runs n racers over the stores at once.
func together(t *testing.T, stores []*store.Store, n int, fn func(r *racer, i int)) {
	t.Helper()
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			fn(&racer{T: t, ctx: t.Context(), store: stores[i%len(stores)]}, i)
		})
	}
	close(start)
	wg.Wait()
}

func request(key string, mods ...mod) *ledger.Request {
	r := &ledger.Request{Key: ledger.Key{Source: "src", IdempotencyKey: key}, Basis: ledger.BasisGiven, CallerKey: "n8n"}
	for _, m := range mods {
		m(r)
	}
	return r
}

// raceClaims: exactly one caller gets proceed for a key, however many race, over two Stores.
func raceClaims(t *testing.T, open Open) {
	url := open(t)
	stores := migrated(t, url, 2)
	keys := 50
	if isSQLite(url) {
		keys = 10 // its driver is slow under the race detector
	}
	for _, way := range []struct {
		name string
		keys int
		mods []mod
	}{
		{"plain", keys, nil},
		{"owned", keys / 5, []mod{owner("7:0:0")}}, // but each is another node
		{"entity", 2, []mod{of("e", "")}},
	} {
		proceeded := make([]atomic.Int64, way.keys)
		together(t, stores, 64, func(r *racer, i int) {
			for n := range way.keys {
				k := (n + i) % way.keys
				q := request(fmt.Sprint(way.name, k), append(slices.Clone(way.mods), node(fmt.Sprint(i)))...)
				if q.Entity != "" {
					q.Entity = fmt.Sprint("e", k)
				}
				v, err := r.claim(q)
				switch {
				case err != nil:
				case v.Decision == ledger.Proceed:
					proceeded[k].Add(1)
				case v.Decision != ledger.InProgress || v.RetryAfter < 1:
					r.Errorf("decision %q, retry after %d", v.Decision, v.RetryAfter)
				}
			}
		})
		for k := range proceeded {
			if n := proceeded[k].Load(); n != 1 {
				t.Errorf("%s %d: %d callers got proceed, want 1", way.name, k, n)
			}
		}
	}
}

// raceLifecycle: claims and completes of many keys at once, over two Stores; each key is worked on once, and all
// copies end with the one receipt.
func raceLifecycle(t *testing.T, open Open) {
	const callers, keys = 24, 10
	stores := migrated(t, open(t), 2)
	var worked [keys]atomic.Int64
	together(t, stores, callers, func(r *racer, i int) {
		for n := range keys {
			k := (n + i) % keys
			v, err := r.claim(request(fmt.Sprint("key", k), step("charge")))
			if err != nil || v.Decision != ledger.Proceed {
				continue
			}
			id := fmt.Sprint("ch_", k, "_", worked[k].Add(1))
			for range 2 { // Retry On Fail
				if out, err := r.store.End(r.ctx, complete(worker(v.Claim), id)); err != nil || out.Claim.Status != ledger.Completed {
					r.Errorf("complete: %s, %v", out.Claim.Status, err)
				}
			}
		}
	})
	for k := range keys {
		r := &racer{T: t, ctx: t.Context(), store: stores[k%2]}
		v, _ := r.claim(request(fmt.Sprint("key", k), step("charge")))
		if want := fmt.Sprint("ch_", k, "_1"); v.Decision != ledger.DecisionCompleted || v.Claim.ResultID != want || worked[k].Load() != 1 {
			t.Errorf("key %d: %q with %q, worked on %d times", k, v.Decision, v.Claim.ResultID, worked[k].Load())
		}
	}
}

// wins counts, for each claim, the reports that were told that they changed it to a status.
type wins struct {
	mu sync.Mutex
	of map[string]map[ledger.Status]int
}

func (w *wins) add(id string, s ledger.Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of == nil {
		w.of = map[string]map[ledger.Status]int{}
	}
	if w.of[id] == nil {
		w.of[id] = map[ledger.Status]int{}
	}
	w.of[id][s]++
}

// agree checks that a claim's history tells of just the changes that callers were told of, and hangs together.
func (w *wins) agree(t *world, id string) {
	t.Helper()
	_, history := t.get(id)
	told := map[ledger.Status]int{}
	for _, h := range history {
		if !kept(h) && h.From != "" && h.By == "n8n" && h.To != ledger.Processing {
			told[h.To]++
		}
	}
	if fmt.Sprint(told) != fmt.Sprint(w.of[id]) {
		t.Errorf("callers were told of %v, the history of %v: %+v", w.of[id], told, history)
	}
	if told[ledger.Completed] > 1 {
		t.Errorf("two winners: %+v", history)
	}
}

// raceEndings: contradicting reports of one attempt, at once; one receipt wins, others conflict.
func raceEndings(t *testing.T, open Open) {
	const keys, receipts = 10, 6
	stores := migrated(t, open(t), 2)
	claims := make([]ledger.Claim, keys)
	for k := range claims {
		v, err := (&racer{T: t, ctx: t.Context(), store: stores[0]}).claim(request(fmt.Sprint("key", k), step("charge")))
		if err != nil {
			return
		}
		claims[k] = v.Claim
	}
	var won wins
	var completed [keys]atomic.Int64
	together(t, stores, receipts+3, func(r *racer, i int) {
		for n := range keys {
			k := (n + i) % keys
			token := worker(claims[k])
			e := complete(token, fmt.Sprint("ch_", i))
			switch i {
			case receipts:
				e = notExecuted(token)
			case receipts + 1:
				e = markUnknown(token)
			case receipts + 2:
				e = extend(token, 3600)
			}
			out, err := r.store.End(r.ctx, e)
			var refusal *ledger.Refusal
			if err != nil && !errors.As(err, &refusal) {
				r.Errorf("/%s: %v", e.Verb, err)
			}
			if err == nil && out.Changed && e.Verb != ledger.Extend {
				won.add(out.Claim.ID, out.Claim.Status)
			}
			if err == nil && e.Verb == ledger.Complete {
				completed[k].Add(1)
				if out.Claim.ResultID != e.ResultID {
					r.Errorf("/complete with %q was told %q", e.ResultID, out.Claim.ResultID)
				}
			}
		}
	})
	w := &world{T: t, store: stores[1]}
	for k, c := range claims {
		won.agree(w, c.ID)
		if n := completed[k].Load(); n != 1 {
			t.Errorf("key %d: %d receipts were taken, want 1", k, n)
		}
		w.status(c.ID, ledger.Completed)
	}
}
