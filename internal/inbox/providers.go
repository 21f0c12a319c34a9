package inbox

// profiles is the table of providers. What makes the key of a delivery is not a
// matter of taste: it has to be equal on every redelivery and different for
// every other event, so each row says why it is what it is where the choice is
// not plain.
//
// Two rules hold for all rows. The account that an id belongs to is not part of
// the key but a column of its own, since identity is never a joined string that
// can be read two ways. And what differs between two deliveries of one event
// (attempt counters, sent-at times, delivery ids made anew for each request) is
// left out.
var profiles = []Profile{
	// evt_ ids are unique over accounts and over test and live mode.
	{Name: "stripe", key: one(in("id")), account: refs("account")},

	// The id stands in a header only. It is the same on redelivery, also on one
	// that a person asked for.
	{Name: "github", key: one(header("X-GitHub-Delivery"))},

	// The event id differs from the webhook id only where a shop has subscribed
	// to one topic twice; newer kinds of webhook carry nothing else.
	{
		Name:    "shopify",
		key:     one(header("X-Shopify-Webhook-Id", "X-Shopify-Event-Id")),
		account: []ref{{inHeader, "X-Shopify-Shop-Domain"}},
	},

	{Name: "paystack", key: paystackKey},
	{Name: "paystack-v1", key: paystackKey},

	{
		Name:    "razorpay",
		key:     one(header("X-Razorpay-Event-Id")),
		account: refs("account_id"),
	},

	{Name: "square", key: one(in("event_id")), account: refs("merchant_id")},

	// eventId is not promised to be unique, so it takes the company of what
	// changed. attemptNumber rises with each retry. Association events name two
	// objects in place of one.
	{
		Name: "hubspot",
		each: []string{"[]"},
		key: recipes(parts(
			in("subscriptionId", "subscriptionType"),
			in("eventId"),
			in("objectId", "fromObjectId"),
			in("occurredAt"),
			optional(in("propertyName")),
			optional(in("toObjectId")),
		)),
		account: refs("portalId"),
	},

	// pspReference is shared by the states of a payment; success tells the
	// authorisation that worked from the one that did not. eventDate and reason
	// are not signed, so they must not make a new event of an old one; a second
	// chargeback of one payment is therefore taken for the first.
	{
		Name: "adyen",
		each: []string{"notificationItems[]"},
		key: recipes(parts(
			adyenItem("pspReference"),
			adyenItem("eventCode"),
			adyenItem("success"),
		)),
		account: adyenItem("merchantAccountCode").from,
	},

	{Name: "slack", key: one(in("event_id")), account: refs("team_id")},

	// The SID of a message or call is shared by its states. Requests for a
	// call's next instruction have no number and repeat the state, so there the
	// request's own token tells them apart: it stays the same on retries.
	{
		Name: "twilio",
		each: []string{"[]"},
		key: recipes(
			parts(in("MessageSid", "SmsSid"), in("MessageStatus", "SmsStatus")),
			parts(in("RecordingSid"), in("RecordingStatus")),
			parts(in("CallSid"), in("CallStatus"), optional(part{
				from: []ref{{inEvent, "SequenceNumber"}, {inHeader, "I-Twilio-Idempotency-Token"}},
			})),
			recipe{needs: "specversion", parts: []part{in("id")}}, // Event Streams
		),
		account: refs("AccountSid"),
	},

	// One wamid goes through sent, delivered, read and failed. A message that
	// came in has no status. The account stands outside of the element: a claim
	// for an element that was split off has to give it, or have none.
	{
		Name:    "whatsapp",
		each:    []string{"entry[].changes[].value.messages[]", "entry[].changes[].value.statuses[]"},
		key:     recipes(parts(in("id"), optional(in("status")))),
		account: []ref{{inParent, "metadata.phone_number_id"}},
	},

	{Name: "standard-webhooks", key: one(header("webhook-id"))},
	{Name: "svix", key: one(header("svix-id", "webhook-id"))},

	{Name: "flutterwave", key: flutterwaveKey},
	{Name: "flutterwave-v3", key: flutterwaveKey},
	{Name: "flutterwave-v4", key: flutterwaveKey},

	// Not notification_id: one event makes a notification for each destination.
	{Name: "paddle", key: one(in("event_id"))},

	{Name: "gocardless", each: []string{"events[]"}, key: one(in("id"))},

	// The delivery id is a hash of webhook and second, the same for two orders
	// of one second. There is no event id: what was sent is what identifies it.
	// The webhook's own id is left out, so that a hook registered twice does
	// not make two events of one.
	{
		Name:    "woocommerce",
		key:     recipes(parts(header("X-WC-Webhook-Topic"), part{from: []ref{{in: inBodyHash}}})),
		account: []ref{{inHeader, "X-WC-Webhook-Source"}},
	},

	{Name: "typeform", key: one(in("event_id"))},

	// No event id. A rescheduled meeting is a cancelled and a created invitee.
	{Name: "calendly", key: recipes(parts(in("event"), in("payload.uri"), in("created_at")))},

	{Name: "intercom", key: one(in("id")), account: refs("app_id")},

	// No event id. The event's name is also in a header, but not signed there.
	{Name: "lemonsqueezy", key: recipes(parts(
		in("meta.event_name"), in("data.type"), in("data.id"), in("data.attributes.updated_at"),
	))},

	// No event id.
	{
		Name:    "xero",
		each:    []string{"events[]"},
		key:     recipes(parts(in("resourceId"), in("eventDateUtc"), in("eventType"))),
		account: refs("tenantId"),
	},

	// CheckoutRequestID is there whatever the outcome; CallbackMetadata, with
	// the receipt, is not. It is read in the callback's own place only: the
	// answer to the push carries it at the top, and must not take the key of
	// the callback that follows.
	{Name: "mpesa-stk", key: one(in("Body.stkCallback.CheckoutRequestID"))},
	{Name: "mpesa", key: one(in("Body.stkCallback.CheckoutRequestID"))},

	// Validation and confirmation carry the same TransID, and nothing in the
	// body says which of the two it is. They must not share a source: the
	// confirmation, which is the money, would be a duplicate of the validation.
	// Give each URL a source of its own, or each claim its step.
	{Name: "mpesa-c2b", key: one(in("TransID")), account: refs("BusinessShortCode")},

	// Not TransactionID: a status query answers in the same shape, about a
	// transaction that has had its result. The same holds here as for
	// validation and confirmation: the time-out URL needs a source of its own,
	// since a result can still follow a time-out.
	{Name: "mpesa-b2c", key: recipes(parts(
		in("Result.OriginatorConversationID"), optional(in("Result.ConversationID")),
	))},
}

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

func recipes(all ...recipe) []recipe { return all }

func parts(all ...part) recipe { return recipe{parts: all} }

// one is the key that is a single part, byte for byte.
func one(p part) []recipe { return []recipe{{parts: []part{p}}} }

// in is the first of these paths in the event.
func in(paths ...string) part { return part{from: refs(paths...)} }

// header is the first of these headers.
func header(names ...string) part {
	var p part
	for _, name := range names {
		p.from = append(p.from, ref{inHeader, name})
	}
	return p
}

func optional(p part) part {
	p.optional = true
	return p
}

func refs(paths ...string) []ref {
	var all []ref
	for _, path := range paths {
		all = append(all, ref{inEvent, path})
	}
	return all
}
