package store_test

import (
	"path/filepath"
	"testing"

	"holdfast/internal/pgtest"
	"holdfast/internal/store/storetest"
)

func sqliteFile(tb testing.TB) string {
	return "sqlite://" + filepath.Join(tb.TempDir(), "holdfast.db")
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	storetest.Run(t, sqliteFile)
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	storetest.Run(t, pgtest.Schema)
}
