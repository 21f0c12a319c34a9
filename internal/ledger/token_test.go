package ledger

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
)

func issued(grant, look int64) *Claim {
	return &Claim{ID: "01a22e60-e4f3-7bdd-84d7-e906ec36edbe", Secret: bytes.Repeat([]byte{7}, SecretBytes), Grant: grant, Look: look}
}

// reads tells whether text is a token that c has issued.
func reads(c *Claim, text string) bool {
	t, ok := ParseToken(text)
	return ok && c.Issued(t)
}

func TestTokenRoundTrip(t *testing.T) {
	t.Parallel()
	c := issued(3, 2)
	for grant := int64(1); grant <= 3; grant++ {
		for look := int64(0); look <= 2; look++ {
			text := c.token(grant, look)
			token, ok := ParseToken(text)
			if !ok || token.ClaimID != c.ID || token.Grant != grant || token.Look != look {
				t.Errorf("%s: %+v %v", text, token, ok)
			}
			if !c.Issued(token) {
				t.Errorf("grant %d look %d: not recognised", grant, look)
			}
			if newest := grant == 3 && (look == 0 || look == 2); c.newest(token) != newest {
				t.Errorf("grant %d look %d: newest is %v", grant, look, !newest)
			}
		}
	}
	if c.LeaseToken() != c.token(3, 0) || c.LookToken() != c.token(3, 2) || c.LeaseToken() == c.LookToken() {
		t.Error("the newest tokens are not those of the newest numbers")
	}
	c.VoidGrant = 3
	if token, _ := ParseToken(c.LeaseToken()); c.newest(token) || !c.Issued(token) {
		t.Error("a person's word does not end the lease, or forgets the token")
	}
}

// TestTokenAlphabet: tokens travel in JSON, addresses and logs; nothing in them needs quoting.
func TestTokenAlphabet(t *testing.T) {
	t.Parallel()
	text := issued(1, 0).LeaseToken()
	if strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") != "" || len(text) > 64 {
		t.Errorf("%q", text)
	}
}

func TestTokenForged(t *testing.T) {
	t.Parallel()
	c := issued(2, 1)
	other := issued(2, 1)
	other.Secret = bytes.Repeat([]byte{8}, SecretBytes)
	elsewhere := issued(2, 1)
	elsewhere.ID = "01a22e60-e4f3-7bdd-84d7-e906ec36edbf"
	for name, text := range map[string]string{
		"a grant never issued":   c.token(3, 0),
		"a look never issued":    c.token(2, 2),
		"grant 0":                c.token(0, 0),
		"a huge grant":           c.token(1<<32-1, 0),
		"another claim's secret": other.token(2, 0),
		"another claim":          elsewhere.token(2, 0),
	} {
		if reads(c, text) {
			t.Errorf("%s was taken", name)
		}
	}
}

// TestTokenMangled: every other text is no token of the claim, whatever byte is off.
func TestTokenMangled(t *testing.T) {
	t.Parallel()
	c := issued(2, 1)
	text := c.LeaseToken()
	wrong := []string{
		"", "hft_", text[:len(text)-1], text + "A", text + "=", text + "==", text[4:], "HFT_" + text[4:], strings.ToUpper(text), strings.ToLower(text),
		" " + text, text + " ", text + "\n", text + "\x00", "hft_" + strings.Repeat("A", len(text)-4), strings.Repeat("\n", len(text)),
		"hft_" + text[4:len(text)-2] + "\r\n", "hft_" + text[4:len(text)-2] + "==", "hft_" + text[4:len(text)-1] + "=",
	}
	if std := strings.NewReplacer("-", "+", "_", "/").Replace(text[4:]); std != text[4:] {
		wrong = append(wrong, "hft_"+std)
	}
	for _, w := range wrong {
		if reads(c, w) {
			t.Errorf("%q was taken for %q", w, text)
		}
	}
	for i := range len(text) {
		for _, b := range []byte("Az0-_ \n\x00") {
			if text[i] == b {
				continue
			}
			if mangled := text[:i] + string(b) + text[i+1:]; reads(c, mangled) {
				t.Errorf("%q was taken for %q", mangled, text)
			}
		}
	}
}

// TestTokenPaddingBits: the last character carries bits that say nothing; only one spelling of them is a token.
func TestTokenPaddingBits(t *testing.T) {
	t.Parallel()
	c := issued(1, 0)
	text := c.LeaseToken()
	taken := 0
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	for _, last := range alphabet {
		spelt := text[:len(text)-1] + string(last)
		if _, err := base64.RawURLEncoding.DecodeString(spelt[4:]); err != nil {
			t.Fatal(err)
		}
		if reads(c, spelt) {
			taken++
		}
	}
	if taken != 1 {
		t.Errorf("%d spellings of one token were taken, want 1", taken)
	}
}

// TestTokenLineBreaks: decoders of base64 skip line breaks. A token whose last byte happens to be 0 must not be
// taken where its end was replaced by them.
func TestTokenLineBreaks(t *testing.T) {
	t.Parallel()
	c := issued(1, 0)
	for n := range 100_000 {
		c.Secret = []byte{byte(n), byte(n >> 8), byte(n >> 16), 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}
		if mac := c.mac(1, 0); mac[15] != 0 {
			continue
		}
		text := c.LeaseToken()
		for _, broken := range []string{text[:len(text)-2] + "\n\n", text[:len(text)-2] + "\r\n", "hft_\n" + text[4:len(text)-2] + "\n"} {
			if reads(c, broken) {
				t.Errorf("%q was taken for %q", broken, text)
			}
		}
		return
	}
	t.Fatal("no secret gives such a token")
}

func FuzzParseToken(f *testing.F) {
	c := issued(2, 1)
	f.Add(c.LeaseToken())
	f.Add(c.LookToken())
	f.Add("hft_")
	f.Fuzz(func(t *testing.T, text string) {
		token, ok := ParseToken(text)
		if !ok || !c.Issued(token) {
			return
		}
		if again := c.token(token.Grant, token.Look); again != text {
			t.Errorf("%q was taken for %q", text, again)
		}
	})
}
