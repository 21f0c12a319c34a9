package storetest

import (
	"crypto/rand"
	"encoding/base64"
	"strings"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

func status(n int64) func(*deadletter.Ending) { return func(e *deadletter.Ending) { e.HTTPStatus = n } }

func retryAfter(seconds int64) func(*deadletter.Ending) {
	return func(e *deadletter.Ending) { e.RetryAfter = &seconds }
}

// later is /fail with retry_after alone.
func later(seconds int64) func(*deadletter.Ending) {
	return func(e *deadletter.Ending) { e.HTTPStatus, e.NotNow, e.RetryAfter = 0, true, &seconds }
}

// letterEndings: what a worker says under its live lease, and says again.
func letterEndings(w *world) {
	resolve := func(e *deadletter.Ending) { e.Result = []byte(`{"id":9007199254740993}`) }
	w.row("resolve", func(w *world) {
		w.dueLetters(1)
		l := w.handed()
		got := w.closed(l.ID, by(l, deadletter.Resolve, resolve), deadletter.Resolved, "replayed")
		if string(got.LastResult) != `{"id":9007199254740993}` || got.AttemptCount != 2 {
			w.Errorf("%+v", got)
		}
		w.repeated(l.ID, by(l, deadletter.Resolve, resolve), deadletter.Resolved)
		w.repeated(l.ID, by(l, deadletter.Fail), deadletter.Resolved)
		w.turnedAway(l.ID, by(l, deadletter.Extend, leaseFor(60)), "lease_lost")
		w.pass(2 * time.Hour)
		w.withheld("it is resolved")
	})
	w.row("fail", func(w *world) {
		w.dueLetters(1)
		for n := int64(2); n <= 6; n++ {
			l := w.handed()
			w.pass(time.Second)
			want, reason := deadletter.Queued, "transient"
			if n == 6 {
				want, reason = deadletter.Dead, "attempts_exhausted"
			}
			got := w.closed(l.ID, by(l, deadletter.Fail), want, reason)
			if got.AttemptCount != n || got.HTTPStatus != 503 {
				w.Errorf("%+v", got)
			}
			w.repeated(l.ID, by(l, deadletter.Fail), want)
			w.turnedAway(l.ID, by(l, deadletter.Resolve), "lease_lost")
			w.turnedAway(l.ID, by(l, deadletter.Extend, leaseFor(60)), "lease_lost")
			if n < 6 {
				w.dueAfter(got, w.now(), backoff(n))
				w.pass(backoff(n) * 2)
			}
		}
		if n := w.alerts(); n != 1 {
			w.Errorf("%d alerts, want 1", n)
		}
	})
	for _, row := range []struct {
		name    string
		ending  func(*deadletter.Ending)
		status  deadletter.Status
		reason  string
		attempt int64
		wait    time.Duration
	}{
		{"401", status(401), deadletter.Dead, "auth", 2, 0},
		{"429", status(429), deadletter.Queued, "rate_limited", 2, backoff(2)},
		{"503, retry after 600", retryAfter(600), deadletter.Queued, "transient", 2, 600 * time.Second},
		{"503, retry after 1", retryAfter(1), deadletter.Queued, "transient", 2, backoff(2)},
		{"not now", later(45), deadletter.Queued, "not_now", 1, 45 * time.Second},
		{"an error that says it", func(e *deadletter.Ending) {
			e.HTTPStatus, e.Error = 0, []byte(`{"message":"connect ECONNREFUSED 127.0.0.1:1","code":"ECONNREFUSED"}`)
		}, deadletter.Queued, "transient", 2, backoff(2)},
	} {
		w.row("fail, "+row.name, func(w *world) {
			w.dueLetters(1)
			l := w.handed()
			got := w.closed(l.ID, by(l, deadletter.Fail, row.ending), row.status, row.reason)
			if got.AttemptCount != row.attempt {
				w.Errorf("attempt %d, want %d", got.AttemptCount, row.attempt)
			}
			if row.status == deadletter.Queued {
				w.dueAfter(got, w.now(), row.wait)
			} else if w.alerts() != 1 {
				w.Errorf("%d alerts, want 1", w.alerts())
			}
			w.repeated(l.ID, by(l, deadletter.Fail, row.ending), row.status)
		})
	}
	for _, row := range []struct {
		name   string
		claim  bool
		status deadletter.Status
		reason string
	}{
		{"a request that may have been executed", false, deadletter.Dead, "outcome_unknown"},
		{"a workflow whose steps claim", true, deadletter.Queued, "transient"},
	} {
		w.row("fail, "+row.name, func(w *world) {
			if row.claim {
				w.grant(w.event("key", w.run("7")))
			}
			id := w.told(w.failed("7")).ID
			w.close(id, byPerson(deadletter.Requeue))
			l := w.handed()
			w.closed(id, by(l, deadletter.Fail), row.status, row.reason)
		})
	}
	w.row("extend", func(w *world) {
		w.dueLetters(1)
		l := w.handed()
		w.pass(100 * time.Second)
		if out, code := w.close(l.ID, by(l, deadletter.Extend, leaseFor(300))); code != "" || out.Letter.LeaseUntil != w.now().Add(300*time.Second) {
			w.Errorf("%q, %v", code, out.Letter.LeaseUntil.Time())
		}
		if out, code := w.close(l.ID, by(l, deadletter.Extend, leaseFor(1))); code != "" || out.Letter.LeaseUntil != w.now().Add(300*time.Second) {
			w.Errorf("%q, %v: a lease never ends earlier", code, out.Letter.LeaseUntil.Time())
		}
		w.pass(299 * time.Second)
		w.sweptLetters()
		w.closed(l.ID, by(l, deadletter.Resolve), deadletter.Resolved, "replayed")
	})
}

// letterPeople: what an operator decides, with a name and a reason, unless a worker holds the letter.
func letterPeople(w *world) {
	w.row("requeue the dead", func(w *world) {
		id := w.told(w.failed("7")).ID
		w.stands(id, deadletter.Dead, "outcome_unknown", 1)
		w.pass(time.Minute)
		l := w.closed(id, byPerson(deadletter.Requeue), deadletter.Queued, "requeued")
		if l.NextRetryAt != w.now() || l.AttemptCount != 1 || l.MaxAttempts != 6 {
			w.Errorf("%+v", l)
		}
		w.repeated(id, byPerson(deadletter.Requeue), deadletter.Queued)
		_, entries := w.letter(id)
		if last := entries[len(entries)-1]; last.Kind != "requeued" || last.By != "ada" || last.Reason != "looked it up" {
			w.Errorf("%+v", last)
		}
		if got := w.handed(); got.ID != id || got.AttemptCount != 2 {
			w.Errorf("%+v", got)
		}
	})
	w.row("requeue what is used up", func(w *world) {
		id := w.told(w.failed("7", harmless, maxAttempts(1))).ID
		w.stands(id, deadletter.Dead, "attempts_exhausted", 1)
		if l := w.closed(id, byPerson(deadletter.Requeue), deadletter.Queued, "requeued"); l.MaxAttempts != 2 || l.AttemptCount != 1 {
			w.Errorf("%+v", l)
		}
		l := w.handed()
		w.closed(id, by(l, deadletter.Fail), deadletter.Dead, "attempts_exhausted")
	})
	w.row("requeue what is queued for later", func(w *world) {
		id := w.told(w.failed("7", harmless)).ID
		w.withheld("it is not due")
		if l := w.closed(id, byPerson(deadletter.Requeue), deadletter.Queued, "requeued"); l.NextRetryAt != w.now() {
			w.Errorf("%+v", l)
		}
		w.handed()
	})
	for _, verb := range []deadletter.Verb{deadletter.Resolve, deadletter.Discard} {
		w.row("requeue after /"+string(verb), func(w *world) {
			id := w.told(w.failed("7")).ID
			w.close(id, byPerson(verb))
			w.closed(id, byPerson(deadletter.Requeue), deadletter.Queued, "requeued")
			w.handed()
		})
	}
	w.row("discard", func(w *world) {
		for execution, mod := range map[string]tell{"7": harmless, "8": method("POST")} {
			id := w.told(w.failed(execution, mod)).ID
			w.closed(id, byPerson(deadletter.Discard), deadletter.Discarded, "discarded")
			w.repeated(id, byPerson(deadletter.Discard), deadletter.Discarded)
		}
		w.pass(2 * time.Hour)
		w.withheld("they are discarded")
	})
	w.row("resolve", func(w *world) {
		for execution, mod := range map[string]tell{"7": harmless, "8": method("POST")} {
			id := w.told(w.failed(execution, mod)).ID
			w.closed(id, byPerson(deadletter.Resolve), deadletter.Resolved, "resolved_by_person")
			w.repeated(id, byPerson(deadletter.Resolve), deadletter.Resolved)
			w.turnedAway(id, byPerson(deadletter.Discard), "invalid_transition")
			_, entries := w.letter(id)
			if last := entries[len(entries)-1]; last.Kind != "resolved" || last.By != "ada" || last.Reason != "looked it up" {
				w.Errorf("%+v", last)
			}
		}
	})
	w.row("not while leased", func(w *world) {
		w.dueLetters(1)
		l := w.handed()
		for _, verb := range []deadletter.Verb{deadletter.Requeue, deadletter.Discard, deadletter.Resolve} {
			w.turnedAway(l.ID, byPerson(verb), "lease_live")
		}
		w.closed(l.ID, by(l, deadletter.Resolve), deadletter.Resolved, "replayed")
	})
	for _, verb := range []deadletter.Verb{deadletter.Requeue, deadletter.Discard, deadletter.Resolve} {
		w.row("once the lease is over, /"+string(verb), func(w *world) {
			w.dueLetters(1)
			l := w.handed()
			w.pass(300 * time.Second)
			if out, code := w.close(l.ID, byPerson(verb)); code != "" || !out.Changed {
				w.Fatalf("%q, changed %v", code, out.Changed)
			}
			w.turnedAway(l.ID, by(l, deadletter.Extend, leaseFor(60)), "lease_lost")
			if verb != deadletter.Resolve {
				w.turnedAway(l.ID, by(l, deadletter.Resolve), "lease_lost")
			}
		})
	}
	w.row("without a name", func(w *world) {
		id := w.told(w.failed("7")).ID
		for _, verb := range []deadletter.Verb{deadletter.Fail, deadletter.Extend} {
			w.turnedAway(id, byPerson(verb), "invalid_request")
		}
	})
	said, _, err := w.store.History(w.Context(), ledger.HistoryFilter{By: "ada", Limit: 200})
	if err != nil || len(said) == 0 || said[0].Reason != "looked it up" || !strings.Contains(said[0].Message, "letter") {
		w.Errorf("%v: what people did is not in the history: %+v", err, said)
	}
}

// letterTokens: only the newest token moves a letter, and none that was not handed out is known.
func letterTokens(w *world) {
	ids := w.dueLetters(2)
	both := w.hand("")
	a, b := both[0], both[1]
	verbs := []deadletter.Verb{deadletter.Resolve, deadletter.Fail, deadletter.Extend}
	for _, verb := range verbs {
		w.turnedAway(a.ID, by(b, verb, leaseFor(60)), "not_found")
		for range 3 {
			forged := by(a, verb, leaseFor(60))
			forged.Token = forgedToken(a.LeaseToken())
			w.turnedAway(a.ID, forged, "not_found")
		}
		ahead := a
		ahead.Lease++
		w.turnedAway(a.ID, by(ahead, verb, leaseFor(60)), "not_found")
		never := by(a, verb, leaseFor(60))
		if _, err := w.store.EndLetter(w.Context(), "01926b3e-0000-7000-8000-000000000000", never); w.code(err) != "not_found" {
			w.Errorf("an unknown letter: %v", err)
		}
	}
	if _, _, err := w.store.GetLetter(w.Context(), "no such letter"); w.code(err) != "not_found" {
		w.Errorf("an unknown letter: %v", err)
	}
	w.pass(2 * time.Hour)
	next := w.hand("")
	if len(next) != len(ids) {
		w.Fatalf("%d letters, want %d", len(next), len(ids))
	}
	for _, verb := range verbs {
		w.turnedAway(a.ID, by(a, verb, leaseFor(60)), "lease_lost")
	}
	for _, l := range next {
		w.closed(l.ID, by(l, deadletter.Resolve), deadletter.Resolved, "replayed")
	}
	w.turnedAway(a.ID, by(a, deadletter.Resolve), "lease_lost")
}

// forgedToken is a token of the same letter and lease with another proof.
func forgedToken(text string) deadletter.Token {
	prefix, body, _ := strings.Cut(text, "_")
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil {
		panic(err)
	}
	_, _ = rand.Read(raw[len(raw)-16:])
	t, ok := deadletter.ParseToken(prefix + "_" + base64.RawURLEncoding.EncodeToString(raw))
	if !ok {
		panic("not a token any more")
	}
	return t
}
