package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"holdfast/internal/ledger"
)

// request puts the claim's values into the question. why says what keeps it from being asked, without any value.
func (p *Probe) request(ctx context.Context, c *ledger.Claim) (req *http.Request, why string) {
	address, why := fill(p.URL, c)
	if why != "" {
		return nil, why
	}
	path, _, _ := strings.Cut(address, "?")
	for segment := range strings.SplitSeq(path, "/") {
		if leaves(segment) {
			return nil, "a value would change the path of its address"
		}
	}
	body, why := fill(p.Body, c)
	if why != "" {
		return nil, why
	}
	method := p.Method
	if method == "" {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return nil, "its address cannot be made"
	}
	req.Header.Set("Accept", "application/json")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range p.Headers {
		req.Header.Set(name, value)
	}
	return req, ""
}

// fill writes a template with the claim's values, each encoded for where it stands.
func fill(parts []Part, c *ledger.Claim) (text, why string) {
	var out strings.Builder
	for _, part := range parts {
		value := part.Text
		if part.Name != "" {
			value = valueOf(c, part.Name)
		}
		switch {
		case part.Name == "":
		case value == "" || strings.ContainsRune(value, '\uFFFD'):
			return "", "the claim has no value for {" + part.Name + "}"
		case part.Without != "" && (strings.ContainsAny(value, part.Without) || strings.ContainsFunc(value, unicode.IsSpace)):
			return "", "the value for {" + part.Name + "} holds white space or a sign that would make it ask for something else"
		case part.In == "path":
			value = url.PathEscape(value)
		case part.In == "query":
			value = url.QueryEscape(value)
		default:
			quoted, _ := json.Marshal(value) // text can always be
			value = string(quoted[1 : len(quoted)-1])
		}
		out.WriteString(value)
	}
	return out.String(), ""
}

// leaves tells whether a segment of a path leads elsewhere, also for servers that decode it first.
func leaves(segment string) bool {
	plain, err := url.PathUnescape(segment)
	return err != nil || slices.ContainsFunc(strings.FieldsFunc(plain, func(r rune) bool { return r == '/' || r == '\\' }), func(s string) bool { return s == "." || s == ".." })
}

// valueOf is what a placeholder stands for; empty for nothing.
func valueOf(c *ledger.Claim, name string) string {
	switch name {
	case "provider_key":
		return c.ProviderKey
	case "idempotency_key":
		return c.Key.IdempotencyKey
	case "reference":
		return c.Reference
	case "account":
		return c.Key.Account
	case "source":
		return c.Key.Source
	case "step":
		return c.Key.Step
	case "claim_id":
		return c.ID
	case "destination":
		return c.Destination
	case "entity":
		return c.Entity
	}
	path, _ := strings.CutPrefix(name, "payload.")
	value, _ := at(c.Payload, path)
	text, _ := scalarOf(value)
	return text
}

// read makes of an answer what it says of the claim: found, not found, or that it was no answer to the question.
func (p *Probe) read(status int, body []byte) *ledger.Ending {
	unanswered := func(why string) *ledger.Ending { return &ledger.Ending{Verb: ledger.MarkUnknown, Message: why} }
	notFound := &ledger.Ending{Verb: ledger.MarkFailed, NotExecuted: true, Message: "not found"}
	switch {
	case slices.Contains(p.NotFound, status):
		return notFound
	case status < 200 || status > 299, status == http.StatusAccepted, status == http.StatusPartialContent:
		return unanswered("it answers " + strconv.Itoa(status))
	case !json.Valid(body):
		return unanswered("its answer is not JSON")
	case holds(body, isError):
		return unanswered("its answer holds an error")
	}
	value, ok := at(body, p.Found)
	switch {
	case !ok:
		return unanswered("its answer has another shape than the path of found")
	case len(value) > 0 && string(value) != "null" && string(value) != `""`:
	case string(bytes.TrimSpace(body)) == "null", holds(body, isDenied):
		return unanswered("its answer says that it did not look, or not everywhere")
	default:
		return notFound
	}
	id, ok := scalarOf(value)
	if !ok || strings.ContainsRune("tf-", rune(value[0])) || blank(id) || len(id) > maxFound || strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return unanswered("what stands at the path of found is no id")
	}
	return &ledger.Ending{Verb: ledger.Complete, ResultID: id, Message: "found"}
}

// maxFound is the longest id, in bytes.
const maxFound = 1024

// holds tells whether a member at the top of an answer, or of an element of one that is an array, is such a one. Names are
// given without capitals, - and _.
func holds(body []byte, such func(name string, value any) bool) bool {
	var answer any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()         // no number is too large
	_ = d.Decode(&answer) // the whole is valid
	list, ok := answer.([]any)
	if !ok {
		list = []any{answer}
	}
	return slices.ContainsFunc(list, func(one any) bool {
		object, _ := one.(map[string]any)
		for name, value := range object {
			if such(plainName.Replace(strings.ToLower(name)), value) {
				return true
			}
		}
		return false
	})
}

var plainName = strings.NewReplacer("-", "", "_", "")

func isError(name string, value any) bool {
	return slices.Contains([]string{"error", "errors", "errorcode", "errormessage"}, name) && !empty(value)
}

// isDenied tells whether a member says that the question was not answered, or that there is more to look through.
func isDenied(name string, value any) bool {
	switch name {
	case "status", "success", "ok":
		object, _ := value.(map[string]any)
		for name, inner := range object {
			if isDenied(strings.ToLower(name), inner) {
				return true
			}
		}
		text, _ := value.(string)
		return value == false || strings.EqualFold(text, "false") || strings.EqualFold(text, "error")
	case "hasmore", "nextpage", "nextcursor", "nextpagetoken":
		return !empty(value)
	}
	return false
}

func empty(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	case string:
		return blank(v)
	case json.Number:
		return blank(v.String())
	}
	return value != true
}

// blank tells whether a text or number stands for nothing, as many write it.
func blank(text string) bool {
	text = strings.ToLower(strings.TrimSpace(text))
	number, err := strconv.ParseFloat(text, 64)
	return strings.Trim(text, "0-") == "" || err == nil && number == 0 || slices.Contains([]string{"null", "nil", "none", "nan", "n/a", "undefined", "false"}, text)
}

// at is the value at a dotted path of JSON; empty where there is none. ok is false where the path meets a value of
// another kind than it asks for: then its absence says nothing.
func at(raw []byte, path string) (value json.RawMessage, ok bool) {
	value = bytes.TrimSpace(raw)
	for part := range strings.SplitSeq(path, ".") {
		index, notIndex := strconv.Atoi(part)
		switch {
		case len(value) == 0 || string(value) == "null":
			return nil, true
		case value[0] == '{':
			var object map[string]json.RawMessage
			_ = json.Unmarshal(value, &object) // the whole is valid
			member, there := object[part]
			if !there && notIndex == nil {
				return nil, false
			}
			value = member
		case value[0] == '[' && notIndex == nil && index >= 0:
			var array []json.RawMessage
			_ = json.Unmarshal(value, &array)
			if index >= len(array) {
				return nil, true
			}
			value = array[index]
		default:
			return nil, false
		}
	}
	return value, true
}

// scalarOf is the text of a string, the digits of a number, true or false.
func scalarOf(raw json.RawMessage) (text string, ok bool) {
	switch {
	case len(raw) == 0 || raw[0] == '{' || raw[0] == '[' || raw[0] == 'n':
		return "", false
	case raw[0] != '"':
		return string(raw), true
	}
	return text, json.Unmarshal(raw, &text) == nil
}
