package config

import (
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Part is a piece of a probe's address or body: text as it is sent, or a value of the claim that it asks about.
type Part struct {
	Text string
	Name string // of a placeholder; empty for text
	In   string // where the placeholder stands, which says how its value is encoded: path, query or body
	// Without are signs that the value must not hold, nor white space; empty: it may hold anything. A value among other
	// text can stand in a language of its own, such as that of a search, and would ask for something else there.
	Without string
}

// tells one claim from the others.
func (p Part) tells() bool {
	return slices.Contains([]string{"provider_key", "idempotency_key", "reference", "claim_id"}, p.Name) || strings.HasPrefix(p.Name, "payload.")
}

// ProbeURL is an address with placeholders in path segments and query values; the text of it is encoded.
type ProbeURL []Part

// ProbeBody is JSON text with placeholders inside of strings.
type ProbeBody []Part

var (
	placeholder  = regexp.MustCompile(`\{([A-Za-z_][A-Za-z0-9_.-]*)\}`)
	placeholders = []string{"provider_key", "idempotency_key", "reference", "account", "source", "step", "claim_id", "destination", "entity"}
	// misspelt are placeholders as other templates write them; they would be sent as they stand.
	misspelt = regexp.MustCompile(strings.ReplaceAll(`\{\{\s*[\w.-]+\s*\}|\{(\s+NAME\s*|NAME\s+)\}`, "NAME", `(`+strings.Join(placeholders, "|")+`|payload\.[\w.-]+)`))
)

// What is wrong with a template.
const (
	onlyIn   = "must have placeholders only in path segments, in values of the query, and inside of strings of the body"
	unknown  = "must have no placeholders but {provider_key}, {idempotency_key}, {reference}, {account}, {source}, {step}, {claim_id}, {destination}, {entity} and {payload.PATH}"
	spelling = "must have its placeholders as {provider_key}, in one pair of braces and without spaces"
)

// What a value among other text must be without: between quotes, and where no quotes hold it together.
const (
	inQuotes = "'\"`\\*"
	bare     = inQuotes + "?%()[]{}|&,;<>!~^"
)

// UnmarshalYAML reads an address.
func (u *ProbeURL) UnmarshalYAML(node ast.Node) error {
	parts, what := readURL(scalar(node))
	if what != "" {
		return wrong(node, what)
	}
	*u = parts
	return nil
}

// UnmarshalYAML reads a body.
func (b *ProbeBody) UnmarshalYAML(node ast.Node) error {
	text := scalar(node)
	if block, ok := node.(*ast.LiteralNode); ok {
		text = block.Value.Value
	}
	var value any
	if json.Unmarshal([]byte(text), &value) != nil {
		return wrong(node, "must be JSON text, with placeholders inside of its strings")
	}
	n := 0
	for _, s := range textsOf(value) {
		if n += len(placeholder.FindAllString(s, -1)); misspelt.MatchString(s) {
			return wrong(node, spelling)
		}
	}
	if n != len(placeholder.FindAllString(text, -1)) {
		return wrong(node, onlyIn)
	}
	parts, what := split(text, "body", func(s string) (string, bool) { return s, true })
	if what != "" {
		return wrong(node, what)
	}
	*b = parts
	return nil
}

// textsOf are the strings in a value, names of members left out.
func textsOf(value any) (out []string) {
	switch v := value.(type) {
	case string:
		return []string{v}
	case []any:
		for _, e := range v {
			out = append(out, textsOf(e)...)
		}
	case map[string]any:
		for _, e := range v {
			out = append(out, textsOf(e)...)
		}
	}
	return out
}

// readURL cuts an address into its parts, and says what is wrong with it.
func readURL(text string) (parts []Part, what string) {
	scheme, rest, _ := strings.Cut(text, "://")
	host := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		host = rest[:end]
	}
	base := scheme + "://" + host
	u, ok := webAddress(base)
	switch {
	case strings.ContainsAny(base, "{}"):
		return nil, onlyIn
	case !ok:
		return nil, "must be an http:// or https:// address with a host, and a port up to 65535 if any"
	case u.User != nil:
		return nil, "must hold no user or password: send them in a header"
	case strings.Contains(rest, "#"):
		return nil, "must have no fragment (#)"
	}
	way, query, asks := strings.Cut(rest[len(host):], "?")
	parts = []Part{{Text: base}}
	add := func(before, text, in string, unescape func(string) (string, error), escape func(string) string) {
		if what != "" {
			return
		}
		var more []Part
		more, what = split(text, in, func(s string) (string, bool) {
			plain, err := unescape(s)
			return escape(plain), err == nil && !strings.ContainsAny(plain, "{}")
		})
		parts = append(append(parts, Part{Text: before}), more...)
	}
	for segment := range strings.SplitSeq(strings.TrimPrefix(way, "/"), "/") {
		if plain, _ := url.PathUnescape(segment); plain == "." || plain == ".." {
			return nil, "must have no segments . and .. in its path"
		}
		add("/", segment, "path", url.PathUnescape, url.PathEscape)
	}
	if asks {
		before := "?"
		for pair := range strings.SplitSeq(query, "&") {
			name, value, equals := strings.Cut(pair, "=")
			plain, err := url.QueryUnescape(name)
			if err != nil || strings.ContainsAny(plain, "{}") {
				return nil, onlyIn
			}
			if before += url.QueryEscape(plain); equals {
				before += "="
			}
			add(before, value, "query", url.QueryUnescape, url.QueryEscape)
			before = "&"
		}
	}
	return merged(parts), what
}

// split cuts text at its placeholders. literal encodes what stands between them.
func split(text, in string, literal func(string) (string, bool)) (parts []Part, what string) {
	end := 0
	for _, at := range append(placeholder.FindAllStringSubmatchIndex(text, -1), []int{len(text), len(text), 0, 0}) {
		between, ok := literal(text[end:at[0]])
		if !ok {
			return nil, "must have no braces besides placeholders, and % only in escapes such as %20"
		}
		parts, end = append(parts, Part{Text: between}), at[1]
		if at[0] == at[1] {
			break
		}
		name := text[at[2]:at[3]]
		if below, ok := strings.CutPrefix(name, "payload."); !slices.Contains(placeholders, name) && (!ok || !path.MatchString(below)) {
			return nil, unknown
		}
		parts = append(parts, Part{Name: name, In: in, Without: without(in, text[:at[0]], text[at[1]:])})
	}
	return merged(parts), ""
}

// without are the signs that a value must not hold between these texts.
func without(in, before, after string) string {
	switch in {
	case "path":
		return ""
	case "query":
		before = strings.NewReplacer("%22", `"`, "%27", "'").Replace(before)
	case "body": // of the string that it stands in
		const quote = "\x00"
		before = strings.ReplaceAll(before, `\"`, quote)
		before = strings.ReplaceAll(before[strings.LastIndex(before, `"`)+1:], quote, `"`)
		after, _, _ = strings.Cut(after, `"`)
	}
	switch {
	case before+after == "":
		return ""
	case strings.Count(before, "'")%2+strings.Count(before, `"`)%2 > 0:
		return inQuotes
	}
	return bare
}

// merged joins texts that stand side by side.
func merged(parts []Part) (out []Part) {
	for _, p := range parts {
		switch n := len(out); {
		case p.Name == "" && n > 0 && out[n-1].Name == "":
			out[n-1].Text += p.Text
		case p.Name != "" || p.Text != "":
			out = append(out, p)
		}
	}
	return out
}
