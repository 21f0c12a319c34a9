package identity

import "strings"

// standardPaths are where events carry an id of their own, best first: the
// M-Pesa callback's is the most particular one, so it cannot be mistaken.
var standardPaths = [...]string{
	"Body.stkCallback.CheckoutRequestID",
	"id",
	"event_id",
	"transaction_reference",
}

// StandardKey returns the first of Body.stkCallback.CheckoutRequestID, id,
// event_id and transaction_reference in payload that is a number or a string
// with something in it. Since no profile vouches for it, the key has to pass
// [CheckKey]; the first one found counts, later paths do not save a bad one.
//
// missing_key: no payload, none of the paths, or an array, which holds several
// events. There is no fallback to a hash, a time or a run id: a key that differs
// on every delivery protects nothing, and one that all share loses events.
func StandardKey(payload []byte) (string, error) {
	payload = trimSpace(payload)
	if len(payload) == 0 || string(payload) == "null" {
		return "", missingKey("there is no key and no payload to find one in")
	}
	if payload[0] == '[' {
		return "", missingKey("the payload is an array: split it and make one claim for each element (n8n: Split Out node), or give idempotency_key")
	}
	for _, path := range standardPaths {
		tok, err := find(payload, path)
		if err != nil {
			return "", err
		}
		if tok.kind != kindString && tok.kind != kindNumber {
			continue
		}
		key, err := scalar(payload, tok, path)
		if err != nil {
			return "", err
		}
		if key != "" {
			return checked(key)
		}
	}
	return "", missingKey("there is no key: give idempotency_key or key_template (looked in the payload for %s)",
		strings.Join(standardPaths[:], ", "))
}
