package worker

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// What a report says its execution is leads nowhere: n8n is asked for plain numbers and names at the configured host, and
// for nothing where the id is a path, an address or a query.
func TestN8NAsksOnlyItsHost(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	t.Cleanup(other.Close)
	host := strings.TrimPrefix(other.URL, "http://")
	s := newN8NTest(t)
	for i, id := range []string{"../../../rest/credentials", other.URL + "/1", "1@" + host, "//" + host + "/1", "%2e%2e%2frest", "1?includeData=true", "1#x", "1/../2", `..\\..\\x`, "1\\u0000", "", "."} {
		report := fmt.Sprintf(`{"execution":{"id":"%s","url":"%s/latest/","error":{"message":"broke at %s","name":"Error"},"lastNodeExecuted":"Call %d"},"workflow":{"id":"wf"}}`, id, other.URL, other.URL, i)
		s.report(report)
	}
	l := s.report(failed(10, fmt.Sprintf(`,"url":"%s/workflow/wf/executions/10"`, other.URL)))
	s.n8n.run(10, "error", captured.Add(-time.Minute), data(`{"order":1}`, fmt.Sprintf(`{"next":"%s"}`, other.URL)))
	for range 20 {
		s.later(inputLastTry)
		s.inputs()
		s.truth()
	}
	if got := s.input(l.ID); got != fmt.Sprintf(`stored {"next":"%s"}`, other.URL) {
		t.Errorf("the input of a plain one: %s", got)
	}
	for _, asked := range s.n8n.requests() {
		path, _, _ := strings.Cut(asked, "?")
		if id, one := strings.CutPrefix(path, "/api/v1/executions/"); path != "/api/v1/executions" && (!one || id != "10") {
			t.Errorf("asked for %s", asked)
		}
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("%d requests went elsewhere", n)
	}
}

// Items behind a claim carry its token. What is fetched as an input does not.
func TestInputsHoldNoTokens(t *testing.T) {
	t.Parallel()
	s := newN8NTest(t)
	claim := s.claim("order-1", "99", "")
	token := claim.LeaseToken()
	l := s.report(failed(10, ""))
	s.n8n.run(10, "error", captured.Add(-time.Minute), data(`{"order":1}`, `{"decision":"proceed","lease_token":"`+token+`"}`))
	s.later(inputFirstTry)
	s.inputs()
	if got := s.input(l.ID); got != `stored {"decision":"proceed","lease_token":"[redacted]"}` {
		t.Error(got)
	}
}
