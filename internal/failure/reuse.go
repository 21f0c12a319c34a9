package failure

import "strings"

// A refusal that names a reused key or a duplicate reference is no refusal of
// the work: an earlier request with the same key or reference did it, or is
// doing it. The words are those of Stripe, Square, Adyen, GoCardless, PayPal,
// Paystack, MTN MoMo, Razorpay, the IETF draft and this service itself.

// reuseCodes are words that say it all, in the form of plainWords.
var reuseCodes = []string{
	" idempotency error ",
	" idempotency conflict ",
	" idempotent creation conflict ",
	" idempotency key reused ",
	" key reused ",
	" duplicate request id ",
	" resource already exist",
}

// keyWords name an idempotency key; near one, the others say that it is
// taken.
// "The header Idempotency-Key is required" has none of those.
var (
	keyWords  = []string{" idempotency ", " idempotent ", " paypal request id ", " x request id "}
	keyBefore = []string{" reused ", " re used ", " duplicate ", " same ", " different ", " conflict"}
	keyBehind = []string{
		" reused ", " re used ", " been used ", " already ", " in use ", " used with ", " used for ", " used by ", " different ", " mismatch", " not match ",
		" conflict", " duplicate", " being processed ", " still processing ", " currently processing ", " in progress ", " concurrent", " same ",
	}
)

// referenceWords name the reference that a caller chose; near one,
// the others say that it is taken, before or behind it.
var (
	referenceWords = []string{
		" reference ", " references ", " transaction ", " transactions ", " tx ref ", " external id ", " externalid ", " order id ", " order number ",
		" invoice ", " invoice id ", " payment ", " request ", " receipt ", " conversation id ", " originatorconversationid ", " transfer ", " charge ", " txn ",
	}
	referenceBefore = []string{" duplicate ", " duplicated "}
	referenceBehind = []string{
		" already exist", " already been used ", " already used ", " already in use ", " already taken ", " already been taken ",
		" already processed ", " already been processed ", " been used ", " must be unique ", " not unique ", " is duplicate",
	}
)

// near is how far apart, in bytes, the two may stand.
const near = 100

// namesReuse searches all texts of the report and the destination's answer.
func (r *report) namesReuse() bool {
	for _, l := range r.layers {
		texts := append([]string{l.message, l.description, string(l.body[:min(len(l.body), maxScan)])}, l.messages...)
		texts = append(texts, l.words...)
		for _, s := range texts {
			if textNamesReuse(plainWords(head(s, maxScan))) {
				return true
			}
		}
	}
	return false
}

func textNamesReuse(s string) bool {
	if containsAny(s, reuseCodes) {
		return true
	}
	return nearAny(s, keyWords, keyBefore, keyBehind) || nearAny(s, referenceWords, referenceBefore, referenceBehind)
}

// nearAny says whether one of the words has one of before close in front of it,
// or one of behind close after it.
func nearAny(s string, words, before, behind []string) bool {
	for _, word := range words {
		for from := 0; ; {
			at := strings.Index(s[from:], word)
			if at < 0 {
				break
			}
			at += from
			end := at + len(word)
			if containsAny(s[max(0, at-near):at+1], before) || containsAny(s[end-1:min(len(s), end+near)], behind) {
				return true
			}
			from = end - 1 // the closing space opens the next word
		}
	}
	return false
}

func containsAny(s string, words []string) bool {
	for _, word := range words {
		if strings.Contains(s, word) {
			return true
		}
	}
	return false
}

// plainWords writes a text in lower-case words with one space around each, so
// that IDEMPOTENCY_KEY_REUSED, "Idempotency-Key reused", idempotencyKeyReused
// and their JSON compare.
func plainWords(s string) string {
	var b strings.Builder
	b.Grow(len(s) + 2)
	b.WriteByte(' ')
	space, lower := true, false
	for i := range len(s) {
		c := s[i]
		if c >= 'A' && c <= 'Z' {
			if lower { // camelCase
				b.WriteByte(' ')
			}
			c += 'a' - 'A'
			lower = false
		} else {
			lower = c >= 'a' && c <= 'z'
		}
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c >= 0x80 {
			b.WriteByte(c)
			space = false
			continue
		}
		if !space {
			b.WriteByte(' ')
			space = true
		}
	}
	if !space {
		b.WriteByte(' ')
	}
	return b.String()
}
