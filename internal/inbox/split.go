package inbox

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/identity"
)

// split returns the events of payload. batch says that the provider's arrays of
// events are there, be they empty. Without them the payload is the one event: it
// was split before, or is of another kind. An element on the way to the arrays
// that holds none of them is an event as well, a stray one without a key, so that
// nothing is lost.
//
// The error is invalid_json: too deep, or no JSON where the arrays are.
func (p *Profile) split(payload []byte) (all []delivery, batch bool, err error) {
	if err := identity.Depth(payload, identity.MaxDepth); err != nil {
		return nil, false, err
	}
	payload = trimSpace(payload)
	if string(payload) == "null" {
		payload = nil
	}
	if p.each != "" {
		batch, err = walk(payload, strings.Split(p.each, "."), func(event, parent []byte, stray bool) {
			all = append(all, delivery{body: payload, event: event, parent: parent, stray: stray, header: noText, query: noText})
		})
	}
	if err != nil || batch {
		return all, batch, err
	}
	return []delivery{{body: payload, event: payload, header: noText, query: noText}}, false, nil
}

// single returns the one event of payload; several or none are missing_key.
func (p *Profile) single(payload []byte) (delivery, error) {
	all, _, err := p.split(payload)
	switch {
	case err != nil:
		return delivery{}, err
	case len(all) == 0:
		return delivery{}, missingKey("no %s key: the payload holds no event (%s is empty)", p.Name, p.each)
	case len(all) > 1:
		return delivery{}, missingKey("the payload holds %d %s events: split it and make one claim for each element of %s (n8n: Split Out node)",
			len(all), p.Name, p.each)
	}
	return all[0], nil
}

// walk calls visit for each element that the steps lead to from value, with the
// object that holds the element's array (nil for an array that is the whole
// value), and for each stray element on the way, in which the steps lead nowhere.
// A step is "name", "name[]", "name|other[]" or "[]"; the last one is an array.
// found says that such an array is there, be it empty.
func walk(value []byte, steps []string, visit func(event, parent []byte, stray bool)) (found bool, err error) {
	names, list := strings.CutSuffix(steps[0], "[]")
	last := len(steps) == 1
	for name := range strings.SplitSeq(names, "|") {
		inner, parent := value, []byte(nil)
		if name != "" {
			parent = value
			if inner, err = member(value, name); err != nil {
				return found, err
			}
		}
		if !list {
			deeper, err := walk(inner, steps[1:], visit)
			return deeper, err
		}
		if len(inner) == 0 || inner[0] != '[' {
			continue
		}
		found = found || last
		err = eachElement(inner, func(element []byte) error {
			if last {
				visit(element, parent, false)
				return nil
			}
			deeper, err := walk(element, steps[1:], visit)
			if !deeper && err == nil {
				visit(element, nil, true)
			}
			found = found || deeper
			return err
		})
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

// member returns the value of a member of an object, nil if value is no object
// or has no such member. A member that is there twice is invalid_json: other
// readers may see the other one.
func member(value []byte, name string) (result []byte, err error) {
	if len(value) == 0 || value[0] != '{' {
		return nil, nil
	}
	err = eachMember(value, func(found string, inner []byte) error {
		if found != name {
			return nil
		}
		if result != nil {
			return invalidJSON("the member %q stands twice in one object", name)
		}
		result = inner
		return nil
	})
	return result, err
}

// trimSpace drops JSON's white space, and only that, from both ends.
func trimSpace(raw []byte) []byte { return bytes.Trim(raw, " \t\r\n") }

// newDecoder returns a decoder that lets through what does not concern the walk:
// a repeated member or half a surrogate pair in some other part of a body.
// identity checks, exactly, what is read in the end.
func newDecoder(value []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewBuffer(value), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// eachElement calls visit for each element of an array.
func eachElement(array []byte, visit func(element []byte) error) error {
	return each(array, func(decoder *jsontext.Decoder) error {
		element, err := readValue(decoder, array)
		if err != nil {
			return err
		}
		return visit(element)
	})
}

// eachMember calls visit for each member of an object.
func eachMember(object []byte, visit func(name string, value []byte) error) error {
	return each(object, func(decoder *jsontext.Decoder) error {
		name, err := decoder.ReadToken()
		if err != nil {
			return notJSON(decoder)
		}
		text := name.String() // before the token is overwritten
		value, err := readValue(decoder, object)
		if err != nil {
			return err
		}
		return visit(text, value)
	})
}

// each calls read at the start of each entry of an object or array.
func each(container []byte, read func(*jsontext.Decoder) error) error {
	decoder := newDecoder(container)
	if _, err := decoder.ReadToken(); err != nil {
		return notJSON(decoder)
	}
	for {
		switch decoder.PeekKind() {
		case '}', ']':
			// Reads what is left, so that a text with a tail is not taken for
			// a value.
			if _, err := decoder.ReadToken(); err != nil || len(trimSpace(container[decoder.InputOffset():])) > 0 {
				return notJSON(decoder)
			}
			return nil
		}
		if err := read(decoder); err != nil {
			return err
		}
	}
}

// readValue returns the next value as a part of text, which the decoder reads.
// The decoder's own slice is good only until its next call.
func readValue(decoder *jsontext.Decoder, text []byte) ([]byte, error) {
	value, err := decoder.ReadValue()
	if err != nil {
		return nil, notJSON(decoder)
	}
	end := decoder.InputOffset()
	return text[end-int64(len(value)) : end : end], nil
}

func notJSON(decoder *jsontext.Decoder) error {
	return invalidJSON("not valid JSON near byte %d", decoder.InputOffset())
}
