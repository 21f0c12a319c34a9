package failure

import "strings"

// secrecy says how much of a member's value is secret because of its name.
type secrecy uint8

const (
	open    secrecy = iota
	scalars         // texts and numbers; a container is looked into ("auth", "credentials")
	texts           // texts, not numbers ("tokens", which language models count)
	whole           // everything, containers too
)

// secretWords are secret wherever they stand as a word of a name: api_token,
// X-Auth-Token, sessionToken.
var secretWords = map[string]secrecy{
	"authorization": whole, "bearer": whole,
	"cookie": whole, "cookies": whole, "phpsessid": whole, "jsessionid": whole,
	"token": whole, "tokens": texts, "jwt": whole, "csrf": whole, "xsrf": whole,
	"secret": whole, "secrets": whole,
	"password": whole, "passwords": whole, "passwd": whole, "passphrase": whole, "passcode": whole, "passkey": whole, "pwd": whole,
	"apikey": whole, "apikeys": whole,
	"signature": whole, "signatures": whole, "sig": whole, "hmac": whole,
	"otp": whole, "cvv": whole, "cvc": whole,
	"credential": scalars, "credentials": scalars,
}

// lastWords are secret only where they end a name: auth, smtp_pass.
var lastWords = map[string]secrecy{"auth": scalars, "pass": scalars}

// wholeNames are secret only where they are all of it: a pin_code is a postcode.
var wholeNames = map[string]secrecy{"pin": scalars}

// secretEnds are secret as the end of a word that somebody wrote in one:
// accesstoken, clientsecret. "secretary" and "tokenizer" do not end so.
var secretEnds = []string{
	"token", "secret", "password", "passwd", "passphrase", "apikey", "accesskey", "privatekey", "secretkey", "authkey", "signingkey",
	"encryptionkey", "sharedkey", "masterkey", "signature", "cookie", "authorization",
}

// secretStarts are secret as the beginning of one: passwordhash.
var secretStarts = []string{"password", "passwd"}

// keyKinds make a secret of the "key" behind them. A key of any other kind
// (idempotency, primary, public, provider) is a name and not a secret.
var keyKinds = set(`api access private secret signing encryption decryption auth shared master account subscription functions ssh session hmac role storage`)

// codeKinds do the same for "code", connectionKinds for "string".
var (
	codeKinds       = set(`security`)
	connectionKinds = set(`connection`)
)

// describers, as the last word, turn a name into one that speaks about a
// secret: token_type, password_expires_at, signature_algorithm, tokens_used.
var describers = set(`type types count counts limit limits usage used expires expire expiry expired expiration ttl url urls uri uris endpoint
	name names length len size format status state valid invalid version algorithm alg algo method methods scheme required enabled disabled
	policy policies strength at in on by field header param parameter budget price cost rate present missing provided exists prefix kind mode
	class error errors attempts rules min max age day days minute second seconds date time index position location provider issuer audience
	scope scopes consent domain path sent id ids`)

// cursorWords, before "token", make something harmless of it: idempotency_token,
// next_page_token, "Unexpected token".
var cursorWords = set(`max min total average avg per idempotency idempotent page next prev previous continuation pagination cursor sync unexpected`)

// countWords, before "tokens", make a number of it: max_tokens, prompt_tokens.
var countWords = set(`prompt completion input output cached cache reasoning used remaining num n number limit count audio text image estimated
	generated context budget thinking consumed of read write creation prediction accepted rejected sampled candidates tool billed usage
	available requested`)

func set(words string) map[string]bool {
	m := map[string]bool{}
	for _, word := range strings.Fields(words) {
		m[word] = true
	}
	return m
}

// names decides which names are secret.
type names struct {
	extra []extraName
}

// extraName is a name that the configuration adds.
type extraName struct {
	words  []string
	joined string
}

func newNames(extra []string) names {
	var n names
	for _, name := range extra {
		words := splitWords(name)
		if len(words) > 0 {
			n.extra = append(n.extra, extraName{words, strings.Join(words, "")})
		}
	}
	return n
}

// maxName bounds how much of a name is looked at: its end, where the noun is.
const maxName = 128

// secrecy judges a name in any spelling.
func (n names) secrecy(name string) secrecy {
	if len(name) > maxName {
		name = name[len(name)-maxName:]
	}
	words := splitWords(name)
	for len(words) > 1 && strings.Trim(words[len(words)-1], "0123456789") == "" {
		words = words[:len(words)-1] // password2, signature-256
	}
	if len(words) == 0 {
		return open
	}
	for _, extra := range n.extra {
		if extra.in(words) {
			return whole
		}
	}
	return usualSecrecy(words)
}

// in says whether a name contains the extra one, in words: "phone" is in
// customer_phone and phoneNumber, not in phone_type, unless that is the name.
func (e extraName) in(words []string) bool {
	if strings.Join(words, "") == e.joined {
		return true
	}
	if describers[words[len(words)-1]] {
		return false
	}
	for i := 0; i+len(e.words) <= len(words); i++ {
		if strings.Join(words[i:i+len(e.words)], "\x00") == strings.Join(e.words, "\x00") {
			return true
		}
	}
	return false
}

func usualSecrecy(words []string) secrecy {
	last := len(words) - 1
	if s := wholeNames[words[0]]; s != open && last == 0 {
		return s
	}
	if s := lastWords[words[last]]; s != open {
		return s
	}
	for i := last; i >= 0; i-- {
		s := wordSecrecy(words, i)
		if s == open {
			continue
		}
		describes := i < last && describers[words[last]]
		// Vault's secret_id is one half of a login, unlike a token's id.
		if words[last] == "id" && words[i] == "secret" {
			describes = false
		}
		if describes || i > 0 && harmlessToken(words[i-1], words[i]) {
			return open
		}
		return s
	}
	return splitSecrecy(words)
}

func harmlessToken(before, word string) bool {
	switch word {
	case "token":
		return cursorWords[before]
	case "tokens":
		return cursorWords[before] || countWords[before]
	}
	return false
}

func wordSecrecy(words []string, i int) secrecy {
	word := words[i]
	if s := secretWords[word]; s != open {
		return s
	}
	if i > 0 {
		before := words[i-1]
		switch word {
		case "key", "keys":
			if keyKinds[before] {
				return whole
			}
		case "code":
			if codeKinds[before] {
				return whole
			}
		case "string":
			if connectionKinds[before] {
				return scalars
			}
		}
	}
	for _, end := range secretEnds {
		if strings.HasSuffix(word, end) {
			return whole
		}
	}
	for _, start := range secretStarts {
		if strings.HasPrefix(word, start) {
			return whole
		}
	}
	return open
}

// splitSecrecy finds a secret word that the spelling took apart: PassWord.
func splitSecrecy(words []string) secrecy {
	joined := strings.Join(words, "")
	for _, end := range []string{"password", "passwd", "passphrase", "apikey"} {
		if strings.HasSuffix(joined, end) {
			return whole
		}
	}
	return open
}

// splitWords takes a name apart at everything that is no letter or digit, at
// camelCase, and between letters and digits; the words are in lower case.
func splitWords(name string) []string {
	var words []string
	start := 0
	cut := func(end int) {
		if end > start {
			words = append(words, strings.ToLower(name[start:end]))
		}
		start = end
	}
	for i := range len(name) {
		kind := charKind(name[i])
		if kind == 0 {
			cut(i)
			start = i + 1
			continue
		}
		if i == start {
			continue
		}
		before := charKind(name[i-1])
		switch {
		case kind == 'U' && before == 'l', (kind == 'd') != (before == 'd'):
			cut(i)
		case kind == 'l' && before == 'U' && i-1 > start: // XAPIKey: X API Key is X, API, Key
			cut(i - 1)
		}
	}
	cut(len(name))
	return words
}

// charKind is 'l' or 'U' for letters by case, 'd' for digits, 0 for the rest.
// Bytes of other alphabets count as letters.
func charKind(c byte) byte {
	switch {
	case c >= 'a' && c <= 'z' || c >= 0x80:
		return 'l'
	case c >= 'A' && c <= 'Z':
		return 'U'
	case c >= '0' && c <= '9':
		return 'd'
	}
	return 0
}
