package identity

import (
	"encoding/hex"
	"strings"
)

// hashDigits is how much of the payload hash {hash} stands for: 64 bits.
const hashDigits = 16

// maxPlaceholders bounds what one template may cost, since each placeholder is
// one pass over the payload.
const maxPlaceholders = 16

// Template builds a key from a key_template such as "order-{order_id}-{hash}".
// {hash} is the first 16 hex digits of the payload hash, which hash returns; it
// is called at most once, and only if it is needed. Every other {path} is a
// dotted path into payload as in [Lookup]; a member called hash at the top is
// out of reach. There is no way to write a literal brace.
//
// Everything wrong with the template or with what it finds is invalid_key, with
// the path named: a path that finds nothing, null, an object, an array or an
// empty string; {{ or }}; a brace without its partner; an empty {}; no
// placeholder at all, since one key for all events would swallow all but the
// first; more than 16 placeholders. The finished key has to pass [CheckKey]. An
// empty template is missing_key. A payload that is not JSON is invalid_json, and
// an error of hash is returned as it is.
func Template(tmpl string, payload []byte, hash func() ([32]byte, error)) (string, error) {
	if tmpl == "" {
		return "", missingKey("there is no key: key_template is empty")
	}
	if strings.Contains(tmpl, "{{") || strings.Contains(tmpl, "}}") {
		return "", invalidKey("key_template holds {{ or }}: an expression was not resolved (placeholders have single braces: {order_id})")
	}
	if trimmed := trimSpace(payload); len(trimmed) == 0 || string(trimmed) == "null" {
		return "", invalidKey("key_template needs a payload to take its values from, and there is none")
	}
	var key strings.Builder
	var hashText string
	placeholders := 0
	for rest := tmpl; rest != ""; {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			key.WriteString(rest)
			break
		}
		key.WriteString(rest[:i])
		path, after, err := placeholder(rest[i:])
		if err != nil {
			return "", err
		}
		rest = after
		if placeholders++; placeholders > maxPlaceholders {
			return "", invalidKey("key_template has more than %d placeholders", maxPlaceholders)
		}
		if path != "hash" {
			value, err := placeholderValue(payload, path)
			if err != nil {
				return "", err
			}
			key.WriteString(value)
			continue
		}
		if hashText == "" {
			sum, err := hash()
			if err != nil {
				return "", err
			}
			hashText = hex.EncodeToString(sum[:])[:hashDigits]
		}
		key.WriteString(hashText)
	}
	if placeholders == 0 {
		return "", invalidKey("key_template has no {path} and no {hash}: every event would get the same key; give a fixed key as idempotency_key")
	}
	return checked(key.String())
}

// placeholder takes the placeholder that text begins with, by its brace.
func placeholder(text string) (path, after string, err error) {
	end := strings.IndexAny(text[1:], "{}")
	if text[0] == '}' || end < 0 || text[1+end] == '{' {
		return "", "", invalidKey("key_template has a brace without its partner")
	}
	path, after = text[1:1+end], text[1+end+1:]
	if path == "" {
		return "", "", invalidKey("key_template has an empty placeholder {}; put a path into the payload there, or hash")
	}
	return path, after, nil
}

func placeholderValue(payload []byte, path string) (string, error) {
	tok, err := find(payload, path)
	if err != nil {
		return "", err
	}
	what := ""
	switch tok.kind {
	case kindEnd:
		what = "finds nothing in the payload"
	case kindNull:
		what = "is null in the payload"
	case kindOpenObject:
		what = "is an object in the payload, not a text or number"
	case kindOpenArray:
		what = "is an array in the payload, not a text or number"
	default:
		value, err := scalar(payload, tok, path)
		if err != nil || value != "" {
			return value, err
		}
		what = "is an empty text in the payload"
	}
	return "", invalidKey("the path %s in key_template %s", shown(path), what)
}
