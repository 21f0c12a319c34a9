package deadletter_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/deadletter"
	"holdfast/internal/failure"
)

// captured is what a report that n8n 2.41 sent must be read as. The expectations were taken from the files by hand
// and by another reader, not from a run.
type captured struct {
	name               string
	trigger, crash     bool
	execution, retryOf string
	workflow           string
	workflowName, node string
	established        int64
	parent, child      string
	childWorkflow      string
	method, url, key   string // an url without a host is one of the destination's
	body               string
}

// order is the body that most of the failing requests had.
const order = `{"order":42,"customer":{"name":"Zoë \"Q\" O'Neil\nline2 \\ 日本"},"nested":[{"a":[1,2,{"b":null}]}],"big":9007199254740992}`

const destination = "http://127.0.0.1:18080"

var captures = []captured{
	{name: "5items-2-fail", execution: "167", workflow: "KON8RoFY87sCokXO", workflowName: "m-2fail-errtrig", node: "Call", established: 1796064035382, method: "POST", url: "/status/422", key: "167-2", body: `{"i":2}`},
	{name: "bad-json-200", execution: "50", workflow: "mu7xhSQLVAgzpdOR", workflowName: "f bad-json-200", node: "Call", established: 1796063821035},
	{name: "bad-json-body-param", execution: "54", workflow: "XFUVC98omPXiKrDp", workflowName: "f bad-json-body-param", node: "Call", established: 1796063821897},
	{name: "bad-url", execution: "52", workflow: "ty4bMk0yWWTidhay", workflowName: "f bad-url", node: "Call", established: 1796063821463},
	{name: "binary-body-500", execution: "529", workflow: "eZROC8vNOuG13uR7", workflowName: "binfail-small", node: "Call", established: 1796065148978, method: "POST", url: "/status/500"},
	{name: "code-bad-return", execution: "80", workflow: "9KJfudyMggxQt1Ez", workflowName: "f code-bad-return", node: "Call", established: 1796063828152},
	{name: "code-httprequest-422", execution: "738", workflow: "6P1HMucawtVcfe4T", workflowName: "codehttpfail", node: "Code", established: 1796065235999},
	{name: "code-syntax", execution: "78", workflow: "lTtD7qmYeP5el9js", workflowName: "f code-syntax", node: "Call", established: 1796063827745},
	{name: "code-throw-custom", execution: "74", workflow: "IEZbo6IBiOYJHxIh", workflowName: "f code-throw-custom", node: "Call", established: 1796063826928},
	{name: "code-throw-error", execution: "70", workflow: "o3OCUlTibNF1kHoR", workflowName: "f code-throw-error", node: "Call", established: 1796063825967},
	{name: "code-throw-string", execution: "72", workflow: "ejfOrQCCtpxVK1ul", workflowName: "f code-throw-string", node: "Call", established: 1796063826469},
	{name: "code-typeerror", execution: "76", workflow: "D12pquZv596bIiKZ", workflowName: "f code-typeerror", node: "Call", established: 1796063827341},
	{name: "conn-refused", execution: "42", workflow: "YqoiY7cswST6DWGF", workflowName: "f conn-refused", node: "Call", established: 1796063818977, method: "POST", url: "http://127.0.0.1:1/x", body: order},
	{name: "crash-0", execution: "465", workflow: "aAkfB0FZt9zhlvUH", workflowName: "crash true", node: "Call", established: 1796064741596, crash: true},
	{name: "crash-1", execution: "464", workflow: "X85uTIvsnitI3jBl", workflowName: "crash false", node: "Call", established: 1796064741567, crash: true},
	{name: "dns", execution: "44", workflow: "5nkAYcmHjo7aNthV", workflowName: "f dns", node: "Call", established: 1796063819457, method: "POST", url: "http://no-such-host.invalid/x", body: order},
	{name: "expression-error-body-syntax", execution: "754", workflow: "o0ufkkC2Ard79Yhc", workflowName: "f expression-error-body-syntax", node: "Call", established: 1796065289312},
	{name: "expression-error-body", execution: "752", workflow: "J995oxYFFaX0Al5x", workflowName: "f expression-error-body", node: "Call", established: 1796065288705},
	{name: "expression-error", execution: "750", workflow: "xT3A2GiPMPI6oDWx", workflowName: "f expression-error", node: "Call", established: 1796065287506},
	{name: "hangup", execution: "46", workflow: "1aVvwj8V3llcGBas", workflowName: "f hangup", node: "Call", established: 1796063819967, method: "POST", url: "/close", body: order},
	{name: "missing-credential", execution: "58", workflow: "L4LFNRY1FYwl2SQn", workflowName: "f missing-credential", node: "Call", established: 1796063822818},
	{name: "retry-of-failed-progress-false", execution: "88", retryOf: "86", workflow: "rWe9k38ILSVXLI6c", workflowName: "retry false", node: "Call", established: 1796063873160, method: "POST", url: "/flaky/kfalse/2/500", key: "88", body: `{"ok":true,"n":73}`},
	{name: "retry-of-failed-progress-true", execution: "94", retryOf: "92", workflow: "1MnYtg2WclgpB6SL", workflowName: "retry true", node: "Call", established: 1796063875295, method: "POST", url: "/flaky/ktrue/2/500", key: "94", body: `{"ok":true,"n":82}`},
	{name: "status-400", execution: "22", workflow: "fUCJ5Ej0bXAPL0El", workflowName: "f status-400", node: "Call", established: 1796063812254, method: "POST", url: "/status/400", body: order},
	{name: "status-401-bearer-cred", execution: "26", workflow: "ExeXhNWibz3mmXlD", workflowName: "f status-401-bearer-cred", node: "Call", established: 1796063813266, method: "POST", url: "/status/401", body: order},
	{name: "status-401-header-cred", execution: "28", workflow: "Kp4W74rutup4zOeZ", workflowName: "f status-401-header-cred", node: "Call", established: 1796063813789, method: "POST", url: "/status/401", body: order},
	{name: "status-401", execution: "24", workflow: "2jECmyf09va73DYj", workflowName: "f status-401", node: "Call", established: 1796063812724, method: "POST", url: "/status/401", body: order},
	{name: "status-403", execution: "32", workflow: "R7WtTdFa30ybrO8O", workflowName: "f status-403", node: "Call", established: 1796063814720, method: "POST", url: "/status/403", body: order},
	{name: "status-404", execution: "34", workflow: "vxZq8Kve6uF9O2BO", workflowName: "f status-404", node: "Call", established: 1796063815156, method: "POST", url: "/status/404", body: order},
	{name: "status-409-problem", execution: "36", workflow: "DHQA52GXBsbDXbVL", workflowName: "f status-409-problem", node: "Call", established: 1796063815630, method: "POST", url: "/problem/409", body: order},
	{name: "status-422-fullresponse", execution: "68", workflow: "VAgcO5qG63gIq24z", workflowName: "f status-422-fullresponse", node: "Call", established: 1796063825492, method: "POST", url: "/status/422", body: order},
	{name: "status-422-literal-secret-header", execution: "30", workflow: "lqQJiPY4sSjmKPaW", workflowName: "f status-422-literal-secret-header", node: "Call", established: 1796063814228, method: "POST", url: "/status/422?token=[redacted]", key: "30", body: order},
	{name: "status-422-responseformat-json", execution: "64", workflow: "klZfgDqYzUP7qkN1", workflowName: "f status-422-responseformat-json", node: "Call", established: 1796063824582, method: "POST", url: "/status/422", body: order},
	{name: "status-422-responseformat-text", execution: "66", workflow: "R3KIfEGH5IRgTLR9", workflowName: "f status-422-responseformat-text", node: "Call", established: 1796063825032, method: "POST", url: "/status/422", body: order},
	{name: "status-422-typeversion-4.2", execution: "62", workflow: "sbssnvwaWbTaG8w8", workflowName: "f status-422-typeversion-4.2", node: "Call", established: 1796063824142, method: "POST", url: "/status/422", body: order},
	{name: "status-422", execution: "20", workflow: "1ee1jkmyMNOJxZsP", workflowName: "f status-422", node: "Call", established: 1796063811765, method: "POST", url: "/status/422", body: order},
	{name: "status-429-retried-3", execution: "60", workflow: "1kVDl9fkUWiuTUVZ", workflowName: "f status-429-retried-3", node: "Call", established: 1796063823338, method: "POST", url: "/status/429?ra=7", body: order},
	{name: "status-429-text", execution: "12", workflow: "SwuPlQHddYdCjF24", workflowName: "f status-429-text", node: "Call", established: 1796063809509, method: "POST", url: "/status/429?ra=7&text=slow+down", body: order},
	{name: "status-429", execution: "10", workflow: "1qVm8JK02IY1gEoZ", workflowName: "f status-429", node: "Call", established: 1796063808953, method: "POST", url: "/status/429?ra=7", body: order},
	{name: "status-500", execution: "14", workflow: "xCjPj5F1BSNGBXRo", workflowName: "f status-500", node: "Call", established: 1796063810241, method: "POST", url: "/status/500", body: order},
	{name: "status-502-html", execution: "16", workflow: "f6I3Hujci8P0S0qQ", workflowName: "f status-502-html", node: "Call", established: 1796063810790, method: "POST", url: "/status/502?html=1", body: order},
	{name: "status-503-empty", execution: "18", workflow: "C3x8W8rB4BtygtkP", workflowName: "f status-503-empty", node: "Call", established: 1796063811267, method: "POST", url: "/status/503?empty=1", body: order},
	{name: "stop-and-error-message", execution: "82", workflow: "BDWdqvEPQKlXBZm4", workflowName: "f stop-and-error-message", node: "Call", established: 1796063828569},
	{name: "stop-and-error-object", execution: "84", workflow: "0i0CJzDEy7zHtKcl", workflowName: "f stop-and-error-object", node: "Call", established: 1796063829008},
	{name: "subworkflow-all", execution: "443", workflow: "om8upDlKN9fg19fk", workflowName: "parent", node: "Run Sub", established: 1796064444755, child: "444", childWorkflow: "jPFmI1Sht9PngLN4", method: "POST", url: "/status/422", body: `{"order":1}`},
	{name: "subworkflow-all", execution: "444", workflow: "jPFmI1Sht9PngLN4", workflowName: "sub", node: "SubCall", established: 1796064444871, parent: "443", method: "POST", url: "/status/422", body: `{"order":1}`},
	{name: "timeout-body", execution: "40", workflow: "ienlzZ81p6iw8h5J", workflowName: "f timeout-body", node: "Call", established: 1796063817565},
	{name: "timeout", execution: "38", workflow: "NhewWhrkHZLo6kq0", workflowName: "f timeout", node: "Call", established: 1796063816083, method: "POST", url: "/hang", body: order},
	{name: "tls", execution: "48", workflow: "OWKBidisQe2GJ8PQ", workflowName: "f tls", node: "Call", established: 1796063820536, method: "POST", url: "https://127.0.0.1:18080/ok", body: order},
	{name: "trigger-failure-poll-1", trigger: true, workflow: "H8YxG0cF5lj8Kwb2", workflowName: "trig feed"},
	{name: "trigger-failure-poll", trigger: true, workflow: "H8YxG0cF5lj8Kwb2", workflowName: "trig feed"},
	{name: "trigger-failure-schedule-fails-1", execution: "456", workflow: "LrCsGMXyMvdI0TYH", workflowName: "trig schedule-fails", node: "Call", established: 1796064500004, method: "POST", url: "/status/422", body: `{"timestamp":"2026-11-30T18:48:20.002+00:00","Readable date":"November 30th 2026, 6:48:20 pm","Readable time":"6:48:20 pm","Day of week":"Monday","Year":"2026","Month":"November","Day of month":"30","Hour":"18","Minute":"48","Second":"20","Timezone":"UTC (UTC+00:00)"}`},
	{name: "trigger-failure-schedule-fails", execution: "458", workflow: "LrCsGMXyMvdI0TYH", workflowName: "trig schedule-fails", node: "Call", established: 1796064505002, method: "POST", url: "/status/422", body: `{"timestamp":"2026-11-30T18:48:25.001+00:00","Readable date":"November 30th 2026, 6:48:25 pm","Readable time":"6:48:25 pm","Day of week":"Monday","Year":"2026","Month":"November","Day of month":"30","Hour":"18","Minute":"48","Second":"25","Timezone":"UTC (UTC+00:00)"}`},
	{name: "unsaved-execution", execution: "438", workflow: "IjR4NFFWuP8Uv2kJ", workflowName: "unsaved", node: "Call", established: 1796064422686, method: "POST", url: "/status/422", body: `{"order":1}`},
}

func capture(tb testing.TB, name string) []byte {
	tb.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "failure", "testdata", "captures", "error-trigger-"+name+".json"))
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

// items are the reports in a capture, which may be a list.
func items(tb testing.TB, raw []byte) []json.RawMessage {
	tb.Helper()
	var list []json.RawMessage
	if raw[0] != '[' {
		return []json.RawMessage{raw}
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		tb.Fatal(err)
	}
	return list
}

func TestReadCaptures(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for _, want := range captures {
		raw := items(t, capture(t, want.name))[seen[want.name]]
		seen[want.name]++
		t.Run(want.name, func(t *testing.T) {
			t.Parallel()
			checkCapture(t, want, raw)
			checkCapture(t, want, []byte("["+string(raw)+"]"))
			checkCapture(t, want, []byte(`[{"json":`+string(raw)+`,"pairedItem":{"item":0}}]`))
			quoted, err := json.Marshal(string(raw))
			if err != nil {
				t.Fatal(err)
			}
			checkCapture(t, want, quoted)
		})
	}
	files, err := filepath.Glob(filepath.Join("..", "failure", "testdata", "captures", "error-trigger-*.json"))
	if err != nil || len(files) != len(seen) {
		t.Errorf("%d captures, %d of them in the table, %v", len(files), len(seen), err)
	}
}

func checkCapture(t *testing.T, want captured, raw []byte) {
	t.Helper()
	r := mustRead(t, string(raw))
	got := captured{
		name: want.name, trigger: r.Trigger, crash: r.Crash, execution: r.ExecutionID, retryOf: r.RetryOf,
		workflow: r.WorkflowID, workflowName: r.WorkflowName, node: r.Node, established: r.Established,
		parent: r.ParentExecutionID, child: r.ChildExecutionID, childWorkflow: r.ChildWorkflowID,
		method: r.Method, url: strings.TrimPrefix(r.URL, destination), key: r.IdempotencyKey, body: compact(t, r.RequestBody),
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if r.Handler || r.OwnCode != "" || r.AtComplete || r.EventID != "" || r.Payload != nil || r.SafeToRepeat || r.MaxAttempts != 0 {
		t.Errorf("made up: %+v", r)
	}
	whole := failure.Classify(failure.Input{Error: jsontext.Value(items(t, unwrapped(raw))[0])})
	if r.Verdict != whole {
		t.Errorf("verdict %+v\nof the whole report %+v", r.Verdict, whole)
	}
	if bytes.Contains(r.Error, []byte("Zoë")) || want.body != "" && !bytes.Contains(r.Error, []byte("[kept as the payload]")) {
		t.Errorf("the payload stands in the error: %s", r.Error)
	}
	checkStorable(t, r)
}

// unwrapped is the report inside a JSON string.
func unwrapped(raw []byte) []byte {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return []byte(s)
	}
	return raw
}

func compact(t *testing.T, raw []byte) string {
	t.Helper()
	v := jsontext.Value(bytes.Clone(raw))
	if len(v) > 0 && v.Compact() != nil {
		t.Errorf("not JSON: %q", raw)
	}
	return string(v)
}

func mustRead(t *testing.T, body string, redact ...string) *deadletter.Report {
	t.Helper()
	r, err := deadletter.Read([]byte(body), redact)
	if err != nil {
		t.Fatalf("refused: %v: %.200s", err, body)
	}
	return r
}
