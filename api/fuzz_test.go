package api_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// serve hands one request to the handler, without a network, and demands an answer that n8n can read.
func serve(t *testing.T, w *world, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	rec := httptest.NewRecorder()
	w.handler.ServeHTTP(rec, req)
	if rec.Code >= 500 {
		t.Fatalf("%s: %d: %s", path, rec.Code, rec.Body)
	}
	var any any
	if err := json.Unmarshal(rec.Body.Bytes(), &any); err != nil {
		t.Fatalf("%s: the answer %d is no JSON: %v: %s", path, rec.Code, err, rec.Body)
	}
	if o, ok := any.(obj); ok && rec.Code < 300 {
		if _, ok := o["error"]; ok {
			t.Fatalf("%s: a %d has a member error: %s", path, rec.Code, rec.Body)
		}
	}
	return rec
}

// FuzzClaim: no body brings the service down, and what is granted can be completed.
func FuzzClaim(f *testing.F) {
	w := newWorld(f)
	for _, body := range append([]string{
		`{"source":"shop","idempotency_key":"k1"}`, `{"source":"shop","idempotency_key":7001,"step":"charge","payload":{"amount":1},"owner":"1:0:0","lease_seconds":60}`,
		`{"source":"orders","idempotency_key":"ord_7001:paid","payload":{"id":"ord_7001","amount":1200},"lease_seconds":60,"execution_id":"501","owner":"501:0:0"}`,
		`{"source":"forms","payload":{"name":"Asha","msg":"hi"},"execution_id":"900"}`, `{"source":"shop","idempotency_key":"{{ $json.body.id }}"}`, `{"source":"shop","idempotency_key":"[object Object]"}`,
		`{"source":"shop","key_template":"order-{order_id}-{hash}","payload":{"order_id":"Q7"}}`, `{"source":"a","idempotency_key":"k1\u00a0"}`, `{"source":"db","payload":{"id":931415926535897932384}}`,
		`{"source":"s","idempotency_key":"caf\u00e9"}`, `{"source":"s","idempotency_key":"k9","payload":{"a":1,"b":{"x":1,"y":2}}}`, `{"source":"s","idempotency_key":"a","Idempotency_Key":"b"}`,
		`{"source":"s","idempotency_key":"a","payload":{"amount":1,"amount":1000}}`, `{"source":"s","idempotency_key":"a","paylaod":{}}`, `{"source":"s","idempotency_key":"a","lease_seconds":0.4}`,
		`{"source":"s","idempotency_key":"a","payload":{"a\u0000":"\ud800"}}`, `{"source":"stripe","payload":{"id":"evt_1","account":"acct_1"}}`, `{"source":"github","payload":{},"headers":{"x-github-delivery":["72d3"]}}`,
		`{"source":"mpesa-stk","payload":{"Body":{"stkCallback":{"CheckoutRequestID":"ws_CO_1"}}}}`, `{"source":"adyen","payload":{"notificationItems":[]}}`, `{"claim_id":"` + anID + `"}`,
		`{"source":"s","idempotency_key":"e1","entity":"cus","version":2}`, `{"source":"s","idempotency_key":"e2","entity":"cus","version":"2026-11-30T20:00:00Z","destination":"hubspot"}`,
		`{"source":"s","idempotency_key":"n","payload":{"n":1e999999999}}`, `{"source":"s","idempotency_key":"n","payload":-0.0}`,
	}, ugly...) {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		rec := serve(t, w, "/claim", body)
		var a struct {
			Decision   string `json:"decision"`
			Claimed    bool   `json:"claimed"`
			LeaseToken string `json:"lease_token"`
		}
		if rec.Code != http.StatusOK {
			return
		}
		if err := json.Unmarshal(rec.Body.Bytes(), &a); err != nil || a.Claimed != (a.Decision == "proceed") || a.Claimed != (a.LeaseToken != "") {
			t.Fatalf("a decision that is none: %v: %s", err, rec.Body)
		}
		if a.Claimed {
			if done := serve(t, w, "/complete", `{"lease_token":"`+a.LeaseToken+`"}`); done.Code != http.StatusOK {
				t.Fatalf("what was granted cannot be completed: %s", done.Body)
			}
		}
	})
}

// FuzzEndings: no report brings the service down, whatever it says of a live claim. TOKEN in a body stands for its token.
func FuzzEndings(f *testing.F) {
	w := newWorld(f)
	paths := []string{"/complete", "/mark-unknown", "/mark-failed", "/extend", "/reconcile/lease", "/classify"}
	for i := range paths {
		for _, body := range append([]string{
			`{"lease_token":"TOKEN"}`, `{"lease_token":"TOKEN","lease_seconds":60,"reference":"ws_CO_1"}`, `{"lease_token":"TOKEN","result_id":"ch_1","result":{"charge":"ch_1"},"http_status":200}`,
			`{"lease_token":"TOKEN","result":{"error":"boom"},"force":true}`, `{"lease_token":"TOKEN","result":{"t":"\u0000\ud800"}}`, `{"lease_token":"TOKEN","tries":1,"error":{"message":"connect ECONNREFUSED","httpCode":"ECONNREFUSED"}}`,
			`{"lease_token":"TOKEN","outcome":"not_executed","retry_after":60}`, `{"lease_token":"TOKEN","retry_after":60}`, `{"lease_token":"TOKEN","error":"x\u0000y","http_status":"503","reference":"r"}`,
			`{"source":"shop","idempotency_key":"fuzz","step":"pay","result_id":"x"}`, `{"source":"shop","reference":"ws_CO_1"}`, `{"source":"shop","owner":"9:0:0","limit":5,"lease_seconds":30}`,
		}, ugly...) {
			f.Add(i, body)
		}
	}
	f.Fuzz(func(t *testing.T, which int, body string) {
		rec := serve(t, w, "/claim", `{"source":"shop","idempotency_key":"fuzz","step":"pay","owner":"1:0:0"}`)
		var a struct {
			ClaimID    string `json:"claim_id"`
			LeaseToken string `json:"lease_token"`
		}
		if err := json.Unmarshal(rec.Body.Bytes(), &a); err != nil || rec.Code != http.StatusOK {
			t.Fatalf("%d %v %s", rec.Code, err, rec.Body)
		}
		path := paths[uint(which)%uint(len(paths))]
		serve(t, w, path, strings.ReplaceAll(body, "TOKEN", a.LeaseToken))
		// By hand back to where it can be claimed, unless it is completed for good or held.
		serve(t, w, "/mark-failed", `{"lease_token":"`+a.LeaseToken+`","outcome":"not_executed"}`)
		serve(t, w, "/claims/"+a.ClaimID+"/resolve", `{"status":"failed","new_provider_key":true,"authorized_by":"fuzz","reason":"again"}`)
	})
}

// FuzzReports: no report brings the service down; one that is taken can be read, and is known when it comes again.
func FuzzReports(f *testing.F) {
	w := newWorld(f)
	for _, name := range []string{"status-422", "status-429", "crash-0", "subworkflow-all", "trigger-failure-poll", "code-throw-error", "stop-and-error-object"} {
		for _, report := range capture(f, name) {
			f.Add(report)
		}
	}
	for _, body := range append([]string{
		`{"event_id":"e1","workflow_id":"kT4bS0qX","execution_id":"1042","failed_node":"Charge","error_message":"503","http_status":503,"method":"POST","payload":{"a":1},"safe_to_repeat":true}`,
		`[{"error_message":"boom"}]`, `{"execution":{"id":7,"retryOf":"6","error":"x"},"workflow":null}`, `{"error_message":"a","max_attempts":"1","destination":"hubspot","source":"shop","idempotency_key":"k"}`,
	}, ugly...) {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		first := serve(t, w, "/dlq", body)
		if first.Code != http.StatusOK {
			return
		}
		var a, again struct {
			ID        string `json:"id"`
			Duplicate bool   `json:"duplicate"`
		}
		if err := json.Unmarshal(first.Body.Bytes(), &a); err != nil || a.ID == "" {
			t.Fatalf("a letter that is none: %v: %s", err, first.Body)
		}
		second := serve(t, w, "/dlq", body)
		if err := json.Unmarshal(second.Body.Bytes(), &again); err != nil || again.ID != a.ID || !again.Duplicate {
			t.Fatalf("the same report again: %v: %d %s", err, second.Code, second.Body)
		}
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/dlq/"+a.ID, http.NoBody)
		rec := httptest.NewRecorder()
		if w.handler.ServeHTTP(rec, req); rec.Code != http.StatusOK {
			t.Fatalf("the letter cannot be read: %d %s", rec.Code, rec.Body)
		}
	})
}

// FuzzReplays: no body brings the service down, and what is started can be read and given up.
func FuzzReplays(f *testing.F) {
	w := newWorld(f)
	w.outage(f, 3)
	for _, body := range append([]string{
		text(f, asking(nil)), text(f, asking(obj{"dry_run": true})), text(f, asking(obj{"expected_effects": nil})), `{"selector":{"ids":["` + anID + `"]},"limit":"1","dry_run":true}`,
		`{"authorized_by":"a\u0000\ud800","reason":"r","expected_effects":"\ud800","selector":{"from":"0000-01-01T00:00:00Z","to":"9999-12-31T23:59:59.999999999-23:59","status":""},"limit":10000}`,
		`{"selector":{"workflow_id":7,"source":"shop","error_class":"auth","status":"queued"},"limit":3,"sample_size":0,"max_concurrency":"1","rate_per_minute":1,"dry_run":true}`,
	}, ugly...) {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		rec := serve(t, w, "/replays", body)
		var a struct {
			ID      string `json:"id"`
			Matched *int64 `json:"matched"`
		}
		if rec.Code != http.StatusOK {
			return
		}
		if err := json.Unmarshal(rec.Body.Bytes(), &a); err != nil || a.Matched == nil {
			t.Fatalf("neither a replay nor a forecast: %v: %s", err, rec.Body)
		}
		if a.ID == "" {
			return
		}
		serve(t, w, "/replays/"+a.ID+"/cancel", "")
		if status := w.get(t, "/replays/"+a.ID).ok(t).text("status"); status != "cancelled" && status != "done" {
			t.Fatalf("the replay that was given up is %s", status)
		}
	})
}
