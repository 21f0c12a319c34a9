package storetest

import (
	"sync"
	"testing"

	"holdfast/internal/ledger"
	"holdfast/internal/store"
)

// migrateTwice: the second time there is nothing to do, and nothing is lost.
func migrateTwice(t *testing.T, open Open) {
	url := open(t)
	s := openStore(t, url, store.Options{})
	if err := s.Ready(t.Context()); err == nil {
		t.Error("a database without a schema is called ready")
	}
	states, err := s.Migrations(t.Context())
	if err != nil || len(states) == 0 || states[0].Applied {
		t.Errorf("before: %v %+v", err, states)
	}
	for _, want := range []int{len(states), 0} {
		if steps, err := s.Migrate(t.Context()); err != nil || steps != want {
			t.Errorf("%d steps, %v; want %d", steps, err, want)
		}
	}
	states, err = s.Migrations(t.Context())
	for _, state := range states {
		if err != nil || !state.Applied {
			t.Errorf("after: %v %+v", err, state)
		}
	}
	if err := s.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}

// migrateAtOnce: those that start together do not race.
func migrateAtOnce(t *testing.T, open Open) {
	url := open(t)
	var stores []*store.Store
	for range 4 {
		stores = append(stores, openStore(t, url, store.Options{}))
	}
	var wg sync.WaitGroup
	for _, s := range stores {
		wg.Go(func() {
			if _, err := s.Migrate(t.Context()); err != nil {
				t.Error(err)
				return
			}
			r := &ledger.Request{Key: ledger.Key{Source: "src", IdempotencyKey: rand8()}, CallerKey: "n8n", Fresh: fresh(t)}
			if v, err := s.Claim(t.Context(), r); err != nil || v.Decision != ledger.Proceed {
				t.Errorf("the first claim: %q, %v", v.Decision, err)
			}
		})
	}
	wg.Wait()
}
