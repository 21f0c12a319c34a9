//go:build pooled

package store_test

import (
	"testing"

	"holdfast/internal/pgtest"
	"holdfast/internal/store/storetest"
)

// TestPooled is the whole conformance suite behind a pooler in transaction mode (make test-pooled). Each of its
// tests makes a database, which takes a minute in all; what a pooler could break is in pooler_test.go.
func TestPooled(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(tb testing.TB) string {
		pooled, _ := pgtest.Pooled(tb)
		// For the suite's own connection beside the Store's, which has to survive the pooler too.
		return pooled + "&binary_parameters=yes"
	})
}
