// Package store holds all SQL: one text for SQLite and PostgreSQL, rebound in one place, with a small dialect
// for what must differ. It implements ledger.Store; its transactions are short and its writes repeat the
// condition under which they were decided, so that any number of replicas agree.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/ledger"
)

// Options configure a Store. The zero value is usable.
type Options struct {
	Log      *slog.Logger
	Policies ledger.Policies
	Limits   map[string]ledger.Limit // by destination
	Alerts   AlertOptions
	Observer Observer
	// Now replaces the database's clock in tests.
	Now func() time.Time
	// Wall is this machine's clock, which tests set wrong or let jump; nil: the real one. Only SQLite goes by it.
	Wall func() time.Time
	// FetchesInputs says that somebody fetches the inputs of letters that want one: until then they are held.
	FetchesInputs bool
}

// Observer is told what happens inside, for metrics. Nil functions are not called.
type Observer struct {
	Batch         func(lane string, size int)
	DatabaseError func(kind string)
	Held          func(destination, by string) // work had to wait for a destination's limit
}

// Store is a ledger over one database. Open makes one.
type Store struct {
	dialect  dialect
	write    *sqlx.DB
	read     *sqlx.DB // on SQLite a pool beside the one writer; else the same
	log      *slog.Logger
	observe  Observer
	policy   ledger.Policies
	limits   map[string]ledger.Limit
	clock    *clock
	jitter   func() float64 // in [0, 1)
	stopping atomic.Bool    // long passes end early
	settled  atomic.Value   // where the walk that settles letters stopped
	fetches  bool           // inputs of letters are fetched from n8n

	prepared atomic.Pointer[map[string]*sqlx.Stmt]
	recent   *recent
	alerts   *alerting
	turns    *turns

	claims  *lane[*ledger.Request, ledger.Verdict]
	endings *lane[*ledger.Ending, ledger.Ended]
	places  map[string]*lane[*ledger.Request, ledger.Verdict] // of destinations with limits
	lasts   sync.Map                                          // *last of each transaction
	crowd   chan struct{}                                     // one for each transaction that may wait for a lock
}

// Open connects to url (`sqlite://PATH` or `postgres://…`), without creating or checking the schema: see
// Migrate. Errors never contain the password.
func Open(ctx context.Context, url string, o Options) (*Store, error) {
	s := &Store{log: o.Log, observe: o.Observer, policy: o.Policies, limits: o.Limits, recent: newRecent(), alerts: newAlerting(o.Alerts), turns: newTurns(), jitter: rand.Float64, fetches: o.FetchesInputs}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	var err error
	switch {
	case strings.HasPrefix(url, "sqlite://"):
		err = s.openSQLite(ctx, strings.TrimPrefix(url, "sqlite://"))
	case strings.HasPrefix(url, "postgres://"), strings.HasPrefix(url, "postgresql://"):
		err = s.openPostgres(url)
	default:
		err = errors.New("must be sqlite://PATH or postgres://…")
	}
	if err != nil {
		return nil, err
	}
	s.clock = newClock(s.dialect, s.write, s.log, o)
	if err := s.clock.measure(ctx); err != nil {
		return nil, errors.Join(s.translate(err), s.closeDB())
	}
	s.claims = newLane("claim", s.dialect.batches, s.observe.Batch, s.runClaims)
	s.endings = newLane("ending", s.dialect.batches, s.observe.Batch, s.runEndings)
	s.places, s.crowd = s.newPlaces(), make(chan struct{}, maxConnections/2)
	return s, nil
}

// Quiesce lets passes that walk over many rows end early: what they have not done is done after the next start.
func (s *Store) Quiesce() { s.stopping.Store(true) }

// Close waits for what is under way and closes the database.
func (s *Store) Close() error {
	s.claims.stop()
	s.endings.stop()
	for _, place := range s.places {
		place.stop()
	}
	return s.closeDB()
}

func (s *Store) closeDB() error {
	err := s.write.Close()
	if s.read != s.write {
		err = errors.Join(err, s.read.Close())
	}
	return err
}

// PolicyFor is part of ledger.Store.
func (s *Store) PolicyFor(source, destination string) ledger.Policy {
	return s.policy.For(source, destination)
}

func (s *Store) policyOf(c *ledger.Claim) ledger.Policy {
	return s.policy.For(c.Key.Source, c.Destination)
}

// querier is a database, one connection of it, or a transaction.
type querier interface {
	sqlx.QueryerContext
	sqlx.ExecerContext
	Rebind(query string) string
}

// inTx runs fn in one writing transaction. An error of fn rolls back; an error of the commit is unknown to
// have happened and becomes ErrUnavailable.
func (s *Store) inTx(ctx context.Context, fn func(tx *sqlx.Tx) error) error {
	s.prepare(ctx)
	tx, err := s.write.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	end := new(last)
	s.lasts.Store(tx, end)
	defer s.lasts.Delete(tx)
	if err = fn(tx); err == nil {
		err = s.finish(ctx, tx, end)
	}
	if err != nil {
		return errors.Join(err, ignoreDone(tx.Rollback()))
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("%w: commit: %w", ledger.ErrUnavailable, err)
	}
	return nil
}

// prepare readies SQLite's hot statements, outside of a transaction since there is one writing connection. Parsing
// them anew for each row would be half of what a claim costs. PostgreSQL behind a pooler must not prepare.
func (s *Store) prepare(ctx context.Context) {
	if s.dialect.name != sqliteDialect.name || s.prepared.Load() != nil {
		return
	}
	stmts := map[string]*sqlx.Stmt{}
	for _, query := range []string{insertOneSQLite, moveOneSQLite, fillOneSQLite, insertEntrySQLite} {
		stmt, err := s.write.PreparexContext(ctx, query) //nolint:sqlclosecheck // it lives as long as the database
		if err != nil {
			return // before the first migration there are no tables; without it all works, only slower
		}
		stmts[query] = stmt
	}
	s.prepared.CompareAndSwap(nil, &stmts)
}

// execPrepared runs a statement in a transaction, prepared if it can be.
func (s *Store) execPrepared(ctx context.Context, q querier, query string, args ...any) (sql.Result, error) {
	if stmts := s.prepared.Load(); stmts != nil {
		if tx, ok := q.(*sqlx.Tx); ok {
			return tx.StmtxContext(ctx, (*stmts)[query]).ExecContext(ctx, args...)
		}
	}
	return q.ExecContext(ctx, query, args...)
}

// once runs a statement that writes and is its own transaction. database/sql sends a statement again when its
// connection breaks, although it may have been carried out: the caller would then meet its own claim as somebody
// else's. On one connection it is sent once, and without an answer what happened is not known.
func (s *Store) once(ctx context.Context, fn func(q querier) error) error {
	c, err := s.write.Connx(ctx)
	if err != nil {
		return err
	}
	if err = fn(c); s.kind(err) == kindAway {
		// A server or pooler that went away took all connections with it; each would cost another batch.
		s.write.SetMaxIdleConns(0)
		s.write.SetMaxIdleConns(maxConnections)
	}
	return errors.Join(err, ignoreDone(c.Close()))
}

func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) || errors.Is(err, sql.ErrConnDone) {
		return nil
	}
	return err
}

// translate turns an error of the database into one that callers know, and counts it.
func (s *Store) translate(err error) error {
	var refusal *ledger.Refusal
	switch {
	case err == nil, errors.As(err, &refusal), errors.Is(err, ledger.ErrNotFound), errors.Is(err, ledger.ErrOverloaded), errors.Is(err, errGone):
		return err
	}
	kind := s.dialect.kindOf(err)
	if errors.Is(err, ledger.ErrUnavailable) {
		kind = kindAway
	}
	if s.observe.DatabaseError != nil {
		s.observe.DatabaseError(string(kind))
	}
	if kind == kindAway || kind == kindBusy {
		return fmt.Errorf("%w: %w", ledger.ErrUnavailable, err)
	}
	return err
}

// detached gives a call its own time limit instead of its caller's patience: what is under way ends by itself. A
// caller that hangs up would send the server a cancel request, at which some poolers fall over.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), callTime)
}

// Ready is part of ledger.Store.
func (s *Store) Ready(ctx context.Context) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	var one int
	if err := s.read.GetContext(ctx, &one, `select count(*) from (select 1 from claims limit 1) as c`); err != nil {
		return s.translate(err)
	}
	return nil
}
