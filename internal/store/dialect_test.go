package store

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/ledger"
	"holdfast/internal/pgtest"
)

func TestSQLitePragmas(t *testing.T) {
	t.Parallel()
	s := openMigrated(t, "sqlite://"+filepath.Join(t.TempDir(), "holdfast.db"), Options{})
	want := map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "busy_timeout": "10000"}
	for name, pool := range map[string]*sqlx.DB{"write": s.write, "read": s.read} {
		n := pool.Stats().MaxOpenConnections
		if n < 1 {
			t.Fatalf("the %s pool has no limit", name)
		}
		// Again after all were closed: a new connection must not be a bare one.
		for range 2 {
			var conns []*sqlx.Conn
			for range n {
				c, err := pool.Connx(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				conns = append(conns, c)
				for pragma, value := range want {
					var got string
					if err := c.GetContext(t.Context(), &got, "pragma "+pragma); err != nil || got != value {
						t.Errorf("%s connection %d: %s is %q, want %q (%v)", name, len(conns), pragma, got, value, err)
					}
				}
			}
			for _, c := range conns {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
			pool.SetMaxIdleConns(0)
		}
	}
	if _, err := s.read.ExecContext(t.Context(), "delete from claims"); err == nil {
		t.Error("the reading pool writes")
	}
}

func TestSQLitePaths(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"a b/hold fast.db", "100%/x%20y.db", "ünïcode/日本語 😀.db", "plus+and&amp=1/;'\"`$(x).db", "deep/er/still.db", "no-extension", "dots/../up.db",
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			full := dir + "/" + path
			s := openMigrated(t, "sqlite://"+full, Options{})
			if v, err := s.Claim(t.Context(), plain(t, "key")); err != nil || v.Decision != ledger.Proceed {
				t.Fatalf("%q %v", v.Decision, err)
			}
			if _, _, err := s.List(t.Context(), ledger.ClaimFilter{Limit: 1}); err != nil {
				t.Fatal(err)
			}
			var files []string
			err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					files = append(files, p)
				}
				return err
			})
			want := []string{filepath.Clean(full), filepath.Clean(full) + "-shm", filepath.Clean(full) + "-wal"}
			if slices.Sort(files); err != nil || !slices.Equal(files, want) {
				t.Errorf("%v: the files are %q, want %q", err, files, want)
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, url := range []string{
		"", "holdfast.db", "mysql://u:hunter2@h/db", "sqlite://", "sqlite://:memory:", "sqlite://file:" + dir + "/x.db", "sqlite://" + dir + "/x.db?_busy_timeout=5000",
		"sqlite://" + dir + "/x.db?_pragma=journal_mode(delete)", "sqlite://" + dir + "/a#b.db", "sqlite://" + dir, "postgres://u:hunter2@%zz/db",
		"postgres://u:hunter2@127.0.0.1:1/db?sslmode=disable", "postgres://u:hunter2@127.0.0.1:99999/db", "postgres://u:hunter2@127.0.0.1:1/db?sslmode=wrong",
	} {
		s, err := Open(t.Context(), url, Options{})
		if err == nil {
			t.Errorf("%q was opened", url)
			_ = s.Close()
			continue
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("a refused address left %v behind (%v)", files, err)
	}
}

func TestPostgresAddresses(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]string{
		"Supabase": "&pgbouncer=true&supa=base-pooler.x&connection_limit=1&pool_timeout=10",
		"modes":    "&pool_mode=transaction&statement_cache_mode=describe&prepareThreshold=0",
		"ours":     "&binary_parameters=no&connect_timeout=3",
		"east":     "&timezone=Pacific%2FKiritimati",
		"west":     "&timezone=America%2FNew_York",
		"quarter":  "&timezone=Asia%2FKathmandu",
		"dates":    "&datestyle=SQL%2C+DMY",
		"escape":   "&bytea_output=escape&extra_float_digits=0&intervalstyle=iso_8601",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openMigrated(t, pgtest.Schema(t)+more, Options{})
			if off := s.clock.now().Sub(ledger.At(time.Now())).Abs(); off > time.Minute {
				t.Errorf("the clock is %v off", off)
			}
			r := plain(t, "key")
			r.Payload, r.PayloadHash = []byte("\\x00\\377 \x00\xff"), make([]byte, 32)
			v, err := s.Claim(t.Context(), r)
			if err != nil || v.Decision != ledger.Proceed {
				t.Fatalf("%q %v", v.Decision, err)
			}
			if v, err = s.Claim(t.Context(), plain(t, "key")); err != nil || v.Decision != ledger.InProgress || v.RetryAfter < 890 {
				t.Errorf("%q in %d, %v", v.Decision, v.RetryAfter, err)
			}
			if c, _, err := s.Get(t.Context(), v.Claim.ID); err != nil || string(c.Payload) != string(r.Payload) {
				t.Errorf("payload %q %v", c.Payload, err)
			}
		})
	}
}

// TestGoneAway: a database that goes away is ErrUnavailable, never a decision.
func TestGoneAway(t *testing.T) {
	t.Parallel()
	s := openMigrated(t, pgtest.Schema(t), Options{})
	if _, err := s.write.ExecContext(t.Context(), "drop table history cascade"); err != nil {
		t.Fatal(err)
	}
	v, err := s.Claim(t.Context(), plain(t, "key"))
	if err != nil || v.Decision != ledger.Proceed {
		t.Fatalf("%q %v", v.Decision, err)
	}
	token, _ := ledger.ParseToken(v.Claim.LeaseToken())
	if out, err := s.End(t.Context(), &ledger.Ending{Verb: ledger.Complete, Token: token, ByToken: true}); err == nil {
		t.Errorf("a completion that could not be written was acknowledged: %s", out.Claim.Status)
	}
	if err := s.write.Close(); err != nil {
		t.Fatal(err)
	}
	if v, err := s.Claim(t.Context(), plain(t, "other")); err == nil {
		t.Errorf("decision %q", v.Decision)
	}
}

// TestCallerGone: a caller that hangs up gets no answer; its claim is decided all the same, as if the answer had
// been lost.
func TestCallerGone(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		s := openMigrated(t, url, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := plain(t, "key")
		r.Origin.Owner = "7:0:0"
		if v, err := s.Claim(ctx, r); err != nil && v.Decision != "" {
			t.Errorf("%q %v", v.Decision, err)
		}
		again := plain(t, "key")
		again.Origin.Owner = "7:0:0"
		if v, err := s.Claim(t.Context(), again); err != nil || v.Decision != ledger.Proceed || v.Claim.Attempt != 1 {
			t.Errorf("%q attempt %d, %v", v.Decision, v.Claim.Attempt, err)
		}
	})
}
