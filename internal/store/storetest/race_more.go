package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/ledger"
	"holdfast/internal/store"
)

// ended makes effects whose leases are over, with two Stores on the one clock.
func ended(t *testing.T, open Open, keys int) (*world, []*store.Store, []ledger.Claim) {
	t.Helper()
	w := newWorld(t, open)
	stores := []*store.Store{w.store, openStore(t, w.url, store.Options{Now: w.clock.now})}
	claims := make([]ledger.Claim, keys)
	for k := range claims {
		claims[k] = w.grant(w.effect(fmt.Sprint("key", k)))
	}
	w.pass(effectLease + 6*time.Minute)
	return w, stores, claims
}

// raceSweep: sweeps repeat their condition: what is completed meanwhile stays completed.
func raceSweep(t *testing.T, open Open) {
	const keys = 16
	w, stores, claims := ended(t, open, keys)
	var won wins
	var expired atomic.Int64
	together(t, stores, 12, func(r *racer, i int) {
		switch {
		case i < 4: // the workers, late
			for n := range keys {
				out, err := r.store.End(r.ctx, complete(worker(claims[(n+i*4)%keys]), "ch"))
				if err != nil || out.Claim.Status != ledger.Completed {
					r.Errorf("complete: %s, %v", out.Claim.Status, err)
				}
				if out.Changed {
					won.add(out.Claim.ID, ledger.Completed)
				}
			}
		case i < 8:
			for range 3 {
				report, err := r.store.Sweep(r.ctx)
				if err != nil {
					r.Error(err)
				}
				expired.Add(int64(report.Expired))
			}
		default: // marks of the same workers
			for n := range keys {
				out, err := r.store.End(r.ctx, notExecuted(worker(claims[(n+i*4)%keys])))
				if err != nil || out.Claim.Status == ledger.Failed {
					r.Errorf("mark-failed: %s, %v", out.Claim.Status, err)
				}
				if err == nil && out.Changed {
					won.add(out.Claim.ID, out.Claim.Status)
				}
			}
		}
	})
	var swept int64
	for _, c := range claims {
		won.agree(w, c.ID)
		w.status(c.ID, ledger.Completed)
		_, history := w.get(c.ID)
		for _, h := range history {
			if h.To == ledger.Unknown && !kept(h) && h.By != "n8n" {
				swept++
			}
		}
	}
	if swept != expired.Load() {
		t.Errorf("the sweeps counted %d, the history %d", expired.Load(), swept)
	}
}

// raceLooks: a claim is never handed to two reconcilers, and a look and a worker never both win.
func raceLooks(t *testing.T, open Open) {
	const keys = 16
	w, stores, claims := ended(t, open, keys)
	if _, err := w.store.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	var won wins
	var mu sync.Mutex
	held := map[string]int{}
	together(t, stores, 12, func(r *racer, i int) {
		if i >= 8 { // the workers come back
			for n := range keys / 4 {
				out, err := r.store.End(r.ctx, complete(worker(claims[(n*4+i)%keys]), "worker"))
				var refusal *ledger.Refusal
				if err != nil && !errors.As(err, &refusal) {
					r.Error(err)
				}
				if err == nil && out.Changed {
					won.add(out.Claim.ID, ledger.Completed)
				}
			}
			return
		}
		for range 3 {
			got, err := r.store.LeaseUnknown(r.ctx, &ledger.LookRequest{
				Source: w.source, Owner: fmt.Sprint("rec", i), CallerKey: "n8n", Limit: 5, LeaseSeconds: 300, Probe: i%3 == 0,
			})
			if err != nil {
				r.Error(err)
			}
			if len(got) > 5 {
				r.Errorf("%d were handed out, at most 5 were asked for", len(got))
			}
			for _, c := range got {
				mu.Lock()
				held[c.ID]++
				mu.Unlock()
				e := notExecuted(looker(c))
				if i%2 == 0 {
					e = complete(looker(c), "looker")
				}
				out, err := r.store.End(r.ctx, e)
				var refusal *ledger.Refusal
				if err != nil && !errors.As(err, &refusal) {
					r.Error(err)
				}
				if err == nil && out.Changed {
					won.add(out.Claim.ID, out.Claim.Status)
				}
			}
		}
	})
	for _, c := range claims {
		won.agree(w, c.ID)
		if held[c.ID] > 1 {
			t.Errorf("one claim was handed out %d times", held[c.ID])
		}
		if now, _ := w.get(c.ID); now.Status != ledger.Completed && now.Status != ledger.Failed {
			t.Errorf("it ended as %s", now.Status)
		}
	}
}

// turnstile lets those who were told to wait go on when somebody has finished.
type turnstile struct {
	mu   sync.Mutex
	next chan struct{}
}

func (t *turnstile) wait() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next == nil {
		t.next = make(chan struct{})
	}
	return t.next
}

func (t *turnstile) turn() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next != nil {
		close(t.next)
		t.next = nil
	}
}

// raceEntity: of one entity's versions never two are live at once, never an old one after a newer completed, and
// the newest is always done.
func raceEntity(t *testing.T, open Open) {
	const versions, entities = 8, 4
	stores := migrated(t, open(t), 2)
	for n := range entities {
		var live, done atomic.Int64
		var finished turnstile
		together(t, stores, versions, func(r *racer, i int) {
			version := int64(i + 1)
			q := request(fmt.Sprint("entity", n, "v", version), step([]string{"", "write"}[i%2]), of(fmt.Sprint("e", n), fmt.Sprint(version)))
			for range 10 * versions {
				again := finished.wait()
				newest := done.Load()
				v, err := r.claim(q)
				switch {
				case err != nil:
					return
				case v.Decision == ledger.DecisionStale:
					if version == versions {
						r.Error("the newest version is called stale")
					}
					return
				case v.Decision == ledger.Wait:
					<-again
					continue
				case v.Decision != ledger.Proceed:
					r.Errorf("decision %q", v.Decision)
					return
				}
				if live.Add(1) != 1 {
					r.Error("two versions are live at once")
				}
				if version < newest {
					r.Errorf("version %d proceeds after %d was completed", version, newest)
				}
				live.Add(-1)
				if out, err := r.store.End(r.ctx, complete(worker(v.Claim), "w")); err != nil || out.Claim.Status != ledger.Completed {
					r.Errorf("complete: %v", err)
				}
				for old := done.Load(); old < version && !done.CompareAndSwap(old, version); old = done.Load() {
				}
				finished.turn()
				return
			}
			r.Error("it was told to wait too often")
		})
		if done.Load() != versions {
			t.Errorf("the newest version done is %d, want %d", done.Load(), versions)
		}
	}
}

// raceReferences: a reference that many claims bring at once belongs to one of them; the others are refused
// without harm, and nobody else in their batch is.
func raceReferences(t *testing.T, open Open) {
	const callers = 32
	w := newWorld(t, open)
	stores := []*store.Store{w.store, openStore(t, w.url, store.Options{Now: w.clock.now})}
	claims := make([]ledger.Claim, callers)
	for k := range claims {
		claims[k] = w.grant(w.effect(fmt.Sprint("key", k)))
	}
	var owners atomic.Int64
	together(t, stores, callers, func(r *racer, i int) {
		reference := "one"
		if i%2 == 1 {
			reference = fmt.Sprint("own", i)
		}
		out, err := r.store.End(r.ctx, withReference(markUnknown(worker(claims[i])), reference))
		var refusal *ledger.Refusal
		switch {
		case err == nil && reference == "one":
			owners.Add(1)
		case err == nil && out.Claim.Reference == reference && out.Claim.Status == ledger.Unknown:
		case i%2 == 1 || !errors.As(err, &refusal):
			r.Errorf("%q: %v", reference, err)
		}
	})
	if owners.Load() != 1 {
		t.Errorf("%d claims own the reference, want 1", owners.Load())
	}
	for i, c := range claims {
		if now, _ := w.get(c.ID); i%2 == 1 && now.Status != ledger.Unknown {
			t.Errorf("claim %d is %s", i, now.Status)
		}
	}
}
