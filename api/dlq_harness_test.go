package api_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// captures are what n8n 2.41 really sent.
const captures = "../internal/failure/testdata/captures"

// capture reads a report; what was captured together gives several.
func capture(tb testing.TB, name string) []string {
	tb.Helper()
	raw, err := os.ReadFile(filepath.Join(captures, "error-trigger-"+name+".json"))
	if err != nil {
		tb.Fatal(err)
	}
	var several []json.RawMessage
	if json.Unmarshal(raw, &several) != nil {
		return []string{string(raw)}
	}
	var out []string
	for _, one := range several {
		out = append(out, string(one))
	}
	return out
}

// failing is the Error Trigger's item of a node whose request failed, as n8n makes it.
func failing(workflow, execution, httpCode string, request obj) obj {
	return obj{
		"execution": obj{
			"id": execution, "url": "http://n8n.example.test/workflow/" + workflow + "/executions/" + execution, "lastNodeExecuted": "Charge", "mode": "webhook",
			"executionContext": obj{"version": 1, "establishedAt": 1796068800000, "source": "webhook"},
			"error": obj{
				"name": "NodeApiError", "message": "the destination did not do it", "httpCode": httpCode, "messages": []any{httpCode + " - \"later\""},
				"context": obj{"itemIndex": 0, "request": request},
			},
		},
		"workflow": obj{"id": workflow, "name": "Orders"},
	}
}

// posting is a request that a node made.
func posting(body any) obj {
	return obj{"method": "POST", "uri": "http://destination.example.test/charges", "headers": obj{"accept": "application/json"}, "body": body}
}

// within puts members into the execution of a report.
func within(report, members obj) obj {
	execution, _ := report["execution"].(obj)
	return and(report, obj{"execution": and(execution, members)})
}

// reports sends a failure and returns its letter.
func (w *world) reports(tb testing.TB, body any, edits ...edit) answer {
	tb.Helper()
	return w.post(tb, "/dlq", body, edits...).ok(tb)
}

// letter reads one.
func (w *world) letter(tb testing.TB, id string, edits ...edit) answer {
	tb.Helper()
	return w.get(tb, "/dlq/"+id, edits...).ok(tb)
}

// refusing is a failure that may be sent again: nothing was done there.
func (w *world) refusing(tb testing.TB, execution string, more ...obj) answer {
	tb.Helper()
	body := failing("kT4bS0qX", execution, "429", posting(obj{"order": execution}))
	for _, m := range more {
		body = and(body, m)
	}
	return w.reports(tb, body).has(tb, obj{"status": "queued", "duplicate": false})
}

// leasedLetters asks for letters to be run again; the answer is a bare array.
func (w *world) leasedLetters(tb testing.TB, body any, want int, edits ...edit) []obj {
	tb.Helper()
	a := w.post(tb, "/dlq/lease", body, edits...).ok(tb)
	if a.raw[0] != '[' || want == 0 && string(a.raw) != "[]" || len(a.items) != want {
		tb.Fatalf("the lease is %s, want a bare array of %d", clip(a.raw), want)
	}
	return a.items
}

// dueLetter makes a letter, waits until it is due and leases it.
func (w *world) dueLetter(tb testing.TB, execution string, more ...obj) (id string, lease obj) {
	tb.Helper()
	w.refusing(tb, execution, more...)
	w.clock.advance(72 * time.Second)
	lease = w.leasedLetters(tb, obj{"owner": "2001:0:0"}, 1)[0]
	id, _ = lease["id"].(string)
	return id, lease
}

// token is a leased letter's.
func token(lease obj) obj { return obj{"lease_token": lease["lease_token"]} }

// sweep does what the program does by itself every few seconds.
func (w *world) sweep(tb testing.TB) {
	tb.Helper()
	ctx := context.WithoutCancel(tb.Context())
	if _, err := w.store.Sweep(ctx); err != nil {
		tb.Fatal(err)
	}
	if _, err := w.store.SweepLetters(ctx); err != nil {
		tb.Fatal(err)
	}
}

// comesDue demands that a letter waits as long as it says, and up to a fifth longer.
func (w *world) comesDue(tb testing.TB, letter obj, seconds int64) {
	tb.Helper()
	hasAll(tb, letter, obj{"status": "queued", "backoff_seconds": seconds})
	w.dueWithin(tb, letter, time.Duration(seconds)*time.Second, time.Duration(seconds)*time.Second*6/5+time.Second)
}

// dueWithin demands that next_retry_at is between least and most from now.
func (w *world) dueWithin(tb testing.TB, letter obj, least, most time.Duration) {
	tb.Helper()
	s, _ := letter["next_retry_at"].(string)
	at, err := time.Parse(time.RFC3339Nano, s)
	if wait := at.Sub(w.clock.now()); err != nil || wait < least || wait > most {
		tb.Errorf("next_retry_at is %q, %s from now; want %s to %s", s, wait, least, most)
	}
}

// person is who decides and why.
var person = obj{"authorized_by": "asha@example.test", "reason": "the credential was renewed"}
