package identity

import "bytes"

// MaxDepth is how many arrays and objects may stand inside one another: the
// one nesting limit of the service. The outermost value counts as 1.
const MaxDepth = 200

// Depth refuses a text whose brackets nest deeper than limit. It only counts
// brackets outside of strings, so it can be run over a whole request body
// before anything decodes it; it does not check that the text is JSON. The
// error has the code invalid_json.
func Depth(raw []byte, limit int) error {
	depth := 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '{', '[':
			depth++
			if depth > limit {
				return tooDeep(limit)
			}
		case '}', ']':
			// A text that closes more than it opened is no JSON; it must not
			// earn credit for opening more later.
			depth -= min(depth, 1)
		case '"':
			for i++; i < len(raw) && raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
		}
	}
	return nil
}

func tooDeep(limit int) error {
	return invalidJSON("the JSON is nested deeper than %d levels", limit)
}

// kind says what a token is.
type kind byte

const (
	kindEnd         kind = 0 // the whole text has been read
	kindOpenObject  kind = '{'
	kindCloseObject kind = '}'
	kindOpenArray   kind = '['
	kindCloseArray  kind = ']'
	kindName        kind = ':' // a member's name; its colon has been read
	kindString      kind = '"'
	kindNumber      kind = '0'
	kindTrue        kind = 't'
	kindFalse       kind = 'f'
	kindNull        kind = 'n'
)

// token is a piece of the text: raw[start:end], quotes included.
type token struct {
	kind       kind
	start, end int
	escaped    bool // a string or name with a backslash in it
}

// want is what the grammar allows next.
type want byte

const (
	wantValue want = iota
	wantValueOrClose
	wantName
	wantNameOrClose
	wantCommaOrClose // at depth 0: nothing but white space
)

// tokens reads one JSON text (RFC 8259, valid UTF-8 only) token by token. The
// zero value with raw set is ready. It checks everything but repeated names.
type tokens struct {
	raw    []byte
	pos    int
	depth  int
	want   want
	object [MaxDepth]bool // is the open container at this depth an object
}

// next returns the next token, or one of kindEnd after the last.
func (t *tokens) next() (token, error) {
	t.skipSpace()
	if t.want == wantCommaOrClose && t.depth > 0 && t.pos < len(t.raw) && t.raw[t.pos] == ',' {
		t.pos++
		t.want = wantValue
		if t.object[t.depth-1] {
			t.want = wantName
		}
		t.skipSpace()
	}
	if t.pos == len(t.raw) {
		if t.want == wantCommaOrClose && t.depth == 0 {
			return token{start: t.pos, end: t.pos}, nil
		}
		return token{}, invalidJSON("not valid JSON: it ends too early, at byte %d", t.pos)
	}
	c := t.raw[t.pos]
	switch t.want {
	case wantCommaOrClose:
		if t.depth > 0 && (c == '}' || c == ']') && t.object[t.depth-1] == (c == '}') {
			return t.close(kind(c)), nil
		}
	case wantName, wantNameOrClose:
		if c == '}' && t.want == wantNameOrClose {
			return t.close(kindCloseObject), nil
		}
		if c == '"' {
			return t.name()
		}
	case wantValue, wantValueOrClose:
		if c == ']' && t.want == wantValueOrClose {
			return t.close(kindCloseArray), nil
		}
		return t.value(c)
	}
	return token{}, t.unexpected()
}

func (t *tokens) close(k kind) token {
	t.depth--
	t.pos++
	t.want = wantCommaOrClose
	return token{kind: k, start: t.pos - 1, end: t.pos}
}

func (t *tokens) name() (token, error) {
	tok, err := t.text(kindName)
	if err != nil {
		return token{}, err
	}
	t.skipSpace()
	if t.pos == len(t.raw) || t.raw[t.pos] != ':' {
		return token{}, t.unexpected()
	}
	t.pos++
	t.want = wantValue
	return tok, nil
}

func (t *tokens) value(c byte) (token, error) {
	start := t.pos
	switch c {
	case '{', '[':
		if t.depth == MaxDepth {
			return token{}, tooDeep(MaxDepth)
		}
		t.object[t.depth] = c == '{'
		t.depth++
		t.pos++
		t.want = wantValueOrClose
		if c == '{' {
			t.want = wantNameOrClose
		}
		return token{kind: kind(c), start: start, end: t.pos}, nil
	case '"':
		return t.text(kindString)
	case 't':
		return t.literal(kindTrue, "true")
	case 'f':
		return t.literal(kindFalse, "false")
	case 'n':
		return t.literal(kindNull, "null")
	}
	n := numberLen(t.raw[start:])
	if n == 0 {
		return token{}, t.unexpected()
	}
	return t.take(kindNumber, n), nil
}

// take takes the n bytes of a value without members.
func (t *tokens) take(k kind, n int) token {
	start := t.pos
	t.pos += n
	t.want = wantCommaOrClose
	return token{kind: k, start: start, end: t.pos}
}

func (t *tokens) text(k kind) (token, error) {
	start := t.pos
	end, escaped, err := scanString(t.raw, start)
	if err != nil {
		return token{}, err
	}
	tok := t.take(k, end-start)
	tok.escaped = escaped
	return tok, nil
}

func (t *tokens) literal(k kind, word string) (token, error) {
	start := t.pos
	if len(t.raw)-start < len(word) || string(t.raw[start:start+len(word)]) != word {
		return token{}, t.unexpected()
	}
	return t.take(k, len(word)), nil
}

// trimSpace drops JSON's white space, and only that, from both ends.
func trimSpace(raw []byte) []byte { return bytes.Trim(raw, " \t\r\n") }

func (t *tokens) skipSpace() {
	for t.pos < len(t.raw) {
		switch t.raw[t.pos] {
		case ' ', '\t', '\n', '\r':
			t.pos++
		default:
			return
		}
	}
}

func (t *tokens) unexpected() error {
	switch {
	case t.pos == 0 && bytes.HasPrefix(t.raw, []byte("\ufeff")):
		return invalidJSON("not valid JSON: it begins with a byte order mark; send it without")
	case t.pos == len(t.raw):
		return invalidJSON("not valid JSON: it ends too early, at byte %d", t.pos)
	case t.want == wantCommaOrClose && t.depth == 0:
		return invalidJSON("not valid JSON: there is something behind the value, at byte %d", t.pos)
	}
	return invalidJSON("not valid JSON: unexpected character at byte %d", t.pos)
}
