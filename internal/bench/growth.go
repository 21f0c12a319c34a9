package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
)

// growth measures what a full table costs: the same load in turns on a database with n claims and on one that
// began empty.
func (b *bench) growth(ctx context.Context, sizes []int) (err error) {
	empty, dropEmpty, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dropEmpty()) }()
	full, dropFull, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dropFull()) }()
	small, err := b.start(ctx, empty)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, small.stop()) }()
	large, err := b.start(ctx, full)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, large.stop()) }()
	fmt.Printf("\n%-12s  %9s %9s %6s  %9s\n", "claims", "holdfast", "empty", "ratio", "commit ms")
	have := 0
	for _, n := range sizes {
		if err := fill(ctx, full, have, n); err != nil {
			return err
		}
		have = n
		if err := b.compare(ctx, n, large, small); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) compare(ctx context.Context, n int, large, small *sidecar) error {
	plain := row{"claim", 32, false, http.StatusOK, claims("", false)}
	var ours, theirs, ratios, commits []float64
	for range b.rounds {
		commit, err := b.commitCost()
		if err != nil {
			return err
		}
		big, _, err := b.once(ctx, plain, large)
		if err != nil {
			return err
		}
		fresh, _, err := b.once(ctx, plain, small)
		if err != nil {
			return err
		}
		ours, theirs, ratios = append(ours, big.rate), append(theirs, fresh.rate), append(ratios, big.rate/fresh.rate)
		commits = append(commits, float64(commit.Microseconds())/1000)
	}
	fmt.Printf("%-12d  %9.0f %9.0f %6.2f  %9.2f\n", n, median(ours), median(theirs), median(ratios), median(commits))
	return nil
}

// fill adds completed claims, as a table holds them after a while.
func fill(ctx context.Context, address string, from, to int) (err error) {
	db, err := sql.Open("postgres", address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	const step = 500_000
	for at := from; at < to; at += step {
		_, err := db.ExecContext(ctx, `insert into claims (id, source, idempotency_key, kind, key_basis, status, attempt, first_at, grant_no, done_grant,
			lease_until, secret, provider_key, window_from, payload, payload_hash, result_id, result, completed_at, last_at, last_from, moves)
			select gen_random_uuid()::text, 'shop', 'old-' || md5(g::text), 'event', 'given', 'completed', 1, g, 1, 1,
			g, decode(md5(g::text), 'hex'), 'hf_' || left(md5(g::text), 26), g, convert_to($3, 'UTF8'), sha256(g::text::bytea), 'r' || g, '', g, g, 'processing', 2
			from generate_series($1::bigint, $2::bigint) g`, at, min(at+step, to)-1, payload)
		if err != nil {
			return err
		}
	}
	_, err = db.ExecContext(ctx, "vacuum analyze claims")
	return err
}
