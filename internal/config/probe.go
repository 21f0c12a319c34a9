package config

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Probe asks a destination about an unknown claim: has it happened?
type Probe struct {
	Source      string            `yaml:"source"`
	Step        string            `yaml:"step"`
	Destination string            `yaml:"destination"`
	Method      Method            `yaml:"method"` // GET or POST; empty: GET
	URL         ProbeURL          `yaml:"url"`
	Headers     map[string]Header `yaml:"headers"`
	Body        ProbeBody         `yaml:"body"`
	Found       Path              `yaml:"found"`
	NotFound    []Absence         `yaml:"not_found"`
}

// Claims are those that a probe is for; an empty member stands for all.
type Claims struct{ Source, Step, Destination string }

// For lists the claims that a probe of this name is for. Where it says nothing of that, the name is a step's or a
// source's.
func (p *Probe) For(name string) []Claims {
	if p.Source == "" && p.Step == "" && p.Destination == "" {
		return []Claims{{Step: name}, {Source: name}}
	}
	c := Claims{p.Source, p.Step, p.Destination}
	if c.Step == "" {
		c.Step = name
	}
	return []Claims{c}
}

type (
	// Method is GET or POST.
	Method string
	// Header is a header's value.
	Header string
	// Path is a dotted path into JSON, such as data.0.id.
	Path string
	// Absence is a status that means "there is no such thing".
	Absence int
	// Network is a range of addresses, or one address.
	Network netip.Prefix
)

// UnmarshalYAML reads a method.
func (m *Method) UnmarshalYAML(node ast.Node) error {
	if *m = Method(scalar(node)); *m != "GET" && *m != "POST" {
		return wrong(node, "must be GET or POST")
	}
	return nil
}

// UnmarshalYAML reads a header's value.
func (h *Header) UnmarshalYAML(node ast.Node) error {
	*h = Header(scalar(node))
	switch _, ok := node.(ast.ScalarNode); {
	case !ok || strings.ContainsFunc(string(*h), func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return wrong(node, "must be text without line breaks and control characters")
	case placeholder.MatchString(string(*h)):
		return wrong(node, onlyIn)
	}
	return nil
}

// UnmarshalYAML reads a path.
func (p *Path) UnmarshalYAML(node ast.Node) error {
	*p = Path(scalar(node))
	if !path.MatchString(string(*p)) {
		return wrong(node, "must be a dotted path into the answer, such as data.0.id, without brackets, quotes, slashes, $ and *")
	}
	return nil
}

// UnmarshalYAML reads a status.
func (a *Absence) UnmarshalYAML(node ast.Node) error {
	n, err := strconv.Atoi(scalar(node))
	switch {
	case err != nil || n < 400 || n > 499:
		return wrong(node, "must be statuses from 400 to 499, such as 404")
	case slices.Contains([]int{401, 403, 407, 408, 425, 429}, n):
		return wrong(node, "must not list 401, 403, 407, 408, 425 or 429: they say that the destination did not look")
	}
	*a = Absence(n)
	return nil
}

// UnmarshalYAML reads a network.
func (n *Network) UnmarshalYAML(node ast.Node) error {
	text := scalar(node)
	prefix, err := netip.ParsePrefix(text)
	if one, single := netip.ParseAddr(text); single == nil && one.Zone() == "" {
		prefix, err = netip.PrefixFrom(one, one.BitLen()), nil
	}
	if err != nil || prefix.Addr().Is4In6() {
		return wrong(node, `must be a network such as "10.0.0.0/8" or "fd00::/8", or an address`)
	}
	*n = Network(prefix.Masked())
	return nil
}

var (
	// path has no signs of other notations: they would stand in no member's name, and so never be found.
	path       = regexp.MustCompile("^" + step + `(\.` + step + ")*$")
	step       = "[^][(){}.$*\"'`/\\\\\\s]+"
	headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	// ofTransport are headers that the request has by itself.
	ofTransport = []string{"host", "content-length", "transfer-encoding", "connection", "accept-encoding"}
	webhook     = regexp.MustCompile(`^[^?]*/webhook(-\w+)?/`)
)

func (f *File) checkProbes() error {
	taken := map[Claims]string{}
	for _, name := range keysOf(f.Probes) {
		p := f.Probes[name]
		if err := p.check(); err != nil {
			return fmt.Errorf("probes.%s.%w", name, err)
		}
		for _, c := range p.For(name) {
			if other, ok := taken[c]; ok {
				return fmt.Errorf("probes.%s: is for the same claims as probes.%s: name another source, step or destination", name, other)
			}
			taken[c] = name
		}
	}
	return nil
}

func (p *Probe) check() error {
	for _, of := range []struct{ field, value string }{{"source", p.Source}, {"step", p.Step}, {"destination", p.Destination}} {
		if of.value != "" && !name.MatchString(of.value) {
			return errors.New(of.field + ": must be 1 to 64 of a-z 0-9 . _ - and begin with a letter or digit")
		}
	}
	names := map[string]bool{}
	for n := range p.Headers {
		n = strings.ToLower(n)
		switch {
		case !headerName.MatchString(n) || slices.Contains(ofTransport, n):
			return errors.New("headers: must have names such as Authorization, and none of " + strings.Join(ofTransport, ", "))
		case names[n]:
			return errors.New("headers: must have each name once, whether in capitals or not")
		}
		names[n] = true
	}
	switch {
	case len(p.URL) == 0:
		return errors.New("url: is missing: where to ask")
	case p.Found == "":
		return errors.New("found: is missing: where in the answer the id of what was found stands, such as data.0.id")
	case len(p.Body) > 0 && p.Method != "POST":
		return errors.New("body: needs method: POST")
	case !slices.ContainsFunc(slices.Concat(p.URL, ProbeURL(p.Body)), Part.tells):
		return errors.New("url: must ask about one claim: with {provider_key}, {idempotency_key}, {reference}, {claim_id} or {payload.PATH} in it or in the body")
	case slices.Contains(p.NotFound, 404) && webhook.MatchString(p.URL[0].Text):
		return errors.New("not_found: must not list 404 for a webhook of n8n, which says 404 too while its workflow is not published: let it answer 200 without an id")
	}
	return nil
}
