package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// usage is what a sidecar has used since it started, as its own metrics tell.
type usage struct {
	processor float64 // seconds
	allocs    float64
	bytes     float64 // allocated in all, not at once
}

func (u usage) less(v usage) usage {
	return usage{u.processor - v.processor, u.allocs - v.allocs, u.bytes - v.bytes}
}

func (s *sidecar) usage(ctx context.Context) (u usage, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+"/metrics", http.NoBody)
	if err != nil {
		return u, err
	}
	resp, err := (&http.Client{Timeout: 5 * time.Second}).Do(req)
	if err != nil {
		return u, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	wanted := map[string]*float64{"process_cpu_seconds_total": &u.processor, "go_memstats_mallocs_total": &u.allocs, "go_memstats_alloc_bytes_total": &u.bytes}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if field := wanted[name]; field != nil {
			if *field, err = strconv.ParseFloat(value, 64); err != nil {
				return u, fmt.Errorf("%s: %w", name, err)
			}
			delete(wanted, name)
		}
	}
	if len(wanted) > 0 {
		err = fmt.Errorf("/metrics lacks %d of the figures", len(wanted))
	}
	return u, errors.Join(err, lines.Err())
}
