package proof

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"holdfast/internal/ledger"
	"holdfast/internal/pgtest"
	"holdfast/internal/store"
)

// databases makes a fresh database of each kind.
var databases = map[string]func(testing.TB) string{
	"SQLite":     func(tb testing.TB) string { return "sqlite://" + filepath.Join(tb.TempDir(), "holdfast.db") },
	"PostgreSQL": pgtest.Schema,
}

// onEach runs a test on both databases.
func onEach(t *testing.T, test func(*testing.T, *base)) {
	t.Helper()
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newBase(t, open(t)))
		})
	}
}

// base is a database that many histories share, one after the other: each has sources of its own, which costs
// nothing, where a database takes longer than a history.
type base struct {
	tb    testing.TB
	url   string
	clock *clock
	store *store.Store
	used  int
}

// began is when every history begins, so that one that is played again is told in the same words.
var began = time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)

// clock stands still until it is moved.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) set(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at
}

// batch is how many histories one Store serves: their sources must be known when it is opened.
const batch = 200

func newBase(tb testing.TB, url string) *base {
	tb.Helper()
	b := &base{tb: tb, url: url, clock: &clock{at: began}}
	tb.Cleanup(b.close)
	b.open()
	if _, err := b.store.Migrate(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return b
}

func (b *base) close() {
	if b.store == nil {
		return
	}
	if err := b.store.Close(); err != nil {
		b.tb.Error(err)
	}
}

func (b *base) open() {
	b.close()
	policies := ledger.Policies{Sources: map[string]ledger.Policy{}, Destinations: map[string]ledger.Policy{}}
	for name, r := range sourceRules {
		for i := range batch {
			policies.Sources[unique(name, b.used+i)] = ledger.Policy{Window: r.window, AskAfter: r.askAfter, NotFoundAfter: r.notFoundAfter}
		}
	}
	for name, r := range destinationRules {
		policies.Destinations[name] = ledger.Policy{Window: r.window, AskAfter: r.askAfter, NotFoundAfter: r.notFoundAfter}
	}
	var err error
	if b.store, err = store.Open(context.Background(), b.url, store.Options{Now: b.clock.now, Policies: policies}); err != nil {
		b.tb.Fatal(err)
	}
}

func unique(source string, n int) string { return fmt.Sprintf("%s%d", source, n) }

// world is where one history happens.
type world struct {
	base  *base
	store ledger.Store
	n     int

	ids    map[slot]string
	tokens map[token]string // the text of each token that was handed out
	texts  map[string]token
	grants map[slot]int
	looks  map[slot]int
	keys   map[string]slot // provider keys, each of one claim
	keyNo  map[string]int
	keyed  map[slot]int
}

// history begins a new history. wrap may put something between the history and the store.
func (b *base) history(wrap func(ledger.Store, *clock) ledger.Store) *world {
	if b.used > 0 && b.used%batch == 0 {
		b.open()
	}
	w := &world{
		base: b, store: b.store, n: b.used, ids: map[slot]string{}, tokens: map[token]string{}, texts: map[string]token{},
		grants: map[slot]int{}, looks: map[slot]int{}, keys: map[string]slot{}, keyNo: map[string]int{}, keyed: map[slot]int{},
	}
	if wrap != nil {
		w.store = wrap(b.store, b.clock)
	}
	b.used++
	b.clock.set(began)
	return w
}

func (w *world) key(s slot) ledger.Key {
	return ledger.Key{Source: unique(s.source, w.n), Account: s.account, IdempotencyKey: s.key, Step: s.step}
}

func (w *world) scope(s string) string {
	if name, ok := strings.CutPrefix(s, "source."); ok {
		return "source." + unique(name, w.n)
	}
	return s
}

// worker is the model's name for a worker's token. One that was never seen is the claim's next.
func (w *world) worker(s slot, text string) token {
	if t, ok := w.texts[text]; ok {
		return t
	}
	w.grants[s]++
	return w.remember(token{slot: s, grant: w.grants[s]}, text)
}

func (w *world) looker(s slot, text string) token {
	if t, ok := w.texts[text]; ok {
		return t
	}
	w.looks[s]++
	return w.remember(token{s, w.grants[s], w.looks[s]}, text)
}

func (w *world) remember(t token, text string) token {
	w.tokens[t], w.texts[text] = text, t
	return t
}

// providerKey counts the keys that a claim has had; -1 for one that belongs to another claim.
func (w *world) providerKey(s slot, key string) int {
	owner, known := w.keys[key]
	switch {
	case known && owner != s:
		return -1
	case !known:
		w.keyed[s]++
		w.keys[key], w.keyNo[key] = s, w.keyed[s]
	}
	return w.keyNo[key]
}

func fresh() ledger.Fresh {
	id := uuid.Must(uuid.NewV7())
	secret := make([]byte, ledger.SecretBytes)
	_, _ = rand.Read(secret) // never fails
	return ledger.Fresh{ID: id.String(), Secret: secret, ProviderKey: newKey()}
}

func newKey() string { return "hf_" + strings.ToLower(rand.Text()) }

// refused reads a refusal as the API would answer it.
func refused(err error) answer {
	var refusal *ledger.Refusal
	switch {
	case errors.As(err, &refusal):
		a := answer{code: string(refusal.Code)}
		// Only with a 409 does the contract promise the claim's status.
		if refusal.Claim != nil && a.code != keyReused {
			a.status = string(refusal.Claim.Status)
		}
		return a
	case errors.Is(err, ledger.ErrNotFound):
		return answer{code: notFound}
	}
	return answer{code: "an error that no caller can act on: " + err.Error()}
}

// finish lets go of what would disturb the next history.
func (w *world) finish(m *model) {
	for scope := range m.pauses {
		_, _ = w.base.store.ClearPause(context.Background(), w.scope(scope), "ada")
	}
}
