package store

import (
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/uuid"

	"holdfast/internal/ledger"
	"holdfast/internal/pgtest"
)

// onBoth runs fn over a fresh database of each kind.
func onBoth(t *testing.T, fn func(t *testing.T, url string)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		fn(t, "sqlite://"+filepath.Join(t.TempDir(), "holdfast.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		fn(t, pgtest.Schema(t))
	})
}

func openMigrated(t *testing.T, url string, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// gate holds every batch back until it is let through, so that a test decides what shares a transaction.
type gate struct {
	*testing.T
	*Store
	waiting chan int      // the size of each batch that came to the gate
	pass    chan struct{} // lets one through; closed, all
}

func newGate(t *testing.T, url string) *gate {
	t.Helper()
	g := &gate{T: t, waiting: make(chan int), pass: make(chan struct{})}
	g.Store = openMigrated(t, url, Options{Observer: Observer{Batch: func(_ string, size int) {
		select {
		case g.waiting <- size:
		case <-g.pass:
			return // open
		}
		<-g.pass
	}}})
	g.claims.leaders, g.endings.leaders = 1, 1 // a second batch beside the first would take some of the calls
	return g
}

// batch makes calls arrive as one batch, in order, and opens the gate. occupy makes a call of the same lane that
// is nothing to the test; queued counts those that wait.
func (g *gate) batch(occupy func(), queued func() int, calls ...func()) (size int) {
	g.Helper()
	go occupy()
	<-g.waiting
	for i, call := range calls {
		go call()
		for queued() <= i {
			runtime.Gosched()
		}
	}
	g.pass <- struct{}{} // the first batch goes on; the next one is all that came meanwhile
	size = <-g.waiting
	close(g.pass)
	return size
}

// queued counts the calls that wait in a lane.
func queued[Q, A any](l *lane[Q, A]) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}

func plain(t *testing.T, key string) *ledger.Request {
	t.Helper()
	id, err := uuid.NewV7()
	if err != nil {
		t.Fatal(err)
	}
	secret := make([]byte, ledger.SecretBytes)
	_, _ = rand.Read(secret)
	return &ledger.Request{
		Key: ledger.Key{Source: "src", IdempotencyKey: key, Step: "charge"}, Basis: ledger.BasisGiven, CallerKey: "n8n",
		Fresh: ledger.Fresh{ID: id.String(), Secret: secret, ProviderKey: "hf_" + id.String()[24:]},
	}
}

type claimed struct {
	v   ledger.Verdict
	err error
}

// claims sends the requests as one batch.
func (g *gate) claimBatch(requests ...*ledger.Request) (out []claimed, size int) {
	g.Helper()
	out = make([]claimed, len(requests))
	done := make(chan struct{}, len(requests))
	calls := make([]func(), len(requests))
	for i, r := range requests {
		calls[i] = func() {
			out[i].v, out[i].err = g.Claim(g.Context(), r)
			done <- struct{}{}
		}
	}
	size = g.batch(func() { _, _ = g.Claim(g.Context(), plain(g.T, rand.Text())) }, func() int { return queued(g.claims) }, calls...)
	for range calls {
		<-done
	}
	return out, size
}

type reported struct {
	ended ledger.Ended
	err   error
}

func (g *gate) endBatch(endings ...*ledger.Ending) (out []reported, size int) {
	g.Helper()
	out = make([]reported, len(endings))
	done := make(chan struct{}, len(endings))
	calls := make([]func(), len(endings))
	for i, e := range endings {
		calls[i] = func() {
			out[i].ended, out[i].err = g.End(g.Context(), e)
			done <- struct{}{}
		}
	}
	none := &ledger.Ending{Verb: ledger.Complete, Key: ledger.Key{Source: "none", IdempotencyKey: "none"}}
	size = g.batch(func() { _, _ = g.End(g.Context(), none) }, func() int { return queued(g.endings) }, calls...)
	for range calls {
		<-done
	}
	return out, size
}

// held claims keys before the gate is needed.
func held(t *testing.T, url string, n int) []ledger.Token {
	t.Helper()
	s := openMigrated(t, url, Options{})
	tokens := make([]ledger.Token, n)
	for i := range tokens {
		v, err := s.Claim(t.Context(), plain(t, fmt.Sprint("key", i)))
		if err != nil {
			t.Fatal(err)
		}
		tokens[i], _ = ledger.ParseToken(v.Claim.LeaseToken())
	}
	return tokens
}

func code(err error) string {
	var refusal *ledger.Refusal
	switch {
	case err == nil:
		return ""
	case errors.As(err, &refusal):
		return string(refusal.Code)
	case errors.Is(err, ledger.ErrNotFound):
		return "not_found"
	}
	return err.Error()
}

func TestBatchEqualKeysInOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		g := newGate(t, url)
		out, size := g.claimBatch(plain(t, "b"), plain(t, "a"), plain(t, "b"), plain(t, "a"), plain(t, "c"), plain(t, "b"))
		if size != len(out) {
			t.Fatalf("a batch of %d, want %d", size, len(out))
		}
		for i, want := range []ledger.Decision{ledger.Proceed, ledger.Proceed, ledger.InProgress, ledger.InProgress, ledger.Proceed, ledger.InProgress} {
			if out[i].err != nil || out[i].v.Decision != want {
				t.Errorf("call %d: %q %v, want %q", i, out[i].v.Decision, out[i].err, want)
			}
		}
	})
}

func TestBatchEndingsInOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		tokens := held(t, url, 2)
		g := newGate(t, url)
		mark := func(i int, e ledger.Ending) *ledger.Ending {
			e.Token, e.ByToken = tokens[i], true
			return &e
		}
		out, _ := g.endBatch(
			mark(0, ledger.Ending{Verb: ledger.MarkUnknown}), mark(0, ledger.Ending{Verb: ledger.Complete, ResultID: "r1"}),
			mark(1, ledger.Ending{Verb: ledger.Complete, ResultID: "x"}), mark(0, ledger.Ending{Verb: ledger.Complete, ResultID: "r2"}),
			mark(0, ledger.Ending{Verb: ledger.Complete, ResultID: "r1"}), mark(0, ledger.Ending{Verb: ledger.Extend, LeaseSeconds: 60}),
		)
		for i, want := range []string{"unknown true ", "completed true ", "completed true ", "completed false result_conflict", "completed false ", "completed false lease_lost"} {
			if got := fmt.Sprint(out[i].ended.Claim.Status, " ", out[i].ended.Changed, " ", code(out[i].err)); got != want {
				t.Errorf("report %d: %q, want %q", i, got, want)
			}
		}
		_, history, err := g.Get(t.Context(), tokens[0].ClaimID)
		if err != nil || len(history) != 4 { // granted, unknown, completed, and the conflict
			t.Errorf("%v: %+v", err, history)
		}
	})
}

func TestBatchMemberFailsAlone(t *testing.T) {
	t.Run("reference", func(t *testing.T) {
		onBoth(t, func(t *testing.T, url string) {
			tokens := held(t, url, 4)
			g := newGate(t, url)
			var endings []*ledger.Ending
			for i, token := range tokens {
				e := &ledger.Ending{Verb: ledger.MarkUnknown, Token: token, ByToken: true, Reference: "same"}
				if i >= 2 {
					e = &ledger.Ending{Verb: ledger.Complete, Token: token, ByToken: true, ResultID: "r"}
				}
				endings = append(endings, e)
			}
			forged := tokens[0]
			forged.Grant = 7
			out, _ := g.endBatch(append(endings, &ledger.Ending{Verb: ledger.Complete, Token: forged, ByToken: true})...)
			for i, want := range []string{"", "key_reused", "", "", "not_found"} {
				if got := code(out[i].err); got != want {
					t.Errorf("report %d: %q, want %q", i, got, want)
				}
			}
			for i, want := range []ledger.Status{ledger.Unknown, "", ledger.Completed, ledger.Completed} {
				if c, _, err := g.Get(t.Context(), tokens[i].ClaimID); err != nil || want != "" && c.Status != want {
					t.Errorf("claim %d: %s %v, want %s", i, c.Status, err, want)
				}
			}
		})
	})
	t.Run("text that a database refuses", func(t *testing.T) {
		onBoth(t, func(t *testing.T, url string) {
			g := newGate(t, url)
			bad := plain(t, "bad")
			bad.Origin.Owner = "a\x00b"
			out, _ := g.claimBatch(plain(t, "one"), bad, plain(t, "two"))
			for _, i := range []int{0, 2} {
				if out[i].err != nil || out[i].v.Decision != ledger.Proceed {
					t.Errorf("call %d: %q %v", i, out[i].v.Decision, out[i].err)
				}
			}
		})
	})
}

func TestBatchEndsAtOneMebibyte(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		g := newGate(t, url)
		var requests []*ledger.Request
		for i := range 5 {
			r := plain(t, fmt.Sprint("key", i))
			r.Payload, r.PayloadHash = make([]byte, 600<<10), make([]byte, 32)
			requests = append(requests, r)
		}
		out, size := g.claimBatch(requests...)
		if size != 2 {
			t.Errorf("a batch of %d, want 2", size)
		}
		for i := range out {
			if out[i].err != nil || out[i].v.Decision != ledger.Proceed {
				t.Errorf("call %d: %q %v", i, out[i].v.Decision, out[i].err)
			}
		}
	})
}
