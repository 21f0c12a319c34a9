package config_test

import (
	"strings"
	"testing"
)

func TestN8N(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "n8n:\n", "sources: {}\n"} {
		if f, err := read(t, text); err != nil || f.N8N != nil {
			t.Errorf("%q: %+v %v", text, f, err)
		}
	}
	for _, url := range []string{"http://n8n:5678", "https://n8n.example.test", "http://127.0.0.1:5678/n8n/", "http://[::1]:5678"} {
		if f, err := read(t, `n8n: {url: "`+url+`", api_key: "n8n_api_k.e-y_1"}`); err != nil || f.N8N.URL != url || f.N8N.APIKey != "n8n_api_k.e-y_1" {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// What is wrong is named by its key, and its value is not repeated.
func TestN8NRefused(t *testing.T) {
	t.Parallel()
	const secret = "n8n_api_s3cret"
	for _, test := range []struct{ text, says string }{
		{`{}`, "n8n.url"},
		{`{api_key: ` + secret + `}`, "n8n.url"},
		{`{url: "n8n:5678", api_key: ` + secret + `}`, "n8n.url"},
		{`{url: "ftp://n8n", api_key: ` + secret + `}`, "n8n.url"},
		{`{url: "http://", api_key: ` + secret + `}`, "n8n.url"},
		{`{url: "http://:5678", api_key: ` + secret + `}`, "n8n.url"},
		{`{url: "http://n8n:99999", api_key: ` + secret + `}`, "n8n.url"},
		{`{url: "http://%zz", api_key: ` + secret + `}`, "n8n.url"},
		{`{url: "http://me:` + secret + `@n8n:5678", api_key: k}`, "n8n.api_key"},
		{`{url: "http://n8n:5678/?key=` + secret + `", api_key: k}`, "n8n.url"},
		{`{url: "http://n8n:5678/#` + secret + `", api_key: k}`, "n8n.url"},
		{`{url: "http://n8n:5678"}`, "n8n.api_key"},
		{`{url: "http://n8n:5678", api_key: ""}`, "n8n.api_key"},
		{`{url: "http://n8n:5678", api_key: "` + secret + ` x"}`, "n8n.api_key"},
		{`{url: "http://n8n:5678", api_key: "` + secret + `ü"}`, "n8n.api_key"},
		{`{url: "http://n8n:5678", api_key: ` + secret + `, apikey: x}`, "line 1"},
		{`{url: "http://n8n:5678", api_key: "${HOLDFAST_TEST_NOT_SET}"}`, "HOLDFAST_TEST_NOT_SET is not set"},
		{`[]`, "line 1: n8n: "},
	} {
		_, err := read(t, "n8n: "+test.text+"\n")
		if err == nil || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", test.text, err)
		}
	}
}
