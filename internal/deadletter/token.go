package deadletter

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/google/uuid"
)

// Token is the fencing token of a letter's lease. It proves that it was issued: its MAC is derived from the letter's
// random secret, so that every token ever issued can be recognised without being stored.
type Token struct {
	LetterID string
	Lease    int64
	mac      [16]byte
}

const (
	tokenPrefix = "hfl_"
	tokenBytes  = 16 + 4 + 16
)

var tokenText = base64.RawURLEncoding.Strict()

// ParseToken reads the text form. It proves nothing yet: see Letter.Issued.
func ParseToken(s string) (Token, bool) {
	var b [tokenBytes]byte
	if len(s) != len(tokenPrefix)+tokenText.EncodedLen(tokenBytes) || s[:len(tokenPrefix)] != tokenPrefix {
		return Token{}, false
	}
	// The decoder passes over line breaks, so that fewer bytes come out: one token must have one spelling.
	if n, err := tokenText.Decode(b[:], []byte(s[len(tokenPrefix):])); err != nil || n != tokenBytes {
		return Token{}, false
	}
	t := Token{LetterID: uuid.UUID(b[:16]).String(), Lease: int64(binary.BigEndian.Uint32(b[16:20]))}
	copy(t.mac[:], b[20:])
	return t, true
}

// LeaseToken is the text of the newest lease's token.
func (l *Letter) LeaseToken() string {
	id, err := uuid.Parse(l.ID)
	if err != nil {
		return ""
	}
	var b [tokenBytes]byte
	copy(b[:16], id[:])
	binary.BigEndian.PutUint32(b[16:], uint32(l.Lease)) //nolint:gosec // a letter is not leased four thousand million times
	mac := l.mac(l.Lease)
	copy(b[20:], mac[:])
	return tokenPrefix + tokenText.EncodeToString(b[:])
}

func (l *Letter) mac(lease int64) (out [16]byte) {
	h := hmac.New(sha256.New, l.Secret)
	var n [4]byte
	binary.BigEndian.PutUint32(n[:], uint32(lease)) //nolint:gosec // as above
	h.Write(n[:])
	copy(out[:], h.Sum(nil))
	return out
}

// Issued tells whether t is a token that this letter has handed out, old ones included.
func (l *Letter) Issued(t Token) bool {
	if t.LetterID != l.ID || t.Lease < 1 || t.Lease > l.Lease {
		return false
	}
	mac := l.mac(t.Lease)
	return hmac.Equal(mac[:], t.mac[:])
}
