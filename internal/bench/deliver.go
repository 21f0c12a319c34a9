package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// deliver sends so many events to a destination that allows 100 requests in 10 seconds, made scale times as large so
// that the run ends, and refuses 1.5 % of the requests before it has done anything. Callers do what a workflow does: claim, call,
// complete, or report the failure; a retry worker does the rest. Afterwards it is counted what happened.
func (b *bench) deliver(ctx context.Context, events, scale int) (err error) {
	database, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	const window = 10 * time.Second
	file := filepath.Join(b.dir, "deliver.yaml")
	// Holdfast counts starts. Requests arrive a little later, now more and now less: a tenth is left as margin.
	if err := os.WriteFile(file, fmt.Appendf(nil, "destinations:\n  crm: {rate: %d/%s}\n", 100*scale, window+window/10), 0o600); err != nil {
		return err
	}
	if err := os.Setenv("HOLDFAST_CONFIG", file); err != nil {
		return err
	}
	s, err := b.start(ctx, database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	d := &delivery{base: "http://" + s.addr, client: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 1024}}, events: int64(events)}
	shop, err := d.listen(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shop.Close()) }()
	begin := time.Now()
	var wg sync.WaitGroup
	for range 600 {
		wg.Go(func() { d.failed(d.callers(ctx)) })
	}
	wg.Go(func() { d.failed(d.retries(ctx)) })
	wg.Wait()
	took := time.Since(begin)
	starts, err := startsOf(ctx, database)
	return errors.Join(err, d.firstError(), d.report(took, window, 100*scale, starts))
}

// delivery is one run and what its destination saw.
type delivery struct {
	base, shop string
	client     *http.Client
	events     int64
	next, done atomic.Int64

	mu       sync.Mutex
	acted    map[string]int
	arrivals []time.Time
	refused  int
	retried  int
	err      error
}

// listen is the destination: it refuses some requests, and counts the others by key.
func (d *delivery) listen(ctx context.Context) (*http.Server, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d.shop, d.acted = "http://"+l.Addr().String(), map[string]int{}
	s := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.arrivals = append(d.arrivals, time.Now())
		if rand.Float64() < 0.015 { //nolint:gosec // which requests fail needs no secrecy
			d.refused++
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		d.acted[r.Header.Get("X-Event")]++
	})}
	go func() { d.failed(s.Serve(l)) }()
	return s, nil
}

// callers take one event after another until there is none.
func (d *delivery) callers(ctx context.Context) error {
	for {
		n := d.next.Add(1)
		if n > d.events {
			return nil
		}
		if err := d.run(ctx, "order-"+strconv.FormatInt(n, 10), "run-"+strconv.FormatInt(n, 10)); err != nil {
			return err
		}
	}
}

// run is one run of the workflow: it claims, calls, and completes or reports.
func (d *delivery) run(ctx context.Context, key, execution string) error {
	var claim struct {
		Decision   string `json:"decision"`
		Token      string `json:"lease_token"`
		RetryAfter int    `json:"retry_after_seconds"`
	}
	for {
		if err := d.post(ctx, "/claim", map[string]any{
			"source": "shop", "idempotency_key": key, "kind": "event", "destination": "crm", "owner": execution + ":0:0",
			"workflow_id": "deliver", "execution_id": execution, "payload": map[string]any{"order": key},
		}, &claim); err != nil {
			return err
		}
		if claim.Decision != "wait" {
			break
		}
		if err := pauseFor(ctx, time.Duration(claim.RetryAfter)*time.Second); err != nil {
			return err
		}
	}
	if claim.Decision != "proceed" {
		return fmt.Errorf("the claim of %s says %s", key, claim.Decision)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.shop, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("X-Event", key)
	resp, err := d.client.Do(req)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode == http.StatusOK {
		d.done.Add(1)
		return d.post(ctx, "/complete", map[string]any{"lease_token": claim.Token, "result_id": key}, nil)
	}
	return d.post(ctx, "/dlq", map[string]any{"execution": map[string]any{"id": execution, "mode": "webhook", "lastNodeExecuted": "Call", "error": map[string]any{
		"name": "NodeApiError", "message": "Service unavailable", "httpCode": strconv.Itoa(resp.StatusCode),
	}}, "workflow": map[string]any{"id": "deliver", "name": "deliver"}}, nil)
}

// retries is the retry worker: it leases what is due and runs it again, until all events are done.
func (d *delivery) retries(ctx context.Context) error {
	for turn := 0; d.done.Load() < d.events && d.firstError() == nil; turn++ {
		var letters []struct {
			ID      string `json:"id"`
			Token   string `json:"lease_token"`
			Attempt int    `json:"attempt_count"`
			Key     string `json:"idempotency_key"`
		}
		if err := d.post(ctx, "/dlq/lease", map[string]any{"owner": "retry-" + strconv.Itoa(turn), "limit": 25}, &letters); err != nil {
			return err
		}
		for _, l := range letters {
			d.mu.Lock()
			d.retried++
			d.mu.Unlock()
			if err := d.run(ctx, l.Key, "retry-"+l.ID+"-"+strconv.Itoa(l.Attempt)); err != nil {
				return err
			}
		}
		if len(letters) == 0 {
			if err := pauseFor(ctx, time.Second); err != nil {
				return err
			}
		}
	}
	return nil
}

func pauseFor(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (d *delivery) post(ctx context.Context, path string, body, answer any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.base+path, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := d.client.Do(req)
	if err != nil {
		return err
	}
	raw, err = io.ReadAll(resp.Body)
	switch err = errors.Join(err, resp.Body.Close()); {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %d %s", path, resp.StatusCode, raw)
	case answer == nil:
		return nil
	}
	return json.Unmarshal(raw, answer)
}

func (d *delivery) failed(err error) {
	if err == nil || errors.Is(err, http.ErrServerClosed) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.err = err
	}
}

func (d *delivery) firstError() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// startsOf are the times at which Holdfast let an attempt start, by its database's clock.
func startsOf(ctx context.Context, database string) (out []time.Time, err error) {
	db, err := sql.Open("postgres", database)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	rows, err := db.QueryContext(ctx, `select at from history where to_status = 'processing' order by at`)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var at int64
		if err := rows.Scan(&at); err != nil {
			return nil, err
		}
		out = append(out, time.UnixMicro(at))
	}
	return out, rows.Err()
}

// densest is the largest number of times in any window.
func densest(times []time.Time, window time.Duration) (most int) {
	from := 0
	for i, at := range times {
		for at.Sub(times[from]) >= window {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}

// report counts: every event once, and never more than the rate in any window, as Holdfast and the destination saw it.
func (d *delivery) report(took, window time.Duration, allowed int, starts []time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	twice := 0
	for _, n := range d.acted {
		if n > 1 {
			twice++
		}
	}
	slices.SortFunc(d.arrivals, time.Time.Compare)
	fmt.Printf("%d events in %.0f s: %d delivered, %d twice, %d lost; %d refused, %d letters run again\n",
		d.events, took.Seconds(), len(d.acted), twice, int(d.events)-len(d.acted), d.refused, d.retried)
	fmt.Printf("most requests in any %s, of %d allowed: %d as they started, %d as they arrived\n", window, allowed, densest(starts, window), densest(d.arrivals, window))
	if twice > 0 || len(d.acted) != int(d.events) {
		return errors.New("not every event was delivered exactly once")
	}
	return nil
}
