//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// destination is where the work goes: it remembers everything that reached it,
// whatever it answered.
type destination struct {
	*httptest.Server

	mu       sync.Mutex
	received []delivery
	scripted []http.HandlerFunc // for the next requests, in order
	byPath   map[string][]http.HandlerFunc
	held     chan struct{} // while not nil, answers wait until it is closed
}

// delivery is one request that reached the destination.
type delivery struct {
	Method, Path   string
	Query          string
	Header         http.Header
	Event          json.RawMessage
	IdempotencyKey string
}

func newDestination(t *testing.T) *destination {
	t.Helper()
	d := &destination{}
	d.Server = httptest.NewServer(http.HandlerFunc(d.serve))
	t.Cleanup(d.Server.Close)
	return d
}

func (d *destination) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		body = []byte(fmt.Sprintf("%q", err.Error()))
	}
	d.mu.Lock()
	d.received = append(d.received, delivery{r.Method, r.URL.Path, r.URL.RawQuery, r.Header, body, r.Header.Get("Idempotency-Key")})
	answer := done(len(d.received))
	if own := d.byPath[r.URL.Path]; len(own) > 0 {
		answer, d.byPath[r.URL.Path] = own[0], own[1:]
	} else if len(d.scripted) > 0 {
		answer, d.scripted = d.scripted[0], d.scripted[1:]
	}
	held := d.held
	d.mu.Unlock()
	if held != nil {
		<-held
	}
	answer(w, r)
}

// hold keeps the destination's answers back until release is called. The test's
// end releases them as well.
func (d *destination) hold(t *testing.T) (release func()) {
	t.Helper()
	held := make(chan struct{})
	d.mu.Lock()
	d.held = held
	d.mu.Unlock()
	release = sync.OnceFunc(func() {
		d.mu.Lock()
		d.held = nil
		d.mu.Unlock()
		close(held)
	})
	t.Cleanup(release)
	return release
}

// script sets the answers of the next requests; afterwards it is done again.
func (d *destination) script(answers ...http.HandlerFunc) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.scripted = append(d.scripted, answers...)
}

// scriptPath sets the answers of the next requests to one path.
func (d *destination) scriptPath(path string, answers ...http.HandlerFunc) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byPath == nil {
		d.byPath = map[string][]http.HandlerFunc{}
	}
	d.byPath[path] = append(d.byPath[path], answers...)
}

// deliveriesTo gives what reached one path.
func (d *destination) deliveriesTo(path string) (got []delivery) {
	for _, one := range d.deliveries() {
		if one.Path == path {
			got = append(got, one)
		}
	}
	return got
}

func (d *destination) deliveries() []delivery {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]delivery(nil), d.received...)
}

// done is the answer to the nth request when all is well; its id tells which
// request a stored result came from.
func done(n int) http.HandlerFunc {
	return respond(http.StatusOK, "application/json", fmt.Sprintf(`{"id":"done-%d","ok":true}`, n))
}

// respond answers always the same.
func respond(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body) // the caller may have hung up
	}
}

// hangUp closes the connection without an answer.
func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// silent does not answer until the caller gives up.
func silent(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
