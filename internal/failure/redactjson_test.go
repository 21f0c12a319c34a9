package failure_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/failure"
)

var redactJSONRows = []struct{ name, in, want string }{
	{"members", `{"token":"abc","a":{"Password":"x","n":1}}`, `{"token":"[redacted]","a":{"Password":"[redacted]","n":1}}`},
	{"numbers", `{"password":12345,"pin":1.5e3,"tokens":7}`, `{"password":"[redacted]","pin":"[redacted]","tokens":7}`},
	{"containers", `{"cookies":{"a":"b"},"token":["x"],"a":1}`, `{"cookies":"[redacted]","token":"[redacted]","a":1}`},
	{"tokens of a model", `{"tokens":[1,2,{"n":3}]}`, `{"tokens":[1,2,{"n":3}]}`},
	{"tokens of a session", `{"tokens":["abc",{"a":"b","n":1}]}`, `{"tokens":["[redacted]",{"a":"[redacted]","n":1}]}`},
	{"nothing in it", `{"token":null,"secret":"","password":true,"cookie":false}`, `{"token":null,"secret":"","password":true,"cookie":false}`},
	{"looked into", `{"credentials":{"httpBearerAuth":{"id":"x","name":"Sidecar"}},"auth":{"user":"joe","pass":"abc"}}`, `{"credentials":{"httpBearerAuth":{"id":"x","name":"Sidecar"}},"auth":{"user":"joe","pass":"[redacted]"}}`},
	{"credentials as text", `{"credentials":"abc","auth":"joe:abc"}`, `{"credentials":"[redacted]","auth":"[redacted]"}`},
	{"a name in escapes", `{"\u0074oken":"abc"}`, `{"\u0074oken":"[redacted]"}`},
	{"a value in escapes", `{"a":"\u0074oken=abc"}`, `{"a":"token=[redacted]"}`},
	{"a text with secrets", `{"a":"see https://u:p@h/?token=x"}`, `{"a":"see https://u:[redacted]@h/?token=[redacted]"}`},
	{"JSON inside a text", `{"a":"422 - \"{\\\"token\\\":\\\"abc\\\"}\""}`, `{"a":"422 - \"{\\\"token\\\":\\\"[redacted]\\\"}\""}`},
	{"an escaped NUL beside one", `{"a":"\u0000 token=abc"}`, `{"a":"\u0000 token=[redacted]"}`},
	{"cards", `{"pan":4111111111111111,"t":1796063811788,"s":"4111 1111 1111 1111"}`, `{"pan":"[redacted]","t":1796063811788,"s":"[redacted]"}`},
	{"n8n's parameters", `[{"name":"Authorization","value":"Bearer literal-secret"},{"value":"literal2","name":"X-Custom-Secret"},{"name":"Accept","value":"x"}]`, `[{"name":"Authorization","value":"[redacted]"},{"value":"[redacted]","name":"X-Custom-Secret"},{"name":"Accept","value":"x"}]`},
	{"a pair with key", `{"key":"api_key","value":["a","b"],"values":{"c":1}}`, `{"key":"api_key","value":"[redacted]","values":"[redacted]"}`},
	{"a pair with nothing", `{"name":"token","value":null,"x":[1]}`, `{"name":"token","value":null,"x":[1]}`},
	{"pairs in a pair", `{"value":{"name":"a","value":[{"value":"x","name":"token"}]},"name":"b"}`, `{"value":{"name":"a","value":[{"value":"[redacted]","name":"token"}]},"name":"b"}`},
	{"raw headers", `["Host","h","Authorization","abc","Set-Cookie","sid=1","x"]`, `["Host","h","Authorization","[redacted]","Set-Cookie","[redacted]","x"]`},
	{"header entries", `[["cookie","a=b"],["accept","x"]]`, `[["cookie","[redacted]"],["accept","x"]]`},
	{"a Buffer with a secret", `{"body":{"type":"Buffer","data":[116,111,107,101,110,61,97]},"n":1}`, `{"body":{"type":"Buffer","data":"[redacted]"},"n":1}`},
	{"a Buffer of JSON with one", `{"data":[123,34,112,105,110,34,58,34,49,34,125],"type":"Buffer"}`, `{"data":"[redacted]","type":"Buffer"}`},
	{"a Buffer without", `{"type":"Buffer","data":[97,98,99]}`, `{"type":"Buffer","data":[97,98,99]}`},
	{"spelling and space stay", "{ \"a\" : 1.0 ,\n\t\"b\":[ 9007199254740993, \"\\u00e9\\/\" ] }", "{ \"a\" : 1.0 ,\n\t\"b\":[ 9007199254740993, \"\\u00e9\\/\" ] }"},
	{"lone surrogates stay", `{"a":"\ud800","b\udc00":1}`, `{"a":"\ud800","b\udc00":1}`},
	{"equal names", `{"token":"a","token":"b"}`, `{"token":"[redacted]","token":"[redacted]"}`},
	{"scalars", `"token=abc"`, `"token=[redacted]"`},
	{"a number", `42`, `42`},
	{"several values are text", `{"token":"a"} {"token":"b"}`, `{"token":"[redacted]"} {"token":"[redacted]"}`},
	{"cut in the middle", `{"a":1,"token":"abc`, `{"a":1,"token":"[redacted]`},
	{"not JSON", "token=abc \xff\x00", "token=[redacted] \xff\x00"},
	{"nothing", "", ""},
	{"stray brackets", "]}{\"token\":\"a\"}", "]}{\"token\":\"[redacted]\"}"},
}

func TestRedactJSON(t *testing.T) {
	t.Parallel()
	for _, tt := range redactJSONRows {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := []byte(tt.in)
			got := string(failure.RedactJSON(in, nil))
			if got != tt.want {
				t.Errorf("\n got %s\nwant %s", got, tt.want)
			}
			if string(in) != tt.in {
				t.Error("the input was changed")
			}
			if again := string(failure.RedactJSON([]byte(got), nil)); again != got {
				t.Errorf("again: %s became %s", got, again)
			}
		})
	}
}

// TestRedactLeavesNoSecret is the report of an issue thread: secrets in
// headers of any case, in an address, in the stack and in the description.
func TestRedactLeavesNoSecret(t *testing.T) {
	t.Parallel()
	report := `{"execution":{"id":"1","error":{
		"message":"https://user:SECRET4@api.example/?token=SECRET5",
		"description":"https://user:SECRET4@api.example/?token=SECRET5 x-api-key: SECRET2",
		"stack":"Error: https://user:SECRET4@api.example/?token=SECRET5\n at x\n Cookie: sid=SECRET3",
		"messages":["401 - \"{\\\"access_token\\\":\\\"SECRET6\\\",\\\"lease_token\\\":\\\"SECRET7\\\"}\""],
		"context":{"request":{"headers":{"authorization":"Bearer SECRET1","x-api-key":"SECRET2","Cookie":"sid=SECRET3"},"uri":"u?api_key=SECRET8"}},
		"node":{"parameters":{"headerParameters":{"parameters":[{"name":"Authorization","value":"Bearer SECRET9"},{"name":"X-Custom-Secret","value":"SECRET10"}]}}}
	}},"workflow":{"id":"1","name":"W"}}`
	for name, got := range map[string]string{
		"JSON":    string(failure.RedactJSON([]byte(report), nil)),
		"text":    failure.Redact(report, nil),
		"Text":    failure.Text(jsontext.Value(report), 10_000),
		"Summary": failure.Summary(failure.Input{Error: jsontext.Value(report)}),
	} {
		// As text, a name and its value are only seen side by side.
		if name == "text" {
			got = strings.Replace(got, "SECRET10", "", 1)
		}
		if strings.Contains(got, "SECRET") {
			t.Errorf("%s: %s", name, got)
		}
		if name != "Summary" && !strings.Contains(got, "[redacted]") {
			t.Errorf("%s: nothing is redacted: %s", name, got)
		}
	}
	got := string(failure.RedactJSON(capture(t, "error-trigger-status-422-literal-secret-header"), nil))
	for _, secret := range []string{"Bearer literal", "literal2", "inurl"} {
		if strings.Contains(got, secret) {
			t.Errorf("%s is left in %s", secret, got)
		}
	}
	if !jsontext.Value(got).IsValid() || !strings.Contains(got, `"idempotency-key": "30"`) {
		t.Errorf("not readable any more: %s", got)
	}
}

func TestRedactJSONDepth(t *testing.T) {
	t.Parallel()
	nested := func(depth int) string {
		return strings.Repeat(`{"a":`, depth) + `"token=x"` + strings.Repeat("}", depth)
	}
	if got := string(failure.RedactJSON([]byte(nested(200)), nil)); !strings.Contains(got, `"token=[redacted]"`) || strings.Contains(got, "cut") {
		t.Errorf("200 levels: %s", got)
	}
	for _, depth := range []int{201, 1_001, 10_001, 1_000_000} {
		for _, in := range []string{nested(depth), strings.Repeat("[", depth) + strings.Repeat("]", depth)} {
			got := failure.RedactJSON([]byte(in), nil)
			if !jsontext.Value(got).IsValid() || !strings.Contains(string(got), "[cut: nested too deep]") || len(got) > 2_000 {
				t.Errorf("%d levels: %d bytes", depth, len(got))
			}
		}
		failure.RedactJSON([]byte(strings.Repeat(`{"token":[`, depth)), nil)
	}
}
