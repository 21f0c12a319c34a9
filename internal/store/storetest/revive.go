package storetest

import (
	"time"

	"holdfast/internal/ledger"
)

// entityLeaseRevived: an event whose lease is over may be extended if nobody took it over, but never beside
// another version of its entity that was let in meanwhile.
func entityLeaseRevived(w *world) {
	w.row("alone", func(w *world) {
		c := w.grant(w.event("v1", of("e", "1"), lease(60)))
		w.pass(61 * time.Second)
		if out := w.ended(extend(worker(c), 60), ledger.Processing); out.Claim.LeaseUntil != w.now().Add(60*time.Second) {
			w.Errorf("the lease ends at %v", out.Claim.LeaseUntil.Time())
		}
	})
	w.row("beside another version", func(w *world) {
		c := w.grant(w.event("v1", of("e", "1"), lease(60)))
		w.pass(61 * time.Second)
		other := w.grant(w.event("v2", of("e", "2"), lease(60)))
		w.refusedWith(extend(worker(c), 60), "lease_lost")
		w.ended(complete(worker(other), "r2"), ledger.Completed)
		w.ended(extend(worker(c), 60), ledger.Processing)
	})
	w.row("an effect is never revived", func(w *world) {
		c := w.grant(w.effect("pay", of("e", "1"), lease(60)))
		w.pass(61 * time.Second)
		w.refusedWith(extend(worker(c), 60), "invalid_transition")
		if now, _ := w.get(c.ID); now.Status != ledger.Unknown {
			w.Errorf("the effect is %s", now.Status)
		}
		w.decide(w.event("v2", of("e", "2")), ledger.Wait)
	})
}
