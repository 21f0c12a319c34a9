package api_test

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// A replay from the forecast to the end: nothing moves before it is asked for, the sample comes first, the rest waits
// for a person, and everything that it touched says so.
func TestLifeOfAReplay(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		ids := w.outage(t, 12)
		w.post(t, "/replays", obj{"selector": obj{"source": "shop"}, "limit": 10, "dry_run": true}).ok(t).has(t, obj{"matched": 10, "would_run": 10, "held": held(0, 0, 0)})
		w.letter(t, ids[0]).has(t, obj{"status": "dead", "replay_id": nil})
		w.get(t, "/replays").ok(t).has(t, obj{"items": "[]", "next_cursor": nil})
		w.leasedLetters(t, obj{}, 0)

		body := asking(obj{"limit": "10", "sample_size": 3})
		rep := w.starts(t, body).has(t, obj{
			"status": "sampling", "matched": 10, "held": held(0, 0, 0), "authorized_by": "asha@example.test", "approved_by": nil, "reason": "the outage is over",
			"expected_effects": obj{"invoices": 12}, "selector": obj{"source": "shop", "status": "dead"}, "limit": 10, "sample_size": 3, "max_concurrency": 2, "rate_per_minute": nil,
			"counts": counts(8, 2, 0, 0, 0), "created_at": "2026-11-30T20:00:00Z", "updated_at": "2026-11-30T20:00:00Z", "ended_at": nil,
		})
		id := rep.text("id")
		w.post(t, "/replays", body).ok(t).has(t, obj{"id": id, "changed": false})
		hasAll(t, w.member(t, rep, ids[0]), obj{
			"sample": true, "state": "active", "held": nil, "status": "queued", "reason": "requeued", "error_class": "validation", "workflow_id": "kT4bS0qX", "summary": w.letter(t, ids[0]).body["summary"],
			"claim_id": w.letter(t, ids[0]).body["claim_id"],
		})
		hasAll(t, w.member(t, rep, ids[9]), obj{"sample": false, "state": "waiting", "status": "dead", "reason": "validation"})
		w.letter(t, ids[10]).has(t, obj{"status": "dead", "replay_id": nil}) // beyond the limit

		// Only the sample is handed out, and nobody can approve what is not settled.
		for _, lease := range w.leasedLetters(t, obj{}, 2) {
			hasAll(t, lease, obj{"replay_id": id, "attempt_count": 2})
			w.succeeds(t, lease)
		}
		approval := obj{"authorized_by": "juma@example.test", "reason": "the sample is in the books"}
		w.moves(t, rep, "approve", approval).refused(t, 409, "invalid_transition").has(t, obj{"details": map[string]any{"id": id, "status": "sampling"}})
		w.plays(t, 1, 0)
		w.leasedLetters(t, obj{}, 0)
		w.replay(t, rep).has(t, obj{"status": "awaiting_approval", "counts": counts(7, 0, 0, 3, 0)})
		w.post(t, "/dlq/"+ids[9]+"/requeue", person).refused(t, 409, "invalid_transition")

		w.clock.advance(time.Minute)
		w.moves(t, rep, "approve", obj{"reason": "who is it?"}).refused(t, 400, "invalid_request").names(t, "authorized_by")
		w.moves(t, rep, "approve", approval).ok(t).has(t, obj{
			"status": "running", "changed": true, "approved_by": "juma@example.test", "authorized_by": "asha@example.test", "counts": counts(5, 2, 0, 3, 0), "updated_at": "2026-11-30T20:01:00Z",
		})
		w.moves(t, rep, "approve", approval).ok(t).has(t, obj{"status": "running", "changed": false})
		w.plays(t, 7, 1)
		w.leasedLetters(t, obj{}, 0)
		w.replay(t, rep).has(t, obj{"status": "done", "counts": counts(0, 0, 0, 9, 1), "ended_at": "2026-11-30T20:01:00Z"})
		w.moves(t, rep, "approve", approval).ok(t).has(t, obj{"status": "done", "changed": false}) // the answer may have been lost
		for verb, body := range map[string]any{"approve": and(approval, obj{"authorized_by": "eve@example.test"}), "pause": "", "cancel": obj{}} {
			w.moves(t, rep, verb, body).refused(t, 409, "invalid_transition").has(t, obj{"details": map[string]any{"id": id, "status": "done"}})
		}
		w.toldEverywhere(t, id, ids[0])
		// The same question after the end is another replay, of what is dead by now.
		w.starts(t, asking(obj{"limit": 10})).has(t, obj{"matched": 3})
	})
}

// toldEverywhere demands the replay's id in the history of what it touched.
func (w *world) toldEverywhere(t *testing.T, id, letter string) {
	t.Helper()
	l := w.letter(t, letter).has(t, obj{"replay_id": id, "status": "resolved"})
	attempts, _ := l.body["attempts"].([]any)
	var kinds []string
	for _, a := range attempts {
		a, _ := a.(obj)
		kinds = append(kinds, fmt.Sprint(a["kind"]))
		if in := a["replay_id"]; (in == id) != (a["kind"] != "report") {
			t.Errorf("replay_id of the entry %v is %v", a["kind"], in)
		}
		if a["kind"] == "selected" {
			hasAll(t, a, obj{"by": "asha@example.test", "reason": "the outage is over"})
		}
	}
	if got := strings.Join(kinds, " "); !strings.HasPrefix(got, "report selected requeued lease ") {
		t.Errorf("what happened to the letter: %s", got)
	}
	claim := w.get(t, "/claims/"+l.text("claim_id")).ok(t)
	if !strings.Contains(fmt.Sprint(claim.body["history"]), id) {
		t.Errorf("the claim's history does not name the replay: %s", claim.raw)
	}
	w.acted(t, "asha@example.test", obj{"message": "started replay " + id + " of 10 letters, 0 of them held", "reason": "the outage is over"})
	w.acted(t, "juma@example.test", obj{"message": "approved replay " + id, "reason": "the sample is in the books"})
}

// acted demands an act of a person in the history.
func (w *world) acted(tb testing.TB, by string, want obj) {
	tb.Helper()
	page := w.get(tb, "/history?by="+url.QueryEscape(by)).ok(tb)
	items, _ := page.body["items"].([]any)
	for _, item := range items {
		if item, _ := item.(obj); item["message"] == want["message"] && item["reason"] == want["reason"] {
			return
		}
	}
	tb.Errorf("/history does not have %v by %s: %s", want, by, clip(page.raw))
}

// What had half succeeded: the finished effect answers with its stored result, the other goes on under its old key.
func TestReplayRepeatsNothingThatIsDone(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		of := func(step, run string) obj { return and(holding("order-1", run), obj{"step": step}) }
		w.decides(t, "proceed", holding("order-1", "run-order-1"))
		crm := w.proceeds(t, of("crm", "run-order-1"))
		w.post(t, "/complete", obj{"lease_token": crm, "result_id": "contact-7", "result": obj{"contact": 7}}).ok(t)
		charge := w.decides(t, "proceed", of("charge", "run-order-1"))
		w.post(t, "/mark-failed", obj{"lease_token": charge.text("lease_token"), "http_status": 402, "tries": 1}).ok(t).has(t, obj{"status": "failed"})
		letter := w.refusedFor(t, "order-1").text("id")

		rep := w.starts(t, asking(nil)).has(t, obj{"matched": 1, "status": "sampling", "held": held(0, 0, 0)})
		lease := w.leasedLetters(t, obj{}, 1)[0]
		hasAll(t, lease, obj{"id": letter, "play": "workflow", "payload": obj{"order": "order-1"}})
		event := w.decides(t, "proceed", holding("order-1", "run-2")).has(t, obj{"attempt": 2})
		w.decides(t, "completed", of("crm", "run-2")).has(t, obj{"result_id": "contact-7", "result": obj{"contact": 7}})
		again := w.decides(t, "proceed", of("charge", "run-2")).has(t, obj{"attempt": 2, "provider_key": charge.text("provider_key")})
		w.post(t, "/complete", obj{"lease_token": again.text("lease_token"), "result_id": "ch_1"}).ok(t)
		w.replay(t, rep).has(t, obj{"status": "sampling", "counts": counts(0, 0, 1, 0, 0)}) // not done by an effect alone
		w.post(t, "/complete", obj{"lease_token": event.text("lease_token")}).ok(t)
		w.post(t, "/dlq/"+letter+"/resolve", token(lease)).ok(t).has(t, obj{"status": "resolved"})
		w.replay(t, rep).has(t, obj{"status": "done", "counts": counts(0, 0, 0, 1, 0)})
	})
}

// Letters that a replay leaves alone: their effects are unknown, their event is done, or a newer version is.
func TestReplayHoldsWhatItMayNotRun(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		lost := func(k, run string) string { // an effect without a receipt
			return w.decides(t, "proceed", and(holding(k, run), obj{"step": "charge", "lease_seconds": 60})).text("lease_token")
		}
		ids := map[string]string{}
		w.decides(t, "proceed", holding("order-unknown", "run-order-unknown"))
		w.post(t, "/mark-unknown", obj{"lease_token": lost("order-unknown", "run-order-unknown")}).ok(t)
		ids["unknown"] = w.refusedFor(t, "order-unknown").text("id")
		w.decides(t, "proceed", holding("order-shared", "run-order-shared"))
		w.post(t, "/mark-unknown", obj{"lease_token": lost("invoice-9", "run-order-shared")}).ok(t) // under a key of its own
		ids["shared"] = w.refusedFor(t, "order-shared").text("id")
		w.decides(t, "proceed", holding("order-silent", "run-order-silent"))
		lost("order-silent", "run-order-silent")
		ids["silent"] = w.refusedFor(t, "order-silent").text("id")
		w.clock.advance(time.Minute) // its lease is over, and nobody has noticed
		w.done(t, holding("order-completed", "run-order-completed"))
		ids["completed"] = w.refusedFor(t, "order-completed").has(t, obj{"reason": "failed_after_completion"}).text("id")
		ids["superseded"] = w.buried(t, "order-superseded", obj{"entity": "cus_88", "version": 1})
		w.done(t, obj{"source": "crm", "idempotency_key": "elsewhere", "entity": "cus_88", "version": 2}) // another source's entity
		free := w.buried(t, "order-free", obj{"entity": "cus_89", "version": 1})
		w.done(t, and(key("order-newer"), obj{"entity": "cus_88", "version": 2}))

		want := obj{"matched": 6, "held": held(3, 1, 1)}
		w.post(t, "/replays", asking(obj{"dry_run": true})).ok(t).has(t, want).has(t, obj{"would_run": 1})
		rep := w.starts(t, asking(nil)).has(t, want).has(t, obj{"status": "sampling", "counts": counts(0, 1, 0, 0, 5)})
		for name, why := range map[string]string{"unknown": "unknown", "shared": "unknown", "silent": "unknown", "completed": "completed", "superseded": "superseded"} {
			hasAll(t, w.member(t, rep, ids[name]), obj{"state": "held", "held": why, "sample": false, "status": "dead"})
			w.letter(t, ids[name]).has(t, obj{"status": "dead", "replay_id": nil})
		}
		hasAll(t, w.member(t, rep, free), obj{"state": "active", "sample": true})
		w.plays(t, 1, 0)
		w.replay(t, rep).has(t, and(want, obj{"status": "done", "counts": counts(0, 0, 0, 1, 5)}))

		// With nothing but held ones a replay is over at once; when a person has settled one of them it is free.
		w.starts(t, asking(nil)).has(t, obj{"matched": 5, "status": "done", "ended_at": "2026-11-30T20:01:00Z", "counts": counts(0, 0, 0, 0, 5)})
		claim := w.decides(t, "unknown", and(key("order-unknown"), obj{"step": "charge"})).text("claim_id")
		w.post(t, "/claims/"+claim+"/resolve", and(person, obj{"status": "completed", "result_id": "ch_1"})).ok(t)
		w.starts(t, asking(nil)).has(t, obj{"matched": 5, "held": held(2, 1, 1), "status": "sampling"})
	})
}

// Of many that ask the same at once, one starts a replay, and all get that one.
func TestOneReplayOfMany(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		w.outage(t, 4)
		var wg sync.WaitGroup
		var mu sync.Mutex
		ids, fresh := map[string]bool{}, 0
		for range 8 {
			wg.Go(func() {
				a, err := w.try(t, "POST", "/replays", text(t, asking(nil)))
				if err != nil || a.status != 200 {
					t.Errorf("%v: %d %s", err, a.status, clip(a.raw))
					return
				}
				mu.Lock()
				defer mu.Unlock()
				ids[a.text("id")] = true
				if a.body["changed"] == true {
					fresh++
				}
			})
		}
		wg.Wait()
		if len(ids) != 1 || fresh != 1 {
			t.Errorf("%d replays, %d times a new one; want one", len(ids), fresh)
		}
		// Another question while it is open finds none of its letters.
		w.starts(t, asking(obj{"limit": 50})).has(t, obj{"matched": 0, "status": "done"})
	})
}
