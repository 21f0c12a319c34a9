package pgtest

import (
	"database/sql"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
)

func open(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", url)
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

func text(t *testing.T, db *sql.DB, query string, args ...any) string {
	t.Helper()
	var s string
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&s); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return s
}

func TestFresh(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fresh func(testing.TB) string
		names string // a query for the name of what is new
		known string // a query that says whether a name is still known
	}{
		"schema": {
			fresh: Schema,
			names: "SELECT current_schema()",
			known: "SELECT count(*) FROM pg_namespace WHERE nspname = $1",
		},
		"database": {
			fresh: Database,
			names: "SELECT current_database()",
			known: "SELECT count(*) FROM pg_database WHERE datname = $1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var gone string
			t.Run("in use", func(t *testing.T) {
				a, b := open(t, test.fresh(t)), open(t, test.fresh(t))
				gone = text(t, a, test.names)
				if other := text(t, b, test.names); gone == other {
					t.Errorf("two tests share %s", gone)
				}
				// The same table in both: neither sees the other's.
				for _, db := range []*sql.DB{a, b} {
					if _, err := db.ExecContext(t.Context(), "CREATE TABLE item (id int); INSERT INTO item VALUES (1)"); err != nil {
						t.Fatal(err)
					}
					if n := text(t, db, "SELECT count(*) FROM item"); n != "1" {
						t.Errorf("item has %s rows, want 1", n)
					}
				}
			})
			t.Run("left open", func(t *testing.T) {
				// A connection that a test forgets to close keeps nothing alive. Cleanups run last in, first out:
				// this one comes after the corner is gone.
				var forgotten *sql.DB
				t.Cleanup(func() {
					if forgotten != nil {
						_ = forgotten.Close()
					}
				})
				var err error
				if forgotten, err = sql.Open("postgres", test.fresh(t)); err != nil {
					t.Fatal(err)
				}
				text(t, forgotten, test.names)
			})
			if n := text(t, open(t, os.Getenv(variable)), test.known, gone); n != "0" {
				t.Errorf("%s outlived its test", gone)
			}
		})
	}
}

func TestParse(t *testing.T) {
	for value, want := range map[string]string{
		"":                                "make test",
		"host=127.0.0.1 password=hunter2": "must be a URL",
		"mysql://u:hunter2@127.0.0.1/db":  "must be a URL",
		"postgres://u:hunter2@[::1/db":    "must be a URL",
	} {
		t.Setenv(variable, value)
		_, err := parse(variable)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parse of %q = %v, want an error with %s", value, err, want)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("parse of %q tells the password: %v", value, err)
		}
	}
	for _, value := range []string{"postgres://u:p@127.0.0.1:5432/db?sslmode=disable", "postgresql:///db?host=/tmp"} {
		t.Setenv(variable, value)
		if u, err := parse(variable); err != nil || u.String() != value {
			t.Errorf("parse of %q = %v, %v", value, u, err)
		}
	}
}

// Without a server, or without the pooler, the test fails, with the advice that helps.
func TestMissingServer(t *testing.T) {
	for name, fresh := range map[string]func(testing.TB){
		variable:       func(tb testing.TB) { Schema(tb) },
		poolerVariable: func(tb testing.TB) { Pooled(tb) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "")
			spy := &spy{TB: t}
			done := make(chan struct{})
			go func() { // Fatal ends the goroutine it is called in
				defer close(done)
				fresh(spy)
			}()
			<-done
			if !strings.Contains(spy.fatal, "make test") || !strings.Contains(spy.fatal, name) {
				t.Errorf("it said %q, want it to name `make test` and the variable", spy.fatal)
			}
		})
	}
}

type spy struct {
	testing.TB
	fatal string
}

func (s *spy) Helper() {}

func (s *spy) Fatal(args ...any) {
	s.fatal = fmt.Sprint(args...)
	runtime.Goexit()
}
