package inbox

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The codes of [Error]. They are the codes of the HTTP contract.
const (
	// CodeInvalidSignature says that nobody vouches for a request (401).
	CodeInvalidSignature = "invalid_signature"
	// CodeUnauthorized says that a handshake came with a wrong token (401).
	CodeUnauthorized = "unauthorized"
	// CodeInvalidRequest says that the provider does not call like this (400).
	CodeInvalidRequest = "invalid_request"
)

// Reason says what is wrong with a signature.
type Reason string

// The reasons of [CodeInvalidSignature].
const (
	ReasonMissing   Reason = "missing"   // not there
	ReasonMalformed Reason = "malformed" // there, and not to be read
	ReasonMismatch  Reason = "mismatch"  // made over something else, or with another secret
	ReasonTime      Reason = "time"      // right, but too old, or from the future
)

// Error says why a request was not taken. Nothing of it may be stored. Message
// is public; it names headers and the scheme, never a secret, nor the signature
// that would have been right.
type Error struct {
	Code    string // one of the Code constants
	Reason  Reason // empty unless the code is invalid_signature
	Message string
	Answer  *Answer // what the provider wants to get; nil: an ordinary answer of this code
}

// Error returns the code and the message.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// hint is what is wrong in most cases.
const hint = "the exact bytes are signed: is the secret the right one, and was the body passed on as it came, not parsed and written again?"

// verify checks the signature of a request. nil: it is authentic, or a token has
// to vouch for it, since the source has no secrets.
func (s *Source) verify(in *incoming, now time.Time) *Error {
	if len(s.schemes) == 0 {
		return nil
	}
	c := &s.schemes[0]
	for i := range s.schemes {
		if in.header(s.schemes[i].header) != "" {
			c = &s.schemes[i]
			break
		}
	}
	if c.item != nil {
		return s.verifyItems(c, in)
	}
	refused := func(reason Reason, format string, args ...any) *Error {
		return s.refused(reason, "the header %s "+format, append([]any{c.header}, args...)...)
	}
	value := in.header(c.header)
	if value == "" {
		return refused(ReasonMissing, "with the signature is missing (or there are several that differ)")
	}
	signatures, stamp, ok := c.entries(value)
	if !ok {
		return refused(ReasonMalformed, "has the time %s twice", c.stamp)
	}
	text := signing{method: in.Method, id: in.header(c.id), time: stamp, body: in.Body}
	if c.time != "" {
		text.time = in.header(c.time)
	}
	var at time.Time
	if c.timed() {
		if at, ok = c.parseTime(text.time); !ok {
			return refused(ReasonMalformed, "comes without a time of signing that is a plain number (%s)", c.time+c.stamp)
		}
	}
	// Another header of the same meaning must not name another delivery: only
	// one of them is signed.
	for i := range s.schemes {
		if other := in.header(s.schemes[i].id); other != "" && other != text.id {
			return refused(ReasonMalformed, "stands beside %s, which says something else", s.schemes[i].id)
		}
	}
	if c.id != "" && (text.id == "" || strings.Contains(text.id, ".")) {
		return refused(ReasonMalformed, "comes without a %s, or with one that has a dot in it", c.id)
	}
	if strings.Contains(c.signed, "{form}") {
		var reason Reason
		if text.form, reason = in.signedForm(); reason != "" {
			return refused(reason, "does not cover the body: a form must be whole, any other body needs its hash as bodySHA256 in the address; %s", hint)
		}
	}
	urls, advice := []string{""}, hint
	if strings.Contains(c.signed, "{url}") {
		urls = spellings(s.url + in.Target)
		advice += " The address is signed too: is " + publicURLField + " what the provider calls?"
	}
	if !slices.ContainsFunc(urls, func(url string) bool {
		text.url = url
		return c.matches(s.keys, signatures, func(w io.Writer) { text.write(w, c.signed) })
	}) {
		return refused(ReasonMismatch, "does not match (%s, tried with %d secrets); %s", c, len(s.keys), advice)
	}
	if !c.timed() {
		return nil
	}
	switch age := now.Sub(at); {
	case age > c.tolerance:
		return refused(ReasonTime, "was signed %d s ago, and %s are allowed (our clock says %s)", int64(age/time.Second), c.tolerance, now.UTC().Format(time.RFC3339))
	case c.future && -age > c.tolerance:
		return refused(ReasonTime, "was signed %d s ahead of our clock, which says %s", int64(-age/time.Second), now.UTC().Format(time.RFC3339))
	}
	return nil
}

// verifyItems checks signatures that stand in the body, one for each event.
func (s *Source) verifyItems(c *scheme, in *incoming) *Error {
	all, batch, err := s.profile.split(in.Body)
	if err != nil || !batch || len(all) == 0 {
		return s.refused(ReasonMissing, "the body has no signed items: %s is not there, or empty", s.profile.each)
	}
	for i := range all {
		given, err := all[i].first(c.item)
		if given == "" || err != nil {
			return s.refused(ReasonMissing, "item %d of %d has no %s", i+1, len(all), c.item[0])
		}
		values := make([]string, len(c.fields))
		for j, field := range c.fields {
			if values[j], err = all[i].first(field.from); err != nil {
				return s.refused(ReasonMalformed, "item %d of %d cannot be read at %s", i+1, len(all), field.from[0])
			}
		}
		if !c.matches(s.keys, []string{given}, func(w io.Writer) { _, _ = io.WriteString(w, strings.Join(values, ":")) }) {
			return s.refused(ReasonMismatch, "the signature of item %d of %d does not match (%s, tried with %d secrets)", i+1, len(all), c, len(s.keys))
		}
	}
	return nil
}

func (s *Source) refused(reason Reason, format string, args ...any) *Error {
	return &Error{Code: CodeInvalidSignature, Reason: reason, Message: fmt.Sprintf(format, args...), Answer: s.profile.refusal}
}

// parseTime reads a time of signing: digits, and nothing but.
func (c *scheme) parseTime(text string) (time.Time, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strings.Trim(text, "0123456789") != "" || n > 1e15 {
		return time.Time{}, false
	}
	if c.millis {
		return time.UnixMilli(n), true
	}
	return time.Unix(n, 0), true
}

// signedForm returns the fields of a form as Twilio signs them. Of any other
// body the address holds the hash, and then the body is no part of what is
// signed. The reason is why the body is not covered, empty if it is.
func (in *incoming) signedForm() (string, Reason) {
	if given := in.query["bodySHA256"]; len(given) > 0 {
		sum := sha256.Sum256(in.Body)
		if subtle.ConstantTimeCompare([]byte(strings.ToLower(given[0])), []byte(hex.EncodeToString(sum[:]))) != 1 {
			return "", ReasonMismatch
		}
		return "", ""
	}
	if !in.isForm() && len(in.Body) > 0 {
		return "", ReasonMissing
	}
	f, err := parseForm(in.Body)
	if err != nil {
		return "", ReasonMalformed
	}
	return f.sorted(), ""
}

// spellings returns an address and what providers also write for it before they
// sign: Twilio leaves a port out or puts the usual one in, HubSpot decodes some
// characters.
func spellings(address string) []string {
	all := []string{address}
	if decoded := hubspotDecoder.Replace(address); decoded != address {
		all = append(all, decoded)
	}
	if scheme, rest, ok := strings.Cut(address, "://"); ok {
		end := strings.IndexAny(rest, "/?")
		if end < 0 {
			end = len(rest)
		}
		host, port := rest[:end], ":443"
		if scheme == "http" {
			port = ":80"
		}
		if colon := strings.LastIndexByte(host, ':'); colon > strings.LastIndexByte(host, ']') {
			host, port = host[:colon], ""
		}
		all = append(all, scheme+"://"+host+port+rest[end:])
	}
	return all
}

// The characters are those of HubSpot's documentation, as remembered: unverified.
var hubspotDecoder = strings.NewReplacer("%3A", ":", "%2F", "/", "%3F", "?", "%40", "@", "%21", "!", "%24", "$",
	"%27", "'", "%28", "(", "%29", ")", "%2A", "*", "%2C", ",", "%3B", ";")
