package deadletter

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/failure"
)

const (
	crashed = "WorkflowCrashedError"
	// maxLayers bounds how far errors inside of errors are followed.
	maxLayers = 8
)

// fault is the error itself: what n8n says of the run, or the sender's error, or the members of the flat form that
// make one. nil where there is none.
func (in *intake) fault() jsontext.Value {
	for _, v := range []jsontext.Value{in.run["error"], in.Members["error"], in.Members["error_message"]} {
		if k := failure.Kind(v); k == '{' || k == '[' {
			return v
		}
	}
	if v := in.run["error"]; scalar(v) != "" {
		return v
	}
	return in.flatFault()
}

// flatMembers make the error of the flat form.
var flatMembers = []string{"error_name", "error_message", "error_stack", "error_description", "description", "error_code", "code"}

func (in *intake) flatFault() jsontext.Value {
	var out bytes.Buffer
	to := jsontext.NewEncoder(&out, append(lenient, jsontext.PreserveRawStrings(true))...)
	write := func(name string, v jsontext.Value) {
		if scalar(v) == "" {
			return
		}
		v, _ = keep(v)
		_ = to.WriteToken(jsontext.String(name))
		_ = to.WriteValue(v) // keep has made it valid
	}
	_ = to.WriteToken(jsontext.BeginObject)
	for _, name := range flatMembers {
		v := in.Members[name]
		if name == "error_message" && scalar(v) == "" {
			v = in.Members["error"]
		}
		write(name, v)
	}
	// n8n has network codes where a status is expected.
	if _, isNumber := in.Number("http_status"); !isNumber {
		write("httpCode", in.Members["http_status"])
	}
	_ = to.WriteToken(jsontext.EndObject)
	if v := bytes.TrimSpace(out.Bytes()); len(v) > len("{}") {
		return v
	}
	return nil
}

// isCrash tells whether n8n found the run broken off when it started again.
func isCrash(fault jsontext.Value) bool {
	o := failure.ReadMembers(fault)
	return o.Text("name") == crashed || o.Text("error_name") == crashed
}

// storedError is the error as it is kept: redacted, and cut to size. The failing request's body is left out of it
// where it is the payload too: that is shown to fewer people, and not kept for as long.
func (in *intake) storedError(fault jsontext.Value, request []string) []byte {
	if isNull(fault) {
		return nil
	}
	r := in.report
	isPayload := len(r.Payload) == 0 || bytes.Equal(r.Payload, r.RequestBody)
	if len(r.RequestBody) > 0 && isPayload {
		if start, end, ok := failure.Place(fault, append(request, "body")...); ok {
			fault = bytes.Join([][]byte{fault[:start], []byte(`"[kept as the payload]"`), fault[end:]}, nil)
		}
	}
	kept := jsontext.Value(bytes.ToValidUTF8(failure.RedactJSON(fault, in.redact), []byte("\uFFFD")))
	if !kept.IsValid(lenient...) {
		kept = quote(kept)
	}
	return shorten(kept, maxError)
}

// ownCodes are the refusals of this service that say how a run ended: another one took over, or is done.
var ownCodes = map[string]bool{"lease_lost": true, "lease_live": true, "result_conflict": true}

// refusalMembers are where n8n puts the answer that a node got.
var refusalMembers = []string{"messages", "message", "description", "body", "data", "details", "response", "error", "errorResponse", "error_message"}

// ownRefusal is the code of one of this service's own refusals, where such an answer is the error. Text that only
// speaks of one is not: the answer must be there in its own shape.
func ownRefusal(v jsontext.Value, depth int) (code string) {
	if depth > maxLayers {
		return ""
	}
	switch failure.Kind(v) {
	case '"':
		text := strings.TrimSpace(failure.Unquote(v))
		text = strings.TrimPrefix(text, "409 - ") // as n8n writes it
		if strings.HasPrefix(text, "{") || strings.HasPrefix(text, `"{`) {
			return ownRefusal(jsontext.Value(text), depth+1)
		}
	case '[':
		failure.Elements(v, func(each jsontext.Value) bool {
			code = ownRefusal(each, depth+1)
			return code == ""
		})
	case '{':
		o := failure.ReadMembers(v)
		status, _ := o.Number("status")
		if status == 409 && ownCodes[o.Text("code")] && o.Text("message") != "" && o.Text("request_id") != "" {
			return o.Text("code")
		}
		for _, name := range refusalMembers {
			if code = ownRefusal(o[name], depth+1); code != "" {
				return code
			}
		}
	}
	return code
}
