package main

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"

	"holdfast/internal/config"
	"holdfast/internal/ledger"
	"holdfast/internal/worker"
)

// probes prepares what asks destinations about unknown claims.
func probes(f *config.File, looks worker.Looks, log *slog.Logger) (*worker.Probes, error) {
	o := worker.ProbeOptions{Log: log}
	for _, n := range f.AllowPrivate {
		o.Private = append(o.Private, netip.Prefix(n))
	}
	for _, name := range slices.Sorted(maps.Keys(f.Probes)) {
		p := f.Probes[name]
		one := worker.Probe{Name: name, Method: string(p.Method), URL: parts(p.URL), Headers: map[string]string{}, Body: parts(p.Body), Found: string(p.Found)}
		for n, value := range p.Headers {
			one.Headers[n] = string(value)
		}
		for _, status := range p.NotFound {
			one.NotFound = append(one.NotFound, int(status))
		}
		for _, claims := range p.For(name) {
			one.For = ledger.Match(claims)
			o.Probes = append(o.Probes, one)
		}
	}
	w, err := worker.NewProbes(o, looks)
	if err != nil {
		return nil, fmt.Errorf("HOLDFAST_CONFIG: %w", err)
	}
	return w, nil
}

func parts[T ~[]config.Part](template T) (out []worker.Part) {
	for _, p := range template {
		out = append(out, worker.Part(p))
	}
	return out
}
