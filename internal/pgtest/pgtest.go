// Package pgtest gives each test a corner of a real PostgreSQL server for itself.
//
// The server is the one that HOLDFAST_TEST_POSTGRES names, as a postgres:// URL of a role that may create databases;
// .ci/with-postgres starts a private one and sets the variable, and `make test` does both. A missing server fails the
// test: skipping would let half of the product go untested without anybody noticing.
//
// HOLDFAST_TEST_PGBOUNCER names a PgBouncer in transaction mode before the same server, for [Pooled]; [NewPooler] starts
// one that a test may break.
package pgtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/lib/pq" // the driver "postgres"
)

const (
	variable       = "HOLDFAST_TEST_POSTGRES"
	poolerVariable = "HOLDFAST_TEST_PGBOUNCER"
)

// Schema returns the URL of a fresh, empty schema, by way of search_path; the schema is dropped when the test ends.
//
// It is what most tests want: about 3 ms, where a database takes hundreds. A pooler in transaction mode refuses
// search_path as a start-up parameter, and a schema shares with its neighbours what belongs to a whole database
// (extensions, event triggers, settings); take [Database] where that matters.
func Schema(tb testing.TB) string {
	tb.Helper()
	return fresh(tb, "SCHEMA", "CASCADE", func(u *url.URL, name string) {
		query := u.Query()
		query.Set("search_path", name)
		u.RawQuery = query.Encode()
	})
}

// Database returns the URL of a fresh, empty database, which is dropped when the test ends, together with the
// connections to it that are left.
func Database(tb testing.TB) string {
	tb.Helper()
	return fresh(tb, "DATABASE", "WITH (FORCE)", func(u *url.URL, name string) {
		u.Path, u.RawPath = "/"+name, ""
	})
}

// fresh creates an object of the given kind, has it dropped at the end, and returns the server's URL pointed at it.
func fresh(tb testing.TB, kind, drop string, point func(u *url.URL, name string)) string {
	tb.Helper()
	u, err := parse(variable)
	if err != nil {
		tb.Fatal(err)
	}
	db, err := server()
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}

	create := ""
	if kind == "DATABASE" {
		// Unlike template1, nobody can be connected to template0, which would make the copy fail.
		create = "TEMPLATE template0"
	}
	// Lower case letters and digits only, so that the name needs no quotes.
	name := "holdfast_test_" + strings.ToLower(rand.Text())
	if err := run(tb.Context(), db, "CREATE", kind, name, create); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() {
		// The test's own context is cancelled before its cleanups run.
		ctx := context.WithoutCancel(tb.Context())
		if err := run(ctx, db, "DROP", kind, name, drop); err != nil {
			tb.Errorf("pgtest: %v", err)
		}
	})
	point(u, name)
	return u.String()
}

var serverOf = map[string]string{variable: "PostgreSQL", poolerVariable: "PgBouncer in transaction mode"}

func run(ctx context.Context, db *sql.DB, words ...string) error {
	// Enough for a slow disk, and short enough to name the statement before the whole test binary times out.
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	statement := strings.TrimSpace(strings.Join(words, " "))
	if _, err := db.ExecContext(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

// server is one handle for the whole test binary: a connection a test would cost more than the schema does.
var server = sync.OnceValues(func() (*sql.DB, error) {
	db, err := sql.Open("postgres", os.Getenv(variable))
	if err != nil {
		return nil, err
	}
	// The tests need the server's connections themselves.
	db.SetMaxOpenConns(4)
	db.SetMaxIdleConns(4)
	return db, nil
})

// parse reads the address that a variable of the environment holds.
func parse(variable string) (*url.URL, error) {
	value := os.Getenv(variable)
	if value == "" {
		return nil, fmt.Errorf("pgtest: this test needs %s, and %s is not set: run `make test`, "+
			"or `.ci/with-postgres go test ./…` for single packages", serverOf[variable], variable)
	}
	u, err := url.Parse(value)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		// Neither the value nor url.Parse's error, which quotes it: it holds a password.
		return nil, fmt.Errorf("pgtest: %s must be a URL postgres://USER:PASSWORD@HOST:PORT/DATABASE", variable)
	}
	return u, nil
}
