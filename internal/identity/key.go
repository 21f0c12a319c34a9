package identity

import (
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxKeyBytes is the longest key, in bytes of UTF-8. The limit is the same for
// every store, and low enough for an index row of either of them.
const MaxKeyBytes = 255

// separators are what people and templates put between the parts of a key.
const separators = "-_:./|"

// leftovers are the texts that JavaScript, and so n8n, makes of a value that is
// not there or is no text. JavaScript spells them in this case only, so the
// comparison is exact: a part "Null" is somebody's name.
var leftovers = [...]string{"undefined", "null", "NaN", "[object Object]", "[undefined]"}

// KeyFromValue returns the key in the JSON value of idempotency_key: a string,
// unescaped and otherwise byte for byte, or a number as its literal digits.
//
// Absent (no bytes), null and the empty string are missing_key. true, false, an
// object, an array, and what [CheckKey] refuses are invalid_key.
func KeyFromValue(raw jsontext.Value) (string, error) {
	if len(raw) == 0 {
		return "", errNoKey()
	}
	t := tokens{raw: raw}
	tok, err := t.next()
	if err != nil {
		return "", err
	}
	var key string
	switch tok.kind {
	case kindString:
		text, exact := unquote(raw, tok)
		if !exact {
			return "", invalidKey("the key holds half of a surrogate pair, which cannot be stored")
		}
		key = text
	case kindNumber:
		key = string(raw[tok.start:tok.end])
	case kindNull:
		return "", errNoKey()
	default:
		return "", invalidKey("the key must be a string or a number, not true, false, an object or an array")
	}
	if _, err := t.next(); err != nil {
		return "", err
	}
	return checked(key)
}

// checked returns key if CheckKey passes it, and never a refused one.
func checked(key string) (string, error) {
	if err := CheckKey(key); err != nil {
		return "", err
	}
	return key, nil
}

func errNoKey() error {
	return missingKey("there is no key: idempotency_key is absent, null or empty")
}

// CheckKey checks a key that nobody vouches for: one given by the caller, built
// from a template, or found at a standard path. The rules are there to stop what
// an expression leaves behind when its value is missing: with such a key the
// first event would win and every later one would be taken for its duplicate.
//
// An empty key is missing_key. invalid_key, with the rule in the message: longer
// than [MaxKeyBytes]; not UTF-8; white space at an end (Unicode's, and the byte
// order mark, which JavaScript counts as such); control characters (C0, DEL,
// C1); "{{" or "}}" anywhere; undefined, null, NaN, [object Object] or
// [undefined] as the whole key or as a part between the separators "-_:./|";
// ASCII letters and one separator with nothing behind.
func CheckKey(key string) error {
	if key == "" {
		return errNoKey()
	}
	if len(key) > MaxKeyBytes {
		return errTooLong(key)
	}
	if strings.TrimFunc(key, outerSpace) != key {
		return invalidKey("the key begins or ends with white space; keys are compared byte for byte, so trim it where it is made")
	}
	if err := checkText(key); err != nil {
		return err
	}
	if strings.Contains(key, "{{") || strings.Contains(key, "}}") {
		return invalidKey("the key holds {{ or }}: an expression was not resolved (is the field in expression mode?)")
	}
	if err := checkParts(key); err != nil {
		return err
	}
	last := len(key) - 1
	if word := key[:last]; word != "" && strings.TrimLeftFunc(word, asciiLetter) == "" && strings.IndexByte(separators, key[last]) >= 0 {
		return invalidKey("the key is a word and a separator with nothing behind: the value that should follow was empty")
	}
	return nil
}

// CheckDerivedKey checks a key that a provider profile found: its parts come
// from a known provider, and an id there may be any text. An empty key is
// missing_key; one longer than [MaxKeyBytes], with control characters, or not
// UTF-8 is invalid_key.
func CheckDerivedKey(key string) error {
	if key == "" {
		return missingKey("there is no key: what identifies the delivery is empty")
	}
	if len(key) > MaxKeyBytes {
		return errTooLong(key)
	}
	return checkText(key)
}

func errTooLong(key string) error {
	return invalidKey("the key is %d bytes long; at most %d are allowed (a template can use {hash})", len(key), MaxKeyBytes)
}

// checkText refuses what text columns cannot hold, or people cannot see.
func checkText(key string) error {
	if !validText(key) {
		return invalidKey("the key is not valid UTF-8")
	}
	if strings.ContainsFunc(key, unicode.IsControl) {
		return invalidKey("the key holds a control character, such as a line break, a tab or NUL")
	}
	return nil
}

func checkParts(key string) error {
	for rest := key; ; {
		part, end := rest, strings.IndexAny(rest, separators)
		if end >= 0 {
			part = rest[:end]
		}
		for _, leftover := range leftovers {
			if part != leftover {
				continue
			}
			if part == key {
				return invalidKey("the key is the text %q: the value it was made from was missing or no text", leftover)
			}
			return invalidKey("the key has %q as a part: one of the values it was made from was missing or no text", leftover)
		}
		if end < 0 {
			return nil
		}
		rest = rest[end+1:]
	}
}

func outerSpace(r rune) bool { return unicode.IsSpace(r) || r == '\ufeff' }

func asciiLetter(r rune) bool { return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' }
