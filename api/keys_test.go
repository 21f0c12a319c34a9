package api_test

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
)

// done claims and completes.
func (w *world) done(tb testing.TB, body any) {
	tb.Helper()
	w.post(tb, "/complete", obj{"lease_token": w.proceeds(tb, body), "result": obj{"n": 1}}).ok(tb)
}

// F004: no key is no key; there is no fallback to a run id or to the body.
func TestNoKey(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		for _, run := range []string{"900", "901"} {
			body := obj{"source": "forms", "payload": obj{"name": "Asha", "msg": "hi"}, "execution_id": run, "owner": run + ":0:0"}
			w.post(t, "/claim", body).refused(t, 422, "missing_key")
		}
		for _, body := range []string{
			`{"source":"forms"}`, `{"source":"forms","payload":null}`, `{"source":"forms","payload":{}}`, `{"source":"forms","payload":"text"}`, `{"source":"forms","payload":{"id":null}}`,
			`{"source":"forms","payload":{"id":""}}`, `{"source":"forms","idempotency_key":null,"payload":{"id":"evt_1"}}`, `{"source":"forms","idempotency_key":"","payload":{"id":"evt_1"}}`,
			`{"source":"stripe","payload":{"type":"invoice.paid"}}`, `{"source":"github","payload":{"id":"evt_1"}}`,
		} {
			w.post(t, "/claim", body).refused(t, 422, "missing_key")
		}
		split := w.post(t, "/claim", `{"source":"forms","payload":[{"id":"evt_1"},{"id":"evt_2"}]}`).refused(t, 422, "missing_key")
		if !strings.Contains(strings.ToLower(split.text("message")), "split") {
			t.Errorf("no advice to split the array: %s", split.text("message"))
		}
		w.decides(t, "proceed", `{"source":"forms","payload":[1,2],"idempotency_key":"batch-1"}`)
		w.get(t, "/claims").ok(t)
	})
}

// Where the key comes from.
func TestKeyBasis(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		w.decides(t, "proceed", obj{"source": "stripe", "payload": obj{"id": "evt_1A", "account": "acct_9"}}).has(t, obj{"idempotency_key": "evt_1A", "key_basis": "profile", "account": "acct_9"})
		w.decides(t, "proceed", obj{"source": "github", "payload": obj{"action": "opened"}, "headers": obj{"x-github-delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958"}}).
			has(t, obj{"idempotency_key": "72d3162e-cc78-11e3-81ab-4c9367dc0958", "key_basis": "profile"})
		for payload, want := range map[string]string{
			`{"id":"ev_1","event_id":"ev_2","transaction_reference":"ev_3","Body":{"stkCallback":{"CheckoutRequestID":"ws_CO_1"}}}`: "ws_CO_1",
			`{"id":"ev_1","event_id":"ev_2","transaction_reference":"ev_3"}`:                                                        "ev_1", `{"event_id":"ev_2","transaction_reference":"ev_3"}`: "ev_2", `{"transaction_reference":"ev_3"}`: "ev_3",
			`{"id":9314159265358979}`: "9314159265358979",
		} {
			w.decides(t, "proceed", `{"source":"forms","payload":`+payload+`}`).has(t, obj{"idempotency_key": want, "key_basis": "standard"})
		}
		a := w.decides(t, "proceed", `{"source":"shop","key_template":"order-{order.id}-{hash}","payload":{"order":{"id":7001}}}`).has(t, obj{"key_basis": "template"})
		if want := "order-7001-" + a.text("payload_hash")[:16]; a.text("idempotency_key") != want {
			t.Errorf("the template made %s, want %s", a.text("idempotency_key"), want)
		}
		// By its id, a claim is itself, whatever its basis.
		w.decides(t, "in_progress", obj{"claim_id": a.text("claim_id")}).has(t, obj{"key_basis": "template", "idempotency_key": a.text("idempotency_key")})
		w.post(t, "/claim", obj{"claim_id": anID}).refused(t, 404, "not_found")
		w.post(t, "/claim", obj{"claim_id": "x"}).refused(t, 404, "not_found")
	})
}

// F005: what an unresolved expression leaves is no key, and nothing is stored.
func TestUnresolvedKeys(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		for _, k := range []string{
			"{{ $json.body.id }}", "={{$json.id}}", "undefined", "null", "NaN", "[object Object]", "order-undefined", "null_7", "a:NaN:b", "x./undefined", "7|[object Object]", "order-", "order_", "order:", "ord.", "o/", "o|",
		} {
			for n := 1; n <= 2; n++ {
				a := w.post(t, "/claim", and(key(k), obj{"payload": obj{"n": n}})).refused(t, 422, "invalid_key")
				if len(a.text("message")) < 20 {
					t.Errorf("%q: the message does not say which: %s", k, a.text("message"))
				}
			}
		}
		for _, payload := range []string{`{}`, `{"order_id":null}`, `{"order_id":""}`, `{"order_id":{}}`, `{"order_id":"undefined"}`} {
			w.post(t, "/claim", `{"source":"shop","key_template":"order-{order_id}","payload":`+payload+`}`).refused(t, 422, "invalid_key")
		}
		for _, k := range []string{"undefinedly", "nullable", "Order-7", "order--7", "Null", "7-", "a b"} {
			w.decides(t, "proceed", key(k))
		}
		list := w.get(t, "/claims?limit=200").ok(t)
		if items, _ := list.body["items"].([]any); len(items) != 7 {
			t.Errorf("%d claims are stored, want 7", len(items))
		}
	})
}

// F007: different facts that share a key found by a standard path are refused aloud, not taken for duplicates.
func TestSharedKeys(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		paid, shipped := `{"id":"Q7","status":"paid"}`, `{"id":"Q7","status":"shipped"}`
		w.done(t, `{"source":"shop","payload":`+paid+`}`)
		w.post(t, "/claim", `{"source":"shop","payload":`+shipped+`}`).refused(t, 422, "key_reused")
		w.decides(t, "completed", `{"source":"shop","payload":`+paid+`}`).has(t, obj{"payload_matches": true})
		w.decides(t, "proceed", `{"source":"shop","key_template":"{id}-{status}","payload":`+shipped+`}`)
		// One key is of one kind.
		w.post(t, "/claim", and(key("Q7"), obj{"kind": "effect"})).refused(t, 422, "key_reused")
		w.decides(t, "proceed", and(effect("Q7", "note"), obj{"kind": "event"})).has(t, obj{"kind": "event"})
	})
}

// F008: an identity is four columns, never a joined string.
func TestKeyScope(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		all := []obj{
			{"source": "shop-a", "idempotency_key": "1001"},
			{"source": "shop-b", "idempotency_key": "1001"},
			{"source": "stripe-test", "idempotency_key": "evt_9"},
			{"source": "stripe-live", "idempotency_key": "evt_9"},
			{"source": "a", "account": "a:b", "idempotency_key": "c"},
			{"source": "a", "account": "a", "idempotency_key": "b:c"},
			{"source": "a", "account": "", "idempotency_key": "a:b:c"},
			{"source": "a", "idempotency_key": "c", "account": "a", "step": "b"},
		}
		for _, c := range all {
			w.done(t, c)
			w.decides(t, "completed", c)
		}
	})
}

// F011: each effect of one event is its own claim.
func TestSteps(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		event := w.proceeds(t, key("inv_12"))
		w.done(t, effect("inv_12", "create_invoice"))
		w.decides(t, "proceed", effect("inv_12", "pay_invoice")).has(t, obj{"kind": "effect", "lease_expires_at": "2026-11-30T20:15:00Z"})
		w.decides(t, "proceed", effect("inv_12", "send_receipt"))
		w.decides(t, "completed", effect("inv_12", "create_invoice"))
		w.post(t, "/complete", obj{"lease_token": event}).ok(t)
		w.decides(t, "in_progress", effect("inv_12", "pay_invoice"))
	})
}

// F013: 255 bytes pass and 256 do not, whatever they are.
func TestKeyLength(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		random := make([]byte, 1500)
		_, _ = rand.Read(random)
		noise := hex.EncodeToString(random)
		for _, k := range []string{strings.Repeat("k", 255), noise[:255], strings.Repeat("é", 127) + "x"} {
			w.decides(t, "proceed", key(k)).has(t, obj{"idempotency_key": k})
		}
		for _, k := range []string{strings.Repeat("k", 256), noise[:256], strings.Repeat("a", 3000), noise, strings.Repeat("é", 128)} {
			w.post(t, "/claim", key(k)).refused(t, 422, "invalid_key")
		}
		w.post(t, "/claim", obj{"source": "shop", "payload": obj{"id": noise}}).refused(t, 422, "invalid_key")
		w.post(t, "/claim", obj{"source": "stripe", "payload": obj{"id": noise}}).refused(t, 422, "invalid_key")
	})
}

// F014: white space at an end is refused, never trimmed.
func TestKeyPadding(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		w.done(t, key("k1"))
		for _, k := range []string{"k1 ", " k1", "k1\n", "k1\t", "k1\u00a0", "\u3000k1", "k1\r\n", " ", "k1\u2028"} {
			w.post(t, "/claim", key(k)).refused(t, 422, "invalid_key")
		}
		w.post(t, "/claim", key("k\n1")).refused(t, 422, "invalid_key")
		w.post(t, "/claim", key("k\u00851")).refused(t, 422, "invalid_key")
	})
}

// F016: numbers are their literal digits.
func TestBigNumbers(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		for _, n := range []string{"9314159265358979", "9314159265358980", "931415926535897932384", "9007199254740993", "9007199254740992"} {
			w.decides(t, "proceed", `{"source":"db","payload":{"id":`+n+`}}`).has(t, obj{"idempotency_key": n})
			w.decides(t, "proceed", `{"source":"db2","idempotency_key":`+n+`}`).has(t, obj{"idempotency_key": n})
			w.decides(t, "proceed", `{"source":"db3","key_template":"r-{record.id}","payload":{"record":{"id":`+n+`}}}`).has(t, obj{"idempotency_key": "r-" + n})
		}
	})
}

// F017: bytes are compared, nothing is folded.
func TestKeySpelling(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		for i, pair := range [][2]string{{"evt_1AbC", "evt_1aBc"}, {"caf\u00e9", "cafe\u0301"}, {"hello  world", "hello world"}, {"\uff21\uff22\uff23", "ABC"}, {"stra\u00dfe", "strasse"}} {
			of := func(k string) obj { return obj{"source": fmt.Sprint("s", i), "idempotency_key": k} }
			w.done(t, of(pair[0]))
			w.done(t, of(pair[1]))
			w.decides(t, "completed", of(pair[0])).has(t, obj{"idempotency_key": pair[0]})
		}
	})
}

// F019, F020, F022: payloads are compared by what they say.
func TestPayloads(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		of := func(k, payload string) string {
			return `{"source":"shop","idempotency_key":"` + k + `","step":"charge","payload":` + payload + `}`
		}
		w.done(t, of("k9", `{"a":1,"b":{"x":1,"y":2}}`))
		for _, same := range []string{`{"b":{"y":2,"x":1},"a":1}`, ` { "\u0061" : 1.0 , "b" : { "x" : 1e0 , "y" : 20e-1 } } `} {
			w.decides(t, "completed", of("k9", same)).has(t, obj{"payload_matches": true, "result": obj{"n": 1}})
		}
		for _, other := range []string{`{"a":1,"b":{"x":1,"y":3}}`, `{"a":"1","b":{"x":1,"y":2}}`, `[{"a":1}]`} {
			w.post(t, "/claim", of("k9", other)).refused(t, 422, "key_reused")
		}
		w.decides(t, "completed", of("k9", "null")).has(t, obj{"payload_matches": nil})
		w.done(t, of("big", `{"n":9007199254740993}`))
		w.post(t, "/claim", of("big", `{"n":9007199254740992}`)).refused(t, 422, "key_reused")
		w.decides(t, "proceed", of("huge", `{"n":1e999999999}`))

		token := w.proceeds(t, of("k10", `{"amount":500}`))
		w.post(t, "/mark-unknown", obj{"lease_token": token}).ok(t)
		w.decides(t, "unknown", of("k10", `{"amount":5e2}`)).has(t, obj{"payload_matches": true})
		w.post(t, "/claim", of("k10", `{"amount":900}`)).refused(t, 422, "key_reused")

		// An event's counters may change between deliveries; the first payload stays.
		event := func(pending int) obj {
			return obj{"source": "stripe", "payload": obj{"id": "evt_5", "pending_webhooks": pending, "data": obj{"amount": 100}}}
		}
		first := w.decides(t, "proceed", event(2)).has(t, obj{"payload_matches": true})
		w.decides(t, "in_progress", event(1)).has(t, obj{"payload_matches": false, "payload_hash": first.text("payload_hash")})
		w.get(t, "/claims/"+first.text("claim_id")).ok(t).has(t, obj{"payload": event(2)["payload"]})

		// A payload that was missing is filled in.
		a := w.decides(t, "proceed", key("later")).has(t, obj{"payload_hash": nil, "payload_matches": nil})
		b := w.decides(t, "in_progress", and(key("later"), obj{"payload": obj{"n": 1}})).has(t, obj{"payload_matches": true})
		if b.text("payload_hash") == "" || b.text("claim_id") != a.text("claim_id") {
			t.Errorf("the payload was not filled in: %s", b.raw)
		}
	})
}
