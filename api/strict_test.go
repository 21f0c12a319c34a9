package api_test

import (
	"fmt"
	"strings"
	"testing"
)

// Unknown, repeated and wrongly cased members are refused by name, in claims and in all endings (F023).
func TestMembersAreRefusedByName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.proceeds(t, key("order-1"))
	for _, c := range []struct{ path, body, code, field, hint string }{
		{"/claim", `{"source":"shop","idempotency_key":"a","Idempotency_key":"b","IDEMPOTENCY_KEY":"c"}`, "invalid_request", "Idempotency_key", "idempotency_key"},
		{"/claim", `{"source":"shop","idempotency_key":"a","idempotency_key":"b"}`, "invalid_json", "idempotency_key", "twice"},
		{"/claim", `{"source":"shop","idempotency_key":"a","payload":{"amount":1,"amount":1000}}`, "invalid_json", "payload.amount", "twice"},
		{"/claim", `{"source":"shop","idempotency_key":"a","payload":{"amount":1,"\u0061mount":1000}}`, "invalid_json", "payload.amount", "twice"},
		{"/claim", `{"source":"shop","idempotency_key":"a","paylaod":{}}`, "invalid_request", "paylaod", ""},
		{"/claim", `{"source":"shop","idempotencyKey":"a"}`, "invalid_request", "idempotencyKey", "idempotency_key"},
		{"/claim", `{"source":"shop","key":"a"}`, "invalid_request", "key", ""},
		{"/claim", `{"source":"shop","idempotency_key":"a","lease_ms":60000}`, "invalid_request", "lease_ms", ""},
		{"/claim", `{"Source":"shop","idempotency_key":"a"}`, "invalid_request", "Source", "source"},
		{"/claim", `{"source":"shop","idempotency_key":"a","":1}`, "invalid_request", "", ""},
		{"/complete", `{"lease_tokn":"` + token + `"}`, "invalid_request", "lease_tokn", ""},
		{"/complete", `{"leaseToken":"` + token + `"}`, "invalid_request", "leaseToken", "lease_token"},
		{"/complete", `{"Lease_Token":"` + token + `"}`, "invalid_request", "Lease_Token", "lease_token"},
		{"/complete", `{"lease_token":"` + token + `","lease_token":"` + token + `"}`, "invalid_json", "lease_token", "twice"},
		{"/complete", `{"lease_token":"` + token + `","result":{"a":{"b":1,"b":2}}}`, "invalid_json", "result.a.b", "twice"},
		{"/complete", `{"lease_token":"` + token + `","outcome":"failed"}`, "invalid_request", "outcome", ""},
		{"/mark-unknown", `{"lease_token":"` + token + `","reason":"x"}`, "invalid_request", "reason", ""},
		{"/mark-unknown", `{"lease_token":"` + token + `","Error":"x"}`, "invalid_request", "Error", "error"},
		{"/mark-failed", `{"lease_token":"` + token + `","retryable":true}`, "invalid_request", "retryable", ""},
		{"/mark-failed", `{"lease_token":"` + token + `","retryAfter":1}`, "invalid_request", "retryAfter", "retry_after"},
		{"/extend", `{"lease_token":"` + token + `","lease_second":60}`, "invalid_request", "lease_second", ""},
		{"/reconcile/lease", `{"workflow_id":"x"}`, "invalid_request", "workflow_id", ""},
		{"/claims/" + anID + "/resolve", `{"status":"review","authorizedBy":"asha","reason":"x"}`, "invalid_request", "authorizedBy", "authorized_by"},
	} {
		a := w.post(t, c.path, c.body).refused(t, 400, c.code)
		if c.field != "" {
			a.names(t, c.field)
		}
		if !strings.Contains(a.text("message"), c.hint) {
			t.Errorf("%s %s: the message does not say %q: %s", c.path, c.body, c.hint, a.text("message"))
		}
	}
	// None of it ended anything.
	w.decides(t, "in_progress", key("order-1"))
}

func TestWrongTypesAreRefusedByName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.proceeds(t, key("order-1"))
	for member, values := range map[string]string{
		"source": `1 true [] {}`, "step": `1 true [] {}`, "kind": `1 [] "both"`, "key_template": `1 {}`, "claim_id": `1 []`, "account": `true [] {}`,
		"owner": `true [] {}`, "workflow_id": `true [] {} "a/b"`, "workflow_name": `false []`, "execution_id": `{}`, "node": `[]`,
		"entity": `true {}`, "version": `true [] {} "v1"`, "destination": `1 [] "Hub"`, "lease_seconds": `true [] {} "soon"`,
	} {
		for _, value := range strings.Fields(values) {
			members := obj{"source": `"shop"`, "idempotency_key": `"typed-key"`}
			members[member] = value
			var parts []string
			for name, v := range members {
				parts = append(parts, fmt.Sprintf("%q:%v", name, v))
			}
			w.post(t, "/claim", "{"+strings.Join(parts, ",")+"}").refused(t, 400, "invalid_request").names(t, member)
		}
	}
	for _, value := range []string{`true`, `[]`, `{}`, `["a"]`, `{"id":1}`} {
		w.post(t, "/claim", `{"source":"shop","idempotency_key":`+value+`}`).refused(t, 422, "invalid_key")
	}
	for path, bad := range map[string]string{
		"/complete":     `"force":"true" "force":1 "result_id":{} "result_id":true "http_status":99 "http_status":600 "http_status":"ok" "http_status":true`,
		"/mark-unknown": `"http_status":0 "http_status":1000 "reference":{} "reference":[]`,
		"/mark-failed":  `"outcome":"unknown" "outcome":"failed" "outcome":1 "tries":0 "tries":-1 "tries":"many" "retry_after":-1 "retry_after":"soon" "http_status":1`,
		"/extend":       `"reference":true`,
	} {
		for _, member := range strings.Fields(bad) {
			name := strings.Split(member, `"`)[1]
			body := `{"lease_token":"` + token + `",` + member + `}`
			if path == "/extend" {
				body = `{"lease_token":"` + token + `","lease_seconds":60,` + member + `}`
			}
			w.post(t, path, body).refused(t, 400, "invalid_request").names(t, name)
		}
	}
	w.decides(t, "in_progress", key("order-1"))
}

// A body that is no JSON object is refused for what it is.
func TestBodiesThatAreNoObject(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, path := range []string{"/claim", "/complete", "/mark-unknown", "/mark-failed", "/extend", "/reconcile/lease", "/claims/" + anID + "/resolve"} {
		for _, body := range []string{"", " \n", "\x00", "\xef\xbb\xbf{}", "\xef\xbb\xbf", "{", "}", "{}{}", "{} x", "{'a':1}", "\xff", "{\"a\":\"\xff\"}", "{\"a\":\"\xed\xa0\x80\"}", "<xml/>", "a=1&b=2"} {
			w.post(t, path, body).refused(t, 400, "invalid_json")
		}
		for _, body := range []string{"[]", `[{"source":"shop"}]`, `"text"`, "1", "true", "null", `{"a"}`, `{"a":01}`, `{"a":NaN}`, `{"a":1,}`, "{\"a\":\"\x01\"}"} {
			if a := w.post(t, path, body); a.status != 400 {
				t.Errorf("%s %.30q: %d, want 400: %s", path, body, a.status, clip(a.raw))
			}
		}
	}
}

// null is absent, also in text members; absent text equals empty text.
func TestNullAndEmptyAreAbsent(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		absent := func(v string) string {
			return `{"source":"shop","idempotency_key":"order-1","account":` + v + `,"step":` + v + `,"kind":` + v + `,"key_template":` + v + `,"claim_id":` + v +
				`,"payload":null,"headers":null,"owner":` + v + `,"lease_seconds":null,"workflow_id":` + v + `,"workflow_name":` + v + `,"execution_id":` + v +
				`,"node":` + v + `,"entity":` + v + `,"version":` + v + `,"destination":` + v + `}`
		}
		a := w.decides(t, "proceed", absent("null")).has(t, obj{"kind": "event", "lease_expires_at": "2026-11-30T20:05:00Z", "payload_hash": nil})
		w.decides(t, "in_progress", absent(`""`)).has(t, obj{"claim_id": a.text("claim_id")})
		w.decides(t, "in_progress", key("order-1")).has(t, obj{"claim_id": a.text("claim_id")})
		w.post(t, "/extend", `{"lease_token":"`+a.text("lease_token")+`","lease_seconds":600,"reference":null}`).ok(t)
		w.post(t, "/complete", `{"lease_token":"`+a.text("lease_token")+`","result_id":null,"result":null,"http_status":null,"force":null}`).ok(t).has(t, obj{"result_id": nil, "result": nil})
		// A number is its digits.
		n := w.decides(t, "proceed", `{"source":"shop","idempotency_key":7001,"account":42,"owner":9,"execution_id":1042,"workflow_id":5}`)
		n.has(t, obj{"idempotency_key": "7001", "account": "42"})
		w.decides(t, "in_progress", obj{"source": "shop", "idempotency_key": "7001", "account": "42"}).has(t, obj{"claim_id": n.text("claim_id")})
	})
}

// Texts with NUL and lone surrogates: refused where they identify, kept visibly where they explain (F091, F092).
func TestTextsThatNoDatabaseHolds(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		for _, bad := range []string{`x\u0000y`, `x\ud800`, `\udc00\ud800`, `\u0001x`} {
			for _, member := range []string{"idempotency_key", "key_template"} {
				body := `{"source":"shop","payload":{"order":"7001"},"` + member + `":"` + bad
				if member == "key_template" {
					body += "-{order}"
				}
				w.post(t, "/claim", body+`"}`).refused(t, 422, "invalid_key")
			}
			for _, member := range []string{"account", "entity", "workflow_id", "source", "step", "destination"} {
				body := `{"idempotency_key":"order-1"`
				if member != "source" {
					body += `,"source":"shop"`
				}
				w.post(t, "/claim", body+`,"`+member+`":"`+bad+`"}`).refused(t, 400, "invalid_request").names(t, member)
			}
			// In a payload everything is kept, and the key is taken from elsewhere.
			w.decides(t, "proceed", `{"source":"shop","idempotency_key":"in-payload-`+fmt.Sprintf("%x", bad)+`","payload":{"a":"`+bad+`","`+bad+`":1}}`)
			w.post(t, "/claim", `{"source":"shop","payload":{"id":"`+bad+`"}}`).refused(t, 422, "invalid_key")
			w.post(t, "/claim", `{"source":"shop","key_template":"o-{a}","payload":{"a":"`+bad+`"}}`).refused(t, 422, "invalid_key")

			k := fmt.Sprintf("explains-%x", bad)
			a := w.decides(t, "proceed", `{"source":"shop","idempotency_key":"`+k+`","owner":"`+bad+`","workflow_name":"`+bad+`","node":"`+bad+`","execution_id":"`+bad+`"}`)
			token := a.text("lease_token")
			w.post(t, "/mark-unknown", `{"lease_token":"`+token+`","error":"broke off: `+bad+`"}`).ok(t).has(t, obj{"status": "unknown"})
			w.post(t, "/complete", `{"lease_token":"`+token+`","result_id":"`+bad+`","result":{"t":"`+bad+`"}}`).ok(t).has(t, obj{"status": "completed"})
			got := w.get(t, "/claims/"+a.text("claim_id")).ok(t)
			if !strings.Contains(string(got.raw), `"t":"`+bad+`"`) {
				t.Errorf("the result %s came back changed: %s", bad, got.raw)
			}
		}
		w.decides(t, "proceed", `{"source":"shop","idempotency_key":"honest-\ufffd-text"}`)
		w.decides(t, "proceed", `{"source":"shop","idempotency_key":"pair-\ud83d\ude00"}`).has(t, obj{"idempotency_key": "pair-\U0001F600"})
		// Not the same: half a pair, and the character that stands for it elsewhere; text that only looks like an escape.
		hash := func(payload string) string {
			return w.decides(t, "proceed", `{"source":"shop","idempotency_key":"h-`+fmt.Sprintf("%x", payload)+`","payload":`+payload+`}`).text("payload_hash")
		}
		for _, pair := range [][2]string{{`{"a":"\ud800"}`, `{"a":"\ufffd"}`}, {`{"a":"\\u0000"}`, `{"a":"\u0000"}`}} {
			if hash(pair[0]) == hash(pair[1]) {
				t.Errorf("%s and %s have one hash", pair[0], pair[1])
			}
		}
	})
}
