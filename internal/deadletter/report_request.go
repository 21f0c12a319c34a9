package deadletter

import (
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/failure"
	"holdfast/internal/identity"
)

// hidden is what n8n writes in place of its credentials.
const hidden = "**hidden**"

// readRequest reads the failing request, which n8n keeps in the error of an HTTP Request node. It returns where.
func (in *intake) readRequest(fault jsontext.Value) (path []string) {
	request, path := failingRequest(fault)
	r := in.report

	r.Method = strings.ToUpper(in.name(firstText(in.Text("method"), request.Text("method"))))
	uri := firstText(request.Text("uri"), request.Text("url"), in.Text("url"))
	if base := request.Text("baseURL"); base != "" && !strings.Contains(uri, "://") {
		uri = strings.TrimSuffix(base, "/") + "/" + strings.TrimPrefix(uri, "/")
	}
	uri = withQuery(uri, request.Members("qs"))
	r.URL = cut(failure.Visible(failure.Redact(uri, in.redact)), maxURL)

	r.IdempotencyKey = in.requestKey(request.Members("headers"))
	r.RequestBody = requestBody(request["body"])
	bodiless := r.Method == "GET" || r.Method == "HEAD"
	if bodiless && isEmpty(r.RequestBody) || hasToken(r.RequestBody) {
		r.RequestBody = nil
	}
	r.AtComplete = (r.Method == "" || r.Method == "POST") && isComplete(uri, request["body"])
	return path
}

// withQuery adds the query that n8n keeps beside the address. What a credential put there is left out: who sends the
// request again brings a credential too. How n8n wrote a list or an object is not known: such a value is masked, so that
// nobody takes the address for the one that was called.
func withQuery(uri string, query failure.Members) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(query)) {
		value := "[redacted]"
		switch v := query[name]; failure.Kind(v) {
		case '"', '0':
			value = strings.ReplaceAll(url.QueryEscape(scalar(v)), "+", "%20")
		case 't', 'f':
			value = string(v)
		}
		if name != hidden && scalar(query[name]) != hidden {
			pairs = append(pairs, strings.ReplaceAll(url.QueryEscape(name), "+", "%20")+"="+value)
		}
	}
	if len(pairs) == 0 {
		return uri
	}
	uri, fragment, found := strings.Cut(uri, "#")
	sign := "?"
	if strings.Contains(uri, "?") {
		sign = "&"
	}
	uri += sign + strings.Join(pairs, "&")
	if found {
		uri += "#" + fragment
	}
	return uri
}

// failingRequest finds the request: in the error itself, or in the one of a sub-workflow.
func failingRequest(fault jsontext.Value) (request failure.Members, path []string) {
	for range maxLayers {
		o := failure.ReadMembers(fault)
		if request := o.Members("context").Members("request"); request != nil {
			return request, append(path, "context", "request")
		}
		fault, path = o["errorResponse"], append(path, "errorResponse")
	}
	return nil, nil
}

// requestKey is the key under which the destination knows the request. One that was never filled in protects nothing,
// and one that was cut would be another: both are none.
func (in *intake) requestKey(headers failure.Members) string {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if !strings.EqualFold(name, "idempotency-key") {
			continue
		}
		v := headers[name]
		failure.Elements(headers[name], func(first jsontext.Value) bool {
			v = first
			return false
		})
		key := scalar(v)
		if key == "" || key == hidden {
			continue
		}
		if identity.CheckKey(key) == nil {
			return key
		}
		in.note("the request's "+name, in.shown(v))
	}
	return ""
}

// requestBody is what the request sent, as JSON. n8n has neither bytes nor forms in a form that can be sent again.
func requestBody(v jsontext.Value) []byte {
	switch failure.Kind(v) {
	case 0, 'n', '?':
		return nil
	case '"':
		text := strings.TrimSpace(failure.Unquote(v))
		if strings.HasPrefix(text, "Binary data got replaced") {
			return nil
		}
		if inside := jsontext.Value(text); strings.HasPrefix(text, "{") && inside.IsValid(lenient...) {
			v = inside
		}
	case '{':
		o := failure.ReadMembers(v)
		if o.Text("type") == "Buffer" && failure.Kind(o["data"]) == '[' || o["_boundary"] != nil && o["_streams"] != nil {
			return nil
		}
	}
	body, _ := keep(v)
	return body
}

func isEmpty(body []byte) bool {
	switch string(body) {
	case "{}", "[]", `""`:
		return true
	}
	return false
}

// isComplete tells whether a request went to this service's /complete. Other services have paths that end so too: the
// body must be one that ours takes. Where none is known, the path must be the whole path.
func isComplete(uri string, body jsontext.Value) bool {
	path, _, _ := strings.Cut(uri, "#")
	path, _, _ = strings.Cut(path, "?")
	path = strings.TrimRight(path, "/")
	if !strings.HasSuffix(path, "/complete") {
		return false
	}
	o := failure.ReadMembers(requestBody(body))
	if len(o) == 0 {
		_, after, _ := strings.Cut(path, "://")
		return strings.Count(after, "/") == 1
	}
	return o["lease_token"] != nil || o["source"] != nil && (o["idempotency_key"] != nil || o["reference"] != nil)
}

// leaseToken is a token of a claim or of a letter.
var leaseToken = regexp.MustCompile(`hf[tl]_[A-Za-z0-9_-]{48,54}`)

// hasToken tells whether a body is that of a call to this service about something leased. That is no input of anything,
// and the token in it is not to be shown.
func hasToken(body []byte) bool { return leaseToken.Match(body) }
