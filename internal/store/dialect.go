package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// dialect is all that differs between the databases besides two pairs of statements in write.go.
type dialect struct {
	name      string // of the migrations' suffix too
	forUpdate string
	batches   int // under way at once in a lane
	kindOf    func(error) errorKind
	// lockMigrations keeps replicas that start together apart, for the length of a transaction.
	lockMigrations string
	now            string // microseconds since the epoch; empty: this machine's clock is the database's
}

type errorKind string

const (
	kindUnique errorKind = "unique"
	kindBusy   errorKind = "busy" // rolled back by the database; may be tried again
	kindAway   errorKind = "away" // cannot be reached, or what happened is not known
	kindOther  errorKind = "other"
)

var postgres = dialect{
	name:      "postgres",
	forUpdate: " for update",
	batches:   2,
	kindOf:    postgresKind,
	// A transaction's lock, never a session's: a pooler would leave that one on a connection of somebody else.
	lockMigrations: `select pg_try_advisory_xact_lock(5064195174101001025)`,
	now:            `select cast(extract(epoch from clock_timestamp()) * 1000000 as bigint)`,
}

var sqliteDialect = dialect{name: "sqlite", batches: 1, kindOf: sqliteKind}

func postgresKind(err error) errorKind {
	var pe *pq.Error
	if errors.As(err, &pe) {
		switch pe.Code.Class() {
		case "40", "55": // serialization, deadlock, lock not available
			return kindBusy
		case "08", "53", "57", "58": // connection, resources, shutdown or cancel, system
			return kindAway
		}
		if pe.Code == "23505" {
			return kindUnique
		}
		if pe.Code == "25006" { // read-only: a replica that is not the primary
			return kindAway
		}
		return kindOther
	}
	return networkKind(err)
}

func networkKind(err error) errorKind {
	var ne net.Error
	if errors.As(err, &ne) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, context.Canceled) || errors.Is(err, os.ErrDeadlineExceeded) || strings.Contains(err.Error(), "EOF") {
		return kindAway
	}
	return kindOther
}

func sqliteKind(err error) errorKind {
	var se *sqlite.Error
	if !errors.As(err, &se) {
		return networkKind(err)
	}
	switch se.Code() {
	case sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
		return kindUnique
	}
	switch se.Code() & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return kindBusy
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_READONLY:
		return kindAway
	}
	return kindOther
}

// referenceTaken tells whether err is about the unique reference of a source.
func referenceTaken(err error) bool {
	var pe *pq.Error
	if errors.As(err, &pe) {
		return pe.Constraint == "claims_reference"
	}
	var se *sqlite.Error
	// SQLite's code does not name the index; its text names the columns.
	return errors.As(err, &se) && se.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE && strings.Contains(se.Error(), "claims.reference")
}

// poolerParameters are what Supabase, Prisma and others put into connection strings for their own clients;
// PostgreSQL would refuse them as settings. The driver refuses most date styles, and no date ever comes as text.
var poolerParameters = []string{
	"prepared_statements", "prepare_threshold", "preferQueryMode", "default_query_exec_mode", "statement_cache_capacity", "statement_cache_size",
	"socket_timeout", "uselibpqcompat", "workaround", "keepalives", "gssencmode", "sslcompression",
	"pgbouncer", "supa", "connection_limit", "pool_timeout", "pool_mode", "statement_cache_mode", "prepareThreshold", "datestyle",
}

// maxConnections are open to PostgreSQL at once.
const maxConnections = 16

// openPostgres connects so that it works through a pooler in transaction mode: binary_parameters sends each
// statement and its arguments in one round trip, without a prepared statement that another client could meet.
func (s *Store) openPostgres(dsn string) error {
	u, err := url.Parse(dsn)
	if err != nil {
		return errors.New("is not a valid postgres:// address")
	}
	q := u.Query()
	for _, name := range poolerParameters {
		q.Del(name)
	}
	q.Set("binary_parameters", "yes")
	if q.Get("connect_timeout") == "" {
		q.Set("connect_timeout", "5")
	}
	u.RawQuery = q.Encode()
	db, err := sqlx.Open("postgres", u.String())
	if err != nil {
		return errors.New("is not a valid postgres:// address")
	}
	db.SetMaxOpenConns(maxConnections)
	db.SetMaxIdleConns(maxConnections)
	db.SetConnMaxIdleTime(5 * time.Minute)
	s.dialect, s.write, s.read = postgres, db, db
	return nil
}

// openSQLite opens one writing connection, since SQLite has one writer anyway and waiting in Go is fair, and a
// pool of readers beside it. The settings are checked afterwards: a driver that ignores them would lose data.
func (s *Store) openSQLite(ctx context.Context, path string) error {
	switch {
	case path == "" || strings.HasPrefix(path, ":memory:") || strings.HasPrefix(path, "file:"):
		return errors.New("sqlite:// must be followed by the path of a file")
	case strings.ContainsAny(path, "?#"):
		return errors.New("sqlite://PATH takes no parameters, and a file name with ? or # is not supported")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("the folder of the database cannot be made: %w", err)
	}
	base := (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath()}).String()
	pragmas := "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)"
	write, err := sqlx.Open("sqlite", base+pragmas+"&_txlock=immediate")
	if err != nil {
		return err
	}
	write.SetMaxOpenConns(1)
	s.dialect, s.write, s.read = sqliteDialect, write, write
	if err := checkPragmas(ctx, write); err != nil {
		return errors.Join(fmt.Errorf("the database file cannot be used: %w", err), write.Close())
	}
	read, err := sqlx.Open("sqlite", base+pragmas+"&_pragma=query_only(1)")
	if err != nil {
		return errors.Join(err, write.Close())
	}
	read.SetMaxOpenConns(4)
	s.read = read
	return nil
}

func checkPragmas(ctx context.Context, db *sqlx.DB) error {
	for _, p := range []struct{ name, want string }{{"journal_mode", "wal"}, {"synchronous", "2"}, {"busy_timeout", "10000"}} {
		var got string
		if err := db.GetContext(ctx, &got, "pragma "+p.name); err != nil {
			return err
		}
		if got != p.want {
			return fmt.Errorf("%s is %s, must be %s", p.name, got, p.want)
		}
	}
	return nil
}
