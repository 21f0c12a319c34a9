package api_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"
)

// What the README shows first.
func TestTour(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		order := key("order-1001")
		first := w.decides(t, "proceed", order).has(t, obj{
			"source": "shop", "account": "", "idempotency_key": "order-1001", "key_basis": "given", "step": "", "kind": "event", "status": "processing",
			"attempt": 1, "reentrant": false, "lease_expires_at": "2026-11-30T20:05:00Z", "retry_after_seconds": 0, "payload_hash": nil,
			"payload_matches": nil, "result_id": nil, "result": nil, "reference": nil, "first_seen_at": "2026-11-30T20:00:00Z",
		})
		again := w.decides(t, "in_progress", order).has(t, obj{"retry_after_seconds": 300, "status": "processing", "attempt": 1, "lease_token": nil})
		token := first.text("lease_token")
		done := obj{"lease_token": token, "result_id": "ch_7001", "result": obj{"charge": "ch_7001", "amount": 1200}}
		ended := w.post(t, "/complete", done).ok(t).has(t, obj{"status": "completed", "changed": true, "result_id": "ch_7001", "completed_at": "2026-11-30T20:00:00Z"})
		w.post(t, "/complete", done).ok(t).has(t, obj{"status": "completed", "changed": false, "result_id": "ch_7001"})
		third := w.decides(t, "completed", order).has(t, obj{"result_id": "ch_7001", "result": obj{"charge": "ch_7001", "amount": 1200}, "lease_expires_at": nil, "retry_after_seconds": 0})
		for _, a := range []answer{again, ended, third} {
			if a.text("claim_id") != first.text("claim_id") {
				t.Error("the claim changed its id")
			}
		}
		if again.text("provider_key") != first.text("provider_key") || third.text("provider_key") != first.text("provider_key") {
			t.Error("the provider_key changed")
		}
	})
}

// Of fifty that race, one proceeds (F001).
func TestOneOfManyProceeds(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		decisions := make(chan string, 50)
		for i := range cap(decisions) {
			go func() {
				a, err := w.try(t, "POST", "/claim", text(t, and(key("ord_7001:paid"), obj{"owner": fmt.Sprintf("%d:0:0", 500+i)})))
				if err != nil {
					t.Error(err)
				}
				decisions <- a.text("decision")
			}()
		}
		count := map[string]int{}
		for range cap(decisions) {
			count[<-decisions]++
		}
		if count["proceed"] != 1 || count["in_progress"] != 49 {
			t.Errorf("decisions %v, want one proceed and 49 in_progress", count)
		}
	})
}

// A pause answers wait; the row is kept, and goes on when the pause ends.
func TestPause(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		word := obj{"authorized_by": "asha@example.test", "reason": "maintenance"}
		for _, scope := range []string{"all", "source.shop", "workflow.kT4bS0qX"} {
			w.send(t, "PUT", "/pauses/"+scope, text(t, word)).ok(t).has(t, and(word, obj{"scope": scope, "since": "2026-11-30T20:00:00Z", "until": nil}))
			k := "paused-" + scope
			w.decides(t, "wait", and(key(k), obj{"workflow_id": "kT4bS0qX"})).has(t, obj{"retry_after_seconds": 300, "status": "pending", "attempt": 0})
			list := w.get(t, "/pauses").ok(t)
			if items, _ := list.body["items"].([]any); len(items) != 1 {
				t.Errorf("%d pauses, want 1", len(items))
			}
			w.send(t, "DELETE", "/pauses/"+scope, "").ok(t).has(t, obj{"scope": scope, "changed": true})
			w.send(t, "DELETE", "/pauses/"+scope, "").ok(t).has(t, obj{"scope": scope, "changed": false})
			w.decides(t, "proceed", and(key(k), obj{"workflow_id": "kT4bS0qX"})).has(t, obj{"attempt": 1})
		}
		w.send(t, "PUT", "/pauses/destination.hubspot", text(t, and(word, obj{"until": "2026-11-30T20:00:40.5Z"}))).ok(t)
		w.decides(t, "wait", and(effect("order-9", "create_task"), obj{"destination": "hubspot"})).has(t, obj{"retry_after_seconds": 41})
		w.decides(t, "proceed", effect("order-9", "charge"))
		w.clock.advance(41 * time.Second)
		w.decides(t, "proceed", and(effect("order-9", "create_task"), obj{"destination": "hubspot"}))
		w.get(t, "/pauses").ok(t).has(t, obj{"items": "[]", "next_cursor": nil})
		// What people did stands in the history, claims or not.
		page := w.get(t, "/history?by="+url.QueryEscape("asha@example.test")).ok(t)
		if items, _ := page.body["items"].([]any); len(items) != 4 {
			t.Errorf("%d acts in the history, want 4", len(items))
		}
	})
}

// A pause that is over before it begins is refused, or answered with the time at which it was set.
func TestPauseOfThePast(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.send(t, "PUT", "/pauses/all", `{"authorized_by":"asha","reason":"maintenance","until":"2020-01-01T00:00:00Z"}`)
	if a.status != 400 {
		a.ok(t).has(t, obj{"since": "2026-11-30T20:00:00Z", "until": "2020-01-01T00:00:00Z"})
	}
	w.decides(t, "proceed", key("order-1"))
}

func TestPauseIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	word := obj{"authorized_by": "asha", "reason": "maintenance"}
	for _, scope := range []string{"everything", "source", "source.", "source.Shop", "destination.-x", "workflow.a%20b", "table.claims", "ALL"} {
		w.send(t, "PUT", "/pauses/"+scope, text(t, word)).refused(t, 400, "invalid_request")
		w.send(t, "DELETE", "/pauses/"+scope, "").refused(t, 400, "invalid_request")
	}
	w.send(t, "PUT", "/pauses/all", `{}`).refused(t, 400, "invalid_request").names(t, "authorized_by").names(t, "reason")
	w.send(t, "PUT", "/pauses/all", text(t, and(word, obj{"until": "tomorrow"}))).refused(t, 400, "invalid_request").names(t, "until")
	w.send(t, "PUT", "/pauses/all", text(t, and(word, obj{"unless": nil}))).refused(t, 400, "invalid_request").names(t, "unless")
}

// Versions of one entity: older than a completed one is stale, equal is not, and another key waits for a live lease.
func TestEntities(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		of := func(k string, version any) obj { return and(key(k), obj{"entity": "cus_88", "version": version}) }
		token := w.proceeds(t, of("upd-2", 2))
		w.decides(t, "stale", of("upd-1", 1)).has(t, obj{"status": "stale"})
		w.decides(t, "wait", of("upd-3", 3)).has(t, obj{"status": "pending", "retry_after_seconds": 300})
		w.post(t, "/complete", obj{"lease_token": token}).ok(t)
		w.decides(t, "proceed", of("upd-2b", 2))
		w.decides(t, "stale", of("upd-1", 1))
		w.post(t, "/claim", of("upd-4", "soon")).refused(t, 400, "invalid_request").names(t, "version")
		w.post(t, "/claim", of("upd-4", 1.5)).refused(t, 400, "invalid_request").names(t, "version")
		w.decides(t, "wait", of("upd-4", "2026-11-30T20:00:00+03:00"))
	})
}

// Reading: filters, pages, what is shown to whom.
func TestReading(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		as, op := bearer(workflowSecret), bearer(operatorSecret)
		var ids []string
		for i := range 5 {
			a := w.claim(t, obj{
				"source": "shop", "account": []string{"", "eu"}[i%2], "idempotency_key": fmt.Sprint("order-", 100+i),
				"payload": obj{"note": "personal-data"}, "owner": "1042:0:0", "workflow_id": "kT4bS0qX", "workflow_name": "Orders", "execution_id": 1042, "node": "Claim",
			}, as)
			ids = append(ids, a.text("claim_id"))
		}
		count := func(query string) int {
			items, _ := w.get(t, "/claims"+query, as).ok(t).body["items"].([]any)
			return len(items)
		}
		for query, want := range map[string]int{
			"": 5, "?source=shop": 5, "?source=other": 0, "?account=": 3, "?account=eu": 2, "?status=processing": 5, "?status=completed": 0, "?kind=event": 5,
			"?kind=effect": 0, "?idempotency_key=order-103": 1, "?reference=none": 0, "?entity=none": 0, "?limit=2": 2, "?limit=200": 5,
			"?from=2026-11-30T20:00:00Z": 5, "?to=2026-11-30T20:00:00Z": 0, "?from=2026-11-30T23:00:00%2B03:00&to=2026-12-01T00:00:00Z": 5,
		} {
			if got := count(query); got != want {
				t.Errorf("/claims%s gives %d claims, want %d", query, got, want)
			}
		}
		seen, cursor := map[string]bool{}, ""
		for range 3 {
			page := w.get(t, "/claims?limit=2&cursor="+cursor, as).ok(t)
			items, _ := page.body["items"].([]any)
			for _, item := range items {
				item, _ := item.(obj)
				seen[fmt.Sprint(item["claim_id"])] = true
			}
			cursor = page.text("next_cursor")
		}
		if len(seen) != 5 || cursor != "" {
			t.Errorf("three pages of two gave %d claims and the cursor %q", len(seen), cursor)
		}
		want := obj{"claim_id": ids[0], "owner": "1042:0:0", "workflow_id": "kT4bS0qX", "workflow_name": "Orders", "execution_id": "1042", "node": "Claim", "status": "processing"}
		w.get(t, "/claims/"+ids[0], as).ok(t).has(t, want).has(t, obj{"payload": nil})
		w.get(t, "/claims/"+ids[0], op).ok(t).has(t, want).has(t, obj{"payload": obj{"note": "personal-data"}})
	}, withKeys(bothKeys...))
}

func TestReadingIsRefused(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		for query, field := range map[string]string{
			"?limit=0": "limit", "?limit=201": "limit", "?limit=x": "limit", "?status=done": "status", "?kind=thing": "kind", "?from=today": "from", "?to=1": "to", "?cursor=abc": "cursor",
		} {
			w.get(t, "/claims"+query).refused(t, 400, "invalid_request").names(t, field)
		}
		for _, query := range []string{"?limit=0", "?from=today", "?cursor=abc"} {
			w.get(t, "/history"+query).refused(t, 400, "invalid_request")
		}
		for _, id := range []string{"nothing", "019acb1c-7c1e-7d7f-9a55-0f3c2b1a4d5e", "%00", "019ACB1C-7C1E-7D7F-9A55-0F3C2B1A4D5E"} {
			w.get(t, "/claims/"+id).refused(t, 404, "not_found")
		}
		// Whatever stands in an address, it is no fault of the inside.
		for _, value := range []string{"%00", "a%00b", "%ff", "%ed%a0%80", "'", "%25", "9223372036854775808~x~y", "-1~%00~"} {
			for _, path := range []string{
				"/claims?source=", "/claims?account=", "/claims?idempotency_key=", "/claims?reference=", "/claims?entity=", "/claims?cursor=", "/history?by=", "/history?claim_id=", "/history?cursor=",
			} {
				if a := w.get(t, path+value); a.status >= 500 {
					t.Errorf("GET %s%s: %d", path, value, a.status)
				}
			}
		}
	})
}
