package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestReadingLetters(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		as, op := bearer(workflowSecret), bearer(operatorSecret)
		var ids []string
		for i, code := range []string{"429", "422", "401", "429", "503"} {
			body := and(failing(fmt.Sprint("wf", i%2), fmt.Sprint(1042+i), code, posting(obj{"note": "personal-data"})), obj{"source": "shop", "destination": []string{"hubspot", "sheet"}[i%2]})
			ids = append(ids, w.reports(t, body, as).text("id"))
			w.clock.advance(time.Minute)
		}
		count := func(query string) int {
			items, _ := w.get(t, "/dlq"+query, as).ok(t).body["items"].([]any)
			return len(items)
		}
		for query, want := range map[string]int{
			"": 5, "?status=queued": 2, "?status=dead": 3, "?status=replaying": 0, "?workflow_id=wf0": 3, "?workflow_id=none": 0, "?source=shop": 5, "?source=other": 0,
			"?destination=sheet": 2, "?error_class=rate_limited": 2, "?error_class=auth": 1, "?limit=2": 2, "?limit=200": 5, "?status=queued&workflow_id=wf1": 1,
			"?from=2026-11-30T20:01:00Z": 4, "?to=2026-11-30T20:01:00Z": 1, "?from=2026-11-30T23:01:00%2B03:00&to=2026-11-30T20:03:00Z": 2,
		} {
			if got := count(query); got != want {
				t.Errorf("/dlq%s gives %d letters, want %d", query, got, want)
			}
		}
		var seen []string
		cursor := ""
		for range 3 {
			page := w.get(t, "/dlq?limit=2&cursor="+cursor, as).ok(t)
			items, _ := page.body["items"].([]any)
			for _, item := range items {
				item, _ := item.(obj)
				seen = append(seen, fmt.Sprint(item["id"]))
			}
			cursor = page.text("next_cursor")
		}
		if cursor != "" || len(seen) != 5 || seen[0] != ids[4] || seen[4] != ids[0] {
			t.Errorf("three pages of two gave %v and the cursor %q, want the newest first of %v", seen, cursor, ids)
		}
		want := obj{
			"id": ids[0], "workflow_id": "wf0", "workflow_name": "Orders", "execution_id": "1042", "failed_node": "Charge", "method": "POST", "url": "http://destination.example.test/charges",
			"status": "queued", "created_at": "2026-11-30T20:00:00Z", "updated_at": "2026-11-30T20:00:00Z", "claim_id": nil, "replay_id": nil, "input": "stored", "reports": 1, "http_status": 429,
			"source": "shop", "account": nil, "idempotency_key": nil, "destination": "hubspot", "lease_expires_at": nil,
		}
		w.letter(t, ids[0], as).has(t, want).has(t, obj{"payload": nil})
		w.letter(t, ids[0], op).has(t, want).has(t, obj{"payload": obj{"note": "personal-data"}})
		if raw := string(w.get(t, "/dlq", op).ok(t).raw); strings.Contains(raw, "personal-data") {
			t.Errorf("the list shows payloads: %s", raw)
		}
	}, withKeys(bothKeys...))
}

// A letter's story, oldest first.
func TestAttemptsOfALetter(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		id, lease := w.dueLetter(t, "1042")
		w.post(t, "/dlq/"+id+"/fail", and(token(lease), obj{"http_status": 422, "error": "the destination says no"})).ok(t)
		w.post(t, "/dlq/"+id+"/requeue", person).ok(t)
		attempts, _ := w.letter(t, id).body["attempts"].([]any)
		want := []obj{
			{"kind": "report", "attempt": 1, "execution_id": "1042", "workflow_id": "kT4bS0qX", "failed_node": "Charge", "error_class": "rate_limited", "http_status": 429, "status": "queued", "at": "2026-11-30T20:00:00Z"},
			{"kind": "lease", "attempt": 2, "status": "replaying", "owner": "2001:0:0", "at": "2026-11-30T20:01:12Z"},
			{"kind": "failed", "attempt": 2, "status": "dead", "error_class": "validation", "http_status": 422},
			{"kind": "requeued", "status": "queued", "by": "asha@example.test", "reason": "the credential was renewed"},
		}
		if len(attempts) != len(want) {
			t.Fatalf("%d things happened, want %d: %v", len(attempts), len(want), attempts)
		}
		for i := range want {
			got, _ := attempts[i].(obj)
			if owner, _ := got["owner"].(string); want[i]["owner"] != nil && strings.HasSuffix(owner, "2001:0:0") {
				got["owner"] = "2001:0:0" // the key's name may stand before it
			}
			hasAll(t, got, want[i])
		}
	})
}

func TestStatsOfLetters(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		none := map[string]any{"queued": 0, "replaying": 0, "resolved": 0, "dead": 0, "discarded": 0}
		w.get(t, "/dlq/stats").ok(t).has(t, obj{"by_status": none, "by_workflow": "[]", "due": 0, "oldest_due_at": nil, "oldest_dead_at": nil, "inputs_missing": 0})
		dead := w.reports(t, failing("wf1", "1", "422", posting(nil)))
		w.clock.advance(time.Second)
		w.reports(t, failing("wf1", "2", "401", posting(nil)))
		id, lease := w.dueLetter(t, "3")
		w.post(t, "/dlq/"+id+"/resolve", token(lease)).ok(t)
		w.dueLetter(t, "4")
		due := w.refusing(t, "5")
		w.refusing(t, "6")
		w.post(t, "/dlq/"+due.text("id")+"/requeue", person).ok(t)
		stats := w.get(t, "/dlq/stats").ok(t).has(t, obj{
			"by_status": map[string]any{"queued": 2, "replaying": 1, "resolved": 1, "dead": 2, "discarded": 0}, "due": 1, "oldest_dead_at": "2026-11-30T20:00:00Z",
			"oldest_due_at": w.clock.now().Format(time.RFC3339),
			"by_class":      map[string]any{"auth": 1, "rate_limited": 3, "conflict": 0, "transient": 0, "validation": 1, "workflow": 0, "unclassified": 0},
		})
		workflows, _ := stats.body["by_workflow"].([]any)
		if len(workflows) != 2 {
			t.Fatalf("%d workflows, want 2: %s", len(workflows), clip(stats.raw))
		}
		first, _ := workflows[0].(obj)
		second, _ := workflows[1].(obj)
		hasAll(t, first, obj{"workflow_id": "kT4bS0qX", "letters": 3})
		hasAll(t, second, obj{"workflow_id": "wf1", "letters": 2})
		w.post(t, "/dlq/"+dead.text("id")+"/discard", person).ok(t)
		w.get(t, "/dlq/stats").ok(t).has(t, obj{"oldest_dead_at": "2026-11-30T20:00:01Z"})
		// The figures hold neither ids nor keys.
		figures := string(w.get(t, "/metrics").raw)
		for _, line := range []string{`holdfast_letters_total{class="rate_limited",status="queued"} 4`, `holdfast_letters_total{class="validation",status="dead"} 1`} {
			if !strings.Contains(figures, line) {
				t.Errorf("/metrics has no line %s", line)
			}
		}
		if strings.Contains(figures, "kT4bS0qX") {
			t.Error("/metrics holds a workflow's id")
		}
	})
}

func TestReadingLettersIsRefused(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		for query, field := range map[string]string{
			"?limit=0": "limit", "?limit=201": "limit", "?limit=x": "limit", "?status=failed": "status", "?error_class=fatal": "error_class", "?from=today": "from", "?to=1": "to",
			"?cursor=abc": "cursor", "?workflow_id=a/b": "workflow_id", "?source=Shop": "source", "?destination=a%20b": "destination",
		} {
			w.get(t, "/dlq"+query).refused(t, 400, "invalid_request").names(t, field)
		}
		for _, value := range []string{"%00", "a%00b", "%ff", "%ed%a0%80", "'", "%25"} {
			for _, name := range []string{"status", "workflow_id", "source", "destination", "error_class", "cursor", "from"} {
				if a := w.get(t, "/dlq?"+name+"="+value); a.status != 400 {
					t.Errorf("GET /dlq?%s=%s: %d", name, value, a.status)
				}
			}
		}
		for _, id := range []string{"nothing", anID, "%00", strings.ToUpper(anID)} {
			w.get(t, "/dlq/"+id).refused(t, 404, "not_found")
		}
	})
}
