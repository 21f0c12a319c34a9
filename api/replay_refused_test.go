package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// What is not bounded, not named or not known is refused by its name, and nothing moves.
func TestReplayIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	letter := w.buried(t, "order-1")
	many := make([]string, 10_001)
	for i := range many {
		many[i] = anID
	}
	for field, values := range map[string][]any{
		"limit": {nil, "", 0, -1, 10_001, 1.5, "many", true}, "sample_size": {-1, 10_001, 0.5, "few", false}, "max_concurrency": {0, -1, 101, "x"},
		"rate_per_minute": {0, -1, 10_001, "x"}, "dry_run": {"true", 1}, "authorized_by": {nil, "", " ", 7}, "reason": {nil, "", "\t", []int{}},
		"expected_effects": {nil, strings.Repeat("x", 64<<10)}, "approved_by": {"asha"}, "sampleSize": {5}, "status": {"done"},
		"selector": {nil, obj{}, obj{"status": "dead"}, obj{"status": "queued", "source": ""}, obj{"ids": nil}, "all", []any{}, true},
	} {
		for _, value := range values {
			w.post(t, "/replays", asking(obj{field: value})).refused(t, 400, "invalid_request").names(t, field)
		}
	}
	for field, values := range map[string][]any{
		"ids":         {[]string{}, []string{letter, "all"}, []any{letter, strings.ToUpper(letter)}, []any{7}, []string{""}, many, letter, obj{}},
		"workflow_id": {"a/b", strings.Repeat("x", 65), true}, "source": {"Shop", "a b", 1}, "destination": {"-x", []string{"hubspot"}}, "error_class": {"fatal", "Auth", 1},
		"status": {"resolved", "replaying", "discarded", "Dead", 1}, "from": {"today", "2026-11-30", 1796068800}, "to": {"2026-11-30 20:00:00Z", false, "9999-12-31T23:59:59-01:00"},
		"sourse": {"shop"}, "errorClass": {"auth"}, "id": {letter},
	} {
		for _, value := range values {
			for _, dry := range []bool{true, false} {
				w.post(t, "/replays", asking(obj{"selector": obj{"source": "shop", field: value}, "dry_run": dry})).refused(t, 400, "invalid_request").names(t, "selector."+field)
			}
		}
	}
	if a := w.post(t, "/replays", asking(obj{"selector": obj{"errorClass": "auth"}})); !strings.Contains(a.text("message"), "write error_class") {
		t.Errorf("the message does not say how it is written: %s", a.text("message"))
	}
	if a := w.post(t, "/replays", asking(obj{"selector": nil})); !strings.Contains(a.text("message"), "ids, workflow_id, source, destination, error_class, from, to") {
		t.Errorf("the message does not say what may be chosen by: %s", a.text("message"))
	}
	w.post(t, "/replays", obj{"selector": obj{"source": "shop"}, "limit": 1}).refused(t, 400, "invalid_request").names(t, "authorized_by").names(t, "reason").names(t, "expected_effects")
	w.post(t, "/replays", `{"selector":{"source":"shop","source":"crm"},"limit":1,"dry_run":true}`).refused(t, 400, "invalid_json").names(t, "selector.source")
	w.get(t, "/replays").ok(t).has(t, obj{"items": "[]"})
	w.letter(t, letter).has(t, obj{"status": "dead", "replay_id": nil})
}

// The edges of what is allowed, and what is echoed of it.
func TestReplayTakesTheEdges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	long := strings.Repeat("ä", 5000)
	a := w.starts(t, obj{
		"authorized_by": long, "reason": long + "\x00", "expected_effects": false, "limit": 10_000, "sample_size": 0, "max_concurrency": 100, "rate_per_minute": "10000", "dry_run": nil,
		"selector": obj{
			"ids": []string{anID}, "workflow_id": 7001, "source": "shop", "destination": "hubspot", "error_class": "auth", "status": "queued", "from": "2026-11-30T23:00:00.25+03:00", "to": "2026-12-01T00:00:00Z",
		},
	}).has(t, obj{
		"status": "done", "matched": 0, "expected_effects": false, "limit": 10_000, "sample_size": 0, "max_concurrency": 100, "rate_per_minute": 10_000, "counts": counts(0, 0, 0, 0, 0),
		"selector": obj{
			"ids": []any{anID}, "workflow_id": "7001", "source": "shop", "destination": "hubspot", "error_class": "auth", "status": "queued", "from": "2026-11-30T20:00:00.25Z", "to": "2026-12-01T00:00:00Z",
		},
	})
	for name, most := range map[string]int{"authorized_by": 255, "reason": 4096} {
		if got := len(a.text(name)); got > most || got < most-20 {
			t.Errorf("%s has %d bytes, want it cut to %d", name, got, most)
		}
	}
	for _, effects := range []string{`0`, `""`, `[]`, `{}`, `"x\u0000\ud800"`, `{"n":9007199254740993.10}`} {
		body := `{"authorized_by":"asha","reason":"r","selector":{"source":"shop","workflow_id":"","ids":null},"limit":1,"expected_effects":` + effects + `}`
		if a := w.post(t, "/replays", body).ok(t).has(t, obj{"sample_size": 1, "selector": obj{"source": "shop", "status": "dead"}}); !strings.Contains(string(a.raw), `"expected_effects":`+effects+`,`) {
			t.Errorf("expected_effects %s came back changed: %s", effects, a.raw)
		}
	}
	w.buried(t, "order-1")
	for member, matched := range map[string]int{"from": 1, "to": 0} { // the beginning of time is a time
		w.post(t, "/replays", obj{"selector": obj{"source": "shop", member: "1970-01-01T00:00:00Z"}, "limit": 5, "dry_run": true}).ok(t).has(t, obj{"matched": matched})
	}
}

func TestReadingReplays(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		w.outage(t, 3)
		var ids []string
		for i := range 5 { // one after the other: each waits for its approval, two are then cancelled
			rep := w.starts(t, asking(obj{"limit": 1 + i, "sample_size": 0}))
			ids = append(ids, rep.text("id"))
			if i > 0 && i < 3 {
				w.moves(t, rep, "cancel", "")
			}
			w.clock.advance(time.Second)
		}
		listed := func(query string) (found []string, next string) {
			page := w.get(t, "/replays"+query).ok(t)
			items, _ := page.body["items"].([]any)
			for _, item := range items {
				item, _ := item.(obj)
				found = append(found, fmt.Sprint(item["id"]))
			}
			return found, page.text("next_cursor")
		}
		for query, want := range map[string]int{"": 5, "?status=awaiting_approval": 2, "?status=cancelled": 2, "?status=done": 1, "?status=stopped": 0, "?limit=2": 2} {
			if got, _ := listed(query); len(got) != want {
				t.Errorf("/replays%s gives %d, want %d", query, len(got), want)
			}
		}
		stats, err := w.store.LetterStats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.metrics.Letters(stats)
		figures := string(w.get(t, "/metrics").ok(t).raw)
		for _, line := range []string{`holdfast_replays_open{status="awaiting_approval"} 2`, `holdfast_replays_open{status="running"} 0`} {
			if !strings.Contains(figures, line) {
				t.Errorf("/metrics has no line %s", line)
			}
		}
		var seen []string
		cursor := ""
		for range 3 {
			page, next := listed("?limit=2&cursor=" + cursor)
			seen, cursor = append(seen, page...), next
		}
		if cursor != "" || len(seen) != 5 || seen[0] != ids[4] || seen[4] != ids[0] {
			t.Errorf("three pages of two gave %v and the cursor %q, want the newest first of %v", seen, cursor, ids)
		}
		for query, field := range map[string]string{"?limit=0": "limit", "?limit=201": "limit", "?status=open": "status", "?cursor=abc": "cursor", "?status=%00": "status"} {
			w.get(t, "/replays"+query).refused(t, 400, "invalid_request").names(t, field)
		}
		for _, id := range []string{anID, "x", "%00", strings.ToUpper(ids[0])} {
			w.get(t, "/replays/"+id).refused(t, 404, "not_found")
			for _, verb := range []string{"approve", "pause", "cancel"} {
				w.post(t, "/replays/"+id+"/"+verb, person).refused(t, 404, "not_found")
			}
		}
	})
}
