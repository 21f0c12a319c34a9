package inbox

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"holdfast/internal/identity"
)

// byToken is a source that a token guards: what is tested is not the signature.
func byToken(t testing.TB, provider string) *Source {
	return newSource(t, Config{Provider: provider, Token: true, VerifyToken: map[string]string{"whatsapp": "TOK"}[provider]})
}

func get(target string) *Request {
	return &Request{Method: "GET", Target: target, Header: http.Header{}.Values}
}

// The exact bytes are kept, whatever the JSON in them looks like.
func TestBytesAreKept(t *testing.T) {
	t.Parallel()
	body := "  {\"b\":1.0, \"a\":\"\\u00e9\\/x\",\"id\":\"e1\"}\n" // F073
	got := receive(t, byToken(t, "none"), post("/", body, "Content-Type", "application/json; charset=utf-8"), someday)
	e := got.Events[0]
	if len(got.Events) != 1 || string(e.Payload) != body || string(e.JSON) != strings.TrimSpace(body) || e.ContentType != "application/json; charset=utf-8" {
		t.Errorf("%+v", e)
	}
	if e.Key != "e1" || e.KeyBasis != "standard" || e.Err != nil || got.Answer != nil || got.Handshake {
		t.Errorf("%+v", got)
	}
}

// F085: one event for each element, one of them without a key.
func TestBatches(t *testing.T) {
	t.Parallel()
	long := strings.Repeat(`{"id":"EV1"},`, 100) + `{"action":"no id"},` + strings.Repeat(`{"id":"EV2"},`, 98) + `{"id":"EV3"}`
	changed := `{"value":{"metadata":{"phone_number_id":"7"},"messages":[{"id":"m1","timestamp":"5"}],"statuses":[{"id":"m1","status":"read"}]},"field":"messages"}`
	for name, row := range map[string]struct{ provider, body, keys string }{
		"200 events":             {"gocardless", `{"events":[` + long + `],"meta":{}}`, strings.Repeat("EV1 ", 100) + "- " + strings.Repeat("EV2 ", 98) + "EV3"},
		"none":                   {"gocardless", `{"events":[]}`, ""},
		"holes":                  {"gocardless", `{"events":[null,7,"x",[],{},{"id":""},{"id":"EV1"}]}`, "- - - - - - EV1"},
		"no list":                {"gocardless", `{"events":{}}`, "-"},
		"another array":          {"gocardless", `[{"id":"EV1"}]`, "-"},
		"lists twice":            {"gocardless", `{"events":[{"id":"EV1"}],"events":[]}`, "-"},
		"portals":                {"hubspot", `[{"subscriptionId":1,"eventId":2,"objectId":3,"occurredAt":4,"portalId":5},{"subscriptionId":1,"eventId":2,"objectId":4,"occurredAt":4,"portalId":6}]`, "1:2:3:4@5 1:2:4:4@6"},
		"messages, then states":  {"whatsapp", `{"entry":[{"changes":[` + changed + `]}]}`, "m1@7 m1:read@7"},
		"what holds no message":  {"whatsapp", `{"entry":[{"changes":[{"field":"account_update","value":{"event":"X"}},` + changed + `]},{"id":"2"}]}`, "- m1@7 m1:read@7 -"},
		"no message at all":      {"whatsapp", `{"entry":[{"changes":[{"field":"account_update","value":{}}]}]}`, "-"},
		"no messages this time":  {"whatsapp", `{"entry":[{"changes":[{"value":{"messages":[]}}]}]}`, ""},
		"Xero's intent":          {"xero", `{"events":[],"firstEventSequence":0,"lastEventSequence":0,"entropy":"S0m3"}`, ""},
		"Event Streams":          {"twilio", `[{"specversion":"1.0","id":"EZ1"},{"specversion":"1.0","id":"EZ2"}]`, "EZ1 EZ2"},
		"one, though signed so":  {"stripe", `[{"id":"evt_1"}]`, "-"},
		"no JSON":                {"stripe", `{"id":"evt_1"`, "-"},
		"a tail":                 {"stripe", `{"id":"evt_1"} x`, "-"},
		"empty":                  {"stripe", ``, "-"},
		"null":                   {"stripe", `null`, "-"},
		"deep":                   {"stripe", strings.Repeat(`[`, 100000), "-"},
		"id is an object":        {"stripe", `{"id":{"a":1}}`, "-"},
		"id is a number":         {"stripe", `{"id":9007199254740993}`, "9007199254740993"},
		"id with NUL":            {"stripe", `{"id":"a\u0000"}`, "-"},
		"id twice":               {"stripe", `{"id":"a","id":"b"}`, "-"},
		"other member twice":     {"stripe", `{"id":"a","x":1,"x":2}`, "a"},
		"bad UTF-8 elsewhere":    {"stripe", "{\"id\":\"a\",\"x\":\"\xff\"}", "-"},
		"account unusable":       {"stripe", `{"id":"a","account":"\u0000"}`, "-"},
		"binary":                 {"none", "\x00\x01\x02", "-"},
		"number for a body":      {"none", "7", "-"},
		"array on standard path": {"none", `[{"id":"a"}]`, "-"},
		"leftover":               {"none", `{"id":"undefined"}`, "-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := receive(t, byToken(t, row.provider), post("/", row.body), someday)
			var keys []string
			for _, e := range got.Events {
				key := e.Key
				if e.Account != "" {
					key += "@" + e.Account
				}
				if key == "" {
					key = "-"
					if e.Err == nil || e.Err.Message == "" || e.KeyBasis != "" {
						t.Errorf("%+v", e)
					}
				}
				if keys = append(keys, key); !strings.Contains(row.body, string(e.Payload)) || len(got.Events) > 1 && e.ContentType != "application/json" {
					t.Errorf("%+v", e)
				}
			}
			if strings.Join(keys, " ") != row.keys || got.Handshake {
				t.Errorf("%s, want %s", strings.Join(keys, " "), row.keys)
			}
		})
	}
}

// F082: challenges are answered, and are no events.
func TestHandshakes(t *testing.T) {
	t.Parallel()
	const hub = "/ingest/meta?hub.mode=subscribe&hub.verify_token="
	for name, row := range map[string]struct {
		provider string
		r        *Request
		answer   Answer
		code     string
	}{
		"Meta":             {"whatsapp", get(hub + "TOK&hub.challenge=4471193"), *plain("4471193"), ""},
		"Meta, hostile":    {"whatsapp", get(hub + "TOK&hub.challenge=%3Cscript%3E"), *plain("<script>"), ""},
		"Meta, wrong":      {"whatsapp", get(hub + "TOX&hub.challenge=1"), Answer{}, CodeUnauthorized},
		"Meta, two tokens": {"whatsapp", get(hub + "TOK&hub.verify_token=TOX&hub.challenge=1"), Answer{}, CodeUnauthorized},
		"Meta, nothing":    {"whatsapp", get("/ingest/meta"), Answer{}, CodeInvalidRequest},
		"Meta, other mode": {"whatsapp", get("/?hub.mode=x&hub.verify_token=TOK&hub.challenge=1"), Answer{}, CodeInvalidRequest},
		"GET elsewhere":    {"stripe", get(hub + "&hub.challenge=1"), Answer{}, CodeInvalidRequest},
		"PUT":              {"none", &Request{Method: "PUT", Target: "/"}, Answer{}, CodeInvalidRequest},
		"Slack":            {"slack", post("/", `{"type":"url_verification","challenge":"abc","token":"t"}`), *plain("abc"), ""},
		"Slack, test form": {"slack", post("/", "ssl_check=1&token=t", "Content-Type", "application/x-www-form-urlencoded"), Answer{}, ""},
		"Intercom's ping":  {"intercom", post("/", `{"type":"notification_event","id":null,"topic":"ping"}`), Answer{}, ""},
		"WooCommerce's":    {"woocommerce", post("/", "webhook_id=3", "Content-Type", "application/x-www-form-urlencoded"), Answer{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := byToken(t, row.provider)
			for range 2 {
				if row.code != "" {
					if e := refusal(t, s, row.r, someday); e.Code != row.code || e.Reason != "" || strings.Contains(e.Message, "TOK") {
						t.Error(e)
					}
					continue
				}
				got := receive(t, s, row.r, someday)
				if !got.Handshake || len(got.Events) > 0 || (got.Answer == nil) != (row.answer == Answer{}) || got.Answer != nil && *got.Answer != row.answer {
					t.Errorf("%+v, %+v", got, got.Answer)
				}
			}
		})
	}
	// The challenge counts only if Slack signed it; a ping with a signature is no ping.
	slack := newSource(t, Config{Provider: "slack", Secrets: []string{"s"}})
	_ = refusal(t, slack, post("/", `{"type":"url_verification","challenge":"abc"}`), someday)
	woo := newSource(t, Config{Provider: "woocommerce", Secrets: []string{"s"}})
	_ = refusal(t, woo, post("/", "webhook_id=3", "Content-Type", "application/x-www-form-urlencoded", "X-WC-Webhook-Signature", "x"), someday)
	_ = refusal(t, woo, post("/", "webhook_id=3"), someday)
	meta := newSource(t, Config{Provider: "whatsapp", Token: true})
	_ = refusal(t, meta, get(hub+"&hub.challenge=1"), someday)
}

// What providers want to read.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for provider, want := range map[string]*Answer{
		"stripe": nil, "hubspot": nil, "slack": nil, "none": nil,
		"mpesa-stk": {200, "application/json", `{"ResultCode":0,"ResultDesc":"Accepted"}`},
		"mpesa-c2b": {200, "application/json", `{"ResultCode":0,"ResultDesc":"Accepted"}`},
		"twilio":    {200, "text/xml; charset=utf-8", "<Response/>"},
		"xero":      {200, "", ""}, "adyen": {200, "text/plain; charset=utf-8", "[accepted]"},
	} {
		got := receive(t, byToken(t, provider), post("/", `{}`), someday)
		if fmt.Sprint(got.Answer) != fmt.Sprint(want) && *got.Answer != *want {
			t.Errorf("%s: %+v", provider, got.Answer)
		}
	}
	xero := newSource(t, Config{Provider: "xero", Secrets: []string{"s"}})
	if e := refusal(t, xero, post("/", `{"events":[]}`, "x-xero-signature", "x"), someday); *e.Answer != (Answer{Status: 401}) {
		t.Errorf("%+v", e.Answer)
	}
	stripe := newSource(t, Config{Provider: "stripe", Secrets: []string{"s"}})
	if e := refusal(t, stripe, post("/", `{}`), someday); e.Answer != nil {
		t.Errorf("%+v", e.Answer)
	}
}

func TestForms(t *testing.T) {
	t.Parallel()
	const form = "application/x-www-form-urlencoded"
	for name, row := range map[string]struct{ body, contentType, json, key string }{
		"plain":               {"id=a+b%2Bc&x=%22%0A&id2=", form, `{"id":"a b+c","x":"\"\n","id2":""}`, "a b+c"},
		"repeated":            {"id=1&x=1&x=2&x=1&&y", form + "; charset=UTF-8", `{"id":"1","x":["1","2","1"],"y":""}`, "1"},
		"repeated id":         {"id=1&id=2", form, `{"id":["1","2"]}`, ""},
		"bad escape":          {"id=%zz", form, ``, ""},
		"not UTF-8":           {"id=%ff", form, ``, ""},
		"empty":               {"", form, `{}`, ""},
		"JSON, wrong type":    {`{"id":"a"}`, form, `{"id":"a"}`, "a"},
		"form, wrong type":    {"id=a", "application/json", ``, ""},
		"a word":              {"7", form, `{"7":""}`, ""},
		"events of our own":   {"events=a&events=b&id=1", form, `{"events":["a","b"],"id":"1"}`, "1"},
		"no readable type":    {`{"id":"a"}`, "a/b/c;;", `{"id":"a"}`, "a"},
		"half a content type": {"id=a", form + "; charset", `{"id":"a"}`, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, headers := range [][]string{
				{"Content-Type", row.contentType},
				{"Content-Type", "application/octet-stream", "X-Original-Content-Type", row.contentType}, // through n8n
			} {
				got := receive(t, byToken(t, "none"), post("/", row.body, headers...), someday)
				e := got.Events[0]
				if len(got.Events) != 1 || string(e.Payload) != row.body || e.ContentType != row.contentType || string(e.JSON) != row.json || e.Key != row.key {
					t.Errorf("%+v; JSON %s", e, e.JSON)
				}
			}
		})
	}
	got := receive(t, byToken(t, "gocardless"), post("/", "events=a&events=b", "Content-Type", form), someday)
	if len(got.Events) != 1 || string(got.Events[0].Payload) != "events=a&events=b" {
		t.Errorf("%+v", got)
	}
	// The type that somebody claims counts only where the real one could not be kept.
	r := post("/", "id=a", "Content-Type", "text/plain", "X-Original-Content-Type", form)
	if e := receive(t, byToken(t, "none"), r, someday).Events[0]; e.ContentType != "text/plain" || e.Key != "" {
		t.Errorf("%+v", e)
	}
}

// A source's own place of the key.
func TestKeyOfTheSource(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ provider, path, target, body, key, code string }{
		"body":         {"none", "body.lead.id", "/", `{"lead":{"id":"L1"}}`, "L1", ""},
		"number":       {"none", "body.id", "/", `{"id":9007199254740993}`, "9007199254740993", ""},
		"element":      {"none", "body.0.id", "/", `[{"id":"L1"}]`, "L1", ""},
		"header":       {"none", "headers.x-event-id", "/", `not JSON, so it cannot be read`, "", identity.CodeInvalidJSON},
		"header, JSON": {"none", "headers.x-event-id", "/", `{}`, "H1", ""},
		"query":        {"none", "query.q", "/x?q=Q%201", `{}`, "Q 1", ""},
		"two of them":  {"none", "query.q", "/x?q=1&q=2", `{}`, "", identity.CodeMissingKey},
		"no fallback":  {"none", "body.lead_id", "/", `{"id":"x"}`, "", identity.CodeMissingKey},
		"null":         {"none", "body.id", "/", `{"id":null}`, "", identity.CodeMissingKey},
		"empty":        {"none", "body.id", "/", `{"id":""}`, "", identity.CodeMissingKey},
		"object":       {"none", "body.id", "/", `{"id":{}}`, "", identity.CodeMissingKey},
		"true":         {"none", "body.id", "/", `{"id":true}`, "", identity.CodeInvalidKey},
		"leftover":     {"none", "body.id", "/", `{"id":"order-"}`, "", identity.CodeInvalidKey},
		"spaces":       {"none", "body.id", "/", `{"id":" a"}`, "", identity.CodeInvalidKey},
		"surrogate":    {"none", "body.id", "/", `{"id":"\ud800"}`, "", identity.CodeInvalidKey},
		"of a row":     {"slack", "body.trigger_id", "/", `{"trigger_id":"t1","team_id":"T"}`, "t1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSource(t, Config{Provider: row.provider, Token: true, Key: row.path})
			got := receive(t, s, post(row.target, row.body, "X-Event-Id", "H1", "Authorization", "Bearer x"), someday)
			e := got.Events[0]
			if e.Key != row.key || (row.code == "") != (e.Err == nil) || e.Err != nil && e.Err.Code != row.code || row.key != "" && e.KeyBasis != "given" {
				t.Errorf("%+v", e)
			}
			if _, kept := got.Headers["x-event-id"]; kept != strings.HasPrefix(row.path, "headers.") || len(got.Headers) > 1 {
				t.Errorf("%v", got.Headers)
			}
		})
	}
}

func TestOrder(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ provider, entity, version, body, want string }{
		"stripe as in the manual": {"stripe", "data.object.id", "created", `{"id":"e","created":1767225601,"data":{"object":{"id":"sub_1"}}}`, "sub_1@1767225601"}, // F049
		"the row's version":       {"stripe", "data.object.id", "", `{"id":"e","created":1767225601,"data":{"object":{"id":"sub_1"}}}`, "sub_1@1767225601"},
		"nothing by itself":       {"stripe", "", "", `{"id":"e","created":1767225601,"data":{"object":{"id":"sub_1"}}}`, "@"},
		"version without entity":  {"stripe", "", "created", `{"id":"e","created":1767225601}`, "@"},
		"square":                  {"square", "", "", `{"event_id":"e","type":"payment.updated","data":{"id":"p:1","object":{"payment":{"version":4}}}}`, "payment.updated:p%3A1@4"},
		"square, another object":  {"square", "", "", `{"event_id":"e","type":"refund.updated","data":{"id":"r","object":{}}}`, "@"},
		"RFC 3339":                {"none", "id", "at", `{"id":"a","at":"2026-01-01T03:00:00.5+03:00"}`, "a@2026-01-01T03:00:00.5+03:00"},
		"without a zone":          {"woocommerce", "id", "", `{"id":727,"date_modified_gmt":"2026-01-01T00:00:00"}`, "727@2026-01-01T00:00:00Z"},
		"text of digits":          {"mpesa-c2b", "BillRefNumber", "", `{"TransID":"U","BillRefNumber":"O1","TransTime":"20260101030003"}`, "O1@20260101030003"},
		"of an element":           {"gocardless", "links.payment", "", `{"events":[{"id":"E","created_at":"2026-01-01T00:00:00.404Z","links":{"payment":"PM1"}}]}`, "PM1@2026-01-01T00:00:00.404Z"},
		"no version":              {"none", "id", "v", `{"id":"a"}`, "a@"},
		"not a version":           {"none", "id", "v", `{"id":"a","v":"tomorrow"}`, "a@"},
		"too big":                 {"none", "id", "v", `{"id":"a","v":9223372036854775808}`, "a@"},
		"a fraction":              {"none", "id", "v", `{"id":"a","v":1.5}`, "a@"},
		"another century":         {"none", "id", "v", `{"id":"a","v":"0001-01-01T00:00:00Z"}`, "a@"},
		"entity unusable":         {"none", "x", "v", `{"id":"a","x":"\u0000","v":1}`, "@"},
		"entity is long":          {"none", "x", "v", `{"id":"a","v":1,"x":"` + strings.Repeat("x", 256) + `"}`, "@"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSource(t, Config{Provider: row.provider, Token: true, Entity: row.entity, Version: row.version})
			e := receive(t, s, post("/", row.body, "X-WC-Webhook-Topic", "order.updated"), someday).Events[0]
			if got := e.Entity + "@" + e.Version; got != row.want || e.Err != nil {
				t.Errorf("%s; %+v", got, e)
			}
		})
	}
}

func TestKeptHeaders(t *testing.T) {
	t.Parallel()
	r := post("/", `{}`, "X-GitHub-Delivery", "d-1", "x-github-event", "ping", "User-Agent", "GitHub-Hookshot/1", "X-Request-Id", "a\xff", "Traceparent", "1", "Traceparent", "2",
		"Authorization", "Bearer x", "Cookie", "a=b", "X-Hub-Signature-256", "sha256=0", "X-Forwarded-For", "1.2.3.4", "X-Any", "1")
	got := receive(t, byToken(t, "github"), r, someday).Headers
	if len(got) != 3 || got["X-GitHub-Delivery"] != "d-1" || got["X-GitHub-Event"] != "ping" || got["User-Agent"] == "" {
		t.Errorf("%v", got)
	}
}

// Validation and confirmation, result and time-out: one id, two keys.
func TestStages(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ provider, target, body, key string }{
		{"mpesa-c2b", "/ingest/pesa/t", `{"TransID":"UA1"}`, "UA1"},
		{"mpesa-c2b", "/ingest/pesa/t?stage=validation", `{"TransID":"UA1"}`, "UA1:validation"},
		{"mpesa-b2c", "/ingest/pesa/t", `{"Result":{"OriginatorConversationID":"O1","ConversationID":"AG1"}}`, "O1:AG1"},
		{"mpesa-b2c", "/ingest/pesa/t?stage=timeout", `{"Result":{"OriginatorConversationID":"O1"}}`, "O1::timeout"},
	} {
		if e := receive(t, byToken(t, row.provider), post(row.target, row.body), someday).Events[0]; e.Key != row.key || e.KeyBasis != "profile" {
			t.Errorf("%s: %+v", row.target, e)
		}
	}
}

func TestMpesaReceipt(t *testing.T) {
	t.Parallel()
	items := func(list string) string {
		return `{"Body":{"stkCallback":{"CheckoutRequestID":"ws_1","ResultCode":0,"CallbackMetadata":{"Item":` + list + `}}}}`
	}
	for body, want := range map[string]string{
		items(`[{"Name":"Balance"},{"Name":"PhoneNumber","Value":254700000001},null,{"Name":"MpesaReceiptNumber","Value":"TST1ABC2DF"},{"Name":"Amount","Value":1.00}]`): "TST1ABC2DF", // F089
		items(`[{"Name":"MpesaReceiptNumber","Value":"A"},{"Value":"A","Name":"MpesaReceiptNumber"}]`):                                                                   "A",
		items(`[{"Name":"MpesaReceiptNumber","Value":"A"},{"Name":"MpesaReceiptNumber","Value":"B"}]`):                                                                   "",
		items(`[{"Name":"MpesaReceiptNumber"}]`): "", items(`[7,"x",[]]`): "", items(`[]`): "", items(`{}`): "", // F088
		items(`[{"Name":"MpesaReceiptNumber","Value":"A"}`):                           "",
		`{"Body":{"stkCallback":{"CheckoutRequestID":"ws_CO_50","ResultCode":1032}}}`: "",
		`{"TransID":"UA1INVENT1","TransAmount":"1250.00"}`:                            "UA1INVENT1",
		`{"TransID":""}`: "", `{"TransID":"A","TransID":"B"}`: "", `[]`: "", ``: "", `x`: "", `{"Body":null}`: "",
		`{"Result":{"TransactionID":"UA1"}}`: "",
	} {
		if got, ok := MpesaReceipt([]byte(body)); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %t", body, got, ok)
		}
	}
}

func TestErrorsAreTyped(t *testing.T) {
	t.Parallel()
	_, err := newSource(t, Config{Provider: "stripe", Secrets: []string{"s"}}).Receive(post("/", `{}`), someday)
	var e *Error
	if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), "invalid_signature: the header Stripe-Signature ") {
		t.Error(err)
	}
	// A header's name is not a format.
	own := newSource(t, Config{Provider: "hmac", Secrets: []string{"s"}, Signature: Signature{Header: "X-%d"}})
	if e := refusal(t, own, post("/", `{}`, "X-%d", "0"), someday); !strings.Contains(e.Message, "X-%d does not match (HMAC-SHA256 in hex over {body}, tried with 1 secrets)") {
		t.Error(e)
	}
}
