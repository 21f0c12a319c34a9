package inbox

import (
	"crypto/subtle"
	"errors"
	"mime"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/identity"
)

// Request is a request as it came.
type Request struct {
	Method string
	// Target is the path and the query exactly as they stand in the request
	// line. With the source's public URL before it, it is what was called.
	Target string
	// Header returns the values of a header, whatever the case of its name, as
	// http.Header.Values does. nil: there are no headers.
	Header func(name string) []string
	// Body is the body, byte for byte, after transfer and content encodings
	// were undone.
	Body []byte
}

// Received is what an authentic request holds.
type Received struct {
	// Events are the elements of a batch, in their order, or the one event that
	// a body is. An empty batch has none.
	Events []Event
	// Handshake says that the provider only tests the address: there is nothing
	// to store.
	Handshake bool
	// Answer is what the provider wants to read once the events are stored. nil:
	// 200 and {"received":n,"duplicates":m}.
	Answer *Answer
	// Headers are those worth keeping. None of them lets anybody in anywhere.
	Headers map[string]string
}

// Answer is an HTTP answer. It is shared: nobody may change one.
type Answer struct {
	Status      int
	ContentType string // empty if there is no body
	Body        string // never HTML, and to be sent with X-Content-Type-Options: nosniff
}

// Event is one event.
type Event struct {
	// Key is empty where the delivery is authentic but has no usable key; then
	// Err says why, and it has to be kept as a dead letter.
	Key      string
	KeyBasis string // given (the source says where), profile, standard; empty without a key
	Account  string // the provider's account that the key is unique in
	Err      *identity.Error

	// Payload is the body, or the element of it, byte for byte. ContentType is
	// its type: of an element application/json, else as it came.
	Payload     []byte
	ContentType string
	// JSON is what the payload says: itself, or the object that n8n makes of a
	// form. nil: it is neither.
	JSON []byte

	// Entity and Version order what concerns one thing. Version is an integer,
	// or a time in RFC 3339; anything else that was found is left out.
	Entity, Version string
}

// incoming is a Request, read as far as all providers share it.
type incoming struct {
	*Request
	query       url.Values
	contentType string
}

// Receive checks a request and takes it apart. The error is an *Error: nobody
// vouches for the request, or it is no request that the provider makes; then
// nothing may be stored. Everything authentic is received, whatever it holds.
func (s *Source) Receive(r *Request, now time.Time) (*Received, error) {
	in := &incoming{Request: r}
	_, query, _ := strings.Cut(r.Target, "?")
	in.query, _ = url.ParseQuery(query) // what cannot be read is no parameter
	in.contentType = in.header("Content-Type")
	if original := in.header("X-Original-Content-Type"); original != "" && mediaType(in.contentType) == "application/octet-stream" {
		// n8n passes raw bytes on unchanged under this type only.
		in.contentType = original
	}
	if r.Method == "GET" && s.profile.hub {
		return s.subscribe(in)
	}
	if r.Method != "POST" {
		return nil, &Error{Code: CodeInvalidRequest, Message: "deliveries come by POST" + map[bool]string{true: ", and Meta's handshake by GET"}[s.profile.hub]}
	}
	if s.isPing(in) {
		return &Received{Handshake: true, Answer: s.profile.answer}, nil
	}
	if err := s.verify(in, now); err != nil {
		return nil, err
	}
	out := &Received{Answer: s.profile.answer}
	json, isForm, err := in.json()
	if err != nil {
		out.Events = []Event{in.unusable(err)}
	} else if answer, greets := s.greeting(json); greets {
		out.Handshake, out.Answer = true, answer
		return out, nil
	} else {
		out.Events = s.events(in, json, isForm)
	}
	out.Headers = make(map[string]string)
	for _, name := range s.keep {
		if value := in.header(name); value != "" && utf8.ValidString(value) {
			out.Headers[name] = value
		}
	}
	return out, nil
}

// header returns the value of a header, "" if it is absent, or there several
// times with different values: nobody can say which one counts.
func (in *incoming) header(name string) string {
	if in.Header == nil || name == "" {
		return ""
	}
	return only(in.Header(name))
}

func (in *incoming) parameter(name string) string { return only(in.query[name]) }

func only(values []string) string {
	for _, value := range values {
		if value != values[0] {
			return ""
		}
	}
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

func mediaType(contentType string) string {
	// The type is there also where its parameters cannot be read.
	media, _, _ := mime.ParseMediaType(contentType)
	return media
}

// isForm reports whether the request says that its body is a form.
func (in *incoming) isForm() bool {
	return mediaType(in.contentType) == "application/x-www-form-urlencoded"
}

// json returns what the body says: itself if it is JSON, or empty; of a form the
// object that n8n makes of it. An object or array is JSON whatever the content
// type is, which nobody signs.
func (in *incoming) json() (json []byte, isForm bool, err error) {
	body := trimSpace(in.Body)
	if err := identity.Depth(body, identity.MaxDepth); err != nil {
		return nil, false, err
	}
	isJSON := len(body) == 0 || jsontext.Value(body).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	switch {
	case isJSON && (!in.isForm() || len(body) > 0 && (body[0] == '{' || body[0] == '[')):
		return body, false, nil
	case !in.isForm():
		return nil, false, invalidJSON("the body is neither JSON nor a form")
	}
	f, err := parseForm(in.Body)
	if err != nil {
		return nil, true, err
	}
	return f.json(), true, nil
}

// unusable is an authentic delivery without a usable key.
func (in *incoming) unusable(err error) Event {
	return Event{Payload: in.Body, ContentType: in.contentType, Err: identityError(err)}
}

func identityError(err error) *identity.Error {
	if e, ok := errors.AsType[*identity.Error](err); ok {
		return e
	}
	return &identity.Error{Code: identity.CodeInvalidKey, Message: err.Error()}
}

// events makes the events of a body.
func (s *Source) events(in *incoming, json []byte, isForm bool) []Event {
	profile := s.profile
	if isForm {
		profile = &noneProfile // an element of what we made of a form has no bytes of its own
	}
	all, batch, err := profile.split(json)
	if err != nil {
		e := in.unusable(err)
		e.JSON = json
		return []Event{e}
	}
	events := make([]Event, len(all))
	for i := range all {
		d := &all[i]
		d.header, d.query = in.header, in.parameter
		e := Event{Payload: in.Body, ContentType: in.contentType, JSON: d.event}
		if batch {
			e.Payload, e.ContentType = d.event, "application/json"
		}
		if e.Key, e.KeyBasis, e.Account, err = s.identify(d); err != nil {
			e.Err = identityError(err)
		}
		e.Entity, e.Version = s.order(d)
		events[i] = e
	}
	return events
}

// identify returns the key of an event, how it was found, and its account. With
// an error all of them are empty.
func (s *Source) identify(d *delivery) (key, basis, account string, err error) {
	switch {
	case s.key != nil:
		basis = "given"
		if key, err = d.value(*s.key); err != nil {
			break
		}
		switch key {
		case "":
			err = missingKey("there is no key at %s: nothing is there, or null, an object, an array or an empty text", s.keyName)
		case "true", "false":
			err = invalidKey("what is at %s says yes or no: it names no event", s.keyName)
		default:
			if err = identity.CheckKey(key); err == nil {
				account, err = d.accountAt(s.profile.account)
			}
		}
	case len(s.profile.key) > 0:
		basis = "profile"
		key, account, err = s.profile.identify(d)
	default:
		basis = "standard"
		key, err = identity.StandardKey(d.event)
	}
	if err != nil {
		return "", "", "", err
	}
	return key, basis, account, nil
}

// order returns the entity of an event and its version. What cannot be used is
// left out: it is no reason to refuse an event.
func (s *Source) order(d *delivery) (entity, version string) {
	from := s.profile.entity
	if s.entity != "" {
		from = one(in(s.entity))
	}
	entity, err := d.firstKey(from, s.entity == "")
	if err != nil || entity == "" {
		return "", ""
	}
	text, err := d.first(s.version)
	if err != nil {
		return entity, ""
	}
	return entity, versionOf(text)
}

// versionOf returns text if it is a 64-bit integer or an RFC 3339 time of the
// years 1678 to 2261; a time without a zone gets that of UTC. Else "".
func versionOf(text string) string {
	if _, err := strconv.ParseInt(text, 10, 64); err == nil {
		return text
	}
	for _, zone := range []string{"", "Z"} {
		if t, err := time.Parse(time.RFC3339Nano, text+zone); err == nil && t.Year() >= 1678 && t.Year() <= 2261 {
			return text + zone
		}
	}
	return ""
}

// subscribe answers Meta's handshake.
func (s *Source) subscribe(in *incoming) (*Received, error) {
	challenge := in.parameter("hub.challenge")
	if in.parameter("hub.mode") != "subscribe" || challenge == "" {
		return nil, &Error{Code: CodeInvalidRequest, Message: "a GET must be Meta's handshake: hub.mode=subscribe, hub.verify_token and hub.challenge"}
	}
	if s.verifyToken == "" || subtle.ConstantTimeCompare([]byte(in.parameter("hub.verify_token")), []byte(s.verifyToken)) != 1 {
		return nil, &Error{Code: CodeUnauthorized, Message: "hub.verify_token is not the source's verify_token (or the source has none)"}
	}
	return &Received{Handshake: true, Answer: plain(challenge)}, nil
}

// isPing tells the unsigned test of an address, for which nothing is stored.
func (s *Source) isPing(in *incoming) bool {
	if s.profile.ping == "" || !in.isForm() || len(s.profile.signs) > 0 && in.header(s.profile.signs[0].header) != "" {
		return false
	}
	f, err := parseForm(in.Body)
	return err == nil && len(f.values[s.profile.ping]) > 0
}

// greeting tells a signed test of the address, and what to answer.
func (s *Source) greeting(json []byte) (answer *Answer, greets bool) {
	hello := s.profile.hello
	if hello.path == "" {
		return nil, false
	}
	if value, _, err := identity.Lookup(json, hello.path); err != nil || value != hello.value {
		return nil, false
	}
	if hello.echo == "" {
		return s.profile.answer, true
	}
	text, _, err := identity.Lookup(json, hello.echo)
	return plain(text), err == nil
}

// plain is an answer that is read as a text, whatever is in it.
func plain(text string) *Answer {
	return &Answer{Status: 200, ContentType: "text/plain; charset=utf-8", Body: text}
}
