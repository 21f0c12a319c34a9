package inbox

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"holdfast/internal/identity"
)

// wantError fails unless err is an *identity.Error of this code whose message
// has says in it.
func wantError(t *testing.T, err error, code, says string) {
	t.Helper()
	var e *identity.Error
	if !errors.As(err, &e) || e.Code != code || !strings.Contains(e.Message, says) {
		t.Fatalf("error %v; want %s with %q", err, code, says)
	}
	if strings.Contains(e.Message, "%!") {
		t.Fatalf("message %q has a formatting error", e.Message)
	}
}

func identify(t *testing.T, provider, payload, headers string) (key, account string, err error) {
	t.Helper()
	p, ok := Find(provider)
	if !ok {
		t.Fatalf("no provider %q", provider)
	}
	return p.Identify([]byte(payload), []byte(headers))
}

func TestFind(t *testing.T) {
	t.Parallel()
	names := strings.Fields(`stripe github shopify paystack razorpay square hubspot adyen slack twilio whatsapp
		standard-webhooks svix flutterwave paddle gocardless woocommerce typeform calendly intercom lemonsqueezy
		xero mpesa-stk mpesa-c2b mpesa-b2c paystack-v1 flutterwave-v3 flutterwave-v4 mpesa`)
	for _, name := range names {
		if p, ok := Find(name); !ok || p.Name != name || len(p.key) == 0 {
			t.Errorf("Find(%q) = %v, %t", name, p, ok)
		}
	}
	if len(profiles) != len(names) || len(byName) != len(names) {
		t.Errorf("%d rows, %d names, %d expected", len(profiles), len(byName), len(names))
	}
	for _, name := range []string{"", "hmac", "none", "Stripe", "unknown"} {
		if p, ok := Find(name); ok || p != nil {
			t.Errorf("Find(%q) = %v, %t", name, p, ok)
		}
	}
}

// A body that says too little for any key, and no headers: every provider has
// to say what it looked for, and none may make something up.
func TestMissingKeyNamesWhatWasLookedFor(t *testing.T) {
	t.Parallel()
	for i := range profiles {
		p := &profiles[i]
		for _, payload := range []string{`{"name":"Asha","msg":"hi"}`, `{}`, `null`, ``, `"text"`, `7`} {
			key, account, err := p.Identify([]byte(payload), nil)
			if key != "" || account != "" {
				t.Errorf("%s: %s has the key %q, account %q", p.Name, payload, key, account)
			}
			wantError(t, err, identity.CodeMissingKey, p.lookedFor())
		}
		for _, payload := range []string{`{"id":`, `{} {}`, `id=1&status=paid`} {
			if _, _, err := p.Identify([]byte(payload), nil); err == nil {
				t.Errorf("%s takes %q", p.Name, payload)
			}
		}
	}
	p, _ := Find("github")
	_, _, err := p.Identify([]byte(`{}`), nil)
	wantError(t, err, identity.CodeMissingKey, "no github key: looked for the header X-GitHub-Delivery (headers have to be sent along as `headers`)")
	p, _ = Find("flutterwave")
	_, _, err = p.Identify([]byte(`{}`), nil)
	wantError(t, err, identity.CodeMissingKey, "looked for event + data.id + data.status; or id; or type + data.id + data.status")
	p, _ = Find("twilio")
	_, _, err = p.Identify([]byte(`{}`), nil)
	wantError(t, err, identity.CodeMissingKey, "MessageSid or SmsSid + MessageStatus or SmsStatus; or")
}

func TestArraysHaveToBeSplit(t *testing.T) {
	t.Parallel()
	for i := range profiles {
		p := &profiles[i]
		for _, payload := range []string{`[{"id":"a"},{"id":"b"}]`, ` [] `} { // F085
			_, _, err := p.Identify([]byte(payload), nil)
			wantError(t, err, identity.CodeMissingKey, "")
		}
		_, _, err := p.Identify([]byte(strings.Repeat(`[`, 1001)), nil) // F118
		wantError(t, err, identity.CodeInvalidJSON, "deeper than 200 levels")
		_, _, err = p.Identify([]byte(strings.Repeat(`{"events":`, 201)), nil)
		wantError(t, err, identity.CodeInvalidJSON, "deeper than 200 levels")
	}
	_, _, err := identify(t, "stripe", `[{"id":"evt_1"}]`, ``)
	wantError(t, err, identity.CodeMissingKey, "Split Out")
}

func TestLongKeys(t *testing.T) {
	t.Parallel()
	body := func(uri string) string {
		return `{"event":"invitee.created","created_at":"2026-01-01T00:00:00Z","payload":{"uri":"` + uri + `"}}`
	}
	long := strings.Repeat("x", 400)
	first, _, err := identify(t, "calendly", body(long+"a"), ``)
	if err != nil {
		t.Fatal(err)
	}
	second, _, _ := identify(t, "calendly", body(long+"b"), ``)
	again, _, _ := identify(t, "calendly", body(long+"a"), ``)
	if len(first) != identity.MaxKeyBytes || first == second || first != again || !strings.HasPrefix(first, "invitee.created:xxxx") {
		t.Errorf("%q, %q, %q", first, second, again)
	}
	// Cut between characters, wherever the cut falls.
	for pad := range 4 {
		key, _, err := identify(t, "calendly", body(strings.Repeat("x", pad)+strings.Repeat("日", 300)), ``)
		if err != nil || len(key) > identity.MaxKeyBytes || len(key) < identity.MaxKeyBytes-3 {
			t.Errorf("%d bytes, %v: %q", len(key), err, key)
		}
	}
	_, _, err = identify(t, "calendly", body(long+`\u0000`), ``)
	wantError(t, err, identity.CodeInvalidKey, "control character")

	// F013: a single id is never shortened.
	_, _, err = identify(t, "stripe", `{"id":"`+long+`"}`, ``)
	wantError(t, err, identity.CodeInvalidKey, "400 bytes")
	// Header text can be any bytes when it does not come as JSON.
	p, _ := Find("woocommerce")
	for _, topic := range []string{strings.Repeat("\x80", 300), "a\xff", "a\nb", strings.Repeat("x", 300) + "\n"} {
		_, _, err = p.IdentifyRequest([]byte(`{}`), func(string) string { return topic })
		wantError(t, err, identity.CodeInvalidKey, "")
	}
}

func TestPartsCannotBeReadTwoWays(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, payload := range []string{ // F008
		`{"event":"a:b","data":{"id":"c","status":"d"}}`,
		`{"event":"a","data":{"id":"b:c","status":"d"}}`,
		`{"event":"a","data":{"id":"b","status":"c:d"}}`,
		`{"event":"a%3Ab","data":{"id":"c","status":"d"}}`,
		`{"event":"a%","data":{"id":"b:c","status":"d"}}`,
		`{"type":"t","id":"a:b:c"}`,
		`{"type":"t","id":"a%3Ab%3Ac"}`,
		`{"event":"a","data":{"id":"b","status":"c"}}`,
		`{"event":"a","data":{"id":"b","status":":"}}`,
	} {
		key, _, err := identify(t, "flutterwave", payload, ``)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[key]; ok {
			t.Errorf("%s and %s have the key %q", payload, other, key)
		}
		seen[key] = payload
	}
	one, _, _ := identify(t, "whatsapp", `{"id":"wamid.1:read"}`, ``)
	two, _, _ := identify(t, "whatsapp", `{"id":"wamid.1","status":"read"}`, ``)
	if one == two {
		t.Errorf("both %q", one)
	}
}

// The same request has one key whether it comes through a workflow or directly.
func TestIdentifyRequest(t *testing.T) {
	t.Parallel()
	h := http.Header{}
	h.Set("X-Shopify-Webhook-Id", "b54557e4-0000-4000-8000-000000000001")
	h.Set("X-Shopify-Shop-Domain", "shop.example.test")
	p, _ := Find("shopify")
	key, account, err := p.IdentifyRequest([]byte(`{"id":450000001}`), h.Get)
	if err != nil || key != "b54557e4-0000-4000-8000-000000000001" || account != "shop.example.test" {
		t.Errorf("%q, %q, %v", key, account, err)
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ headers, key, code string }{
		"lower case, as n8n gives it": {`{"host":"127.0.0.1","x-github-delivery":"d-1"}`, "d-1", ""},
		"as GitHub writes it":         {`{"X-GitHub-Delivery":"d-1"}`, "d-1", ""},
		"upper case":                  {`{"X-GITHUB-DELIVERY":"d-1"}`, "d-1", ""},
		"array of one":                {`{"x-github-delivery":["d-1"]}`, "d-1", ""},
		"array of equal ones":         {`{"x-github-delivery":["d-1","d-1"]}`, "d-1", ""},
		"two spellings, one value":    {`{"x-github-delivery":"d-1","X-GitHub-Delivery":"d-1"}`, "d-1", ""},
		"number":                      {`{"x-github-delivery":9314159265358980}`, "9314159265358980", ""},
		"other headers of any kind":   {`{"a":null,"b":{"c":[1]},"set-cookie":["x","y"],"x-github-delivery":"d-1"}`, "d-1", ""},
		"array of different ones":     {`{"x-github-delivery":["d-1","d-2"]}`, "", identity.CodeMissingKey},
		"two spellings, two values":   {`{"x-github-delivery":"d-1","X-GitHub-Delivery":"d-2"}`, "", identity.CodeMissingKey},
		"empty":                       {`{"x-github-delivery":""}`, "", identity.CodeMissingKey},
		"null":                        {`{"x-github-delivery":null}`, "", identity.CodeMissingKey},
		"true":                        {`{"x-github-delivery":true}`, "", identity.CodeMissingKey},
		"lone surrogate":              {`{"x-github-delivery":"\ud800"}`, "", identity.CodeMissingKey},
		"no headers":                  {``, "", identity.CodeMissingKey},
		"null headers":                {`null`, "", identity.CodeMissingKey},
		"F092 NUL":                    {`{"x-github-delivery":"a\u0000"}`, "", identity.CodeInvalidKey},
		"headers are a list":          {`[]`, "", identity.CodeInvalidJSON},
		"headers are a text":          {`"x"`, "", identity.CodeInvalidJSON},
		"headers are cut off":         {`{"x-github-delivery":"d-1"`, "", identity.CodeInvalidJSON},
		"headers have a tail":         {`{"x-github-delivery":"d-1"} {}`, "", identity.CodeInvalidJSON},
		"F118 deep":                   {`{"x":` + strings.Repeat(`[`, 1001), "", identity.CodeInvalidJSON},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, _, err := identify(t, "github", `{"action":"opened"}`, row.headers)
			if key != row.key {
				t.Errorf("key %q, want %q", key, row.key)
			}
			if row.code != "" {
				wantError(t, err, row.code, "")
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAccountIsChecked(t *testing.T) {
	t.Parallel()
	for _, account := range []string{`a\u0000`, strings.Repeat("a", 256), `\ud800`} {
		_, _, err := identify(t, "stripe", `{"id":"evt_1","account":"`+account+`"}`, ``)
		wantError(t, err, identity.CodeInvalidKey, "")
	}
	key, account, err := identify(t, "stripe", `{"id":"evt_1","account":null}`, ``)
	if key != "evt_1" || account != "" || err != nil {
		t.Errorf("%q, %q, %v", key, account, err)
	}
}

func TestKeysFromAProfileAreTakenAsTheyAre(t *testing.T) {
	t.Parallel()
	for _, id := range []string{" k1 ", "undefined", "order-", "{{ x }}", "null:1", "caf\u00e9", "cafe\u0301"} {
		key, _, err := identify(t, "stripe", `{"id":"`+id+`"}`, ``)
		if err != nil || key != id {
			t.Errorf("%q: %q, %v", id, key, err)
		}
	}
	for id, code := range map[string]string{`01\u00006`: identity.CodeInvalidKey, `\ud800`: identity.CodeInvalidKey} { // F092
		_, _, err := identify(t, "stripe", `{"id":"`+id+`"}`, ``)
		wantError(t, err, code, "")
	}
	_, _, err := identify(t, "stripe", `{"id":"evt_1","id":"evt_2"}`, ``) // F023
	wantError(t, err, identity.CodeInvalidJSON, "twice")
}
