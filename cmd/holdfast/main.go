// Command holdfast is the sidecar that makes n8n workflows safe with money and customers.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"holdfast/internal/config"
)

// version is set when the program is built.
var version = "dev"

// A process of 20 MiB would collect its garbage hundreds of times a second under load for a few MiB; it may grow
// to a multiple instead, up to a limit at which it becomes careful again. GOGC and GOMEMLIMIT say otherwise.
const (
	gcPercent   = 400
	memoryLimit = 96 << 20
)

func main() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(gcPercent)
		debug.SetMemoryLimit(memoryLimit)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, out, errs io.Writer) int {
	root := commands()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errs)
	if err := root.ExecuteContext(ctx); err != nil {
		_, _ = fmt.Fprintln(errs, "holdfast:", err)
		return 1
	}
	return 0
}

func commands() *cobra.Command {
	root := &cobra.Command{
		Use:           "holdfast",
		Short:         "A sidecar that makes n8n workflows safe with money and customers",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          serve,
	}
	migrate := &cobra.Command{
		Use: "migrate", Short: "Bring the database's schema up to date, or show it", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return errors.New("say migrate up or migrate status") },
	}
	migrate.AddCommand(
		&cobra.Command{Use: "up", Short: "Apply what is missing", Args: cobra.NoArgs, RunE: migrateUp},
		&cobra.Command{Use: "status", Short: "List the steps", Args: cobra.NoArgs, RunE: migrateStatus},
	)
	root.AddCommand(
		rehearsal(),
		&cobra.Command{Use: "serve", Short: "Run the sidecar (also without a command)", Args: cobra.NoArgs, RunE: serve},
		migrate,
		&cobra.Command{Use: "check-config", Short: "Check the environment and the YAML file without starting", Args: cobra.NoArgs, RunE: checkConfig},
		&cobra.Command{Use: "healthcheck", Short: "Exit 0 if the sidecar on this machine is ready", Args: cobra.NoArgs, RunE: healthcheck},
		&cobra.Command{Use: "version", Short: "Print the version", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "holdfast", version)
			return err
		}},
	)
	return root
}

func serve(cmd *cobra.Command, _ []string) error {
	cfg, err := config.Load()
	if err != nil {
		return err
	}
	m, err := Start(cmd.Context(), cfg, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	return m.Run(cmd.Context())
}

func checkConfig(cmd *cobra.Command, _ []string) error {
	cfg, err := config.Load()
	if err != nil {
		return err
	}
	if _, err := keyRules(cfg.File); err != nil {
		return err
	}
	if _, err := targets(cfg.File); err != nil {
		return err
	}
	if _, err := probes(cfg.File, nil, nil); err != nil {
		return err
	}
	for _, name := range config.Unknown() {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "warning: nobody reads", name+": is it misspelt?")
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), "the configuration is good")
	return err
}

func migrateUp(cmd *cobra.Command, _ []string) error {
	db, err := openConfigured(cmd.Context())
	if err != nil {
		return err
	}
	steps, err := db.Migrate(cmd.Context())
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "applied %d steps; the schema is up to date\n", steps)
	return err
}

func migrateStatus(cmd *cobra.Command, _ []string) error {
	db, err := openConfigured(cmd.Context())
	if err != nil {
		return err
	}
	states, err := db.Migrations(cmd.Context())
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
	for _, s := range states {
		state := "pending"
		if s.Applied {
			state = "applied"
		}
		_, _ = fmt.Fprintf(w, "%d\t%s\t%s\n", s.Version, state, s.Name)
	}
	return w.Flush()
}

// healthcheck asks the sidecar of this machine, for containers that have no shell and no curl.
func healthcheck(cmd *cobra.Command, _ []string) error {
	cfg, err := config.Load()
	if err != nil {
		return err
	}
	address, err := here(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{}).Do(req)
	if err != nil {
		return errors.New("not reachable at " + cfg.Addr)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s", strings.TrimSpace(string(body)))
	}
	return nil
}

// here is where the sidecar of this machine is reached.
func here(cfg *config.Config) (string, error) {
	host, port, err := net.SplitHostPort(cfg.Addr)
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port), nil
}
