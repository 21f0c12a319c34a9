package api_test

import "testing"

// Whoever sends several reports at once is answered with the first's letter; the others are kept as well.
func TestSeveralReports(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		a, b := failing("kT4bS0qX", "1", "422", posting(obj{"order": 1})), failing("kT4bS0qX", "2", "422", posting(obj{"order": 2}))
		id := w.post(t, "/dlq", []any{a, b}).ok(t).has(t, obj{"duplicate": false, "execution_id": "1"}).text("id")
		w.reports(t, a).has(t, obj{"id": id, "duplicate": true})
		w.reports(t, b).has(t, obj{"execution_id": "2", "duplicate": true})
	})
}
