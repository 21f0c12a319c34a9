package notify

import (
	"bytes"
	"context"
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
	"holdfast/internal/pgtest"
	"holdfast/internal/store"
)

// receiver is a webhook that can be broken.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	bodies []string
	block  chan struct{} // if set, answers wait for it
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{status: http.StatusOK}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		status, block := r.status, r.block
		if status == http.StatusOK {
			r.bodies = append(r.bodies, string(body))
		}
		r.mu.Unlock()
		if block != nil {
			<-block
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) answer(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

func (r *receiver) got() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.bodies...)
}

func (r *receiver) address() string {
	return "generic" + strings.TrimPrefix(r.URL, "http") + "/hook/s3cr3t-path?disabletls=yes"
}

// system is a store with a clock that a test moves, and a sender for each address.
type system struct {
	*testing.T
	store   *store.Store
	senders []*Sender
	logs    *logs

	mu sync.Mutex
	at time.Time
}

// logs is a buffer for several writers.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (s *system) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

func (s *system) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = s.at.Add(d)
}

// onBoth runs a test over both databases.
func onBoth(t *testing.T, fn func(t *testing.T, url string)) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		fn(t, "sqlite://"+filepath.Join(t.TempDir(), "holdfast.db"))
	})
	t.Run("Postgres", func(t *testing.T) {
		t.Parallel()
		fn(t, pgtest.Schema(t))
	})
}

func newSystem(t *testing.T, url string, addresses ...string) *system {
	t.Helper()
	s := &system{T: t, at: time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC), logs: new(logs)}
	targets, err := Targets(addresses)
	if err != nil {
		t.Fatal(err)
	}
	var o store.AlertOptions
	for _, target := range targets {
		o.Targets = append(o.Targets, target.ID)
	}
	if s.store, err = store.Open(t.Context(), url, store.Options{Now: s.now, Alerts: o}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.store.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := s.store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(targets) == 0 {
		targets = []*Target{nil}
	}
	for _, target := range targets {
		s.senders = append(s.senders, s.sender(target))
	}
	return s
}

func (s *system) sender(t *Target) *Sender {
	return &Sender{Outbox: s.store, Target: t, PublicURL: "https://holdfast.example.test/", Log: slog.New(slog.NewTextHandler(s.logs, nil))}
}

func (s *system) raise(group string) {
	s.Helper()
	err := s.store.RaiseAlert(s.Context(), deadletter.Alert{
		Group: group, Title: "A letter of " + group + " is dead", Text: "It failed with 401. token=abcdefgh12345678", Path: "/dlq/0192",
	})
	if err != nil {
		s.Fatal(err)
	}
}

func (s *system) send() {
	s.Helper()
	for _, sender := range s.senders {
		if err := sender.Pass(s.Context()); err != nil {
			s.Fatal(err)
		}
	}
}

// A thousand equal alerts are one message with a count and a link.
func TestOneMessageForAThousand(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		r := newReceiver(t)
		s := newSystem(t, url, r.address())
		for range 1000 {
			s.raise("lead")
		}
		s.send()
		if got := r.got(); len(got) != 0 {
			t.Fatalf("sent before more could come: %q", got)
		}
		s.pass(30 * time.Second)
		s.send()
		want := "A letter of lead is dead (and 999 more like it)\nIt failed with 401. token=[redacted]\nhttps://holdfast.example.test/dlq/0192"
		if got := r.got(); len(got) != 1 || got[0] != want {
			t.Fatalf("%d: %q", len(got), got)
		}
		s.raise("lead")
		s.pass(time.Minute)
		s.send()
		if got := r.got(); len(got) != 1 {
			t.Fatalf("sent within five minutes: %q", got[1:])
		}
		s.pass(5 * time.Minute)
		s.send()
		if got := r.got(); len(got) != 2 || strings.Contains(got[1], "more like it") {
			t.Fatalf("%q", got)
		}
	})
}

// A service that is broken stops nobody else, gets what it missed when it is back, and the others get nothing twice.
// Nothing of an address stands in the log.
func TestDeadReceiver(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		broken, gone, good := newReceiver(t), newReceiver(t), newReceiver(t)
		broken.answer(http.StatusInternalServerError)
		s := newSystem(t, url, broken.address(), gone.address(), good.address())
		gone.Close()
		s.raise("lead")
		s.pass(30 * time.Second)
		for range 4 {
			s.send()
			s.pass(10 * time.Minute)
			s.raise("lead")
			s.pass(30 * time.Second)
		}
		broken.answer(http.StatusOK)
		s.pass(time.Hour)
		s.send()
		s.send()
		if got := broken.got(); len(got) != 1 || !strings.Contains(got[0], "(and 4 more like it)") {
			t.Errorf("the broken one got %q, want one message of five alerts", got)
		}
		if got := good.got(); len(got) != 5 {
			t.Errorf("the good one got %d messages, want 5: %q", len(got), got)
		}
		out := s.logs.String()
		if n := strings.Count(out, "could not be sent and will be tried again"); n < 8 {
			t.Errorf("%d warnings in\n%s", n, out)
		}
		for _, secret := range []string{"s3cr3t", "hook", strings.TrimPrefix(gone.URL, "http://")} {
			if strings.Contains(out, secret) {
				t.Errorf("%q is in the log:\n%s", secret, out)
			}
		}
	})
}

// Senders that come at once, of two replicas, send each message once.
func TestTwoSendersAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		r := newReceiver(t)
		s := newSystem(t, url, r.address())
		for i := range 12 {
			s.raise(fmt.Sprint("group", i))
		}
		s.pass(30 * time.Second)
		var wg sync.WaitGroup
		for range 4 {
			sender := s.sender(s.senders[0].Target)
			wg.Go(func() {
				for range 5 {
					if err := sender.Pass(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		seen := map[string]int{}
		for _, body := range r.got() {
			seen[body]++
		}
		if len(seen) != 12 || len(r.got()) != 12 {
			t.Errorf("%d messages, %d different: %v", len(r.got()), len(seen), seen)
		}
	})
}

// killed is an outbox whose program is gone before it can note what it sent.
type killed struct{ Outbox }

func (killed) AlertSent(context.Context, *deadletter.OutboxMessage) error { return context.Canceled }

// A sender that is killed after a message was sent and before that was noted has it sent once more, when its lease is
// over; that is all that can repeat.
func TestKilledBetween(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		r := newReceiver(t)
		s := newSystem(t, url, r.address())
		s.raise("lead")
		s.pass(30 * time.Second)
		first := s.sender(s.senders[0].Target)
		first.Outbox = killed{s.store}
		if err := first.Pass(t.Context()); err == nil {
			t.Fatal("no error")
		}
		s.send()
		if got := r.got(); len(got) != 1 {
			t.Fatalf("sent again under a lease: %q", got)
		}
		for range 5 {
			s.pass(time.Minute)
			s.send()
		}
		if got := r.got(); len(got) != 2 || got[0] != got[1] {
			t.Fatalf("%q, want the message twice", got)
		}
	})
}

// Without an address an alert is one warning in the log.
func TestLog(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		s := newSystem(t, url)
		for range 3 {
			s.raise("lead")
		}
		s.pass(30 * time.Second)
		s.send()
		s.send()
		out := s.logs.String()
		if strings.Count(out, "\n") != 1 {
			t.Fatalf("log:\n%s", out)
		}
		for _, want := range []string{"level=WARN", `msg="A letter of lead is dead"`, "count=3", "link=https://holdfast.example.test/dlq/0192"} {
			if !strings.Contains(out, want) {
				t.Errorf("no %s in %s", want, out)
			}
		}
	})
}

// A service that hangs is left alone after a while; stopping the program does not wait for it.
func TestHangs(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	r.block = make(chan struct{})
	defer close(r.block)
	s := newSystem(t, "sqlite://"+filepath.Join(t.TempDir(), "holdfast.db"), r.address())
	s.raise("lead")
	s.pass(30 * time.Second)
	began := time.Now()
	time.AfterFunc(100*time.Millisecond, s.senders[0].Stop)
	s.send()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("stopping took %v", took)
	}
	if out := s.logs.String(); !strings.Contains(out, errStopped.Error()) {
		t.Errorf("log:\n%s", out)
	}
	again := s.sender(s.senders[0].Target)
	s.pass(time.Minute)
	if err := again.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out := s.logs.String(); !strings.Contains(out, errTime.Error()) && !strings.Contains(out, "Timeout exceeded") {
		t.Errorf("log:\n%s", out)
	}
	if again.Stop(); again.Pass(t.Context()) != nil {
		t.Error("a pass after the stop")
	}
}

// A redirect would lose the message and look like success.
func TestRedirects(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	from := httptest.NewServer(http.RedirectHandler(r.URL, http.StatusFound))
	t.Cleanup(from.Close)
	s := newSystem(t, "sqlite://"+filepath.Join(t.TempDir(), "holdfast.db"), "generic"+strings.TrimPrefix(from.URL, "http")+"/x?disabletls=yes")
	s.raise("lead")
	s.pass(30 * time.Second)
	s.send()
	if out := s.logs.String(); !strings.Contains(out, "redirects are not followed") || len(r.got()) != 0 {
		t.Errorf("%q, log:\n%s", r.got(), out)
	}
}
