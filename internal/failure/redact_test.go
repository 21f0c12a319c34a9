package failure_test

import (
	"strings"
	"testing"
	"time"

	"holdfast/internal/failure"
)

// redactRows are texts with secrets, and without.
var redactRows = []struct{ in, want string }{
	// Assignments, in every dress.
	{"token=abc", "token=[redacted]"},
	{"token: abc", "token: [redacted]"},
	{"TOKEN = abc, next", "TOKEN = [redacted], next"},
	{"api_key=abc&x=1", "api_key=[redacted]&x=1"},
	{"API key: abc", "API key: [redacted]"},
	{"the client secret: abc", "the client secret: [redacted]"},
	{`{"password":"abc","a":1}`, `{"password":"[redacted]","a":1}`},
	{`{"password":"a\"b","a":1}`, `{"password":"[redacted]","a":1}`},
	{`{'password': 'abc'}`, `{'password': '[redacted]'}`},
	{`422 - "{\"token\":\"abc\",\"a\":1}"`, `422 - "{\"token\":\"[redacted]\",\"a\":1}"`},
	{`"x \\\"token\\\": \\\"abc\\\" y"`, `"x \\\"token\\\": \\\"[redacted]\\\" y"`},
	{`{"pin":1234,"a":1}`, `{"pin":"[redacted]","a":1}`},
	{`{"cookies":["a=b","c"],"a":1}`, `{"cookies":"[redacted]","a":1}`},
	{`{"token":"cut off in the mid`, `{"token":"[redacted]`},
	{`{"password" => "abc"}`, `{"password" => "[redacted]"}`},
	{"map[password:abc user:joe]", "map[password:[redacted] user:joe]"},
	{"host=h password=abc dbname=d", "host=h password=[redacted] dbname=d"},
	{"user[password]=abc&x=1", "user[password]=[redacted]&x=1"},
	{"?next=https%3A%2F%2Fh%3Ftoken%3Dabc%26x%3D1", "?next=https%3A%2F%2Fh%3Ftoken%3D[redacted]%26x%3D1"},
	{"<Password>abc</Password>", "<Password>[redacted]</Password>"},
	{`<wsse:Password Type="t">abc</wsse:Password>`, `<wsse:Password Type="t">[redacted]</wsse:Password>`},
	{"x-auth-token: Bearer abc def", "x-auth-token: [redacted] def"},
	{"SecurityCredential: abc", "SecurityCredential: [redacted]"},

	// Headers go on to the end of the line.
	{"Authorization: Bearer abc\nHost: h", "Authorization: [redacted]\nHost: h"},
	{"authorization: Digest username=\"u\", response=\"r\"\r\nHost: h", "authorization: [redacted]\r\nHost: h"},
	{"Cookie: sid=SECRET3; theme=dark", "Cookie: [redacted]"},
	{`Set-Cookie: a="b"; Path=/` + "\nx", "Set-Cookie: [redacted]\nx"},
	{`curl -H 'Authorization: Bearer abc' https://h`, `curl -H 'Authorization: [redacted]' https://h`},
	{`"Cookie: a=b\nHost: h"`, `"Cookie: [redacted]\nHost: h"`},

	// Forms.
	{"got Bearer abcdef0123", "got Bearer [redacted]"},
	{"got bearer SECRET1.", "got bearer [redacted]"},
	{"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "Basic [redacted]"},
	{"Basic dTpw", "Basic [redacted]"},
	{"Incorrect API key provided: sk-proj-abcdefgh12345678.", "Incorrect API key provided: [redacted]."},
	{"key sk_live_abcdefgh12345678 was refused", "key [redacted] was refused"},
	{"whsec_abcdefgh12345678", "[redacted]"},
	{"ghp_abcdefghijklmnopqrstuvwxyz0123456789", "[redacted]"},
	{"AKIAIOSFODNN7EXAMPLE", "[redacted]"},
	{"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl, then", "[redacted], then"},
	{"https://api.telegram.org/bot123456789:AAabcdefghijklmnopqrstuvwxyz0123456/send", "https://api.telegram.org/bot123456789:[redacted]/send"},
	{"https://hooks.slack.com/services/T00/B00/abcdef", "https://[redacted]"},
	{"-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nx", "[redacted]\nx"},
	{"-----BEGIN PRIVATE KEY-----\nabc", "[redacted]"},
	{"https://user:SECRET4@api.example/?token=SECRET5", "https://user:[redacted]@api.example/?token=[redacted]"},
	{"postgres://u:p@ss:w@h:5432/d", "postgres://u:[redacted]@h:5432/d"},

	// Cards.
	{"card 4111111111111111 declined", "card [redacted] declined"},
	{"card 4111 1111 1111 1111 12/27", "card [redacted] 12/27"},
	{"4111-1111-1111-1111", "[redacted]"},
	{"3782 822463 10005", "[redacted]"},
	{"378282246310005", "[redacted]"},
	{"30569309025904", "[redacted]"},
	{"4222222222222", "[redacted]"},
	{"6011 1111 1111 1117 12", "[redacted] 12"},
	{"ref 2235 4111 1111 1111 1111", "ref 2235 [redacted]"},

	// No secrets.
	{"", ""},
	{"nothing here", "nothing here"},
	{"max_tokens=100 tokens_used: 5 token_type=bearer", "max_tokens=100 tokens_used: 5 token_type=bearer"},
	{`{"usage":{"prompt_tokens":12,"total_tokens":30},"tokens":7}`, `{"usage":{"prompt_tokens":12,"total_tokens":30},"tokens":7}`},
	{"author: joe, secretary: ann, authorized_by: bob", "author: joe, secretary: ann, authorized_by: bob"},
	{"idempotency_key=evt_1 provider_key=hf_abc primary_key=1 public_key=x", "idempotency_key=evt_1 provider_key=hf_abc primary_key=1 public_key=x"},
	{"Unexpected token: }", "Unexpected token: }"},
	{"Unexpected token < in JSON at position 0", "Unexpected token < in JSON at position 0"},
	{"Invalid token", "Invalid token"},
	{`WWW-Authenticate: Bearer realm="x"`, `WWW-Authenticate: Bearer realm="x"`},
	{"the Bearer token is missing, Basic plan, basic auth", "the Bearer token is missing, Basic plan, basic auth"},
	{`{"token":null,"secret":"","password":false}`, `{"token":null,"secret":"","password":false}`},
	{"next_page_token=abc", "next_page_token=abc"},
	{"https://user@host/path", "https://user@host/path"},
	{"1796063811788 4111111111111112 +4222222222222 0.4111111111111111", "1796063811788 4111111111111112 +4222222222222 0.4111111111111111"},
	{"550e8400-e29b-41d4-a716-446655440000", "550e8400-e29b-41d4-a716-446655440000"},
	{"x4111111111111111 4111111111111111x 41111111111111111111", "x4111111111111111 4111111111111111x 41111111111111111111"},
	{"sk_live_ sk-learn pk_live_abcdefgh12345678", "sk_live_ sk-learn pk_live_abcdefgh12345678"},
	{"a\xff\x00b", "a\xff\x00b"},
}

func TestRedact(t *testing.T) {
	t.Parallel()
	for _, tt := range redactRows {
		got := failure.Redact(tt.in, nil)
		if got != tt.want {
			t.Errorf("Redact(%q)\n got %q\nwant %q", tt.in, got, tt.want)
		}
		if again := failure.Redact(got, nil); again != got {
			t.Errorf("again: %q became %q", got, again)
		}
	}
}

// nameRows are names and whether they are secret, in the spellings of headers,
// JSON, environment variables and databases.
var nameRows = map[bool][]string{
	true: {
		"authorization", "Authorization", "AUTHORIZATION", "Proxy-Authorization", "proxy_authorization",
		"cookie", "Set-Cookie", "set_cookie", "cookies", "PHPSESSID",
		"token", "Token", "TOKEN", "accessToken", "access_token", "access-token", "accesstoken", "ACCESS_TOKEN", "AccessToken", "refresh_token",
		"id_token", "lease_token", "X-Auth-Token", "csrf_token", "x-csrf", "xsrfToken", "slack_bot_token", "token2", "access_tokens", "verify_token",
		"secret", "client_secret", "clientSecret", "clientsecret", "webhook-secret", "SECRET_KEY", "secretId", "consumerSecret", "secrets",
		"password", "Password", "passwd", "db_password", "dbPassword", "userpassword", "PASSWORD_2", "passwordHash", "PassWord", "pass_word", "passphrase",
		"pwd", "smtp_pass", "passkey", "passcode", "InitiatorPassword",
		"api_key", "apiKey", "apikey", "api-key", "APIKEY", "APIKey", "X-Api-Key", "XApiKey", "stripe_api_key", "x-api-key-2", "apiKeys", "api_token",
		"access_key", "accessKey", "aws_secret_access_key", "private_key", "privateKey", "signing_key", "encryption_key", "service_role_key",
		"Ocp-Apim-Subscription-Key", "x-functions-key", "AccountKey",
		"signature", "Stripe-Signature", "X-Hub-Signature-256", "x-shopify-hmac-sha256", "sig", "hmac",
		"bearer", "jwt", "otp", "cvv", "cvc", "security_code", "credential", "SecurityCredential", "credentials", "auth", "proxy_auth", "pin",
		"connectionString", "x_amz_security_token",
	},
	false: {
		"author", "authors", "authority", "authorized_by", "authorised", "authentication", "auth_type", "authMethod", "auth_url", "genericAuthType",
		"token_type", "tokenType", "token_count", "tokens_used", "max_tokens", "maxTokens", "max_output_tokens", "prompt_tokens", "promptTokens",
		"token_expires_at", "token_url", "nextPageToken", "next_page_token", "continuation_token", "idempotency_token", "I-Twilio-Idempotency-Token",
		"tokenizer", "tokenize", "token_id",
		"secretary", "secretariat", "secret_name", "secretType",
		"password_expires_at", "password_policy", "passwordRequired", "passport", "passenger", "passed", "bypass", "compass", "pass_rate",
		"key", "keys", "idempotency_key", "idempotencyKey", "Idempotency-Key", "provider_key", "primary_key", "foreign_key", "public_key", "cache_key",
		"key_basis", "monkey", "api_key_id", "access_key_id", "keyboard", "publishable_key",
		"signature_algorithm", "signatureVersion", "signed_at", "design", "assignment", "sign_in",
		"cookie_policy", "cookieDomain", "cookbook",
		"bearer_format", "pin_code", "pincode", "pinned", "spin", "shipping", "code", "status_code", "postal_code", "session_id", "sid", "account_sid",
		"credential_type", "name", "value", "email", "phone", "reference", "", "_", "-", "🔑", "256",
	},
}

func TestSecretNames(t *testing.T) {
	t.Parallel()
	for secret, names := range nameRows {
		for _, name := range names {
			in := `{"` + name + `":"abcdef","x":1}`
			want := in
			if secret {
				want = `{"` + name + `":"[redacted]","x":1}`
			}
			if got := string(failure.RedactJSON([]byte(in), nil)); got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
			if got := failure.Redact(in, nil); got != want {
				t.Errorf("%s as text: %s, want %s", name, got, want)
			}
		}
	}
}

func TestExtraNames(t *testing.T) {
	t.Parallel()
	extra := []string{"email", "phoneNumber", "token_type", "", "--"}
	for in, want := range map[string]string{
		`{"email":"a@b.c"}`:               `{"email":"[redacted]"}`,
		`{"customerEmail":"a@b.c"}`:       `{"customerEmail":"[redacted]"}`,
		`{"e_mail":"a@b.c"}`:              `{"e_mail":"[redacted]"}`,
		`{"EMAIL_ADDRESS":["a@b.c"]}`:     `{"EMAIL_ADDRESS":"[redacted]"}`,
		`{"email_verified_at":"2030"}`:    `{"email_verified_at":"2030"}`,
		`{"emailed":"x"}`:                 `{"emailed":"x"}`,
		`{"phone_number":254712345678}`:   `{"phone_number":"[redacted]"}`,
		`{"phone":"1"}`:                   `{"phone":"1"}`,
		`{"token_type":"x"}`:              `{"token_type":"[redacted]"}`, // asked for by name
		`{"a":"?email=a@b.c&x=1"}`:        `{"a":"?email=[redacted]&x=1"}`,
		`{"a":"{\"email\":\"a@b.c\"} x"}`: `{"a":"{\"email\":\"[redacted]\"} x"}`,
	} {
		if got := string(failure.RedactJSON([]byte(in), extra)); got != want {
			t.Errorf("%s\n got %s\nwant %s", in, got, want)
		}
	}
}

// TestRedactIsLinear gives the rules what they would be slow on if one of them
// looked ahead again and again. Seconds mean that one does.
func TestRedactIsLinear(t *testing.T) {
	t.Parallel()
	for _, part := range []string{
		"a", ":", "=", "token=", "token:\\", `\`, `"`, `\"`, `"tokens":[`, "eyJ-", "eyJ", "eyJ.", "eyJaaaa.", "Bearer ", "basic =", "://", "x://a:", "x://@",
		"<", "<token>", "<token a", "-----BEGIN PRIVATE KEY-----", "-----BEGIN ", "4111 ", "4", "123456789:", "sk-", "Cookie: a=\"", "Cookie: ", "[", "{\"a\":", "%3D", "token%3D", "é=", " ",
		"\n", "token = ", "'password':{", "secret_",
	} {
		in := strings.Repeat(part, 1<<17/len(part))
		start := time.Now()
		failure.Redact(in, nil)
		failure.RedactJSON([]byte(in), nil)
		failure.Redact("token="+in, nil)
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("%q: %v for 128 KiB", part, took)
		}
	}
}
