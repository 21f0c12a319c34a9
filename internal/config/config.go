// Package config reads the configuration from the environment and checks it. An error names the variable and
// says what is wrong; printing a Config masks its secrets.
package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"
)

// Prefix stands before every variable.
const Prefix = "HOLDFAST"

// RehearseKey is a variable of the command rehearse, and no setting: an operator's secret.
const RehearseKey = Prefix + "_REHEARSE_KEY"

// Config is the whole configuration. The tags are the table of variables: name, default. The names are written
// whole, since the library would else also take a neighbour's API_KEYS.
type Config struct {
	Addr          string        `envconfig:"HOLDFAST_ADDR" default:"127.0.0.1:8088"`
	DatabaseURL   string        `envconfig:"HOLDFAST_DATABASE_URL" default:"sqlite://data/holdfast.db"`
	APIKeys       Keys          `envconfig:"HOLDFAST_API_KEYS"`
	ConfigPath    string        `envconfig:"HOLDFAST_CONFIG"`
	PublicURL     string        `envconfig:"HOLDFAST_PUBLIC_URL"`
	IngestURL     string        `envconfig:"HOLDFAST_INGEST_URL"`
	LogFormat     string        `envconfig:"HOLDFAST_LOG_FORMAT" default:"text"`
	LogLevel      slog.Level    `envconfig:"HOLDFAST_LOG_LEVEL" default:"info"`
	MaxBody       Size          `envconfig:"HOLDFAST_MAX_BODY" default:"16MiB"`
	SweepInterval time.Duration `envconfig:"HOLDFAST_SWEEP_INTERVAL" default:"5s"`
	// TestClockOffset puts this process's clock wrong, for tests: it is no setting, and not in the list of Names.
	TestClockOffset time.Duration `envconfig:"HOLDFAST_TEST_CLOCK_OFFSET"`

	File *File `ignored:"true"`
}

// Load reads and checks the environment.
func Load() (*Config, error) {
	c := new(Config)
	if err := envconfig.Process("", c); err != nil {
		var parse *envconfig.ParseError
		if errors.As(err, &parse) {
			// The library's own message repeats the value, which may be a secret.
			return nil, fmt.Errorf("%s: %w", parse.KeyName, reason(parse.Err))
		}
		return nil, err
	}
	if c.PublicURL == "" {
		c.PublicURL = "http://" + c.Addr
	}
	if c.IngestURL == "" {
		c.IngestURL = c.PublicURL
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	var err error
	c.File, err = ReadFile(c.ConfigPath)
	return c, err
}

// reason keeps what our own types say and hides what parsers of the standard library quote.
func reason(err error) error {
	var own problem
	if errors.As(err, &own) {
		return own
	}
	return problem("has a value that cannot be read")
}

type problem string

func (p problem) Error() string { return string(p) }

func (c *Config) check() error {
	host, port, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return errors.New("HOLDFAST_ADDR: must be host:port, such as 127.0.0.1:8088")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return errors.New("HOLDFAST_ADDR: the port must be a number up to 65535")
	}
	if len(c.APIKeys) == 0 && !loopback(host) {
		return errors.New("HOLDFAST_API_KEYS: must be set to listen beyond this machine (HOLDFAST_ADDR is " + c.Addr + "), as name:role:secret")
	}
	if c.TestClockOffset != 0 && !loopback(host) {
		return errors.New("HOLDFAST_TEST_CLOCK_OFFSET: is for tests on this machine; HOLDFAST_ADDR is " + c.Addr)
	}
	// A path may hold what an address may not, so only PostgreSQL's is parsed.
	if u, err := url.Parse(c.DatabaseURL); !strings.HasPrefix(c.DatabaseURL, "sqlite://") && (err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql") {
		return errors.New("HOLDFAST_DATABASE_URL: must be sqlite://PATH or postgres://user:password@host/database")
	}
	for _, v := range []struct{ name, address string }{{"PUBLIC_URL", c.PublicURL}, {"INGEST_URL", c.IngestURL}} {
		if u, err := url.Parse(v.address); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return errors.New("HOLDFAST_" + v.name + ": must be an http:// or https:// address")
		}
	}
	switch {
	case c.LogFormat != "text" && c.LogFormat != "json":
		return errors.New("HOLDFAST_LOG_FORMAT: must be text or json")
	case c.MaxBody < 1024:
		return errors.New("HOLDFAST_MAX_BODY: must be at least 1KiB")
	case c.SweepInterval < 100*time.Millisecond || c.SweepInterval > time.Hour:
		return errors.New("HOLDFAST_SWEEP_INTERVAL: must be between 100ms and 1h")
	}
	return nil
}

// loopback tells whether only this machine can reach host.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// LogValue shows the configuration without its secrets.
func (c *Config) LogValue() slog.Value {
	database := c.DatabaseURL
	if u, err := url.Parse(database); err == nil && !strings.HasPrefix(database, "sqlite://") {
		u.RawQuery = "" // it may hold a password too
		database = u.Redacted()
	}
	return slog.GroupValue(slog.String("addr", c.Addr), slog.String("database", database), slog.Int("api_keys", len(c.APIKeys)),
		slog.String("public_url", c.PublicURL), slog.Int64("max_body", int64(c.MaxBody)), slog.Duration("sweep_interval", c.SweepInterval))
}

// Key is one API key: `name:role:secret`. The secret may contain colons.
type Key struct{ Name, Role, Secret string }

// Keys is a comma list of keys.
type Keys []Key

// Decode reads the list.
func (k *Keys) Decode(s string) error {
	names := map[string]bool{}
	for i, entry := range strings.Split(s, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		parts := strings.SplitN(entry, ":", 3)
		at := "entry " + strconv.Itoa(i+1) + " "
		switch {
		case len(parts) != 3 || parts[0] == "" || parts[2] == "":
			return problem(at + "must be name:role:secret")
		case parts[1] != "workflow" && parts[1] != "operator":
			return problem(at + "must have the role workflow or operator")
		case names[parts[0]]:
			return problem(at + "repeats a name")
		case len(parts[2]) < 8:
			return problem(at + "has a secret of fewer than 8 characters")
		}
		names[parts[0]] = true
		*k = append(*k, Key{parts[0], parts[1], parts[2]})
	}
	return nil
}

// Size is a number of bytes, written as 16MiB, 512KiB, 1GiB, 10MB or plain digits.
type Size int64

var units = []struct {
	suffix string
	factor int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}, {"", 1}}

// Decode reads a size.
func (z *Size) Decode(s string) error {
	for _, u := range units {
		digits, ok := strings.CutSuffix(strings.TrimSpace(s), u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > (1<<40)/u.factor {
			break
		}
		*z = Size(n * u.factor)
		return nil
	}
	return problem("must be a size such as 16MiB")
}

// Unknown lists variables with the prefix that no one reads: a misspelt one must not pass unseen.
func Unknown() []string {
	known := map[string]bool{RehearseKey: true}
	for _, name := range Names() {
		known[name] = true
	}
	var out []string
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, Prefix+"_") && !strings.HasPrefix(name, Prefix+"_TEST_") && !known[name] {
			out = append(out, name)
		}
	}
	return out
}

// Names lists the variables.
func Names() []string {
	names := []string{"ADDR", "DATABASE_URL", "API_KEYS", "CONFIG", "PUBLIC_URL", "INGEST_URL", "LOG_FORMAT", "LOG_LEVEL", "MAX_BODY", "SWEEP_INTERVAL"}
	for i, n := range names {
		names[i] = Prefix + "_" + n
	}
	return names
}
