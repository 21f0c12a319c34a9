package identity

import (
	"unicode/utf16"
	"unicode/utf8"
)

// plain marks the bytes that a string holds as they are: printable ASCII
// without quote and backslash, and DEL.
var plain = func() (table [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		table[c] = c != '"' && c != '\\'
	}
	return table
}()

// scanString checks the string whose opening quote is raw[start] and returns
// the index behind its closing quote.
func scanString(raw []byte, start int) (end int, escaped bool, err error) {
	for i := start + 1; i < len(raw); {
		c := raw[i]
		switch {
		case plain[c]:
			i++
		case c == '"':
			return i + 1, escaped, nil
		case c == '\\':
			n := escapeLen(raw[i:])
			if n == 0 {
				return 0, false, invalidJSON("not valid JSON: bad escape in a string at byte %d", i)
			}
			escaped = true
			i += n
		case c < ' ':
			return 0, false, invalidJSON("not valid JSON: raw control character in a string at byte %d", i)
		default:
			r, n := utf8.DecodeRune(raw[i:])
			if r == utf8.RuneError && n <= 1 {
				return 0, false, invalidJSON("not valid JSON: bytes that are not UTF-8 at byte %d", i)
			}
			i += n
		}
	}
	return 0, false, invalidJSON("not valid JSON: it ends too early, at byte %d", len(raw))
}

// escapeLen returns the length of the escape that b begins with, 0 if bad.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) < 6 {
			return 0
		}
		for _, c := range b[2:6] {
			if hexDigit(c) < 0 {
				return 0
			}
		}
		return 6
	}
	return 0
}

func hexDigit(c byte) rune {
	switch {
	case '0' <= c && c <= '9':
		return rune(c - '0')
	case 'a' <= c && c <= 'f':
		return rune(c - 'a' + 10)
	case 'A' <= c && c <= 'F':
		return rune(c - 'A' + 10)
	}
	return -1
}

func hex4(b []byte) rune {
	return hexDigit(b[0])<<12 | hexDigit(b[1])<<8 | hexDigit(b[2])<<4 | hexDigit(b[3])
}

// unescape reads the escape that b begins with, in text that scanString has
// passed, and returns its character and length. Two escapes that make a
// surrogate pair are one character; a lone surrogate is returned as it is.
func unescape(b []byte) (r rune, n int) {
	switch b[1] {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r = hex4(b[2:])
		if utf16.IsSurrogate(r) && len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
			if pair := utf16.DecodeRune(r, hex4(b[8:])); pair != utf8.RuneError {
				return pair, 12
			}
		}
		return r, 6
	}
	return rune(b[1]), 2
}

// unquote returns the text of a string token, exactly. A lone surrogate has no
// form in UTF-8: then exact is false and the text has U+FFFD in its place.
func unquote(raw []byte, tok token) (text string, exact bool) {
	inner := raw[tok.start+1 : tok.end-1]
	if !tok.escaped {
		return string(inner), true
	}
	exact = true
	out := make([]byte, 0, len(inner))
	for i := 0; i < len(inner); {
		if inner[i] != '\\' {
			out = append(out, inner[i])
			i++
			continue
		}
		r, n := unescape(inner[i:])
		exact = exact && !utf16.IsSurrogate(r)
		out = utf8.AppendRune(out, r)
		i += n
	}
	return string(out), exact
}

// appendString writes a string token as RFC 8785 does: the two-letter escapes
// where JSON has one, \u00xx for the other control characters, everything else
// as itself. Beyond the RFC, which has no place for them, lone surrogates are
// written as lower-case escapes: so \ud800 and U+FFFD stay different.
func appendString(dst, raw []byte, tok token) []byte {
	if !tok.escaped {
		return append(dst, raw[tok.start:tok.end]...)
	}
	inner := raw[tok.start+1 : tok.end-1]
	dst = append(dst, '"')
	for i := 0; i < len(inner); {
		if inner[i] != '\\' {
			dst = append(dst, inner[i])
			i++
			continue
		}
		r, n := unescape(inner[i:])
		dst = appendChar(dst, r)
		i += n
	}
	return append(dst, '"')
}

func appendChar(dst []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	if r < ' ' || utf16.IsSurrogate(r) {
		return append(dst, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
	}
	return utf8.AppendRune(dst, r)
}

// compareNames orders two names, both the inside of a string as appendString
// writes it, by the UTF-16 code units of their text, as RFC 8785 asks. That
// order differs from the order of the bytes for escapes, and for characters
// beyond U+FFFF, which sort before U+E000.
func compareNames(a, b []byte) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] && plain[a[i]] {
		i++
	}
	if i < len(a) && i < len(b) && plain[a[i]] && plain[b[i]] {
		return int(a[i]) - int(b[i])
	}
	ua, ub := units{text: a[i:]}, units{text: b[i:]}
	for {
		x, y := ua.next(), ub.next()
		if x != y || x < 0 {
			return int(x - y)
		}
	}
}

// units reads canonical text as UTF-16 code units.
type units struct {
	text []byte
	low  rune // the second half of a pair, waiting
}

// next returns the next unit, or -1 at the end.
func (u *units) next() rune {
	if u.low != 0 {
		low := u.low
		u.low = 0
		return low
	}
	if len(u.text) == 0 {
		return -1
	}
	var r rune
	var n int
	if u.text[0] == '\\' {
		r, n = unescape(u.text)
	} else {
		r, n = utf8.DecodeRune(u.text)
	}
	u.text = u.text[n:]
	if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
		u.low = low
		return high
	}
	return r
}
