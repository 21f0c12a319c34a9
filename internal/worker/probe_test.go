package worker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
	"holdfast/internal/store"
)

const pspKey = "sk_live_0123456789"

// probeTest is a ledger, a destination on loopback and the probes between them, by one clock.
type probeTest struct {
	*testing.T
	store *store.Store
	url   string

	mu     sync.Mutex
	now    time.Time
	logs   bytes.Buffer
	asked  []string // what the destination got: request line, header, body
	answer http.HandlerFunc
}

func newProbeTest(t *testing.T) *probeTest {
	t.Helper()
	s := &probeTest{T: t, now: captured, answer: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"id":"ch_1"}`) }}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.asked = append(s.asked, fmt.Sprint(r.Method, " ", r.RequestURI, " ", r.Header.Get("Authorization"), " ", string(body)))
		answer := s.answer
		s.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	var err error
	s.store, err = store.Open(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "claims.db"), store.Options{
		Now: s.clock, Policies: ledger.Policies{Sources: map[string]ledger.Policy{"shop": {Window: 24 * time.Hour, AskAfter: 2 * time.Second, NotFoundAfter: 5 * time.Minute}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.store.Close(); err != nil {
			t.Error(err)
		}
		if strings.Contains(s.logs.String(), pspKey) {
			t.Error("the log holds the key")
		}
	})
	if _, err := s.store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *probeTest) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *probeTest) later(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

func (s *probeTest) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logs.Write(p)
}

// answers says what the destination answers from now on.
func (s *probeTest) answers(answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// requests are those since it was last asked for.
func (s *probeTest) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.asked
	s.asked = nil
	return out
}

// simple is a probe of one path.
func (s *probeTest) simple(name string, of ledger.Match, path string) Probe {
	return Probe{Name: name, For: of, URL: []Part{{Text: s.url + path}}, Found: "id", NotFound: []int{404}, Headers: map[string]string{"Authorization": "Bearer " + pspKey}}
}

func (s *probeTest) probes(list ...Probe) *Probes {
	s.Helper()
	w, err := NewProbes(ProbeOptions{Probes: list, Private: prefixes("127.0.0.0/8"), Log: slog.New(slog.NewTextHandler(s, nil))}, s.store)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(w.Stop)
	return w
}

// pass lets all probes run once.
func (s *probeTest) pass(w *Probes) {
	s.Helper()
	for _, l := range w.Loops() {
		if err := l.Pass(s.Context()); err != nil {
			s.Fatal(err)
		}
	}
}

func (s *probeTest) request(key string, change ...func(*ledger.Request)) *ledger.Request {
	id, secret := deadletter.NewFresh().New()
	r := &ledger.Request{
		Key: ledger.Key{Source: "shop", IdempotencyKey: key, Step: "charge"}, Basis: ledger.BasisGiven, CallerKey: "n8n",
		Fresh: ledger.Fresh{ID: id, Secret: secret, ProviderKey: "hf_" + id[:8]},
	}
	for _, c := range change {
		c(r)
	}
	return r
}

func (s *probeTest) decides(want ledger.Decision, r *ledger.Request) ledger.Claim {
	s.Helper()
	v, err := s.store.Claim(s.Context(), r)
	if err != nil || v.Decision != want {
		s.Fatalf("%s, %v; want %s", v.Decision, err, want)
	}
	return v.Claim
}

// unknown is a claim without a receipt.
func (s *probeTest) unknown(key string, change ...func(*ledger.Request)) ledger.Claim {
	s.Helper()
	c := s.decides(ledger.Proceed, s.request(key, change...))
	token, _ := ledger.ParseToken(c.LeaseToken())
	out, err := s.store.End(s.Context(), &ledger.Ending{Verb: ledger.MarkUnknown, Token: token, ByToken: true, CallerKey: "n8n", Reference: "ref-" + key})
	if err != nil {
		s.Fatal(err)
	}
	return out.Claim
}

// stands reads a claim and the newest entry of its history.
func (s *probeTest) stands(id string) (ledger.Claim, ledger.HistoryEntry) {
	s.Helper()
	c, history, err := s.store.Get(s.Context(), id)
	if err != nil {
		s.Fatal(err)
	}
	return c, history[len(history)-1]
}

// What a destination can answer, and what it says of the claim.
func TestProbeVerdicts(t *testing.T) {
	t.Parallel()
	s := newProbeTest(t)
	type answered struct {
		status int
		body   string
		want   ledger.Status
		says   string // the id, or the cause
	}
	for found, answers := range map[string][]answered{
		"data.0.id": {
			{200, `{"data":[{"id":"ch_9"}]}`, ledger.Completed, "ch_9"},
			{201, ` {"data":[{"id":9007199254740993}],"error":null} `, ledger.Completed, "9007199254740993"},
			{200, `{"data":[{"id":1.50}],"error":{}}`, ledger.Completed, "1.50"},
			{200, `{"data":[{"id":"\u00e9 0"}],"error":""}`, ledger.Completed, "é 0"},
			{200, `{"data":[]}`, ledger.Failed, "not found"},
			{200, `{"data":[{"id":null}],"error":false,"errorCode":"0","error_message":" ","has_more":false,"next_page":null}`, ledger.Failed, "not found"},
			{200, `{"status":{"success":true},"success":true,"ok":1}`, ledger.Failed, "not found"},
			{200, `{"status":"failed"}`, ledger.Failed, "not found"}, // the payment's own
			{200, `{"data":[{"id":"ch_9"}],"has_more":true,"status":false}`, ledger.Completed, "ch_9"},
			{200, `{"data":[{"id":""}],"error":[]}`, ledger.Failed, "not found"},
			{200, `{"data":[null]}`, ledger.Failed, "not found"},
			{200, `{"data":null,"error":0}`, ledger.Failed, "not found"},
			{200, `{}`, ledger.Failed, "not found"},
			{404, `<html>`, ledger.Failed, "not found"},
			{200, `{"data":[{"id":{}}]}`, ledger.Unknown, "is no id"},
			{200, `{"data":[{"id":["ch_9"]}]}`, ledger.Unknown, "is no id"},
			{200, `{"data":[{"id":true}]}`, ledger.Unknown, "is no id"},
			{200, `{"data":[{"id":false}]}`, ledger.Unknown, "is no id"},
			{200, `{"data":[{"id":"a\u0000b"}]}`, ledger.Unknown, "is no id"},
			{200, `{"data":[{"id":"` + strings.Repeat("x", 1025) + `"}]}`, ledger.Unknown, "is no id"},
			{200, `{"data":{"id":"ch_9"}}`, ledger.Unknown, "another shape"},
			{200, `{"data":"none"}`, ledger.Unknown, "another shape"},
			{200, `[]`, ledger.Unknown, "another shape"},
			{200, `"not found"`, ledger.Unknown, "another shape"},
			{200, `{"data":[],"error":"busy"}`, ledger.Unknown, "holds an error"},
			{200, `{"data":[{"id":"ch_9"}],"error":{"code":1}}`, ledger.Unknown, "holds an error"},
			{200, `{"data":[],"error":1}`, ledger.Unknown, "holds an error"},
			{200, `{"data":null,"errors":[{"message":"busy"}]}`, ledger.Unknown, "holds an error"},
			{200, `{"errorCode":"500.003.02","errorMessage":"System is busy"}`, ledger.Unknown, "holds an error"},
			{200, `{"Error":"x"}`, ledger.Unknown, "holds an error"},
			{200, `{"error_code":7,"data":[{"id":"ch_9"}]}`, ledger.Unknown, "holds an error"},
			{200, `{"n":1e999,"ERRORS":{"a":1}}`, ledger.Unknown, "holds an error"},
			{200, `{"status":false,"message":"try later"}`, ledger.Unknown, "did not look"},
			{200, `{"data":[],"Status":{"code":200,"Success":false}}`, ledger.Unknown, "did not look"},
			{200, `{"success":false}`, ledger.Unknown, "did not look"},
			{200, `{"ok":false}`, ledger.Unknown, "did not look"},
			{200, `{"status":"ERROR","data":null}`, ledger.Unknown, "did not look"},
			{200, `{"data":[],"has_more":true}`, ledger.Unknown, "did not look"},
			{200, `{"data":[],"nextPageToken":"x"}`, ledger.Unknown, "did not look"},
			{200, ` null `, ledger.Unknown, "did not look"},
			{202, `{"status":"accepted"}`, ledger.Unknown, "it answers 202"},
			{202, `{"data":[{"id":"job_1"}]}`, ledger.Unknown, "it answers 202"},
			{206, `{"data":[]}`, ledger.Unknown, "it answers 206"},
			{200, `{"data":[{"id":0}]}`, ledger.Unknown, "is no id"},
			{200, `{"data":[{"id":0.0}]}`, ledger.Unknown, "is no id"},
			{200, `{"data":[{"id":0E-10}]}`, ledger.Unknown, "is no id"},
			{200, `{"data":[{"id":-1}]}`, ledger.Unknown, "is no id"},
			{200, `{"data":[{"id":"0"}]}`, ledger.Unknown, "is no id"},
			{200, `{"data":[{"id":" \u00a0"}]}`, ledger.Unknown, "is no id"},
			{200, `{"data":[{"id":"Null"}]}`, ledger.Unknown, "is no id"},
			{200, `{"data":[{"id":"00000000-0000-0000-0000-000000000000"}]}`, ledger.Unknown, "is no id"},
			{200, `{"data":[]`, ledger.Unknown, "not JSON"},
			{200, `<html>ok</html>`, ledger.Unknown, "not JSON"},
			{200, ``, ledger.Unknown, "not JSON"},
			{204, ``, ledger.Unknown, "not JSON"},
			{200, strings.Repeat(" ", outsideAnswer) + `{"data":[]}`, ledger.Unknown, "larger"},
			{301, `{"data":[{"id":"ch_9"}]}`, ledger.Unknown, "it answers 301"},
			{400, `{"data":[{"id":"ch_9"}]}`, ledger.Unknown, "it answers 400"},
			{401, `{"data":[]}`, ledger.Unknown, "it answers 401"},
			{410, `{"data":[]}`, ledger.Unknown, "it answers 410"},
			{429, `{"data":[]}`, ledger.Unknown, "it answers 429"},
			{500, `{"data":[]}`, ledger.Unknown, "it answers 500"},
			{503, ``, ledger.Unknown, "it answers 503"},
			{0, ``, ledger.Unknown, "the connection failed"}, // it hangs up
		},
		"0.id": {
			{200, `[{"id":"ch_9"}]`, ledger.Completed, "ch_9"},
			{200, `[]`, ledger.Failed, "not found"},
			{200, `{"id":"ch_9"}`, ledger.Unknown, "another shape"},
			{200, `[{"error":{"code":1}}]`, ledger.Unknown, "holds an error"},
			{200, `[{"Success":false}]`, ledger.Unknown, "did not look"},
		},
		"count": {
			{200, `{"count":0}`, ledger.Unknown, "is no id"},
			{200, `{"count":100}`, ledger.Completed, "100"},
		},
	} {
		p := s.simple("charge", ledger.Match{Step: "charge"}, "/find")
		p.Found = found
		w := s.probes(p)
		for i, a := range answers {
			s.answers(func(w http.ResponseWriter, _ *http.Request) {
				if a.status == 0 {
					panic(http.ErrAbortHandler)
				}
				w.Header().Set("Location", s.url+"/elsewhere")
				w.WriteHeader(a.status)
				_, _ = io.WriteString(w, a.body)
			})
			c := s.unknown(fmt.Sprint(found, i))
			s.later(5 * time.Minute)
			if w.Touch(t.Context(), &c) != (a.want != ledger.Unknown) {
				t.Errorf("%s: %d %.80s: touched", found, a.status, a.body)
			}
			now, last := s.stands(c.ID)
			if now.Status != a.want || last.By != "probe:charge" || last.HTTPStatus != int64(a.status) || !strings.HasPrefix(last.Message, "probe charge: ") {
				t.Errorf("%s: %d %.80s: %s, %+v", found, a.status, a.body, now.Status, last)
			}
			if says := map[bool]string{true: now.ResultID, false: last.Message}[a.want == ledger.Completed]; !strings.Contains(says, a.says) || strings.Contains(last.Message, "ch_9") {
				t.Errorf("%s: %d %.80s: says %q", found, a.status, a.body, says)
			}
			for _, asked := range s.requests() {
				if asked != "GET /find Bearer "+pspKey+" " {
					t.Errorf("it was asked for %q", asked)
				}
			}
		}
	}
}

// Values of the claim are encoded for where they stand; one that is missing, or would ask for something else, is not
// asked about.
func TestProbePlaceholders(t *testing.T) {
	t.Parallel()
	s := newProbeTest(t)
	in := func(place string, names ...string) (out []Part) {
		for _, name := range names {
			out = append(out, Part{Text: "/"}, Part{Name: name, In: place})
		}
		return out
	}
	p := s.simple("charge", ledger.Match{}, "/v1")
	p.Method, p.URL = "POST", append(append(p.URL, in("path", "idempotency_key", "payload.a.0")...),
		Part{Text: "?q="}, Part{Name: "entity", In: "query"}, Part{Text: "&s='"}, Part{Name: "account", In: "query", Without: "'\\*"}, Part{Text: "'"})
	p.Body = []Part{{Text: `{"ref":"`}, {Name: "reference", In: "body"}, {Text: `","n":"`}, {Name: "payload.n", In: "body"}, {Text: `"}`}}
	w := s.probes(p)
	for i, test := range []struct{ key, payload, entity, account, asked string }{
		{`a/b ?#&é%2e`, `{"a":["x;y=z"],"n":12345678901234567890}`, `c&d=e f+`, "acct_1", `/v1/a%2Fb%20%3F%23&%C3%A9%252e/x%3By=z?q=c%26d%3De+f%2B&s='acct_1'`},
		{`...`, `{"a":[true],"n":"\"},{\\"}`, `{{x}}`, "1;2", `/v1/.../true?q=%7B%7Bx%7D%7D&s='1%3B2'`},
		{`.`, `{"a":["x"],"n":1}`, "e", "a", ""},
		{`..`, `{"a":["x"],"n":1}`, "e", "a", ""},
		{`a/../b`, `{"a":["x"],"n":1}`, "e", "a", ""},
		{`a\..`, `{"a":["x"],"n":1}`, "e", "a", ""},
		{`no entity`, `{"a":["x"],"n":1}`, "", "a", ""},
		{`no account`, `{"a":["x"],"n":1}`, "e", "", ""},
		{`a quote`, `{"a":["x"],"n":1}`, "e", `x'OR'a`, ""},
		{`white space`, `{"a":["x"],"n":1}`, "e", "x OR\u00a0y", ""},
		{`a star`, `{"a":["x"],"n":1}`, "e", `*`, ""},
		{`a backslash`, `{"a":["x"],"n":1}`, "e", `x\`, ""},
		{`no element`, `{"a":[],"n":1}`, "e", "a", ""},
		{`an object`, `{"a":[{}],"n":1}`, "e", "a", ""},
		{`null`, `{"a":["x"],"n":null}`, "e", "a", ""},
		{`empty`, `{"a":["x"],"n":""}`, "e", "a", ""},
		{`half a character`, `{"a":["x"],"n":"\ud800"}`, "e", "a", ""},
		{`no payload`, ``, "e", "a", ""},
	} {
		c := s.unknown(test.key, func(r *ledger.Request) {
			r.Entity, r.Key.Account = test.entity, test.account
			r.Key.Source = fmt.Sprint("shop", i)
			if test.payload != "" {
				r.Payload, r.PayloadHash = []byte(test.payload), make([]byte, 32)
			}
		})
		s.later(time.Minute)
		w.Touch(t.Context(), &c)
		asked := s.requests()
		now, last := s.stands(c.ID)
		if test.asked == "" {
			if len(asked) != 0 || now.Status != ledger.Unknown || now.NextLook != ledger.At(s.clock()).Add(time.Hour) || !strings.HasPrefix(last.Message, "probe charge: ") || last.Reason != ledger.NothingToAsk || strings.Contains(last.Message, "OR") {
				t.Errorf("%s: asked %q; %s, %+v", test.key, asked, now.Status, last)
			}
			continue
		}
		if len(asked) != 1 || !strings.HasPrefix(asked[0], "POST "+test.asked+" Bearer ") || now.Status != ledger.Completed {
			t.Fatalf("%s: asked %q; %s", test.key, asked, now.Status)
		}
		var body struct{ Ref, N string }
		_, text, _ := strings.Cut(asked[0], pspKey+" ")
		if err := json.Unmarshal([]byte(text), &body); err != nil || body.Ref != "ref-"+test.key || body.N != map[int]string{0: "12345678901234567890", 1: `"},{\`}[i] {
			t.Errorf("%s: %+v %v", text, body, err)
		}
	}
	if n := strings.Count(s.logs.String(), "cannot ask about some of its claims"); n != 1 {
		t.Errorf("it was said %d times: %s", n, s.logs.String())
	}
}

// The probe that says most of a claim asks about it, and an address that no request may go to stops the start.
func TestProbeChoice(t *testing.T) {
	t.Parallel()
	s := newProbeTest(t)
	w := s.probes(
		s.simple("all", ledger.Match{Source: "shop"}, "/source"), s.simple("charge", ledger.Match{Step: "charge"}, "/step"), s.simple("psp", ledger.Match{Step: "charge", Destination: "psp"}, "/at"),
		s.simple("own", ledger.Match{Source: "own", Step: "charge"}, "/both"),
	)
	for path, change := range map[string]func(*ledger.Request){
		"/source": func(r *ledger.Request) { r.Key.Step = "mail" },
		"/step":   func(*ledger.Request) {},
		"/at":     func(r *ledger.Request) { r.Destination, r.Key.Source = "psp", "own" },
		"/both":   func(r *ledger.Request) { r.Destination, r.Key.Source = "bank", "own" },
		"":        func(r *ledger.Request) { r.Key.Source, r.Key.Step = "other", "mail" },
	} {
		for _, touched := range []bool{true, false} {
			c := s.unknown(fmt.Sprint("key", path, touched), change)
			s.later(time.Minute)
			if touched {
				w.Touch(t.Context(), &c)
			} else {
				s.pass(w)
			}
			asked := s.requests()
			if path == "" && len(asked) != 0 || path != "" && (len(asked) != 1 || !strings.Contains(asked[0], " "+path+" ")) {
				t.Errorf("%s (touched: %v): asked %q", path, touched, asked)
			}
		}
	}
	for _, host := range []string{"localhost", "LocalHost.:8080", "psp.localhost", "127.0.0.2", "10.0.0.5:8080", "169.254.169.254", "[::1]:80", "[::ffff:10.0.0.1]", "[fe80::1%25eth0]", "0.0.0.0", "[fd00::1]", "[64:ff9b::7f00:1]"} {
		_, err := NewProbes(ProbeOptions{Probes: []Probe{{Name: "charge", URL: []Part{{Text: "http://" + host + "/x"}}}}, Private: prefixes("127.0.0.3/32")}, s.store)
		if err == nil || !strings.Contains(err.Error(), "probes.charge.url") || !strings.Contains(err.Error(), "allow_private") {
			t.Errorf("%s: %v", host, err)
		}
	}
}
