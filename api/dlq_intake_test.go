package api_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A report of a failed call to this service repeats that call, and with it the token that was sent. It is no input
// that anything could be run again with, and a token is in no answer to a GET and in no log.
func TestTokensInReports(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		claim := w.decides(t, "proceed", obj{"source": "shop", "idempotency_key": "order-7001", "workflow_id": "kT4bS0qX", "execution_id": "1", "owner": "1:0:0"})
		id, lease := w.dueLetter(t, "100")
		live := claim.text("lease_token")
		letters, _ := lease["lease_token"].(string)
		for i, c := range []struct{ path, token string }{
			{"/complete", live}, {"/mark-failed", live}, {"/extend", live}, {"/dlq/" + id + "/resolve", letters}, {"/dlq/" + id + "/fail", letters},
		} {
			execution := string(rune('1' + i))
			request := and(posting(obj{"lease_token": c.token, "result_id": "ch_1"}), obj{"uri": "http://holdfast.example.test:8088" + c.path})
			report := failing("kT4bS0qX", execution, "503", request)
			if i%2 == 1 { // n8n has a body that was given as text as text
				report = failing("kT4bS0qX", execution, "503", and(request, obj{"body": text(t, request["body"])}))
			}
			report = within(report, obj{"error": and(report["execution"].(obj)["error"].(obj), obj{
				"message": "the call with " + text(t, obj{"lease_token": c.token}) + " broke off", "description": "lease_token=" + c.token,
			})})
			a := w.reports(t, report)
			detail := w.letter(t, a.text("id")).has(t, obj{"payload": nil})
			w.post(t, "/dlq/"+a.text("id")+"/requeue", person)
			for _, seen := range []answer{a, detail, w.get(t, "/dlq").ok(t), w.get(t, "/history").ok(t)} {
				if strings.Contains(string(seen.raw), c.token) {
					t.Errorf("%s: the token is shown: %s", c.path, clip(seen.raw))
				}
			}
			l, _, err := w.store.GetLetter(t.Context(), a.text("id"))
			if err != nil || strings.Contains(string(l.Error)+string(l.Payload)+l.Message+l.Summary, c.token) {
				t.Errorf("%s: the token is stored: %v %s %s", c.path, err, l.Error, l.Payload)
			}
		}
	})
}

// What is redacted is nowhere in the database either: not in what happened to a letter, nor in what waits to be sent to
// a person.
func TestNoSecretInTheDatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := newWorld(t, func(s *settings) { s.url = "sqlite://" + filepath.Join(dir, "holdfast.db") })
	report := failing("kT4bS0qX", "1042", "401", obj{
		"method": "POST", "uri": "https://user:SECRET4@destination.example.test/charges?token=SECRET5", "body": obj{"order": "order-7001"},
		"headers": obj{"authorization": "Bearer SECRET1", "x-api-key": "SECRET2", "Cookie": "sid=SECRET3"},
	})
	fault, _ := report["execution"].(obj)["error"].(obj)
	for _, name := range []string{"message", "stack", "description"} {
		fault[name] = "no: https://user:SECRET4@destination.example.test/?token=SECRET5 Authorization: Bearer SECRET1"
	}
	id := w.reports(t, report).has(t, obj{"status": "dead", "reason": "auth"}).text("id")
	w.post(t, "/dlq/"+id+"/requeue", person).ok(t)
	lease := w.leasedLetters(t, obj{}, 1)[0]
	w.post(t, "/dlq/"+id+"/fail", and(token(lease), obj{"error": obj{"message": "Bearer SECRET1", "headers": obj{"X-Api-Key": "SECRET2"}}, "http_status": 401})).ok(t).has(t, obj{"status": "dead"})
	claim := w.proceeds(t, effect("order-7001", "charge"))
	w.post(t, "/mark-unknown", obj{"lease_token": claim, "error": "https://user:SECRET4@destination.example.test/?token=SECRET5 broke off"}).ok(t)

	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v: no database in %s", err, dir)
	}
	found := false
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.Index(raw, []byte("SECRET")); at >= 0 {
			t.Errorf("%s holds a secret: %q", filepath.Base(file), raw[max(0, at-60):min(len(raw), at+40)])
		}
		found = found || bytes.Contains(raw, []byte("destination.example.test/charges"))
	}
	if !found {
		t.Error("the letter itself was not found in the files: is this the database?")
	}
}

// A failure of which nobody knows the input is kept, says so, and is never mistaken for one with an empty input.
func TestReportWithoutInput(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		for i, report := range []obj{
			{"execution": obj{"id": "999", "error": obj{"message": "boom", "name": "Error"}, "lastNodeExecuted": "Code", "mode": "webhook"}, "workflow": obj{"id": "kT4bS0qX", "name": "Orders"}},
			{"trigger": obj{"error": obj{"message": "activation failed", "timestamp": 1767225600000}, "mode": "trigger"}, "workflow": obj{"id": "kT4bS0qX", "name": "Orders"}},
		} {
			input := []string{"wanted", "missing"}[i]
			id := w.reports(t, report).has(t, obj{"status": "dead"}).text("id")
			w.letter(t, id).has(t, obj{"payload": nil, "input": input})
			w.post(t, "/dlq/"+id+"/requeue", person).ok(t)
			hasAll(t, w.leasedLetters(t, obj{}, 1)[0], obj{"id": id, "payload": nil, "input": input})
		}
	})
}

// Whoever plays everything again after a false alarm plays nothing that was done: the event was completed, before the
// report or after it.
func TestPlayedAgainThoughItWasDone(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		crash := func(execution string) obj {
			return within(failing("kT4bS0qX", execution, "", nil), obj{"error": obj{"name": "WorkflowCrashedError", "message": "Workflow did not finish, possible out-of-memory issue", "context": obj{}}})
		}
		before := w.proceeds(t, holding("order-1", "1"))
		w.post(t, "/complete", obj{"lease_token": before}).ok(t)
		w.clock.advance(5 * time.Second)
		first := w.reports(t, crash("1")).has(t, obj{"status": "resolved", "reason": "completed_meanwhile"}).text("id")

		after := w.proceeds(t, holding("order-2", "2"))
		second := w.reports(t, crash("2")).text("id")
		w.clock.advance(5 * time.Second)
		w.post(t, "/complete", obj{"lease_token": after}).ok(t).has(t, obj{"status": "completed", "changed": true})
		w.letter(t, second).has(t, obj{"status": "resolved"})

		for _, id := range []string{first, second} {
			w.post(t, "/dlq/"+id+"/requeue", person).refused(t, 409, "invalid_transition")
		}
		w.leasedLetters(t, obj{}, 0)
		for id, k := range map[string]string{first: "order-1", second: "order-2"} {
			w.letter(t, id).has(t, obj{"status": "resolved", "next_retry_at": nil, "attempt_count": 1})
			w.decides(t, "completed", holding(k, "9"))
		}
	})
}

// A run that somebody started by hand: n8n runs no error workflow for it, but whoever reports it is heard.
func TestReportOfAManualRun(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		manual := within(failing("kT4bS0qX", "7", "422", posting(obj{"order": 1})), obj{"mode": "manual"})
		a := w.reports(t, manual).has(t, obj{"status": "dead", "reason": "validation", "duplicate": false})
		w.reports(t, manual).has(t, obj{"id": a.text("id"), "duplicate": true})
	})
}
