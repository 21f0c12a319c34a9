package ledger

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/google/uuid"
)

// Token is a parsed fencing token. It names its claim and its place in the order of leases, and proves
// that it was issued: its MAC is derived from the claim's 128-bit random secret, so that every token ever
// issued can be recognised without being stored.
type Token struct {
	ClaimID string
	Grant   int64 // the worker's lease it belongs to
	Look    int64 // the reconciler's lease; 0 in a worker's token
	mac     [16]byte
}

const (
	tokenPrefix = "hft_"
	tokenBytes  = 16 + 4 + 4 + 16
)

// SecretBytes is the length of a claim's secret.
const SecretBytes = 16

var tokenText = base64.RawURLEncoding.Strict()

// ParseToken reads the text form. It proves nothing yet: see Claim.Issued.
func ParseToken(s string) (Token, bool) {
	var b [tokenBytes]byte
	if len(s) != len(tokenPrefix)+tokenText.EncodedLen(tokenBytes) || s[:len(tokenPrefix)] != tokenPrefix {
		return Token{}, false
	}
	// The decoder passes over line breaks, so that fewer bytes come out: one token must have one spelling.
	if n, err := tokenText.Decode(b[:], []byte(s[len(tokenPrefix):])); err != nil || n != tokenBytes {
		return Token{}, false
	}
	t := Token{
		ClaimID: uuid.UUID(b[:16]).String(),
		Grant:   int64(binary.BigEndian.Uint32(b[16:20])),
		Look:    int64(binary.BigEndian.Uint32(b[20:24])),
	}
	copy(t.mac[:], b[24:])
	return t, true
}

// LeaseToken is the text of the newest worker's token.
func (c *Claim) LeaseToken() string { return c.token(c.Grant, 0) }

// LookToken is the text of the newest reconciler's token.
func (c *Claim) LookToken() string { return c.token(c.Grant, c.Look) }

func (c *Claim) token(grant, look int64) string {
	id, err := uuid.Parse(c.ID)
	if err != nil {
		return ""
	}
	var b [tokenBytes]byte
	copy(b[:16], id[:])
	putNumbers(b[16:24], grant, look)
	mac := c.mac(grant, look)
	copy(b[24:], mac[:])
	return tokenPrefix + tokenText.EncodeToString(b[:])
}

func putNumbers(b []byte, grant, look int64) {
	binary.BigEndian.PutUint32(b, uint32(grant))    //nolint:gosec // a claim is not leased four thousand million times
	binary.BigEndian.PutUint32(b[4:], uint32(look)) //nolint:gosec // as above
}

func (c *Claim) mac(grant, look int64) (out [16]byte) {
	h := hmac.New(sha256.New, c.Secret)
	var n [8]byte
	putNumbers(n[:], grant, look)
	h.Write(n[:])
	copy(out[:], h.Sum(nil))
	return out
}

// Issued tells whether t is a token that this claim has handed out, old ones included.
func (c *Claim) Issued(t Token) bool {
	if t.ClaimID != c.ID || t.Grant < 1 || t.Grant > c.Grant || t.Look > c.Look {
		return false
	}
	mac := c.mac(t.Grant, t.Look)
	return hmac.Equal(mac[:], t.mac[:])
}

// newest tells whether t is the newest token of its kind and no person has ended its lease since.
func (c *Claim) newest(t Token) bool {
	return t.Grant == c.Grant && t.Grant > c.VoidGrant && (t.Look == 0 || t.Look == c.Look)
}
