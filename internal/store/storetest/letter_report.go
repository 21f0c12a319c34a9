package storetest

import (
	"fmt"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// letterDecisions: what comes due by itself is what can do nothing twice; everything else waits for a person, who
// is told once.
func letterDecisions(w *world) {
	transient, auth := "transient", "auth"
	for _, row := range []struct {
		name   string
		mods   []tell
		status deadletter.Status
		reason string
	}{
		{"may have happened", nil, deadletter.Dead, "outcome_unknown"},
		{"PATCH", []tell{method("PATCH")}, deadletter.Dead, "outcome_unknown"},
		{"GET", []tell{method("GET")}, deadletter.Queued, transient},
		{"HEAD", []tell{method("HEAD")}, deadletter.Queued, transient},
		{"PUT", []tell{method("PUT")}, deadletter.Queued, transient},
		{"DELETE", []tell{method("DELETE")}, deadletter.Queued, transient},
		{"own key", []tell{func(r *deadletter.Report) { r.IdempotencyKey = "order-1" }}, deadletter.Queued, transient},
		{"safe to repeat", []tell{func(r *deadletter.Report) { r.SafeToRepeat = true }}, deadletter.Queued, transient},
		{"known not to have happened", []tell{verdict(refusedConnection)}, deadletter.Queued, transient},
		{"not retryable", []tell{verdict(wrongCredential)}, deadletter.Dead, auth},
		{"not retryable, safe to repeat", []tell{verdict(wrongCredential), harmless}, deadletter.Dead, auth},
		{"lease_lost", []tell{refusedBy("lease_lost")}, deadletter.Resolved, "lease_lost"},
		{"lease_live", []tell{refusedBy("lease_live")}, deadletter.Resolved, "lease_live"},
		{"result_conflict", []tell{refusedBy("result_conflict")}, deadletter.Resolved, "result_conflict"},
		{"error workflow", []tell{byHandler, harmless}, deadletter.Dead, "handler_failed"},
		{"used up at once", []tell{harmless, maxAttempts(1)}, deadletter.Dead, "attempts_exhausted"},
	} {
		w.row(row.name, func(w *world) {
			r := w.failed("7", row.mods...)
			id := w.told(r).ID
			l := w.stands(id, row.status, row.reason, 1)
			if l.Reports != 1 || l.Play != deadletter.PlayRequest || l.ProviderKey != r.IdempotencyKey || l.ClaimID != "" {
				w.Errorf("%+v", l)
			}
			wantAlerts := 0
			switch row.status {
			case deadletter.Queued:
				w.dueAfter(l, w.now(), backoff(1))
			case deadletter.Dead:
				wantAlerts = 1
			}
			if got := w.alerts(); got != wantAlerts {
				w.Errorf("%d alerts, want %d", got, wantAlerts)
			}
			w.known(r, id)
			if row.status != deadletter.Queued {
				w.pass(2 * time.Hour)
				w.withheld("it is not queued")
			}
		})
	}
}

// letterOfRun: where the execution holds claims its workflow is run again, whatever request failed.
func letterOfRun(w *world) {
	for _, row := range []struct {
		name   string
		claim  func(*world) *ledger.Request
		mods   []tell
		status deadletter.Status
		reason string
	}{
		{"event", func(w *world) *ledger.Request { return w.event("key", w.run("7"), payload(`{"n":1}`)) }, nil, deadletter.Queued, "transient"},
		{"effect", func(w *world) *ledger.Request { return w.effect("key", w.run("7"), payload(`{"n":1}`), to("crm")) }, nil, deadletter.Queued, "transient"},
		{"not retryable", func(w *world) *ledger.Request { return w.event("key", w.run("7"), payload(`{"n":1}`)) }, []tell{verdict(wrongCredential)}, deadletter.Dead, "auth"},
		{"of no known workflow", func(w *world) *ledger.Request {
			return w.event("key", w.run("7"), payload(`{"n":1}`), workflow(""))
		}, nil, deadletter.Queued, "transient"},
	} {
		w.row(row.name, func(w *world) {
			c := w.grant(row.claim(w))
			w.pass(time.Second)
			id := w.told(w.failed("7", row.mods...)).ID
			l := w.stands(id, row.status, row.reason, 1)
			if l.ClaimID != c.ID || l.Play != deadletter.PlayWorkflow || l.ProviderKey != c.ProviderKey || string(l.Payload) != `{"n":1}` ||
				l.Key.Source != c.Key.Source || l.Key.IdempotencyKey != "key" || l.Destination != c.Destination {
				w.Errorf("%+v", l)
			}
			want := ledger.Failed
			if c.Kind == ledger.Effect {
				want = ledger.Processing // only the destination knows
			}
			w.status(c.ID, want)
			w.only()
		})
	}
	w.row("another workflow's execution of this number", func(w *world) {
		c := w.grant(w.event("key", w.run("77"), workflow("Other")))
		l := w.told(w.failed("77"))
		if l.ClaimID != "" || l.Play != deadletter.PlayRequest {
			w.Errorf("%+v", l)
		}
		w.status(c.ID, ledger.Processing)
	})
}

// letterFields: a letter keeps what the report said, and finds its payload: given, else the claim's, else the failing
// request's, else n8n may know.
func letterFields(w *world) {
	w.row("all", func(w *world) {
		l := w.told(w.failed("7", input(`[1]`), atDestination("stripe", "crm"), maxAttempts(3), func(r *deadletter.Report) {
			r.Key.Account, r.Key.IdempotencyKey = "acct_1", "evt_1"
		}))
		got, _ := w.letter(l.ID)
		if got.WorkflowID != w.wf() || got.WorkflowName != "Orders" || got.ExecutionID != "7" || got.Node != "Send" || got.HTTPStatus != 503 ||
			got.Method != "POST" || got.URL != "https://api.example.test/orders" || got.Message != "Service Unavailable" ||
			string(got.Error) != `{"message":"Service Unavailable"}` || got.Summary != unavailable.Summary || got.MaxAttempts != 3 ||
			got.Class != unavailable.Class || !got.Retryable || got.Outcome != unavailable.Outcome || got.Backoff != 60 ||
			got.Key != (ledger.Key{Source: "stripe", Account: "acct_1", IdempotencyKey: "evt_1"}) || got.Destination != "crm" ||
			got.CreatedAt != w.now() || got.UpdatedAt != w.now() {
			w.Errorf("%+v", got)
		}
		if _, entries := w.letter(l.ID); kinds(entries) != "report" || entries[0].ExecutionID != "7" || entries[0].WorkflowID != w.wf() ||
			entries[0].Node != "Send" || entries[0].HTTPStatus != 503 || entries[0].Class != "transient" || entries[0].By != "n8n" || entries[0].Attempt != 1 {
			w.Errorf("%+v", entries)
		}
	})
	body := func(r *deadletter.Report) { r.RequestBody = []byte(`"body"`) }
	for _, row := range []struct {
		name    string
		claimed bool
		mods    []tell
		want    string
		state   deadletter.InputState
	}{
		{"given", true, []tell{input(`"given"`), body}, `"given"`, deadletter.InputStored},
		{"claimed", true, []tell{body}, `"claimed"`, deadletter.InputStored},
		{"body", false, []tell{body}, `"body"`, deadletter.InputStored},
		{"wanted", false, []tell{method("")}, "", deadletter.InputWanted},
		{"of a request without a body", false, nil, "", deadletter.InputMissing}, // it is sent again as it was
		{"none", false, []tell{func(r *deadletter.Report) { r.ExecutionID, r.Trigger = "", true }}, "", deadletter.InputMissing},
	} {
		w.row("payload "+row.name, func(w *world) {
			if row.claimed {
				w.grant(w.event("key", w.run("7"), payload(`"claimed"`)))
			}
			l, _ := w.letter(w.told(w.failed("7", row.mods...)).ID)
			if string(l.Payload) != row.want || l.InputState != row.state {
				w.Errorf("payload %q, %s; want %q, %s", l.Payload, l.InputState, row.want, row.state)
			}
		})
	}
}

// letterIdentity: the claim, else the workflow and its event, else the run, else the bytes.
func letterIdentity(w *world) {
	established := func(ms int64) tell { return func(r *deadletter.Report) { r.Established = ms } }
	anonymous := func(r *deadletter.Report) { r.ExecutionID, r.Established = "", 0 }
	for _, row := range []struct {
		name   string
		a, b   []tell
		ea, eb string
		one    bool
	}{
		{"one event, two executions", []tell{ofEvent("evt_1")}, []tell{ofEvent("evt_1")}, "7", "8", true},
		{"two events", []tell{ofEvent("evt_1")}, []tell{ofEvent("evt_2")}, "7", "8", false},
		{"one event id of two workflows", []tell{ofEvent("evt_1")}, []tell{ofEvent("evt_1"), inWorkflow("Other")}, "7", "8", false},
		{"two executions", nil, nil, "7", "8", false},
		{"one number, before and after n8n began to count anew", nil, []tell{established(1_796_025_600_001)}, "7", "7", false},
		{"one number in two workflows", nil, []tell{inWorkflow("Other")}, "7", "7", false},
		{"nothing but other bytes", []tell{anonymous}, []tell{anonymous}, "", "", false},
		{"nothing but the same bytes", []tell{anonymous, sameBytes([]byte("digest"))}, []tell{anonymous, sameBytes([]byte("digest"))}, "", "", true},
	} {
		w.row(row.name, func(w *world) {
			a, b := w.failed(row.ea, row.a...), w.failed(row.eb, row.b...)
			if row.name == "nothing but the same bytes" {
				a.Digest = append(a.Digest, w.source...)
				b.Digest = a.Digest
			}
			first, _ := w.tell(a)
			second, _ := w.tell(b)
			if got := first.ID == second.ID; got != row.one {
				w.Errorf("one letter: %v, want %v (%q, %q)", got, row.one, first.Identity, second.Identity)
			}
			w.known(a, first.ID)
			w.known(b, second.ID)
		})
	}
}

// letterDuplicates: the same bytes, and an execution that the letter knows, change nothing, however late they come.
func letterDuplicates(w *world) {
	w.row("of an event id", func(w *world) {
		first := w.failed("7", ofEvent("evt"), harmless)
		id := w.told(first).ID
		w.known(first, id)
		w.known(w.failed("7", ofEvent("evt"), harmless), id) // other bytes
		w.pass(time.Minute)
		second := w.told(w.failed("8", ofEvent("evt"), harmless))
		if second.ID != id {
			w.Fatalf("another letter: %s", second.Identity)
		}
		l := w.stands(id, deadletter.Queued, "transient", 2)
		if l.Reports != 2 || l.ExecutionID != "8" {
			w.Errorf("%+v", l)
		}
		w.dueAfter(l, w.now(), backoff(2))
		w.known(first, id)
		w.known(w.failed("7", ofEvent("evt")), id)
		w.closed(id, byPerson(deadletter.Discard), deadletter.Discarded, "discarded")
		w.known(first, id)
	})
	w.row("of a claim", func(w *world) {
		c := w.grant(w.event("key", w.run("7")))
		first := w.failed("7")
		id := w.told(first).ID
		w.known(first, id)
		w.known(w.failed("7"), id)
		again := w.grant(w.event("key", w.run("8")))
		w.known(first, id)
		w.status(c.ID, ledger.Processing)
		w.ended(complete(worker(again), "r"), ledger.Completed)
		w.known(first, id)
		w.stands(id, deadletter.Resolved, "completed", 1)
	})
}

// letterRetries: a failed retry is another attempt of the letter that knows the execution which it retried.
func letterRetries(w *world) {
	w.row("without claims", func(w *world) {
		id := w.told(w.failed("7", harmless)).ID
		for i, retry := range []string{"8", "9", "10", "11"} {
			of := []string{"7", "8", "7", "10"}[i] // of the one before, or of the first again
			if l := w.told(w.failed(retry, harmless, retryOf(of))); l.ID != id {
				w.Fatalf("the retry %s is another letter: %s", retry, l.Identity)
			}
			l := w.stands(id, deadletter.Queued, "transient", int64(i+2))
			w.dueAfter(l, w.now(), backoff(int64(i+2)))
		}
		w.told(w.failed("12", harmless, retryOf("11")))
		l := w.stands(id, deadletter.Dead, "attempts_exhausted", 6)
		if l.Reports != 6 || w.alerts() != 1 {
			w.Errorf("%d reports, %d alerts", l.Reports, w.alerts())
		}
	})
	w.row("of a claim's run, from the node that failed", func(w *world) {
		c := w.grant(w.event("key", w.run("7")))
		id := w.told(w.failed("7")).ID
		if l := w.told(w.failed("8", retryOf("7"))); l.ID != id {
			w.Fatalf("another letter: %s", l.Identity)
		}
		w.stands(id, deadletter.Queued, "transient", 2)
		w.status(c.ID, ledger.Failed)
	})
	w.row("of a claim's run, from its beginning", func(w *world) {
		c := w.grant(w.event("key", w.run("7")))
		id := w.told(w.failed("7")).ID
		w.grant(w.event("key", w.run("8")))
		if l := w.told(w.failed("8", retryOf("7"))); l.ID != id {
			w.Fatalf("another letter: %s", l.Identity)
		}
		w.stands(id, deadletter.Queued, "transient", 2)
		w.status(c.ID, ledger.Failed)
	})
	w.row("that claims first", func(w *world) {
		id := w.told(w.failed("7", harmless)).ID
		c := w.grant(w.event("key", w.run("8")))
		if l := w.told(w.failed("8", retryOf("7"))); l.ID != id {
			w.Fatalf("another letter: %s", l.Identity)
		}
		if l := w.only(); l.ClaimID != c.ID || l.Play != deadletter.PlayWorkflow || l.Reports != 2 {
			w.Errorf("%+v", l)
		}
		w.grant(w.event("key", w.run("9")))
		w.told(w.failed("9"))
		if l := w.only(); l.Reports != 3 || l.AttemptCount < 2 {
			w.Errorf("%+v", l)
		}
		again := w.grant(w.event("key", w.run("10"), lease(60)))
		w.pass(time.Minute)
		w.sweptLetters()
		if l := w.only(); l.ID != id || l.Status != deadletter.Queued || l.Reason != "lease_expired" {
			w.Errorf("%+v", l)
		}
		w.ended(complete(worker(again), "r"), ledger.Completed)
		if l := w.only(); l.Status != deadletter.Resolved || l.Reason != "completed" {
			w.Errorf("%+v", l)
		}
	})
	w.row("that claims two events", func(w *world) {
		id := w.told(w.failed("7", harmless)).ID
		w.grant(w.event("a", w.run("8")))
		w.pass(time.Second)
		w.grant(w.event("b", w.run("8")))
		r := w.failed("8", retryOf("7"))
		if l := w.told(r); l.ID != id || l.Key.IdempotencyKey != "a" {
			w.Fatalf("another letter: %s of %q", l.Identity, l.Key.IdempotencyKey)
		}
		if n := len(w.letters()); n != 2 {
			w.Errorf("%d letters, want one for each event", n)
		}
		w.known(r, id)
	})
	w.row("of what nobody reported", func(w *world) {
		w.told(w.failed("7", harmless))
		w.told(w.failed("9", harmless, retryOf("8")))
		w.told(w.failed("10", harmless, retryOf("7"), inWorkflow("Other")))
		if n := len(w.letters()); n != 2 {
			w.Errorf("%d letters, want 2", n)
		}
	})
	for _, verb := range []deadletter.Verb{deadletter.Resolve, deadletter.Discard} {
		w.row("after /"+string(verb), func(w *world) {
			id := w.told(w.failed("7", harmless)).ID
			if out, code := w.close(id, byPerson(verb)); code != "" || out.Letter.Status.Open() {
				w.Fatalf("%s, %q", out.Letter.Status, code)
			}
			w.told(w.failed("8", harmless, retryOf("7")))
			l := w.stands(id, deadletter.Queued, "transient", 2)
			w.dueAfter(l, w.now(), backoff(2))
		})
	}
}

// letterHandlers: error workflows that fail themselves are one counted letter per workflow, never retried.
func letterHandlers(w *world) {
	var id string
	for i := range 3 {
		l := w.told(w.failed(fmt.Sprint(7+i), byHandler, harmless, verdict(refusedConnection)))
		if id != "" && l.ID != id {
			w.Errorf("another letter: %s", l.Identity)
		}
		id = l.ID
	}
	if l, _ := w.letter(id); l.Reports != 3 || l.Status != deadletter.Dead || l.Reason != "handler_failed" {
		w.Errorf("%+v", l)
	}
	w.known(w.failed("8", byHandler), id)
	if other := w.told(w.failed("7", byHandler, inWorkflow("Other"))); other.ID == id {
		w.Error("two workflows share a letter")
	}
	if plain := w.told(w.failed("20", harmless)); plain.ID == id {
		w.Error("a failure of the workflow itself is the handler's letter")
	}
	w.pass(time.Hour)
	if out := w.hand(""); len(out) != 1 || out[0].ID == id {
		w.Errorf("handed out: %+v", out)
	}
}
