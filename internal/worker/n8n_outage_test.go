package worker

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/deadletter"
)

// However n8n is away, letters keep wanting their inputs, one line says so, and n8n is asked less and less often.
func TestN8NAway(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	t.Cleanup(other.Close)
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	status := func(code int, body string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
			return true
		}
	}
	for _, c := range []struct {
		name, says string
		fault      func(http.ResponseWriter, *http.Request) bool
	}{
		{"a wrong key", "401", status(401, `{"message":"unauthorized"}`)},
		{"a key without the scope", "403", status(403, `{"message":"Forbidden"}`)},
		{"starting", "503", status(503, `n8n is starting up`)},
		{"behind a proxy without it", "502", status(502, `<html>Bad Gateway</html>`)},
		{"another program at the address", "public API is not there", status(404, `404 page not found`)},
		{"a login page", "public API is not there", status(200, `<html>Log in</html>`)},
		{"a redirect", "a redirect", func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
			return true
		}},
		{"a hang-up", "EOF", func(w http.ResponseWriter, _ *http.Request) bool {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = conn.Close()
			}
			return true
		}},
		{"no answer", "Timeout", func(_ http.ResponseWriter, r *http.Request) bool {
			select {
			case <-hang:
			case <-r.Context().Done():
			}
			return true
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newN8NTest(t)
			s.w.client.client.Timeout = 300 * time.Millisecond
			l := s.report(failed(10, ""))
			s.n8n.run(10, "error", captured.Add(-time.Minute), data(`{"order":1}`, `{"charge":2}`))
			s.n8n.run(11, "error", captured.Add(-2*time.Minute), nil)
			s.n8n.fail(c.fault)
			const turns = 40
			for range turns {
				s.missed()
				s.inputs()
				s.truth()
				s.later(n8nTurn)
			}
			asked := len(s.n8n.requests())
			if asked < 2 || asked > 12 {
				t.Errorf("asked %d times in %d turns", asked, turns)
			}
			log := s.log()
			if strings.Count(log, "level=WARN") != 1 || !strings.Contains(log, c.says) || strings.Contains(log, apiKey) {
				t.Errorf("the log: %s", log)
			}
			if got := s.input(l.ID); got != "wanted " || len(s.letters()) != 1 {
				t.Errorf("%s, %d letters", got, len(s.letters()))
			}
			if mark, err := s.store.Mark(t.Context(), seenMark); mark != "" || err != nil {
				t.Errorf("the mark moved to %q: %v", mark, err)
			}

			s.n8n.fail(nil)
			s.later(n8nLastRest)
			s.missed()
			s.later(inputLastTry)
			s.inputs()
			if got := s.input(l.ID); got != `stored {"charge":2}` || len(s.letters()) != 2 {
				t.Errorf("when n8n was back: %s, %d letters", got, len(s.letters()))
			}
			if log := s.log(); strings.Count(log, "n8n answers again") != 1 {
				t.Errorf("the log: %s", log)
			}
		})
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("a redirect was followed %d times", n)
	}
}

// A wish of n8n's to be left alone is granted.
func TestN8NRetryAfter(t *testing.T) {
	t.Parallel()
	s := newN8NTest(t)
	s.n8n.fail(func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	})
	s.missed()
	s.later(119 * time.Second)
	s.missed()
	if n := len(s.n8n.requests()); n != 1 {
		t.Errorf("asked %d times", n)
	}
	s.later(time.Second)
	s.missed()
	if n := len(s.n8n.requests()); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// A program that ends does not wait for n8n.
func TestN8NStop(t *testing.T) {
	t.Parallel()
	s := newN8NTest(t)
	asked := make(chan struct{}, 10)
	s.n8n.fail(func(_ http.ResponseWriter, r *http.Request) bool {
		asked <- struct{}{}
		<-r.Context().Done()
		return true
	})
	s.report(failed(10, ""))
	loops := s.w.Loops()
	for _, l := range loops {
		l.Start()
	}
	for range loops {
		<-asked
	}
	began := time.Now()
	s.w.Stop()
	for _, l := range loops {
		l.Stop()
	}
	if d := time.Since(began); d > 2*time.Second {
		t.Errorf("it took %v", d)
	}
	if log := s.log(); strings.Contains(log, "WARN") {
		t.Errorf("the log: %s", log)
	}
	var none *N8N
	none.Stop() // where no n8n is configured
}

// The address may have a path, and may be the API's own.
func TestN8NAddress(t *testing.T) {
	t.Parallel()
	s := newN8NTest(t)
	for base, want := range map[string]string{
		"": "/api/v1/executions/7?includeData=true", "/": "/api/v1/executions/7?includeData=true", "/api/v1/": "/api/v1/executions/7?includeData=true",
		"/n8n": "/n8n/api/v1/executions/7?includeData=true", "/n8n/api/v1": "/n8n/api/v1/executions/7?includeData=true", "/a%2Fb": "/a%2Fb/api/v1/executions/7?includeData=true",
	} {
		c, err := newN8NClient(s.n8n.url+base, apiKey, s.w.log)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.execution(t.Context(), "7", true)
		if asked := s.n8n.requests(); len(asked) == 0 || asked[0] != want {
			t.Errorf("%q: asked for %q", base, asked)
		}
	}
	for _, bad := range []string{"", "n8n:5678", "ftp://n8n", "http://", "http://%zz"} {
		if _, err := NewN8N(N8NOptions{URL: bad}, nil); err == nil {
			t.Errorf("%q is an address", bad)
		}
	}
}

// Times are compared by n8n's own clock.
func TestN8NClock(t *testing.T) {
	t.Parallel()
	s := newN8NTest(t)
	wrong := captured.Add(3 * time.Hour) // n8n's clock
	s.n8n.mu.Lock()
	s.n8n.now = wrong
	s.n8n.mu.Unlock()
	s.n8n.run(10, "error", wrong.Add(-10*time.Second), nil) // young
	s.n8n.run(11, "error", wrong.Add(-10*time.Minute), data(`{"order":1}`, `{"charge":2}`))
	s.missed()
	letters := s.letters()
	if len(letters) != 1 || letters["11"].Status != deadletter.Dead {
		t.Errorf("%+v", letters)
	}
	s.inputs()
	if got := s.input(letters["11"].ID); got != `stored {"charge":2}` {
		t.Errorf("a run that seems to lie ahead: %s", got)
	}
}
