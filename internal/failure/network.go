package failure

import "strings"

// sent says when the fault that a network code names can strike.
type sent uint8

const (
	before    sent = iota + 1 // always before the request
	atConnect                 // before it if the system call was connect, else at any time
	localCall                 // the same; but without connect it is no network fault (a file, a socket limit)
	anytime                   // at any time
	answered                  // after the request: the answer is no use, and time does not mend it
	tlsRefuse                 // before it, by a certificate: no time mends it
	malformed                 // before it: the request could not be made
)

// networkCodes are the codes of Node, libuv, axios, undici, follow-redirects
// and OpenSSL, each measured or read in its source. Codes that are missing here
// (ERR_BAD_REQUEST, an API's own words) say nothing about the network.
var networkCodes = map[string]sent{
	"ECONNREFUSED": before,
	"ENOTFOUND":    before,
	"EAI_AGAIN":    before,
	"EAI_FAIL":     before,
	"EAI_NODATA":   before,
	"EAI_NONAME":   before,
	"ESERVFAIL":    before,

	"EHOSTUNREACH":  atConnect,
	"EHOSTDOWN":     atConnect,
	"ENETUNREACH":   atConnect,
	"ENETDOWN":      atConnect,
	"EADDRNOTAVAIL": atConnect,
	"ECONNRESET":    atConnect,
	"ETIMEDOUT":     atConnect,
	"EACCES":        localCall,
	"EPERM":         localCall,
	"EMFILE":        localCall,
	"ENFILE":        localCall,
	"ENOBUFS":       localCall,
	"EADDRINUSE":    localCall,

	"EPIPE":                      anytime,
	"ECONNABORTED":               anytime, // axios' time-out: also a TLS handshake that never ended
	"ESOCKETTIMEDOUT":            anytime,
	"ENOTCONN":                   anytime,
	"ERR_CANCELED":               anytime,
	"ERR_NETWORK":                anytime,
	"ERR_STREAM_PREMATURE_CLOSE": anytime,
	"ERR_SOCKET_CLOSED":          anytime,
	"ERR_HTTP2_STREAM_ERROR":     anytime,
	"ERR_HTTP2_SESSION_ERROR":    anytime,
	"ERR_HTTP_REQUEST_TIMEOUT":   anytime,
	"ABORT_ERR":                  anytime,

	"UND_ERR_CONNECT_TIMEOUT": before, // the TLS handshake included
	"UND_ERR_HEADERS_TIMEOUT": anytime,
	"UND_ERR_BODY_TIMEOUT":    anytime,
	"UND_ERR_SOCKET":          anytime, // not sent only if bytesWritten is 0
	"UND_ERR_ABORTED":         anytime,
	"UND_ERR_DESTROYED":       anytime, // as UND_ERR_SOCKET
	"UND_ERR_CLOSED":          anytime, // as UND_ERR_SOCKET
	"UND_ERR_INFO":            anytime,

	"UND_ERR_INVALID_ARG":                 malformed,
	"UND_ERR_REQ_CONTENT_LENGTH_MISMATCH": malformed, // written in part: no server can have acted on it
	"ERR_INVALID_URL":                     malformed,
	"ERR_INVALID_CHAR":                    malformed,
	"ERR_INVALID_PROTOCOL":                malformed,
	"ERR_INVALID_HTTP_TOKEN":              malformed,
	"ERR_HTTP_INVALID_HEADER_VALUE":       malformed,
	"ERR_UNESCAPED_CHARACTERS":            malformed,
	"ERR_BAD_OPTION":                      malformed,
	"ERR_BAD_OPTION_VALUE":                malformed,

	"UND_ERR_RES_CONTENT_LENGTH_MISMATCH": answered,
	"UND_ERR_RES_EXCEEDED_MAX_SIZE":       answered,
	"UND_ERR_HEADERS_OVERFLOW":            answered,
	"ERR_BAD_RESPONSE":                    answered, // without a status: axios' maxContentLength
	"ERR_CONTENT_DECODING_FAILED":         answered,
	"Z_DATA_ERROR":                        answered,
	"Z_BUF_ERROR":                         answered,
	"ERR_FR_TOO_MANY_REDIRECTS":           answered, // a 307 loop delivered the POST 21 times
	"ERR_FR_REDIRECTION_FAILURE":          answered,
	"UND_ERR_MAX_REDIRECTS":               answered,

	"DEPTH_ZERO_SELF_SIGNED_CERT":                  tlsRefuse,
	"SELF_SIGNED_CERT_IN_CHAIN":                    tlsRefuse,
	"UNABLE_TO_VERIFY_LEAF_SIGNATURE":              tlsRefuse,
	"UNABLE_TO_GET_ISSUER_CERT":                    tlsRefuse,
	"UNABLE_TO_GET_ISSUER_CERT_LOCALLY":            tlsRefuse,
	"UNABLE_TO_GET_CRL":                            tlsRefuse,
	"UNABLE_TO_DECRYPT_CERT_SIGNATURE":             tlsRefuse,
	"CERT_HAS_EXPIRED":                             tlsRefuse,
	"CERT_NOT_YET_VALID":                           tlsRefuse,
	"CERT_CHAIN_TOO_LONG":                          tlsRefuse,
	"CERT_REVOKED":                                 tlsRefuse,
	"CERT_REJECTED":                                tlsRefuse,
	"CERT_UNTRUSTED":                               tlsRefuse,
	"CERT_SIGNATURE_FAILURE":                       tlsRefuse,
	"INVALID_CA":                                   tlsRefuse,
	"INVALID_PURPOSE":                              tlsRefuse,
	"PATH_LENGTH_EXCEEDED":                         tlsRefuse,
	"HOSTNAME_MISMATCH":                            tlsRefuse,
	"ERR_TLS_CERT_ALTNAME_INVALID":                 tlsRefuse,
	"ERR_TLS_CERT_ALTNAME_FORMAT":                  tlsRefuse,
	"ERR_TLS_CERT_SIGNATURE_ALGORITHM_UNSUPPORTED": tlsRefuse,
}

// fault is one network code with what else the report says about it.
type fault struct {
	code         string
	syscall      string // "connect", "read", …; "" where it is not said
	bytesWritten int64  // by the socket, -1 where it is not said
	mentioned    bool   // found inside a text, which may quote another service
}

// judgeNetwork judges by network codes. Of several (Node tries all addresses of
// a name and collects the errors) the request was not sent only if each says so.
func (r *report) judgeNetwork() (finding, bool) {
	faults := r.parts
	if len(faults) == 0 {
		faults = r.faults
		if len(faults) == 0 {
			faults = r.faultsInTexts()
		}
		if len(faults) > 1 {
			faults = faults[:1] // the others are causes: the same fault again
		}
	}
	if len(faults) == 0 {
		return finding{}, false
	}
	result, ok := r.judgeOne(faults[0])
	for _, each := range faults[1:] {
		f, known := r.judgeOne(each)
		ok = ok || known
		if !known || f.outcome == Unknown {
			result.outcome = Unknown
		}
		if f.retryable && !result.retryable { // one address may heal
			result.class, result.retryable = f.class, true
		}
	}
	return result, ok
}

func (r *report) judgeOne(f fault) (finding, bool) {
	when, ok := timing(f.code)
	if !ok {
		return nobodyKnows, false
	}
	var result finding
	switch when {
	case before:
		result = notSent
	case atConnect, localCall:
		result = r.judgeCall(f, when)
	case anytime:
		result = maybeSent
		if f.bytesWritten == 0 {
			result = notSent
		}
	case answered:
		result = unreadable
	case tlsRefuse:
		result = certificate
	case malformed:
		result = misuse
	}
	if f.code == "EPROTO" {
		result = r.judgeTLS(result)
	}
	if f.mentioned {
		result.outcome = Unknown
	}
	return result, true
}

// judgeCall judges the codes for which the system call decides.
func (r *report) judgeCall(f fault, when sent) finding {
	call := f.syscall
	if call == "" {
		call = r.syscallInTexts(f.code)
	}
	switch {
	case call == "connect":
		return notSent
	case f.code == "ECONNRESET" && r.saysAny([]string{beforeTLS}):
		return notSent
	case when == localCall:
		return nobodyKnows
	}
	return maybeSent
}

// beforeTLS is Node's text for a peer that hangs up during the handshake.
const beforeTLS = "before secure tls connection was established"

// judgeTLS looks behind EPROTO, which OpenSSL's every complaint becomes: a
// certificate will not mend itself, and a broken record can come at any time.
func (r *report) judgeTLS(f finding) finding {
	switch {
	case r.saysAny([]string{"bad record mac", "decryption failed", "bad decrypt"}):
		return maybeSent
	case r.saysAny([]string{"certificate", "unknown ca"}):
		return certificate
	}
	return f
}

// timing looks a code up; the open-ended families are known by their prefix.
func timing(code string) (sent, bool) {
	if when, ok := networkCodes[code]; ok {
		return when, true
	}
	switch {
	case code == "EPROTO":
		return before, true
	case strings.HasPrefix(code, "HPE_"): // the answer is not HTTP
		return answered, true
	case strings.HasPrefix(code, "ERR_SSL_"):
		return tlsTiming(code), true
	}
	return 0, false
}

func tlsTiming(code string) sent {
	switch {
	case strings.Contains(code, "RECORD_MAC"), strings.Contains(code, "DECRYPT"):
		return anytime
	case strings.Contains(code, "CERTIFICATE"), strings.Contains(code, "UNKNOWN_CA"):
		return tlsRefuse
	}
	return before
}

// looksLikeCode says whether a text is written like a code: ECONNRESET.
func looksLikeCode(s string) bool {
	return len(s) >= 4 && len(s) <= 64 && s[0] >= 'A' && s[0] <= 'Z' &&
		strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// maxScan bounds how much of one text is searched for codes and phrases: they
// stand at its beginning, and a destination's page can be a megabyte.
const maxScan = 16 << 10

// faultsInTexts finds a network code in the texts, for reports that have it
// nowhere else. Only where the text begins with libuv's form ("connect
// ECONNREFUSED 10.0.0.1:80") is it this request's own; else it is a mention.
func (r *report) faultsInTexts() []fault {
	var found []fault
	r.eachText(func(s string) bool {
		own := strings.Fields(bareMessage(head(s, maxScan)))
		if len(own) >= 2 && isWord(own[0]) && known(own[1]) {
			found = []fault{{code: strings.Trim(own[1], ":,;"), syscall: own[0], bytesWritten: -1}}
			return false
		}
		for _, word := range own {
			if found == nil && known(word) {
				found = []fault{{code: strings.Trim(word, "()[]:,;."), bytesWritten: -1, mentioned: true}}
			}
		}
		return true
	})
	return found
}

func known(word string) bool {
	code := strings.Trim(word, "()[]:,;.")
	if !looksLikeCode(code) {
		return false
	}
	_, ok := timing(code)
	return ok
}

// syscallInTexts finds the system call that libuv writes before a code. It is
// "" unless all places agree.
func (r *report) syscallInTexts(code string) string {
	call, agreed := "", true
	r.eachText(func(s string) bool {
		words := strings.Fields(head(s, maxScan))
		for i := 1; i < len(words); i++ {
			if strings.Trim(words[i], "()[]:,;.") != code || !isWord(words[i-1]) {
				continue
			}
			if call != "" && call != words[i-1] {
				agreed = false
			}
			call = words[i-1]
		}
		return true
	})
	if !agreed {
		return ""
	}
	return call
}

func isWord(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz") == ""
}

// head returns at most the first n bytes.
func head(s string, n int) string { return s[:min(len(s), n)] }
