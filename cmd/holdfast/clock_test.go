package main

import (
	"database/sql"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/internal/pgtest"
)

// Programs whose clocks and zones disagree, over a database whose sessions have a third zone: they decide alike,
// show the database's time, and show it in UTC.
func TestClocksDisagree(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Pacific/Kiritimati", "America/New_York", "Asia/Kathmandu"} {
		t.Run(strings.ReplaceAll(zone, "/", " "), func(t *testing.T) {
			t.Parallel()
			pooled, direct := pgtest.Pooled(t)
			db := beside(t, direct)
			var name string
			if err := db.QueryRowContext(t.Context(), `select current_database()`).Scan(&name); err != nil {
				t.Fatal(err)
			}
			if _, err := db.ExecContext(t.Context(), fmt.Sprintf(`alter role current_user in database %s set timezone = '%s'`, name, zone)); err != nil {
				t.Fatal(err)
			}
			var programs []*program
			for _, wrong := range []struct{ offset, zone string }{{"10m", "Asia/Tokyo"}, {"-10m", "America/Anchorage"}, {"5h", "UTC"}} {
				programs = append(programs, start(t, "HOLDFAST_DATABASE_URL="+pooled, "TZ="+wrong.zone,
					"HOLDFAST_TEST_CLOCK_OFFSET="+wrong.offset, "HOLDFAST_SWEEP_INTERVAL=100ms"))
			}
			if log := programs[0].log(); !strings.Contains(log, "HOLDFAST_TEST_CLOCK_OFFSET") {
				t.Errorf("the log does not tell that the clock is wrong: %s", log)
			}
			agree(t, db, programs)
		})
	}
}

// agree lets each program claim in turn and asks the others.
func agree(t *testing.T, db *sql.DB, programs []*program) {
	t.Helper()
	for i, p := range programs {
		key := fmt.Sprint("order-", i)
		before := databaseTime(t, db)
		status, a := p.call(t, http.MethodPost, "/claim", map[string]any{"source": "shop", "idempotency_key": key, "step": "charge", "lease_seconds": 300}, "")
		after := databaseTime(t, db)
		if status != http.StatusOK || a["decision"] != "proceed" {
			t.Fatalf("/claim: %d %v", status, a)
		}
		first, ends := utc(t, a["first_seen_at"]), utc(t, a["lease_expires_at"])
		if first.Before(before.Add(-tolerance)) || first.After(after.Add(tolerance)) || ends.Sub(first) != 300*time.Second {
			t.Errorf("first seen at %v with a lease to %v; by the database it was between %v and %v", first, ends, before, after)
		}
		for _, other := range programs {
			status, a := other.call(t, http.MethodPost, "/claim", map[string]any{"source": "shop", "idempotency_key": key, "step": "charge"}, "")
			wait, _ := a["retry_after_seconds"].(float64) // rounded up, by a clock that may be some microseconds behind
			if status != http.StatusOK || a["decision"] != "in_progress" || wait > 301 || wait < 300-patience.Seconds() {
				t.Errorf("/claim through another: %d %v", status, a)
			}
		}
		// A lease of a second ends for all of them, and not before the database says so.
		short := map[string]any{"source": "shop", "idempotency_key": "short-" + key, "step": "charge", "lease_seconds": 1}
		_, a = p.call(t, http.MethodPost, "/claim", short, "")
		ends = utc(t, a["lease_expires_at"])
		eventually(t, func() bool {
			_, a := programs[(i+1)%len(programs)].call(t, http.MethodPost, "/claim", short, "")
			if a["decision"] == "unknown" && databaseTime(t, db).Before(ends.Add(-tolerance)) {
				t.Errorf("the lease to %v ended early", ends)
			}
			return a["decision"] != "in_progress"
		})
		for _, other := range programs {
			if status, a := other.call(t, http.MethodPost, "/claim", short, ""); status != http.StatusOK || a["decision"] != "unknown" {
				t.Errorf("/claim after the lease: %d %v", status, a)
			}
		}
	}
	// None is a minute old by the database's clock, so none is asked about, however late it is elsewhere.
	for _, p := range programs {
		_, a := p.call(t, http.MethodGet, "/claims?status=unknown", nil, "")
		if items, _ := a["items"].([]any); len(items) != len(programs) {
			t.Errorf("%d unknown claims, want the short ones", len(items))
		}
	}
}

// tolerance is for what lies between two measurements of one clock over a network.
const tolerance = 100 * time.Millisecond

func databaseTime(t *testing.T, db *sql.DB) (at time.Time) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), `select clock_timestamp()`).Scan(&at); err != nil {
		t.Fatal(err)
	}
	return at
}

func utc(t *testing.T, value any) time.Time {
	t.Helper()
	text, _ := value.(string)
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || !strings.HasSuffix(text, "Z") {
		t.Fatalf("%v is not a time in UTC: %v", value, err)
	}
	return at
}

// A clock that is wrong on purpose is for tests: a program that others can reach refuses it.
func TestClockOffsetIsForTests(t *testing.T) {
	t.Parallel()
	for offset, env := range map[string][]string{
		"10m":  {"HOLDFAST_ADDR=0.0.0.0:0", "HOLDFAST_API_KEYS=n8n:workflow:long-enough"},
		"soon": {"HOLDFAST_ADDR=127.0.0.1:0"},
	} {
		code, _, errs := command(t, append(env, "HOLDFAST_DATABASE_URL="+sqliteURL(t), "HOLDFAST_TEST_CLOCK_OFFSET="+offset), "check-config")
		if code == 0 || !strings.Contains(errs, "HOLDFAST_TEST_CLOCK_OFFSET") {
			t.Errorf("an offset of %s: exit %d: %s", offset, code, errs)
		}
	}
}
