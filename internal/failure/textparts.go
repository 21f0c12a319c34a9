package failure

import "strings"

// The small readers of Redact: where quotes, words and lines end.

func isAlnum(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isQuote(c byte) bool { return c == '"' || c == '\'' || c == '`' }

func isNameChar(c byte) bool {
	return isAlnum(c) || c == '_' || c == '-' || c == '.' || c == '$' || c >= 0x80
}

// isTokenChar says whether a character may stand in a credential (RFC 6750's
// b64token).
func isTokenChar(c byte) bool {
	return isAlnum(c) || strings.IndexByte("-._~+/=", c) >= 0
}

// hasFold says whether s begins with the prefix, in any case. The prefix is in
// lower case.
func hasFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// openQuote reads an opening quote at i, with backslashes before it. body is
// where the text begins.
func openQuote(s string, i int) (q quoting, body int) {
	for i < len(s) && s[i] == '\\' {
		q.backslashes++
		i++
	}
	if i >= len(s) || !isQuote(s[i]) {
		return quoting{}, i
	}
	q.quote = s[i]
	return q, i + 1
}

// closeQuote finds the end of a quoted text: the first such quote with no more
// backslashes than the opening one. A text that is cut off ends with s.
func closeQuote(s string, i int, q quoting) int {
	backslashes := 0
	for ; i < len(s); i++ {
		switch s[i] {
		case '\\':
			backslashes++
			continue
		case q.quote:
			if backslashes <= q.backslashes {
				return i - backslashes
			}
		}
		backslashes = 0
	}
	return len(s)
}

// bracketEnd finds the end of a container inside a text. Quotes are not looked
// at: they may be escaped to any depth.
func bracketEnd(s string, i int) int {
	depth := 0
	for ; i < len(s); i++ {
		switch s[i] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth == 0 {
				return i + 1
			}
		}
	}
	return len(s)
}

// plainEnd finds the end of a value without quotes. A mask, which ends in a
// bracket, belongs to it.
func plainEnd(s string, i int) int {
	if strings.HasPrefix(s[i:], mask) {
		i += len(mask)
	}
	for i < len(s) {
		c := s[i]
		if c <= ' ' || strings.IndexByte("\"'`,;&<>()[]{}|", c) >= 0 || hasFold(s[i:], "%26") {
			break
		}
		next, ends := pastBackslashes(s, i)
		if ends {
			break
		}
		i = next
	}
	return i
}

// pastBackslashes steps over the character at i, or over the whole run of
// backslashes there. ends says that the run escapes what ends a value: \n, \".
func pastBackslashes(s string, i int) (next int, ends bool) {
	if s[i] != '\\' {
		return i + 1, false
	}
	for i < len(s) && s[i] == '\\' {
		i++
	}
	return i, i >= len(s) || strings.IndexByte("nrtu\"'`/", s[i]) >= 0
}

// lineEnd finds the end of a header's value in a text: the end of the line, or
// the quote that closes what the line stands in. A quoted attribute (a="b")
// belongs to the value.
func lineEnd(s string, i int) int {
	start := i
	for i < len(s) && s[i] != '\n' && s[i] != '\r' {
		if isQuote(s[i]) {
			length := -1
			if s[i-1] == '=' && i > start {
				length = strings.IndexAny(s[i+1:], s[i:i+1]+"\r\n")
			}
			if length < 0 || s[i+1+length] != s[i] {
				break
			}
			i += length + 2
			continue
		}
		next, ends := pastBackslashes(s, i)
		if ends {
			break
		}
		i = next
	}
	for i > start && s[i-1] == ' ' {
		i--
	}
	return i
}

// nextWordEnd finds the end of the word behind an authentication scheme.
func nextWordEnd(s string, i int) int {
	at := i
	for at < len(s) && s[at] == ' ' {
		at++
	}
	if at == i || at >= len(s) {
		return i
	}
	return max(i, plainEnd(s, at))
}

// isScheme says whether a word is an HTTP authentication scheme.
func isScheme(s string) bool {
	switch strings.ToLower(s) {
	case "bearer", "basic", "digest", "token", "apikey", "negotiate", "hmac":
		return true
	}
	return false
}

// isLiteral says whether a value is there but holds nothing.
func isLiteral(s string) bool {
	switch s {
	case "null", "true", "false", "undefined", "None", "nil":
		return true
	}
	return false
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789.-+eE") == ""
}
