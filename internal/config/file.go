package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// File is the YAML file of HOLDFAST_CONFIG: what this version of the program knows of it.
type File struct {
	Sources      map[string]Source      `yaml:"sources"`
	Destinations map[string]Destination `yaml:"destinations"`
	Retention    Retention              `yaml:"retention"`
	Notify       []string               `yaml:"notify"` // addresses of services, each with its secret
	Redact       []string               `yaml:"redact"` // names whose values are secret besides the usual ones
	N8N          *N8N                   `yaml:"n8n"`    // nil: letters make do with what is reported
	Probes       map[string]Probe       `yaml:"probes"`
	AllowPrivate []Network              `yaml:"allow_private"` // where probes may go besides public addresses
}

// Source says how claims of one source are judged.
type Source struct {
	Provider string `yaml:"provider"` // whose profile finds the key; empty: the profile named like the source
	Key      string `yaml:"key"`      // with provider hmac or none: where the key is, as body.PATH
	// Silence is how long the source may be without a new claim before people are told; nil: for ever.
	Silence *Duration `yaml:"silence"`
	Times   `yaml:",inline"`
}

// Destination says how effects at one destination are judged, and what it bears; its times win over the source's.
type Destination struct {
	Times  `yaml:",inline"`
	Limits `yaml:",inline"`
}

// Retention says how long what is settled is kept; nil: the default.
type Retention struct {
	Payloads *Duration `yaml:"payloads"`
	Events   *Duration `yaml:"events"`
	History  *Duration `yaml:"history"`
}

// Times are the durations of a source or destination; nil: the default.
type Times struct {
	Window        *Duration `yaml:"idempotency_window"`
	AskAfter      *Duration `yaml:"ask_after"`
	NotFoundAfter *Duration `yaml:"not_found_after"`
}

// Duration is a Go duration, or a number of days such as 30d.
type Duration time.Duration

// UnmarshalYAML reads a duration.
func (d *Duration) UnmarshalYAML(node ast.Node) error {
	v, err := parseDuration(scalar(node))
	if err != nil || v < 0 || v > 100*365*24*time.Hour {
		return wrong(node, "must be a duration such as 30s, 5m, 24h or 30d")
	}
	*d = Duration(v)
	return nil
}

func parseDuration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		v, err := time.ParseDuration(days + "h")
		if err == nil && v.Abs() > math.MaxInt64/24 {
			err = strconv.ErrRange
		}
		return v * 24, err
	}
	return time.ParseDuration(text)
}

// ReadFile reads and checks the file. Errors name the line and the key, and never repeat a value.
func ReadFile(path string) (*File, error) {
	f := new(File)
	if path == "" {
		return f, nil
	}
	raw, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, fmt.Errorf("HOLDFAST_CONFIG: the file cannot be read: %w", err)
	}
	text, err := expand(string(raw), os.LookupEnv)
	if err != nil {
		return nil, fmt.Errorf("HOLDFAST_CONFIG: %s: %w", path, err)
	}
	if err := yaml.UnmarshalWithOptions([]byte(text), f, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("HOLDFAST_CONFIG: %s: %w", path, atLine(text, err))
	}
	if err := f.check(); err != nil {
		return nil, fmt.Errorf("HOLDFAST_CONFIG: %s: %w", path, err)
	}
	return f, nil
}

// atLine keeps the line, the key and the message of a YAML error and drops the excerpt, which may hold a secret.
func atLine(text string, err error) error {
	var own *misplaced
	if errors.As(err, &own) {
		return own
	}
	var y yaml.Error
	if !errors.As(err, &y) || y.GetToken() == nil {
		return errors.New("is not valid YAML")
	}
	message := y.GetMessage()
	var mismatch *yaml.TypeError
	if errors.As(err, &mismatch) {
		message = "has a value of the wrong type"
	}
	at := place{token: y.GetToken().Position}
	if file, err := parser.ParseBytes([]byte(text), 0); err == nil {
		for _, document := range file.Docs {
			if document.Body != nil {
				ast.Walk(&at, document.Body)
			}
		}
	}
	if at.key == "" {
		return fmt.Errorf("line %d: %s", at.token.Line, message)
	}
	return &misplaced{at.token.Line, at.key, message}
}

// place finds the key of what stands at a token.
type place struct {
	token *token.Position
	key   string
}

// Visit is called for each node.
func (p *place) Visit(node ast.Node) ast.Visitor {
	if t := node.GetToken(); p.key == "" && t != nil && t.Position.Offset == p.token.Offset {
		p.key = keyOf(node)
	}
	return p
}

var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// expand puts the environment's values in. A variable that is not set stops the start: an empty secret would
// look like a secret.
func expand(text string, lookup func(string) (string, bool)) (string, error) {
	var missing error
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		body, _, _ := strings.Cut(line, " #") // a variable in a comment is no variable
		lines[i] = variable.ReplaceAllStringFunc(body, func(m string) string {
			name := m[2 : len(m)-1]
			value, ok := lookup(name)
			switch {
			case !ok && missing == nil:
				missing = fmt.Errorf("line %d: the variable %s is not set", i+1, name)
			case strings.ContainsAny(value, "\n\r\"'\\") && missing == nil:
				missing = fmt.Errorf("line %d: the variable %s holds a quote, a backslash or a line break, which would change the file", i+1, name)
			}
			return value
		})
	}
	return strings.Join(lines, "\n"), missing
}

var name = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

func (f *File) check() error {
	for _, list := range [][]string{keysOf(f.Sources), keysOf(f.Destinations), keysOf(f.Probes)} {
		for _, n := range list {
			if !name.MatchString(n) {
				return fmt.Errorf("%q is not a name: use 1 to 64 of a-z 0-9 . _ - and begin with a letter or digit", n)
			}
		}
	}
	if err := cmp.Or(f.N8N.check(), f.checkProbes()); err != nil {
		return err
	}
	for i, n := range f.Redact {
		if strings.TrimSpace(n) == "" {
			return fmt.Errorf("redact: entry %d is empty", i+1)
		}
	}
	for name, d := range map[string]*Duration{"payloads": f.Retention.Payloads, "events": f.Retention.Events, "history": f.Retention.History} {
		if d != nil && *d < Duration(24*time.Hour) {
			return fmt.Errorf("retention.%s: must be at least 1d", name)
		}
	}
	for n, s := range f.Sources {
		if s.Silence != nil && *s.Silence <= 0 {
			return fmt.Errorf("sources.%s.silence: must be longer than nothing", n)
		}
		if s.Window != nil && *s.Window <= 0 {
			return fmt.Errorf("sources.%s.idempotency_window: must be longer than nothing", n)
		}
	}
	for n, d := range f.Destinations {
		if d.Window != nil && *d.Window <= 0 {
			return fmt.Errorf("destinations.%s.idempotency_window: must be longer than nothing", n)
		}
	}
	return nil
}

func keysOf[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
