package deadletter

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/failure"
	"holdfast/internal/identity"
)

// How much of a report is kept, in bytes.
const (
	maxMessage  = 4 << 10
	maxError    = 256 << 10
	maxURL      = 2 << 10
	maxID       = 255
	maxWorkflow = 64
	maxNote     = 200

	cutMark = " …[cut]"
)

// lenient accepts what JavaScript makes: equal names and lone surrogates.
var lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

func isNull(v jsontext.Value) bool {
	k := failure.Kind(v)
	return k == 0 || k == 'n'
}

// scalar is the text of a string, or the digits of a number; else "".
func scalar(v jsontext.Value) string {
	switch failure.Kind(v) {
	case '"':
		return failure.Unquote(v)
	case '0':
		return string(v)
	}
	return ""
}

func firstText(texts ...string) string {
	for _, s := range texts {
		if strings.TrimSpace(s) != "" {
			return s
		}
	}
	return ""
}

// clipID cuts what identifies something. It ends in a digest of the whole then, so that different ones stay different.
func clipID(s string) string {
	if len(s) <= maxID {
		return s
	}
	end := digestOf(s)
	return strings.ToValidUTF8(s[:maxID-len("~")-len(end)], "") + "~" + end
}

// cleanWorkflow makes a workflow's id one of up to 64 of A-Z a-z 0-9 . _ -, and different ids different ones.
func cleanWorkflow(id string) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, id)
	if clean == id && len(id) <= maxWorkflow {
		return id
	}
	end := digestOf(id)
	return clean[:min(len(clean), maxWorkflow-len("-")-len(end))] + "-" + end
}

func digestOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

// isName tells whether s may be a source or a destination.
func isName(s string) bool {
	for i := range len(s) {
		c := s[i]
		inner := c == '.' || c == '_' || c == '-'
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && (!inner || i == 0) {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// checkAccount holds an account to plain text that fits its column.
func checkAccount(s string) bool {
	return len(s) <= maxID && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// cut cuts text between characters and marks it.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit-len(cutMark)], "") + cutMark
}

// keep returns a JSON value as it came. What is broken, or nested deeper than others can read, becomes a JSON string
// that holds its text.
func keep(v jsontext.Value) (kept []byte, asCame bool) {
	if identity.Depth(v, identity.MaxDepth) == nil && v.IsValid(lenient...) {
		return v, true
	}
	if failure.Kind(v) == '"' {
		return quote([]byte(failure.Unquote(v))), false
	}
	return quote(v), false
}

func quote(text []byte) []byte {
	quoted, _ := jsontext.AppendQuote(nil, bytes.ToValidUTF8(text, []byte("\uFFFD"))) // it fails on invalid UTF-8 alone
	return quoted
}

// shorten cuts a valid JSON value to limit bytes. Long texts are cut first, down to where they tell little; members
// and elements go only when there are too many.
func shorten(v jsontext.Value, limit int) jsontext.Value {
	for longest := limit / 4; longest >= shortest && len(v) > limit; longest /= 8 {
		v = shortened(v, longest, len(v))
	}
	if len(v) > limit {
		v = shortened(v, shortest, limit)
	}
	return v
}

// shortest is the length to which texts may be cut.
const shortest = 128

// shortened copies v with its texts cut to longest bytes, and ends it, well formed, before limit bytes are reached.
func shortened(v jsontext.Value, longest, limit int) jsontext.Value {
	var out bytes.Buffer
	from := jsontext.NewDecoder(bytes.NewReader(v), lenient...)
	to := jsontext.NewEncoder(&out, append(lenient, jsontext.PreserveRawStrings(true))...)
	var err error
	for err == nil {
		// A name and its value, the mark, and the brackets must have room.
		if int(to.OutputOffset())+to.StackDepth()+2*longest+4*len(cutMark) > limit {
			err = closeAll(to)
			break
		}
		var token jsontext.Token
		var value jsontext.Value
		switch from.PeekKind() {
		case '{', '}', '[', ']':
			if token, err = from.ReadToken(); err == nil {
				err = to.WriteToken(token)
			}
		default:
			if value, err = from.ReadValue(); err == nil {
				err = to.WriteValue(cutScalar(value, longest))
			}
		}
		if to.StackDepth() == 0 {
			break
		}
	}
	if err != nil || out.Len() == 0 {
		return quote([]byte("[cut: the error could not be read]"))
	}
	return bytes.TrimSpace(out.Bytes())
}

// closeAll marks where the rest is missing and closes what is open.
func closeAll(to *jsontext.Encoder) error {
	mark := jsontext.String(strings.TrimSpace(cutMark))
	kind, length := to.StackIndex(to.StackDepth())
	err := to.WriteToken(mark)
	if err == nil && kind == '{' && length%2 == 0 {
		err = to.WriteToken(jsontext.True)
	}
	for err == nil && to.StackDepth() > 0 {
		end := jsontext.EndArray
		if kind, _ := to.StackIndex(to.StackDepth()); kind == '{' {
			end = jsontext.EndObject
		}
		err = to.WriteToken(end)
	}
	return err
}

// cutScalar cuts a string, without breaking an escape or a character. A number of such length is none.
func cutScalar(v jsontext.Value, longest int) jsontext.Value {
	if len(v) <= longest {
		return v
	}
	if v.Kind() != '"' {
		return jsontext.Value(`"[cut]"`)
	}
	end := longest - len(cutMark) - 2
	for i := 1; i < len(v); {
		n := 1
		switch {
		case v[i] == '\\' && i+1 < len(v) && v[i+1] == 'u':
			n = 6
		case v[i] == '\\':
			n = 2
		case v[i] >= utf8.RuneSelf:
			_, n = utf8.DecodeRune(v[i:])
		}
		if i+n > end {
			end = i
			break
		}
		i += n
	}
	return append(append(bytes.Clone(v[:end]), cutMark...), '"')
}
