package inbox

import "time"

// profiles is the table of providers. What makes the key of a delivery is not a
// matter of taste: it has to be equal on every redelivery and different for
// every other event, so each row says why it is what it is where the choice is
// not plain. What stands here from memory or from a third party's page, and was
// not read at the provider's, is marked as unverified.
//
// Three rules hold for all rows. The account that an id belongs to is not part
// of the key but a column of its own, since identity is never a joined string
// that can be read two ways. What differs between two deliveries of one event
// (attempt counters, sent-at times, delivery ids made anew for each request) is
// left out. And a header that is not signed can be forged, so it is used only
// where the body has nothing as good.
//
// To add a provider, add a row:
//
//  1. key: the recipe for the delivery key, with one for a single id and
//     recipes of parts for several values. account, if ids are unique only
//     within an account. each, if one body holds several events.
//  2. signs: a scheme. For most providers it is the header, sometimes a prefix
//     and encBase64; where a time is signed, also signed, stamp or time, and the
//     tolerance. Without signs, a source of the provider needs a token.
//  3. version, if an event says how new it is; keep, for headers that a workflow
//     needs; answer, if the provider wants more than a 2xx; hello and ping, if
//     it tests an address before it uses it; Retries.
//  4. In the tests: a delivery in providers_test.go, and a signed request in
//     testdata/signature-vectors.json.
//
// No other code names a provider.
var profiles = []Profile{
	// evt_ ids are unique over accounts and over test and live mode. While a
	// secret is rolled there are several v1; v0 is for tests. The key is the
	// whole secret, with its whsec_.
	{
		Name: "stripe", Retries: 3 * day,
		key:     one(in("id")),
		account: refs("account"),
		signs: []scheme{{
			header: "Stripe-Signature", separator: ",", prefix: "v1=", stamp: "t=", signed: "{time}.{body}",
			tolerance: 5 * time.Minute,
		}},
		version: refs("created"),
	},

	// The id stands in a header only. It is the same on redelivery, also on one
	// that a person asked for; there is no other.
	{
		Name:  "github",
		key:   one(header("X-GitHub-Delivery")),
		signs: []scheme{{header: "X-Hub-Signature-256", prefix: "sha256="}},
		keep: []string{
			"X-GitHub-Event", "X-GitHub-Hook-ID", "X-GitHub-Hook-Installation-Target-ID", "X-GitHub-Hook-Installation-Target-Type",
		},
	},

	// The event id differs from the webhook id only where a shop has subscribed
	// to one topic twice; newer kinds of webhook carry nothing else.
	{
		Name: "shopify", Retries: 4 * time.Hour,
		key:     one(header("X-Shopify-Webhook-Id", "X-Shopify-Event-Id")),
		account: headerRefs("X-Shopify-Shop-Domain"),
		signs:   []scheme{{header: "X-Shopify-Hmac-Sha256", encoding: encBase64}},
		version: refs("updated_at"),
		keep:    []string{"X-Shopify-Topic", "X-Shopify-Triggered-At", "X-Shopify-API-Version", "X-Shopify-Test"},
	},

	{Name: "paystack", Retries: 3 * day, key: paystackKey, signs: []scheme{{header: "X-Paystack-Signature", algorithm: algSHA512}}},

	// The newer scheme of Paystack's documentation. Which header it comes in is
	// unverified, so a source may name another.
	{
		Name: "paystack-v1", Retries: 3 * day,
		key: paystackKey,
		signs: []scheme{{
			header: "X-Paystack-Signature", renamed: true,
			separator: ",", prefix: "v1=", label: ":", stamp: "t=", signed: "{time}.{body}",
			algorithm: algSHA512, tolerance: 5 * time.Minute, future: true,
		}},
	},

	{
		Name: "razorpay", Retries: day,
		key:     one(header("X-Razorpay-Event-Id")),
		account: refs("account_id"),
		signs:   []scheme{{header: "X-Razorpay-Signature"}},
		version: refs("created_at"),
	},

	// Each notification of a kind holds the whole object with its version, so a
	// later one makes an earlier one of that kind superfluous.
	{
		Name: "square", Retries: day,
		key:     one(in("event_id")),
		account: refs("merchant_id"),
		signs:   []scheme{{header: "X-Square-HmacSha256-Signature", encoding: encBase64, signed: "{url}{body}"}},
		version: refs("data.object.payment.version"),
		entity:  []recipe{{needs: "data.object.payment.version", parts: []part{in("type"), in("data.id")}}},
	},

	// eventId is not promised to be unique, so it takes the company of what
	// changed. attemptNumber rises with each retry. Association events name two
	// objects in place of one. The older signatures, v1 and v2, know no time and
	// come beside v3: taking them would let a copied request in for ever.
	{
		Name: "hubspot", Retries: day,
		each: "[]",
		key: recipes(parts(
			in("subscriptionId", "subscriptionType"),
			in("eventId"),
			in("objectId", "fromObjectId"),
			in("occurredAt"),
			optional(in("propertyName")),
			optional(in("toObjectId")),
		)),
		account: refs("portalId"),
		signs: []scheme{{
			header: "X-HubSpot-Signature-v3", encoding: encBase64, signed: "{method}{url}{body}{time}",
			time: "X-HubSpot-Request-Timestamp", millis: true, tolerance: 5 * time.Minute,
		}},
		version: refs("occurredAt"),
	},

	// pspReference is shared by the states of a payment; success tells the
	// authorisation that worked from the one that did not. eventDate and reason
	// are not signed, so they must not make a new event of an old one, nor order
	// events; a second chargeback of one payment is therefore taken for the
	// first. The HMAC of platform webhooks is another one, and not checked here.
	{
		Name: "adyen", Retries: 30 * day,
		each: "notificationItems[]",
		key: recipes(parts(
			adyenItem("pspReference"),
			adyenItem("eventCode"),
			adyenItem("success"),
		)),
		account: adyenItem("merchantAccountCode").from,
		signs: []scheme{{
			encoding: encBase64, keys: keyHex,
			item: adyenItem("additionalData.hmacSignature").from,
			fields: []part{
				adyenItem("pspReference"), adyenItem("originalReference"), adyenItem("merchantAccountCode"), adyenItem("merchantReference"),
				adyenItem("amount.value"), adyenItem("amount.currency"), adyenItem("eventCode"), adyenItem("success"),
			},
		}},
		answer: plain("[accepted]"), // a 2xx is enough by now; older accounts look at the text
	},

	// A retry comes with a new time and signature under the same event_id, often
	// while the first delivery is still under way.
	{
		Name: "slack", Retries: 6 * time.Minute,
		key:     one(in("event_id")),
		account: refs("team_id"),
		signs: []scheme{{
			header: "X-Slack-Signature", prefix: "v0=", signed: "v0:{time}:{body}",
			time: "X-Slack-Request-Timestamp", tolerance: 5 * time.Minute,
		}},
		version: refs("event_time"),
		keep:    []string{"X-Slack-Retry-Num", "X-Slack-Retry-Reason"},
		hello:   hello{path: "type", value: "url_verification", echo: "challenge"},
		ping:    "ssl_check",
	},

	// The SID of a message or call is shared by its states. Requests for a
	// call's next instruction have no number and repeat the state, so there the
	// request's own token tells them apart: it stays the same on retries. The
	// older spelling of queries, which Twilio's library tries as well, is not.
	{
		Name: "twilio",
		each: "[]",
		key: recipes(
			parts(in("MessageSid", "SmsSid"), in("MessageStatus", "SmsStatus")),
			parts(in("RecordingSid"), in("RecordingStatus")),
			parts(in("CallSid"), in("CallStatus"), optional(part{
				from: []ref{{inEvent, "SequenceNumber"}, {inHeader, "I-Twilio-Idempotency-Token"}},
			})),
			recipe{needs: "specversion", parts: []part{in("id")}}, // Event Streams
		),
		account: refs("AccountSid"),
		signs:   []scheme{{header: "X-Twilio-Signature", algorithm: algSHA1, encoding: encBase64, signed: "{url}{form}"}},
		answer:  &Answer{Status: 200, ContentType: "text/xml; charset=utf-8", Body: "<Response/>"}, // TwiML that does nothing
	},

	// One wamid goes through sent, delivered, read and failed. A message that
	// came in has no status. The account stands outside of the element: a claim
	// for an element that was split off has to give it, or have none. How long
	// it retries is unverified.
	{
		Name: "whatsapp", Retries: 7 * day,
		each:    "entry[].changes[].value.messages|statuses[]",
		key:     recipes(parts(in("id"), optional(in("status")))),
		account: []ref{{inParent, "metadata.phone_number_id"}},
		signs:   []scheme{{header: "X-Hub-Signature-256", prefix: "sha256="}},
		version: refs("timestamp"),
		hub:     true,
	},

	{Name: "standard-webhooks", Retries: 75 * time.Hour, key: one(header("webhook-id")), signs: []scheme{standardWebhooks}, version: refs("timestamp")},

	// Some senders write svix-, some webhook-.
	{Name: "svix", Retries: 28 * time.Hour, key: one(header("svix-id", "webhook-id")), signs: []scheme{svixWebhooks, standardWebhooks}},

	// A source that does not say which generation it is takes either signature:
	// whoever knows the secret can make both.
	{Name: "flutterwave", Retries: 90 * time.Minute, key: flutterwaveKey, signs: []scheme{flutterwaveV4, flutterwaveV3}},
	{Name: "flutterwave-v3", Retries: 90 * time.Minute, key: flutterwaveKey, signs: []scheme{flutterwaveV3}},
	{Name: "flutterwave-v4", Retries: 90 * time.Minute, key: flutterwaveKey, signs: []scheme{flutterwaveV4}},

	// Not notification_id: one event makes a notification for each destination.
	// The tolerance is really that short; a retry is signed anew (unverified).
	{
		Name: "paddle", Retries: 3 * day,
		key: one(in("event_id")),
		signs: []scheme{{
			header: "Paddle-Signature", separator: ";", prefix: "h1=", stamp: "ts=", signed: "{time}:{body}",
			tolerance: 5 * time.Second,
		}},
		version: refs("occurred_at"),
	},

	{
		Name:    "gocardless",
		each:    "events[]",
		key:     one(in("id")),
		signs:   []scheme{{header: "Webhook-Signature"}},
		version: refs("created_at"),
	},

	// The delivery id is a hash of webhook and second, the same for two orders
	// of one second. There is no event id: what was sent is what identifies it.
	// The webhook's own id is left out, so that a hook registered twice does
	// not make two events of one. Nothing is sent again, ever.
	{
		Name:    "woocommerce",
		key:     recipes(parts(header("X-WC-Webhook-Topic"), part{from: []ref{{in: inBodyHash}}})),
		account: headerRefs("X-WC-Webhook-Source"),
		signs:   []scheme{{header: "X-WC-Webhook-Signature", encoding: encBase64}},
		version: refs("date_modified_gmt"),
		keep:    []string{"X-WC-Webhook-Resource", "X-WC-Webhook-Event", "X-WC-Webhook-ID", "X-WC-Webhook-Delivery-ID"},
		ping:    "webhook_id",
	},

	// The prefix is that of a hexadecimal signature, but base64 follows.
	{
		Name:    "typeform",
		key:     one(in("event_id")),
		signs:   []scheme{{header: "Typeform-Signature", prefix: "sha256=", encoding: encBase64}},
		version: refs("form_response.submitted_at"),
	},

	// No event id. A rescheduled meeting is a cancelled and a created invitee.
	// The tolerance is a third party's advice.
	{
		Name: "calendly", Retries: day,
		key: recipes(parts(in("event"), in("payload.uri"), in("created_at"))),
		signs: []scheme{{
			header: "Calendly-Webhook-Signature", separator: ",", prefix: "v1=", stamp: "t=", signed: "{time}.{body}",
			tolerance: 3 * time.Minute,
		}},
		version: refs("payload.updated_at"),
	},

	// created_at is another one on a retry. The ping and the one retry are
	// unverified.
	{
		Name: "intercom", Retries: time.Minute,
		key:     one(in("id")),
		account: refs("app_id"),
		signs:   []scheme{{header: "X-Hub-Signature", prefix: "sha1=", algorithm: algSHA1}},
		version: refs("data.item.updated_at"),
		hello:   hello{path: "topic", value: "ping"},
	},

	// No event id. The event's name is also in a header, but not signed there.
	// SHA-256 and the three retries are unverified.
	{
		Name: "lemonsqueezy", Retries: 3 * time.Minute,
		key: recipes(parts(
			in("meta.event_name"), in("data.type"), in("data.id"), in("data.attributes.updated_at"),
		)),
		signs:   []scheme{{header: "X-Signature"}},
		version: refs("data.attributes.updated_at"),
	},

	// No event id. Before it uses an address, Xero sends batches without an
	// event, some with a wrong signature: these want 401, the others 200, all
	// without a body. How long it retries is unverified.
	{
		Name: "xero", Retries: day,
		each:    "events[]",
		key:     recipes(parts(in("resourceId"), in("eventDateUtc"), in("eventType"))),
		account: refs("tenantId"),
		signs:   []scheme{{header: "X-Xero-Signature", encoding: encBase64}},
		version: refs("eventDateUtc"),
		answer:  &Answer{Status: 200}, refusal: &Answer{Status: 401},
	},

	// Safaricom signs nothing, and no official page could be read: what follows
	// is unverified. Whether a callback that got no 200 is sent again is said in
	// two ways, so it is answered with acceptance as soon as it is stored.
	//
	// CheckoutRequestID is there whatever the outcome; CallbackMetadata, with
	// the receipt, is not. It is read in the callback's own place only: the
	// answer to the push carries it at the top, and must not take the key of
	// the callback that follows. The money is known by another name, see
	// [MpesaReceipt].
	{Name: "mpesa-stk", key: one(in("Body.stkCallback.CheckoutRequestID")), answer: mpesaAccepted},
	{Name: "mpesa", key: one(in("Body.stkCallback.CheckoutRequestID")), answer: mpesaAccepted},

	// Validation and confirmation carry the same TransID, and nothing in the
	// body says which of the two it is. They must not share a key: the
	// confirmation, which is the money, would be a duplicate of the validation.
	// So register the validation's address with ?stage=validation behind it (the
	// stage becomes part of the key), or give each of the two a source of its
	// own. A validation is always accepted: who wants to refuse payments has to
	// answer it somewhere else.
	{
		Name:    "mpesa-c2b",
		key:     recipes(parts(in("TransID"), optional(query("stage")))),
		account: refs("BusinessShortCode"),
		version: refs("TransTime"),
		answer:  mpesaAccepted,
	},

	// Not TransactionID: a status query answers in the same shape, about a
	// transaction that has had its result. A result can still follow a time-out:
	// register the time-out's address with ?stage=timeout behind it, or give it
	// a source of its own.
	{
		Name: "mpesa-b2c",
		key: recipes(parts(
			in("Result.OriginatorConversationID"), optional(in("Result.ConversationID")), optional(query("stage")),
		)),
		answer: mpesaAccepted,
	},
}

const day = 24 * time.Hour

var mpesaAccepted = &Answer{Status: 200, ContentType: "application/json", Body: `{"ResultCode":0,"ResultDesc":"Accepted"}`}

// standardWebhooks signs the id too: changed, it is no other delivery. v1a is
// made with a private key, and checked with the public one.
var standardWebhooks = scheme{
	header: "webhook-signature", separator: " ", prefix: "v1,", public: "v1a,", encoding: encBase64, keys: keyBase64,
	signed: "{id}.{time}.{body}", id: "webhook-id", time: "webhook-timestamp", tolerance: 5 * time.Minute, future: true,
}

var svixWebhooks = func() scheme {
	c := standardWebhooks
	c.header, c.id, c.time = "svix-signature", "svix-id", "svix-timestamp"
	return c
}()

// flutterwaveV3 is no signature: the header holds the secret, so it vouches for
// nothing in the body. Ask Flutterwave for the transaction before acting on one.
var flutterwaveV3 = scheme{header: "verif-hash", algorithm: algPlain}

// flutterwaveV4 is unverified.
var flutterwaveV4 = scheme{header: "flutterwave-signature", encoding: encBase64}

// paystackKey: there is no event id, and refunds have no data.id either. A
// refund that is not yet processed has no reference of its own, so the amount
// tells two refunds of one payment apart as far as they can be.
var paystackKey = recipes(
	parts(in("event"), in("data.id")),
	parts(in("event"), in("data.transfer_code"), in("data.status")),
	parts(in("event"), in("data.refund_reference"), in("data.status")),
	parts(in("event"), in("data.transaction_reference"), in("data.status"), optional(in("data.amount"))),
	parts(in("event"), in("data.reference"), in("data.status")),
)

// flutterwaveKey reads both generations: v3 names the event in event, v4 in
// type, and only v4 has an id of the event.
var flutterwaveKey = recipes(
	parts(in("event"), in("data.id"), in("data.status")),
	recipe{needs: "type", parts: []part{in("id")}},
	parts(in("type"), in("data.id"), in("data.status")),
)

// adyenItem is a field of a notification item, with or without its wrapping.
func adyenItem(field string) part {
	return in("NotificationRequestItem."+field, field)
}
