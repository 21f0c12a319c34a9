package notify

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"holdfast/internal/failure"
)

const (
	hidden   = "…"
	maxError = 300
)

// anyURL finds addresses in errors: after the host, all may be secret, and so may what stands before an @.
var anyURL = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^\s"'<>]*`)

// maskAddress takes an address and its parts out of a text, and whatever else looks like an address or a secret.
func maskAddress(text, address string) string {
	text = anyURL.ReplaceAllString(text, "${1}"+hidden)
	for _, secret := range partsOf(address) {
		text = strings.ReplaceAll(text, secret, hidden)
	}
	text = failure.Redact(text, nil)
	if len(text) > maxError {
		text = strings.ToValidUTF8(text[:maxError], "") + hidden
	}
	return text
}

// partsOf are the parts of an address that may be secrets, longest first, as written and decoded. Shorter ones than
// four characters are no secret, and would spoil any text.
func partsOf(address string) (parts []string) {
	_, rest, _ := strings.Cut(address, "://")
	whole := []string{address, rest}
	if decoded, err := url.PathUnescape(rest); err == nil {
		whole = append(whole, decoded)
	}
	for _, s := range whole {
		parts = append(parts, s)
		parts = append(parts, strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune("/@?&=#,;", r) })...)
		parts = append(parts, strings.FieldsFunc(s, func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && r != '-' && r != '.'
		})...)
	}
	parts = slices.DeleteFunc(parts, func(s string) bool { return len(s) < 4 })
	slices.SortFunc(parts, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	return slices.Compact(parts)
}
