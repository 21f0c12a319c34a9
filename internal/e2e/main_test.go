//go:build e2e

package e2e

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// suite is what all tests share.
type suite struct {
	holdfast *holdfast
	n8n      *n8n
}

var shared *suite

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

// run is TestMain's body, so that its deferred ends run before os.Exit.
func run(m *testing.M) (code int) {
	// The tests wait for n8n most of the time, so there may be more of them than processors.
	flag.Parse()
	if !given("test.parallel") {
		if err := flag.Set("test.parallel", "6"); err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
			return 1
		}
	}
	dir, err := os.MkdirTemp("", "holdfast-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() // what stays in the temporary folder does no harm
	shared = &suite{}
	defer func() {
		if code != 0 {
			shared.printLogs()
		}
		shared.stop()
	}()
	if err := shared.start(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	return m.Run()
}

// given says whether a flag stands on the command line.
func given(name string) (found bool) {
	flag.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// start brings up both programs; each has a folder of its own.
func (s *suite) start(ctx context.Context, dir string) error {
	folders := map[string]string{}
	for _, name := range []string{"holdfast", "n8n"} {
		folders[name] = filepath.Join(dir, name)
		if err := os.Mkdir(folders[name], 0o700); err != nil {
			return err
		}
	}
	var err error
	if s.holdfast, err = startHoldfast(ctx, folders["holdfast"]); err != nil {
		return err
	}
	s.n8n, err = startN8N(ctx, folders["n8n"], s.holdfast.workflowKey)
	return err
}

func (s *suite) stop() {
	if s.n8n != nil {
		s.n8n.stop()
	}
	if s.holdfast != nil {
		s.holdfast.stop()
	}
}

func (s *suite) printLogs() {
	var all []*process
	if s.n8n != nil {
		all = append(all, s.n8n.process)
	}
	if s.holdfast != nil {
		all = append(all, s.holdfast.process)
	}
	for _, p := range all {
		fmt.Fprintf(os.Stderr, "--- the last lines of %s\n%s\n", p.name, p.tail(100))
	}
}

// secret is a fresh random text that no log or error needs to hide after the run.
func secret() string { return rand.Text() }

// repoRoot is the folder of go.mod.
func repoRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod above the test's folder")
		}
		dir = parent
	}
}
