package failure

import (
	"math"
	"strconv"
	"strings"
	"time"
)

const (
	backoffBase = 30
	backoffCap  = 3600
	// maxRetryAfter bounds what a destination may ask for: seven days. A
	// longer wait is a mistake or an attack, and would hide the letter.
	maxRetryAfter = 7 * 24 * 3600
)

// Backoff returns the seconds to wait before the attempt after the given one:
// min(3600, 30·2^attempt), at least Retry-After where one was given. A negative
// attempt counts as 0. A Retry-After may exceed the 3600, is bounded at seven
// days, and does not count when it is negative.
func Backoff(attempt int, retryAfter *int64) int64 {
	wait := int64(backoffCap)
	// 30·2^7 is already over the cap; a larger shift would overflow.
	if attempt < 7 {
		wait = backoffBase << max(attempt, 0)
	}
	if retryAfter == nil {
		return wait
	}
	return max(wait, min(*retryAfter, maxRetryAfter))
}

// Jitter adds up to 20 % to a wait, so that what failed together does not come
// back together. r is a random number from [0,1); what lies outside is drawn to
// the nearer end, NaN is 0. A negative wait is 0.
func Jitter(seconds int64, r float64) int64 {
	if seconds <= 0 {
		return 0
	}
	if math.IsNaN(r) {
		r = 0
	}
	// Half of the range is far beyond any wait; it keeps the sum in range.
	seconds = min(seconds, math.MaxInt64/2)
	return seconds + int64(float64(seconds)*0.2*min(max(r, 0), 1))
}

// httpDates are the three date forms of RFC 9110, section 5.6.7.
var httpDates = []string{
	"Mon, 02 Jan 2006 15:04:05 GMT",
	"Monday, 02-Jan-06 15:04:05 GMT",
	time.ANSIC,
}

// RetryAfter reads a Retry-After header (RFC 9110, section 10.2.3): whole
// seconds or a date. The answer is at least 0 and at most seven days; a date
// that has passed is 0. What is neither (negative, text) is not ok, and the
// caller's own backoff stands.
func RetryAfter(header string, now time.Time) (seconds int64, ok bool) {
	header = strings.TrimSpace(header)
	if n, ok := digits(header); ok {
		return min(n, maxRetryAfter), true
	}
	if at, ok := httpDate(header); ok {
		wait := math.Ceil(at.Sub(now).Seconds())
		return int64(min(max(wait, 0), maxRetryAfter)), true
	}
	return 0, false
}

func httpDate(s string) (at time.Time, ok bool) {
	for _, layout := range httpDates {
		if at, err := time.Parse(layout, strings.TrimSpace(s)); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}

// digits reads a number that is written in ASCII digits alone. One too large
// for an int64 is the largest.
func digits(s string) (int64, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return math.MaxInt64, true
	}
	return n, true
}
