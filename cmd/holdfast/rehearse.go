package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"holdfast/internal/config"
	"holdfast/internal/rehearse"
)

func rehearsal() *cobra.Command {
	var address, key string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "rehearse", Args: cobra.NoArgs,
		Short: "Play what goes wrong with payments against a running sidecar, and judge it",
		Long: `Plays a workflow and a paid destination of its own against a running sidecar: deliveries twice, lost answers, killed
workers, a replay. Exits 0 if the destination's own count says that nothing was done twice or lost, and 1 otherwise. It
takes a few seconds, touches nobody else's claims and letters, wakes nobody, and cleans up behind itself.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			address, key, err := rehearsed(address, key)
			if err != nil {
				return err
			}
			report, err := rehearse.Run(cmd.Context(), address, key)
			if err != nil {
				return err
			}
			if err := show(cmd.OutOrStdout(), report, asJSON); err != nil {
				return err
			}
			if !report.Passed {
				return fmt.Errorf("the rehearsal failed; what it left to look at: GET /claims?source=rehearsal&account=%s", report.Run)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&address, "url", "", "the sidecar's address (default: that of HOLDFAST_ADDR on this machine)")
	cmd.Flags().StringVar(&key, "key", "", "an operator's secret (default: HOLDFAST_REHEARSE_KEY, else the first operator of HOLDFAST_API_KEYS)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	return cmd
}

// rehearsed finds the sidecar and the key. The configuration is looked at only for what is not given.
func rehearsed(address, key string) (string, string, error) {
	if key == "" {
		key = os.Getenv(config.RehearseKey)
	}
	if address != "" && key != "" {
		return checkURL(address, key)
	}
	cfg, err := config.Load()
	if err != nil {
		return "", "", err
	}
	if address == "" {
		if address, err = here(cfg); err != nil {
			return "", "", err
		}
	}
	for _, k := range cfg.APIKeys {
		if key == "" && k.Role == "operator" {
			key = k.Secret
		}
	}
	return checkURL(address, key)
}

func checkURL(address, key string) (string, string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", "", errors.New("--url: must be an http:// or https:// address")
	}
	return strings.TrimRight(address, "/"), key, nil
}

func show(out io.Writer, r *rehearse.Report, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "SCENARIO\tSEEN\tRESULT")
	for _, s := range r.Scenarios {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", s.Scenario, s.Seen, map[bool]string{true: "pass", false: "FAIL"}[s.Passed])
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, s := range r.Scenarios {
		for _, wrong := range s.Wrong {
			_, _ = fmt.Fprintf(out, "FAIL %s: %s\n", s.Scenario, wrong)
		}
	}
	for _, left := range r.Left {
		_, _ = fmt.Fprintln(out, "not cleaned up:", left)
	}
	return nil
}
