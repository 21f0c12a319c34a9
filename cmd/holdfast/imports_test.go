package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// edges are all imports between the packages of this program, each with its reason. Whoever needs another one
// writes the reason down here, or finds that there is none.
var edges = map[string]map[string]string{
	"cmd/holdfast": {
		"api":                 "serves it",
		"internal/config":     "reads the settings and copies them into each package's options",
		"internal/console":    "serves the operator's page",
		"internal/contract":   "loads the input contracts",
		"internal/deadletter": "hands the rules of letters their settings",
		"internal/inbox":      "hands the receipt of webhooks its sources",
		"internal/ledger":     "hands the rules of claims their policies",
		"internal/notify":     "starts the alerts",
		"internal/rehearse":   "plays the rehearsal",
		"internal/store":      "opens the database; nobody else may",
		"internal/worker":     "starts and stops the loops",
		"n8n-templates":       "writes the templates out",
	},
	"api": {
		"internal/contract":   "validates input through it",
		"internal/deadletter": "takes and hands out letters",
		"internal/failure":    "classifies errors",
		"internal/identity":   "finds keys and hashes payloads",
		"internal/inbox":      "finds keys by a provider's profile, and receives webhooks",
		"internal/ledger":     "asks for decisions through its Store",
	},
	"internal/console": {
		"internal/deadletter": "shows letters",
		"internal/ledger":     "shows claims",
	},
	"internal/worker": {
		"internal/deadletter": "moves letters",
		"internal/failure":    "judges what a delivery met",
		"internal/inbox":      "delivers what was received",
		"internal/ledger":     "sweeps and probes",
	},
	"internal/notify": {
		"internal/deadletter": "tells of letters",
		"internal/failure":    "takes secrets out of what it sends",
		"internal/ledger":     "tells of claims",
	},
	"internal/store": {
		"internal/deadletter": "implements its Store",
		"internal/inbox":      "implements its Store",
		"internal/ledger":     "implements its Store",
		"migrations":          "applies them",
	},
	"internal/deadletter": {
		"internal/failure":  "a letter has an error's class and backoff",
		"internal/identity": "a letter is found again by the hash of its report",
		"internal/ledger":   "a letter belongs to a claim",
	},
	"internal/inbox":  {"internal/identity": "keys and payload hashes"},
	"internal/ledger": {"internal/identity": "keys and payload hashes", "internal/failure": "an ending has an error's class"},
}

// test support may import what it supports; it never goes into the binary.
var support = []string{"internal/store/storetest", "internal/pgtest", "internal/e2e", "internal/packaging", "internal/bench"}

// pure packages know no HTTP and no SQL: the standard library and what parses text is all they import.
var pure = []string{"internal/ledger", "internal/identity", "internal/failure", "internal/deadletter"}

var parsers = map[string]string{
	"github.com/go-json-experiment/json": "strict JSON with exact numbers",
	"github.com/google/uuid":             "the text form of ids",
}

// impure are packages of the standard library by which a pure one would reach outside.
var impure = []string{"net", "net/http", "database/sql", "os/exec", "log/slog", "log", "os/signal"}

// listed is what `go list -json` says of a package.
type listed struct {
	ImportPath, Dir                    string
	Standard                           bool
	Imports, Deps                      []string
	TestImports, XTestImports          []string
	GoFiles, TestGoFiles, XTestGoFiles []string
}

func list(t *testing.T, args ...string) (packages []listed) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Dir,Standard,Imports,Deps,TestImports,XTestImports,GoFiles,TestGoFiles,XTestGoFiles"}, args...)...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v: %s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			return packages
		case err != nil:
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

func ours(path string) (string, bool) { return strings.CutPrefix(path, "holdfast/") }

// Imports run one way, and every edge has a reason.
func TestImports(t *testing.T) {
	t.Parallel()
	for _, p := range list(t, "./...") {
		name, _ := ours(p.ImportPath)
		for _, imported := range p.Imports {
			to, inside := ours(imported)
			if inside && !slices.Contains(support, name) && edges[name][to] == "" {
				t.Errorf("%s imports %s, and no reason for it stands in the table", name, to)
			}
			if inside && !slices.Contains(support, name) && slices.Contains(support, to) {
				t.Errorf("%s imports %s, which is for tests", name, to)
			}
		}
		// The store is opened by the program and by tests; nothing else is wired to it.
		if slices.Contains(p.Imports, "holdfast/internal/store") && name != "cmd/holdfast" && !slices.Contains(support, name) {
			t.Errorf("%s imports the store", name)
		}
	}
	for from, to := range edges {
		for path, reason := range to {
			if strings.TrimSpace(reason) == "" {
				t.Errorf("%s -> %s has no reason", from, path)
			}
			if edges[path][from] != "" {
				t.Errorf("%s and %s import each other", from, path)
			}
		}
	}
}

// Pure packages stay pure, all the way down.
func TestPurePackages(t *testing.T) {
	t.Parallel()
	standard := map[string]bool{}
	all := list(t, "-deps", "./...")
	for _, p := range all {
		standard[p.ImportPath] = p.Standard
	}
	for _, p := range all {
		name, inside := ours(p.ImportPath)
		if !inside || !slices.Contains(pure, name) {
			continue
		}
		for _, imported := range p.Imports {
			if slices.Contains(impure, imported) {
				t.Errorf("%s imports %s: a pure package takes what it needs as arguments", name, imported)
			}
		}
		for _, dep := range p.Deps {
			to, within := ours(dep)
			switch {
			case standard[dep]:
				if dep == "net/http" || dep == "database/sql" {
					t.Errorf("%s reaches %s by what it imports", name, dep)
				}
			case within:
				if !slices.Contains(pure, to) {
					t.Errorf("%s reaches %s, which is not pure", name, to)
				}
			case !parser(dep):
				t.Errorf("%s reaches %s, which is no small parsing library of the table", name, dep)
			}
		}
	}
}

func parser(path string) bool {
	for module := range parsers {
		if path == module || strings.HasPrefix(path, module+"/") {
			return true
		}
	}
	return false
}

// What is for tests is not in the binary.
func TestNothingForTestsInTheBinary(t *testing.T) {
	t.Parallel()
	for _, p := range list(t, "-deps", "./cmd/holdfast") {
		name, _ := ours(p.ImportPath)
		if slices.Contains(support, name) || p.ImportPath == "testing" || p.ImportPath == "net/http/httptest" || strings.HasPrefix(p.ImportPath, "github.com/getkin/kin-openapi") ||
			strings.HasPrefix(p.ImportPath, "pgregory.net/rapid") || strings.HasPrefix(p.ImportPath, "github.com/anishathalye/porcupine") {
			t.Errorf("%s is in the binary", p.ImportPath)
		}
	}
}

// Every package says what it is for.
func TestPackageDocs(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.ImportPath}}\t{{len .GoFiles}}\t{{.Doc}}", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		if fields := strings.SplitN(line, "\t", 3); len(fields) == 3 && fields[1] != "0" && fields[2] == "" {
			t.Errorf("%s has no package comment", fields[0])
		}
	}
}
