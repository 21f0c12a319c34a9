package store_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"holdfast/internal/ledger"
	"holdfast/internal/pgtest"
	"holdfast/internal/store"
)

// Answers and failures of many destinations at once: their alerts are raised and dropped in one order, so that no two
// batches wait for each other.
func TestAlertsOfLooksNeverDeadlock(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	o := store.Options{Policies: lookNow, Alerts: store.AlertOptions{Targets: []string{"chat", "mail"}}}
	var stores []*store.Store
	for range 4 {
		s, err := store.Open(t.Context(), url, o)
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, s)
	}
	first := stores[0]
	if _, err := first.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	execute(t, url, // so that they meet
		`create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(0.005); return new; end $$`,
		`create trigger slow before insert or update on outbox for each row execute function slow()`)
	const places, claims, rounds = 32, 64, 4
	for round := range rounds {
		for i := range claims {
			c := granted(t, first, ask(fmt.Sprint(round, "-", i), asEffect, func(r *ledger.Request) { r.Destination = fmt.Sprint("place", i%places) }))
			if _, err := first.End(t.Context(), ending(ledger.MarkUnknown, &c)); err != nil {
				t.Fatal(err)
			}
		}
		looks, err := first.LeaseUnknown(t.Context(), &ledger.LookRequest{CallerKey: "n8n", Limit: claims, LeaseSeconds: 300})
		if err != nil || len(looks) != claims {
			t.Fatalf("%d, %v", len(looks), err)
		}
		rand.Shuffle(claims, func(i, j int) { looks[i], looks[j] = looks[j], looks[i] })
		crowd(claims, func(i int) {
			verb := ledger.MarkUnknown
			if round > 0 && rand.IntN(2) == 0 {
				verb = ledger.Complete
			}
			e := ending(verb, &looks[i])
			e.Token, _ = ledger.ParseToken(looks[i].LookToken())
			if _, err := stores[i%len(stores)].End(t.Context(), e); err != nil {
				t.Error(err)
			}
		})
		// As if each had been told, and then raised again.
		execute(t, url, fmt.Sprintf(`update outbox set unsent = greatest(unsent, 1), leased = 0, sent_at = %d`, time.Now().Add(-time.Minute).UnixMicro()))
	}
	// A server connection reports its counts when it ends.
	for _, s := range stores {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	poll(t, func() bool {
		return answer[int](t, url, `select count(*) from pg_stat_activity where datname = current_database()`) == 1 // this one
	})
	if n := answer[int](t, url, `select deadlocks from pg_stat_database where datname = current_database()`); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}
