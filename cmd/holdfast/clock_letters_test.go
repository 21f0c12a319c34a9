package main

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"holdfast/internal/pgtest"
)

// Letters come due and leases of them end by the database's clock, whatever zone its sessions have and however wrong
// the programs' clocks and zones are; people see the right time in the tables too.
func TestLettersByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	database := pgtest.Database(t)
	db := beside(t, database)
	var name string
	if err := db.QueryRowContext(t.Context(), `select current_database()`).Scan(&name); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), fmt.Sprintf(`alter role current_user in database %s set timezone = 'Pacific/Kiritimati'`, name)); err != nil {
		t.Fatal(err)
	}
	ahead := start(t, "HOLDFAST_DATABASE_URL="+database, "TZ=Asia/Kathmandu", "HOLDFAST_TEST_CLOCK_OFFSET=5h", "HOLDFAST_SWEEP_INTERVAL=100ms")
	behind := start(t, "HOLDFAST_DATABASE_URL="+database, "TZ=America/New_York", "HOLDFAST_TEST_CLOCK_OFFSET=-5h", "HOLDFAST_SWEEP_INTERVAL=100ms")
	within := func(what string, at any, from, to time.Time) {
		t.Helper()
		if got := utc(t, at); got.Before(from.Add(-tolerance)) || got.After(to.Add(tolerance)) {
			t.Errorf("%s is %v, want %v to %v", what, got, from, to)
		}
	}
	report := map[string]any{"event_id": "order-1", "workflow_id": "kT4bS0qX", "error_message": "later", "http_status": 429, "method": "POST", "payload": map[string]any{"n": 1}}
	before := databaseTime(t, db)
	_, a := ahead.call(t, http.MethodPost, "/dlq", report, "")
	after := databaseTime(t, db)
	within("next_retry_at", a["next_retry_at"], before.Add(60*time.Second), after.Add(72*time.Second))
	path := "/dlq/" + a["id"].(string)
	for _, p := range []*program{ahead, behind} {
		if items, ok := (&outage{T: t}).lease(p, ""); !ok || len(items) != 0 {
			t.Fatalf("handed out before its time: %v", items)
		}
	}
	var shown time.Time
	if err := db.QueryRowContext(t.Context(), `select next_retry_at from letters_readable`).Scan(&shown); err != nil || !shown.Equal(utc(t, a["next_retry_at"])) {
		t.Errorf("the view shows %v, %v; the letter has %v", shown, err, a["next_retry_at"])
	}
	decide := map[string]any{"authorized_by": "asha@example.test", "reason": "it is back"}
	if status, a := behind.call(t, http.MethodPost, path+"/requeue", decide, ""); status != http.StatusOK {
		t.Fatalf("/requeue: %d %v", status, a)
	}
	before = databaseTime(t, db)
	items, _ := (&outage{T: t}).lease(behind, "w")
	after = databaseTime(t, db)
	if len(items) != 1 {
		t.Fatalf("%d letters are due, want 1", len(items))
	}
	within("lease_expires_at", items[0]["lease_expires_at"], before.Add(300*time.Second), after.Add(300*time.Second))
	if items, ok := (&outage{T: t}).lease(ahead, "other"); !ok || len(items) != 0 {
		t.Errorf("a lease of five minutes is over for the program whose clock is ahead: %v", items)
	}
	_, a = ahead.call(t, http.MethodGet, path, nil, "")
	if a["status"] != "replaying" || a["lease_expires_at"] != items[0]["lease_expires_at"] {
		t.Errorf("%v until %v", a["status"], a["lease_expires_at"])
	}
}
