package config

import (
	"errors"
	"net/url"
	"strconv"
	"strings"
)

// N8N is where n8n's public API is asked about letters.
type N8N struct {
	URL    string `yaml:"url"`
	APIKey string `yaml:"api_key"`
}

// check never repeats a value: either may hold a secret.
func (n *N8N) check() error {
	if n == nil {
		return nil
	}
	u, ok := webAddress(n.URL)
	switch {
	case !ok:
		return errors.New("n8n.url: must be the http:// or https:// address of n8n, such as http://n8n:5678")
	case u.User != nil:
		return errors.New("n8n.url: must hold no user or password: the API key goes into n8n.api_key")
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return errors.New("n8n.url: must end with the host or a path")
	case n.APIKey == "":
		return errors.New("n8n.api_key: must be set: n8n makes one under Settings, n8n API, with the scopes execution:read and execution:list")
	case strings.ContainsFunc(n.APIKey, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("n8n.api_key: must not hold spaces or line breaks")
	}
	return nil
}

// webAddress reads an http or https address with a host, and with a port that there can be.
func webAddress(text string) (u *url.URL, ok bool) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, false
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return u, u.Port() == "" || err == nil && port > 0
}
