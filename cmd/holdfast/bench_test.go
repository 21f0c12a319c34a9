package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"

	"holdfast/internal/config"
	"holdfast/internal/pgtest"
)

// BenchmarkClaim is a durable claim over HTTP through the real wiring, with 32 callers; the figure to look at is
// the processor time and the allocations of a claim (run it with -cpuprofile), not the rate.
func BenchmarkClaim(b *testing.B) {
	benchmarkClaim(b, func(n int64) (key, owner int64) { return n, 1 })
}

// BenchmarkDuplicate is a claim of what another caller has under way.
func BenchmarkDuplicate(b *testing.B) {
	benchmarkClaim(b, func(n int64) (key, owner int64) { return n % 50, n })
}

func benchmarkClaim(b *testing.B, nth func(n int64) (key, owner int64)) {
	b.Run("sqlite", func(b *testing.B) { benchmarkClaims(b, "sqlite://"+filepath.Join(b.TempDir(), "bench.db"), nth) })
	b.Run("postgres", func(b *testing.B) { benchmarkClaims(b, pgtest.Database(b), nth) })
}

func benchmarkClaims(b *testing.B, database string, nth func(n int64) (key, owner int64)) {
	b.Setenv("HOLDFAST_DATABASE_URL", database)
	b.Setenv("HOLDFAST_ADDR", "127.0.0.1:0")
	cfg, err := config.Load()
	if err != nil {
		b.Fatal(err)
	}
	m, err := Start(b.Context(), cfg, io.Discard)
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	var n atomic.Int64
	b.SetParallelism(16)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			key, owner := nth(n.Add(1))
			body := fmt.Sprintf(`{"source":"shop","idempotency_key":"k-%d","owner":"%d:0:0","workflow_id":"k3Vt8Xn2","payload":{"id":"evt_1","type":"order.paid","data":{"object":{"id":"ord_3","amount":125000,"currency":"kes","metadata":{"order_id":"ORD-1001"}}}}}`, key, owner)
			resp, err := client.Post("http://"+m.Addr+"/claim", "application/json", bytes.NewReader([]byte(body)))
			if err != nil {
				b.Error(err)
				return
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
				b.Errorf("answer %d: %v", resp.StatusCode, err)
			}
			if err := resp.Body.Close(); err != nil {
				b.Error(err)
			}
		}
	})
	b.StopTimer()
	stop()
	if err := <-done; err != nil {
		b.Error(err)
	}
}
