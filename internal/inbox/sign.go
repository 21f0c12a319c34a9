package inbox

import (
	"errors"
	"io"
	"strconv"
	"time"
)

// Signer signs what is delivered, as Standard Webhooks says, so that a receiver
// can use any library for that, or a source with the provider standard-webhooks.
type Signer struct{ mac []byte }

// NewSigner reads a secret: whsec_ and base64. The error says what is wrong with
// it, without it.
func NewSigner(secret string) (*Signer, error) {
	k, err := standardWebhooks.key(secret)
	if err != nil {
		return nil, err
	}
	if k.public != nil {
		return nil, errors.New("is a public key, and signing needs the secret one: whsec_ and base64")
	}
	return &Signer{mac: k.mac}, nil
}

// Headers returns the headers of one attempt to deliver body: webhook-id,
// webhook-timestamp and webhook-signature. id names the delivery and stays the
// same over its attempts; it must not have a dot in it. at is the time of the
// attempt.
func (s *Signer) Headers(id string, at time.Time, body []byte) map[string]string {
	c := standardWebhooks.filled()
	text := signing{id: id, time: strconv.FormatInt(at.Unix(), 10), body: body}
	return map[string]string{
		c.id:     text.id,
		c.time:   text.time,
		c.header: c.prefix + c.sign(s.mac, func(w io.Writer) { text.write(w, c.signed) }),
	}
}
