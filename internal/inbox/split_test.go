package inbox

import (
	"errors"
	"strings"
	"testing"

	"holdfast/internal/identity"
)

// What looks like a delivery and is none, or is one of several: no key.
func TestProviderPitfalls(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ provider, body, headers, code, says string }{
		"F085 several GoCardless events":  {"gocardless", `{"events":[{"id":"EV1"},{"id":"EV2"},{"id":"EV3"}]}`, ``, identity.CodeMissingKey, "holds 3 gocardless events: split it and make one claim for each element of events[]"},
		"F085 the same event twice":       {"gocardless", `{"events":[{"id":"EV5"},{"id":"EV5"}]}`, ``, identity.CodeMissingKey, "holds 2"},
		"F085 no events":                  {"gocardless", `{"events":[]}`, ``, identity.CodeMissingKey, "holds no event"},
		"F085 event without an id":        {"gocardless", `{"events":[{"action":"paid_out"}]}`, ``, identity.CodeMissingKey, "looked for id"},
		"GoCardless events, unpacked":     {"gocardless", `[{"id":"EV1"}]`, ``, identity.CodeMissingKey, "is an array"},
		"GoCardless events is no array":   {"gocardless", `{"events":{"id":"EV1"}}`, ``, identity.CodeMissingKey, "looked for id"},
		"F023 events twice":               {"gocardless", `{"events":[{"id":"EV1"}],"events":[{"id":"EV2"}]}`, ``, identity.CodeInvalidJSON, `"events" stands twice`},
		"events cut off":                  {"gocardless", `{"events":[{"id":"EV1"}]`, ``, identity.CodeInvalidJSON, ""},
		"tail behind the events":          {"gocardless", `{"events":[{"id":"EV1"}]} x`, ``, identity.CodeInvalidJSON, ""},
		"several HubSpot events":          {"hubspot", `[{"eventId":100},{"eventId":100}]`, ``, identity.CodeMissingKey, "holds 2 hubspot events"},
		"no HubSpot event":                {"hubspot", `[]`, ``, identity.CodeMissingKey, "holds no event"},
		"HubSpot element is a number":     {"hubspot", `[7]`, ``, identity.CodeMissingKey, "looked for subscriptionId"},
		"several Adyen items":             {"adyen", `{"live":"false","notificationItems":[{"NotificationRequestItem":{"eventCode":"AUTHORISATION"}},{"NotificationRequestItem":{"eventCode":"CAPTURE"}}]}`, ``, identity.CodeMissingKey, "holds 2 adyen events"},
		"Adyen item without success":      {"adyen", `{"notificationItems":[{"NotificationRequestItem":{"eventCode":"AUTHORISATION","pspReference":"P1"}}]}`, ``, identity.CodeMissingKey, "success"},
		"several Xero events":             {"xero", `{"events":[{"resourceId":"a"},{"resourceId":"b"}]}`, ``, identity.CodeMissingKey, "holds 2"},
		"Xero's handshake":                {"xero", `{"events":[],"firstEventSequence":0,"lastEventSequence":0,"entropy":"S0m3r4nd0mt3xt"}`, ``, identity.CodeMissingKey, "holds no event"},
		"WhatsApp messages in one entry":  {"whatsapp", `{"entry":[{"changes":[{"value":{"messages":[{"id":"a"},{"id":"b"}]}}]}]}`, ``, identity.CodeMissingKey, "holds 2 whatsapp events"},
		"WhatsApp messages over changes":  {"whatsapp", `{"entry":[{"changes":[{"value":{"messages":[{"id":"a"}]}},{"value":{"messages":[{"id":"b"}]}}]}]}`, ``, identity.CodeMissingKey, "holds 2"},
		"WhatsApp messages over entries":  {"whatsapp", `{"entry":[{"changes":[{"value":{"messages":[{"id":"a"}]}}]},{"changes":[{"value":{"messages":[{"id":"b"}]}}]}]}`, ``, identity.CodeMissingKey, "holds 2"},
		"WhatsApp message and status":     {"whatsapp", `{"entry":[{"changes":[{"value":{"messages":[{"id":"a"}],"statuses":[{"id":"a","status":"read"}]}}]}]}`, ``, identity.CodeMissingKey, "holds 2"},
		"WhatsApp without either":         {"whatsapp", `{"object":"whatsapp_business_account","entry":[{"id":"1","changes":[{"field":"account_update","value":{"event":"X"}}]}]}`, ``, identity.CodeMissingKey, "looked for id"},
		"several Twilio stream events":    {"twilio", `[{"specversion":"1.0","id":"EZ1"},{"specversion":"1.0","id":"EZ2"}]`, ``, identity.CodeMissingKey, "holds 2"},
		"Twilio SID without a state":      {"twilio", `{"MessageSid":"SM1"}`, ``, identity.CodeMissingKey, "MessageStatus"},
		"Twilio id without specversion":   {"twilio", `{"id":"EZ1"}`, ``, identity.CodeMissingKey, ""},
		"Flutterwave's oldest shape":      {"flutterwave", `{"id":126122,"txRef":"ORD-1001","status":"successful","event.type":"CARD_TRANSACTION"}`, ``, identity.CodeMissingKey, "data.id"},
		"Paystack without any id":         {"paystack", `{"event":"charge.success","data":{"amount":1}}`, ``, identity.CodeMissingKey, "event + data.id"},
		"Paystack reference, no state":    {"paystack", `{"event":"charge.success","data":{"reference":"ORD-1001"}}`, ``, identity.CodeMissingKey, ""},
		"Paystack without an event":       {"paystack", `{"data":{"id":3020000001}}`, ``, identity.CodeMissingKey, ""},
		"Slack's handshake":               {"slack", `{"type":"url_verification","challenge":"c","token":"t"}`, ``, identity.CodeMissingKey, "event_id"},
		"Intercom's ping":                 {"intercom", `{"type":"notification_event","id":null,"topic":"ping"}`, ``, identity.CodeMissingKey, "looked for id"},
		"WooCommerce's ping":              {"woocommerce", `{"webhook_id":"3"}`, ``, identity.CodeMissingKey, "X-WC-Webhook-Topic"},
		"WooCommerce without a body":      {"woocommerce", ``, `{"x-wc-webhook-topic":"order.updated"}`, identity.CodeMissingKey, "body"},
		"WooCommerce body is no JSON":     {"woocommerce", `webhook_id=3`, `{"x-wc-webhook-topic":"order.updated"}`, identity.CodeInvalidJSON, ""},
		"GitHub body id is no key":        {"github", `{"id":5,"event_id":"x"}`, ``, identity.CodeMissingKey, "X-GitHub-Delivery"},
		"Shopify object id is no key":     {"shopify", `{"id":450000001}`, `{"x-shopify-topic":"orders/updated"}`, identity.CodeMissingKey, "X-Shopify-Webhook-Id"},
		"Razorpay entity id is no key":    {"razorpay", `{"id":"x","event":"payment.captured"}`, ``, identity.CodeMissingKey, "X-Razorpay-Event-Id"},
		"the answer to an M-Pesa push":    {"mpesa-stk", `{"MerchantRequestID":"1","CheckoutRequestID":"ws_CO_50","ResponseCode":"0"}`, ``, identity.CodeMissingKey, "Body.stkCallback.CheckoutRequestID"},
		"M-Pesa callback without its id":  {"mpesa-stk", `{"Body":{"stkCallback":{"CheckoutRequestID":"","MerchantRequestID":"1"}}}`, ``, identity.CodeMissingKey, ""},
		"M-Pesa result without its id":    {"mpesa-b2c", `{"Result":{"ConversationID":"AG_1","TransactionID":"UA1"}}`, ``, identity.CodeMissingKey, "OriginatorConversationID"},
		"Lemon Squeezy without a version": {"lemonsqueezy", `{"meta":{"event_name":"order_created"},"data":{"type":"orders","id":"1","attributes":{}}}`, ``, identity.CodeMissingKey, "updated_at"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, account, err := identify(t, row.provider, row.body, row.headers)
			if key != "" || account != "" {
				t.Errorf("key %q, account %q", key, account)
			}
			wantError(t, err, row.code, row.says)
		})
	}
}

// A batch is refused by what it holds, not by how long it is.
func TestLargeBatch(t *testing.T) {
	t.Parallel()
	body := `{"events":[` + strings.Repeat(`{"id":"EV1","links":{"payment":"PM1"}},`, 249) + `{"action":"no id"}]}` // F085
	_, _, err := identify(t, "gocardless", body, ``)
	wantError(t, err, identity.CodeMissingKey, "holds 250 gocardless events")
}

func FuzzIdentify(f *testing.F) {
	for _, row := range providerRows {
		for _, request := range append([]request{row.delivery}, row.others...) {
			f.Add([]byte(request.body), []byte(request.headers))
		}
	}
	f.Add([]byte(`{"id":"01\u00006"}`), []byte(`{"x-github-delivery":["\ud800"]}`)) // F092
	f.Add([]byte(`{"events":[{"id":"EV1"}],"events":[]}`), []byte(`{"a":1,"A":2}`)) // F023
	f.Fuzz(func(t *testing.T, payload, headers []byte) {
		for i := range profiles {
			p := &profiles[i]
			key, account, err := p.Identify(payload, headers)
			if err != nil {
				wantError(t, err, codeOf(err), "")
				if key != "" || account != "" {
					t.Fatalf("%s: %q, %q with %v", p.Name, key, account, err)
				}
				continue
			}
			if err := identity.CheckDerivedKey(key); err != nil {
				t.Fatalf("%s: %q: %v", p.Name, key, err)
			}
			again, _, err := p.Identify(payload, headers)
			if err != nil || again != key {
				t.Fatalf("%s: %q, then %q, %v", p.Name, key, again, err)
			}
		}
	})
}

func codeOf(err error) string {
	var e *identity.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return "*identity.Error"
}
