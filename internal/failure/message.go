package failure

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// summaryLength is the most that Summary returns, in characters.
	summaryLength = 200
	// cutMark ends a text that was longer.
	cutMark = " …[cut]"
)

// Summary says in one line what failed, where, and why, for a person: at most
// 200 characters without control characters, redacted; "422 at Call:
// destination says 422". It begins with the status, else the network code, else
// the class, and names the node where it is known. Verdict.Summary is the same.
func Summary(in Input) string {
	r := readReport(in.Error)
	status := in.status(r)
	return in.summary(r, status, r.judge(in.givenStatus(), status).class)
}

func (in Input) summary(r *report, status int, class Class) string {
	label := string(class)
	if len(r.faults) > 0 {
		label = r.faults[0].code
	}
	if status != 0 {
		label = strconv.Itoa(status)
	}
	if node := firstFilled(in.Node, r.node); node != "" {
		label += " at " + node
	}
	message := r.message()
	if message == "" {
		message = reason(status)
	}
	if message == "" && status == 0 && len(r.layers) == 0 {
		message = "neither an error nor a status was given"
	}
	if status != 0 { // "502: 502 Bad Gateway"
		message = strings.TrimSpace(strings.TrimPrefix(message, strconv.Itoa(status)+" "))
	}
	if message != "" {
		label += ": " + message
	}
	return oneLine(Redact(label, in.Redact), summaryLength)
}

// firstFilled returns the first text that is not blank.
func firstFilled(a, b string) string {
	if a = strings.TrimSpace(a); a != "" {
		return a
	}
	return strings.TrimSpace(b)
}

// Text returns the best message for a person in any of the shapes that Classify
// knows, made safe for a database's text column: redacted, valid UTF-8, NUL and
// other control characters (all but newline and tab) and bidirectional controls
// as visible escapes (\u0000), lone surrogates as the escape they were (\ud800),
// invalid bytes as \xff, and at most limit bytes, cut between characters and
// marked. An error without a message is its own JSON. It is "" where there is
// no error. extra are further names whose values are secret.
func Text(raw jsontext.Value, limit int, extra ...string) string {
	message := readReport(raw).message()
	if message != "" {
		return clip(visible(Redact(message, extra)), limit)
	}
	if k := kindOf(raw); k == 0 || k == 'n' || len(readObject(raw)) == 0 && k == '{' {
		return ""
	}
	return clip(visible(string(trim(RedactJSON(raw, extra)))), limit)
}

// message picks what tells a person most: what the destination said, before the
// raw text of the client, before n8n's own words.
func (r *report) message() string {
	dull := ""
	for _, l := range r.layers {
		best, telling := l.best()
		if telling {
			return best
		}
		dull = firstFilled(dull, best)
	}
	return dull
}

// best returns the layer's message and whether it tells anything: "fetch
// failed" does not, and a cause may.
func (l layer) best() (message string, telling bool) {
	if s := answerMessage(l.body, 0); s != "" {
		return s, true
	}
	description := cleanMessage(l.description)
	if isClassName(description) {
		description = ""
	}
	if l.replaced {
		if description != "" {
			return description, true
		}
		for _, raw := range l.messages {
			if s := cleanMessage(raw); !isDull(s) {
				return s, true
			}
		}
		return l.message, false
	}
	message = cleanMessage(l.message)
	if isDull(message) {
		return firstFilled(description, message), description != ""
	}
	if description != "" && description != message {
		return message + ": " + description, true
	}
	return message, true
}

// isClassName says whether a description is only the class of what was thrown,
// which is what n8n puts there for a Code node.
func isClassName(s string) bool {
	return strings.HasSuffix(s, "Error") && !strings.ContainsAny(s, " \n\t")
}

func isDull(s string) bool {
	low := strings.ToLower(s)
	return s == "" || low == "fetch failed" || low == "request was cancelled." || strings.HasPrefix(low, batchingHint) ||
		strings.HasPrefix(low, "request failed with status code")
}

// cleanMessage takes n8n's wrapping off a raw text: `422 - "{\"error\":…}"` is
// the message inside that body, `503 - ""` is nothing, a page is its text.
func cleanMessage(s string) string {
	status, rest := leadingStatus(s)
	if status == 0 {
		return plainText(s)
	}
	if kindOf(jsontext.Value(rest)) == '"' && jsontext.Value(rest).IsValid(lenient...) {
		rest = unquote([]byte(rest))
	}
	if inside := answerMessage(jsontext.Value(rest), 0); inside != "" {
		return inside
	}
	return plainText(rest)
}

// answerMembers are where APIs say what is wrong, the plainest first.
var answerMembers = []string{
	"message", "error_description", "detail", "description", "error_message", "errorMessage", "Message", "msg",
	"fault_string", "ResponseDescription", "ResultDesc", "title", "reason", "error", "errors", "fault", "details",
}

// answerMessage finds the message in a destination's answer, which may also be
// JSON inside a string, or a page.
func answerMessage(v jsontext.Value, depth int) string {
	if depth > 5 {
		return ""
	}
	switch kindOf(v) {
	case '{':
		o := readObject(v)
		for _, name := range answerMembers {
			if s := answerMessage(o[name], depth+1); s != "" {
				return s
			}
		}
	case '[':
		found := ""
		elements(v, func(each jsontext.Value) bool {
			found = answerMessage(each, depth+1)
			return false
		})
		return found
	case '"':
		s := strings.TrimSpace(unquote(trim(v)))
		if k := kindOf(jsontext.Value(s)); k == '{' || k == '[' {
			return firstFilled(answerMessage(jsontext.Value(s), depth+1), s)
		}
		return plainText(s)
	}
	return ""
}

// plainText takes the tags off a text that is a page.
func plainText(s string) string {
	s = strings.TrimSpace(s)
	if !strings.HasPrefix(s, "<") {
		return s
	}
	var b strings.Builder
	for s != "" {
		tag := strings.IndexByte(s, '<')
		if tag < 0 {
			b.WriteString(s)
			break
		}
		b.WriteString(s[:tag])
		b.WriteByte(' ')
		end := strings.IndexByte(s[tag:], '>')
		if end < 0 {
			break
		}
		s = s[tag+end+1:]
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// visible writes what a text column or a terminal must not get as escapes that
// a person can see. An honest text that looks like an escape stays as it is.
func visible(s string) string {
	var b strings.Builder
	last := 0
	for i, r := range s {
		escape := ""
		if r == utf8.RuneError && invalidAt(s, i) {
			escape = fmt.Sprintf(`\x%02x`, s[i])
		} else if unseen(r) && r != '\n' && r != '\t' {
			escape = fmt.Sprintf(`\u%04x`, r)
		}
		if escape == "" {
			continue
		}
		b.WriteString(s[last:i])
		b.WriteString(escape)
		last = i + width(r, s, i)
	}
	if last == 0 {
		return s
	}
	b.WriteString(s[last:])
	return b.String()
}

// invalidAt tells a broken byte from an honest U+FFFD.
func invalidAt(s string, i int) bool {
	_, n := utf8.DecodeRuneInString(s[i:])
	return n == 1
}

func width(r rune, s string, i int) int {
	if r == utf8.RuneError && invalidAt(s, i) {
		return 1
	}
	return utf8.RuneLen(r)
}

// unseen says whether a character is a control, or one that turns the order in
// which a line is shown.
func unseen(r rune) bool {
	return unicode.IsControl(r) || r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069
}

// oneLine puts a text into one line of at most limit characters: white space of
// any kind becomes one space, other controls vanish.
func oneLine(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unseen(r) || r == 0xFEFF:
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "�"))
	s = strings.Join(strings.Fields(s), " ")
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	runes := []rune(s)
	return strings.TrimRight(string(runes[:limit-1]), " ") + "…"
}

// clip cuts a text to at most limit bytes between characters, with a mark where
// the mark has room.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	mark := cutMark
	if limit < 4*len(cutMark) {
		mark = ""
	}
	n := max(0, limit-len(mark))
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + mark
}
