package main

import (
	"fmt"
	"log/slog"
	"time"

	"holdfast/api"
	"holdfast/internal/config"
	"holdfast/internal/notify"
	"holdfast/internal/store"
)

// How often alerts are looked for, to be sent and to be raised.
const (
	sendInterval  = 2 * time.Second
	watchInterval = 5 * time.Second
)

// targets reads the addresses that alerts go to.
func targets(f *config.File) ([]*notify.Target, error) {
	out, err := notify.Targets(f.Notify)
	if err != nil {
		return nil, fmt.Errorf("HOLDFAST_CONFIG: %w", err)
	}
	return out, nil
}

// senders are one for each target, so that a slow one does not keep the others waiting, or one for the log.
func senders(cfg *config.Config, targets []*notify.Target, outbox notify.Outbox, log *slog.Logger, metrics *api.Metrics) (out []*notify.Sender) {
	if len(targets) == 0 {
		targets = []*notify.Target{nil}
	}
	for _, t := range targets {
		out = append(out, &notify.Sender{Outbox: outbox, Target: t, PublicURL: cfg.PublicURL, Log: log, Seen: metrics.Alerted})
	}
	return out
}

// alertOptions tell the store where alerts go, and which sources are to be heard from.
func alertOptions(f *config.File, targets []*notify.Target) store.AlertOptions {
	o := store.AlertOptions{Silence: map[string]time.Duration{}}
	for _, t := range targets {
		o.Targets = append(o.Targets, t.ID)
	}
	for name, s := range f.Sources {
		if s.Silence != nil {
			o.Silence[name] = time.Duration(*s.Silence)
		}
	}
	return o
}
