package failure

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// maxDepth bounds how deep JSON is kept; databases and other readers have
	// limits of their own.
	maxDepth = 200
	// tooDeep stands for what lay deeper.
	tooDeep = `"[cut: nested too deep]"`
	// maskJSON is the mask as a JSON string.
	maskJSON = `"` + mask + `"`
)

// RedactJSON returns raw with its secrets masked. Besides what Redact finds in
// every text, the value of each member with a secret name becomes the string
// "[redacted]", containers too, and so does the value in {"name": …, "value":
// …}, which is how n8n keeps headers and parameters, in lists of headers, and
// in Node's {"type":"Buffer","data":[…]} where those bytes hold a secret. null,
// true, false and "" stay: they tell nothing, and their absence may be the
// fault. extra are further secret names.
//
// Valid JSON stays valid JSON; white space, numbers and the spelling of what is
// not masked stay as they were. Members' names are never changed. What is
// nested deeper than 200 levels is cut and marked. What is not JSON is redacted
// as text. raw itself is not changed; the time is linear.
func RedactJSON(raw []byte, extra []string) []byte {
	return redactor{newNames(extra)}.json(raw)
}

func (r redactor) json(raw []byte) []byte {
	w := walker{redactor: r, known: map[string]secrecy{}}
	if out, ok := w.walk(raw); ok && jsontext.Value(out).IsValid(lenient...) {
		return out
	}
	return []byte(r.text(string(raw)))
}

// walker copies JSON from src to out, level by level, without recursion.
type walker struct {
	redactor redactor
	known    map[string]secrecy // names judged before
	src, out []byte
	stack    []level
}

// level is an open object or array.
type level struct {
	array     bool
	inherited secrecy // of all values in it
	name      string  // the member whose value comes next
	named     bool    // a name was read, its value not yet
	secrecy   secrecy // of that value

	start int // where it opened in out
	// Of {"name": "Authorization", "value": "…"}: whether the name is secret,
	// and where the values stand in out.
	secretPair bool
	values     []place
	// Of {"type": "Buffer", "data": […]}.
	buffer bool
	data   place
	bytes  []byte // data as it was in src
}

// place is a value in out.
type place struct{ start, end int }

func (w *walker) walk(src []byte) (out []byte, ok bool) {
	w.src, w.out = src, make([]byte, 0, len(src))
	for i := 0; i < len(src); {
		switch c := src[i]; c {
		case '{', '[':
			i = w.open(i)
		case '}', ']':
			if len(w.stack) == 0 {
				return nil, false
			}
			i = w.close(i)
		case '"':
			i = w.string(i)
		default:
			if isSpace(c) || c == ',' || c == ':' {
				w.out = append(w.out, c)
				i++
				continue
			}
			i = w.literal(i)
		}
	}
	return w.out, len(w.stack) == 0
}

// top is the innermost open level, a spare one outside of all.
func (w *walker) top() *level {
	if len(w.stack) == 0 {
		return &level{array: true}
	}
	return &w.stack[len(w.stack)-1]
}

// emit writes a finished value and notes it in its level.
func (w *walker) emit(value ...byte) {
	start := len(w.out)
	w.out = append(w.out, value...)
	w.top().note(place{start, len(w.out)})
}

// note remembers the place of a value that the end of the level may change.
func (l *level) note(at place) {
	if !l.array {
		switch strings.ToLower(l.name) {
		case "value", "values":
			l.values = append(l.values, at)
		case "data":
			l.data = at
		}
		l.named = false
	}
	l.secrecy = l.inherited
}

func (w *walker) open(i int) int {
	top := w.top()
	end := 0
	switch {
	case top.secrecy == whole:
		end = containerEnd(w.src, i)
		w.emit([]byte(maskJSON)...)
	case len(w.stack) >= maxDepth:
		end = containerEnd(w.src, i)
		w.emit([]byte(tooDeep)...)
	default:
		if !top.array && top.name == "data" {
			top.bytes = w.src[i:]
		}
		inner := level{array: w.src[i] == '[', start: len(w.out)}
		if top.secrecy == texts {
			inner.inherited, inner.secrecy = texts, texts
		}
		w.stack = append(w.stack, inner)
		w.out = append(w.out, w.src[i])
		end = i + 1
	}
	return end
}

func (w *walker) close(i int) int {
	done := w.top()
	var secret []place
	if done.secretPair {
		secret = append(secret, done.values...)
	}
	if done.buffer && w.hasSecret(done.bytes) {
		secret = append(secret, done.data)
	}
	start := done.start
	w.replace(secret)
	w.out = append(w.out, w.src[i])
	w.stack = w.stack[:len(w.stack)-1]
	w.top().note(place{start, len(w.out)})
	return i + 1
}

// hasSecret says whether the bytes that a Buffer's data lists hold a secret.
func (w *walker) hasSecret(data []byte) bool {
	var text []byte
	elements(data, func(v jsontext.Value) bool {
		n, err := strconv.ParseUint(string(v), 10, 8)
		text = append(text, byte(n))
		return err == nil
	})
	return !bytes.Equal(w.redactor.json(text), text)
}

// replace masks values that are already in out.
func (w *walker) replace(places []place) {
	if len(places) == 0 {
		return
	}
	slices.SortFunc(places, func(a, b place) int { return a.start - b.start })
	offset := places[0].start
	tail := bytes.Clone(w.out[offset:])
	w.out = w.out[:offset]
	done := 0
	for _, at := range places {
		value := tail[at.start-offset : at.end-offset]
		w.out = append(w.out, tail[done:at.start-offset]...)
		if isEmptyValue(value) {
			w.out = append(w.out, value...)
		} else {
			w.out = append(w.out, maskJSON...)
		}
		done = at.end - offset
	}
	w.out = append(w.out, tail[done:]...)
}

// isEmptyValue says whether a value holds nothing that could be secret.
func isEmptyValue(v []byte) bool {
	switch string(v) {
	case "null", "true", "false", `""`:
		return true
	}
	return false
}

func (w *walker) string(i int) int {
	end := stringEnd(w.src, i)
	raw := w.src[i:end]
	top := w.top()
	if !top.array && !top.named {
		w.memberName(top, raw)
		return end
	}

	value := unquote(raw)
	redacted := w.redactor.text(value)
	switch {
	case top.secrecy != open && value != "":
		w.emit([]byte(maskJSON)...)
		return end
	case redacted == value:
		w.emit(raw...)
	default:
		quoted, _ := jsontext.AppendQuote(nil, strings.ToValidUTF8(redacted, "�"))
		w.emit(quoted...) // it fails on invalid UTF-8 alone
	}
	w.top().look(w, redacted)
	return end
}

func (w *walker) memberName(top *level, raw []byte) {
	w.out = append(w.out, raw...)
	top.name = unquote(raw)
	top.named = true
	top.secrecy = max(top.inherited, w.secrecy(top.name))
}

func (w *walker) secrecy(name string) secrecy {
	s, ok := w.known[name]
	if !ok {
		s = w.redactor.names.secrecy(name)
		if len(w.known) < 4096 {
			w.known[name] = s
		}
	}
	return s
}

// look learns from a text value what its neighbours are.
func (l *level) look(w *walker, value string) {
	if l.array {
		// ["Authorization", "Bearer …", …]: Node's raw headers.
		if headerNames[strings.Join(splitWords(head(value, maxNameBack)), "")] {
			l.secrecy = scalars
		}
		return
	}
	switch strings.ToLower(l.name) {
	case "name", "key", "header":
		if len(value) <= maxName && !strings.ContainsAny(value, " \n\t") && w.secrecy(value) != open {
			l.secretPair = true
		}
	case "type":
		l.buffer = value == "Buffer"
	}
}

func (w *walker) literal(i int) int {
	end := max(i+1, valueEnd(w.src, i))
	value := w.src[i:end]
	top := w.top()
	secret := top.secrecy == whole || top.secrecy == scalars
	if !isEmptyValue(value) && (secret || isNumberOfCard(string(value))) {
		w.emit([]byte(maskJSON)...)
		return end
	}
	w.emit(value...)
	return end
}

// isNumberOfCard says whether a JSON number is a card's.
func isNumberOfCard(s string) bool {
	return strings.Trim(s, "0123456789") == "" && isCard(s)
}
