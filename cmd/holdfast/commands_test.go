package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/internal/pgtest"
)

// hidden stands in values that must never be shown.
const hidden = "s3cr3t-value"

// refused runs the program with a setting that it cannot take: it ends at once, with one line that names the variable.
func refused(t *testing.T, variable string, env ...string) {
	t.Helper()
	env = append([]string{"HOLDFAST_ADDR=127.0.0.1:0", "HOLDFAST_DATABASE_URL=" + sqliteURL(t)}, env...)
	code, out, errs := command(t, env, "serve")
	if code == 0 {
		t.Errorf("%v: the start was not refused", env[2:])
	}
	if lines := strings.Count(strings.TrimSpace(errs), "\n") + 1; lines != 1 || !strings.Contains(errs, variable) {
		t.Errorf("%v: %d lines, want one that names %s: %s", env[2:], lines, variable, errs)
	}
	if strings.Contains(out+errs, hidden) {
		t.Errorf("%v: the secret is shown: %s", env[2:], errs)
	}
}

func TestBadValuesAreNamed(t *testing.T) {
	t.Parallel()
	for variable, values := range map[string][]string{
		"HOLDFAST_ADDR":           {"nonsense", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:99999", "127.0.0.1:-1", ":::1", ""},
		"HOLDFAST_DATABASE_URL":   {"", "holdfast.db", "mysql://u:" + hidden + "@db/x", "postgres://u:" + hidden + "%zz@db/x", "sqlite://", "sqlite://:memory:", "sqlite:///nonexistent\x01/x?mode=" + hidden, "postgres://u:" + hidden + "@127.0.0.1:1/x"},
		"HOLDFAST_API_KEYS":       {hidden, "n8n:" + hidden, "n8n:admin:" + hidden, ":workflow:" + hidden, "n8n:workflow:", "a:workflow:" + hidden + ",a:operator:" + hidden + "2"},
		"HOLDFAST_PUBLIC_URL":     {"nonsense", "ftp://u:" + hidden + "@x", "http://", "://" + hidden},
		"HOLDFAST_INGEST_URL":     {"nonsense", "ftp://u:" + hidden + "@x", "http://"},
		"HOLDFAST_LOG_FORMAT":     {"xml", "JSON5"},
		"HOLDFAST_LOG_LEVEL":      {"loud", hidden},
		"HOLDFAST_MAX_BODY":       {"plenty", "-1", "0", "16 potatoes", "1e9", "9999999999GiB", hidden},
		"HOLDFAST_SWEEP_INTERVAL": {"5", "0s", "-5s", "often", "1000h", hidden},
		"HOLDFAST_CONFIG":         {"/nonexistent/holdfast.yaml"},
	} {
		for _, value := range values {
			t.Run(variable+"="+strings.ReplaceAll(value, hidden, "secret"), func(t *testing.T) {
				t.Parallel()
				if strings.ContainsRune(value, 0) {
					t.Fatal("no environment holds NUL")
				}
				refused(t, variable, variable+"="+value)
			})
		}
	}
}

// Every caller is an operator only where nobody else can call.
func TestNoKeysBeyondThisMachine(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.7:8088", "holdfast.example.test:8088", "localhost.example.test:80"} {
		refused(t, "HOLDFAST_API_KEYS", "HOLDFAST_ADDR="+address)
	}
	// With keys it listens there; and on this machine it needs none.
	for _, env := range [][]string{{"HOLDFAST_ADDR=0.0.0.0:0", "HOLDFAST_API_KEYS=n8n:workflow:with:colons:" + hidden}, {"HOLDFAST_ADDR=localhost:0"}, {"HOLDFAST_ADDR=127.0.0.2:0"}} {
		p := start(t, append(env, "HOLDFAST_DATABASE_URL="+sqliteURL(t))...)
		secret := ""
		if len(env) == 2 {
			secret = "with:colons:" + hidden
			if status, _ := p.call(t, http.MethodPost, "/claim", claim("order-1"), ""); status != http.StatusUnauthorized {
				t.Errorf("without a key: %d", status)
			}
		}
		if status, a := p.call(t, http.MethodPost, "/claim", claim("order-1"), secret); status != http.StatusOK {
			t.Errorf("%v: %d %v", env, status, a)
		}
		p.stop(t)
		if strings.Contains(p.log(), hidden) {
			t.Errorf("the log shows the secret: %s", p.log())
		}
	}
}

// Only variables with the prefix are meant for this program: others belong to its neighbours.
func TestOthersVariablesAreLeftAlone(t *testing.T) {
	t.Parallel()
	p := start(
		t, "HOLDFAST_DATABASE_URL="+sqliteURL(t), "LOG_LEVEL=verbose", "LOG_FORMAT=pretty", "MAX_BODY=1kb", "API_KEYS=abc", "PUBLIC_URL=n8n", "SWEEP_INTERVAL=1", "CONFIG=/nonexistent", "INGEST_URL=x",
	)
	p.decides(t, "order-1", "proceed")
	p.stop(t)
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"sqlite": sqliteURL(t), "postgres": pgtest.Database(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := []string{"HOLDFAST_DATABASE_URL=" + url}
			run := func(args ...string) string {
				code, out, errs := command(t, env, args...)
				if code != 0 {
					t.Fatalf("%v: exit %d: %s", args, code, errs)
				}
				return out
			}
			if out := run("migrate", "status"); !strings.Contains(out, "pending") || strings.Contains(out, "applied") {
				t.Errorf("status of an empty database: %s", out)
			}
			run("migrate", "up")
			if out := run("migrate", "status"); strings.Contains(out, "pending") || !strings.Contains(out, "applied") {
				t.Errorf("status after up: %s", out)
			}
			run("migrate", "up")
		})
	}
}

func TestHealthcheck(t *testing.T) {
	t.Parallel()
	p := start(t, "HOLDFAST_DATABASE_URL="+sqliteURL(t))
	address := strings.TrimPrefix(p.url, "http://")
	if code, _, errs := command(t, []string{"HOLDFAST_ADDR=" + address}, "healthcheck"); code != 0 {
		t.Errorf("of one that is ready: exit %d: %s", code, errs)
	}
	// Where it listens everywhere, this machine's own address is asked.
	_, port, _ := strings.Cut(address, ":")
	if code, _, errs := command(t, []string{"HOLDFAST_ADDR=0.0.0.0:" + port, "HOLDFAST_API_KEYS=n8n:workflow:" + hidden}, "healthcheck"); code != 0 {
		t.Errorf("by 0.0.0.0: exit %d: %s", code, errs)
	}
	p.stop(t)
	if code, _, errs := command(t, []string{"HOLDFAST_ADDR=" + address}, "healthcheck"); code == 0 || strings.TrimSpace(errs) == "" {
		t.Errorf("of one that has stopped: exit %d: %s", code, errs)
	}
	asked := make(chan string, 1)
	away := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer away.Close()
	if code, _, errs := command(t, []string{"HOLDFAST_ADDR=" + strings.TrimPrefix(away.URL, "http://")}, "healthcheck"); code == 0 {
		t.Errorf("of one that is not ready: exit %d: %s", code, errs)
	}
	if path := <-asked; path != "/readyz" {
		t.Errorf("it asked for %s", path)
	}
}

func TestVersionAndUnknownCommands(t *testing.T) {
	t.Parallel()
	if code, out, _ := command(t, nil, "version"); code != 0 || !strings.Contains(out, "v9.8.7-test") {
		t.Errorf("version: exit %d: %s", code, out)
	}
	for _, args := range [][]string{{"serv"}, {"serve", "now"}, {"migrate", "down"}, {"--nonsense"}} {
		if code, _, errs := command(t, []string{"HOLDFAST_DATABASE_URL=sqlite://" + filepath.Join(t.TempDir(), "x.db"), "HOLDFAST_ADDR=127.0.0.1:0"}, args...); code == 0 || strings.TrimSpace(errs) == "" {
			t.Errorf("%v: exit %d: %s", args, code, errs)
		}
	}
}
