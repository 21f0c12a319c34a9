package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// Limits are what a destination bears; what is absent is not limited.
type Limits struct {
	Rate           Rate     `yaml:"rate"`
	MaxConcurrency Count    `yaml:"max_concurrency"`
	Circuit        *Circuit `yaml:"circuit"`
}

// Rate is a number of starts in any window of a length, written N/DURATION.
type Rate struct {
	N   int64
	Per time.Duration
}

// Circuit says when work at a destination stops by itself; what is absent of it is as in DefaultCircuit.
type Circuit struct {
	Failures Count  `yaml:"failures"`
	OpenFor  Period `yaml:"open_for"`
}

// DefaultCircuit is that of `circuit: {}`.
var DefaultCircuit = Circuit{Failures: 5, OpenFor: Period(30 * time.Second)}

// Count is a whole number of at least 1.
type Count int64

// Period is a duration of at least a second.
type Period time.Duration

// The largest values: what is beyond them is a slip of the pen.
const (
	maxCount  = 1_000_000
	maxPeriod = 366 * 24 * time.Hour
)

// UnmarshalYAML reads a rate such as 100/10s.
func (r *Rate) UnmarshalYAML(node ast.Node) error {
	n, per, found := strings.Cut(scalar(node), "/")
	count, ok := readCount(n)
	length, ok2 := readPeriod(per)
	if !found || !ok || !ok2 {
		return wrong(node, "must be N/DURATION, such as 100/10s: a whole number of at least 1, and a duration of at least 1s")
	}
	*r = Rate{count, length}
	return nil
}

// UnmarshalYAML reads a whole number.
func (c *Count) UnmarshalYAML(node ast.Node) error {
	n, ok := readCount(scalar(node))
	if !ok {
		return wrong(node, "must be a whole number, 1 to 1000000")
	}
	*c = Count(n)
	return nil
}

// UnmarshalYAML reads a duration.
func (p *Period) UnmarshalYAML(node ast.Node) error {
	d, ok := readPeriod(scalar(node))
	if !ok {
		return wrong(node, "must be a duration of at least 1s, such as 30s or 5m")
	}
	*p = Period(d)
	return nil
}

func readCount(s string) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	return n, err == nil && n >= 1 && n <= maxCount
}

func readPeriod(s string) (time.Duration, bool) {
	d, err := parseDuration(strings.TrimSpace(s))
	return d, err == nil && d >= time.Second && d <= maxPeriod
}

// scalar is the text of a plain or quoted value; empty for anything else.
func scalar(node ast.Node) string {
	if _, ok := node.(ast.ScalarNode); !ok {
		return ""
	}
	return node.GetToken().Value
}

// misplaced is a value that is wrong, with the line and the key where it stands. It never repeats the value.
type misplaced struct {
	line int
	key  string
	what string
}

func wrong(node ast.Node, what string) error {
	return &misplaced{node.GetToken().Position.Line, keyOf(node), what}
}

func keyOf(node ast.Node) string {
	return strings.TrimPrefix(strings.TrimPrefix(node.GetPath(), "$"), ".")
}

func (m *misplaced) Error() string { return fmt.Sprintf("line %d: %s: %s", m.line, m.key, m.what) }
