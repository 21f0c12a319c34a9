package api

import (
	"bytes"
	"errors"
	"mime"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"holdfast/internal/identity"
)

// body reads a request's JSON: limited in size, plain UTF-8, and not nested beyond reason, all before anything
// is decoded.
func (s *server) body(c echo.Context) ([]byte, error) {
	body, err := s.anyBody(c)
	switch {
	case err != nil:
		return nil, err
	case !utf8.Valid(body):
		return nil, newProblem("invalid_json", "the body is not UTF-8")
	case identity.Depth(body, identity.MaxDepth+1) != nil:
		return nil, newProblem("invalid_json", "the body is nested deeper than "+strconv.Itoa(identity.MaxDepth)+" levels")
	}
	return body, nil
}

// anyBody reads a request's bytes, whatever they are, up to the limit.
func (s *server) anyBody(c echo.Context) ([]byte, error) { return s.bytes(c, s.MaxBody) }

func (s *server) bytes(c echo.Context, limit int64) ([]byte, error) {
	r := c.Request()
	if err := jsonOnly(r); err != nil {
		return nil, err
	}
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	var buf bytes.Buffer
	if r.ContentLength > 0 {
		buf.Grow(int(min(r.ContentLength, maxPromised)) + bytes.MinRead)
	}
	if _, err := buf.ReadFrom(http.MaxBytesReader(c.Response(), r.Body, limit)); err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return nil, tooLarge(limit)
		}
		return nil, newProblem("invalid_json", "the body broke off before its end")
	}
	return buf.Bytes(), nil
}

// maxPromised is how much room a request gets on its word alone, before its bytes arrive.
const maxPromised = 64 << 10

func tooLarge(limit int64) error {
	return newProblem("too_large", "the body is larger than "+strconv.FormatInt(limit, 10)+" bytes (HOLDFAST_MAX_BODY)")
}

func jsonOnly(r *http.Request) error {
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return newProblem("unsupported_media_type", "send the body without Content-Encoding")
	}
	header := r.Header.Get("Content-Type")
	if header == "" {
		return nil
	}
	kind, _, err := mime.ParseMediaType(header)
	if err != nil || kind != "application/json" && !strings.HasSuffix(kind, "+json") {
		return newProblem("unsupported_media_type", "send JSON with Content-Type: application/json")
	}
	return nil
}

// strict refuses unknown, duplicate and wrongly cased members: a misspelt lease_token must not pass. Text may
// hold lone surrogates, as JavaScript's can; where that matters the raw text is looked at.
var strict = json.JoinOptions(json.RejectUnknownMembers(true), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(false))

func decodeStrict(body []byte, to any) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return newProblem("invalid_json", "the body is empty: send a JSON object")
	}
	err := json.Unmarshal(body, to, strict)
	if err == nil {
		if bytes.TrimSpace(body)[0] == 'n' { // null leaves everything as it is
			return newProblem("invalid_request", "the body must be one JSON object")
		}
		return nil
	}
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) {
		at := pointerName(syntax.JSONPointer)
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return newProblem("invalid_json", "the member "+at+" stands twice", fieldError{at, "stands twice"})
		}
		return newProblem("invalid_json", "the body is not valid JSON, at byte "+strconv.FormatInt(syntax.ByteOffset, 10))
	}
	var semantic *json.SemanticError
	if !errors.As(err, &semantic) {
		return newProblem("invalid_json", "the body is not valid JSON")
	}
	at := pointerName(semantic.JSONPointer)
	switch {
	case errors.Is(err, json.ErrUnknownName):
		return badField(at, unknownMember(at, reflect.TypeOf(to).Elem()))
	case at == "":
		return newProblem("invalid_request", "the body must be one JSON object")
	}
	return badField(at, "must be "+wanted(semantic.GoType))
}

// pointerName writes a JSON pointer as people write a path, and no longer than fits a message.
func pointerName(p jsontext.Pointer) string {
	var parts []string
	for token := range p.Tokens() {
		parts = append(parts, token)
	}
	name := strings.ToValidUTF8(strings.Join(parts, "."), "\uFFFD")
	if len(name) > 80 {
		name = strings.ToValidUTF8(name[:80], "") + "…"
	}
	return name
}

func unknownMember(name string, t reflect.Type) string {
	for i := range t.NumField() {
		known, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if outer, inner, nested := strings.Cut(name, "."); nested && known == outer && t.Field(i).Type.Kind() == reflect.Struct {
			return unknownMember(inner, t.Field(i).Type)
		}
		if known != name && strings.EqualFold(strings.ReplaceAll(known, "_", ""), strings.ReplaceAll(name, "_", "")) {
			return "is not a member here: write " + known
		}
	}
	return "is not a member here"
}

func wanted(t reflect.Type) string {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == nil:
		return "of another type"
	case t.Kind() == reflect.Int64 || t.Kind() == reflect.Int:
		return "a whole number"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.String:
		return "text"
	case t.Kind() == reflect.Struct:
		return "an object"
	case t.Kind() == reflect.Slice:
		return "an array"
	}
	return "of another type"
}

// text is a string member that n8n may as well send as a number: the number's digits are the text.
type text string

// UnmarshalJSONFrom reads text, a number or null.
func (t *text) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	v, err := d.ReadValue()
	if err != nil {
		return err
	}
	switch v.Kind() {
	case 'n':
		*t = ""
	case '0':
		*t = text(v)
	case '"':
		s, err := jsontext.AppendUnquote(nil, v)
		if err != nil && len(s) == 0 {
			return err
		}
		*t = text(s)
	default:
		return badField(pointerName(d.StackPointer()), "must be text")
	}
	return nil
}

// number is a whole number that n8n may as well send as text ("422").
type number struct {
	value int64
	given bool
}

// UnmarshalJSONFrom reads a whole number, its digits as text, empty text or null.
func (n *number) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	v, err := d.ReadValue()
	if err != nil {
		return err
	}
	digits := strings.Trim(string(v), `"`)
	if digits == "null" || digits == "" {
		return nil
	}
	value, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return badField(pointerName(d.StackPointer()), "must be a whole number")
	}
	*n = number{value, true}
	return nil
}

// within refuses a number outside of a range.
func (n number) within(field string, low, high int64) error {
	if n.given && (n.value < low || n.value > high) {
		return badField(field, "must be between "+strconv.FormatInt(low, 10)+" and "+strconv.FormatInt(high, 10))
	}
	return nil
}

// writing keeps stored JSON as it came: raw text may hold lone surrogates.
var writing = json.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true), jsontext.PreserveRawStrings(true),
	json.FormatNilSliceAsNull(false))

func answer(c echo.Context, status int, body any) error {
	out, err := json.Marshal(body, writing)
	if err != nil {
		return err
	}
	return c.Blob(status, echo.MIMEApplicationJSON, out)
}

// orNull is an optional text: null when empty.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// jsonOrNull is stored JSON; null when there is none.
func jsonOrNull(raw []byte) jsontext.Value {
	if len(raw) == 0 {
		return jsontext.Value("null")
	}
	return raw
}
