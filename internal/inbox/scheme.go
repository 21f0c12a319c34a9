package inbox

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"strings"
	"time"
)

// scheme is one way of signing a request. An empty field means what most
// providers do.
type scheme struct {
	header    string // holds the signature
	separator string // between the entries, where the header holds a list; else it is one entry
	prefix    string // tells an entry that is a signature: "v1=", "sha256="
	label     string // ends the name of the secret, where an entry has one in front
	public    string // tells an entry made with an Ed25519 key; empty: there are none

	algorithm algorithm // sha256 unless given
	encoding  encoding  // hex unless given
	keys      keyForm   // the secret's own bytes unless given

	// signed is the text that is signed, {body} unless given. Of the request it
	// may hold {method}, {url}, {body} and {form} (Twilio's form of a body); {id}
	// is the header id; {time} is the time of signing, from the header time or
	// from the entry of the list that begins with stamp.
	signed string
	id     string
	time   string
	stamp  string
	millis bool // {time} counts milliseconds, not seconds

	tolerance time.Duration // how old a signature may be
	future    bool          // and how far ahead of the clock; else that does not matter

	// Where each event of a body is signed on its own: item is where its
	// signature is, fields are what is signed, joined by ":".
	item   []ref
	fields []part

	renamed bool // a source may give another header, since this one is not certain
}

type (
	algorithm string
	encoding  string
	keyForm   string
)

const (
	algSHA1   algorithm = "sha1"
	algSHA256 algorithm = "sha256"
	algSHA512 algorithm = "sha512"
	algPlain  algorithm = "plain" // no signature: the secret itself is sent

	encHex    encoding = "hex"
	encBase64 encoding = "base64"

	keyText   keyForm = ""       // the secret as it is written
	keyBase64 keyForm = "base64" // what follows whsec_ is base64; whpk_ is a public key
	keyHex    keyForm = "hex"
)

var hashes = map[algorithm]func() hash.Hash{algSHA1: sha1.New, algSHA256: sha256.New, algSHA512: sha512.New}

// maxEntries is how many signatures of one header are looked at.
const maxEntries = 64

// filled returns the scheme with everything that goes without saying.
func (c scheme) filled() scheme {
	if c.algorithm == "" {
		c.algorithm = algSHA256
	}
	if c.encoding == "" {
		c.encoding = encHex
	}
	if c.signed == "" {
		c.signed = "{body}"
	}
	return c
}

// timed reports whether the time of signing is signed.
func (c *scheme) timed() bool { return c.time != "" || c.stamp != "" }

// String names the scheme for the person who looks for a mistake in it.
func (c *scheme) String() string {
	if c.algorithm == algPlain {
		return "the secret itself"
	}
	over := c.signed
	if c.item != nil {
		over = "the fields of an item"
	}
	return "HMAC-" + strings.ToUpper(string(c.algorithm)) + " in " + string(c.encoding) + " over " + over
}

// key is a secret, ready for use: either for a MAC, or a public key.
type key struct {
	mac    []byte
	public ed25519.PublicKey
}

// key reads a secret. The error says what a secret of this scheme looks like.
func (c *scheme) key(secret string) (key, error) {
	switch {
	case secret == "":
		return key{}, errors.New("is empty")
	case strings.TrimSpace(secret) != secret:
		return key{}, errors.New("begins or ends with white space: copy it again without")
	case c.keys == keyHex:
		mac, err := hex.DecodeString(secret)
		if err != nil {
			return key{}, errors.New("must be hexadecimal digits, as the provider shows the HMAC key")
		}
		return key{mac: mac}, nil
	case c.keys == keyBase64:
		text, public := strings.CutPrefix(secret, "whpk_")
		raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimPrefix(text, "whsec_"), "="))
		if public && c.public != "" {
			if err != nil || len(raw) != ed25519.PublicKeySize {
				return key{}, errors.New("must be whpk_ and the 32 bytes of an Ed25519 public key in base64")
			}
			return key{public: raw}, nil
		}
		if err != nil || len(raw) == 0 || public {
			return key{}, errors.New("must be whsec_ and base64, as the provider shows it")
		}
		return key{mac: raw}, nil
	}
	return key{mac: []byte(secret)}, nil
}

// sign returns the signature of what write writes, without its prefix.
func (c *scheme) sign(mac []byte, write func(io.Writer)) string {
	if c.algorithm == algPlain {
		return string(mac)
	}
	h := hmac.New(hashes[c.algorithm], mac)
	write(h)
	if c.encoding == encBase64 {
		return base64.StdEncoding.EncodeToString(h.Sum(nil))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// matches reports whether one of the entries is the signature, by one of the
// keys, of what write writes. The time it takes says nothing about how much of a
// signature is right.
func (c *scheme) matches(keys []key, entries []string, write func(io.Writer)) bool {
	ok := false
	for _, k := range keys {
		prefix := c.prefix
		var want string
		var text bytes.Buffer
		if k.public != nil {
			prefix = c.public
			write(&text)
		} else {
			want = c.sign(k.mac, write)
		}
		for _, entry := range entries {
			given, found := strings.CutPrefix(entry, prefix)
			if !found {
				continue
			}
			if _, after, labelled := strings.Cut(given, c.label); labelled && c.label != "" {
				given = after
			}
			if k.public != nil {
				raw, err := base64.StdEncoding.Strict().DecodeString(given)
				ok = err == nil && ed25519.Verify(k.public, text.Bytes(), raw) || ok
				continue
			}
			if c.encoding == encHex && c.algorithm != algPlain {
				given = strings.ToLower(given)
			}
			ok = subtle.ConstantTimeCompare([]byte(given), []byte(want)) == 1 || ok
		}
	}
	return ok
}

// entries takes the header apart: the signatures, and the time if it is one of
// the entries. A time that is there twice is none that can be trusted: ok is
// false.
func (c *scheme) entries(value string) (signatures []string, stamp string, ok bool) {
	if c.separator == "" {
		return []string{value}, "", true
	}
	for entry := range strings.SplitSeq(value, c.separator) {
		if at, is := strings.CutPrefix(entry, c.stamp); is && c.stamp != "" {
			if stamp != "" {
				return nil, "", false
			}
			stamp = at
		} else if len(signatures) < maxEntries {
			signatures = append(signatures, entry)
		}
	}
	return signatures, stamp, true
}

// signing is what the names in signed stand for.
type signing struct {
	method, url, form, id, time string
	body                        []byte
}

// write writes the text that is signed.
func (s *signing) write(w io.Writer, signed string) {
	for signed != "" {
		before, rest, found := strings.Cut(signed, "{")
		_, _ = io.WriteString(w, before)
		if !found {
			return
		}
		var name, text string
		name, signed, _ = strings.Cut(rest, "}")
		switch name {
		case "method":
			text = s.method
		case "url":
			text = s.url
		case "form":
			text = s.form
		case "id":
			text = s.id
		case "time":
			text = s.time
		case "body":
			_, _ = w.Write(s.body)
		}
		_, _ = io.WriteString(w, text)
	}
}
