package inbox

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// leftOut are vectors of the collection that are not in the file, since their
// providers are not in the table.
var leftOut = map[string]string{
	"paypal-ok": paypal, "paypal-crc-hex": paypal, "paypal-wrong-webhook-id": paypal,
	"mollie-classic":        "nothing is signed, and what happened has to be asked for by an id that repeats",
	"mollie-nextgen-ok":     "plain HMAC: provider hmac takes it",
	"intasend-challenge-ok": intasend, "intasend-challenge-bad": intasend,
}

const (
	paypal   = "the certificate has to be fetched from an address that the request names"
	intasend = "the secret stands in the body"
)

// vector is a request with what is known of its signature.
type vector struct {
	ID, Provider, Method, URL, Body, Secret, Why string
	Secrets                                      []string
	Headers                                      map[string]string
	Valid                                        bool
	Now                                          int64
	Tolerance                                    int64 `json:"tolerance_s"`
}

func vectors(t testing.TB) []vector {
	t.Helper()
	raw, err := os.ReadFile("testdata/signature-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Vectors []vector }
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	return file.Vectors
}

// vectorNamed is the vector with this id.
func vectorNamed(t testing.TB, id string) vector {
	t.Helper()
	for _, v := range vectors(t) {
		if v.ID == id {
			return v
		}
	}
	t.Fatalf("no vector %q", id)
	return vector{}
}

// config is the source that the vector is for.
func (v vector) config() Config {
	c := Config{Provider: v.Provider, Secrets: v.Secrets, Tolerance: time.Duration(v.Tolerance) * time.Second, PublicURL: "https://hooks.example.com"}
	if v.Secret != "" {
		c.Secrets = append(c.Secrets, v.Secret)
	}
	c.Token = len(c.Secrets) == 0
	if scheme, rest, ok := strings.Cut(v.URL, "://"); ok {
		host, _, _ := strings.Cut(rest, "/")
		c.PublicURL = scheme + "://" + host
	}
	return c
}

func (v vector) request() *Request {
	h := http.Header{}
	for name, value := range v.Headers {
		if strings.HasPrefix(name, "<") { // its name is not known
			name = "X-Paystack-Signature"
		}
		h.Set(name, value)
	}
	target := strings.TrimPrefix(v.URL, v.config().PublicURL)
	if target == "" {
		target = "/ingest/" + v.Provider
	}
	return &Request{Method: v.Method, Target: target, Header: h.Values, Body: []byte(v.Body)}
}

func (v vector) now() time.Time {
	if v.Now == 0 {
		return someday
	}
	return time.Unix(v.Now, 0)
}

var someday = time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC)

func newSource(t testing.TB, c Config) *Source {
	t.Helper()
	s, err := NewSource(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// receive takes a request that has to be authentic.
func receive(t testing.TB, s *Source, r *Request, now time.Time) *Received {
	t.Helper()
	got, err := s.Receive(r, now)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// refusal takes a request that must not be authentic.
func refusal(t testing.TB, s *Source, r *Request, now time.Time) *Error {
	t.Helper()
	got, err := s.Receive(r, now)
	var e *Error
	if !errors.As(err, &e) || got != nil {
		t.Fatalf("%+v, %v; want a refusal", got, err)
	}
	if strings.Contains(e.Error(), "%!") {
		t.Fatalf("%v has a formatting error", e)
	}
	return e
}

func TestSignatureVectors(t *testing.T) {
	t.Parallel()
	providers := map[string]bool{}
	for _, v := range vectors(t) {
		if leftOut[v.ID] != "" {
			t.Errorf("%s is in the file and left out", v.ID)
		}
		t.Run(v.ID, func(t *testing.T) {
			t.Parallel()
			s := newSource(t, v.config())
			switch {
			case v.ID == "woocommerce-ping": // not signed, answered, not stored
				if got := receive(t, s, v.request(), v.now()); !got.Handshake || len(got.Events) > 0 {
					t.Errorf("%+v", got)
				}
			case v.Valid:
				got := receive(t, s, v.request(), v.now())
				if got.Handshake || len(got.Events) == 0 {
					t.Errorf("%s: %+v", v.Why, got)
				}
			default:
				e := refusal(t, s, v.request(), v.now())
				if e.Code != CodeInvalidSignature || e.Reason == "" || strings.Contains(e.Message, v.Secret) {
					t.Errorf("%s: %v", v.Why, e)
				}
			}
		})
		providers[v.Provider] = providers[v.Provider] || v.Valid
	}
	// The others are signed in TestOwnVectors.
	for i := range profiles {
		p := &profiles[i]
		own := p.Name == "calendly" || p.Name == "intercom" || p.Name == "hubspot" || p.Name == "xero" || p.Name == "flutterwave" || p.Name == "paystack"
		if len(p.signs) > 0 && !providers[p.Name] && !own {
			t.Errorf("no signed request of %s", p.Name)
		}
	}
}

// signedHeader tells the headers that vouch for a request.
func signedHeader(name string) bool {
	name = strings.ToLower(name)
	for _, word := range []string{"signature", "hmac", "timestamp", "webhook-id", "svix", "verif", "<"} {
		if strings.Contains(name, word) && !strings.HasPrefix(name, "x-wc-webhook-i") && !strings.HasPrefix(name, "x-shopify-webhook") {
			return true
		}
	}
	return false
}

// Any byte that is another one, in the body or in what vouches for it, is
// noticed. Of Adyen's items only the signed fields are covered, and they make
// the key; Flutterwave's older scheme covers nothing.
func TestEveryByteCounts(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t) {
		if !v.Valid || v.Secret == "" || strings.Contains(v.ID, "rotation") || v.Provider == "adyen" && v.ID != "adyen-library-vector" {
			continue
		}
		t.Run(v.ID, func(t *testing.T) {
			t.Parallel()
			s := newSource(t, v.config())
			if v.Provider == "paystack-v1" { // without the name of the secret, and what another one has signed
				for name, value := range v.Headers {
					v.Headers[name] = value[:len("t=1767225600,v1=")] + value[strings.LastIndex(value, ":")+1:]
				}
			}
			key := receive(t, s, v.request(), v.now()).Events[0].Key
			for i := range v.Body {
				r := v.request()
				r.Body[i] ^= 1
				got, err := s.Receive(r, v.now())
				switch {
				case err != nil || v.Provider == "flutterwave-v3":
				case v.Provider == "adyen" && len(got.Events) == 1 && got.Events[0].Key == key:
				default:
					t.Fatalf("byte %d of the body: %+v", i, got)
				}
			}
			for name, value := range v.Headers {
				if !signedHeader(name) {
					continue
				}
				for i := range value {
					changed := v
					changed.Headers = map[string]string{}
					for n, other := range v.Headers {
						changed.Headers[n] = other
					}
					b := []byte(value)
					b[i] ^= 1
					changed.Headers[name] = string(b)
					_ = refusal(t, s, changed.request(), v.now())
				}
				changed := v
				changed.Headers = map[string]string{}
				for n, other := range v.Headers {
					if n != name {
						changed.Headers[n] = other
					}
				}
				if e := refusal(t, s, changed.request(), v.now()); e.Code != CodeInvalidSignature {
					t.Errorf("without %s: %v", name, e)
				}
			}
		})
	}
}

// Another secret of the same form takes nothing, and two secrets take what
// either of them has signed.
func TestSecrets(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t) {
		if !v.Valid || v.Secret == "" {
			continue
		}
		other := v.Secret[:len(v.Secret)-4] + "0000"
		if strings.HasPrefix(other, "whpk_") {
			other = "whpk_" + strings.Repeat("A", 43) + "="
		}
		c := v.config()
		c.Secrets = []string{other}
		e := refusal(t, newSource(t, c), v.request(), v.now())
		if e.Reason != ReasonMismatch || strings.Contains(e.Message, other) {
			t.Errorf("%s: %v", v.ID, e)
		}
		c.Secrets = []string{other, v.Secret} // F074
		receive(t, newSource(t, c), v.request(), v.now())
		c.Secrets = []string{v.Secret, other}
		receive(t, newSource(t, c), v.request(), v.now())
	}
}

func BenchmarkReceive(b *testing.B) {
	for _, id := range []string{"stripe-ok", "github-ok", "gocardless-ok", "twilio-form-ok", "stdwh-ok"} {
		b.Run(id, func(b *testing.B) {
			v := vectorNamed(b, id)
			s, r := newSource(b, v.config()), v.request()
			b.ReportAllocs()
			for b.Loop() {
				receive(b, s, r, v.now())
			}
		})
	}
}

// What no secret of ours has signed is never authentic; what is authentic is
// taken apart without a panic, into events that have a key or a reason.
func FuzzReceive(f *testing.F) {
	var closed, open []*Source
	for i := range profiles {
		c := Config{Provider: profiles[i].Name, Token: true, PublicURL: "https://hooks.example.com"}
		open = append(open, newSource(f, c))
		if len(profiles[i].signs) > 0 {
			c.Secrets = []string{"00000000000000000000000000000000"} // text, hexadecimal and base64
			closed = append(closed, newSource(f, c))
		}
	}
	open = append(open, newSource(f, Config{Provider: "none", Token: true}), newSource(f, Config{Provider: "none", Token: true, Key: "body.id", Entity: "a.b", Version: "v"}))
	for _, v := range vectors(f) {
		for name, value := range v.Headers {
			f.Add("POST", v.URL, name, value, v.Headers["Content-Type"], []byte(v.Body))
		}
		f.Add("POST", v.URL, "webhook-id", "m", "application/x-www-form-urlencoded", []byte(v.Body))
	}
	f.Add("GET", "/x?hub.mode=subscribe&hub.challenge=1&hub.verify_token=", "", "", "", []byte(nil))
	f.Fuzz(func(t *testing.T, method, target, name, value, contentType string, body []byte) {
		r := &Request{Method: method, Target: target, Body: body, Header: func(n string) []string {
			switch {
			case strings.EqualFold(n, "Content-Type"):
				return []string{contentType}
			case strings.EqualFold(n, name), strings.Contains(strings.ToLower(n), "timestamp"):
				return []string{value}
			}
			return nil
		}}
		for _, s := range closed {
			if got, err := s.Receive(r, someday); err == nil && (!got.Handshake || len(got.Events) > 0) {
				t.Fatalf("%s takes it: %+v", s.profile.Name, got)
			}
		}
		for _, s := range open {
			got, err := s.Receive(r, someday)
			if err != nil {
				continue
			}
			for _, e := range got.Events {
				if (e.Key == "") == (e.Err == nil) || (e.KeyBasis == "") != (e.Key == "") || e.Version != versionOf(e.Version) ||
					!strings.Contains(string(body), string(e.Payload)) {
					t.Fatalf("%s: %+v", s.profile.Name, e)
				}
			}
		}
	})
}
