// Package templates carries the importable n8n workflows, so that the binary can
// list and print them without a checkout. The JSON files are the source: what a
// user imports in n8n's editor is byte for byte what is embedded here.
package templates

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

//go:embed *.json
var files embed.FS

// Template is one workflow that n8n can import on its own.
type Template struct {
	Name  string // the file's name without .json, such as "webhook-idempotency-gate"
	Title string // the workflow's name in n8n
	JSON  []byte
}

// All gives the templates in the order of their names.
func All() ([]Template, error) {
	entries, err := fs.Glob(files, "*.json")
	if err != nil {
		return nil, fmt.Errorf("list templates: %w", err)
	}
	all := make([]Template, 0, len(entries))
	for _, entry := range entries {
		t, err := Read(strings.TrimSuffix(entry, ".json"))
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// Read gives the template of that name. The error is fs.ErrNotExist for a name
// that All does not list.
func Read(name string) (Template, error) {
	if name != path.Base(name) {
		return Template{}, fmt.Errorf("template %q: %w", name, fs.ErrNotExist)
	}
	raw, err := files.ReadFile(name + ".json")
	if errors.Is(err, fs.ErrNotExist) {
		return Template{}, fmt.Errorf("template %q: %w", name, fs.ErrNotExist)
	}
	if err != nil {
		return Template{}, fmt.Errorf("read template %q: %w", name, err)
	}
	var head struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return Template{}, fmt.Errorf("parse template %q: %w", name, err)
	}
	return Template{Name: name, Title: head.Name, JSON: raw}, nil
}
