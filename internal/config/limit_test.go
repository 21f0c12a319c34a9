package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/internal/config"
)

func read(t *testing.T, text string) (*config.File, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "holdfast.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.ReadFile(path)
}

func TestLimits(t *testing.T) {
	t.Parallel()
	f, err := read(t, `destinations:
  hubspot: {rate: 100/10s, max_concurrency: 4, circuit: {failures: 5, open_for: 30s}, idempotency_window: 7d, ask_after: 0s}
  quoted.name: {rate: "1/1d", circuit: {failures: 3}}
  open: {circuit: {}}
  none: {ask_after: 1m}
`)
	if err != nil {
		t.Fatal(err)
	}
	h := f.Destinations["hubspot"]
	if h.Rate != (config.Rate{N: 100, Per: 10 * time.Second}) || h.MaxConcurrency != 4 || h.Circuit == nil ||
		*h.Circuit != (config.Circuit{Failures: 5, OpenFor: config.Period(30 * time.Second)}) {
		t.Errorf("hubspot: %+v", h.Limits)
	}
	if time.Duration(*h.Window) != 7*24*time.Hour || *h.AskAfter != 0 {
		t.Errorf("hubspot's times: %+v", h.Times)
	}
	if q := f.Destinations["quoted.name"]; q.Rate.Per != 24*time.Hour || q.Circuit.Failures != 3 || q.Circuit.OpenFor != 0 {
		t.Errorf("quoted.name: %+v", q.Limits)
	}
	if o := f.Destinations["open"]; o.Circuit == nil {
		t.Error("an empty circuit is one with the defaults")
	}
	if n := f.Destinations["none"]; n.Limits != (config.Limits{}) {
		t.Errorf("none: %+v", n.Limits)
	}
}

// What is wrong is named with its line and its key, and its value is not repeated.
func TestLimitsRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, key string }{
		{"rate: 100", "rate"},
		{"rate: 0/10s", "rate"},
		{"rate: -1/10s", "rate"},
		{"rate: 1.5/10s", "rate"},
		{"rate: 100/10", "rate"},
		{"rate: 100/0s", "rate"},
		{"rate: 100/500ms", "rate"},
		{"rate: 100/-10s", "rate"},
		{"rate: 100/9999999d", "rate"},
		{"rate: 100/10s/2", "rate"},
		{"rate: [100, 10s]", "rate"},
		{"rate: {n: 100}", "rate"},
		{"max_concurrency: 0", "max_concurrency"},
		{"max_concurrency: -4", "max_concurrency"},
		{"max_concurrency: four", "max_concurrency"},
		{"circuit: {failures: 0, open_for: 30s}", "circuit.failures"},
		{"circuit: {failures: 5, open_for: 0s}", "circuit.open_for"},
		{"circuit: {failures: 5, open_for: 30}", "circuit.open_for"},
		{"circuit: {failures: 5, open: 30s}", "open"},
		{"concurrency: 4", "concurrency"},
		{"ask_after: soon", "ask_after"},
		{"idempotency_window: 0s", "idempotency_window"},
	} {
		_, err := read(t, "destinations:\n  good: {rate: 1/1s}\n  hubspot:\n    "+test.text+"\n")
		if err == nil {
			t.Errorf("%s was taken", test.text)
			continue
		}
		message := err.Error()
		if !strings.Contains(message, test.key) || !strings.Contains(message, "line 4") && test.key != "idempotency_window" {
			t.Errorf("%s: %s", test.text, message)
		}
		if value := test.text[strings.Index(test.text, ": ")+2:]; len(value) > 6 && strings.Contains(message, value) {
			t.Errorf("the value is repeated: %s", message)
		}
	}
}
