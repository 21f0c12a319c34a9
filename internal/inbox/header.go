package inbox

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/identity"
)

// parseHeaders reads headers as n8n's Webhook node gives them, a JSON object,
// and returns a look-up that ignores the case of names. No bytes and null are no
// headers. A value is a string, a number, or an array of these.
//
// A header with several different values has none: nobody can say which one
// identifies the delivery. An empty value is none either.
func parseHeaders(raw []byte) (func(name string) string, error) {
	raw = trimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return noText, nil
	}
	if raw[0] != '{' {
		return nil, invalidJSON("headers must be a JSON object of names and values, as n8n's Webhook node gives them")
	}
	if err := identity.Depth(raw, identity.MaxDepth); err != nil {
		return nil, err
	}
	headers := make(map[string][]string)
	add := func(name string, value []byte) {
		name = strings.ToLower(name)
		if text := headerText(value); text != "" {
			headers[name] = append(headers[name], text)
		}
	}
	err := eachMember(raw, func(name string, value []byte) error {
		if value[0] != '[' {
			add(name, value)
			return nil
		}
		return eachElement(value, func(element []byte) error {
			add(name, element)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return func(name string) string {
		values := headers[strings.ToLower(name)]
		if len(values) == 0 {
			return ""
		}
		for _, value := range values {
			if value != values[0] {
				return ""
			}
		}
		return values[0]
	}, nil
}

func noText(string) string { return "" }

// headerText returns the text of a string or number, "" for anything else, and
// for a string that UTF-8 cannot hold.
func headerText(value []byte) string {
	switch jsontext.Value(value).Kind() {
	case '"':
		text, err := jsontext.AppendUnquote(nil, value)
		if err != nil {
			return ""
		}
		return string(text)
	case '0':
		return string(value)
	}
	return ""
}
