package failure

import (
	"strconv"
	"strings"
)

// statusRule is one row of the status table.
type statusRule struct {
	code   int
	reason string // the reason phrase, also used to recognise "503 Service Unavailable"
	finding
}

var (
	refused      = finding{Validation, false, NotExecuted}
	redirected   = finding{Unclassified, false, Unknown}
	notHandled   = finding{Unclassified, false, NotExecuted} // answered by something in front of the work
	credentialed = finding{Auth, false, NotExecuted}
)

// statusTable says what a status means after a request that changes something.
// 4xx refuse before work; the exceptions are 408 (proxies send it after
// forwarding too), 409 (the same key may be running, or done) and 460 and 499
// (a proxy's note that the client left). Of the 5xx, those from 520 on are
// Cloudflare's: in 521, 523, 525 and 526 it never reached the origin; 529 is
// Anthropic's and others' "overloaded", said before any work.
var statusTable = []statusRule{
	{200, "OK", nobodyKnows},
	{202, "Accepted", nobodyKnows},
	{207, "Multi-Status", nobodyKnows}, // some items may be done: split them
	{301, "Moved Permanently", redirected},
	{302, "Found", redirected},
	{303, "See Other", redirected},
	{307, "Temporary Redirect", redirected},
	{308, "Permanent Redirect", redirected},

	{400, "Bad Request", refused},
	{401, "Unauthorized", credentialed},
	{402, "Payment Required", refused},
	{403, "Forbidden", credentialed},
	{404, "Not Found", refused},
	{405, "Method Not Allowed", refused},
	{406, "Not Acceptable", refused},
	{407, "Proxy Authentication Required", credentialed},
	{408, "Request Timeout", maybeSent},
	{409, "Conflict", reused},
	{410, "Gone", refused},
	{411, "Length Required", refused},
	{412, "Precondition Failed", refused},
	{413, "Content Too Large", refused},
	{414, "URI Too Long", refused},
	{415, "Unsupported Media Type", refused},
	{417, "Expectation Failed", refused},
	{421, "Misdirected Request", refused},
	{422, "Unprocessable Content", refused},
	{423, "Locked", refused},
	{425, "Too Early", notSent}, // RFC 8470: refused as early data, safe to resend
	{426, "Upgrade Required", refused},
	{428, "Precondition Required", refused},
	{429, "Too Many Requests", finding{RateLimited, true, NotExecuted}},
	{431, "Request Header Fields Too Large", refused},
	{451, "Unavailable For Legal Reasons", refused},
	{460, "Client Closed Connection", finding{Validation, false, Unknown}},
	{499, "Client Closed Request", finding{Validation, false, Unknown}},

	{500, "Internal Server Error", maybeSent},
	{501, "Not Implemented", refused},
	{502, "Bad Gateway", maybeSent},
	{503, "Service Unavailable", maybeSent},
	{504, "Gateway Timeout", maybeSent},
	{505, "HTTP Version Not Supported", refused},
	{506, "Variant Also Negotiates", refused},
	{507, "Insufficient Storage", notHandled},
	{508, "Loop Detected", notHandled},
	{511, "Network Authentication Required", notHandled},
	{520, "Web Server Returned an Unknown Error", maybeSent},
	{521, "Web Server Is Down", notSent},
	{522, "Connection Timed Out", maybeSent},
	{523, "Origin Is Unreachable", notSent},
	{524, "A Timeout Occurred", maybeSent},
	{525, "SSL Handshake Failed", notHandled},
	{526, "Invalid SSL Certificate", notHandled},
	{527, "Railgun Error", nobodyKnows},
	{529, "Overloaded", notHandled},
	{530, "Origin Error", nobodyKnows}, // the body says more: see originUnreached
}

var statusRules = func() map[int]statusRule {
	m := make(map[int]statusRule, len(statusTable))
	for _, rule := range statusTable {
		m[rule.code] = rule
	}
	return m
}()

// judgeStatus judges by an HTTP status, and by the texts only where the status
// itself leaves it open.
func (r *report) judgeStatus(status int) finding {
	rule, listed := statusRules[status]
	f := rule.finding
	switch {
	case status/100 == 4 && r.namesReuse():
		return reused
	case status == 530 && r.saysAny(originUnreached):
		return notHandled
	case listed:
		return f
	case status/100 == 4:
		return refused
	}
	return nobodyKnows
}

// originUnreached are the Cloudflare errors inside a 530 that prove that the
// origin never had the request: its name did not resolve (1016), its tunnel was
// not connected (1033).
var originUnreached = []string{"error code: 1016", "error 1016", "origin dns error", "error code: 1033", "error 1033", "argo tunnel error", "cloudflare tunnel error"}

// reason returns the reason phrase of a status, "" if the table has none.
func reason(status int) string { return statusRules[status].reason }

// leadingStatus reads a status that a text begins with, in the two forms in
// which n8n and people write it: `422 - "…"` and `503 Service Unavailable`.
func leadingStatus(s string) (status int, rest string) {
	s = strings.TrimSpace(s)
	if len(s) < 4 || s[3] != ' ' {
		return 0, s
	}
	n, ok := digits(s[:3])
	if !ok || n < 100 || n > 599 {
		return 0, s
	}
	rest = strings.TrimSpace(s[4:])
	if after, ok := strings.CutPrefix(rest, "- "); ok {
		return int(n), strings.TrimSpace(after)
	}
	if phrase := reason(int(n)); phrase != "" && len(rest) >= len(phrase) && strings.EqualFold(rest[:len(phrase)], phrase) {
		return int(n), rest
	}
	return 0, s
}

// clientStatus reads the status out of an HTTP client's standard sentence. It
// must begin the text, since a body may quote another service's error.
func clientStatus(s string) int {
	s = strings.ToLower(bareMessage(s))
	for _, lead := range []string{"request failed with status code ", "response code ", "http status ", "http error ", "http ", "status code ", "status code: ", "statuscode: ", "statuscode="} {
		rest, ok := strings.CutPrefix(s, lead)
		if !ok || len(rest) < 3 || len(rest) > 3 && rest[3] >= '0' && rest[3] <= '9' {
			continue
		}
		if n, err := strconv.Atoi(rest[:3]); err == nil && n >= 400 && n <= 599 {
			return n
		}
	}
	return 0
}
