package main

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// lettersOf lists the letters of a source.
func (p *program) lettersOf(t *testing.T, source string) (out []map[string]any) {
	t.Helper()
	_, a := p.call(t, http.MethodGet, "/dlq?source="+source, nil, "")
	items, _ := a["items"].([]any)
	for _, item := range items {
		item, _ := item.(map[string]any)
		out = append(out, item)
	}
	return out
}

// A run that dies with its n8n reports nothing. Its event becomes a letter with its input all the same, also when
// Holdfast itself was killed meanwhile; of its effect nobody knows; and a person is told of what only a person can
// decide.
func TestSilenceBecomesALetter(t *testing.T) {
	t.Parallel()
	env := []string{"HOLDFAST_DATABASE_URL=" + sqliteURL(t), "HOLDFAST_SWEEP_INTERVAL=100ms", "HOLDFAST_PUBLIC_URL=https://holdfast.example.test"}
	p := start(t, env...)
	run := func(key, step string) map[string]any {
		return map[string]any{
			"source": "shop", "idempotency_key": key, "step": step, "lease_seconds": 1, "payload": map[string]any{"order": key},
			"workflow_id": "kT4bS0qX", "execution_id": "1042", "owner": "1042:0:0",
		}
	}
	for _, body := range []map[string]any{run("order-1", ""), run("order-1", "charge")} {
		if status, a := p.call(t, http.MethodPost, "/claim", body, ""); status != http.StatusOK || a["decision"] != "proceed" {
			t.Fatalf("/claim: %d %v", status, a)
		}
	}
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.ended
	again := start(t, env...)
	eventually(t, func() bool { return len(again.lettersOf(t, "shop")) > 0 })
	letters := again.lettersOf(t, "shop")
	if len(letters) != 1 {
		t.Fatalf("%d letters, want 1: %v", len(letters), letters)
	}
	for name, want := range map[string]any{
		"status": "queued", "reason": "lease_expired", "idempotency_key": "order-1", "input": "stored", "play": "workflow", "workflow_id": "kT4bS0qX", "execution_id": "1042", "attempt_count": 1.0,
	} {
		if letters[0][name] != want {
			t.Errorf("%s is %v, want %v", name, letters[0][name], want)
		}
	}
	_, detail := again.call(t, http.MethodGet, "/dlq/"+letters[0]["id"].(string), nil, "")
	if payload, _ := detail["payload"].(map[string]any); payload["order"] != "order-1" {
		t.Errorf("its input is %v", detail["payload"])
	}
	other := run("order-1", "charge")
	other["owner"] = "1043:0:0"
	eventually(t, func() bool { // its lease began later than the event's
		_, a := again.call(t, http.MethodPost, "/claim", other, "")
		if a["decision"] != "in_progress" && a["decision"] != "unknown" {
			t.Fatalf("the effect: %v", a["decision"])
		}
		return a["decision"] == "unknown"
	})

	// What waits for a person reaches one, with a link and without what failed.
	report := map[string]any{"event_id": "order-2", "workflow_id": "kT4bS0qX", "error_message": "refused", "http_status": 422, "payload": map[string]any{"note": "personal-data"}}
	_, dead := again.call(t, http.MethodPost, "/dlq", report, "")
	if dead["status"] != "dead" {
		t.Fatalf("/dlq: %v", dead)
	}
	eventually(t, func() bool {
		return strings.Contains(again.log(), "dead letter: ") && strings.Contains(again.log(), "link=https://holdfast.example.test/dlq/"+dead["id"].(string))
	})
	if strings.Contains(again.log(), "personal-data") {
		t.Errorf("the alert holds the input: %s", again.log())
	}
	again.stop(t)
}
