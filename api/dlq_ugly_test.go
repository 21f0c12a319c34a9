package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// A failure report is always stored, whatever is in it, and can be read again.
func TestUglyReports(t *testing.T) {
	t.Parallel()
	item := func(id, err string) string {
		return `{"execution":{"id":"` + id + `","lastNodeExecuted":"Charge","mode":"webhook","error":` + err + `},"workflow":{"id":"kT4bS0qX","name":"Orders"}}`
	}
	deep := func(n int) string { return strings.Repeat(`{"a":[`, n) + "1" + strings.Repeat(`]}`, n) }
	reports := map[string]string{
		"NUL":              item("1", `{"message":"a\u0000b","httpCode":"503","description":"\u0000","messages":["\u0000"],"stack":"\u0000"}`),
		"lone surrogates":  item("2", `{"message":"\ud800 \udc00x","name":"\udfff"}`),
		"raw bytes":        item("3", "{\"message\":\"\xff\xfe\x80\",\"\xff\":1}"),
		"repeated members": item("4", `{"message":"a","message":"b","httpCode":"503","httpCode":"422"}`) + " ",
		"deep":             item("5", `{"message":"m","context":{"request":{"body":`+deep(3000)+`,"method":"POST","uri":"http://a.example.test"}}}`),
		"deeper":           item("6", `{"message":"m","context":{"request":{"body":`+deep(20000)+`}}}`),
		"deep error":       item("7", strings.Repeat(`{"error":`, 5000)+`"m"`+strings.Repeat(`}`, 5000)),
		"text for numbers": `{"event_id":7,"workflow_id":5,"execution_id":1042,"http_status":"503","max_attempts":"3","safe_to_repeat":"true","error_message":12,"payload":"text"}`,
		"odd types":        `{"execution":{"id":{"a":1},"error":[1,2],"lastNodeExecuted":7,"mode":{},"executionContext":"x","retryOf":[]},"workflow":"none"}`,
		"null error":       `{"execution":{"id":"8","error":null},"workflow":{"id":null,"name":null}}`,
		"no id":            `{"execution":{"error":"plain text"},"workflow":{}}`,
		"trigger":          `{"trigger":{"error":{"message":"activation failed"},"mode":"trigger"},"workflow":{"id":"kT4bS0qX","name":"Orders"}}`,
		"odd siblings":     `{"error_message":"m","payload":[null,{"\u0000":"\ud800"}],"source":"Not A Name","account":{"a":1},"idempotency_key":["a\u0000"],"destination":"\u0000","max_attempts":-1e99,"safe_to_repeat":"perhaps","http_status":1e400,"method":["POST"]}`,
		"huge numbers":     `{"event_id":123456789012345678901234567890,"error_message":"m","http_status":99999999999999999999,"max_attempts":1e308,"payload":{"n":1e999999}}`,
		"strange workflow": `{"execution":{"id":"9","error":{"message":"m"}},"workflow":{"id":"a/b c\u0000` + strings.Repeat("x", 300) + `","name":"` + strings.Repeat("é", 400) + `"}}`,
		"long execution":   item(strings.Repeat("9", 400), `{"message":"m"}`),
		"large":            item("10", `{"message":"`+strings.Repeat("é", 300_000)+`","stack":"`+strings.Repeat("s", 300_000)+`","httpCode":"500","context":{"request":{"method":"POST","uri":"http://a.example.test/?`+strings.Repeat("q", 100_000)+`","body":{"b":"`+strings.Repeat("b", 3<<20)+`"}}}}`),
		"prototype":        `{"event_id":"constructor","workflow_id":"__proto__","error_message":"toString","payload":{"__proto__":1,"constructor":2}}`,
	}
	both(t, func(t *testing.T, w *world) {
		ids := map[string]string{}
		for name, body := range reports {
			a := w.post(t, "/dlq", body)
			if a.status != http.StatusOK {
				t.Errorf("%s: %d %s", name, a.status, clip(a.raw))
				continue
			}
			if other, twice := ids[a.text("id")]; twice {
				t.Errorf("%s and %s are one letter", name, other)
			}
			ids[a.text("id")] = name
			if again := w.post(t, "/dlq", body); again.status != http.StatusOK || again.text("id") != a.text("id") || again.body["duplicate"] != true {
				t.Errorf("%s sent again: %d %s", name, again.status, clip(again.raw))
			}
			if detail := w.get(t, "/dlq/"+a.text("id")); detail.status != http.StatusOK {
				t.Errorf("%s cannot be read: %d %s", name, detail.status, clip(detail.raw))
			} else if strings.HasPrefix(name, "large") {
				if payload, _ := detail.body["payload"].(obj); len(payload) == 0 || len(detail.raw) < 3<<20 {
					t.Errorf("the input of a large report is not whole: %d bytes", len(detail.raw))
				}
				if len(detail.text("message")) > 100_000 || len(detail.text("url")) > 50_000 {
					t.Errorf("long texts were not cut: message %d, url %d", len(detail.text("message")), len(detail.text("url")))
				}
			}
		}
		if items, _ := w.get(t, "/dlq?limit=200").ok(t).body["items"].([]any); len(items) != len(reports) {
			t.Errorf("%d letters, want %d", len(items), len(reports))
		}
		// Nor does what is ugly stop a worker.
		for id := range ids {
			w.post(t, "/dlq/"+id+"/requeue", person).ok(t)
		}
		w.leasedLetters(t, obj{"limit": 100}, len(reports))
	})
}

// A payload comes back byte for byte: what n8n's JavaScript or a database would change stays as it was sent.
func TestPayloadsAreExact(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		payload := `{"n":9007199254740993,"f":1.0,"e":1e400,"s":"\ud800\u0000\/\u0041","constructor":{"__proto__":1},"twice":1,"twice":2,"raw":"` + "\xff" + `"}`
		a := w.reports(t, `{"event_id":"order-1","http_status":429,"error_message":"later","method":"POST","payload":`+payload+`}`).has(t, obj{"status": "queued"})
		w.clock.advance(72 * time.Second)
		lease := w.post(t, "/dlq/lease", obj{}).ok(t)
		result := `{"receipt":"\ud800\u0000` + strings.Repeat("é", 300_000) + `"}`
		for name, answer := range map[string]answer{"the lease": lease, "the letter": w.letter(t, a.text("id"))} {
			if !strings.Contains(string(answer.raw), `"payload":`+payload) {
				t.Errorf("%s has another payload: %s", name, clip(answer.raw))
			}
		}
		// Nor is a receipt refused for what stands in it.
		w.post(t, "/dlq/"+a.text("id")+"/resolve", `{"lease_token":"`+lease.items[0]["lease_token"].(string)+`","result":`+result+`}`).ok(t).has(t, obj{"status": "resolved", "changed": true})
	})
}

func TestReportsThatAreRefused(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		for _, body := range []string{"{}", "[]", "[{}]", `{"executions":{}}`, `{"error":"boom"}`, `{"workflow":{"id":"kT4bS0qX"}}`, "1", "true", "null", `{"Execution":{}}`} {
			w.post(t, "/dlq", body).refused(t, 400, "invalid_request")
		}
		for _, body := range []string{"", " ", "boom", "<xml/>", "{", "execution=1"} {
			w.post(t, "/dlq", body).refused(t, 400, "invalid_json")
		}
		for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "application/octet-stream"} {
			w.post(t, "/dlq", `{"error_message":"boom"}`, header("Content-Type", kind)).refused(t, 415, "unsupported_media_type")
		}
		w.get(t, "/dlq").ok(t).has(t, obj{"items": "[]", "next_cursor": nil})
		// A report repeats the request that failed: it may be four times as long as other bodies.
		pad := func(n int) string {
			const frame = `{"error_message":""}`
			return strings.Replace(frame, `""`, `"`+strings.Repeat("x", n-len(frame))+`"`, 1)
		}
		w.post(t, "/dlq", pad(4*4096)).ok(t)
		w.post(t, "/dlq", pad(4*4096+1)).refused(t, 413, "too_large")
		w.post(t, "/dlq/lease", pad(4097)).refused(t, 413, "too_large")
	}, withMaxBody(4096))
}

// Stored errors, answers and logs are free of secrets; the payload is whole, for operators.
func TestSecretsInReports(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		report := failing("kT4bS0qX", "1042", "401", obj{
			"method": "POST", "uri": "https://user:SECRET1aa@destination.example.test/charges?token=SECRET2aa&page=2", "body": obj{"order": 7001, "password": "kept-for-replay"},
			"headers": obj{"Authorization": "Bearer SECRET3aa", "X-API-Key": "SECRET4aa", "cookie": "sid=SECRET5aa"},
		})
		execution, _ := report["execution"].(obj)
		fault, _ := execution["error"].(obj)
		report = within(report, obj{"error": and(fault, obj{
			"message":     "refused for https://user:SECRET6aa@destination.example.test/?api_key=SECRET7aa with Bearer SECRET8aa",
			"description": `{"access_token":"SECRET9aa"}`, "stack": "Error: Authorization: Bearer SECRETbaa\n    at Charge", "cause": obj{"client_secret": "SECRETcaa"},
			"node": obj{"parameters": obj{"headerParameters": []any{obj{"name": "Authorization", "value": "Bearer SECRETdaa"}}}}, "metadata": obj{"phone": "SECRETeaa"},
			"messages": []any{`401 - "{\"password\":\"SECRETfaa\",\"card\":\"4242 4242 4242 4242\"}"`},
		})})
		answers := []answer{w.reports(t, report, bearer(workflowSecret))}
		id := answers[0].text("id")
		answers = append(answers, w.letter(t, id, bearer(workflowSecret)), w.letter(t, id, bearer(operatorSecret)), w.get(t, "/dlq", bearer(workflowSecret)).ok(t), w.get(t, "/metrics", bearer(workflowSecret)))
		w.post(t, "/dlq/"+id+"/requeue", person, bearer(operatorSecret)).ok(t)
		lease := w.leasedLetters(t, obj{}, 1, bearer(workflowSecret))[0]
		failed := and(token(lease), obj{"error": obj{"message": "no: Bearer SECRETgaa", "headers": obj{"authorization": "SECREThaa"}}})
		answers = append(answers, w.post(t, "/dlq/"+id+"/fail", failed, bearer(workflowSecret)).ok(t), w.letter(t, id, bearer(operatorSecret)))
		for _, a := range answers {
			if at := strings.Index(string(a.raw), "SECRET"); at >= 0 || strings.Contains(string(a.raw), "4242 4242") {
				t.Errorf("a secret is shown: %s", a.raw[max(0, at-60):min(len(a.raw), max(0, at)+60)])
			}
		}
		if at := strings.Index(w.logs.String(), "SECRET"); at >= 0 {
			t.Errorf("a secret is in the log: %s", w.logs.String()[max(0, at-60):])
		}
		answers[1].has(t, obj{"payload": nil})
		answers[2].has(t, obj{"payload": obj{"order": 7001, "password": "kept-for-replay"}})
		hasAll(t, lease, obj{"payload": obj{"order": 7001, "password": "kept-for-replay"}})
		if url := answers[1].text("url"); !strings.Contains(url, "destination.example.test/charges") || !strings.Contains(url, "page=2") {
			t.Errorf("the address is not readable any more: %q", url)
		}
		l, _, err := w.store.GetLetter(t.Context(), id)
		if err != nil || strings.Contains(string(l.Error)+l.Message+l.URL+l.Summary, "SECRET") {
			t.Errorf("the stored letter has a secret: %v %s", err, l.Error)
		}
	}, withKeys(bothKeys...), withRedact("phone"))
}
