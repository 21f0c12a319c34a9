package failure

import "strings"

// mask stands where a secret was.
const mask = "[redacted]"

// Redact returns s with its secrets masked as "[redacted]":
//
//   - what is assigned to a secret name: token=…, "password": "…" (with any
//     number of backslashes before the quotes), Cookie: …, <Password>…</…>, the
//     parameters of an address. Names are known in any spelling: authorization,
//     cookie, token, secret, password, api_key, private_key, signature and their
//     like, and those of extra. max_tokens, token_type, idempotency_key and
//     author are not among them.
//   - what is a secret by its form: Bearer and Basic credentials, keys with a
//     vendor's prefix (sk_live_…, ghp_…, xoxb-…), JSON Web Tokens, private keys
//     in PEM, the password in an address (https://user:password@host), and card
//     numbers (13 to 19 digits, also in groups, that pass the Luhn check and
//     begin like a card).
//
// Redacting twice changes nothing more. Bytes that are not UTF-8 stay as they
// are. It takes linear time.
func Redact(s string, extra []string) string {
	return redactor{newNames(extra)}.text(s)
}

// redactor masks by names; it keeps no state of a text.
type redactor struct{ names names }

// span is a secret in a text, and what takes its place.
type span struct {
	start, end int
	with       string
}

// maxPasses bounds the walks of text. Two are the rule: one that masks and one
// that finds nothing more.
const maxPasses = 8

// text masks until nothing more is found: a mask can uncover a secret that the
// text behind it had hidden, and redacting twice must change nothing.
func (r redactor) text(s string) string {
	for range maxPasses {
		next := r.pass(s)
		if next == s {
			break
		}
		s = next
	}
	return s
}

// pass walks through s once. What a rule masks is never looked at again, so
// that the rules' looks ahead add up to one more walk.
func (r redactor) pass(s string) string {
	var b strings.Builder
	done := 0 // s[:done] is written
	for i := 0; i < len(s); {
		found, ok := r.secretAt(s, i, done)
		if !ok {
			i++
			continue
		}
		b.WriteString(s[done:found.start])
		b.WriteString(found.with)
		done, i = found.end, found.end
	}
	if done == 0 {
		return s
	}
	b.WriteString(s[done:])
	return b.String()
}

// secretAt finds the secret that the character at i introduces. floor is the
// end of the last one: names are not looked for before it.
func (r redactor) secretAt(s string, i, floor int) (span, bool) {
	switch c := s[i]; {
	case c == ':':
		if strings.HasPrefix(s[i:], "://") {
			return addressPassword(s, i)
		}
		if found, ok := botToken(s, i, floor); ok {
			return found, true
		}
		return r.assigned(s, i, 1, floor)
	case c == '=':
		return r.assigned(s, i, 1, floor)
	case c == '%':
		if hasFold(s[i:], "%3d") || hasFold(s[i:], "%3a") { // an address inside an address
			return r.assigned(s, i, 3, floor)
		}
	case c == '<':
		return r.element(s, i)
	case c == '-':
		return privateKey(s, i)
	case isAlnum(c) && (i == 0 || !isAlnum(s[i-1]) && s[i-1] != '_'):
		return credential(s, i)
	}
	return span{}, false
}

// maxNameBack bounds how far a name reaches back from its separator.
const maxNameBack = 64

// quoting is how a JSON or shell text opened a string: backslashes and a quote.
type quoting struct {
	quote       byte // 0: not quoted
	backslashes int
}

func (q quoting) String() string {
	if q.quote == 0 {
		return ""
	}
	return strings.Repeat(`\`, q.backslashes) + string(q.quote)
}

// assigned masks the value behind the separator at i (width bytes long), if the
// name before it is secret.
func (r redactor) assigned(s string, i, width, floor int) (span, bool) {
	name, quoted := nameBefore(s, i, floor)
	if name == "" {
		return span{}, false
	}
	level := r.names.secrecy(name)
	if level == open {
		return span{}, false
	}
	at := i + width
	for at < len(s) && (s[at] == '=' || s[at] == '>') { // ==, =>
		at++
	}
	for at < len(s) && (s[at] == ' ' || s[at] == '\t' || quoted.quote != 0 && (s[at] == '\n' || s[at] == '\r')) {
		at++
	}
	return value(s, at, name, quoted, level)
}

// nameBefore reads the name that ends at i, with its quotes.
func nameBefore(s string, i, floor int) (string, quoting) {
	end := i
	for end > floor && i-end < 4 && (s[end-1] == ' ' || s[end-1] == '\t') {
		end--
	}
	limit := max(floor, end-maxNameBack)
	var q quoting
	if end > limit && isQuote(s[end-1]) {
		q.quote = s[end-1]
		end--
		for end > limit && s[end-1] == '\\' {
			q.backslashes++
			end--
		}
	}
	if q.quote == 0 && end > limit && s[end-1] == ']' { // user[password]=…
		end--
	}
	start := end
	for start > limit && isNameChar(s[start-1]) {
		start--
	}
	name := s[start:end]
	if hasFold(name, "3f") || hasFold(name, "26") { // behind %3F or %26
		if start > limit && s[start-1] == '%' {
			name = name[2:]
		}
	}
	// "API key: …": the word before may make the secret. Only in plain text, and
	// only one word, or every sentence about a secret would be masked.
	if q.quote == 0 && start > limit+1 && s[start-1] == ' ' && isNameChar(s[start-2]) {
		word := start - 1
		for word > limit && isNameChar(s[word-1]) {
			word--
		}
		if kind := strings.ToLower(s[word : start-1]); keyKinds[kind] || cursorWords[kind] || codeKinds[kind] {
			name = s[word:end]
		}
	}
	return name, q
}

// headerNames are followed by a value that goes to the end of the line.
var headerNames = set("authorization proxyauthorization cookie cookies setcookie setcookies")

// value masks the value at i of a secret name.
func value(s string, i int, name string, quoted quoting, level secrecy) (span, bool) {
	if i >= len(s) {
		return span{}, false
	}
	if q, body := openQuote(s, i); q.quote != 0 {
		end := closeQuote(s, body, q)
		if end == body {
			return span{}, false // empty
		}
		return span{body, end, mask}, true
	}
	if quoted.quote != 0 && (s[i] == '{' || s[i] == '[') && !strings.HasPrefix(s[i:], mask) {
		if level == scalars {
			return span{}, false
		}
		end := bracketEnd(s, i)
		if level == texts && !strings.ContainsAny(s[i:end], `"'`) {
			return span{}, false
		}
		return span{i, end, quoted.String() + mask + quoted.String()}, true
	}

	end := plainEnd(s, i)
	if end == i {
		return span{}, false
	}
	switch word := s[i:end]; {
	case isLiteral(word), level == texts && isNumber(word), strings.HasPrefix(word, "//"):
		return span{}, false
	case headerNames[strings.Join(splitWords(name), "")] && quoted.quote == 0:
		end = lineEnd(s, i)
	case isScheme(word):
		end = nextWordEnd(s, end)
	}
	with := mask
	if quoted.quote != 0 && !strings.HasPrefix(s[i:], mask) {
		with = quoted.String() + mask + quoted.String() // a bare number: keep it JSON
	}
	return span{i, end, with}, true
}

// element masks the text of an XML element with a secret name.
func (r redactor) element(s string, i int) (span, bool) {
	end := i + 1
	for end < len(s) && end-i <= maxNameBack && (isNameChar(s[end]) || s[end] == ':') {
		end++
	}
	if end == i+1 || r.names.secrecy(s[i+1:end]) == open {
		return span{}, false
	}
	tag := strings.IndexByte(head(s[end:], 512), '>')
	if tag < 0 || tag > 0 && s[end+tag-1] == '/' {
		return span{}, false
	}
	start := end + tag + 1
	length := strings.IndexByte(s[start:], '<')
	if length < 0 {
		length = len(s) - start
	}
	if strings.TrimSpace(s[start:start+length]) == "" {
		return span{}, false
	}
	return span{start, start + length, mask}, true
}
