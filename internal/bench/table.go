package main

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	_ "github.com/lib/pq" // makes the databases that are measured in
)

func median[T cmp.Ordered](v []T) T {
	slices.Sort(v)
	return v[len(v)/2]
}

// row is one line of the table: a load, and what it is compared with.
type row struct {
	name    string
	callers int
	fresh   bool
	status  int
	// request gives the requests of one round; before it the sidecar at addr may be made ready for them.
	request func(addr, run string) (func(b *bytes.Buffer, caller, n int), error)
}

func (b *bench) rows() []row {
	var out []row
	for _, callers := range []int{1, 8, 32, 96} {
		out = append(out, row{"claim", callers, false, http.StatusOK, claims("", false)}, row{"complete", callers, false, http.StatusOK, b.completes(callers)})
	}
	return append(out,
		row{"claim, a new connection each", 32, true, http.StatusOK, claims("", true)},
		row{"claim with an entity", 32, false, http.StatusOK, claims(`,"entity":"KEY","version":1`, false)},
		row{"claim with a destination", 32, false, http.StatusOK, claims(`,"destination":"crm"`, false)},
		row{"duplicate", 32, false, http.StatusOK, always(func(caller, n int) []byte {
			var body bytes.Buffer
			claimBody(&body, "dup-"+strconv.Itoa(n%50), "") // another owner each time, else it is its own lease
			return []byte(strings.Replace(body.String(), "812:0:0", strconv.Itoa(caller)+":"+strconv.Itoa(n)+":0", 1))
		})},
		row{"refused before the database", 32, false, http.StatusUnprocessableEntity, always(func(int, int) []byte {
			var body bytes.Buffer
			return claimBody(&body, "order-", "")
		})},
	)
}

func claims(extra string, fresh bool) func(addr, run string) (func(*bytes.Buffer, int, int), error) {
	return func(_, run string) (func(*bytes.Buffer, int, int), error) {
		return func(out *bytes.Buffer, caller, n int) {
			var body bytes.Buffer
			key := run + "-" + strconv.Itoa(caller) + "-" + strconv.Itoa(n)
			post(out, "/claim", fresh, claimBody(&body, key, strings.ReplaceAll(extra, "KEY", key)))
		}, nil
	}
}

// always claims with a body that needs no preparation.
func always(body func(caller, n int) []byte) func(addr, run string) (func(*bytes.Buffer, int, int), error) {
	return func(string, string) (func(*bytes.Buffer, int, int), error) {
		return func(out *bytes.Buffer, caller, n int) { post(out, "/claim", false, body(caller, n)) }, nil
	}
}

var leaseToken = regexp.MustCompile(`"lease_token":"([^"]+)"`)

// completes claims first, for as long as the round will take, and then ends those claims.
func (b *bench) completes(callers int) func(addr, run string) (func(*bytes.Buffer, int, int), error) {
	return func(addr, run string) (func(*bytes.Buffer, int, int), error) {
		request, err := claims("", false)(addr, run)
		if err != nil {
			return nil, err
		}
		tokens := make([][]string, callers)
		l := &load{addr: addr, callers: callers, time: b.each, status: http.StatusOK, request: request, answer: func(caller int, body []byte) {
			if m := leaseToken.FindSubmatch(body); m != nil {
				tokens[caller] = append(tokens[caller], string(m[1]))
			}
		}}
		_, err = l.run()
		return func(out *bytes.Buffer, caller, n int) {
			if n < len(tokens[caller]) {
				post(out, "/complete", false, fmt.Appendf(nil, `{"lease_token":%q,"result_id":"ch_3Qa","result":{"status":"paid","amount":125000}}`, tokens[caller][n]))
			}
		}, err
	}
}

func (b *bench) table(ctx context.Context) (err error) {
	database, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	baseline, dropBaseline, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dropBaseline()) }()
	// The baseline inserts into the same table with the same indexes.
	migrate := exec.CommandContext(ctx, b.binary, "migrate", "up") //nolint:gosec // the program that is measured
	migrate.Env = append(os.Environ(), "HOLDFAST_DATABASE_URL="+baseline)
	if out, err := migrate.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	pg, err := b.start(ctx, database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.stop()) }()
	lite, err := b.start(ctx, "sqlite://"+filepath.Join(b.dir, "bench.db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lite.stop()) }()
	fmt.Printf("idle memory: PostgreSQL %.0f MiB, SQLite %.0f MiB\n", pg.memory(), lite.memory())
	fmt.Printf("%-30s %7s  %9s %9s %6s  %8s %8s  %7s %6s %5s  %9s  %9s\n", "", "callers", "holdfast", "pgbench", "ratio", "p50 ms", "p99 ms", "cpu us", "allocs", "KiB", "SQLite", "commit ms")
	for _, r := range b.rows() {
		if !strings.Contains(r.name+" "+strconv.Itoa(r.callers), b.only) {
			continue
		}
		if err := b.measure(ctx, r, pg, lite, baseline); err != nil {
			return fmt.Errorf("%s at %d: %w", r.name, r.callers, err)
		}
	}
	fmt.Printf("loaded memory: PostgreSQL %.0f MiB, SQLite %.0f MiB\n", pg.memory(), lite.memory())
	return nil
}

// measure prints one row: the load on PostgreSQL and pgbench in turns, then SQLite.
func (b *bench) measure(ctx context.Context, r row, pg, lite *sidecar, baseline string) error {
	var ours, theirs, ratios, sqlites, commits, costs, allocs, bytes []float64
	var p50s, p99s []time.Duration
	for range b.rounds {
		commit, err := b.commitCost()
		if err != nil {
			return err
		}
		got, used, err := b.once(ctx, r, pg)
		if err != nil {
			return err
		}
		base, err := b.pgbench(ctx, baseline, r.callers)
		if err != nil {
			return err
		}
		local, _, err := b.once(ctx, r, lite)
		if err != nil {
			return err
		}
		each := float64(got.answers)
		costs, allocs, bytes = append(costs, used.processor/each), append(allocs, used.allocs/each), append(bytes, used.bytes/each)
		ours, theirs, ratios, sqlites = append(ours, got.rate), append(theirs, base), append(ratios, got.rate/base), append(sqlites, local.rate)
		p50s, p99s, commits = append(p50s, got.p50), append(p99s, got.p99), append(commits, float64(commit.Microseconds())/1000)
	}
	fmt.Printf("%-30s %7d  %9.0f %9.0f %6.2f  %8.2f %8.2f  %7.0f %6.0f %5.0f  %9.0f  %9.2f\n", r.name, r.callers, median(ours), median(theirs), median(ratios),
		median(p50s).Seconds()*1000, median(p99s).Seconds()*1000, median(costs)*1e6, median(allocs), median(bytes)/1024, median(sqlites), median(commits))
	return nil
}

// once runs the load of a row against a sidecar, and tells what it cost there.
func (b *bench) once(ctx context.Context, r row, s *sidecar) (got result, used usage, err error) {
	request, err := r.request(s.addr, uuid.NewString()[:8])
	if err != nil {
		return got, used, err
	}
	before, err := s.usage(ctx)
	if err != nil {
		return got, used, err
	}
	l := &load{addr: s.addr, callers: r.callers, fresh: r.fresh, time: b.each, status: r.status, request: request}
	if got, err = l.run(); err != nil {
		return got, used, err
	}
	if got.bad > 0 {
		return got, used, fmt.Errorf("%d answers had not the status %d", got.bad, r.status)
	}
	after, err := s.usage(ctx)
	return got, after.less(before), err
}

// insertScript is the baseline: the row of a plain claim, written by hand.
var insertScript = `\set r random(1, 9000000000000000)
insert into claims (id, source, idempotency_key, kind, key_basis, status, attempt, first_at, owner, workflow_id, execution_id, node, caller_key,
 grant_no, lease_until, secret, provider_key, window_from, payload, payload_hash, result, last_at, last_attempt, last_owner, last_execution, last_by)
values (gen_random_uuid()::text, 'shop', 'order-' || :r, 'event', 'given', 'processing', 1, 1764540000000000, '812:0:0', 'k3Vt8Xn2', '812', 'Claim', 'n8n',
 1, 1764540300000000, '\x00112233445566778899aabbccddeeff', 'hf_zbf3l4tofhsbdf4keg7h5imt24', 1764540000000000, '\x` + hex.EncodeToString([]byte(payload)) + `',
 '\x00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff', '', 1764540000000000, 1, '812:0:0', '812', 'n8n')
on conflict (source, account, idempotency_key, step) do nothing returning id;
`

var tps = regexp.MustCompile(`tps = ([0-9.]+)`)

func (b *bench) pgbench(ctx context.Context, database string, clients int) (float64, error) {
	script := filepath.Join(b.dir, "insert.sql")
	if err := os.WriteFile(script, []byte(insertScript), 0o600); err != nil {
		return 0, err
	}
	program := "pgbench"
	if dir, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		program = filepath.Join(strings.TrimSpace(string(dir)), "pgbench")
	}
	cmd := exec.CommandContext(ctx, program, "-n", "-M", cmp.Or(os.Getenv("PGBENCH_MODE"), "extended"), "-c", strconv.Itoa(clients), "-j", strconv.Itoa(min(2, clients)), //nolint:gosec // PostgreSQL's own tool
		"-T", strconv.Itoa(int(b.each.Seconds())), "-f", script, database)
	out, err := cmd.CombinedOutput()
	found := tps.FindSubmatch(out)
	if err == nil && found == nil {
		err = errors.New("it printed no rate")
	}
	if err != nil {
		return 0, fmt.Errorf("pgbench: %w: %s", err, out)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}

// database makes an empty database beside the one that HOLDFAST_TEST_POSTGRES names.
func (b *bench) database(ctx context.Context) (address string, drop func() error, err error) {
	u, err := url.Parse(b.postgres)
	if err != nil {
		return "", nil, err
	}
	db, err := sql.Open("postgres", b.postgres)
	if err != nil {
		return "", nil, err
	}
	name := "bench_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	if _, err := db.ExecContext(ctx, "create database "+name); err != nil {
		return "", nil, errors.Join(err, db.Close())
	}
	u.Path = "/" + name
	return u.String(), func() error {
		_, err := db.ExecContext(context.WithoutCancel(ctx), "drop database "+name+" with (force)")
		return errors.Join(err, db.Close())
	}, nil
}
