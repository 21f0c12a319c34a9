//go:build e2e

package e2e

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
)

// wire is what lies between n8n and Holdfast: it passes requests on, and can
// lose answers, give others instead, or be cut.
type wire struct {
	target string
	addr   string // stays the same when the wire is cut and mended
	server *http.Server

	mu       sync.Mutex
	seen     map[string]int         // requests by path
	lose     map[string]int         // how many answers of a path are still to be lost
	replaced map[string]replacement // answers instead of Holdfast
}

// replacement is an answer to requests whose body has a text in it.
type replacement struct {
	text   string
	answer http.HandlerFunc
}

func newWire(t *testing.T, target string) *wire {
	t.Helper()
	w := &wire{target: target, addr: "127.0.0.1:0", seen: map[string]int{}, lose: map[string]int{}, replaced: map[string]replacement{}}
	w.mend(t)
	t.Cleanup(func() { _ = w.server.Close() })
	return w
}

func (w *wire) url() string { return "http://" + w.addr }

// cut refuses connections from now on, as a stopped Holdfast does.
func (w *wire) cut(t *testing.T) {
	t.Helper()
	if err := w.server.Close(); err != nil {
		t.Fatal(err)
	}
}

// mend listens again at the same address.
func (w *wire) mend(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	w.addr = l.Addr().String()
	w.server = &http.Server{Handler: w}
	server := w.server
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("wire: %v", err)
		}
	}()
}

// loseAnswers lets Holdfast do what the next n requests to path ask, and closes
// their connections instead of passing the answers on.
func (w *wire) loseAnswers(path string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lose[path] += n
}

// replace answers requests to path in Holdfast's place.
func (w *wire) replace(path string, answer http.HandlerFunc) { w.replaceIf(path, "", answer) }

// replaceIf answers only those whose body has text in it.
func (w *wire) replaceIf(path, text string, answer http.HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.replaced[path] = replacement{text, answer}
}

// count says how many requests came for path.
func (w *wire) count(path string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen[path]
}

// enter counts a request and says what is to become of it.
func (w *wire) enter(path string, body []byte) (instead http.HandlerFunc, lost bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[path]++
	if other := w.replaced[path]; other.answer != nil && bytes.Contains(body, []byte(other.text)) {
		return other.answer, false
	}
	if lost = w.lose[path] > 0; lost {
		w.lose[path]--
	}
	return nil, lost
}

func (w *wire) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	content, err := io.ReadAll(in.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	instead, lost := w.enter(in.URL.Path, content)
	if instead != nil {
		instead(out, in)
		return
	}
	status, header, body, err := w.forward(in, content)
	if err != nil || lost {
		panic(http.ErrAbortHandler) // closes the connection without a word
	}
	for name, values := range header {
		out.Header()[name] = values
	}
	out.WriteHeader(status)
	_, _ = out.Write(body) // n8n may have hung up
}

// forward has the whole answer in hand before it returns, so that what Holdfast
// was asked to do is done when an answer is lost.
func (w *wire) forward(in *http.Request, content []byte) (int, http.Header, []byte, error) {
	req, err := http.NewRequestWithContext(in.Context(), in.Method, w.target+in.URL.RequestURI(), bytes.NewReader(content))
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header = in.Header.Clone()
	req.Header.Del("Connection")
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, res.Header, body, err
}
