package inbox

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Config is what the configuration says of a source that takes webhooks. The
// fields are those of the YAML file.
type Config struct {
	Provider    string        // a name of the table, or hmac, or none
	Secrets     []string      // any of them may have signed; none: a token has to vouch for requests
	Token       bool          // a token guards the address (the caller compares it)
	Tolerance   time.Duration // how old a signature may be; 0: as the provider says
	Signature   Signature     // of hmac
	Key         string        // where the key is: body.PATH, headers.NAME or query.NAME; empty: where the provider has it, else at a standard path
	Entity      string        // path in an event; empty: the provider's, if it has one
	Version     string        // path in an event; empty: the provider's, if it has one
	VerifyToken string        // of Meta's handshake
	PublicURL   string        // what providers call, without the path of the source: https://hooks.example.com
}

// Signature says how the sender of an hmac source signs the body.
type Signature struct {
	Header    string
	Algorithm string // sha1, sha256 (default) or sha512
	Encoding  string // hex (default) or base64
	Prefix    string // what stands before the signature, such as "sha256="
}

// publicURLField is what a wrong PublicURL is called: it is no field of a source.
const publicURLField = "HOLDFAST_INGEST_URL"

// FieldError says which field of a source is wrong, and what to do.
type FieldError struct {
	Field   string // as in the YAML file: "secrets[0]", "signature.header"
	Message string // never holds a secret
}

// Error returns the field and the message.
func (e *FieldError) Error() string { return e.Field + ": " + e.Message }

func wrong(field, format string, args ...any) error {
	return &FieldError{Field: field, Message: fmt.Sprintf(format, args...)}
}

// Source takes the webhooks of one source. It does not change, so any number of
// requests may be received at once.
type Source struct {
	profile     *Profile
	schemes     []scheme // none: a token vouches for requests
	keys        []key
	key         *ref // the source's own place of the key
	keyName     string
	entity      string
	version     []ref
	verifyToken string
	url         string
	keep        []string
}

// The providers that are no rows: how requests are authenticated is said by the
// source, and what is in them is known to nobody.
var (
	hmacProfile = Profile{Name: "hmac"}
	noneProfile = Profile{Name: "none"}
)

// NewSource checks the configuration of a source and makes it ready. The error
// is a *FieldError: the first field that is wrong.
func NewSource(c Config) (*Source, error) {
	profile, ok := Find(c.Provider)
	switch {
	case ok:
	case c.Provider == hmacProfile.Name:
		profile = &hmacProfile
	case c.Provider == noneProfile.Name:
		profile = &noneProfile
	default:
		return nil, wrong("provider", "%q is no provider: it must be one of %s", c.Provider, strings.Join(Providers(), ", "))
	}
	s := &Source{profile: profile, entity: c.Entity, version: profile.version, verifyToken: c.VerifyToken, url: strings.TrimRight(c.PublicURL, "/")}
	if err := s.authenticate(c); err != nil {
		return nil, err
	}
	for _, path := range []struct{ field, path string }{{"entity", c.Entity}, {"version", c.Version}} {
		if path.path != "" && slices.Contains(strings.Split(path.path, "."), "") {
			return nil, wrong(path.field, "%q has an empty part: write a dotted path into an event, such as data.object.id", path.path)
		}
	}
	if c.Version != "" {
		s.version = refs(c.Version)
	}
	if c.VerifyToken != "" && !profile.hub {
		return nil, wrong("verify_token", "%s has no handshake by a verify token: leave it out", profile.Name)
	}
	if c.Key != "" {
		if err := s.keyAt(c.Key); err != nil {
			return nil, err
		}
	}
	s.keep = s.keptHeaders()
	return s, nil
}

// Providers returns the names that a source can have as its provider.
func Providers() []string {
	names := make([]string, 0, len(profiles)+2)
	for i := range profiles {
		names = append(names, profiles[i].Name)
	}
	return append(names, hmacProfile.Name, noneProfile.Name)
}

// authenticate sets how requests are checked, by secrets or by a token.
func (s *Source) authenticate(c Config) error {
	name := s.profile.Name
	schemes := slices.Clone(s.profile.signs)
	own := c.Signature
	switch {
	case s.profile == &hmacProfile:
		hmac, err := ownScheme(own)
		if err != nil {
			return err
		}
		schemes = []scheme{hmac}
	case own == Signature{}:
	case len(schemes) == 1 && schemes[0].renamed && own == Signature{Header: own.Header}:
		schemes[0].header = own.Header
	default:
		return wrong("signature", "%s signs in a way of its own, which is known: leave it out, or use the provider hmac", name)
	}
	switch {
	case len(schemes) == 0 && len(c.Secrets) > 0:
		return wrong("secrets", "%s signs nothing, so a secret would check nothing: leave it out and give a token", name)
	case len(schemes) == 0 && !c.Token:
		return wrong("token", "is missing: %s signs nothing, so a token in the address has to keep strangers out", name)
	case len(c.Secrets) == 0 && s.profile == &hmacProfile:
		return wrong("secrets", "is missing: hmac checks signatures (to take requests by a token alone, use the provider none)")
	case len(c.Secrets) == 0 && !c.Token:
		return wrong("secrets", "is missing: give the secret that %s signs with, or at least a token", name)
	case c.Tolerance < 0:
		return wrong("tolerance", "is negative")
	}
	if len(c.Secrets) == 0 {
		schemes = nil
	}
	for i := range schemes {
		schemes[i] = schemes[i].filled()
		if c.Tolerance > 0 && !schemes[i].timed() {
			return wrong("tolerance", "%s signs no time that it could be measured by: leave it out", name)
		}
		if c.Tolerance > 0 {
			schemes[i].tolerance = c.Tolerance
		}
		if strings.Contains(schemes[i].signed, "{url}") && !isAddress(s.url) {
			return wrong(publicURLField, "must be the address that %s calls, since it is signed: https://hooks.example.com", name)
		}
	}
	for i, secret := range c.Secrets {
		// The schemes of one provider share their secrets.
		k, err := schemes[0].key(secret)
		if err != nil {
			return wrong(fmt.Sprintf("secrets[%d]", i), "%s", err)
		}
		s.keys = append(s.keys, k)
	}
	s.schemes = schemes
	return nil
}

func isAddress(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.RawQuery == ""
}

// ownScheme is the scheme of an hmac source.
func ownScheme(own Signature) (scheme, error) {
	c := scheme{header: own.Header, algorithm: algorithm(own.Algorithm), encoding: encoding(own.Encoding), prefix: own.Prefix}.filled()
	switch {
	case !isHeaderName(c.header):
		return c, wrong("signature.header", "must name the header that holds the signature, such as X-Signature")
	case hashes[c.algorithm] == nil:
		return c, wrong("signature.algorithm", "%q is unknown: it must be sha1, sha256 or sha512", own.Algorithm)
	case c.encoding != encHex && c.encoding != encBase64:
		return c, wrong("signature.encoding", "%q is unknown: it must be hex or base64", own.Encoding)
	}
	return c, nil
}

// keyAt sets the source's own place of the key.
func (s *Source) keyAt(path string) error {
	place, name, _ := strings.Cut(path, ".")
	s.keyName = path
	switch {
	case place == "body" && !slices.Contains(strings.Split(name, "."), ""):
		s.key = &ref{inEvent, name}
	case place == "headers" && isHeaderName(name):
		if isSecretHeader(name) || slices.ContainsFunc(s.schemes, func(c scheme) bool { return strings.EqualFold(c.header, name) }) {
			return wrong("key", "the header %s lets a caller in or vouches for a request, so it is never kept: a key has to name the event", name)
		}
		s.key = &ref{inHeader, name}
	case place == "query" && name != "":
		s.key = &ref{inQuery, name}
	default:
		return wrong("key", "%q is no place: write body.PATH, headers.NAME or query.NAME, such as body.id", path)
	}
	return nil
}

// keptHeaders are the headers that are stored and passed on: those that some
// part of an event is read from, those that the row names, and a few of use to
// everybody. Everything else is left behind.
func (s *Source) keptHeaders() []string {
	kept := append([]string{"User-Agent", "X-Request-Id", "Traceparent"}, s.profile.keep...)
	add := func(from []ref) {
		for _, r := range from {
			if r.in == inHeader {
				kept = append(kept, r.name)
			}
		}
	}
	for _, r := range slices.Concat(s.profile.key, s.profile.entity) {
		for _, p := range r.parts {
			add(p.from)
		}
	}
	add(s.profile.account)
	add(s.version)
	if s.key != nil {
		add([]ref{*s.key})
	}
	return kept
}

func isHeaderName(name string) bool {
	return name != "" && strings.Trim(name, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// isSecretHeader tells headers whose value lets a caller in somewhere, or vouches
// for a request. An idempotency token does neither.
func isSecretHeader(name string) bool {
	name = strings.ToLower(name)
	return !strings.Contains(name, "idempotency") && slices.ContainsFunc(
		[]string{"authorization", "cookie", "signature", "hmac", "secret", "token", "password", "api-key", "apikey"},
		func(word string) bool { return strings.Contains(name, word) })
}
