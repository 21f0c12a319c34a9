package identity

import (
	"strconv"
	"strings"
)

// Lookup returns the scalar at a dotted path in payload: "data.object.id",
// "events.0.id". A part of the path names a member of an object (exactly, case
// counts) or, written as a plain number, an element of an array. A member whose
// own name has a dot in it cannot be reached.
//
// A string is returned unescaped and otherwise untouched, a number as its
// literal digits (so 64-bit ids and longer ones survive), true and false as
// those words. found is false if there is nothing at the path, and for null, an
// object or an array; an empty string is found.
//
// Errors: invalid_json if payload is not JSON, too deep, or has the member asked
// for twice in one object on the way (then nobody can say which one other
// readers see); invalid_key if the path has an empty part, or if the string has
// a lone surrogate, which no text column can hold. An empty payload holds
// nothing and is no error.
func Lookup(payload []byte, path string) (value string, found bool, err error) {
	tok, err := find(payload, path)
	if err != nil {
		return "", false, err
	}
	switch tok.kind {
	case kindString, kindNumber, kindTrue, kindFalse:
		value, err = scalar(payload, tok, path)
		return value, err == nil, err
	}
	return "", false, nil
}

// scalar returns the text of a string, number, true or false.
func scalar(payload []byte, tok token, path string) (string, error) {
	if tok.kind != kindString {
		return string(payload[tok.start:tok.end]), nil
	}
	text, exact := unquote(payload, tok)
	if !exact {
		return "", invalidKey("the text at %s holds half of a surrogate pair, which cannot be stored in a key", shown(path))
	}
	return text, nil
}

// find returns the first token of the value at path; its kind is kindEnd if
// there is none. It reads the whole payload once, whatever the path.
func find(payload []byte, path string) (token, error) {
	parts := strings.Split(path, ".")
	for _, part := range parts {
		if part == "" {
			return token{}, invalidKey("the path %s has an empty part", shown(path))
		}
	}
	t := tokens{raw: payload}
	if t.skipSpace(); t.pos == len(payload) {
		return token{}, nil
	}

	// on holds the open containers that lie on the path: always the outermost
	// ones, so a container is on the path if its depth is at most len(on).
	var room [8]step
	on := room[:0]
	var result token
	for {
		tok, err := t.next()
		if err != nil {
			return token{}, err
		}
		hit := false
		switch tok.kind {
		case kindEnd:
			return result, nil
		case kindCloseObject, kindCloseArray:
			if t.depth < len(on) {
				on = on[:t.depth]
			}
			continue
		case kindName:
			if t.depth == len(on) {
				if err := on[t.depth-1].name(payload, tok); err != nil {
					return token{}, err
				}
			}
			continue
		case kindOpenObject, kindOpenArray:
			outer := t.depth - 1
			hit = outer == len(on) && (outer == 0 || on[outer-1].value())
			if hit && outer < len(parts) {
				on = append(on, newStep(tok.kind, parts[outer]))
			}
			hit = hit && outer == len(parts)
		default:
			hit = t.depth == len(on) && t.depth > 0 && on[t.depth-1].value() && t.depth == len(parts)
		}
		if hit {
			result = tok
		}
	}
}

// step is an open container on the path, and the part that it has to answer.
type step struct {
	part  string
	index int  // of the wanted element; -1 in an object, or if part is no index
	at    int  // elements seen so far
	seen  bool // the wanted member was there
	next  bool // the next value belongs to it
}

func newStep(container kind, part string) step {
	s := step{part: part, index: -1}
	if container == kindOpenArray {
		// Atoi alone would also take "+1" and "01".
		if n, err := strconv.Atoi(part); err == nil && strconv.Itoa(n) == part {
			s.index = n
		}
	}
	return s
}

// name notes a member of an object on the path.
func (s *step) name(payload []byte, tok token) error {
	if tok.escaped {
		text, exact := unquote(payload, tok)
		s.next = exact && text == s.part
	} else {
		s.next = string(payload[tok.start+1:tok.end-1]) == s.part
	}
	if s.next && s.seen {
		return invalidJSON("the member %s stands twice in one object", shown(s.part))
	}
	s.seen = s.seen || s.next
	return nil
}

// value notes a value directly in the container and says if it is the one.
func (s *step) value() bool {
	hit := s.next || s.index >= 0 && s.at == s.index
	s.at++
	return hit
}
