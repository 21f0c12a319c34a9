package inbox

import "testing"

// request is a body, and the headers that identify or that change.
type request struct{ body, headers string }

// providerRows have one delivery of each provider, in the provider's own shape
// with invented ids; what the provider sends again for the same event; and what
// it sends for other events, which are easily taken for the same.
var providerRows = []struct {
	provider string
	delivery request
	key      string
	account  string
	again    []request
	others   []request
}{
	{
		provider: "stripe",
		delivery: request{`{"id":"evt_1QaInventedEvent01","object":"event","account":"acct_1Invented00000001","created":1767225598,"data":{"object":{"id":"pi_3QaInvented0000001","status":"succeeded"}},"livemode":false,"pending_webhooks":2,"request":{"idempotency_key":"ORD-1001-charge"},"type":"payment_intent.succeeded"}`, ``},
		key:      "evt_1QaInventedEvent01",
		account:  "acct_1Invented00000001",
		again: []request{ // F022: the counter changes between deliveries
			{`{"pending_webhooks":1,"id":"evt_1QaInventedEvent01","object":"event","account":"acct_1Invented00000001","type":"payment_intent.succeeded"}`, `{"stripe-signature":"t=1767225600,v1=00"}`},
		},
		others: []request{ // F007: another event of the same object
			{`{"id":"evt_1QaInventedEvent02","account":"acct_1Invented00000001","data":{"object":{"id":"pi_3QaInvented0000001"}},"type":"charge.succeeded"}`, ``},
		},
	},
	{
		provider: "github",
		delivery: request{`{"action":"opened","issue":{"id":900001,"number":7}}`, `{"x-github-delivery":"11111111-2222-4333-8444-555555555555","x-github-event":"issues"}`},
		key:      "11111111-2222-4333-8444-555555555555",
		again:    []request{{`{"action":"opened"}`, `{"X-GitHub-Delivery":"11111111-2222-4333-8444-555555555555","X-Hub-Signature-256":"sha256=00"}`}},
		others:   []request{{`{"action":"opened","issue":{"id":900001,"number":7}}`, `{"x-github-delivery":"11111111-2222-4333-8444-555555555556"}`}},
	},
	{
		provider: "shopify",
		delivery: request{`{"id":450000001,"admin_graphql_api_id":"gid:\/\/shopify\/Order\/450000001","total_price":"1250.00"}`, `{"x-shopify-topic":"orders/updated","x-shopify-shop-domain":"example-shop.example.test","x-shopify-webhook-id":"b54557e4-0000-4000-8000-000000000001","x-shopify-event-id":"98880550-0000-4000-8000-000000000001","x-shopify-triggered-at":"2026-01-01T00:00:01.000Z"}`},
		key:      "b54557e4-0000-4000-8000-000000000001",
		account:  "example-shop.example.test",
		again:    []request{{`{"id":450000001}`, `{"x-shopify-shop-domain":"example-shop.example.test","x-shopify-webhook-id":"b54557e4-0000-4000-8000-000000000001","x-shopify-hmac-sha256":"00"}`}},
		others:   []request{{`{"id":450000001}`, `{"x-shopify-shop-domain":"example-shop.example.test","x-shopify-webhook-id":"b54557e4-0000-4000-8000-000000000002"}`}},
	},
	{
		provider: "paystack",
		delivery: request{`{"event":"charge.success","data":{"id":3020000001,"domain":"test","status":"success","reference":"ORD-1001","amount":125000,"metadata":{"url":"https:\/\/example.test\/a"}}}`, ``},
		key:      "charge.success:3020000001",
		again:    []request{{`{"event":"charge.success","data":{"id":3020000001,"status":"success","reference":"ORD-1001","metadata":0}}`, `{"x-paystack-signature":"00"}`}},
		others: []request{
			{`{"event":"charge.success","data":{"id":9314159265358979,"reference":"ORD-1001"}}`, ``}, // F016
			{`{"event":"charge.success","data":{"id":9314159265358980,"reference":"ORD-1001"}}`, ``},
			{`{"event":"transfer.success","data":{"id":3020000001}}`, ``},
			{`{"event":"transfer.failed","data":{"transfer_code":"TRF_invented1","status":"failed"}}`, ``},
			{`{"event":"refund.pending","data":{"status":"pending","transaction_reference":"ORD-1001","refund_reference":null,"amount":"5000"}}`, ``},
			{`{"event":"refund.pending","data":{"status":"pending","transaction_reference":"ORD-1001","refund_reference":null,"amount":"7000"}}`, ``},
			{`{"event":"refund.processed","data":{"status":"processed","transaction_reference":"ORD-1001","refund_reference":"RF-INV-1","amount":"5000"}}`, ``},
			{`{"event":"refund.processed","data":{"status":"processed","transaction_reference":"ORD-1001","refund_reference":"RF-INV-2","amount":"5000"}}`, ``},
			{`{"event":"charge.pending","data":{"reference":"ORD-1001","status":"pending"}}`, ``},
		},
	},
	{
		provider: "paystack-v1",
		delivery: request{`{"event":"refund.processed","data":{"status":"processed","transaction_reference":"ORD-1001","refund_reference":"RF-INV-1","amount":"5000","currency":"KES"}}`, ``},
		key:      "refund.processed:RF-INV-1:processed",
		again:    []request{{`{"event":"refund.processed","data":{"status":"processed","transaction_reference":"ORD-1001","refund_reference":"RF-INV-1"}}`, ``}},
		others:   []request{{`{"event":"refund.failed","data":{"status":"failed","transaction_reference":"ORD-1001","refund_reference":"RF-INV-1"}}`, ``}},
	},
	{
		provider: "razorpay",
		delivery: request{`{"entity":"event","account_id":"acc_Invented000001","event":"payment.captured","payload":{"payment":{"entity":{"id":"pay_Invented000001"}}},"created_at":1767225600}`, `{"x-razorpay-event-id":"evt_header_only_0001"}`},
		key:      "evt_header_only_0001",
		account:  "acc_Invented000001",
		again:    []request{{`{"account_id":"acc_Invented000001","event":"payment.captured"}`, `{"x-razorpay-event-id":"evt_header_only_0001","x-razorpay-signature":"00"}`}},
		others:   []request{{`{"account_id":"acc_Invented000001","event":"order.paid","payload":{"payment":{"entity":{"id":"pay_Invented000001"}}}}`, `{"x-razorpay-event-id":"evt_header_only_0002"}`}},
	},
	{
		provider: "square",
		delivery: request{`{"merchant_id":"MLINVENTED01","type":"payment.updated","event_id":"6a8f5f28-0000-4000-8000-000000000001","data":{"type":"payment","id":"pay_SQ_0001","object":{"payment":{"version":4}}}}`, ``},
		key:      "6a8f5f28-0000-4000-8000-000000000001",
		account:  "MLINVENTED01",
		again:    []request{{`{"event_id":"6a8f5f28-0000-4000-8000-000000000001","merchant_id":"MLINVENTED01"}`, `{"square-retry-number":"1"}`}},
		others:   []request{{`{"merchant_id":"MLINVENTED01","type":"payment.updated","event_id":"6a8f5f28-0000-4000-8000-000000000002","data":{"id":"pay_SQ_0001"}}`, ``}},
	},
	{
		provider: "hubspot",
		delivery: request{`[{"eventId":100,"subscriptionId":12345,"portalId":62515,"appId":54321,"occurredAt":1767225599000,"subscriptionType":"contact.propertyChange","attemptNumber":0,"objectId":1234,"propertyName":"lifecyclestage","propertyValue":"customer"}]`, ``},
		key:      "12345:100:1234:1767225599000:lifecyclestage",
		account:  "62515",
		again: []request{
			{`[{"eventId":100,"subscriptionId":12345,"portalId":62515,"occurredAt":1767225599000,"attemptNumber":3,"objectId":1234,"propertyName":"lifecyclestage"}]`, `{"x-hubspot-request-timestamp":"1767225900000"}`},
			{`{"eventId":100,"subscriptionId":12345,"portalId":62515,"occurredAt":1767225599000,"attemptNumber":1,"objectId":1234,"propertyName":"lifecyclestage"}`, ``}, // split before
		},
		others: []request{ // eventId is not unique
			{`[{"eventId":100,"subscriptionId":12346,"portalId":62515,"occurredAt":1767225599500,"subscriptionType":"deal.creation","attemptNumber":0,"objectId":9876}]`, ``},
			{`{"eventId":100,"subscriptionId":12345,"portalId":62515,"occurredAt":1767225599000,"objectId":1234,"propertyName":"email"}`, ``},
			{`{"eventId":100,"subscriptionId":12347,"portalId":62515,"occurredAt":1767225599000,"fromObjectId":1234,"toObjectId":1}`, ``},
			{`{"eventId":100,"subscriptionId":12347,"portalId":62515,"occurredAt":1767225599000,"fromObjectId":1234,"toObjectId":2}`, ``},
		},
	},
	{
		provider: "adyen",
		delivery: request{`{"live":"false","notificationItems":[{"NotificationRequestItem":{"amount":{"currency":"EUR","value":1130},"eventCode":"AUTHORISATION","eventDate":"2026-01-01T00:00:00+01:00","merchantAccountCode":"InventedMerchantECOM","pspReference":"INVENTEDPSP00001","success":"true"}}]}`, ``},
		key:      "INVENTEDPSP00001:AUTHORISATION:true",
		account:  "InventedMerchantECOM",
		again: []request{
			{`{"live":"false","notificationItems":[{"NotificationRequestItem":{"eventCode":"AUTHORISATION","eventDate":"2030-01-01T00:00:00+01:00","merchantAccountCode":"InventedMerchantECOM","pspReference":"INVENTEDPSP00001","success":"true","additionalData":{"refusalReasonRaw":"forged"}}}]}`, ``}, // unsigned fields
			{`{"NotificationRequestItem":{"eventCode":"AUTHORISATION","merchantAccountCode":"InventedMerchantECOM","pspReference":"INVENTEDPSP00001","success":"true"}}`, ``},                                                                                                                               // split before
			{`{"eventCode":"AUTHORISATION","merchantAccountCode":"InventedMerchantECOM","pspReference":"INVENTEDPSP00001","success":true}`, ``},                                                                                                                                                             // and unwrapped
		},
		others: []request{
			{`{"notificationItems":[{"NotificationRequestItem":{"eventCode":"AUTHORISATION","merchantAccountCode":"InventedMerchantECOM","pspReference":"INVENTEDPSP00001","success":"false"}}]}`, ``},
			{`{"notificationItems":[{"NotificationRequestItem":{"eventCode":"CANCELLATION","merchantAccountCode":"InventedMerchantECOM","pspReference":"INVENTEDPSP00001","success":"true"}}]}`, ``},
		},
	},
	{
		provider: "slack",
		delivery: request{`{"type":"event_callback","team_id":"T0000001","api_app_id":"A0000001","event_id":"Ev00000001","event_time":1767225599,"event":{"type":"message","channel":"C0000001","ts":"1767225599.000100"}}`, ``},
		key:      "Ev00000001",
		account:  "T0000001",
		again:    []request{{`{"type":"event_callback","team_id":"T0000001","event_id":"Ev00000001"}`, `{"x-slack-retry-num":"1","x-slack-retry-reason":"http_timeout"}`}},
		others:   []request{{`{"type":"event_callback","team_id":"T0000001","event_id":"Ev00000002"}`, ``}},
	},
	{
		provider: "twilio",
		delivery: request{`{"MessageSid":"SM00000000000000000000000000000001","MessageStatus":"delivered","From":"+15550000001","To":"+254700000001","AccountSid":"AC00000000000000000000000000000001"}`, `{"i-twilio-idempotency-token":"11111111-0000-4000-8000-000000000001"}`},
		key:      "SM00000000000000000000000000000001:delivered",
		account:  "AC00000000000000000000000000000001",
		again:    []request{{`{"MessageSid":"SM00000000000000000000000000000001","SmsStatus":"delivered","AccountSid":"AC00000000000000000000000000000001"}`, `{"i-twilio-idempotency-token":"11111111-0000-4000-8000-000000000002"}`}},
		others: []request{
			{`{"MessageSid":"SM00000000000000000000000000000001","MessageStatus":"sent","AccountSid":"AC00000000000000000000000000000001"}`, ``},
			{`{"CallSid":"CA00000000000000000000000000000001","CallStatus":"in-progress","SequenceNumber":"1","AccountSid":"AC00000000000000000000000000000001"}`, ``},
			{`{"CallSid":"CA00000000000000000000000000000001","CallStatus":"in-progress","SequenceNumber":"2","AccountSid":"AC00000000000000000000000000000001"}`, ``},
			{`{"CallSid":"CA00000000000000000000000000000001","CallStatus":"in-progress","Digits":"1","AccountSid":"AC00000000000000000000000000000001"}`, `{"i-twilio-idempotency-token":"a"}`},
			{`{"CallSid":"CA00000000000000000000000000000001","CallStatus":"in-progress","Digits":"2","AccountSid":"AC00000000000000000000000000000001"}`, `{"i-twilio-idempotency-token":"b"}`},
			{`{"CallSid":"CA00000000000000000000000000000001","RecordingSid":"RE1","RecordingStatus":"completed","AccountSid":"AC00000000000000000000000000000001"}`, ``},
			{`[{"specversion":"1.0","id":"EZ00000000000000000000000000000001","type":"com.twilio.messaging.message.failed","AccountSid":"AC00000000000000000000000000000001"}]`, ``},
		},
	},
	{
		provider: "whatsapp",
		delivery: request{`{"object":"whatsapp_business_account","entry":[{"id":"100000000000001","changes":[{"value":{"metadata":{"phone_number_id":"200000000000001"},"statuses":[{"id":"wamid.INVENTED0001","status":"delivered","timestamp":"1767225600"}]},"field":"messages"}]}]}`, ``},
		key:      "wamid.INVENTED0001:delivered",
		account:  "200000000000001",
		again:    []request{{`{"entry":[{"id":"100000000000001","changes":[{"field":"messages","value":{"statuses":[{"status":"delivered","id":"wamid.INVENTED0001"}],"metadata":{"phone_number_id":"200000000000001"}}}]}]}`, `{"x-hub-signature-256":"sha256=00"}`}},
		others: []request{
			{`{"entry":[{"changes":[{"value":{"metadata":{"phone_number_id":"200000000000001"},"statuses":[{"id":"wamid.INVENTED0001","status":"read"}]}}]}]}`, ``},
			{`{"entry":[{"changes":[{"value":{"metadata":{"phone_number_id":"200000000000001"},"contacts":[{"profile":{"name":"Test \u00e9"}}],"messages":[{"from":"254700000001","id":"wamid.INVENTED0001","type":"text","text":{"body":"habari \ud83d\ude42 a\/b \ud83d"}}]}}]}]}`, ``},
		},
	},
	{
		provider: "standard-webhooks",
		delivery: request{`{"type":"invoice.paid","timestamp":"2026-01-01T00:00:00Z","data":{"id":"inv_000000001"}}`, `{"webhook-id":"msg_2zInvented000000000000001","webhook-timestamp":"1767225600"}`},
		key:      "msg_2zInvented000000000000001",
		again:    []request{{`{"type":"invoice.paid"}`, `{"webhook-id":"msg_2zInvented000000000000001","webhook-timestamp":"1767229200"}`}},
		others:   []request{{`{"type":"invoice.paid","data":{"id":"inv_000000001"}}`, `{"webhook-id":"msg_other"}`}},
	},
	{
		provider: "svix",
		delivery: request{`{"type":"invoice.paid","data":{"id":"inv_000000001"}}`, `{"svix-id":"msg_2zInvented000000000000001","svix-timestamp":"1767225600"}`},
		key:      "msg_2zInvented000000000000001",
		again:    []request{{`{"type":"invoice.paid"}`, `{"webhook-id":"msg_2zInvented000000000000001","webhook-timestamp":"1767229200"}`}},
		others:   []request{{`{"type":"invoice.paid"}`, `{"svix-id":"msg_other"}`}},
	},
	{
		provider: "flutterwave",
		delivery: request{`{"event":"charge.completed","data":{"id":285000001,"tx_ref":"ORD-1001","flw_ref":"FLW-INVENTED-1","amount":1250,"status":"successful"}}`, ``},
		key:      "charge.completed:285000001:successful",
		again:    []request{{`{"event":"charge.completed","data":{"status":"successful","id":285000001}}`, `{"verif-hash":"x"}`}},
		others: []request{
			{`{"event":"charge.completed","data":{"id":285000001,"tx_ref":"ORD-1001","status":"failed"}}`, ``},
			{`{"id":"wbk_invented1","timestamp":1767225600,"type":"charge.completed","data":{"id":"chg_invented1","status":"succeeded"}}`, ``},
			{`{"type":"charge.completed","data":{"id":"chg_invented1","status":"succeeded"}}`, ``},
		},
	},
	{
		provider: "flutterwave-v3",
		delivery: request{`{"event":"transfer.completed","data":{"id":33286,"status":"SUCCESSFUL"}}`, ``},
		key:      "transfer.completed:33286:SUCCESSFUL",
		again:    []request{{`{"event":"transfer.completed","data":{"id":33286,"status":"SUCCESSFUL"}}`, `{"verif-hash":"y"}`}},
		others:   []request{{`{"event":"transfer.completed","data":{"id":33286,"status":"FAILED"}}`, ``}},
	},
	{
		provider: "flutterwave-v4",
		delivery: request{`{"id":"wbk_invented1","timestamp":1767225600,"type":"charge.completed","data":{"id":"chg_invented1","status":"succeeded"}}`, ``},
		key:      "wbk_invented1",
		again:    []request{{`{"id":"wbk_invented1","timestamp":1767229200,"type":"charge.completed"}`, `{"flutterwave-signature":"00"}`}},
		others:   []request{{`{"id":"wbk_invented2","type":"charge.completed","data":{"id":"chg_invented1","status":"succeeded"}}`, ``}},
	},
	{
		provider: "paddle",
		delivery: request{`{"event_id":"evt_01invented000000000000001","event_type":"transaction.completed","notification_id":"ntf_01invented000000000000001","data":{"id":"txn_01invented000000000000001"}}`, ``},
		key:      "evt_01invented000000000000001",
		again:    []request{{`{"event_id":"evt_01invented000000000000001","notification_id":"ntf_01invented000000000000002"}`, `{"paddle-signature":"ts=1767229200;h1=00"}`}}, // F010
		others:   []request{{`{"event_id":"evt_01invented000000000000002","notification_id":"ntf_01invented000000000000001","data":{"id":"txn_01invented000000000000001"}}`, ``}},
	},
	{
		provider: "gocardless",
		delivery: request{`{"events":[{"id":"EV0000000000001","resource_type":"payments","action":"confirmed","links":{"payment":"PM0000000000001"}}],"meta":{"webhook_id":"WB0000000000001"}}`, ``},
		key:      "EV0000000000001",
		again: []request{
			{`{"events":[{"id":"EV0000000000001"}],"meta":{"webhook_id":"WB0000000000002"}}`, ``},
			{`{"id":"EV0000000000001","resource_type":"payments"}`, ``}, // split before
		},
		others: []request{{`{"events":[{"id":"EV0000000000002","action":"paid_out","links":{"payment":"PM0000000000001"}}],"meta":{"webhook_id":"WB0000000000001"}}`, ``}},
	},
	{
		provider: "woocommerce",
		delivery: request{`{"id":727,"status":"processing","date_modified_gmt":"2026-01-01T00:00:00","total":"29.35"}`, `{"x-wc-webhook-topic":"order.updated","x-wc-webhook-id":"3","x-wc-webhook-delivery-id":"5d41402abc4b2a76b9719d911017c592","x-wc-webhook-source":"https://shop.example.test/"}`},
		key:      "order.updated:1792a51e4c92e7df80bb2b5ecf7b4bcb37eae4f5e928e59c6df5f4bf56cf2640",
		account:  "https://shop.example.test/",
		again: []request{ // F010: the hook registered twice, each with ids of its own; and the body through n8n
			{`{"id":727,"status":"processing","date_modified_gmt":"2026-01-01T00:00:00","total":"29.35"}`, `{"x-wc-webhook-topic":"order.updated","x-wc-webhook-id":"4","x-wc-webhook-delivery-id":"00000000000000000000000000000000","x-wc-webhook-source":"https://shop.example.test/"}`},
			{`{ "total":"29.35", "id":727.0, "status":"processing", "date_modified_gmt":"2026-01-01T00:00:00" }`, `{"x-wc-webhook-topic":"order.updated","x-wc-webhook-source":"https://shop.example.test/"}`},
		},
		others: []request{ // two orders of one second have one delivery id
			{`{"id":728,"status":"processing","date_modified_gmt":"2026-01-01T00:00:00","total":"29.35"}`, `{"x-wc-webhook-topic":"order.updated","x-wc-webhook-delivery-id":"5d41402abc4b2a76b9719d911017c592","x-wc-webhook-source":"https://shop.example.test/"}`},
			{`{"id":727,"status":"processing","date_modified_gmt":"2026-01-01T00:00:00","total":"29.35"}`, `{"x-wc-webhook-topic":"order.created","x-wc-webhook-source":"https://shop.example.test/"}`},
		},
	},
	{
		provider: "typeform",
		delivery: request{`{"event_id":"01INVENTEDTYPEFORM00000001","event_type":"form_response","form_response":{"form_id":"AbCdEf","token":"tok_invented_0001"}}`, ``},
		key:      "01INVENTEDTYPEFORM00000001",
		again:    []request{{`{"event_type":"form_response","event_id":"01INVENTEDTYPEFORM00000001"}`, `{"typeform-signature":"sha256=00"}`}},
		others:   []request{{`{"event_id":"01INVENTEDTYPEFORM00000002","form_response":{"token":"tok_invented_0001"}}`, ``}},
	},
	{
		provider: "calendly",
		delivery: request{`{"event":"invitee.created","created_at":"2026-01-01T00:00:00.000000Z","created_by":"https://api.example.test/users/U1","payload":{"uri":"https://api.example.test/scheduled_events/E1/invitees/I1","status":"active"}}`, ``},
		key:      "invitee.created:https%3A//api.example.test/scheduled_events/E1/invitees/I1:2026-01-01T00%3A00%3A00.000000Z",
		again:    []request{{`{"created_at":"2026-01-01T00:00:00.000000Z","event":"invitee.created","payload":{"uri":"https://api.example.test/scheduled_events/E1/invitees/I1"}}`, `{"calendly-webhook-signature":"t=1767229200,v1=00"}`}},
		others: []request{
			{`{"event":"invitee.canceled","created_at":"2026-01-01T00:00:00.000000Z","payload":{"uri":"https://api.example.test/scheduled_events/E1/invitees/I1"}}`, ``},
			{`{"event":"invitee.created","created_at":"2026-01-02T00:00:00.000000Z","payload":{"uri":"https://api.example.test/scheduled_events/E1/invitees/I1"}}`, ``},
		},
	},
	{
		provider: "intercom",
		delivery: request{`{"type":"notification_event","app_id":"app_inv1","id":"notif_invented0001","topic":"conversation.user.created","delivery_attempts":1,"first_sent_at":1767225600,"created_at":1767225600,"data":{"item":{"id":"77"}}}`, ``},
		key:      "notif_invented0001",
		account:  "app_inv1",
		again:    []request{{`{"app_id":"app_inv1","id":"notif_invented0001","delivery_attempts":2,"first_sent_at":1767225600,"created_at":1767225660}`, ``}}, // F022
		others:   []request{{`{"app_id":"app_inv1","id":"notif_invented0002","topic":"conversation.user.created","data":{"item":{"id":"77"}}}`, ``}},
	},
	{
		provider: "lemonsqueezy",
		delivery: request{`{"meta":{"event_name":"order_created","custom_data":{"order":"ORD-1001"}},"data":{"type":"orders","id":"1000001","attributes":{"status":"paid","updated_at":"2026-01-01T00:00:00.000000Z"}}}`, `{"x-event-name":"order_created"}`},
		key:      "order_created:orders:1000001:2026-01-01T00%3A00%3A00.000000Z",
		again:    []request{{`{"data":{"id":"1000001","type":"orders","attributes":{"updated_at":"2026-01-01T00:00:00.000000Z"}},"meta":{"event_name":"order_created"}}`, `{"x-event-name":"forged"}`}},
		others: []request{
			{`{"meta":{"event_name":"order_refunded"},"data":{"type":"orders","id":"1000001","attributes":{"updated_at":"2026-01-01T00:00:00.000000Z"}}}`, ``},
			{`{"meta":{"event_name":"order_created"},"data":{"type":"orders","id":"1000001","attributes":{"updated_at":"2026-01-01T00:00:01.000000Z"}}}`, ``},
		},
	},
	{
		provider: "xero",
		delivery: request{`{"events":[{"resourceId":"717f2bfc-0000-4000-8000-000000000001","tenantId":"c2cc9b6e-0000-4000-8000-000000000001","tenantType":"ORGANISATION","eventCategory":"INVOICE","eventType":"UPDATE","eventDateUtc":"2026-01-01T00:00:00.123"}],"firstEventSequence":1,"lastEventSequence":1,"entropy":"S0m3"}`, ``},
		key:      "717f2bfc-0000-4000-8000-000000000001:2026-01-01T00%3A00%3A00.123:UPDATE",
		account:  "c2cc9b6e-0000-4000-8000-000000000001",
		again:    []request{{`{"entropy":"0th3r","events":[{"eventType":"UPDATE","resourceId":"717f2bfc-0000-4000-8000-000000000001","tenantId":"c2cc9b6e-0000-4000-8000-000000000001","eventDateUtc":"2026-01-01T00:00:00.123"}]}`, ``}},
		others:   []request{{`{"resourceId":"717f2bfc-0000-4000-8000-000000000001","tenantId":"c2cc9b6e-0000-4000-8000-000000000001","eventType":"UPDATE","eventDateUtc":"2026-01-01T00:00:00.124"}`, ``}},
	},
	{
		provider: "mpesa-stk",
		delivery: request{`{"Body":{"stkCallback":{"MerchantRequestID":"29115-34620561-1","CheckoutRequestID":"ws_CO_01012026030000000700000001","ResultCode":0,"CallbackMetadata":{"Item":[{"Name":"Amount","Value":1250.00},{"Name":"MpesaReceiptNumber","Value":"UA1INVENT1"},{"Name":"Balance"},{"Name":"TransactionDate","Value":20260101030003},{"Name":"PhoneNumber","Value":254700000001}]}}}}`, ``},
		key:      "ws_CO_01012026030000000700000001",
		again:    []request{{`{"Body":{"stkCallback":{"CheckoutRequestID":"ws_CO_01012026030000000700000001","ResultCode":"0","CallbackMetadata":{"Item":[null,{"Name":"Balance"}]}}}}`, ``}}, // F088, F089
		others: []request{ // F088: failures without metadata, with a text for a code
			{`{"Body":{"stkCallback":{"MerchantRequestID":"1-2-3","CheckoutRequestID":"ws_CO_50","ResultCode":1032,"ResultDesc":"Request cancelled by user"}}}`, ``},
			{`{"Body":{"stkCallback":{"MerchantRequestID":"1-2-4","CheckoutRequestID":"ws_CO_51","ResultCode":"SFC_IC0003"}}}`, ``},
		},
	},
	{
		provider: "mpesa",
		delivery: request{`{"Body":{"stkCallback":{"CheckoutRequestID":"ws_CO_52","ResultCode":"0","CallbackMetadata":{"Item":[]}}}}`, ``},
		key:      "ws_CO_52",
	},
	{
		provider: "mpesa-c2b",
		delivery: request{`{"TransactionType":"Pay Bill","TransID":"UA1INVENT1","TransTime":"20260101030003","TransAmount":"1250.00","BusinessShortCode":"600000","BillRefNumber":"ORD-1001","OrgAccountBalance":"","MSISDN":"2547 ***** 001"}`, ``},
		key:      "UA1INVENT1",
		account:  "600000",
		// The confirmation: nothing in it says so, so the source or the step has to.
		again:  []request{{`{"TransactionType":"Pay Bill","TransID":"UA1INVENT1","TransAmount":"1250","BusinessShortCode":"600000","OrgAccountBalance":"49197.00","MSISDN":"0f1e"}`, ``}},
		others: []request{{`{"TransID":"UA1INVENT2","BusinessShortCode":"600000","BillRefNumber":"ORD-1001"}`, ``}},
	},
	{
		provider: "mpesa-b2c",
		delivery: request{`{"Result":{"ResultType":0,"ResultCode":0,"OriginatorConversationID":"ORD-1001-payout","ConversationID":"AG_20260101_0000inv","TransactionID":"UA1INVENT2","ResultParameters":{"ResultParameter":[{"Key":"TransactionAmount","Value":500}]}}}`, ``},
		key:      "ORD-1001-payout:AG_20260101_0000inv",
		again:    []request{{`{"Result":{"ConversationID":"AG_20260101_0000inv","OriginatorConversationID":"ORD-1001-payout","ResultCode":"0"}}`, ``}},
		others:   []request{{`{"Result":{"OriginatorConversationID":"ORD-1001-status","ConversationID":"AG_20260101_0001inv","TransactionID":"UA1INVENT2"}}`, ``}}, // the answer to a query about it
	},
}

func TestProviders(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{}
	for _, row := range providerRows {
		tested[row.provider] = true
		t.Run(row.provider, func(t *testing.T) {
			t.Parallel()
			for _, request := range append([]request{row.delivery}, row.again...) {
				key, account, err := identify(t, row.provider, request.body, request.headers)
				if err != nil || key != row.key || account != row.account {
					t.Errorf("%s\nkey %q, account %q, %v\nwant %q, %q", request.body, key, account, err, row.key, row.account)
				}
			}
			seen := map[string]string{row.key: row.delivery.body}
			for _, request := range row.others {
				key, account, err := identify(t, row.provider, request.body, request.headers)
				if err != nil || account != row.account {
					t.Errorf("%s\naccount %q, %v; want %q", request.body, account, err, row.account)
				}
				if other, ok := seen[key]; ok {
					t.Errorf("one key %q for two events:\n%s\n%s", key, request.body, other)
				}
				seen[key] = request.body
			}
		})
	}
	for i := range profiles {
		if !tested[profiles[i].Name] {
			t.Errorf("no row for %s", profiles[i].Name)
		}
	}
}

func TestPlainStripeBody(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{"id":"evt_1"}`, `{"id":"evt_1","livemode":true}`, `{"id":"evt_1","livemode":false}`} {
		key, account, err := identify(t, "stripe", body, ``)
		if key != "evt_1" || account != "" || err != nil {
			t.Errorf("%s: %q, %q, %v", body, key, account, err)
		}
	}
}

func BenchmarkIdentify(b *testing.B) {
	for _, row := range providerRows {
		b.Run(row.provider, func(b *testing.B) {
			p, _ := Find(row.provider)
			body, headers := []byte(row.delivery.body), []byte(row.delivery.headers)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := p.Identify(body, headers); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
