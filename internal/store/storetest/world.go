package storetest

import (
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/ledger"
	"holdfast/internal/store"
)

// world is a database, a Store over it and a clock; source is where the claims of the running test come from.
type world struct {
	*testing.T
	url    string
	clock  *clock
	store  *store.Store
	raw    *sql.DB
	source string
	rows   *int
}

// clock stands still until it is moved. It begins at the real time, which stands in ids: retention goes by them.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

const (
	quick = "quick" // a source whose window is an hour
	slow  = "slow"  // a destination with a window of a week
)

var testPolicies = ledger.Policies{
	Sources:      map[string]ledger.Policy{quick: {Window: time.Hour, AskAfter: 10 * time.Second, NotFoundAfter: 20 * time.Second}},
	Destinations: map[string]ledger.Policy{slow: {Window: 7 * 24 * time.Hour, AskAfter: 0, NotFoundAfter: time.Hour}},
}

func newWorld(t *testing.T, open Open) *world {
	t.Helper()
	w := &world{T: t, url: open(t), clock: &clock{at: time.Now().UTC().Truncate(time.Hour)}, source: "src", rows: new(int)}
	w.store = openStore(t, w.url, store.Options{Now: w.clock.now, Policies: testPolicies, Limits: testLimits})
	if _, err := w.store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.raw = openRaw(t, w.url)
	return w
}

func openStore(t *testing.T, url string, o store.Options) *store.Store {
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

// migrated opens n Stores with the real clock over one empty database.
func migrated(t *testing.T, url string, n int) []*store.Store {
	t.Helper()
	stores := make([]*store.Store, n)
	for i := range stores {
		stores[i] = openStore(t, url, store.Options{})
	}
	if _, err := stores[0].Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return stores
}

// openRaw is a connection beside the Store's.
func openRaw(t *testing.T, url string) *sql.DB {
	t.Helper()
	driver, address := "postgres", url
	if isSQLite(url) {
		driver, address = "sqlite", strings.TrimPrefix(url, "sqlite://")+"?_pragma=busy_timeout(10000)"
	}
	db, err := sql.Open(driver, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func isSQLite(url string) bool { return strings.HasPrefix(url, "sqlite://") }

// row runs one row of a table as a subtest, with a source of its own.
func (w *world) row(name string, fn func(*world)) {
	w.Helper()
	*w.rows++
	source := fmt.Sprintf("src%d", *w.rows)
	w.Run(name, func(t *testing.T) {
		one := *w
		one.T, one.source = t, source
		fn(&one)
	})
}

// pass lets time go by.
func (w *world) pass(d time.Duration) { w.clock.pass(d) }

func (w *world) now() ledger.Instant { return ledger.At(w.clock.now()) }

// dump is all that the database holds about the world's source, with what tells of a write that changed nothing.
func (w *world) dump() string {
	w.Helper()
	version := ""
	if !isSQLite(w.url) {
		version = ", c.xmin"
	}
	return w.query("select c.*"+version+" from claims c where c.source = $1 order by c.id", w.source) +
		w.query("select h.* from history h join claims c on c.id = h.claim_id where c.source = $1 order by h.claim_id, h.entry", w.source) +
		w.query("select e.* from entities e where e.source = $1 order by e.account, e.entity", w.source)
}

// query runs plain SQL and returns the rows as text.
func (w *world) query(query string, args ...any) string {
	w.Helper()
	out, err := w.tryQuery(query, args...)
	if err != nil {
		w.Fatal(err)
	}
	return out
}

func (w *world) tryQuery(query string, args ...any) (string, error) {
	rows, err := w.raw.QueryContext(w.Context(), query, args...)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		if err := rows.Scan(values...); err != nil {
			return "", err
		}
		for i, v := range values {
			value := *v.(*any)
			if b, ok := value.([]byte); ok {
				value = string(b)
			}
			fmt.Fprintf(&out, "%s=%v ", columns[i], value)
		}
		out.WriteString("\n")
	}
	return out.String(), rows.Err()
}

// unwritten fails unless fn leaves the source's rows as they were.
func (w *world) unwritten(what string, fn func()) {
	w.Helper()
	before := w.dump()
	fn()
	if after := w.dump(); after != before {
		w.Errorf("%s wrote something\nbefore:\n%s\nafter:\n%s", what, before, after)
	}
}
