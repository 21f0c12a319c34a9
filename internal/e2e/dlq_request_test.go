//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// retryLater is an answer that says when to come back.
func retryLater(status int, retryAfter string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", retryAfter)
		w.WriteHeader(status)
	}
}

// TestDLQRequests lets the one request of a workflow fail in many ways and has
// the retry worker send it again. Each step is one attempt: the first is the
// workflow's own, each other the worker's after the letter was made due by hand.
func TestDLQRequests(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared.n8n)
	r.newWorker(t, workerOptions{workflowID: r.workflowID, requests: map[string]string{r.workflowID: r.destination.URL + "/*"}, callTimeoutMS: 1500})
	ok := respond(http.StatusOK, "application/json", `{"id":"x","ok":true}`)
	unavailable := respond(http.StatusServiceUnavailable, "text/html", `<h1>busy</h1>`)
	invalid := respond(http.StatusUnprocessableEntity, "application/json", `{"error":{"message":"no such product"}}`)

	type step struct {
		answer         http.HandlerFunc
		status, reason string
	}
	for name, tc := range map[string]struct {
		noKey bool // the workflow sends no Idempotency-Key
		steps []step
		due   time.Duration // at least this far away after the last step
	}{
		"429 then ok":     {noKey: true, steps: []step{{retryLater(429, "7"), "queued", "rate_limited"}, {ok, "resolved", "replayed"}}},
		"429 again":       {steps: []step{{retryLater(429, "7"), "queued", "rate_limited"}, {retryLater(429, "4000"), "queued", "rate_limited"}}, due: 3900 * time.Second},
		"429 by date":     {steps: []step{{retryLater(429, "7"), "queued", "rate_limited"}, {retryLater(429, "Wed, 01 Jan 2100 00:00:00 GMT"), "queued", "rate_limited"}}, due: 24 * time.Hour},
		"503 twice":       {steps: []step{{unavailable, "queued", "transient"}, {unavailable, "queued", "transient"}, {ok, "resolved", "replayed"}}},
		"503 without key": {noKey: true, steps: []step{{unavailable, "dead", "outcome_unknown"}}},
		"422":             {steps: []step{{invalid, "dead", "validation"}}},
		"422 later":       {steps: []step{{unavailable, "queued", "transient"}, {invalid, "dead", "validation"}}},
		"401":             {steps: []step{{respond(401, "application/json", `{"message":"who are you"}`), "dead", "auth"}}},
		"hangs":           {steps: []step{{silent, "queued", "transient"}, {silent, "queued", "transient"}, {ok, "resolved", "replayed"}}},
		"hangs, no key":   {noKey: true, steps: []step{{silent, "dead", "outcome_unknown"}}},
		"hangs up":        {steps: []step{{hangUp, "queued", "transient"}, {hangUp, "queued", "transient"}, {ok, "resolved", "replayed"}}},
		"error in a 200":  {steps: []step{{unavailable, "queued", "transient"}, {respond(200, "application/json", `{"ok":false,"error":"not_allowed"}`), "dead", "unclassified"}}},
		"empty error":     {steps: []step{{unavailable, "queued", "transient"}, {respond(200, "application/json", `{"ok":true,"error":{}}`), "resolved", "replayed"}}},
		"empty answer":    {steps: []step{{unavailable, "queued", "transient"}, {respond(204, "", ``), "resolved", "replayed"}}},
		"redirect": {steps: []step{
			{unavailable, "queued", "transient"},
			{func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }, "dead", "unclassified"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			name := strings.NewReplacer(" ", "-", ",", "").Replace(name)
			path := "/" + name
			event := map[string]any{"case": name, "shop": "Zoë & Co", "note": "Zoë says \"hi\"\n{{ 1 + 1 }}", "big": []any{1.5, nil, map[string]any{"a": "ü"}}}
			if !tc.noKey {
				event["key"] = "order-" + r.name
			}
			for _, step := range tc.steps {
				r.destination.scriptPath(path, step.answer)
			}
			r.send(t, event)
			var l letter
			for i, step := range tc.steps {
				if i > 0 {
					if err := shared.holdfast.requeue(testContext(t), l.ID); err != nil {
						t.Fatal(err)
					}
				}
				l = r.waitLetter(t, name, settledAt(i+1))
				l.want(t, step.status, step.reason)
				got := r.destination.deliveriesTo(path)
				if len(got) != i+1 {
					t.Fatalf("the destination received %d requests, want %d: %s", len(got), i+1, show(got))
				}
				last := got[i]
				if last.Method != "POST" || last.Query != got[0].Query || string(last.Event) != string(got[0].Event) || last.IdempotencyKey != got[0].IdempotencyKey {
					t.Errorf("the destination received %s, first %s", show(last), show(got[0]))
				}
			}
			if l.Play != "request" || l.Reports != 1 {
				t.Errorf("the letter is %s, want one report, to be played as a request", show(l))
			}
			if tc.due > 0 && (l.NextRetryAt == nil || time.Until(*l.NextRetryAt) < tc.due) {
				t.Errorf("the letter is due at %v, want Retry-After to count", l.NextRetryAt)
			}
			if got := r.destination.deliveriesTo("/elsewhere"); len(got) > 0 {
				t.Errorf("a redirect was followed: %s", show(got))
			}
		})
	}
}

// TestDLQNowhere has a worker that knows no address for its letters: nothing is
// sent, and a person is told what to add.
func TestDLQNowhere(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared.n8n)
	r.newWorker(t, workerOptions{workflowID: r.workflowID, requests: map[string]string{r.workflowID: "https://api.example.test/*"}})
	r.destination.scriptPath("/a", retryLater(429, "1"))
	r.send(t, map[string]any{"case": "a"})
	l := r.waitLetter(t, "a", settledAt(1))
	l.want(t, "queued", "rate_limited")
	if err := shared.holdfast.requeue(testContext(t), l.ID); err != nil {
		t.Fatal(err)
	}
	l = r.waitLetter(t, "a", settledAt(2))
	l.want(t, "dead", "workflow")
	if want := "add it to `requests` in its Settings"; !strings.Contains(l.Message, want) && !strings.Contains(l.Summary, want) {
		t.Errorf("a person reads %q, %q, want %q", l.Summary, l.Message, want)
	}
	if got := r.destination.deliveries(); len(got) != 1 {
		t.Errorf("the destination received %s, want the workflow's own request only", show(got))
	}
}

// TestDLQFixedAddress sends to the address of Settings where the letter's own is
// not to be used.
func TestDLQFixedAddress(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared.n8n)
	r.newWorker(t, workerOptions{workflowID: r.workflowID, requests: map[string]string{r.workflowID: r.destination.URL + "/fixed"}})
	r.destination.scriptPath("/a", retryLater(429, "1"))
	r.send(t, map[string]any{"case": "a", "key": "k-1"})
	l := r.waitLetter(t, "a", settledAt(1))
	if err := shared.holdfast.requeue(testContext(t), l.ID); err != nil {
		t.Fatal(err)
	}
	l = r.waitLetter(t, "a", settledAt(2))
	l.want(t, "resolved", "replayed")
	if got := r.destination.deliveriesTo("/fixed"); len(got) != 1 || got[0].IdempotencyKey != "k-1" {
		t.Errorf("the fixed address received %s", show(got))
	}
}

// TestDLQLostAnswers loses what Holdfast said at each call: every call is made
// again, and nothing happens twice.
func TestDLQLostAnswers(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared.n8n)
	r.destination.scriptPath("/a", retryLater(429, "1"), retryLater(429, "1"))
	r.wire.loseAnswers("/dlq", 2)
	r.send(t, map[string]any{"case": "a"})
	l := r.waitLetter(t, "a", settledAt(1))
	l.want(t, "queued", "rate_limited")

	r.wire.loseAnswers("/dlq/lease", 1)
	r.wire.loseAnswers("/dlq/"+l.ID+"/fail", 1)
	r.wire.loseAnswers("/dlq/"+l.ID+"/resolve", 1)
	if err := shared.holdfast.requeue(testContext(t), l.ID); err != nil {
		t.Fatal(err)
	}
	r.newWorker(t, workerOptions{workflowID: r.workflowID, requests: map[string]string{r.workflowID: r.destination.URL + "/*"}})
	l = r.waitLetter(t, "a", settledAt(2))
	l.want(t, "queued", "rate_limited")
	if err := shared.holdfast.requeue(testContext(t), l.ID); err != nil {
		t.Fatal(err)
	}
	l = r.waitLetter(t, "a", settledAt(3))
	l.want(t, "resolved", "replayed")
	if got := r.destination.deliveries(); len(got) != 3 {
		t.Errorf("the destination received %d requests, want 3: %s", len(got), show(got))
	}
	r.wantLetters(t, 1)
	for path, want := range map[string]int{"/dlq": 3, "/dlq/" + l.ID + "/fail": 2, "/dlq/" + l.ID + "/resolve": 2} {
		// The letter is settled before the call is repeated.
		err := poll(testContext(t), func(context.Context) error {
			if n := r.wire.count(path); n < want {
				return fmt.Errorf("%s was called %d times, want %d", path, n, want)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestDLQTwoWorkers lets two workers run at once, held at the destination until
// each has a letter: every letter is sent again once.
func TestDLQTwoWorkers(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared.n8n)
	const letters = 12
	for i := range letters {
		name := string(rune('a' + i))
		r.destination.scriptPath("/"+name, retryLater(429, "1"))
		r.send(t, map[string]any{"case": name})
	}
	ctx := testContext(t)
	for i := range letters {
		l := r.waitLetter(t, string(rune('a'+i)), settledAt(1))
		if err := shared.holdfast.requeue(ctx, l.ID); err != nil {
			t.Fatal(err)
		}
	}
	opts := workerOptions{workflowID: r.workflowID, requests: map[string]string{r.workflowID: r.destination.URL + "/*"}}
	release := r.destination.hold(t)
	r.newWorker(t, opts)
	r.newWorker(t, opts)
	waitDeliveries(t, r.destination, letters+2)
	release()
	owners := map[string]bool{}
	for i := range letters {
		name := string(rune('a' + i))
		l := r.waitLetter(t, name, settledAt(2))
		l.want(t, "resolved", "replayed")
		if got := r.destination.deliveriesTo("/" + name); len(got) != 2 {
			t.Errorf("%s reached the destination %d times, want twice", name, len(got))
		}
		for _, owner := range l.owners() {
			owners[owner] = true
		}
	}
	r.wantLetters(t, letters)
	if len(owners) < 2 {
		t.Errorf("the letters were leased by %v, want at least two runs", owners)
	}
}

// TestDLQHandlerFails cuts Holdfast off when the error workflow reports: its run
// is red, and is there to be tried again when Holdfast is back.
func TestDLQHandlerFails(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared.n8n)
	r.destination.scriptPath("/a", retryLater(429, "1"))
	r.wire.cut(t)
	r.send(t, map[string]any{"case": "a"})
	(&gate{n8n: r.n8n, workflowID: r.handlerID}).wantRuns(t, "error")

	r.wire.mend(t)
	ctx := testContext(t)
	runs, err := shared.n8n.executions(ctx, r.handlerID)
	if err != nil || len(runs) != 1 {
		t.Fatalf("%v, %d runs", err, len(runs))
	}
	if err := shared.n8n.api(ctx, http.MethodPost, "/executions/"+runs[0].ID+"/retry", map[string]any{}, nil); err != nil {
		t.Fatal(err)
	}
	l := r.waitLetter(t, "a", settledAt(1))
	l.want(t, "queued", "rate_limited")
}
