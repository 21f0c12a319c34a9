package storetest

import (
	"time"

	"holdfast/internal/ledger"
)

func completeTable(w *world) {
	w.endings([]endingRow{
		// Any token ever issued, while no newer attempt is processing or completed.
		{"complete r1", "processing", both, "newest", "completed changed"},
		{"complete ", "processing", both, "newest", "completed changed"},
		{"complete r1", "processing, over", both, "newest", "completed changed"},
		{"complete r1", "completed", both, "newest", "completed"},
		{"complete ", "completed", both, "newest", "completed"},
		{"complete r1", "completed without id", both, "newest", "completed"},
		{"complete r2", "completed", both, "newest", "result_conflict kept alert"},
		{"complete r1", "failed", eventOnly, "newest", "completed changed"},
		{"complete r1", "failed", effectOnly, "newest", "completed changed kept alert"},
		{"complete r1", "unknown", both, "newest", "completed changed"},
		{"complete r1", "unknown, look", both, "newest", "completed changed"},
		{"complete r1", "unknown, look", both, "look", "completed changed"},
		{"complete r1", "unknown, look over", both, "look", "completed changed"},
		{"complete r1", "review", both, "newest", "completed changed"},
		{"complete r1", "pending, not now", eventOnly, "newest", "completed changed"},
		{"complete r1", "stale", both, "newest", "invalid_transition kept alert"},
		// A newer attempt is processing.
		{"complete r1", "processing", both, "older", "lease_lost kept alert"},
		{"complete ", "processing", both, "older", "lease_lost kept alert"},
		{"complete r1", "processing, over", eventOnly, "older", "lease_lost kept alert"},
		// The newer attempt of an effect whose lease is over is unknown, swept or not: it runs no more.
		{"complete r1", "processing, over", effectOnly, "older", "completed changed"},
		// A newer attempt is completed: alerted unless the result is equal.
		{"complete r1", "completed", both, "older", "lease_lost kept"},
		{"complete r2", "completed", both, "older", "lease_lost kept alert"},
		// The newer attempt ended otherwise: an older receipt counts.
		{"complete r1", "failed", eventOnly, "older", "completed changed"},
		{"complete r1", "failed", effectOnly, "older", "completed changed kept alert"},
		{"complete r1", "unknown", both, "older", "completed changed"},
		{"complete r1", "unknown, look", both, "older", "completed changed"},
		{"complete r1", "review", both, "older", "completed changed"},
		{"complete r1", "pending, not now", eventOnly, "older", "completed changed"},
		{"complete r1", "stale", both, "older", "invalid_transition kept alert"},
		// By key: only where no worker's lease is live.
		{"complete r1", "processing", both, "key", "lease_live kept"},
		{"complete r1", "processing, over", both, "key", "completed changed"},
		{"complete r1", "completed", both, "key", "completed"},
		{"complete r2", "completed", both, "key", "result_conflict kept alert"},
		{"complete r1", "failed", eventOnly, "key", "completed changed"},
		{"complete r1", "failed", effectOnly, "key", "completed changed kept alert"},
		{"complete r1", "unknown", both, "key", "completed changed"},
		{"complete r1", "unknown, look", both, "key", "completed changed"},
		{"complete r1", "review", both, "key", "completed changed"},
		{"complete r1", "pending", both, "key", "completed changed"},
		{"complete r1", "stale", both, "key", "invalid_transition kept alert"},
		// By reference: the same.
		{"complete r1", "processing", both, "reference", "lease_live kept"},
		{"complete r1", "processing, over", both, "reference", "completed changed"},
		{"complete r1", "completed", both, "reference", "completed"},
		{"complete r2", "completed", both, "reference", "result_conflict kept alert"},
		{"complete r1", "failed", eventOnly, "reference", "completed changed"},
		{"complete r1", "failed", effectOnly, "reference", "completed changed kept alert"},
		{"complete r1", "unknown", both, "reference", "completed changed"},
		{"complete r1", "unknown, look", both, "reference", "completed changed"},
		{"complete r1", "review", both, "reference", "completed changed"},
		{"complete r1", "pending, not now", eventOnly, "reference", "completed changed"},
		{"complete r1", "stale", both, "reference", "invalid_transition kept alert"},
	})
	w.row("the result comes back", func(w *world) {
		e := complete(worker(w.grant(w.event("key"))), "r1")
		e.Result = []byte(`{"charge": 1}`)
		out := w.ended(e, ledger.Completed)
		if out.Claim.CompletedAt != w.now() || string(out.Claim.Result) != `{"charge": 1}` || out.Claim.ResultID != "r1" {
			w.Errorf("%+v", out.Claim)
		}
		v := w.decide(w.event("key"), ledger.DecisionCompleted)
		if string(v.Claim.Result) != `{"charge": 1}` || v.Claim.ResultID != "r1" || v.Claim.CompletedAt != w.now() {
			w.Errorf("%+v", v.Claim)
		}
	})
	w.row("of two receipts without ids the first stays", func(w *world) {
		c := w.grant(w.event("key"))
		first := complete(worker(c), "")
		first.Result = []byte(`1`)
		w.ended(first, ledger.Completed)
		second := complete(worker(c), "r2")
		second.Result = []byte(`2`)
		out := w.ended(second, ledger.Completed)
		if out.Changed || out.Claim.ResultID != "" || string(out.Claim.Result) != "1" {
			w.Errorf("%+v", out.Claim)
		}
	})
	w.row("an unknown key or reference", func(w *world) {
		w.refusedWith(completeKey(w.event("none").Key, "r"), "not_found")
		w.refusedWith(completeReference(w.source, "none", "r"), "not_found")
		c := w.grant(w.event("key"))
		w.ended(withReference(markUnknown(worker(c)), "ref"), ledger.Unknown)
		w.refusedWith(completeReference("other", "ref", "r"), "not_found")
		w.refusedWith(completeKey(ledger.Key{Source: w.source, IdempotencyKey: "key", Account: "a"}, "r"), "not_found")
	})
}

func markUnknownTable(w *world) {
	w.endings([]endingRow{
		{"mark-unknown", "processing", both, "newest", "unknown changed"},
		{"mark-unknown", "processing, over", both, "newest", "unknown changed"},
		{"mark-unknown", "completed", both, "newest", "completed"},
		{"mark-unknown", "failed", effectOnly, "newest", "unknown changed"},
		{"mark-unknown", "failed", eventOnly, "newest", "invalid_transition"},
		{"mark-unknown", "unknown", both, "newest", "unknown"},
		{"mark-unknown", "unknown, look", both, "newest", "unknown"},
		{"mark-unknown", "unknown, look", both, "look", "unknown kept"},
		{"mark-unknown", "unknown, look over", both, "look", "unknown kept"},
		{"mark-unknown", "review", both, "newest", "review"},
		{"mark-unknown", "pending, not now", eventOnly, "newest", "invalid_transition"},
		{"mark-unknown", "stale", both, "newest", "invalid_transition"},
		{"mark-unknown", "processing", both, "older", "lease_lost kept"},
		{"mark-unknown", "completed", both, "older", "lease_lost kept"},
		{"mark-unknown", "failed", both, "older", "lease_lost kept"},
		{"mark-unknown", "unknown", both, "older", "lease_lost kept"},
		{"mark-unknown", "unknown, look", both, "older", "lease_lost kept"},
		{"mark-unknown", "review", both, "older", "lease_lost kept"},
		{"mark-unknown", "pending, not now", eventOnly, "older", "lease_lost kept"},
		{"mark-unknown", "stale", both, "older", "lease_lost kept"},
	})
	w.row("an older reconcile lease", func(w *world) {
		w.ended(markUnknown(worker(w.grant(w.effect("key")))), ledger.Unknown)
		w.pass(time.Minute)
		old := w.looked("one")
		w.pass(5 * time.Minute)
		newer := w.looked("two")
		w.refusedWith(markUnknown(looker(old)), "lease_lost")
		w.refusedWith(notExecuted(looker(old)), "lease_lost")
		w.refusedWith(extend(looker(old), 60), "lease_lost")
		if again := w.looked("two"); again.LookToken() != newer.LookToken() {
			w.Error("an older reconciler's report ended the newer lease")
		}
		w.ended(complete(looker(old), "found"), ledger.Completed)
	})
}

func markFailedTable(w *world) {
	w.endings([]endingRow{
		{"mark-failed", "processing", eventOnly, "newest", "failed changed"},
		{"mark-failed", "processing, over", eventOnly, "newest", "failed changed"},
		{"mark-failed class, tries 2", "processing", eventOnly, "newest", "failed changed"},
		{"mark-failed not_executed", "processing", both, "newest", "failed changed"},
		{"mark-failed not_executed", "processing, over", effectOnly, "newest", "unknown changed"},
		{"mark-failed class, tries 1", "processing", effectOnly, "newest", "failed changed"},
		{"mark-failed class, tries 1", "processing, over", effectOnly, "newest", "unknown changed"},
		{"mark-failed class, tries 2", "processing", effectOnly, "newest", "unknown changed"},
		{"mark-failed class", "processing", effectOnly, "newest", "unknown changed"},
		{"mark-failed", "processing", effectOnly, "newest", "unknown changed"},
		{"mark-failed not now", "processing", eventOnly, "newest", "pending changed"},
		{"mark-failed not now", "processing, over", eventOnly, "newest", "pending changed"},
		{"mark-failed not now", "processing", effectOnly, "newest", "unknown changed"},
		{"mark-failed", "completed", both, "newest", "completed kept alert"},
		{"mark-failed not_executed", "completed", both, "newest", "completed kept alert"},
		{"mark-failed", "failed", both, "newest", "failed"},
		{"mark-failed not_executed", "failed", both, "newest", "failed"},
		{"mark-failed", "unknown", both, "newest", "unknown kept"},
		{"mark-failed not_executed", "unknown", both, "newest", "unknown kept"},
		{"mark-failed class, tries 1", "unknown", both, "newest", "unknown kept"},
		{"mark-failed not_executed", "unknown, look", both, "newest", "unknown kept"},
		{"mark-failed not_executed", "unknown, look late", both, "newest", "unknown kept"},
		{"mark-failed not_executed", "unknown, look", both, "look", "unknown kept"},
		{"mark-failed not_executed", "unknown, look late", both, "look", "failed changed"},
		{"mark-failed not_executed", "unknown, look over", both, "look", "unknown kept"},
		{"mark-failed class, tries 1", "unknown, look late", both, "look", "unknown kept"},
		{"mark-failed", "unknown, look late", both, "look", "unknown kept"},
		{"mark-failed", "review", both, "newest", "review"},
		{"mark-failed not_executed", "review", both, "newest", "review"},
		{"mark-failed", "pending, not now", eventOnly, "newest", "invalid_transition"},
		{"mark-failed not_executed", "pending, not now", eventOnly, "newest", "invalid_transition"},
		{"mark-failed not_executed", "stale", both, "newest", "invalid_transition"},
		{"mark-failed", "processing", both, "older", "lease_lost kept"},
		{"mark-failed not_executed", "processing", both, "older", "lease_lost kept"},
		{"mark-failed not now", "processing", eventOnly, "older", "lease_lost kept"},
		{"mark-failed not_executed", "completed", both, "older", "lease_lost kept"},
		{"mark-failed not_executed", "failed", both, "older", "lease_lost kept"},
		{"mark-failed not_executed", "unknown", both, "older", "lease_lost kept"},
		{"mark-failed not_executed", "review", both, "older", "lease_lost kept"},
		{"mark-failed not_executed", "stale", both, "older", "lease_lost kept"},
	})
	w.row("not now is due then", func(w *world) {
		c := w.grant(w.event("key"))
		out := w.ended(notNow(worker(c), 90), ledger.Pending)
		if out.Claim.DueAt != w.now().Add(90*time.Second) || out.Claim.Attempt != 0 {
			w.Errorf("due %v, attempt %d", out.Claim.DueAt.Time(), out.Claim.Attempt)
		}
		if again := w.grant(w.event("key")); again.Attempt != 1 || again.LeaseToken() == c.LeaseToken() {
			w.Errorf("attempt %d", again.Attempt)
		}
	})
	w.row("what was said is in the history", func(w *world) {
		c := w.grant(w.effect("key", owner("7:0:0")))
		w.ended(refused(worker(c), 2), ledger.Unknown)
		_, history := w.get(c.ID)
		last := history[len(history)-1]
		if last.HTTPStatus != 401 || last.ErrorClass != "auth" || last.Message != "401 Unauthorized" || last.By != "n8n" || last.Owner != "7:0:0" ||
			last.Attempt != 1 || last.At != w.now() {
			w.Errorf("%+v", last)
		}
	})
}

func extendTable(w *world) {
	w.endings([]endingRow{
		{"extend", "processing", both, "newest", "processing changed-lease"},
		{"extend", "processing, over", eventOnly, "newest", "processing changed-lease"},
		{"extend", "processing, over", effectOnly, "newest", "invalid_transition now=unknown"},
		{"extend", "completed", both, "newest", "lease_lost"},
		{"extend", "failed", both, "newest", "invalid_transition"},
		{"extend", "unknown", both, "newest", "invalid_transition"},
		{"extend", "unknown, look", both, "newest", "invalid_transition"},
		{"extend", "unknown, look", both, "look", "unknown changed-lease"},
		{"extend", "review", both, "newest", "invalid_transition"},
		{"extend", "pending, not now", eventOnly, "newest", "invalid_transition"},
		{"extend", "stale", both, "newest", "invalid_transition"},
		{"extend", "processing", both, "older", "lease_lost kept"},
		{"extend", "completed", both, "older", "lease_lost kept"},
		{"extend", "failed", both, "older", "lease_lost kept"},
		{"extend", "unknown", both, "older", "lease_lost kept"},
	})
	w.each("never earlier", both, func(x *subject) {
		x.grant()
		end := x.last.LeaseUntil
		if out := x.must(extend(worker(x.last), 10)); out.Claim.LeaseUntil != end {
			x.Errorf("the lease was cut to %v", out.Claim.LeaseUntil.Time())
		}
		x.pass(10 * time.Second)
		if out := x.must(extend(worker(x.last), 3600)); out.Claim.LeaseUntil != x.now().Add(time.Hour) {
			x.Errorf("the lease ends at %v", out.Claim.LeaseUntil.Time())
		}
		x.pass(time.Hour - time.Second)
		x.decide(x.request(), ledger.InProgress)
	})
	w.row("a taken over event", func(w *world) {
		c := w.grant(w.event("key"))
		w.pass(eventLease)
		w.grant(w.event("key"))
		w.refusedWith(extend(worker(c), 60), "lease_lost")
	})
	w.each("a reconcile lease", both, func(x *subject) {
		x.toState("unknown, look")
		if out := x.must(extend(looker(x.last), 3600)); out.Claim.LookUntil != x.now().Add(time.Hour) {
			x.Errorf("the lease ends at %v", out.Claim.LookUntil.Time())
		}
		x.must(extend(looker(x.last), 10))
		x.pass(time.Hour - time.Second)
		if got := x.look("another"); len(got) != 0 {
			x.Error("another reconciler got it")
		}
	})
}

// forgedTokens: an unknown or mangled token is not_found and moves nothing; so is a verb without a token.
func forgedTokens(w *world) {
	c := w.grant(w.effect("key"))
	other := w.grant(w.effect("other"))
	never := c
	never.Grant = 2
	unlooked := c
	unlooked.Look = 1
	stolen := c
	stolen.Secret = other.Secret
	gone := c
	gone.ID = fresh(w.T).ID
	for name, t := range map[string]ledger.Token{
		"a grant never issued": worker(never), "a look never issued": looker(unlooked), "another secret": worker(stolen), "no such claim": worker(gone),
	} {
		w.row(name, func(row *world) {
			row.source = w.source
			row.unwritten(name, func() {
				for _, e := range []*ledger.Ending{complete(t, "r"), markUnknown(t), notExecuted(t), extend(t, 60), withReference(markUnknown(t), "ref")} {
					row.refusedWith(e, "not_found")
				}
			})
		})
	}
	for _, verb := range []ledger.Verb{ledger.MarkUnknown, ledger.MarkFailed, ledger.Extend} {
		e := &ledger.Ending{Verb: verb, Key: c.Key, NotExecuted: true, LeaseSeconds: 60, CallerKey: "n8n"}
		if out, err := w.store.End(w.Context(), e); err == nil {
			w.Errorf("/%s without a token was taken: %s", verb, out.Claim.Status)
		}
	}
	w.status(c.ID, ledger.Processing)
}
