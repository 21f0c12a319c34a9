package config_test

import (
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"holdfast/internal/config"
)

// spelt writes parts as text, with what says how a placeholder's value is encoded, and what it must be without: as
// within quotes ('), or more (!).
func spelt(parts []config.Part) (out string) {
	for _, p := range parts {
		if out += p.Text; p.Name != "" {
			out += "<" + p.Name + " in " + p.In + ">"
			switch {
			case strings.ContainsRune(p.Without, '|'):
				out += "!"
			case p.Without != "":
				out += "'"
			}
		}
	}
	return out
}

func TestProbes(t *testing.T) {
	t.Setenv("HOLDFAST_TEST_PSP", "sk_live_1")
	f, err := read(t, `probes:
  charge: {source: stripe, url: "https://api.example.test/v1/charges/search?query=metadata['key']:'{provider_key}' AND status:'succeeded'&limit=1", headers: {Authorization: "Bearer ${HOLDFAST_TEST_PSP}"}, found: data.0.id}
  pesa: {url: "http://psp.example.test:8080/v1/{source}/a{step}z/{payload.order.id}/%2E%2Fx/?a%5B%5D=1&flag&ref={reference}-{account}", found: id, not_found: [404, 410]}
  push:
    step: push
    destination: psp
    url: https://psp.example.test
    method: POST
    body: |
      {"ids": ["{claim_id}", "x-{entity}"], "for": {"at": "{destination}", "n": 1}}
    found: result.id
  graph: {destination: shop, method: POST, url: "https://shop.example.test/graphql", body: '{"query":"{ order(key: \"{idempotency_key}\") { id } }"}', found: data.order.id}
  odd: {method: POST, url: "https://x.test/{claim_id}:{step}?a=ref:{reference} AND s:'paid'&b=k:%22{source}%22&c=\"a\"{step}", body: '["it''s", "ref:{payload.a}", "{entity}", "''{account}''", "\"{step}\"-{step}"]', found: "@id"}
allow_private: ["10.1.2.3/8", 127.0.0.1, "fd00::/8", "::1"]
`)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		url, body string
		claims    []config.Claims
	}{
		"charge": {url: `https://api.example.test/v1/charges/search?query=metadata%5B%27key%27%5D%3A%27<provider_key in query>'%27+AND+status%3A%27succeeded%27&limit=1`, claims: []config.Claims{{Source: "stripe", Step: "charge"}}},
		"pesa": {
			url:    "http://psp.example.test:8080/v1/<source in path>/a<step in path>z/<payload.order.id in path>/.%2Fx/?a%5B%5D=1&flag&ref=<reference in query>!-<account in query>!",
			claims: []config.Claims{{Step: "pesa"}, {Source: "pesa"}},
		},
		"push": {
			url: "https://psp.example.test/", body: `{"ids": ["<claim_id in body>", "x-<entity in body>!"], "for": {"at": "<destination in body>", "n": 1}}` + "\n",
			claims: []config.Claims{{Step: "push", Destination: "psp"}},
		},
		"graph": {url: "https://shop.example.test/graphql", body: `{"query":"{ order(key: \"<idempotency_key in body>'\") { id } }"}`, claims: []config.Claims{{Step: "graph", Destination: "shop"}}},
		"odd": {
			url:  "https://x.test/<claim_id in path>:<step in path>?a=ref%3A<reference in query>!+AND+s%3A%27paid%27&b=k%3A%22<source in query>'%22&c=%22a%22<step in query>!",
			body: `["it's", "ref:<payload.a in body>!", "<entity in body>", "'<account in body>''", "\"<step in body>'\"-<step in body>!"]`, claims: []config.Claims{{Step: "odd"}, {Source: "odd"}},
		},
	} {
		p := f.Probes[name]
		if got := spelt(p.URL); got != want.url {
			t.Errorf("%s: url\n%s\n%s", name, got, want.url)
		}
		if got := spelt(p.Body); got != want.body {
			t.Errorf("%s: body\n%s\n%s", name, got, want.body)
		}
		if got := p.For(name); !slices.Equal(got, want.claims) {
			t.Errorf("%s is for %+v", name, got)
		}
	}
	if p := f.Probes["charge"]; p.Headers["Authorization"] != "Bearer sk_live_1" || p.Found != "data.0.id" || p.Method != "" {
		t.Errorf("%+v", p)
	}
	if p := f.Probes["pesa"]; !slices.Equal(p.NotFound, []config.Absence{404, 410}) {
		t.Errorf("%+v", p)
	}
	var networks []string
	for _, n := range f.AllowPrivate {
		networks = append(networks, netip.Prefix(n).String())
	}
	if got := strings.Join(networks, " "); got != "10.0.0.0/8 127.0.0.1/32 fd00::/8 ::1/128" {
		t.Error(got)
	}
}

// What is wrong is named with its key, where it stands in one line with that, and its value is not repeated.
func TestProbesRefused(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t"
	for _, test := range []struct{ text, says string }{
		{`found: id`, "probes.charge.url: is missing"},
		{`url: "", found: id`, "line 2: probes.charge.url"},
		{`url: "https://x.test"`, "probes.charge.found: is missing"},
		{`url: "ftp://s3cr3t.test", found: id`, "line 2: probes.charge.url: must be an http"},
		{`url: "s3cr3t.test/x", found: id`, "line 2: probes.charge.url"},
		{`url: "https:///s3cr3t", found: id`, "line 2: probes.charge.url"},
		{`url: "https://:443/s3cr3t", found: id`, "line 2: probes.charge.url"},
		{`url: "https://x.test:s3cr3t/", found: id`, "line 2: probes.charge.url"},
		{`url: "https://me:s3cr3t@x.test/", found: id`, "user or password"},
		{`url: "https://x.test/#s3cr3t", found: id`, "fragment"},
		{`url: "https://x.test/#{reference}", found: id`, "fragment"},
		{`url: "{reference}", found: id`, "placeholders only in"},
		{`url: "{source}://x.test/", found: id`, "placeholders only in"},
		{`url: "https://{source}.s3cr3t.test/", found: id`, "placeholders only in"},
		{`url: "https://x.test:{account}/", found: id`, "placeholders only in"},
		{`url: "https://{account}@x.test/", found: id`, "placeholders only in"},
		{`url: "https://x.test/?s3cr3t&{account}=1", found: id`, "placeholders only in"},
		{`url: "https://x.test/?{account}", found: id`, "placeholders only in"},
		{`url: "https://x.test/{s3cr3t}", found: id`, "no placeholders but"},
		{`url: "https://x.test/{payload}", found: id`, "no placeholders but"},
		{`url: "https://x.test/{payload.}", found: id`, "no placeholders but"},
		{`url: "https://x.test/{payload.s3cr3t..b}", found: id`, "no placeholders but"},
		{`url: "https://x.test/{lease_token}", found: id`, "no placeholders but"},
		{`url: "https://x.test/{}", found: id`, "no braces"},
		{`url: "https://x.test/{a b}", found: id`, "no braces"},
		{`url: "https://x.test/?q=%zz{reference}", found: id`, "no braces"},
		{`url: "https://x.test/?q=%7Bs3cr3t%7D{reference}", found: id`, "no braces"},
		{`url: "https://x.test/?%7Bs3cr3t%7D={reference}", found: id`, "placeholders only in"},
		{`url: "https://x.test/%7Bs3cr3t%7D/{reference}", found: id`, "no braces"},
		{`url: "https://x.test:99999/{reference}", found: id`, "a port up to 65535"},
		{`url: "https://x.test:0/{reference}", found: id`, "a port up to 65535"},
		{`url: "https://x.test/paid", found: id`, "probes.charge.url: must ask about one claim"},
		{`url: "https://x.test/{source}/{step}?a={account}&d={destination}&e={entity}", found: id`, "must ask about one claim"},
		{`url: "https://x.test/?q=$provider_key", found: id`, "must ask about one claim"},
		{`url: "https://x.test/{source}", found: id, method: POST, body: '{"q":"provider_key"}'`, "must ask about one claim"},
		{`url: "https://x.test/", found: id, method: POST, body: '{"q":"{ provider_key }"}'`, "line 2: probes.charge.body: must have its placeholders as {provider_key}"},
		{`url: "https://x.test/{claim_id}", found: id, method: POST, body: '{"q":"{payload.s3cr3t }"}'`, "must have its placeholders as"},
		{`url: "https://x.test/", found: id, method: POST, body: '{"q":["{{provider_key}}"]}'`, "must have its placeholders as"},
		{`url: "https://x.test/", found: id, method: POST, body: '{"q":"{{ s3cr3t }}"}'`, "must have its placeholders as"},
		{`url: "https://x.test/a/../{reference}", found: id`, "no segments"},
		{`url: "https://x.test/%2e%2E/{reference}", found: id`, "no segments"},
		{`url: "https://x.test/", found: id, method: DELETE`, "line 2: probes.charge.method"},
		{`url: "https://x.test/", found: id, method: get`, "line 2: probes.charge.method"},
		{`url: "https://x.test/", found: id, body: '{}'`, "probes.charge.body: needs method: POST"},
		{`url: "https://x.test/", found: id, method: POST, body: 's3cr3t'`, "line 2: probes.charge.body: must be JSON"},
		{`url: "https://x.test/", found: id, method: POST, body: '{"n":{reference}}'`, "line 2: probes.charge.body: must be JSON"},
		{`url: "https://x.test/", found: id, method: POST, body: '{"{reference}":1}'`, "placeholders only in"},
		{`url: "https://x.test/", found: id, method: POST, body: '{"a":"{s3cr3t}"}'`, "no placeholders but"},
		{`url: "https://x.test/", found: id, method: POST, body: {a: s3cr3t}`, "line 2: probes.charge.body"},
		{`url: "https://x.test/", found: id, headers: {Authorization: "s3cr3t {account}"}`, "line 2: probes.charge.headers.Authorization: must have placeholders only"},
		{`url: "https://x.test/", found: id, headers: {Authorization: "s3cr3t\nX: y"}`, "line 2: probes.charge.headers.Authorization"},
		{`url: "https://x.test/", found: id, headers: {Authorization: [s3cr3t]}`, "line 2: probes.charge.headers.Authorization"},
		{`url: "https://x.test/", found: id, headers: {Authorization: s3cr3t, authorization: y}`, "probes.charge.headers: must have each name once"},
		{`url: "https://x.test/", found: id, headers: s3cr3t`, "line 2: probes.charge.headers: "},
		{`url: "https://x.test/", found: id, headers: {"X s3cr3t": y}`, "probes.charge.headers: must have names"},
		{`url: "https://x.test/", found: id, headers: {host: y}`, "probes.charge.headers: must have names"},
		{`url: "https://x.test/", found: "a..s3cr3t"`, "line 2: probes.charge.found"},
		{`url: "https://x.test/", found: [id]`, "line 2: probes.charge.found"},
		{`url: "https://x.test/", found: id, not_found: [200]`, "line 2: probes.charge.not_found"},
		{`url: "https://x.test/", found: id, not_found: [404, 503]`, "line 2: probes.charge.not_found"},
		{`url: "https://x.test/", found: id, not_found: [401]`, "did not look"},
		{`url: "https://x.test/", found: id, not_found: 404`, "line 2: probes.charge.not_found: "},
		{`url: "http://n8n:5678/webhook/{reference}", found: id, not_found: [410, 404]`, "probes.charge.not_found: must not list 404 for a webhook"},
		{`url: "http://x.test/n8n/webhook-test/s3cr3t?id={reference}", found: id, not_found: [404]`, "must not list 404 for a webhook"},
		{`url: "https://x.test/", found: id, source: "S3cr3t"`, "probes.charge.source"},
		{`url: "https://x.test/", found: id, step: "-"`, "probes.charge.step"},
		{`url: "https://x.test/", found: id, destination: "a b"`, "probes.charge.destination"},
		{`url: "https://x.test/", found: id, urls: s3cr3t`, "line 2"},
		{`url: "https://x.test/{reference}", found: id}` + "\n  other: {step: charge, url: \"https://x.test/{reference}\", found: id", "same claims as probes.charge"},
		{`url: "https://x.test/", found: id}` + "\n  Other: {url: \"https://x.test/\", found: id", "is not a name"},
		{`url: "https://x.test/", found: id}` + "\nallow_private: {a: \"10.0.0.0/8\"", "line 3"},
	} {
		_, err := read(t, "probes:\n  charge: {"+test.text+"}\n")
		if err == nil || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", test.text, err)
		}
	}
	for _, found := range []string{"data[0].id", "$.data.id", "data.$.id", "{provider_key}", "data.*.id", "data.s3cr3t[]", "data['id']", `\"data\".id`, "`id`", "/data/0/id", `data\\.id`, "max(id)"} {
		_, err := read(t, `probes: {charge: {url: "https://x.test/{reference}", found: "`+found+`"}}`)
		if err == nil || !strings.Contains(err.Error(), "probes.charge.found: must be a dotted path into the answer, such as data.0.id") || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", found, err)
		}
	}
	for _, network := range []string{"10.0.0.0/33", "10.0.0", "localhost", "::ffff:10.0.0.0/104", "fe80::1%eth0", "", "10.0.0.0/8,127.0.0.1"} {
		if _, err := read(t, fmt.Sprintf("sources: {}\nallow_private: [\"127.0.0.1\", %q]\n", network)); err == nil || !strings.Contains(err.Error(), "line 2: allow_private") {
			t.Errorf("%q: %v", network, err)
		}
	}
}

// The examples of the documents are taken as they stand there.
func TestExamplesOfTheDocuments(t *testing.T) {
	for _, path := range []string{"../../docs/unknown-outcomes.md", "../../README.md"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\$\{(\w+)\}`).FindAllStringSubmatch(string(text), -1) {
			t.Setenv(name[1], "a-secret")
		}
		examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1)
		if len(examples) < 3 {
			t.Errorf("%s has %d examples", path, len(examples))
		}
		for _, e := range examples {
			if _, err := read(t, e[1]); err != nil {
				t.Errorf("%s: %v\n%s", path, err, e[1])
			}
		}
	}
}
