package failure_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/failure"
)

// The four ways in which a network report can come out, and the workflow's own.
var (
	notSent     = row{"", failure.Transient, yes, failure.NotExecuted, 0}
	maybeSent   = row{"", failure.Transient, yes, failure.Unknown, 0}
	unreadable  = row{"", failure.Unclassified, no, failure.Unknown, 0}
	certificate = row{"", failure.Unclassified, no, failure.NotExecuted, 0}
	misuse      = row{"", failure.Workflow, no, failure.NotExecuted, 0}
	ownCode     = row{"", failure.Workflow, no, failure.Unknown, 0}
)

// networkRows are the reports of Node, axios, undici and n8n about faults on
// the way, as they were measured: one POST each, the bytes that arrived counted.
var networkRows = []struct {
	name  string
	error string
	want  row
}{
	{"refused", `{"code":"ECONNREFUSED","syscall":"connect","message":"connect ECONNREFUSED 10.0.0.1:80"}`, notSent},
	{"refused, no system call", `{"code":"ECONNREFUSED"}`, notSent},
	{"no such host", `{"code":"ENOTFOUND","syscall":"getaddrinfo"}`, notSent},
	{"DNS for the moment", `{"code":"EAI_AGAIN","syscall":"getaddrinfo"}`, notSent},
	{"unreachable at connect", `{"code":"EHOSTUNREACH","syscall":"connect"}`, notSent},
	{"unreachable at connect, in the text", `{"code":"EHOSTUNREACH","message":"connect EHOSTUNREACH 10.0.0.1:443"}`, notSent},
	{"unreachable on an open connection", `{"code":"EHOSTUNREACH","syscall":"read"}`, maybeSent},
	{"unreachable, no system call", `{"code":"EHOSTUNREACH"}`, maybeSent},
	{"net unreachable at connect", `{"code":"ENETUNREACH","syscall":"connect"}`, notSent},
	{"no address at connect", `{"code":"EADDRNOTAVAIL","syscall":"connect"}`, notSent},
	{"firewall at connect", `{"code":"EACCES","syscall":"connect"}`, notSent},
	{"too many files at connect", `{"code":"EMFILE","syscall":"connect"}`, notSent},
	{"a file, not a connection", `{"code":"EACCES","syscall":"open"}`, unreadable},

	{"reset at connect", `{"code":"ECONNRESET","syscall":"connect"}`, notSent},
	{"reset in the TLS handshake", `{"code":"ECONNRESET","message":"Client network socket disconnected before secure TLS connection was established"}`, notSent},
	{"hang-up", `{"code":"ECONNRESET","message":"socket hang up"}`, maybeSent},
	{"reset at read", `{"code":"ECONNRESET","syscall":"read"}`, maybeSent},
	{"reset at read, in the text", `{"code":"ECONNRESET","message":"read ECONNRESET"}`, maybeSent},
	{"two system calls that differ", `{"httpCode":"ECONNRESET","name":"NodeApiError","messages":["connect ECONNRESET","read ECONNRESET"]}`, maybeSent},
	{"broken pipe", `{"code":"EPIPE","syscall":"write"}`, maybeSent},
	{"aborted after the headers", `{"code":"ECONNRESET","message":"aborted"}`, maybeSent},
	{"terminated after the headers", `{"name":"TypeError","message":"terminated","cause":{"name":"SocketError","code":"UND_ERR_SOCKET","message":"other side closed"}}`, maybeSent},

	{"axios time-out", `{"name":"AxiosError","code":"ECONNABORTED","message":"timeout of 10000ms exceeded"}`, maybeSent},
	{"axios time-out, clarified", `{"name":"AxiosError","code":"ETIMEDOUT","message":"timeout of 10000ms exceeded"}`, maybeSent},
	{"time-out at connect", `{"code":"ETIMEDOUT","syscall":"connect"}`, notSent},
	{"time-out at connect, in the text", `{"httpCode":"ETIMEDOUT","name":"NodeApiError","message":"The connection timed out, consider setting the 'Retry on Fail' option in the node settings","messages":["connect ETIMEDOUT 10.0.0.1:443"]}`, notSent},
	{"time-out at read", `{"code":"ETIMEDOUT","syscall":"read"}`, maybeSent},
	{"time-out, no system call", `{"code":"ETIMEDOUT"}`, maybeSent},
	{"request's time-out", `{"code":"ESOCKETTIMEDOUT"}`, maybeSent},

	{"undici connect time-out", `{"name":"TypeError","message":"fetch failed","cause":{"name":"ConnectTimeoutError","code":"UND_ERR_CONNECT_TIMEOUT","message":"Connect Timeout Error"}}`, notSent},
	{"undici headers time-out", `{"name":"TypeError","message":"fetch failed","cause":{"code":"UND_ERR_HEADERS_TIMEOUT"}}`, maybeSent},
	{"undici body time-out", `{"name":"TypeError","message":"terminated","cause":{"code":"UND_ERR_BODY_TIMEOUT"}}`, maybeSent},
	{"undici socket", `{"message":"fetch failed","cause":{"code":"UND_ERR_SOCKET","message":"other side closed","socket":{"bytesWritten":2210}}}`, maybeSent},
	{"undici socket, nothing written", `{"message":"fetch failed","cause":{"code":"UND_ERR_SOCKET","message":"other side closed","socket":{"bytesWritten":0}}}`, notSent},
	{"undici socket, bytes not said", `{"message":"fetch failed","cause":{"code":"UND_ERR_SOCKET"}}`, maybeSent},
	{"undici aborted", `{"code":"UND_ERR_ABORTED"}`, maybeSent},
	{"axios cancelled", `{"code":"ERR_CANCELED","message":"canceled"}`, maybeSent},
	{"AbortError", `{"name":"AbortError","message":"This operation was aborted","code":20}`, maybeSent},
	{"undici destroyed", `{"code":"UND_ERR_DESTROYED"}`, maybeSent},
	{"undici destroyed, nothing written", `{"code":"UND_ERR_DESTROYED","socket":{"bytesWritten":0}}`, notSent},
	{"undici closed", `{"code":"UND_ERR_CLOSED"}`, maybeSent},
	{"undici refused", `{"name":"TypeError","message":"fetch failed","cause":{"code":"ECONNREFUSED","syscall":"connect"}}`, notSent},
	{"fetch failed, no cause", `{"name":"TypeError","message":"fetch failed"}`, maybeSent},

	{"bad argument", `{"code":"UND_ERR_INVALID_ARG"}`, misuse},
	{"bad address", `{"code":"ERR_INVALID_URL","message":"Invalid URL"}`, misuse},
	{"bad header", `{"code":"ERR_INVALID_CHAR"}`, misuse},
	{"bad path", `{"code":"ERR_UNESCAPED_CHARACTERS"}`, misuse},
	{"body shorter than said", `{"code":"UND_ERR_REQ_CONTENT_LENGTH_MISMATCH"}`, misuse},

	{"answer shorter than said", `{"code":"UND_ERR_RES_CONTENT_LENGTH_MISMATCH"}`, unreadable},
	{"answer too large", `{"code":"UND_ERR_RES_EXCEEDED_MAX_SIZE"}`, unreadable},
	{"headers too large", `{"code":"UND_ERR_HEADERS_OVERFLOW"}`, unreadable},
	{"axios: answer too large", `{"name":"AxiosError","code":"ERR_BAD_RESPONSE","message":"maxContentLength size of 2000 exceeded"}`, unreadable},
	{"answer is not HTTP", `{"code":"HPE_INVALID_CONSTANT","message":"Parse Error: Expected HTTP/"}`, unreadable},
	{"answer is not JSON", `"Invalid JSON in response body"`, unreadable},
	{"answer is not JSON, from a parser", `"Unexpected token < in JSON at position 0"`, unreadable},
	{"redirects in circles", `{"code":"ERR_FR_TOO_MANY_REDIRECTS","message":"Maximum number of redirects exceeded"}`, unreadable},
	{"redirects in circles, undici", `{"message":"fetch failed","cause":{"message":"redirect count exceeded"}}`, unreadable},

	{"self-signed", `{"name":"NodeApiError","httpCode":"DEPTH_ZERO_SELF_SIGNED_CERT","messages":["self-signed certificate"]}`, certificate},
	{"self-signed in the chain", `{"code":"SELF_SIGNED_CERT_IN_CHAIN"}`, certificate},
	{"leaf not verified", `{"code":"UNABLE_TO_VERIFY_LEAF_SIGNATURE"}`, certificate},
	{"no issuer", `{"code":"UNABLE_TO_GET_ISSUER_CERT_LOCALLY"}`, certificate},
	{"expired", `{"code":"CERT_HAS_EXPIRED"}`, certificate},
	{"another name", `{"code":"ERR_TLS_CERT_ALTNAME_INVALID"}`, certificate},
	{"certificate in words", `"unable to verify the first certificate; if the root CA is installed locally, try running Node.js with --use-system-ca"`, certificate},
	{"not TLS", `{"code":"EPROTO","message":"write EPROTO 407DC5D0D87F0000:error:0A00010B:SSL routines::wrong version number"}`, notSent},
	{"not TLS, OpenSSL's code", `{"code":"ERR_SSL_WRONG_VERSION_NUMBER"}`, notSent},
	{"client certificate wanted", `{"code":"ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED"}`, certificate},
	{"client certificate wanted, EPROTO", `{"code":"EPROTO","message":"write EPROTO error:0A00045C:SSL routines::tlsv13 alert certificate required"}`, certificate},
	{"record broken on the way", `{"code":"EPROTO","message":"read EPROTO error:0A000119:SSL routines::decryption failed or bad record mac"}`, maybeSent},

	{"tunnel refused with 502", `{"message":"tunneling socket could not be established, statusCode=502"}`, notSent},
	{"tunnel refused with 407", `{"message":"tunneling socket could not be established, statusCode=407"}`, row{"", failure.Auth, no, failure.NotExecuted, 0}},
	{"tunnel not made", `{"message":"tunneling socket could not be established, cause=connect ECONNREFUSED 10.0.0.9:3128"}`, notSent},
	{"tunnel refused, undici", `{"message":"fetch failed","cause":{"message":"Request was cancelled.","cause":{"name":"AbortError","code":"UND_ERR_ABORTED","message":"Proxy response (407) !== 200 when HTTP Tunneling"}}}`, row{"", failure.Auth, no, failure.NotExecuted, 0}},

	{"all addresses refused", `{"name":"AggregateError","code":"ECONNREFUSED","errors":[{"code":"ECONNREFUSED","syscall":"connect"},{"code":"ENETUNREACH","syscall":"connect"}]}`, notSent},
	{"all addresses silent", `{"message":"fetch failed","cause":{"name":"AggregateError","code":"ETIMEDOUT","errors":[{"code":"ETIMEDOUT","syscall":"connect"},{"message":"connect ENETUNREACH ::1:443"}]}}`, notSent},
	{"one address was connected", `{"name":"AggregateError","code":"ECONNREFUSED","errors":[{"code":"ECONNREFUSED","syscall":"connect"},{"code":"ECONNRESET","syscall":"read"}]}`, maybeSent},
	{"one address says nothing", `{"name":"AggregateError","code":"ECONNREFUSED","errors":[{"code":"ECONNREFUSED","syscall":"connect"},{}]}`, maybeSent},

	// n8n's own words, without a code: picked by substring, so no proof.
	{"n8n: refused", `"The service refused the connection - perhaps it is offline"`, maybeSent},
	{"n8n: aborted", `"The connection was aborted, perhaps the server is offline"`, maybeSent},
	{"n8n: no host", `"The connection cannot be established, this usually occurs due to an incorrect host (domain) value"`, maybeSent},
	{"n8n: closed", `"The connection to the server was closed unexpectedly, perhaps it is offline. You can retry the request immediately or wait and retry later."`, maybeSent},
	{"n8n: closed, older", `"The connection to the server wes closed unexpectedly, perhaps it is offline."`, maybeSent},
	{"n8n: raw text wins", `{"name":"NodeApiError","message":"The service refused the connection - perhaps it is offline","messages":["socket hang up"]}`, maybeSent},
	{"n8n: a 4xx without own text", `"Your request is invalid or could not be processed by the service"`, row{"", failure.Validation, no, failure.Unknown, 0}},
	{"n8n: 401", `"Authorization failed - please check your credentials"`, row{"", failure.Auth, no, failure.NotExecuted, 401}},
	{"n8n: 503", `"Service unavailable - try again later or consider setting this node to retry automatically (in the node settings)"`, row{"", failure.Transient, yes, failure.Unknown, 503}},

	// Texts alone. Only libuv's form at the beginning is this request's own.
	{"libuv's text", `"connect ECONNREFUSED 127.0.0.1:1"`, notSent},
	{"with its class", `"Error: connect ECONNREFUSED 127.0.0.1:1"`, notSent},
	{"node-fetch's text", `"FetchError: request to http://a/b failed, reason: connect ECONNREFUSED 127.0.0.1:1"`, notSent},
	{"a destination quotes one", `"upstream said: connect ECONNREFUSED 10.0.0.5:5432"`, maybeSent},
	{"aborted", `"aborted"`, maybeSent},
	{"bad address in words", `"Invalid URL: nope. URL must start with \"http\" or \"https\"."`, misuse},
}

func TestNetwork(t *testing.T) {
	t.Parallel()
	for _, tt := range networkRows {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			want := tt.want
			want.name = tt.name
			check(t, want, failure.Classify(failure.Input{Error: jsontext.Value(tt.error), Method: "POST"}))

			// In the envelopes of n8n it is the same.
			trigger := `{"execution":{"id":"1","error":` + tt.error + `,"lastNodeExecuted":"Call"},"workflow":{"id":"w"}}`
			got := failure.Classify(failure.Input{Error: jsontext.Value(trigger)})
			check(t, want, got)
			if !strings.Contains(got.Summary, " at Call") {
				t.Errorf("the summary does not name the node: %s", got.Summary)
			}
			check(t, want, failure.Classify(failure.Input{Error: jsontext.Value("[" + trigger + "]")}))

			// A request that only reads did nothing.
			want.outcome = failure.NotExecuted
			check(t, want, failure.Classify(failure.Input{Error: jsontext.Value(tt.error), Method: "get"}))
		})
	}
}

// TestStatusBesideNetworkCode covers answers that broke off: the status was
// seen, so the request had arrived.
func TestStatusBesideNetworkCode(t *testing.T) {
	t.Parallel()
	aborted := `{"name":"AxiosError","code":"ECONNRESET","message":"aborted","response":{"status":200}}`
	check(t, row{"aborted 200", failure.Transient, yes, failure.Unknown, 200}, failure.Classify(failure.Input{Error: jsontext.Value(aborted)}))

	refused := `{"code":"ECONNREFUSED","syscall":"connect","response":{"status":200}}`
	check(t, row{"contradiction", failure.Transient, yes, failure.Unknown, 200}, failure.Classify(failure.Input{Error: jsontext.Value(refused)}))

	quoted := `{"name":"NodeApiError","httpCode":"500","message":"The service refused the connection - perhaps it is offline","messages":["500 - \"connect ECONNREFUSED 10.0.0.5:5432\""]}`
	check(t, row{"a 500 that quotes", failure.Transient, yes, failure.Unknown, 500}, failure.Classify(failure.Input{Error: jsontext.Value(quoted)}))

	tunnel := `{"message":"tunneling socket could not be established, statusCode=502"}`
	check(t, row{"the caller's status wins", failure.Transient, yes, failure.Unknown, 502},
		failure.Classify(failure.Input{Error: jsontext.Value(tunnel), HTTPStatus: 502}))
}
