// Package migrations holds the database schema: one SQL file for both databases, and a pair with the suffixes
// .postgres.sql and .sqlite.sql only where they must part. Files run in the order of their numbers, forward only.
package migrations

import (
	"embed"
	"io/fs"
	"slices"
	"strings"
)

//go:embed *.sql
var files embed.FS

// For returns the files of one database, "postgres" or "sqlite".
func For(database string) fs.FS { return only{database} }

// only hides the files of the other database.
type only struct{ database string }

func (o only) Open(name string) (fs.File, error) { return files.Open(name) }

func (o only) ReadDir(name string) ([]fs.DirEntry, error) {
	all, err := files.ReadDir(name)
	return slices.DeleteFunc(all, func(e fs.DirEntry) bool {
		parts := strings.Split(e.Name(), ".")
		return len(parts) == 3 && parts[1] != o.database
	}), err
}
