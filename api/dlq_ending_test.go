package api_test

import (
	"strings"
	"testing"
	"time"
)

// What a worker says of its attempt.
func TestLetterFailsAgain(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		id, lease := w.dueLetter(t, "1042", obj{"max_attempts": 4})
		fail := func(lease, more obj) answer { return w.post(t, "/dlq/"+id+"/fail", and(token(lease), more)).ok(t) }
		next := func(wait time.Duration) obj {
			w.clock.advance(wait)
			return w.leasedLetters(t, obj{"owner": "2001:0:0"}, 1)[0]
		}
		refused := obj{"error": obj{"name": "NodeApiError", "message": "connect ECONNREFUSED 203.0.113.7:443", "httpCode": "ECONNREFUSED"}}
		a := fail(lease, refused).has(t, obj{"id": id, "status": "queued", "reason": "transient", "changed": true, "attempt_count": 2, "error_class": "transient", "retryable": true, "outcome": "not_executed"})
		w.comesDue(t, a.body, 120)
		fail(lease, refused).has(t, obj{"status": "queued", "changed": false, "attempt_count": 2})
		w.post(t, "/dlq/"+id+"/resolve", token(lease)).refused(t, 409, "lease_lost")

		// Not now: nothing was tried, and nothing is counted.
		lease = next(145 * time.Second)
		hasAll(t, lease, obj{"attempt_count": 3})
		a = fail(lease, obj{"retry_after": 30}).has(t, obj{"status": "queued", "reason": "not_now", "changed": true, "attempt_count": 2})
		w.dueWithin(t, a.body, 30*time.Second, 37*time.Second)
		fail(lease, obj{"retry_after": 30}).has(t, obj{"changed": false, "attempt_count": 2})

		// A wish for a later time is a floor.
		lease = next(37 * time.Second)
		hasAll(t, lease, obj{"attempt_count": 3})
		a = fail(lease, obj{"http_status": "429", "retry_after": "1000"}).has(t, obj{"status": "queued", "reason": "rate_limited", "error_class": "rate_limited", "attempt_count": 3, "backoff_seconds": 1000})
		w.comesDue(t, a.body, 1000)

		lease = next(1201 * time.Second)
		fail(lease, refused).has(t, obj{"status": "dead", "reason": "attempts_exhausted", "attempt_count": 4, "next_retry_at": nil})
		fail(lease, refused).has(t, obj{"status": "dead", "changed": false})
		w.letter(t, id).has(t, obj{"status": "dead", "escalated": true})
		w.clock.advance(24 * time.Hour)
		w.leasedLetters(t, obj{}, 0)
	})
}

// What may have been done is not sent again by itself; what will be refused again neither.
func TestLetterFailsForGood(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		for i, c := range []struct {
			body           obj
			class, outcome string
			reason         string
		}{
			{obj{"http_status": 422}, "validation", "not_executed", "validation"},
			{obj{"http_status": 503}, "transient", "unknown", "outcome_unknown"},
			{obj{"error": "socket hang up"}, "transient", "unknown", "outcome_unknown"},
			{obj{"error": obj{"message": "401 - \"\"", "httpCode": "401"}}, "auth", "not_executed", "auth"},
			{obj{}, "unclassified", "unknown", "unclassified"},
		} {
			id, lease := w.dueLetter(t, string(rune('1'+i)))
			w.post(t, "/dlq/"+id+"/fail", and(token(lease), c.body)).ok(t).has(t, obj{
				"status": "dead", "changed": true, "reason": c.reason, "error_class": c.class, "outcome": c.outcome, "attempt_count": 2, "next_retry_at": nil,
			})
		}
		// With a claim behind it the workflow may be run again.
		w.decides(t, "proceed", holding("order-1", "50"))
		w.reports(t, failing("kT4bS0qX", "50", "503", posting(nil)))
		w.clock.advance(72 * time.Second)
		lease := w.leasedLetters(t, obj{}, 1)[0]
		hasAll(t, lease, obj{"play": "workflow", "payload": obj{"order": "order-1"}})
		id, _ := lease["id"].(string)
		w.post(t, "/dlq/"+id+"/fail", and(token(lease), obj{"http_status": 503})).ok(t).has(t, obj{"status": "queued", "reason": "transient", "attempt_count": 2})
	})
}

func TestLetterTakesLonger(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		id, lease := w.dueLetter(t, "1042")
		extend := func(seconds any) answer {
			return w.post(t, "/dlq/"+id+"/extend", and(token(lease), obj{"lease_seconds": seconds}))
		}
		end := func(d time.Duration) string { return w.clock.now().Add(d).Format(time.RFC3339) }
		extend(600).ok(t).has(t, obj{"id": id, "status": "replaying", "changed": true, "attempt_count": 2, "lease_expires_at": end(600 * time.Second)})
		extend("60").ok(t).has(t, obj{"lease_expires_at": end(600 * time.Second)}) // never earlier
		w.clock.advance(599 * time.Second)
		w.sweep(t)
		w.leasedLetters(t, obj{}, 0)
		for _, seconds := range []any{nil, "", 0, 86401, "soon"} {
			extend(seconds).refused(t, 400, "invalid_request").names(t, "lease_seconds")
		}
		w.post(t, "/dlq/"+id+"/resolve", token(lease)).ok(t).has(t, obj{"status": "resolved"})
		extend(60).refused(t, 409, "lease_lost")
	})
}

// A report ends the lease of the attempt that it is about.
func TestReportDuringAnAttempt(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		id, lease := w.dueLetter(t, "1042")
		again := within(failing("kT4bS0qX", "1043", "429", posting(nil)), obj{"retryOf": "1042"})
		w.comesDue(t, w.reports(t, again).has(t, obj{"id": id, "status": "queued", "attempt_count": 2, "duplicate": false}).body, 120) // the lease counted it
		w.post(t, "/dlq/"+id+"/resolve", token(lease)).refused(t, 409, "lease_lost")
		w.post(t, "/dlq/"+id+"/fail", and(token(lease), obj{"http_status": 503})).ok(t).has(t, obj{"status": "queued", "changed": false, "attempt_count": 2})
	})
}

// A person settles what nobody holds.
func TestPeopleAndLetters(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		dead := w.reports(t, failing("kT4bS0qX", "1", "422", posting(nil))).has(t, obj{"status": "dead"}).text("id")
		act := func(id, verb string) answer { return w.post(t, "/dlq/"+id+"/"+verb, person) }
		act(dead, "requeue").ok(t).has(t, obj{"id": dead, "status": "queued", "changed": true, "attempt_count": 1, "next_retry_at": w.clock.now().Format(time.RFC3339)})
		act(dead, "requeue").ok(t).has(t, obj{"status": "queued", "changed": false})
		lease := w.leasedLetters(t, obj{}, 1)[0]
		for _, verb := range []string{"requeue", "discard", "resolve"} {
			details, _ := act(dead, verb).refused(t, 409, "lease_live").body["details"].(obj)
			hasAll(t, details, obj{"id": dead, "status": "replaying"})
		}
		w.post(t, "/dlq/"+dead+"/fail", and(token(lease), obj{"http_status": 422})).ok(t).has(t, obj{"status": "dead", "attempt_count": 2})
		act(dead, "discard").ok(t).has(t, obj{"status": "discarded", "changed": true, "next_retry_at": nil})
		act(dead, "discard").ok(t).has(t, obj{"status": "discarded", "changed": false})
		act(dead, "requeue").ok(t).has(t, obj{"status": "queued", "changed": true})

		// Also what waits for later, and with its attempts used up one more.
		later := w.refusing(t, "2").text("id")
		act(later, "requeue").ok(t).has(t, obj{"changed": true, "next_retry_at": w.clock.now().Format(time.RFC3339)})
		once := w.reports(t, and(failing("kT4bS0qX", "3", "429", posting(nil)), obj{"max_attempts": 1})).has(t, obj{"status": "dead", "reason": "attempts_exhausted"}).text("id")
		act(once, "requeue").ok(t).has(t, obj{"status": "queued", "attempt_count": 1})
		w.letter(t, once).has(t, obj{"max_attempts": 2})

		act(later, "resolve").ok(t).has(t, obj{"status": "resolved", "changed": true, "next_retry_at": nil})
		act(later, "resolve").ok(t).has(t, obj{"status": "resolved", "changed": false})
		details, _ := act(later, "discard").refused(t, 409, "invalid_transition").body["details"].(obj)
		hasAll(t, details, obj{"id": later, "status": "resolved"})
		attempts, _ := w.letter(t, later).body["attempts"].([]any)
		last, _ := attempts[len(attempts)-1].(obj)
		hasAll(t, last, obj{"kind": "resolved", "by": "asha@example.test", "reason": "the credential was renewed", "status": "resolved"})
		leased := w.leasedLetters(t, obj{}, 2)
		// A token does not outlive what a person did.
		for _, item := range leased {
			id, _ := item["id"].(string)
			w.post(t, "/dlq/"+id+"/fail", and(token(item), obj{"http_status": 422})).ok(t)
			act(id, "requeue").ok(t)
			w.post(t, "/dlq/"+id+"/resolve", token(item)).refused(t, 409, "lease_lost")
		}
	})
}

// Who may do what, and what is missing.
func TestLetterCallsAreRefused(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		as, op := bearer(workflowSecret), bearer(operatorSecret)
		id := w.reports(t, failing("kT4bS0qX", "1", "429", posting(nil)), as).text("id")
		other := w.reports(t, failing("kT4bS0qX", "2", "429", posting(nil)), as).text("id")
		w.clock.advance(72 * time.Second)
		leases := map[any]obj{}
		for _, item := range w.leasedLetters(t, obj{}, 2, as) {
			leases[item["id"]] = item
		}
		path := "/dlq/" + id
		for _, verb := range []string{"requeue", "discard"} {
			w.post(t, path+"/"+verb, person, as).refused(t, 403, "forbidden")
			w.post(t, path+"/"+verb, obj{}, op).refused(t, 400, "invalid_request").names(t, "authorized_by").names(t, "reason")
			w.post(t, path+"/"+verb, obj{"authorized_by": "asha", "reason": " "}, op).refused(t, 400, "invalid_request").names(t, "reason")
			w.post(t, path+"/"+verb, and(person, obj{"lease_token": "x"}), op).refused(t, 400, "invalid_request").names(t, "lease_token")
		}
		w.post(t, path+"/resolve", person, as).refused(t, 403, "forbidden")
		w.post(t, path+"/resolve", obj{}, as).refused(t, 400, "invalid_request").names(t, "lease_token")
		w.post(t, path+"/resolve", obj{"lease_token": nil}, op).refused(t, 400, "invalid_request").names(t, "authorized_by")
		for _, key := range []edit{as, op} {
			w.post(t, path+"/fail", obj{"http_status": 503}, key).refused(t, 400, "invalid_request").names(t, "lease_token")
			w.post(t, path+"/extend", obj{"lease_seconds": 60}, key).refused(t, 400, "invalid_request").names(t, "lease_token")
		}
		mine, _ := leases[id]["lease_token"].(string)
		mangled := strings.Replace(mine, mine[len(mine)-4:], "AAAA", 1)
		for _, bad := range []any{"x", aToken, aLetterToken, mangled, mine + "A", " " + mine, leases[other]["lease_token"]} {
			for _, verb := range []string{"resolve", "fail"} {
				w.post(t, path+"/"+verb, obj{"lease_token": bad}, as).refused(t, 404, "not_found")
			}
			w.post(t, path+"/extend", obj{"lease_token": bad, "lease_seconds": 60}, as).refused(t, 404, "not_found")
		}
		for _, at := range []string{anID, "x", "%00", strings.ToUpper(id)} {
			w.post(t, "/dlq/"+at+"/resolve", person, op).refused(t, 404, "not_found")
			w.post(t, "/dlq/"+at+"/requeue", person, op).refused(t, 404, "not_found")
			w.get(t, "/dlq/"+at, as).refused(t, 404, "not_found")
		}
		for body, field := range map[string]string{
			`"lease_tokn":"x"`: "lease_tokn", `"leaseToken":"x"`: "leaseToken", `"status":"done"`: "status", `"http_status":99`: "http_status", `"http_status":600`: "http_status",
			`"retry_after":-1`: "retry_after", `"retry_after":2592001`: "retry_after", `"retryAfter":1`: "retryAfter", `"outcome":"not_executed"`: "outcome",
		} {
			w.post(t, path+"/fail", `{"lease_token":"`+mine+`",`+body+`}`, as).refused(t, 400, "invalid_request").names(t, field)
		}
		w.post(t, path+"/resolve", `{"lease_token":"`+mine+`","lease_token":"`+mine+`"}`, as).refused(t, 400, "invalid_json").names(t, "lease_token")
		w.post(t, "/dlq/lease", `{"workflow":"x"}`, as).refused(t, 400, "invalid_request").names(t, "workflow")
		w.letter(t, id, as).has(t, obj{"status": "replaying"}) // none of it ended anything
	}, withKeys(bothKeys...))
}
