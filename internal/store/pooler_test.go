package store_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"holdfast/internal/ledger"
	"holdfast/internal/pgtest"
	"holdfast/internal/store"
)

// patience is how long a test waits for what must happen; it proves nothing about speed.
const patience = 90 * time.Second

func opened(t *testing.T, url string, o store.Options) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// replicas opens n Stores over one migrated database.
func replicas(t *testing.T, n int, url string, o store.Options) []*store.Store {
	t.Helper()
	stores := make([]*store.Store, n)
	for i := range stores {
		stores[i] = opened(t, url, o)
	}
	if _, err := stores[0].Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return stores
}

// ask is a claim as /claim makes it, with a payload of its own.
func ask(key string, mods ...func(*ledger.Request)) *ledger.Request {
	id, err := uuid.NewV7()
	if err != nil {
		panic(err)
	}
	secret := make([]byte, ledger.SecretBytes)
	_, _ = rand.Read(secret)
	payload := []byte(`{"of":"` + key + `"}`)
	hash := sha256.Sum256(payload)
	r := &ledger.Request{
		Key: ledger.Key{Source: "src", IdempotencyKey: key}, Basis: ledger.BasisGiven, CallerKey: "n8n", Payload: payload, PayloadHash: hash[:],
		Fresh: ledger.Fresh{ID: id.String(), Secret: secret, ProviderKey: "hf_" + strings.ToLower(rand.Text())},
	}
	for _, m := range mods {
		m(r)
	}
	return r
}

func asEffect(r *ledger.Request) { r.Kind = ledger.Effect }

func leased(seconds int64) func(*ledger.Request) {
	return func(r *ledger.Request) { r.LeaseSeconds = seconds }
}

func ending(verb ledger.Verb, c *ledger.Claim) *ledger.Ending {
	token, _ := ledger.ParseToken(c.LeaseToken())
	return &ledger.Ending{Verb: verb, Token: token, ByToken: true, CallerKey: "n8n", ResultID: "for " + c.ID}
}

// answer runs plain SQL beside the Store, for one value.
func answer[T any](t *testing.T, url, query string, args ...any) (out T) {
	t.Helper()
	db, err := sql.Open("postgres", url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&out); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return out
}

// mixed is a crowd of callers whose statements differ, so that an answer meant for somebody else is noticed.
type mixed struct {
	*testing.T
	stores    []*store.Store
	contested sync.Map     // *contest by number
	contests  atomic.Int64 // how many were asked for
	answers   atomic.Int64
	broken    atomic.Int64 // calls that got no answer
	breaks    bool         // the database is taken away meanwhile
}

// contest is a key that a handful of callers want at the same time.
type contest struct{ proceeded, unanswered atomic.Int64 }

// got tells whether a call was answered. Only where the database is taken away may it not be, and never by an
// error that says that the pooler mixed something up.
func (m *mixed) got(what string, err error) bool {
	if err == nil {
		m.answers.Add(1)
		return true
	}
	var pe *pq.Error
	if errors.As(err, &pe) && (pe.Code == "26000" || pe.Code == "42P05" || pe.Code == "08P01" && !m.breaks) ||
		!m.breaks || !errors.Is(err, ledger.ErrUnavailable) {
		m.Errorf("%s: %v", what, err)
	}
	m.broken.Add(1)
	return false
}

// turn is one caller's n-th round.
func (m *mixed) turn(caller, n int) {
	s, ctx := m.stores[(caller+n)%len(m.stores)], m.Context()
	m.contest(ctx, s)
	key := fmt.Sprintf("own %d %d", caller, n)
	v, err := s.Claim(ctx, ask(key, asEffect))
	if !m.got("claim", err) {
		return
	}
	if v.Decision != ledger.Proceed || v.Claim.Key.IdempotencyKey != key {
		m.Errorf("the claim of %s: %s of %s", key, v.Decision, v.Claim.Key.IdempotencyKey)
	}
	verb, want := ledger.Complete, ledger.Completed
	if n%3 == 0 {
		verb, want = ledger.MarkUnknown, ledger.Unknown
	}
	out, err := s.End(ctx, ending(verb, &v.Claim))
	if !m.got("ending", err) {
		return
	}
	if out.Claim.ID != v.Claim.ID || out.Claim.Status != want && out.Claim.Status != ledger.Unknown || verb == ledger.Complete && out.Claim.ResultID != "for "+v.Claim.ID {
		m.Errorf("%s of %s: %s is %s, result %q", verb, v.Claim.ID, out.Claim.ID, out.Claim.Status, out.Claim.ResultID)
	}
	switch n % 5 {
	case 0:
		m.read(ctx, s, &v.Claim, key)
	case 1:
		claims, _, err := s.List(ctx, ledger.ClaimFilter{Source: "src", IdempotencyKey: key, Limit: 10})
		if m.got("list", err) && (len(claims) != 1 || claims[0].ID != v.Claim.ID) {
			m.Errorf("the list of %s has %d", key, len(claims))
		}
	case 2:
		entries, _, err := s.History(ctx, ledger.HistoryFilter{ClaimID: v.Claim.ID, Limit: 10})
		if m.got("history", err) && (len(entries) != 1 || entries[0].ClaimID != v.Claim.ID) {
			m.Errorf("the history of %s has %d entries", v.Claim.ID, len(entries))
		}
	case 3:
		m.look(ctx, s, fmt.Sprint("owner ", caller))
	case 4:
		_, err := s.Sweep(ctx)
		m.got("sweep", err)
	}
}

func (m *mixed) contest(ctx context.Context, s *store.Store) {
	k := (m.contests.Add(1) - 1) / 8
	one, _ := m.contested.LoadOrStore(k, new(contest))
	c, key := one.(*contest), fmt.Sprint("contested ", k)
	v, err := s.Claim(ctx, ask(key))
	if !m.got("claim", err) {
		c.unanswered.Add(1)
		return
	}
	if v.Claim.Key.IdempotencyKey != key || v.Decision != ledger.Proceed && v.Decision != ledger.InProgress {
		m.Errorf("the claim of %s: %s of %s", key, v.Decision, v.Claim.Key.IdempotencyKey)
	}
	if v.Decision == ledger.Proceed {
		c.proceeded.Add(1)
	}
}

func (m *mixed) read(ctx context.Context, s *store.Store, c *ledger.Claim, key string) {
	got, entries, err := s.Get(ctx, c.ID)
	if !m.got("get", err) {
		return
	}
	if got.ID != c.ID || !bytes.Equal(got.Payload, []byte(`{"of":"`+key+`"}`)) || len(entries) != 2 {
		m.Errorf("the claim of %s is %s with %q and %d entries", key, got.Key.IdempotencyKey, got.Payload, len(entries))
	}
}

func (m *mixed) look(ctx context.Context, s *store.Store, owner string) {
	r := &ledger.LookRequest{Source: "src", Owner: owner, CallerKey: "n8n", Limit: 3, LeaseSeconds: 300}
	claims, err := s.LeaseUnknown(ctx, r)
	if !m.got("lease", err) {
		return
	}
	for i := range claims {
		c := &claims[i]
		if c.Status != ledger.Unknown || c.LookOwner != ledger.LookOwner(r) || len(claims) > 3 || string(c.Payload) != `{"of":"`+c.Key.IdempotencyKey+`"}` {
			m.Errorf("%s got %d claims: one of %s, %s, held by %s, with %q", owner, len(claims), c.Key.IdempotencyKey, c.Status, c.LookOwner, c.Payload)
		}
	}
}

// lookNow lets unknown claims be looked at at once.
var lookNow = ledger.Policies{Sources: map[string]ledger.Policy{"src": {Window: 24 * time.Hour}}}

func newMixed(t *testing.T, stores []*store.Store) *mixed {
	return &mixed{T: t, stores: stores}
}

// run lets callers make their rounds, all at once, until each has made enough and more is over.
func (m *mixed) run(callers, rounds int, more func(n int) bool) {
	var work sync.WaitGroup
	for i := range callers {
		work.Go(func() {
			for n := 0; !m.Failed() && (n < rounds || more != nil && more(n)); n++ {
				m.turn(i, n)
			}
		})
	}
	work.Wait()
	m.contested.Range(func(k, one any) bool {
		n, without := one.(*contest).proceeded.Load(), one.(*contest).unanswered.Load()
		// Where a caller got no answer, the claim may be its own.
		if n > 1 || n == 0 && without == 0 {
			m.Errorf("contest %v: %d callers got proceed, and %d no answer", k, n, without)
		}
		return true
	})
}

// Statements of all kinds at once, over two Stores: every answer belongs to its call, one caller proceeds for each
// key, and nothing on the wire needs more than its own transaction.
func TestPoolerMixed(t *testing.T) {
	t.Parallel()
	pooled, direct := pgtest.Pooled(t)
	w := tap(t, pooled)
	m := newMixed(t, replicas(t, 2, w.url, store.Options{Policies: lookNow}))
	m.run(64, 10, nil)
	different := w.check()
	t.Logf("%d answers, %d different statements", m.answers.Load(), different)
	if m.answers.Load() < 2000 || different < 20 {
		t.Error("that is too few to tell anything")
	}
	if n := answer[int](t, direct, `select count(*) from pg_locks l join pg_database d on d.oid = l.database
		where d.datname = current_database() and l.locktype = 'advisory'`); n != 0 {
		t.Errorf("%d advisory locks are left", n)
	}
}

// One server connection for everybody: callers wait for it, and get their right answers.
func TestPoolerExhausted(t *testing.T) {
	t.Parallel()
	direct := pgtest.Database(t)
	replicas(t, 1, direct, store.Options{})
	url := pgtest.NewPooler(t, "default_pool_size = 1").URL(direct)
	o := store.Options{Policies: lookNow}
	newMixed(t, []*store.Store{opened(t, url, o), opened(t, url, o)}).run(64, 4, nil)
}

// The pooler is killed and started again under load, and the server's connections are cut: a call gets its right
// answer or none, and the same Stores go on afterwards.
func TestPoolerRestart(t *testing.T) {
	t.Parallel()
	direct := pgtest.Database(t)
	pooler := pgtest.NewPooler(t, "default_pool_size = 4")
	m := newMixed(t, replicas(t, 2, pooler.URL(direct), store.Options{Policies: lookNow}))
	m.breaks = true
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		for range 2 {
			m.until(100)
			pooler.Kill()
			m.untilBroken()
			pooler.Start()
			m.until(100)
			_ = answer[int](t, direct, `select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`)
		}
		m.until(300)
	}()
	m.run(32, 1, func(int) bool {
		select {
		case <-stop:
			return false
		default:
			return true
		}
	})
	<-stop
	t.Logf("%d answers, %d calls without", m.answers.Load(), m.broken.Load())
}

// until waits for so many more answers.
func (m *mixed) until(more int64) {
	want := m.answers.Load() + more
	poll(m.T, func() bool { return m.answers.Load() >= want })
}

func (m *mixed) untilBroken() {
	want := m.broken.Load() + 1
	poll(m.T, func() bool { return m.broken.Load() >= want })
}

// poll waits for a condition; it may be called beside the test's own goroutine.
func poll(t *testing.T, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !condition() && !t.Failed() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Error("it never came true")
			return
		}
	}
}

// An answer that is lost on its way: the call has none either, or the right one.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	w := tap(t, pgtest.Schema(t))
	s := replicas(t, 1, w.url, store.Options{})[0]
	w.loseOnce("COMMIT")
	v, err := s.Claim(t.Context(), ask("of an entity", func(r *ledger.Request) { r.Entity = "e" }))
	right(t, "a claim of an entity", v, err)

	c := granted(t, s, ask("to be completed"))
	w.loseOnce("select * from holdfast_move(")
	if out, err := s.End(t.Context(), ending(ledger.Complete, &c)); !errors.Is(err, ledger.ErrUnavailable) && (err != nil || out.Claim.Status != ledger.Completed) {
		t.Errorf("a receipt whose answer was lost: %s, %v", out.Claim.Status, err)
	}
	w.loseOnce("select holdfast_grant_one(")
	v, err = s.Claim(t.Context(), ask("new"))
	right(t, "a new claim", v, err)

	granted(t, s, ask("taken over", leased(1)))
	poll(t, func() bool {
		w.loseOnce("select * from holdfast_move(")
		v, err = s.Claim(t.Context(), ask("taken over"))
		return err != nil || v.Claim.Attempt > 1
	})
	right(t, "a takeover", v, err)
	if n := w.lost(); n != 4 {
		t.Errorf("%d answers were lost, want 4", n)
	}
}

// right allows no answer, or the right one. What a call must not hear is that somebody else holds what it holds itself.
func right(t *testing.T, what string, v ledger.Verdict, err error) {
	t.Helper()
	if !errors.Is(err, ledger.ErrUnavailable) && (err != nil || v.Decision != ledger.Proceed) {
		t.Errorf("%s whose answer was lost: %s, %v", what, v.Decision, err)
	}
}

// Addresses as they are pasted from a provider's page or another program's settings.
func TestPoolerAddresses(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]string{
		"Supabase":    "pgbouncer=true&connection_limit=1",
		"its page":    "supa=base-pooler.x&pgbouncer=true&pool_timeout=0",
		"pool mode":   "pool_mode=transaction&application_name=holdfast",
		"other names": "statement_cache_mode=describe&prepareThreshold=0&statement_cache_capacity=0&default_query_exec_mode=simple_protocol&prepared_statements=false&workaround=supabase-pooler.vercel",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pooled, _ := pgtest.Pooled(t)
			if _, err := url.ParseQuery(more); err != nil {
				t.Fatal(err)
			}
			s := replicas(t, 1, pooled+"&"+more, store.Options{})[0]
			if v, err := s.Claim(t.Context(), ask("key")); err != nil || v.Decision != ledger.Proceed {
				t.Errorf("%s, %v", v.Decision, err)
			}
		})
	}
}
