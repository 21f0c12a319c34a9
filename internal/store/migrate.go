package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"holdfast/migrations"
)

// MigrationState is one step of the schema.
type MigrationState struct {
	Version int64
	Name    string
	Applied bool
}

// migrationTime bounds how long a replica waits for another one's migrations.
const migrationTime = 15 * time.Minute

// migrationWait is how long a replica waits before it looks again whether another one is done.
const migrationWait = 100 * time.Millisecond

// migrationTries is how often a process that lost a step to another one looks again.
const migrationTries = 5

// versions is the table in which the applied steps are noted.
const versions = "holdfast_migrations"

func (s *Store) migrator() (*goose.Provider, error) {
	dialect := goose.DialectSQLite3
	if s.dialect.name == postgres.name {
		dialect = goose.DialectPostgres
	}
	noted, err := database.NewStore(dialect, versions)
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectCustom, s.write.DB, migrations.For(s.dialect.name), goose.WithStore(noted), goose.WithDisableGlobalRegistry(true))
}

// Migrate brings the schema up to this program's version and returns how many steps it took. It refuses a
// schema that is newer than this program.
func (s *Store) Migrate(ctx context.Context) (steps int, err error) {
	ctx, cancel := context.WithTimeout(ctx, migrationTime)
	defer cancel()
	p, err := s.migrator()
	if err != nil {
		return 0, err
	}
	err = s.underMigrationLock(ctx, func() error {
		done, err := p.Up(ctx)
		// SQLite has no lock to take: another process may have taken the same step meanwhile, whose transaction won.
		for again := 0; err != nil && again < migrationTries && s.dialect.lockMigrations == ""; again++ {
			done, err = p.Up(ctx)
		}
		if steps = len(done); err != nil {
			return err
		}
		return notNewer(ctx, p)
	})
	return steps, s.translate(err)
}

func notNewer(ctx context.Context, p *goose.Provider) error {
	at, err := p.GetDBVersion(ctx)
	if err != nil {
		return err
	}
	sources := p.ListSources()
	if newest := sources[len(sources)-1].Version; at > newest {
		return fmt.Errorf("the database has schema version %d, this program knows %d: start a newer Holdfast", at, newest)
	}
	return nil
}

// Migrations lists the steps and whether each is applied.
func (s *Store) Migrations(ctx context.Context) ([]MigrationState, error) {
	p, err := s.migrator()
	if err != nil {
		return nil, err
	}
	states, err := p.Status(ctx)
	if err != nil {
		return nil, s.translate(err)
	}
	out := make([]MigrationState, len(states))
	for i, st := range states {
		out[i] = MigrationState{st.Source.Version, st.Source.Path, st.State == goose.StateApplied}
	}
	return out, nil
}

// underMigrationLock keeps replicas that start together apart. The lock is a transaction's, which works through
// a pooler and ends with the process that holds it. Whoever does not get it lets its connection go before it asks
// again: in a small pool, those that wait would keep from the holder the second one that it migrates with.
func (s *Store) underMigrationLock(ctx context.Context, fn func() error) error {
	if s.dialect.lockMigrations == "" {
		return fn()
	}
	for {
		var got bool
		err := s.inTx(ctx, func(tx *sqlx.Tx) error {
			if err := tx.GetContext(ctx, &got, s.dialect.lockMigrations); err != nil || !got {
				return err
			}
			return fn()
		})
		if err != nil || got {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(migrationWait):
		}
	}
}
