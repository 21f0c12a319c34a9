package inbox

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"holdfast/internal/identity"
)

// Profile is what is known of one provider: one row of the table.
type Profile struct {
	// Name is the provider's name in the configuration, and the name of a
	// source that uses this profile without one.
	Name string

	// Retries is how long after an event the provider still sends it again. 0:
	// it never does, or does not say.
	Retries time.Duration

	// each says where a body holds its events: "events[]" is every element of
	// the array events, "[]" of the body itself, "a|b[]" of a and of b. Empty: a
	// body is one event.
	each string

	// key holds the recipes for the delivery key, best first. The first that
	// finds all it needs makes the key; they are tried in order because some
	// providers send different things in different shapes.
	key []recipe

	// account names the provider account that the event belongs to; the first
	// that is there counts. None: the provider names none, or its ids are
	// unique without.
	account []ref

	// signs holds the ways in which the provider signs; the first whose header
	// is there counts. None: it signs nothing, so a token guards the address.
	signs []scheme

	// version is where an event says how new it is: an integer, or an RFC 3339
	// time (one without a zone is taken as UTC). entity makes the name of the
	// thing that it is the version of. Since an event older than one that was
	// worked on is never worked on itself, entity is given only where a later
	// event holds all that an earlier one does; elsewhere the source names it.
	version []ref
	entity  []recipe

	// keep are the headers that a workflow may need, besides those that key and
	// account are made of.
	keep []string

	// answer is what the provider wants to read after a delivery, refusal after
	// a bad signature. nil: any 2xx, any other status.
	answer, refusal *Answer

	hello hello
	ping  string // the field by which an unsigned form is known for a mere test of the address
	hub   bool   // Meta's: a GET that asks for hub.challenge by the verify token
}

// hello is a signed delivery that only asks whether anybody listens. It is
// answered, and is no event.
type hello struct {
	path, value string // what tells it from an event
	echo        string // the path of the text that is the answer; empty: the usual answer
}

// recipe makes a key of parts of a delivery.
type recipe struct {
	// needs is a path that must be there for this recipe to be the right
	// reading of the event, although it is not part of the key.
	needs string
	parts []part
}

// part is one part of a key: the first of its places that has a value.
type part struct {
	from     []ref
	optional bool // an absent part stays empty instead of failing the recipe
}

// ref points at a value in a delivery.
type ref struct {
	in   place
	name string // a dotted path, or the name of a header
}

type place byte

const (
	inEvent    place = iota // in the event: the body, or the one element of it
	inParent                // in the object that holds the array of events
	inHeader                // a header of the request
	inQuery                 // a parameter of the request's address
	inBodyHash              // the payload hash of the whole body
)

// Find returns the profile of a provider. ok is false for a name that is none;
// hmac and none are such: they say how a request is authenticated, not what is
// in it, so their keys come from the configuration or the standard paths.
func Find(name string) (p *Profile, ok bool) {
	p, ok = byName[name]
	return p, ok
}

var byName = func() map[string]*Profile {
	index := make(map[string]*Profile, len(profiles))
	for i := range profiles {
		index[profiles[i].Name] = &profiles[i]
	}
	return index
}()

// Identify returns the key of a delivery, and the provider account it names
// ("" if none; the caller's own account, if given, wins over it).
//
// payload is the body as JSON (of a form: the object that n8n makes of it), or
// a single element of a provider that sends several events in one body: both
// have the same key. headers is a JSON object as n8n's Webhook node gives it, or
// nothing; names are matched without regard to case, a value is a string or an
// array with one.
//
// A key of one part is that part, byte for byte. One of several parts is joined
// by ":", with ":" and "%" inside a part written as %3A and %25 and empty parts
// at the end left out, so that no two deliveries share a key by accident of
// spelling; if that is longer than 255 bytes, its end is replaced by the SHA-256
// of the whole. A key never changes with attempt counters, delivery times or
// any other part that differs between deliveries of the same event.
//
// Errors are *identity.Error. missing_key: what identifies the delivery is not
// there (the message names it), or the payload holds several events or none,
// and has to be split first. There is no fallback to the standard paths: they
// find the wrong thing in the bodies of several providers. invalid_key: the key
// or the account is too long or has control characters. invalid_json: payload or
// headers are no JSON.
func (p *Profile) Identify(payload, headers []byte) (key, account string, err error) {
	get, err := parseHeaders(headers)
	if err != nil {
		return "", "", err
	}
	return p.IdentifyRequest(payload, get)
}

// IdentifyRequest is [Profile.Identify] for a request that was received
// directly: header returns the value of a header, "" if absent, and matches
// names without regard to case, as http.Header.Get does. nil: no headers.
func (p *Profile) IdentifyRequest(payload []byte, header func(name string) string) (key, account string, err error) {
	d, err := p.single(payload)
	if err != nil {
		return "", "", err
	}
	if header != nil {
		d.header = header
	}
	return p.identify(&d)
}

// identify is the key and the account of one event.
func (p *Profile) identify(d *delivery) (key, account string, err error) {
	if d.stray {
		return "", "", missingKey("no %s key: this part of the payload holds none of %s", p.Name, p.each)
	}
	if len(d.event) > 0 && d.event[0] == '[' {
		return "", "", missingKey("the payload is an array: split it and make one claim for each element (n8n: Split Out node), or give idempotency_key")
	}
	if key, err = d.firstKey(p.key, p.composite()); err != nil {
		return "", "", err
	}
	if key == "" {
		return "", "", missingKey("no %s key: looked for %s", p.Name, p.lookedFor())
	}
	if account, err = d.accountAt(p.account); err != nil {
		return "", "", err
	}
	return key, account, nil
}

// composite reports whether keys of this provider can have several parts. Then
// all of them are escaped, also one that happens to have a single part.
func (p *Profile) composite() bool {
	for _, r := range p.key {
		if len(r.parts) > 1 {
			return true
		}
	}
	return false
}

// delivery is one event with what came around it.
type delivery struct {
	body   []byte // the whole payload
	event  []byte
	parent []byte // nil if the event is the payload
	stray  bool   // stands where events do, and holds none
	header func(name string) string
	query  func(name string) string
}

// firstKey makes the key by the first recipe that finds all it needs, "" if none
// does.
func (d *delivery) firstKey(recipes []recipe, composite bool) (string, error) {
	for _, r := range recipes {
		values, err := d.values(r)
		if err != nil {
			return "", err
		}
		if values == nil {
			continue
		}
		key := values[0]
		if composite {
			if key, err = join(values); err != nil {
				return "", err
			}
		}
		if err := identity.CheckDerivedKey(key); err != nil {
			return "", err
		}
		return key, nil
	}
	return "", nil
}

// values returns the values of a recipe's parts, nil if one it needs is absent.
func (d *delivery) values(r recipe) ([]string, error) {
	if r.needs != "" {
		if needed, err := d.value(ref{inEvent, r.needs}); needed == "" || err != nil {
			return nil, err
		}
	}
	values := make([]string, 0, len(r.parts))
	for _, p := range r.parts {
		value, err := d.first(p.from)
		if err != nil {
			return nil, err
		}
		if value == "" && !p.optional {
			return nil, nil
		}
		values = append(values, value)
	}
	return values, nil
}

// accountAt returns the account that the delivery names, under the same rules
// as a key.
func (d *delivery) accountAt(from []ref) (string, error) {
	account, err := d.first(from)
	if account == "" || err != nil {
		return "", err
	}
	if err := identity.CheckDerivedKey(account); err != nil {
		return "", invalidKey("the provider's account in the payload or headers is no usable text: at most %d bytes, no control characters", identity.MaxKeyBytes)
	}
	return account, nil
}

func (d *delivery) first(from []ref) (string, error) {
	for _, r := range from {
		if value, err := d.value(r); value != "" || err != nil {
			return value, err
		}
	}
	return "", nil
}

// value returns the value at r, "" if there is none.
func (d *delivery) value(r ref) (string, error) {
	switch r.in {
	case inHeader:
		return d.header(r.name), nil
	case inQuery:
		return d.query(r.name), nil
	case inBodyHash:
		if len(d.body) == 0 {
			return "", nil
		}
		sum, err := identity.Hash(d.body)
		if err != nil {
			return "", err
		}
		return hex.EncodeToString(sum[:]), nil
	case inParent:
		value, _, err := identity.Lookup(d.parent, r.name)
		return value, err
	}
	value, _, err := identity.Lookup(d.event, r.name)
	return value, err
}

// escaper keeps the separator out of the parts.
var escaper = strings.NewReplacer("%", "%25", ":", "%3A")

// join makes one key of several parts. The parts have fixed places, so leaving
// out the empty ones at the end loses nothing.
func join(values []string) (string, error) {
	for i, value := range values {
		values[i] = escaper.Replace(value)
	}
	key := strings.TrimRight(strings.Join(values, ":"), ":")
	if len(key) <= identity.MaxKeyBytes {
		return key, nil
	}
	// What is cut off is not seen by the check of the finished key.
	if !utf8.ValidString(key) || strings.ContainsFunc(key, unicode.IsControl) {
		return "", invalidKey("what identifies the delivery is not valid UTF-8, or holds a control character")
	}
	sum := sha256.Sum256([]byte(key))
	end := identity.MaxKeyBytes - len("~") - hex.EncodedLen(len(sum))
	for !utf8.RuneStart(key[end]) {
		end--
	}
	return key[:end] + "~" + hex.EncodeToString(sum[:]), nil
}

// lookedFor names the parts of all recipes, for the message of missing_key.
func (p *Profile) lookedFor() string {
	var recipes []string
	headers := false
	for _, r := range p.key {
		var parts []string
		for _, part := range r.parts {
			if part.optional {
				continue
			}
			var names []string
			for _, f := range part.from {
				headers = headers || f.in == inHeader
				names = append(names, f.String())
			}
			parts = append(parts, strings.Join(names, " or "))
		}
		recipes = append(recipes, strings.Join(parts, " + "))
	}
	text := strings.Join(recipes, "; or ")
	if headers {
		text += " (headers have to be sent along as `headers`)"
	}
	return text
}

// String names the place in words.
func (r ref) String() string {
	switch r.in {
	case inHeader:
		return "the header " + r.name
	case inQuery:
		return "the query parameter " + r.name
	case inBodyHash:
		return "a body"
	default:
		return r.name
	}
}

func missingKey(format string, args ...any) error {
	return &identity.Error{Code: identity.CodeMissingKey, Message: fmt.Sprintf(format, args...)}
}

func invalidKey(format string, args ...any) error {
	return &identity.Error{Code: identity.CodeInvalidKey, Message: fmt.Sprintf(format, args...)}
}

func invalidJSON(format string, args ...any) error {
	return &identity.Error{Code: identity.CodeInvalidJSON, Message: fmt.Sprintf(format, args...)}
}
