package inbox

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"net/http"
	"strings"
	"testing"
	"time"
)

func mac(h func() hash.Hash, key, text string) []byte {
	m := hmac.New(h, []byte(key))
	m.Write([]byte(text))
	return m.Sum(nil)
}

func hexOf(h func() hash.Hash, key, text string) string { return hex.EncodeToString(mac(h, key, text)) }

func b64(h func() hash.Hash, key, text string) string {
	return base64.StdEncoding.EncodeToString(mac(h, key, text))
}

// post is a request with headers in pairs of name and value.
func post(target, body string, headers ...string) *Request {
	h := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		h.Add(headers[i], headers[i+1])
	}
	return &Request{Method: "POST", Target: target, Header: h.Values, Body: []byte(body)}
}

const base = "https://hooks.example.com"

// Requests signed here, by hand, for what the file has no vector of.
func TestOwnVectors(t *testing.T) {
	t.Parallel()
	const key, form = "a secret", "application/x-www-form-urlencoded"
	t0 := fmt.Sprint(someday.Unix())
	ms := fmt.Sprint(someday.UnixMilli())
	sum := sha256.Sum256([]byte(`{"specversion":"1.0","id":"EZ1"}`))
	hashed := "/in/twilio?bodySHA256=" + hex.EncodeToString(sum[:])
	for name, row := range map[string]struct {
		provider string
		r        *Request
		reason   Reason // empty: authentic
	}{
		"calendly":              {"calendly", post("/", `{}`, "Calendly-Webhook-Signature", "t="+t0+",v1="+hexOf(sha256.New, key, t0+".{}")), ""},
		"intercom":              {"intercom", post("/", `{}`, "X-Hub-Signature", "sha1="+hexOf(sha1.New, key, "{}")), ""},
		"paystack":              {"paystack", post("/", `{"a":"\/"} `, "X-Paystack-Signature", hexOf(sha512.New, key, `{"a":"\/"} `)), ""},
		"xero":                  {"xero", post("/", `{"events":[]}`, "x-xero-signature", b64(sha256.New, key, `{"events":[]}`)), ""},
		"flutterwave v3":        {"flutterwave", post("/", `{}`, "verif-hash", key), ""},
		"flutterwave v4":        {"flutterwave", post("/", `{}`, "flutterwave-signature", b64(sha256.New, key, "{}")), ""},
		"flutterwave bad v4":    {"flutterwave", post("/", `{}`, "flutterwave-signature", "x", "verif-hash", key), ReasonMismatch},
		"v4 with v3's":          {"flutterwave-v4", post("/", `{}`, "verif-hash", key), ReasonMissing},
		"v3 with v4's":          {"flutterwave-v3", post("/", `{}`, "flutterwave-signature", b64(sha256.New, key, "{}")), ReasonMissing},
		"hubspot":               {"hubspot", post("/in?a=1", `[]`, "X-HubSpot-Signature-v3", b64(sha256.New, key, "POST"+base+"/in?a=1[]"+ms), "X-HubSpot-Request-Timestamp", ms), ""},
		"hubspot decoded":       {"hubspot", post("/in?a=x%40y%2Fz", `[]`, "X-HubSpot-Signature-v3", b64(sha256.New, key, "POST"+base+"/in?a=x@y/z[]"+ms), "X-HubSpot-Request-Timestamp", ms), ""},
		"hubspot in seconds":    {"hubspot", post("/in", `[]`, "X-HubSpot-Signature-v3", b64(sha256.New, key, "POST"+base+"/in[]"+t0), "X-HubSpot-Request-Timestamp", t0), ReasonTime},
		"hubspot v2":            {"hubspot", post("/in", `[]`, "X-HubSpot-Signature", hexOf(sha256.New, key, ""), "X-HubSpot-Signature-Version", "v2"), ReasonMissing},
		"square, port":          {"square", post("/in", `{}`, "x-square-hmacsha256-signature", b64(sha256.New, key, base+":443/in{}")), ""},
		"square, other port":    {"square", post("/in", `{}`, "x-square-hmacsha256-signature", b64(sha256.New, key, base+":8443/in{}")), ReasonMismatch},
		"twilio":                {"twilio", post("/in", "B=2&A=1+%2B&B=1&B=2", "X-Twilio-Signature", b64(sha1.New, key, base+"/inA1 +B1B2"), "Content-Type", form+"; charset=utf-8"), ""},
		"twilio, empty":         {"twilio", post("/in", "", "X-Twilio-Signature", b64(sha1.New, key, base+"/in")), ""},
		"twilio, bad escape":    {"twilio", post("/in", "A=%zz", "X-Twilio-Signature", b64(sha1.New, key, base+"/in"), "Content-Type", form), ReasonMalformed},
		"twilio, body unsigned": {"twilio", post("/in", "{}", "X-Twilio-Signature", b64(sha1.New, key, base+"/in"), "Content-Type", "application/json"), ReasonMissing},
		"twilio, no type":       {"twilio", post("/in", "A=1", "X-Twilio-Signature", b64(sha1.New, key, base+"/in")), ReasonMissing},
		"twilio JSON":           {"twilio", post(hashed, `{"specversion":"1.0","id":"EZ1"}`, "X-Twilio-Signature", b64(sha1.New, key, base+hashed), "Content-Type", "application/json"), ""},
		"twilio JSON, changed":  {"twilio", post(hashed, `{"specversion":"1.0","id":"EZ2"}`, "X-Twilio-Signature", b64(sha1.New, key, base+hashed)), ReasonMismatch},
		"github SHA-1":          {"github", post("/", `{}`, "X-Hub-Signature", "sha1="+hexOf(sha1.New, key, "{}")), ReasonMissing},
		"github, twice":         {"github", post("/", `{}`, "X-Hub-Signature-256", "sha256="+hexOf(sha256.New, key, "{}"), "X-Hub-Signature-256", "sha256=0"), ReasonMissing},
		"upper-case digits":     {"github", post("/", `{}`, "X-Hub-Signature-256", "sha256="+strings.ToUpper(hexOf(sha256.New, key, "{}"))), ""},
		"empty signature":       {"lemonsqueezy", post("/", `{}`, "X-Signature", ""), ReasonMissing},
		"signed empty body":     {"lemonsqueezy", post("/", ``, "X-Signature", hexOf(sha256.New, key, "")), ""},
		"no headers":            {"stripe", &Request{Method: "POST", Target: "/", Body: []byte(`{}`)}, ReasonMissing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSource(t, Config{Provider: row.provider, Secrets: []string{key}, PublicURL: base + "/"})
			if row.reason == "" {
				receive(t, s, row.r, someday)
			} else if e := refusal(t, s, row.r, someday); e.Reason != row.reason || e.Code != CodeInvalidSignature || strings.Contains(e.Message, key) {
				t.Error(e)
			}
		})
	}
}

// F076: what is inside of the tolerance, and what a time is.
func TestTolerance(t *testing.T) {
	t.Parallel()
	const key = "a secret"
	signed := func(provider, at string) *Request {
		switch provider {
		case "stripe", "calendly", "paystack-v1":
			h, name := sha256.New, "Stripe-Signature"
			if provider == "calendly" {
				name = "Calendly-Webhook-Signature"
			}
			if provider == "paystack-v1" {
				h, name = sha512.New, "X-Paystack-Signature"
			}
			return post("/", `{}`, name, "t="+at+",v1="+hexOf(h, key, at+".{}"))
		case "paddle":
			return post("/", `{}`, "Paddle-Signature", "ts="+at+";h1="+hexOf(sha256.New, key, at+":{}"))
		case "slack":
			return post("/", `{}`, "X-Slack-Signature", "v0="+hexOf(sha256.New, key, "v0:"+at+":{}"), "X-Slack-Request-Timestamp", at)
		case "hubspot":
			return post("/", `[]`, "X-HubSpot-Signature-v3", b64(sha256.New, key, "POST"+base+"/[]"+at), "X-HubSpot-Request-Timestamp", at)
		}
		return post("/", `{}`, "webhook-id", "m", "webhook-timestamp", at, "webhook-signature", "v1,"+b64(sha256.New, "0123456789abcdef", "m."+at+".{}"))
	}
	for _, row := range []struct {
		provider       string
		set            time.Duration
		oldest, newest int // seconds from now; newest 0: any
	}{
		{"stripe", 0, -300, 0},
		{"stripe", time.Minute, -60, 0},
		{"calendly", 0, -180, 0},
		{"paddle", 0, -5, 0},
		{"slack", 0, -300, 0},
		{"hubspot", 0, -300, 0},
		{"paystack-v1", 0, -300, 300},
		{"standard-webhooks", 0, -300, 300},
		{"svix", time.Minute, -60, 60},
	} {
		secret := key
		if strings.HasPrefix(row.provider, "s") && row.provider != "stripe" && row.provider != "slack" {
			secret = "whsec_" + base64.StdEncoding.EncodeToString([]byte("0123456789abcdef"))
		}
		s := newSource(t, Config{Provider: row.provider, Secrets: []string{secret}, Tolerance: row.set, PublicURL: base})
		unit := int64(1)
		if row.provider == "hubspot" {
			unit = 1000
		}
		at := func(seconds int) *Request {
			return signed(row.provider, fmt.Sprint((someday.Unix()+int64(seconds))*unit))
		}
		good, bad := []int{row.oldest, 0, row.newest}, []int{row.oldest - 1, -1e6}
		if row.newest == 0 {
			good = append(good, 3600)
		} else {
			bad = append(bad, row.newest+1)
		}
		for _, seconds := range good {
			receive(t, s, at(seconds), someday)
		}
		for _, seconds := range bad {
			if e := refusal(t, s, at(seconds), someday); e.Reason != ReasonTime {
				t.Errorf("%s at %d: %v", row.provider, seconds, e)
			}
		}
		for _, text := range []string{"", "abc", "-1", "+1767225600", "1767225600.5", " 1767225600", "99999999999999999999", "9999999999999999"} {
			if e := refusal(t, s, signed(row.provider, text), someday); e.Reason != ReasonMalformed {
				t.Errorf("%s at %q: %v", row.provider, text, e)
			}
		}
	}
	stripe := newSource(t, Config{Provider: "stripe", Secrets: []string{key}})
	v1 := ",v1=" + hexOf(sha256.New, key, "1767225600.{}")
	for header, reason := range map[string]Reason{
		"t=1767225600,t=1767225600" + v1:                                      ReasonMalformed,
		strings.TrimPrefix(v1, ","):                                           ReasonMalformed,
		"t=1767225600":                                                        ReasonMismatch,
		"t=1767225600,v0=" + v1[4:]:                                           ReasonMismatch,
		"t=1767225600" + strings.Repeat(",v1=0", 500):                         ReasonMismatch,
		"t=1767225600" + strings.Repeat(",v1=0", maxEntries) + v1:             ReasonMismatch,
		"t=1767225600" + strings.Repeat(",v1=0", maxEntries-1) + v1 + ",v1=0": "",
		"v0=x" + v1 + ",t=1767225600":                                         "",
	} {
		r := post("/", `{}`, "Stripe-Signature", header)
		if reason == "" {
			receive(t, stripe, r, someday)
		} else if e := refusal(t, stripe, r, someday); e.Reason != reason {
			t.Errorf("%.60s: %v", header, e)
		}
	}
}

// Only one of two sets of headers is signed, so the other must not name the
// delivery.
func TestMixedWebhookHeaders(t *testing.T) {
	t.Parallel()
	svix := vectorNamed(t, "svix-ok")
	s := newSource(t, svix.config())
	at, id, signature := svix.Headers["svix-timestamp"], svix.Headers["svix-id"], svix.Headers["svix-signature"]
	for name, row := range map[string]struct {
		headers []string
		ok      bool
	}{
		"webhook-":           {[]string{"webhook-id", id, "webhook-timestamp", at, "webhook-signature", signature}, true},
		"both, equal":        {[]string{"webhook-id", id, "webhook-timestamp", at, "webhook-signature", signature, "svix-id", id}, true},
		"both, other id":     {[]string{"webhook-id", id, "webhook-timestamp", at, "webhook-signature", signature, "svix-id", "msg_other"}, false},
		"svix-, other id":    {[]string{"svix-id", id, "svix-timestamp", at, "svix-signature", signature, "webhook-id", "msg_other"}, false},
		"mixture":            {[]string{"svix-id", id, "webhook-timestamp", at, "svix-signature", signature}, false},
		"list":               {[]string{"svix-id", id, "svix-timestamp", at, "svix-signature", "v1,AAAA v1a,AAAA " + signature}, true},
		"another version":    {[]string{"svix-id", id, "svix-timestamp", at, "svix-signature", "v2," + signature[3:]}, false},
		"public-key version": {[]string{"svix-id", id, "svix-timestamp", at, "svix-signature", "v1a," + signature[3:]}, false},
		"without an id":      {[]string{"svix-timestamp", at, "svix-signature", "v1," + b64(sha256.New, string(s.keys[0].mac), "."+at+"."+svix.Body)}, false},
		"id with a dot":      {[]string{"svix-id", "a.b", "svix-timestamp", at, "svix-signature", "v1," + b64(sha256.New, string(s.keys[0].mac), "a.b."+at+"."+svix.Body)}, false},
	} {
		r := post("/", svix.Body, row.headers...)
		if row.ok {
			if got := receive(t, s, r, svix.now()); got.Events[0].Key != id {
				t.Errorf("%s: %+v", name, got)
			}
		} else if e := refusal(t, s, r, svix.now()); e.Code != CodeInvalidSignature {
			t.Errorf("%s: %v", name, e)
		}
	}
}

// What we sign, our own check takes, and a library would.
func TestSigner(t *testing.T) {
	t.Parallel()
	v := vectorNamed(t, "stdwh-ok")
	signer, err := NewSigner(v.Secret)
	if err != nil {
		t.Fatal(err)
	}
	got := signer.Headers(v.Headers["webhook-id"], time.Unix(1767225600, 999), []byte(v.Body))
	for name, value := range v.Headers {
		if got[name] != value || len(got) != len(v.Headers) {
			t.Errorf("%s is %q, want %q", name, got[name], value)
		}
	}
	v.Headers = signer.Headers("id", someday, []byte(v.Body))
	receive(t, newSource(t, v.config()), v.request(), someday)
	for _, secret := range []string{"", "whsec_", "whsec_!", " " + v.Secret, vectorNamed(t, "stdwh-v1a-ed25519").Secret} {
		if _, err := NewSigner(secret); err == nil || len(secret) > 6 && strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", secret, err)
		}
	}
}

// Adyen signs each item, and a body without any is signed by nobody.
func TestItems(t *testing.T) {
	t.Parallel()
	const key = "0f1e2d3c4b5a6978"
	raw, _ := hex.DecodeString(key)
	item := func(psp, signature string) string {
		return `{"NotificationRequestItem":{"pspReference":"` + psp + `","eventCode":"CAPTURE","success":"true","merchantAccountCode":"M","amount":{"value":1,"currency":"EUR"},"additionalData":{"hmacSignature":"` + signature + `"}}}`
	}
	good := item("P1", b64(sha256.New, string(raw), "P1::M::1:EUR:CAPTURE:true"))
	body := func(items ...string) *Request {
		return post("/", `{"live":"false","notificationItems":[`+strings.Join(items, ",")+`]}`)
	}
	s := newSource(t, Config{Provider: "adyen", Secrets: []string{strings.ToUpper(key)}})
	got := receive(t, s, body(good, item("P2", b64(sha256.New, string(raw), "P2::M::1:EUR:CAPTURE:true"))), someday)
	if len(got.Events) != 2 || got.Events[1].Key != "P2:CAPTURE:true" || got.Events[1].Account != "M" || *got.Answer != *plain("[accepted]") || string(got.Events[0].Payload) != good {
		t.Errorf("%+v", got)
	}
	for name, r := range map[string]*Request{
		"none": body(), "no list": post("/", `{}`), "no JSON": post("/", `x`), "empty": post("/", ``), "unsigned": body(item("P1", "")),
		"one bad": body(good, item("P2", "AAAA")), "null": body(good, "null"), "outside of the list": post("/", good),
		"a field twice": body(strings.Replace(good, `"pspReference"`, `"pspReference":"P9","pspReference"`, 1)),
		"a field more":  body(strings.Replace(good, `"eventCode"`, `"originalReference":"P0","eventCode"`, 1)),
	} {
		if e := refusal(t, s, r, someday); e.Code != CodeInvalidSignature {
			t.Errorf("%s: %v", name, e)
		}
	}
}
