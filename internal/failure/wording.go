package failure

import "strings"

// phrase is one row of the table of texts: the last resort, for reports that
// carry neither a status nor a code.
type phrase struct {
	how  match
	text string // lower case
	finding
}

type match uint8

const (
	is match = iota
	begins
	contains
)

func (p phrase) fits(s string) bool {
	switch p.how {
	case is:
		return s == p.text
	case begins:
		return strings.HasPrefix(s, p.text)
	}
	return strings.Contains(s, p.text)
}

// phrases stand in order: the specific before the general. A row that promises
// "not executed" must match the beginning, because a destination may quote the
// same words about a service of its own.
var phrases = []phrase{
	// Before anything was sent.
	{begins, "client network socket disconnected before secure tls connection was established", notSent},
	{begins, "connect timeout error", notSent}, // undici

	// Certificates, in the words of Node and OpenSSL. Node 24 appends advice.
	{begins, "self-signed certificate", certificate},
	{begins, "self signed certificate", certificate},
	{begins, "unable to verify the first certificate", certificate},
	{begins, "unable to get local issuer certificate", certificate},
	{begins, "unable to get issuer certificate", certificate},
	{begins, "certificate has expired", certificate},
	{begins, "certificate is not yet valid", certificate},
	{begins, "hostname/ip does not match certificate's altnames", certificate},
	{begins, "ssl issue:", certificate}, // n8n's NodeSslError

	// The node could not make its request (measured on n8n 2.41).
	{begins, "invalid url", misuse},
	{begins, "unsupported protocol", misuse},
	{begins, `the value in the "json body" field is not valid json`, misuse},
	{begins, "json parameter need", misuse},
	{begins, "credential with id ", misuse},
	{begins, "node does not have any credentials set", misuse},
	{begins, "credentials not found", misuse},
	{begins, "the request was blocked because it resolves to a restricted ip", misuse},
	{begins, "access to env vars denied", misuse},
	{begins, "referenced node doesn't exist", misuse},

	// The workflow's code.
	{begins, "code doesn't return items properly", ownCode},
	{begins, "cannot read properties of", ownCode},

	// The execution ended; its request may go on.
	{begins, "workflow did not finish", nobodyKnows},
	{begins, "the execution was cancel", nobodyKnows},

	// An answer that cannot be read, or that leads in circles.
	{begins, "invalid json in response body", unreadable},
	{begins, "response body is not valid json", unreadable},
	{begins, "unexpected token", unreadable},
	{begins, "unexpected end of json input", unreadable},
	{contains, "maxcontentlength size of", unreadable},
	{begins, "parse error:", unreadable}, // llhttp
	{contains, "redirect count exceeded", unreadable},
	{contains, "number of redirects exceeded", unreadable},
	{contains, "too many redirects", unreadable},

	// The connection broke at an unknown moment.
	{contains, "socket hang up", maybeSent},
	{contains, "other side closed", maybeSent},
	{contains, "premature close", maybeSent},
	{contains, "connection reset", maybeSent},
	{contains, "connection refused", maybeSent}, // whose connection it was is not said
	{contains, "operation was aborted", maybeSent},
	{is, "aborted", maybeSent}, // n8n: time-out while reading the body
	{is, "terminated", maybeSent},
	{is, "canceled", maybeSent},
	{begins, "request aborted", maybeSent},
	{begins, "request was cancelled", maybeSent},
	{begins, "network error", maybeSent},
	{begins, "fetch failed", maybeSent},
	{is, "timeout", maybeSent},
	{contains, "timeout of ", maybeSent},
	{contains, "timeout exceeded", maybeSent},
	{contains, "timeout error", maybeSent},
	{contains, "timed out", maybeSent},
	{contains, "deadline exceeded", maybeSent},

	// n8n's replacements (packages/workflow, node.error.ts), where they came
	// alone. n8n picks them by substring, so that they do not prove that it
	// was this connection that failed.
	{begins, "the service refused the connection", maybeSent},
	{begins, "the connection to the server w", maybeSent}, // "was closed", with an old misspelling
	{begins, "the connection cannot be established", maybeSent},
	{begins, "the connection timed out", maybeSent},
	{begins, "the connection was aborted", maybeSent},
	{begins, "the host is unreachable", maybeSent},
	{begins, "the address is not available", maybeSent},
	{begins, "the dns server returned", maybeSent},
	{begins, "the server closed the connection unexpectedly", maybeSent},
	{begins, "your request is invalid or could not be processed by the service", finding{Validation, false, Unknown}}, // any 4xx, 408 and 409 too
}

// statusPhrases are the texts that n8n puts in place of one certain status
// (packages/workflow, node-api.error.ts).
var statusPhrases = []struct {
	text   string
	status int
}{
	{"bad request - please check your parameters", 400},
	{"authorization failed - please check your credentials", 401},
	{"payment required - perhaps check your payment details", 402},
	{"forbidden - perhaps check your credentials", 403},
	{"the resource you are requesting could not be found", 404},
	{"method not allowed - please check you are using the right http method", 405},
	{"the service is receiving too many requests from you", 429},
	{batchingHint, 429},
	{"the service was not able to process your request", 500},
	{"bad gateway - the service failed to handle your request", 502},
	{"service unavailable - ", 503},
	{"gateway timed out - perhaps try again later", 504},
}

// batchingHint is what n8n writes over the raw text of a 429.
const batchingHint = "try spacing your requests out using the batching settings"

// bareMessage takes the class off the front: "NodeApiError: text" is "text", as
// is node-fetch's "request to … failed, reason: text".
func bareMessage(s string) string {
	s = strings.TrimSpace(s)
	for range 4 {
		class, rest, ok := strings.Cut(s, ": ")
		if !ok || strings.ContainsAny(class, " \n") || !strings.HasSuffix(class, "Error") {
			break
		}
		s = strings.TrimSpace(rest)
	}
	if strings.HasPrefix(s, "request to ") {
		if _, rest, ok := strings.Cut(s, " failed, reason: "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return s
}

func (r *report) judgeWording() (finding, bool) {
	var texts []string
	r.eachText(func(s string) bool {
		texts = append(texts, strings.ToLower(bareMessage(head(s, maxScan))))
		return true
	})
	for _, p := range phrases {
		for _, s := range texts {
			if p.fits(s) {
				return p.finding, true
			}
		}
	}
	return finding{}, false
}

// statusOrText is the report's error status; else one that its texts name in a
// fixed form; else a status below 400 that was seen.
func (r *report) statusOrText() int {
	if r.status != 0 {
		return r.status
	}
	status := 0
	if len(r.faults) == 0 && r.textsAreTheClients() {
		r.eachText(func(s string) bool {
			status = textStatus(s)
			return status == 0
		})
	}
	if status != 0 {
		return status
	}
	return r.seen
}

func textStatus(s string) int {
	s = head(s, maxScan)
	if n, _ := leadingStatus(bareMessage(s)); n >= 400 {
		return n
	}
	if n := clientStatus(s); n != 0 {
		return n
	}
	low := strings.ToLower(bareMessage(s))
	for _, p := range statusPhrases {
		if strings.HasPrefix(low, p.text) {
			return p.status
		}
	}
	return 0
}

// judgeProxy recognises a proxy that refused to make the tunnel: the request
// never reached its destination, whatever status the proxy gave.
func (r *report) judgeProxy() (f finding, ok bool) {
	r.eachText(func(s string) bool {
		s = strings.ToLower(bareMessage(head(s, maxScan)))
		rest, node := strings.CutPrefix(s, "tunneling socket could not be established")
		after, undici := strings.CutPrefix(s, "proxy response (")
		if ok = node || undici && strings.Contains(after, "http tunneling"); !ok {
			return true
		}
		f = notSent
		if undici {
			rest = "statuscode=" + after
		}
		if _, code, cut := strings.Cut(rest, "statuscode="); cut && len(code) >= 3 {
			if n, digit := digits(code[:3]); digit && statusRules[int(n)].class != "" {
				f = statusRules[int(n)].finding
				f.outcome = NotExecuted
			}
		}
		return false
	})
	return f, ok
}
