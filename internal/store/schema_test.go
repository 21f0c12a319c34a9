package store_test

import (
	"database/sql"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"holdfast/internal/pgtest"
	"holdfast/internal/store"
)

// TestSchemasAgree: both databases have the same tables with the same columns, and people read the same views.
func TestSchemasAgree(t *testing.T) {
	t.Parallel()
	lite := schemaOf(t, sqliteFile(t), "sqlite", `select m.name || '.' || p.name || ' ' || lower(p.type) || case when p."notnull" = 1 then ' not null' else '' end
		from sqlite_master m, pragma_table_info(m.name) p where m.type = 'table' and m.name not like 'sqlite_%' and m.name <> 'holdfast_migrations'`)
	server := schemaOf(t, pgtest.Schema(t), "postgres", `select table_name || '.' || column_name || ' ' || data_type || case when is_nullable = 'NO' then ' not null' else '' end
		from information_schema.columns join information_schema.tables using (table_schema, table_name)
		where table_schema = current_schema() and table_type = 'BASE TABLE' and table_name <> 'holdfast_migrations'`)
	if len(lite) < 60 {
		t.Errorf("only %d columns", len(lite))
	}
	differ(t, lite, server)
	lite = schemaOf(t, sqliteFile(t), "sqlite", `select m.name || '.' || p.name from sqlite_master m, pragma_table_info(m.name) p where m.type = 'view' and m.name in ('claims_readable', 'history_readable')`)
	server = schemaOf(t, pgtest.Schema(t), "postgres", `select table_name || '.' || column_name from information_schema.columns
		where table_schema = current_schema() and table_name in ('claims_readable', 'history_readable')`)
	differ(t, lite, server)
	indexes := `select %s from %s where %s order by 1`
	differ(t,
		schemaOf(t, sqliteFile(t), "sqlite", fmt.Sprintf(indexes, "name", "sqlite_master", "type = 'index' and sql is not null")),
		schemaOf(t, pgtest.Schema(t), "postgres", fmt.Sprintf(indexes, "indexname", "pg_indexes", "schemaname = current_schema() and indexname not like '%_pkey'")))
}

func differ(t *testing.T, lite, server []string) {
	t.Helper()
	for _, c := range lite {
		if !slices.Contains(server, c) {
			t.Errorf("only SQLite has %s", c)
		}
	}
	for _, c := range server {
		if !slices.Contains(lite, c) {
			t.Errorf("only PostgreSQL has %s", c)
		}
	}
}

// schemaOf migrates an empty database and runs a query over its catalogue.
func schemaOf(t *testing.T, url, driver, query string) (out []string) {
	t.Helper()
	s, err := store.Open(t.Context(), url, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, s) })
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open(driver, strings.TrimPrefix(url, "sqlite://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, db) })
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		out = append(out, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

func closed(t *testing.T, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
