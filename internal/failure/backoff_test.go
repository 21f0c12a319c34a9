package failure_test

import (
	"math"
	"testing"
	"time"

	"holdfast/internal/failure"
)

func TestBackoff(t *testing.T) {
	t.Parallel()
	const week = 7 * 24 * 3600
	for _, tt := range []struct {
		attempt    int
		retryAfter *int64
		want       int64
	}{
		{math.MinInt, nil, 30},
		{-1, nil, 30},
		{0, nil, 30},
		{1, nil, 60},
		{2, nil, 120},
		{3, nil, 240},
		{4, nil, 480},
		{5, nil, 960},
		{6, nil, 1920},
		{7, nil, 3600},
		{8, nil, 3600},
		{63, nil, 3600},
		{64, nil, 3600},
		{math.MaxInt, nil, 3600},

		{1, new(int64(0)), 60},
		{1, new(int64(10)), 60},
		{1, new(int64(61)), 61},
		{1, new(int64(7200)), 7200}, // more than the cap: the destination said so
		{7, new(int64(10)), 3600},
		{1, new(int64(-5)), 60},
		{1, new(int64(math.MinInt64)), 60},
		{1, new(int64(99_999_999)), week},
		{math.MaxInt, new(int64(math.MaxInt64)), week},
	} {
		if got := failure.Backoff(tt.attempt, tt.retryAfter); got != tt.want {
			t.Errorf("Backoff(%d, %v) = %d, want %d", tt.attempt, tt.retryAfter, got, tt.want)
		}
	}
}

func TestJitter(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		seconds int64
		r       float64
		want    int64
	}{
		{60, 0, 60},
		{60, 0.5, 66},
		{60, 1, 72},
		{60, 7, 72},
		{60, -7, 60},
		{60, math.NaN(), 60},
		{60, math.Inf(1), 72},
		{3600, 0.999, 4319},
		{1, 0.9, 1},
		{0, 0.5, 0},
		{-9, 0.5, 0},
	} {
		if got := failure.Jitter(tt.seconds, tt.r); got != tt.want {
			t.Errorf("Jitter(%d, %v) = %d, want %d", tt.seconds, tt.r, got, tt.want)
		}
	}
	if got := failure.Jitter(math.MaxInt64, 1); got <= 0 {
		t.Errorf("overflow: %d", got)
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		header string
		want   int64
		ok     bool
	}{
		{"10", 10, true},
		{" 10 ", 10, true},
		{"0", 0, true},
		{"99999999", 604800, true},
		{"99999999999999999999999", 604800, true},
		{"Wed, 01 Jan 2031 00:00:10 GMT", 10, true},
		{"Wednesday, 01-Jan-31 00:00:10 GMT", 10, true},
		{"Wed Jan  1 00:00:10 2031", 10, true},
		{"Tue, 31 Dec 2030 23:00:00 GMT", 0, true}, // it has passed
		{"Wed, 01 Jan 2200 00:00:00 GMT", 604800, true},
		{"-5", 0, false},
		{"+5", 0, false},
		{"1.5", 0, false},
		{"abc", 0, false},
		{"", 0, false},
	} {
		got, ok := failure.RetryAfter(tt.header, now)
		if got != tt.want || ok != tt.ok {
			t.Errorf("RetryAfter(%q) = %d, %t, want %d, %t", tt.header, got, ok, tt.want, tt.ok)
		}
	}
}
