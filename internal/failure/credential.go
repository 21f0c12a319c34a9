package failure

import (
	"encoding/base64"
	"strings"
)

// keyForm is a key that its vendor made recognisable.
type keyForm struct {
	prefix string
	least  int // characters behind the prefix
}

// keyForms are the known ones by their first letter. Keys that are meant to be
// published (pk_live_…) and mere ids are not among them; nor is hf_, with which
// this service's own provider keys begin.
var keyForms = func() map[byte][]keyForm {
	m := map[byte][]keyForm{}
	for _, f := range []keyForm{
		{"sk_live_", 8},
		{"sk_test_", 8},
		{"rk_live_", 8},
		{"rk_test_", 8},
		{"whsec_", 8}, // Stripe, Svix, Paystack, Clerk
		{"sk-ant-", 8},
		{"sk-proj-", 8},
		{"sk-or-", 8},
		{"sk-", 20}, // Anthropic, OpenAI, OpenRouter
		{"ghp_", 20},
		{"gho_", 20},
		{"ghu_", 20},
		{"ghs_", 20},
		{"ghr_", 20},
		{"github_pat_", 20},
		{"glpat-", 16},
		{"xoxb-", 8},
		{"xoxp-", 8},
		{"xoxa-", 8},
		{"xoxr-", 8},
		{"xoxs-", 8},
		{"xoxe-", 8},
		{"xapp-", 8}, // Slack
		{"hooks.slack.com/services/", 8},
		{"discord.com/api/webhooks/", 8},
		{"discordapp.com/api/webhooks/", 8},
		{"AKIA", 16},
		{"ASIA", 16},
		{"AIza", 30},
		{"ya29.", 20}, // AWS, Google
		{"SG.", 20},
		{"key-", 32},
		{"xkeysib-", 20}, // SendGrid, Mailgun, Brevo
		{"shpat_", 16},
		{"shpss_", 16},
		{"shpca_", 16},
		{"shppa_", 16}, // Shopify
		{"pat-na1-", 20},
		{"pat-eu1-", 20},
		{"pat-na2-", 20}, // HubSpot
		{"FLWSECK-", 8},
		{"FLWSECK_TEST-", 8},
		{"sq0atp-", 16},
		{"sq0csp-", 16}, // Flutterwave, Square
		{"npm_", 30},
		{"pypi-", 30},
		{"dop_v1_", 20},
		{"hvs.", 20},
		{"ntn_", 30},
		{"secret_", 32},
		{"lin_api_", 20},
	} {
		m[f.prefix[0]] = append(m[f.prefix[0]], f)
	}
	return m
}()

// credential masks what is secret by its form and begins at i, where a word
// begins.
func credential(s string, i int) (span, bool) {
	switch s[i] {
	case 'b', 'B':
		if found, ok := scheme(s, i); ok {
			return found, true
		}
	case 'e':
		// A "-" before it may be a token's own: its beginning was looked at, and
		// looking again at each part of a long one would not be linear.
		if i == 0 || s[i-1] != '-' && s[i-1] != '.' {
			return jsonWebToken(s, i)
		}
	}
	if isDigit(s[i]) {
		return cardNumber(s, i)
	}
	for _, form := range keyForms[s[i]] {
		if !strings.HasPrefix(s[i:], form.prefix) {
			continue
		}
		end := i + len(form.prefix)
		for end < len(s) && (isAlnum(s[end]) || s[end] == '_' || s[end] == '-' || (s[end] == '.' || s[end] == '/') && end+1 < len(s) && isAlnum(s[end+1])) {
			end++
		}
		if end-i-len(form.prefix) >= form.least {
			return span{i, end, mask}, true
		}
	}
	return span{}, false
}

// bearerProse are words that follow "bearer" in a sentence.
var bearerProse = set(`token tokens auth authentication authorization authorisation realm error scheme schemes credential credentials header headers key keys
	is was not of for and or in the a an must should format missing required invalid expired error_description scope`)

// scheme masks the credential behind "Bearer" or "Basic".
func scheme(s string, i int) (span, bool) {
	bearer, basic := hasFold(s[i:], "bearer"), hasFold(s[i:], "basic")
	at := i + len("basic")
	if bearer {
		at = i + len("bearer")
	}
	if !bearer && !basic {
		return span{}, false
	}
	start := at
	for start < len(s) && (s[start] == ' ' || s[start] == '\t') {
		start++
	}
	for hasFold(s[start:], "%20") {
		start += len("%20")
	}
	end := start
	for end < len(s) && isTokenChar(s[end]) {
		end++
	}
	word := s[start:end]
	switch {
	case start == at || word == "":
		return span{}, false
	case bearer && bearerProse[strings.ToLower(strings.TrimRight(word, "=.:"))]:
		return span{}, false
	case basic && !isBasic(word):
		return span{}, false
	}
	return span{start, end, mask}, true
}

// isBasic tells a Basic credential from a word: "Basic plan". It is base64 of
// user:password (RFC 7617), or at least looks like base64.
func isBasic(word string) bool {
	bare := strings.TrimRight(word, "=.")
	if decoded, err := base64.RawStdEncoding.DecodeString(bare); err == nil && strings.IndexByte(string(decoded), ':') >= 0 {
		return true
	}
	return len(bare) >= 8 && (strings.ContainsAny(bare, "0123456789") || strings.HasSuffix(word, "="))
}

// jsonWebToken masks a JWT (RFC 7519): three or five parts in base64url, of
// which the first decodes to `{"`.
func jsonWebToken(s string, i int) (span, bool) {
	if !strings.HasPrefix(s[i:], "eyJ") {
		return span{}, false
	}
	end, parts := i, 0
	for {
		start := end
		for end < len(s) && (isAlnum(s[end]) || s[end] == '-' || s[end] == '_') {
			end++
		}
		if end-start >= 4 {
			parts++
		}
		if end >= len(s) || s[end] != '.' {
			break
		}
		end++
	}
	if parts < 2 {
		return span{}, false
	}
	if s[end-1] == '.' { // the end of a sentence
		end--
	}
	return span{i, end, mask}, true
}

// privateKey masks a private key in PEM; one that is cut off to the end.
func privateKey(s string, i int) (span, bool) {
	if !strings.HasPrefix(s[i:], "-----BEGIN ") || !strings.Contains(head(s[i:], 64), "PRIVATE KEY-----") {
		return span{}, false
	}
	end := strings.Index(s[i:], "-----END ")
	if end < 0 {
		return span{i, len(s), mask}, true
	}
	end += i + len("-----END ")
	if tail := strings.Index(head(s[end:], 64), "-----"); tail >= 0 {
		end += tail + len("-----")
	}
	return span{i, end, mask}, true
}

// addressPassword masks the password in scheme://user:password@host; i is at
// the first colon.
func addressPassword(s string, i int) (span, bool) {
	start := i + len("://")
	end, at, colon := start, -1, -1
scan:
	for ; end < len(s); end++ {
		switch c := s[end]; {
		case c == '@':
			at = end // the last one: passwords contain them too
		case c == ':' && colon < 0:
			colon = end
		case c <= ' ' || strings.IndexByte("/?#\"'<>\\", c) >= 0:
			break scan
		}
	}
	if colon < 0 || at <= colon+1 {
		return span{}, false
	}
	return span{colon + 1, at, mask}, true
}

// botToken masks a Telegram bot's token, digits:letters, which stands in the
// path of its addresses; i is at the colon.
func botToken(s string, i, floor int) (span, bool) {
	start := i
	for start > floor && i-start < 12 && isDigit(s[start-1]) {
		start--
	}
	if i-start < 8 {
		return span{}, false
	}
	end := i + 1
	for end < len(s) && (isAlnum(s[end]) || s[end] == '_' || s[end] == '-') {
		end++
	}
	if end-i-1 < 30 {
		return span{}, false
	}
	return span{i + 1, end, mask}, true
}

// cardNumber masks a card number that begins at i: 13 to 19 digits in one run,
// or in groups with single spaces or dashes, the first of four digits. Behind
// the card other digits may follow ("4111 1111 1111 1111 12/27"), so each
// boundary is tried, the longest number first.
func cardNumber(s string, i int) (span, bool) {
	if i > 0 && (s[i-1] == '+' || s[i-1] == '.') { // a telephone number, a fraction
		return span{}, false
	}
	var number []byte
	var ends []int
	at := i
	for {
		group := at
		for at < len(s) && isDigit(s[at]) && len(number) <= 19 {
			number = append(number, s[at])
			at++
		}
		if len(number) > 19 || at < len(s) && (isAlnum(s[at]) || s[at] == '_') || group > i && at-group > 7 {
			break
		}
		ends = append(ends, at)
		grouped := at+1 < len(s) && (s[at] == ' ' || s[at] == '-') && isDigit(s[at+1])
		if !grouped || group == i && at-i != 4 {
			break
		}
		at++
	}
	for k := len(ends) - 1; k >= 0; k-- {
		digits := onlyDigits(s[i:ends[k]])
		if isCard(digits) {
			return span{i, ends[k], mask}, true
		}
	}
	return span{}, false
}

func onlyDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, s)
}

// isCard says whether digits are a card number. Payment cards begin with 2 to
// 6, or 8; a time in milliseconds begins with 1. 13 digits are old Visa cards
// alone, else every tenth telephone number with its country would be one.
func isCard(digits string) bool {
	if len(digits) < 13 || len(digits) > 19 || strings.IndexByte("234568", digits[0]) < 0 || len(digits) == 13 && digits[0] != '4' {
		return false
	}
	sum := 0
	for k := range len(digits) {
		d := int(digits[len(digits)-1-k] - '0')
		if k%2 == 1 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return sum%10 == 0
}
