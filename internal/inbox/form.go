package inbox

import (
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// form is a decoded form: the names in the order in which they came, and the
// values of each.
type form struct {
	names  []string
	values map[string][]string
}

// parseForm reads a body of type application/x-www-form-urlencoded. Bad escapes,
// and text that is not UTF-8, are invalid_json: nobody can say what they mean.
func parseForm(body []byte) (form, error) {
	f := form{values: make(map[string][]string)}
	for pair := range strings.SplitSeq(string(body), "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		name, nameErr := url.QueryUnescape(name)
		value, valueErr := url.QueryUnescape(value)
		if nameErr != nil || valueErr != nil || !utf8.ValidString(name) || !utf8.ValidString(value) {
			return form{}, invalidJSON("the body is no form: it has a bad %%-escape, or is not UTF-8")
		}
		if _, known := f.values[name]; !known {
			f.names = append(f.names, name)
		}
		f.values[name] = append(f.values[name], value)
	}
	return f, nil
}

// json returns the object that n8n makes of a form: all values are texts, and a
// name that is there several times has an array of them.
func (f form) json() []byte {
	quote := func(to []byte, text string) []byte {
		to, _ = jsontext.AppendQuote(to, text) // fails for bad UTF-8 only
		return to
	}
	out := []byte{'{'}
	for i, name := range f.names {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(quote(out, name), ':')
		values := f.values[name]
		if len(values) == 1 {
			out = quote(out, values[0])
			continue
		}
		for j, value := range values {
			out = quote(append(out, "[,"[min(j, 1)]), value)
		}
		out = append(out, ']')
	}
	return append(out, '}')
}

// sorted returns the fields as Twilio signs them: in the order of their names,
// name and value without anything between, equal values of a name once.
func (f form) sorted() string {
	var out strings.Builder
	for _, name := range slices.Sorted(slices.Values(f.names)) {
		values := slices.Sorted(slices.Values(f.values[name]))
		for _, value := range slices.Compact(values) {
			out.WriteString(name)
			out.WriteString(value)
		}
	}
	return out.String()
}
