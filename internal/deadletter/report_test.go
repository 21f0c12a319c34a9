package deadletter_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/deadletter"
	"holdfast/internal/failure"
	"holdfast/internal/ledger"
)

// lenient is what JavaScript makes: equal names and the escapes of lone surrogates.
var lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// checkStorable holds what every report must be, whatever was sent.
func checkStorable(t *testing.T, r *deadletter.Report) {
	t.Helper()
	v := reflect.ValueOf(*r)
	texts := map[string]string{"Source": r.Key.Source, "Account": r.Key.Account, "Key": r.Key.IdempotencyKey, "Summary": r.Verdict.Summary}
	for i := range v.NumField() {
		if v.Field(i).Kind() == reflect.String {
			texts[v.Type().Field(i).Name] = v.Field(i).String()
		}
	}
	for name, s := range texts {
		limit := map[string]int{"Message": 4096, "URL": 2048, "Summary": 800, "WorkflowID": 64, "ChildWorkflowID": 64}[name]
		if limit == 0 {
			limit = 255
		}
		if !utf8.ValidString(s) || strings.Contains(s, "\x00") || len(s) > limit {
			t.Errorf("%s of %d bytes cannot be stored: %.300q", name, len(s), s)
		}
	}
	valid := r.Error == nil || utf8.Valid(r.Error) && jsontext.Value(r.Error).IsValid(lenient...)
	if len(r.Digest) != 32 || len(r.Error) > 256<<10 || !valid {
		t.Errorf("digest %x, error of %d bytes: %.300q", r.Digest, len(r.Error), r.Error)
	}
	for name, v := range map[string][]byte{"payload": r.Payload, "request body": r.RequestBody} {
		if v != nil && !jsontext.Value(v).IsValid(lenient...) {
			t.Errorf("the %s is no JSON: %.300q", name, v)
		}
	}
	if r.Verdict.Class == "" || r.Message == "" {
		t.Errorf("no verdict or no message: %+v", r)
	}
}

func TestReadFlat(t *testing.T) {
	t.Parallel()
	r := mustRead(t, `{"event_id":"evt_1","workflow_id":"W1","workflow_name":"Orders","execution_id":88412,"failed_node":"Charge",
		"error_message":"boom","error_stack":"Error: boom\n at x","http_status":"503","method":"post","url":"https://api.example.test/charges?token=abc",
		"payload":{"id": 1.0, "n":9007199254740993, "n":2},"source":"stripe","account":"acct_1","idempotency_key":9007199254740993,
		"destination":"payments","safe_to_repeat":"true","max_attempts":"9","retry_after":"120"}`)
	checkStorable(t, r)
	if r.EventID != "evt_1" || r.WorkflowID != "W1" || r.WorkflowName != "Orders" || r.ExecutionID != "88412" || r.Node != "Charge" {
		t.Errorf("origin: %+v", r)
	}
	if r.Message != "boom" || r.Method != "POST" || r.URL != "https://api.example.test/charges?token=[redacted]" {
		t.Errorf("message %q, request %s %s", r.Message, r.Method, r.URL)
	}
	if want := (ledger.Key{Source: "stripe", Account: "acct_1", IdempotencyKey: "9007199254740993"}); r.Key != want || r.Destination != "payments" {
		t.Errorf("key %+v, destination %q", r.Key, r.Destination)
	}
	if !r.SafeToRepeat || r.MaxAttempts != 9 || string(r.Payload) != `{"id": 1.0, "n":9007199254740993, "n":2}` {
		t.Errorf("added: %t %d %s", r.SafeToRepeat, r.MaxAttempts, r.Payload)
	}
	if v := r.Verdict; v.Class != failure.Transient || v.HTTPStatus != 503 || v.Outcome != failure.Unknown || v.BackoffSeconds != 120 {
		t.Errorf("verdict %+v", v)
	}
	if string(r.Error) != `{"error_message":"boom","error_stack":"Error: boom\n at x"}` {
		t.Errorf("error %s", r.Error)
	}
}

// TestReadShapes has what each report says of itself, as far as it is not empty.
func TestReadShapes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, body, says string }{
		{"id is a number", `{"execution":{"id":88412,"error":"plain text","lastNodeExecuted":null},"workflow":{"id":null,"name":""}}`, `run=88412 msg="plain text"`},
		{"no id", `{"execution":{"error":{"message":"m"},"mode":"trigger"},"workflow":{"id":"1","name":"W"}}`, `workflow=1 msg="m"`},
		{"trigger", `{"trigger":{"error":{"message":"activation failed","timestamp":1767225600000},"mode":"trigger"},"workflow":{"id":"1"}}`, `trigger workflow=1 msg="activation failed"`},
		{"error workflow", `{"execution":{"id":"9","error":{"message":"m"},"mode":"error"},"workflow":{"id":"H"}}`, `handler run=9 workflow=H msg="m"`},
		{"retry of one", `{"execution":{"id":"10","retryOf":9,"error":{"message":"m"},"mode":"retry","executionContext":{"triggerNode":{"type":"n8n-nodes-base.errorTrigger"}}}}`, `handler run=10 retryOf=9 msg="m"`},
		{"crash", `{"execution":{"id":"9","error":{"message":"m","name":"WorkflowCrashedError"}}}`, `crash run=9 msg="m"`},
		{"flat crash", `{"execution_id":"9","error_message":"m","error":{"name":"WorkflowCrashedError","message":"x"}}`, `crash run=9 msg="x"`},
		{"the run's id alone", `{"execution":"88412","error_message":"m"}`, `run=88412 msg="m"`},
		{"message is an object", `{"error_message":{"message":"inside","code":"ECONNREFUSED"}}`, `msg="inside"`},
		{"error is text", `{"event_id":"e","error":"only text"}`, `event=e msg="only text"`},
		{"a network code as the status", `{"error_message":"m","http_status":"ECONNABORTED"}`, `msg="m"`},
		{"nothing but null", `{"execution":null}`, `msg="unclassified: neither an error nor a status was given"`},
		{
			"leftovers of expressions", `{"event_id":"undefined","execution_id":"[object Object]","workflow_id":"null","error_message":"m"}`,
			`msg="m\n(not usable: execution_id: \"[object Object]\"; event_id: \"undefined\"; workflow_id: \"null\")"`,
		},
		{"odd ids", `{"event_id":true,"execution_id":{"a":1},"error_message":"m"}`, `msg="m\n(not usable: execution_id: {\"a\":1}; event_id: true)"`},
		{
			"unusable names", `{"error_message":"m","source":"Stripe Live","destination":"_x","account":"a\u0000b","idempotency_key":"order-","max_attempts":-1}`,
			`msg="m\n(not usable: source: \"Stripe Live\"; destination: \"_x\"; account: \"a\\u0000b\"; idempotency_key: \"order-\"; max_attempts: -1)"`,
		},
		{"empty is absent", `{"error_message":"m","source":"","destination":null,"account":"","idempotency_key":"","max_attempts":"","payload":null}`, `msg="m"`},
		{"workflow id", `{"error_message":"m","workflow":{"id":"my flow"}}`, `workflow=my_flow-6ac2a1b1ee11157a msg="m"`},
		{"equal names", `{"error_message":"first","error_message":"last"}`, `msg="last"`},
		{"broken JSON", "{\"error_message\":\"two\nlines\",\"event_id\":\"e\",\"workflow_id\":\"w\"", `event=e workflow=w msg="two\nlines"`},
		{"byte order mark", "\ufeff{\"error_message\":\"m\"}", `msg="m"`},
		{"NUL and surrogates", `{"execution":{"id":"400","error":{"message":"bad\u0000byte \ud800","stack":"a\u0000b"},"lastNodeExecuted":"N\u0000"}}`, `run=400 node=N\u0000 msg="bad\\u0000byte \\ud800"`},
		{"not UTF-8", "{\"error_message\":\"caf\xe9\",\"event_id\":\"caf\xe9\"}", `event=caf\xe9 msg="caf\\xe9"`},
		{"a list", `[{"error_message":"m"},{"error_message":"n"}]`, `msg="m\n(not usable: the array held more reports: 1 not read)"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := mustRead(t, tt.body)
			checkStorable(t, r)
			if got := says(r); got != tt.says {
				t.Errorf("\n got %s\nwant %s", got, tt.says)
			}
		})
	}
}

func says(r *deadletter.Report) string {
	var out []string
	for _, flag := range []struct {
		name string
		on   bool
	}{{"trigger", r.Trigger}, {"handler", r.Handler}, {"crash", r.Crash}} {
		if flag.on {
			out = append(out, flag.name)
		}
	}
	for _, text := range []struct{ name, value string }{
		{"run", r.ExecutionID},
		{"retryOf", r.RetryOf},
		{"event", r.EventID},
		{"workflow", r.WorkflowID},
		{"node", r.Node},
		{"source", r.Key.Source},
		{"account", r.Key.Account},
		{"key", r.Key.IdempotencyKey},
		{"destination", r.Destination},
	} {
		if text.value != "" {
			out = append(out, text.name+"="+text.value)
		}
	}
	return strings.Join(append(out, fmt.Sprintf("msg=%q", r.Message)), " ")
}

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "  ", "null", "[]", "7", "boom", `"boom"`, "{}", `{"error":"x"}`, `[{"json":{}}]`, `{"Execution":{}}`, "{", "\x00\xff", strings.Repeat("[", 1<<20)} {
		_, err := deadletter.Read([]byte(body), nil)
		var refusal *ledger.Refusal
		if !errors.As(err, &refusal) || refusal.Code != ledger.InvalidRequest || refusal.Message == "" {
			t.Errorf("%.40q: %v", body, err)
		}
	}
	_, err := deadletter.Read([]byte(`{"workflow":{}}`), nil)
	if want := "invalid_request: the body has none of execution, trigger, event_id, error_message"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v", err)
	}
}

// report wraps a failing request as n8n does.
func report(request string) string {
	return `{"execution":{"id":"1","error":{"message":"m","name":"NodeApiError","context":{"itemIndex":0,"request":` + request + `}},"lastNodeExecuted":"Call"},"workflow":{"id":"W"}}`
}

func TestReadRequest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, request, key, body, url string }{
		{"key in any case", `{"headers":{"IDEMPOTENCY-Key":"k1"}}`, "k1", "", ""},
		{"key as a number", `{"headers":{"idempotency-key":8}}`, "8", "", ""},
		{"key in a list", `{"headers":{"idempotency-key":["k1","k2"]}}`, "k1", "", ""},
		{"hidden key", `{"headers":{"idempotency-key":"**hidden**","**hidden**":"**hidden**"}}`, "", "", ""},
		{"key never filled in", `{"headers":{"idempotency-key":"order-undefined"}}`, "", "", ""},
		{"headers of an odd type", `{"headers":["idempotency-key","k"]}`, "", "", ""},
		{"body as it came", `{"body":{"a": 1.0, "a":"\ud800"}}`, "", `{"a": 1.0, "a":"\ud800"}`, ""},
		{"object in text", `{"body":" {\"a\":1}"}`, "", `{"a":1}`, ""},
		{"text", `{"body":"a=1&b=2"}`, "", `"a=1&b=2"`, ""},
		{"array in text", `{"body":"[1]"}`, "", `"[1]"`, ""},
		{"bytes", `{"body":{"type":"Buffer","data":[1,2]}}`, "", "", ""},
		{"bytes replaced", `{"body":"Binary data got replaced with this text. Original was a Buffer with a size of 262145 bytes."}`, "", "", ""},
		{"a form's inside", `{"body":{"_overheadLength":1,"_streams":["x"],"_boundary":"y"}}`, "", "", ""},
		{"GET with nothing", `{"method":"get","body":{},"uri":"https://a.example.test/x"}`, "", "", "https://a.example.test/x"},
		{"no body", `{"body":null}`, "", "", ""},
		{"too deep", `{"body":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`, "", `"` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `"`, ""},
		{"base and path", `{"baseURL":"https://a.example.test/v1/","url":"/x?api_key=1"}`, "", "", "https://a.example.test/v1/x?api_key=[redacted]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := mustRead(t, report(tt.request))
			checkStorable(t, r)
			if r.IdempotencyKey != tt.key || string(r.RequestBody) != tt.body || r.URL != tt.url {
				t.Errorf("key %q, body %s, url %q", r.IdempotencyKey, r.RequestBody, r.URL)
			}
		})
	}
}

func TestReadAtComplete(t *testing.T) {
	t.Parallel()
	for request, want := range map[string]bool{
		`{"uri":"http://holdfast:8088/complete","body":{"lease_token":"t"}}`:                                    true,
		`{"uri":"https://a.example.test/holdfast/complete/?x=1","body":{"source":"stripe","reference":"ws_1"}}`: true,
		`{"uri":"https://shop.example.test/orders/5/complete","body":{"source":"web"}}`:                         false,
		`{"uri":"https://shop.example.test/orders/5/complete","body":null}`:                                     false,
		`{"uri":"https://shop.example.test/orders/5/complete","body":"done"}`:                                   false,
		`{"method":"GET","uri":"http://holdfast:8088/complete"}`:                                                false,
		`{"uri":"http://holdfast:8088/complete","body":"{\"lease_token\":\"t\"}"}`:                              true,
		`{"uri":"http://holdfast:8088/complete"}`:                                                               true,
		`{"uri":"https://shop.example.test/orders/5/complete","body":{"order":5}}`:                              false,
		`{"uri":"http://holdfast:8088/claim?next=/complete","body":{"lease_token":"t"}}`:                        false,
		`{"uri":"http://holdfast:8088/autocomplete","body":{"source":"x"}}`:                                     false,
		`{}`: false,
	} {
		if r := mustRead(t, report(request)); r.AtComplete != want {
			t.Errorf("%s: %t", request, r.AtComplete)
		}
	}
}

func TestReadOwnCode(t *testing.T) {
	t.Parallel()
	const refusal = `{"status":409,"code":"lease_lost","message":"m","details":{"claim_id":"c"},"request_id":"r"}`
	quoted := func(s string) string {
		q, _ := jsontext.AppendQuote(nil, s)
		return string(q)
	}
	run := func(fault string) string { return `{"execution":{"id":"1","error":` + fault + `}}` }
	for _, tt := range []struct{ name, body, want string }{
		{"as n8n quotes it", run(`{"httpCode":"409","description":"m","messages":[` + quoted("409 - "+quoted(refusal)) + `]}`), "lease_lost"},
		{"quoted once", run(`{"messages":["x",` + quoted("409 - "+refusal) + `]}`), "lease_lost"},
		{"in a description", run(`{"description":` + quoted(refusal) + `}`), "lease_lost"},
		{"in details", `{"error_message":"m","error":{"message":"x","status":409},"details":{"httpCode":"409","body":` + refusal + `}}`, "lease_lost"},
		{"of a sub-workflow", run(`{"errorResponse":{"messages":[` + quoted("409 - "+quoted(strings.ReplaceAll(refusal, "lease_lost", "result_conflict"))) + `]}}`), "result_conflict"},
		{"live", run(`{"response":{"data":` + strings.ReplaceAll(refusal, "lease_lost", "lease_live") + `}}`), "lease_live"},
		{"flat", `{"error_message":` + quoted("409 - "+quoted(refusal)) + `}`, "lease_lost"},
		{"only the word", run(`{"message":"409 - lease_lost","description":"lease_lost"}`), ""},
		{"only the code", run(`{"description":"{\"code\":\"lease_lost\"}"}`), ""},
		{"another code", run(`{"description":` + quoted(strings.ReplaceAll(refusal, "lease_lost", "invalid_transition")) + `}`), ""},
		{"in what was sent", run(`{"message":"m","context":{"request":{"body":` + refusal + `}}}`), ""},
	} {
		if r := mustRead(t, tt.body); r.OwnCode != tt.want {
			t.Errorf("%s: %q", tt.name, r.OwnCode)
		}
	}
}

// TestReadHidesSecrets plants a secret wherever a report has a place for one.
func TestReadHidesSecrets(t *testing.T) {
	t.Parallel()
	body := `{"execution":{"id":"1","error":{"name":"NodeApiError","message":"at https://user:SECRET1@api.example.test/?token=SECRET2","description":"Authorization: Bearer SECRET3abc",
		"stack":"password=SECRET4","context":{"request":{"method":"POST","uri":"https://user:SECRET5@api.example.test/?api_key=SECRET6","headers":{"authorization":"Bearer SECRET7","x-api-key":"SECRET8","Cookie":"sid=SECRET9"},
		"body":{"email":"SECRET10@example.test","password":"SECRET11"}}},"node":{"name":"Call","parameters":{"headerParameters":{"parameters":[{"name":"Authorization","value":"Bearer SECRET12"}]}}}},
		"lastNodeExecuted":"Call token=SECRET13"},"workflow":{"id":"W","name":"password: SECRET14"},"payload":{"a":1},"source":"token=SECRET15"}`
	r := mustRead(t, body, "email")
	checkStorable(t, r)
	if string(r.Payload) != `{"a":1}` || !bytes.Contains(r.RequestBody, []byte("SECRET11")) {
		t.Errorf("payloads stay whole: %s, %s", r.Payload, r.RequestBody)
	}
	r.RequestBody = nil
	if all := fmt.Sprintf("%+v %s", *r, r.Error); strings.Contains(all, "SECRET") {
		t.Errorf("a secret: %s", all[strings.Index(all, "SECRET")-100:])
	}
	// Of another body than the payload, the error keeps what is no secret.
	if !bytes.Contains(r.Error, []byte(`"body":{"email":"[redacted]"`)) {
		t.Errorf("%s", r.Error)
	}
}

// TestReadCutsLong holds the sizes, and that what is cut says so.
func TestReadCutsLong(t *testing.T) {
	t.Parallel()
	long := strings.Repeat(`日本\n`, 100_000)
	for name, fault := range map[string]string{
		"text":     `{"name":"NodeApiError","message":"` + long + `","stack":"` + long + `","httpCode":"422"}`,
		"escapes":  `{"message":"` + strings.Repeat(`\u00e9\\\"`, 50_000) + `","httpCode":"422"}`,
		"elements": `{"httpCode":"422","message":"m","list":[` + strings.Repeat(`{"a":[1,2]},`, 50_000) + `0]}`,
		"members":  `{"httpCode":"422","message":"m","o":{` + strings.Repeat(`"name":"value",`, 50_000) + `"z":0}}`,
		"number":   `{"httpCode":"422","message":"m","n":` + strings.Repeat("9", 500_000) + `}`,
		"names":    `{"httpCode":"422","message":"m","o":{"` + long + `":1}}`,
		"levels":   `{"httpCode":"422","message":"m","o":` + strings.Repeat(`{"a":`, 100_000) + `1` + strings.Repeat(`}`, 100_000) + `}`,
	} {
		body := `{"execution":{"id":"` + strings.Repeat("7", 400) + `","error":` + fault + `,"lastNodeExecuted":"` + long + `"},"workflow":{"id":"` + strings.Repeat("w", 400) + `"},"event_id":"` + long + `"}`
		r := mustRead(t, body)
		checkStorable(t, r)
		if !bytes.Contains(r.Error, []byte("[cut")) || r.Verdict.HTTPStatus != 422 || !strings.Contains(string(r.Error), `"httpCode":"422"`) {
			t.Errorf("%s: %d bytes, %+v", name, len(r.Error), r.Verdict)
		}
		if len(r.ExecutionID) != 255 || len(r.WorkflowID) != 64 {
			t.Errorf("%s: ids %q %q", name, r.ExecutionID, r.WorkflowID)
		}
	}
}

// TestReadLinear reads the worst shapes at a size where more than linear time would show.
func TestReadLinear(t *testing.T) {
	const size = 2 << 20
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	for name, fault := range map[string]string{
		"text":      `{"message":"` + fill("a") + `"}`,
		"backslash": `{"message":"` + fill(`\\`) + `"}`,
		"open":      fill(`[`),
		"objects":   fill(`{"error":`),
		"responses": fill(`{"errorResponse":`),
		"quotes":    `{"messages":["` + fill(`\"`) + `"]}`,
		"secrets":   `{"message":"` + fill("token=a ") + `"}`,
	} {
		t.Log(name) // what is not linear does not end within the test's time
		r := mustRead(t, `{"execution":{"id":"1","error":`+fault+`},"workflow":{"id":"w"}}`)
		checkStorable(t, r)
	}
}

// TestJudge compares with judging the whole report anew.
func TestJudge(t *testing.T) {
	t.Parallel()
	for _, added := range []string{``, `"retry_after":45,`, `"retry_after":300,`, `"retry_after":7000,`} {
		for _, status := range []int{429, 422, 0} {
			r := mustRead(t, fmt.Sprintf(`{%s"http_status":%d,"error_message":"m"}`, added, status))
			for attempt := int64(1); attempt < 10; attempt++ {
				in := failure.Input{Error: r.Error, HTTPStatus: status, AttemptCount: int(attempt), MaxAttempts: 6}
				if r.Verdict.BackoffSeconds > 60 {
					in.RetryAfter = &r.Verdict.BackoffSeconds
				}
				if got, want := r.Judge(attempt, 6), failure.Classify(in); got != want {
					t.Errorf("%s%d, attempt %d:\n got %+v\nwant %+v", added, status, attempt, got, want)
				}
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, c := range captures {
		f.Add(capture(f, c.name))
	}
	for _, body := range []string{
		`{"event_id":1,"error_message":"\ud800","payload":[[`, "{\"execution\":{\"error\":\"\xff\x00\",\"id\":{}},\"workflow\":[]}",
		`{"trigger":{"error":{"errorResponse":{"context":{"request":{"body":"{}","headers":{"idempotency-key":[]}}}}}}}`,
		`[{"json":{"error_message":"409 - \"{\\\"status\\\":409}\"","source":"A","account":5,"idempotency_key":1e3}}]`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if r, err := deadletter.Read(body, nil); err == nil {
			checkStorable(t, r)
		}
		// Bytes that are part of a report, beside a secret.
		text, _ := jsontext.AppendQuote(nil, strings.ToValidUTF8(string(body), "?"))
		planted := `{"execution":{"id":"1","error":{"message":` + string(text) + `,"context":{"request":{"headers":{"authorization":"Bearer planted-7f3a9c"},"body":{}}},
			"stack":"authorization: Bearer planted-7f3a9c"},"lastNodeExecuted":` + string(text) + `},"event_id":` + string(text) + `}`
		r, err := deadletter.Read([]byte(planted), nil)
		if err != nil {
			t.Fatal(err)
		}
		checkStorable(t, r)
		if !strings.Contains(string(body), "planted") && strings.Contains(fmt.Sprintf("%+v %s", *r, r.Error), "planted") {
			t.Errorf("a secret: %+v %s", *r, r.Error)
		}
	})
}
