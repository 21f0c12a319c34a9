package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// What looks like a failure is no receipt, unless force says so.
func TestLooksLikeFailure(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		for i, c := range []struct {
			members string
			refused bool
		}{
			{`"http_status":200`, false},
			{`"http_status":399`, false},
			{`"http_status":400`, true},
			{`"http_status":503`, true},
			{`"http_status":"404"`, true},
			{`"http_status":null`, false},
			{`"result":{"error":null}`, false},
			{`"result":{"error":false}`, false},
			{`"result":{"error":""}`, false},
			{`"result":{"error":"boom"}`, true},
			{`"result":{"error":true}`, true},
			{`"result":{"error":{"message":"boom"}}`, true},
			{`"result":{"\u0065rror":"boom"}`, true},
			{`"result":{"a":1,"error":["x"]}`, true},
			{`"result":{"error": null }`, false},
			{`"result":{"error":"\ud800"}`, true},
			{`"result":{"Error":"boom"}`, false},
			{`"result":{"data":{"error":"boom"}}`, false},
			{`"result":"error"`, false},
			{`"result":null`, false},
			{`"result":{"error":"boom"},"http_status":200`, true},
			{`"result":{"error":1}`, true},
		} {
			k := fmt.Sprint("receipt-", i)
			token := w.proceeds(t, key(k))
			body := `{"lease_token":"` + token + `",` + c.members
			if c.refused {
				w.post(t, "/complete", body+`}`).refused(t, 422, "looks_like_failure")
				w.decides(t, "in_progress", key(k))
				w.post(t, "/complete", body+`,"force":false}`).refused(t, 422, "looks_like_failure")
				body += `,"force":true`
			}
			w.post(t, "/complete", body+`}`).ok(t).has(t, obj{"status": "completed"})
			a := w.decides(t, "completed", key(k))
			if strings.Contains(c.members, "result") && !strings.Contains(c.members, `"result":null`) && a.body["result"] == nil {
				t.Errorf("the result of %s is gone", c.members)
			}
		}
	})
}

const maxResult = 256 << 10

// A receipt is never refused for its size: up to 256 KiB it is kept as it is, beyond that cut and marked.
func TestLongResults(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		for i, c := range []struct {
			result string
			cut    bool
		}{
			{`"` + strings.Repeat("r", maxResult-2) + `"`, false},
			{`"` + strings.Repeat("r", maxResult-1) + `"`, true},
			{`{"log":"` + strings.Repeat("é", maxResult) + `"}`, true},
			{`["` + strings.Repeat(`\"`, maxResult/2) + `"]`, true},
			{`"` + strings.Repeat(`\u0000`, maxResult/4) + `"`, true},
			{`"` + strings.Repeat(`\ud800`, maxResult/4) + `"`, true},
			{`{"log":"` + strings.Repeat("r", 5<<20) + `"}`, true},
		} {
			k := fmt.Sprint("long-", i)
			token := w.proceeds(t, key(k))
			w.post(t, "/complete", `{"lease_token":"`+token+`","result_id":"ch_`+k+`","result":`+c.result+`}`).ok(t).has(t, obj{"status": "completed", "result_id": "ch_" + k})
			a := w.decides(t, "completed", key(k)).has(t, obj{"result_id": "ch_" + k})
			var kept struct {
				Result json.RawMessage `json:"result"`
			}
			if err := json.Unmarshal(a.raw, &kept); err != nil {
				t.Fatalf("result %d: the answer is no JSON: %v", i, err)
			}
			if !c.cut {
				if string(kept.Result) != c.result {
					t.Errorf("result %d changed: %d bytes became %d", i, len(c.result), len(kept.Result))
				}
				continue
			}
			var marked struct {
				Truncated bool   `json:"truncated"`
				Bytes     int    `json:"bytes"`
				Head      string `json:"head"`
			}
			if err := json.Unmarshal(kept.Result, &marked); err != nil || !marked.Truncated || marked.Bytes != len(c.result) || len(kept.Result) > maxResult {
				t.Errorf("result %d: cut to %d bytes, marked %v with %d of %d bytes (%v)", i, len(kept.Result), marked.Truncated, marked.Bytes, len(c.result), err)
			}
			if len(marked.Head) < 1000 || !strings.HasPrefix(c.result, marked.Head[:10]) {
				t.Errorf("result %d: %d bytes of it are left", i, len(marked.Head))
			}
		}
		// The same holds where the receipt comes without a token, and for a result_id of any length.
		w.done(t, key("short"))
		token := w.proceeds(t, effect("short", "pay"))
		w.post(t, "/mark-unknown", obj{"lease_token": token}).ok(t)
		long := and(effect("short", "pay"), obj{"result_id": strings.Repeat("i", 100_000), "result": strings.Repeat("r", 2*maxResult)})
		w.post(t, "/complete", long).ok(t).has(t, obj{"changed": true})
		w.post(t, "/complete", long).ok(t).has(t, obj{"changed": false})
	})
}

// Results come back as they were sent: big numbers, half pairs, order of members.
func TestResultsAreKept(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		for i, result := range []string{`{"z":9007199254740993,"a":[1.0,1e2,-0]}`, `"\ud800"`, `{"a":"\u0000"}`, `false`, `0`, `""`, `{}`, `[]`, `"1"`, `{"constructor":{"__proto__":1}}`, `{"\u0000":1}`} {
			k := fmt.Sprint("kept-", i)
			token := w.proceeds(t, key(k))
			w.post(t, "/complete", `{"lease_token":"`+token+`","result":`+result+`}`).ok(t)
			if a := w.decides(t, "completed", key(k)); !strings.Contains(string(a.raw), `"result":`+result+`,`) {
				t.Errorf("%s came back as %s", result, a.raw)
			}
		}
	})
}
