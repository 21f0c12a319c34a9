package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"holdfast/api"
	"holdfast/internal/config"
	"holdfast/internal/inbox"
	"holdfast/internal/ledger"
	"holdfast/internal/notify"
	"holdfast/internal/store"
	"holdfast/internal/worker"
)

// Main is the program: everything wired, listening, and not yet serving. Close takes it apart again.
type Main struct {
	Addr string // where it listens, with the real port

	log      *slog.Logger
	store    *store.Store
	server   *http.Server
	listener net.Listener
	loops    []*worker.Loop
	senders  []*notify.Sender
	n8n      *worker.N8N // nil where none is configured
	probes   *worker.Probes
}

// stopTime is how long calls under way may take to finish when the program stops.
const stopTime = 7 * time.Second

// closeTime is how long the database may then take.
const closeTime = 2 * time.Second

// Start opens the database, brings its schema up to date, and listens. Nothing is served before Run.
func Start(ctx context.Context, cfg *config.Config, logs io.Writer) (*Main, error) {
	log := newLog(cfg, logs)
	for _, name := range config.Unknown() {
		log.Warn("nobody reads this variable: is it misspelt?", "variable", name)
	}
	rules, err := keyRules(cfg.File)
	if err != nil {
		return nil, err
	}
	targets, err := targets(cfg.File)
	if err != nil {
		return nil, err
	}
	if cfg.TestClockOffset != 0 {
		log.Warn("this process's clock is wrong on purpose: HOLDFAST_TEST_CLOCK_OFFSET is for tests only", "offset", cfg.TestClockOffset)
	}
	metrics := api.NewMetrics()
	db, err := store.Open(ctx, cfg.DatabaseURL, store.Options{
		Log:      log,
		Policies: policies(cfg.File),
		Limits:   limits(cfg.File),
		Alerts:   alertOptions(cfg.File, targets),
		Observer: store.Observer{Batch: metrics.Batch, DatabaseError: metrics.DatabaseError, Held: metrics.Held},
		Wall:     func() time.Time { return time.Now().Add(cfg.TestClockOffset) },
		// Until its input is fetched a letter is not handed out.
		FetchesInputs: cfg.File.N8N != nil,
	})
	if err != nil {
		return nil, fmt.Errorf("HOLDFAST_DATABASE_URL: %w", err)
	}
	steps, err := db.Migrate(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the database's schema: %w", err), db.Close())
	}
	n8n, err := askN8N(cfg.File, db, log)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	probing, err := probes(cfg.File, db, log)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Addr)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("HOLDFAST_ADDR: %w", err), db.Close())
	}
	handler := api.New(api.Options{
		Store: db, Letters: db, Keys: keys(cfg), Sources: rules, Log: log, Metrics: metrics, MaxBody: int64(cfg.MaxBody), Redact: cfg.File.Redact, PublicURL: cfg.PublicURL,
		Touch: probing.Touch,
	})
	m := &Main{
		Addr: listener.Addr().String(), log: log, store: db, listener: listener, senders: senders(cfg, targets, db, log, metrics), n8n: n8n, probes: probing,
		server: &http.Server{
			Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 2 * time.Minute,
			IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		},
		loops: []*worker.Loop{
			{Name: "sweeper", Interval: cfg.SweepInterval, Pass: worker.Sweep(db, log, metrics.Swept), Log: log},
			{Name: "retention", Interval: time.Minute, Pass: worker.Retain(db, retention(cfg.File), log), Log: log},
			{Name: "letters", Interval: cfg.SweepInterval, Pass: worker.SweepLetters(db, log), Log: log},
			{Name: "letter count", Interval: time.Minute, Pass: worker.CountLetters(db, metrics.Letters), Log: log},
			{Name: "watch", Interval: watchInterval, Pass: db.WatchAlerts, Log: log},
		},
	}
	for _, s := range m.senders {
		m.loops = append(m.loops, &worker.Loop{Name: "alerts", Interval: sendInterval, Pass: s.Pass, Log: log})
	}
	if n8n != nil {
		m.loops = append(m.loops, n8n.Loops()...)
	}
	m.loops = append(m.loops, probing.Loops()...)
	log.Info("ready", "version", version, "config", cfg, "listening", m.Addr, "migrations_applied", steps)
	return m, nil
}

func newLog(cfg *config.Config, w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: cfg.LogLevel}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

func keys(cfg *config.Config) []api.Key {
	out := make([]api.Key, len(cfg.APIKeys))
	for i, k := range cfg.APIKeys {
		out[i] = api.Key{Name: k.Name, Role: k.Role, Secret: k.Secret}
	}
	return out
}

// policies takes the times of sources and destinations from the file.
func policies(f *config.File) ledger.Policies {
	p := ledger.Policies{Sources: map[string]ledger.Policy{}, Destinations: map[string]ledger.Policy{}}
	for name, s := range f.Sources {
		p.Sources[name] = policy(s.Times)
	}
	for name, d := range f.Destinations {
		p.Destinations[name] = policy(d.Times)
	}
	return p
}

func retention(f *config.File) ledger.Retention {
	keep := ledger.DefaultRetention
	given(&keep.Payloads, f.Retention.Payloads)
	given(&keep.Events, f.Retention.Events)
	given(&keep.History, f.Retention.History)
	return keep
}

// given takes a duration of the file, if it is there.
func given(to *time.Duration, d *config.Duration) {
	if d != nil {
		*to = time.Duration(*d)
	}
}

func policy(t config.Times) ledger.Policy {
	p := ledger.DefaultPolicy
	given(&p.Window, t.Window)
	given(&p.AskAfter, t.AskAfter)
	given(&p.NotFoundAfter, t.NotFoundAfter)
	return p
}

// limits takes what destinations bear from the file.
func limits(f *config.File) map[string]ledger.Limit {
	out := map[string]ledger.Limit{}
	for name, d := range f.Destinations {
		l := ledger.Limit{Rate: ledger.Rate(d.Rate), MaxConcurrency: int64(d.MaxConcurrency)}
		if c := d.Circuit; c != nil {
			l.Circuit = ledger.Circuit{
				Failures: int64(cmp.Or(c.Failures, config.DefaultCircuit.Failures)),
				OpenFor:  time.Duration(cmp.Or(c.OpenFor, config.DefaultCircuit.OpenFor)),
			}
		}
		out[name] = l
	}
	return out
}

// keyRules says how the keys of configured sources are found.
func keyRules(f *config.File) (map[string]api.KeyRule, error) {
	rules := map[string]api.KeyRule{}
	for name, s := range f.Sources {
		wrong := func(what string) error {
			return fmt.Errorf("HOLDFAST_CONFIG: sources.%s.%s", name, what)
		}
		provider := s.Provider
		if provider == "" {
			provider = name
		}
		profile, known := inbox.Find(provider)
		switch {
		case !known && s.Provider != "" && s.Provider != "hmac" && s.Provider != "none":
			return nil, wrong("provider: there is no provider of this name")
		case known && s.Key != "":
			return nil, wrong("key: the provider's profile finds the key; use provider: none to find it yourself")
		case s.Key != "" && !strings.HasPrefix(s.Key, "body.") && !strings.HasPrefix(s.Key, "headers."):
			return nil, wrong("key: must be body.PATH or headers.NAME")
		}
		rules[name] = api.KeyRule{Profile: profile, KeyPath: s.Key}
	}
	return rules, nil
}

// Run serves until ctx ends, then stops in one visible order.
func (m *Main) Run(ctx context.Context) error {
	for _, l := range m.loops {
		l.Start()
	}
	failed := make(chan error, 1)
	go func() { failed <- m.server.Serve(m.listener) }()
	select {
	case err := <-failed:
		return errors.Join(err, m.Close())
	case <-ctx.Done():
		return m.Close()
	}
}

// Close stops accepting, lets calls under way finish, stops the workers and closes the database.
func (m *Main) Close() error {
	m.log.Info("stopping")
	m.n8n.Stop()
	m.probes.Stop()
	for _, s := range m.senders {
		s.Stop()
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	err := m.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		m.log.Warn("calls under way took too long and were cut off")
		err = m.server.Close()
	}
	err = errors.Join(err, m.closeStore())
	m.log.Info("stopped", "cause", err)
	return err
}

// closeStore flushes what is under way. A database that does not answer must not keep the program from ending:
// what it has not confirmed was not acknowledged to anybody.
func (m *Main) closeStore() error {
	closed := make(chan error, 1)
	m.store.Quiesce()
	go func() {
		for _, l := range m.loops {
			l.Stop()
		}
		closed <- m.store.Close()
	}()
	select {
	case err := <-closed:
		return err
	case <-time.After(closeTime):
		return errors.New("the database did not answer while the program stopped")
	}
}

// openConfigured opens the configured database for a command.
func openConfigured(ctx context.Context) (*store.Store, error) {
	cfg, err := config.Load()
	if err != nil {
		return nil, err
	}
	db, err := store.Open(ctx, cfg.DatabaseURL, store.Options{Log: newLog(cfg, os.Stderr)})
	if err != nil {
		return nil, fmt.Errorf("HOLDFAST_DATABASE_URL: %w", err)
	}
	return db, nil
}
