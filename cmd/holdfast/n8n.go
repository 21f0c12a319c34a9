package main

import (
	"fmt"
	"log/slog"

	"holdfast/internal/config"
	"holdfast/internal/worker"
)

// askN8N prepares what asks n8n about letters; nil where no n8n is configured.
func askN8N(f *config.File, letters worker.Letters, log *slog.Logger) (*worker.N8N, error) {
	if f.N8N == nil {
		return nil, nil
	}
	w, err := worker.NewN8N(worker.N8NOptions{URL: f.N8N.URL, APIKey: f.N8N.APIKey, Redact: f.Redact, Log: log}, letters)
	if err != nil {
		return nil, fmt.Errorf("HOLDFAST_CONFIG: n8n.url: %w", err)
	}
	return w, nil
}
