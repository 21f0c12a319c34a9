package failure

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// The readers below are deliberately looser than jsontext: a report may have
// been cut in the middle or be nested deeper than any parser's limit, and what
// can still be read of it must be read. They look at one level at a time, skip
// the rest without recursion, and take time linear in the input.

// object holds the members of one JSON object, their values unparsed. Of equal
// names the last wins, as in JavaScript, where these reports come from.
type object map[string]jsontext.Value

// readObject reads one level of v. What is not an object has no members.
func readObject(v jsontext.Value) object {
	if kindOf(v) != '{' {
		return nil
	}
	o := object{}
	members(v, func(name string, start, end int) { o[name] = v[start:end:end] })
	return o
}

// members calls f with each member of an object: its name, and where its value stands in v.
func members(v jsontext.Value, f func(name string, start, end int)) {
	i := skipSpace(v, 0)
	if i >= len(v) || v[i] != '{' {
		return
	}
	for i++; i < len(v); {
		i = skipFiller(v, i)
		if i >= len(v) || v[i] != '"' {
			return
		}
		end := stringEnd(v, i)
		name := unquote(v[i:end])
		i = skipFiller(v, end)
		if i >= len(v) || v[i] == '}' {
			return
		}
		end = valueEnd(v, i)
		f(name, i, end)
		i = end
	}
}

// elements calls f with each element of an array until f says false.
func elements(v jsontext.Value, f func(jsontext.Value) bool) {
	i := skipSpace(v, 0)
	if i >= len(v) || v[i] != '[' {
		return
	}
	for i++; i < len(v); {
		i = skipFiller(v, i)
		if i >= len(v) || v[i] == ']' {
			return
		}
		end := valueEnd(v, i)
		if end == i { // a stray delimiter: step over it, or we stand still
			i++
			continue
		}
		if !f(v[i:end:end]) {
			return
		}
		i = end
	}
}

// kindOf names a value by its first byte, as jsontext.Value.Kind does, but for
// any bytes: '{', '[', '"', 't', 'f', 'n', '0' for a number, 0 for nothing, and
// '?' for what is not JSON at all.
func kindOf(v jsontext.Value) byte {
	i := skipSpace(v, 0)
	if i >= len(v) {
		return 0
	}
	switch c := v[i]; {
	case c == '{' || c == '[' || c == '"':
		return c
	case c == '-' || c >= '0' && c <= '9':
		return '0'
	}
	switch string(trim(v)) {
	case "true":
		return 't'
	case "false":
		return 'f'
	case "null":
		return 'n'
	}
	return '?'
}

// text returns a string member, or "" for anything that is not a string.
func (o object) text(name string) string {
	v := o[name]
	if kindOf(v) != '"' {
		return ""
	}
	return unquote(trim(v))
}

// firstText returns the first of the members that is a non-empty string.
func (o object) firstText(names ...string) string {
	for _, name := range names {
		if s := o.text(name); s != "" {
			return s
		}
	}
	return ""
}

// number returns a member that is a whole number, or text of one.
func (o object) number(name string) (int64, bool) {
	v := trim(o[name])
	s := string(v)
	if kindOf(v) == '"' {
		s = unquote(v)
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// isTrue says whether the member is true, or the text of it.
func (o object) isTrue(name string) bool {
	return kindOf(o[name]) == 't' || o.text(name) == "true"
}

// object returns the member's own members, nil when it is not an object.
func (o object) object(name string) object { return readObject(o[name]) }

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

func skipSpace(b []byte, i int) int {
	for i < len(b) && isSpace(b[i]) {
		i++
	}
	return i
}

// skipFiller skips white space, commas and colons: what stands between values.
func skipFiller(b []byte, i int) int {
	for i < len(b) && (isSpace(b[i]) || b[i] == ',' || b[i] == ':') {
		i++
	}
	return i
}

func trim(b []byte) []byte {
	for len(b) > 0 && isSpace(b[0]) {
		b = b[1:]
	}
	for len(b) > 0 && isSpace(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}

// stringEnd returns the index behind the string that opens at b[i]. A string
// that is cut off ends with the input.
func stringEnd(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

// valueEnd returns the index behind the value that starts at b[i]. It counts
// brackets instead of recursing, so depth costs nothing.
func valueEnd(b []byte, i int) int {
	if i >= len(b) {
		return len(b)
	}
	switch b[i] {
	case '"':
		return stringEnd(b, i)
	case '{', '[':
		return containerEnd(b, i)
	}
	for i < len(b) && !isSpace(b[i]) {
		switch b[i] {
		case ',', ':', ']', '}', '"', '{', '[':
			return i
		}
		i++
	}
	return i
}

func containerEnd(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = stringEnd(b, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return len(b)
}

// unquote decodes a JSON string, with or without its closing quote. A lone
// surrogate, which no Go string can hold, stays as the escape it was written
// as (\ud800), so that it can be seen; broken escapes stay as they are.
func unquote(v []byte) string {
	if len(v) > 0 && v[0] == '"' {
		v = v[1:]
	}
	if n := len(v); n > 0 && v[n-1] == '"' && !endsEscaped(v[:n-1]) {
		v = v[:n-1]
	}
	out := make([]byte, 0, len(v))
	for i := 0; i < len(v); {
		if v[i] != '\\' || i+1 >= len(v) {
			out = append(out, v[i])
			i++
			continue
		}
		var used int
		out, used = appendEscape(out, v[i:])
		i += used
	}
	return string(out)
}

// endsEscaped says whether b ends in an odd number of backslashes, so that a
// quote behind it would be part of the text.
func endsEscaped(b []byte) bool {
	n := 0
	for n < len(b) && b[len(b)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

var escapes = map[byte]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// appendEscape decodes the escape at the start of b and says how long it was.
func appendEscape(out, b []byte) ([]byte, int) {
	if c, ok := escapes[b[1]]; ok {
		return append(out, c), 2
	}
	r, ok := hexRune(b)
	if !ok {
		return append(out, b[0], b[1]), 2
	}
	if !utf16.IsSurrogate(r) {
		return utf8.AppendRune(out, r), 6
	}
	if low, ok := hexRune(b[6:]); ok {
		if full := utf16.DecodeRune(r, low); full != utf8.RuneError {
			return utf8.AppendRune(out, full), 12
		}
	}
	return append(out, b[:6]...), 6
}

func hexRune(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(n), err == nil
}
