package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A limit that counts per ten seconds is not met again within them: the wait is what the destination says, where it
// says something usable, and a minute at least.
func TestRateLimitedLettersWait(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		const week = 7 * 24 * 3600
		for i, c := range []struct {
			retryAfter string // as JSON
			seconds    int64
		}{
			{`"10"`, 60},
			{`600`, 600},
			{`"600"`, 600},
			{`0`, 60},
			{`"0"`, 60},
			{`-5`, 60},
			{`"-5"`, 60},
			{`99999999`, week},
			{`"99999999"`, week},
			{`"abc"`, 60},
			{`null`, 60},
			{`[]`, 60},
			{`"Mon, 30 Nov 2026 20:00:10 GMT"`, 60},
			{`"Mon, 30 Nov 2026 20:10:00 GMT"`, 600},
			{`"Mon, 30 Nov 2026 19:00:00 GMT"`, 60},
			{`"Wed, 01 Jan 2031 00:00:10 GMT"`, week},
		} {
			item := fmt.Sprintf(`{"event_id":"order-%d","workflow_id":"kT4bS0qX","error_message":"429","method":"POST","payload":{"n":1},"error":{"statusCode":429,
				"headers":{"date":"Mon, 30 Nov 2026 20:00:00 GMT","retry-after":%s},"body":{"policyName":"TEN_SECONDLY_ROLLING"}}}`, i, c.retryAfter)
			a := w.reports(t, item).has(t, obj{"status": "queued", "reason": "rate_limited", "attempt_count": 1, "outcome": "not_executed"})
			w.comesDue(t, a.body, c.seconds)
			if t.Failed() {
				t.Fatalf("retry-after %s: %s", c.retryAfter, clip(a.raw))
			}
		}
	})
}

// Waiting for a limit uses up none of the attempts that failures have, however often it happens.
func TestWaitingIsNoAttempt(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		id := w.refusing(t, "1042").text("id")
		w.clock.advance(72 * time.Second)
		for range 10 { // more often than a letter has attempts
			lease := w.leasedLetters(t, obj{}, 1)[0]
			a := w.post(t, "/dlq/"+id+"/fail", and(token(lease), obj{"retry_after": 10})).ok(t).has(t, obj{"status": "queued", "reason": "not_now", "attempt_count": 1})
			w.dueWithin(t, a.body, 10*time.Second, 13*time.Second)
			w.leasedLetters(t, obj{}, 0)
			w.clock.advance(13 * time.Second)
		}
		w.letter(t, id).has(t, obj{"status": "queued", "attempt_count": 1, "escalated": false})
	})
}

// A lease or a wait of nothing, of less, of too much or in the wrong unit is refused by name: no letter is held without
// an end, or for a thousand times as long.
func TestSecondsOfLetters(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		id, lease := w.dueLetter(t, "1042")
		w.refusing(t, "1043")
		w.clock.advance(72 * time.Second)
		mine := `"lease_token":"` + fmt.Sprint(lease["lease_token"]) + `"`
		for _, value := range []string{`0`, `-1`, `0.4`, `86401`, `1e9`, `9223372036854775807`, `9223372036854775808`, `1e400`, `"60s"`, `"NaN"`, `"0"`, `true`, `false`, `[]`, `{}`} {
			w.post(t, "/dlq/lease", `{"lease_seconds":`+value+`}`).refused(t, 400, "invalid_request").names(t, "lease_seconds")
			w.post(t, "/dlq/"+id+"/extend", `{`+mine+`,"lease_seconds":`+value+`}`).refused(t, 400, "invalid_request").names(t, "lease_seconds")
		}
		for _, value := range []string{`-1`, `0.4`, `1e9`, `9223372036854775807`, `"10s"`, `true`, `[]`} {
			w.post(t, "/dlq/"+id+"/fail", `{`+mine+`,"retry_after":`+value+`}`).refused(t, 400, "invalid_request").names(t, "retry_after")
		}
		for _, member := range []string{"lease_ms", "leaseSeconds", "seconds", "ttl"} {
			w.post(t, "/dlq/lease", `{"`+member+`":60000}`).refused(t, 400, "invalid_request").names(t, member)
		}
		w.letter(t, id).has(t, obj{"status": "replaying", "lease_expires_at": lease["lease_expires_at"]}) // none of it moved anything
		for _, body := range []string{`{}`, `{"lease_seconds":null}`} {
			item := w.post(t, "/dlq/lease", body).ok(t)
			if len(item.items) == 0 {
				continue // the second time nothing is left
			}
			hasAll(t, item.items[0], obj{"lease_expires_at": w.clock.now().Add(300 * time.Second).Format(time.RFC3339)})
		}
	})
}

// A batch is leased for less time than it needs. What its worker does not reach comes to somebody else, later; what the
// worker says of it then is refused, and no letter ends twice.
func TestBatchOutlivesItsLease(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		const letters = 50
		for i := range letters {
			w.refusing(t, fmt.Sprint(100+i))
		}
		w.clock.advance(2 * time.Minute)
		batch := w.leasedLetters(t, obj{"limit": letters, "lease_seconds": 10, "owner": "w1"}, letters)
		at := func(item obj, verb string) string { return fmt.Sprintf("/dlq/%v/%s", item["id"], verb) }
		ended := map[any]int{}
		for i, item := range batch {
			w.clock.advance(time.Second)
			a := w.post(t, at(item, "resolve"), token(item))
			if i < 9 { // the lease of ten seconds is over with the tenth
				a.ok(t).has(t, obj{"status": "resolved", "changed": true})
				ended[item["id"]]++
				continue
			}
			if i == 10 {
				w.leasedLetters(t, obj{"limit": letters, "owner": "w2"}, 0) // they wait as after any attempt
			}
			a.refused(t, 409, "lease_lost")
			w.post(t, at(item, "extend"), and(token(item), obj{"lease_seconds": 60})).refused(t, 409, "lease_lost") // who asks first does nothing twice
		}
		w.clock.advance(5 * time.Minute)
		second := w.leasedLetters(t, obj{"limit": letters, "owner": "w2"}, letters-9)
		for i, item := range batch {
			if i >= 9 {
				w.post(t, at(item, "fail"), and(token(item), obj{"http_status": 422})).refused(t, 409, "lease_lost")
			}
		}
		for _, item := range second {
			hasAll(t, item, obj{"attempt_count": 3})
			w.post(t, at(item, "resolve"), token(item)).ok(t).has(t, obj{"changed": true})
			ended[item["id"]]++
		}
		for id, n := range ended {
			if n != 1 {
				t.Errorf("letter %v ended %d times", id, n)
			}
		}
		if len(ended) != letters {
			t.Errorf("%d letters ended, want %d", len(ended), letters)
		}
	})
}

// What people and workers write is kept whatever is in it, or refused by name; it never breaks a call.
func TestTextsAboutLetters(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		for i, bad := range []string{`x\u0000y`, `x\ud800`, `\udc00\ud800`, `\ud83d\ude00`, `literal \\u0000 text`} {
			id, lease := w.dueLetter(t, fmt.Sprint(100+i))
			own := `"lease_token":"` + fmt.Sprint(lease["lease_token"]) + `"`
			w.post(t, "/dlq/"+id+"/fail", `{`+own+`,"http_status":422,"error":{"message":"`+bad+`","`+bad+`":"`+bad+`"}}`).ok(t).has(t, obj{"status": "dead", "changed": true})
			for _, verb := range []string{"requeue", "discard", "resolve"} {
				a := w.post(t, "/dlq/"+id+"/"+verb, `{"authorized_by":"`+bad+`","reason":"because `+bad+`"}`)
				if a.status != 200 {
					a.refused(t, 400, "invalid_request")
				}
			}
			w.letter(t, id)
			w.get(t, "/history").ok(t)
			w.post(t, "/dlq/"+id+"/requeue", person).ok(t)
			again := w.post(t, "/dlq/lease", `{"owner":"`+bad+`"}`).ok(t)
			if len(again.items) != 1 {
				t.Fatalf("owner %s: %s", bad, clip(again.raw))
			}
			result := `{"` + bad + `":"` + bad + `"}`
			w.post(t, "/dlq/"+id+"/resolve", `{"lease_token":"`+fmt.Sprint(again.items[0]["lease_token"])+`","result":`+result+`}`).ok(t).has(t, obj{"status": "resolved", "changed": true})
			if raw := string(w.letter(t, id).raw); strings.Contains(raw, `\u0000`) && !strings.Contains(bad, `\\u0000`) && !strings.Contains(bad, `\u0000`) {
				t.Errorf("%s: a NUL from nowhere: %s", bad, raw)
			}
		}
	})
}
