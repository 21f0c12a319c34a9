package packaging

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const root = "../.."

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// compose is what the tests look at of a compose file. Environments and volumes are written as mappings and short
// strings here; another way of writing them does not decode, which is a failure too.
type compose struct {
	Services map[string]service
	Volumes  map[string]any
}

type service struct {
	Image       string
	Build       string
	Environment map[string]string
	Ports       []string
	Volumes     []string
	Healthcheck struct {
		Test    []string
		Disable bool
	}
	DependsOn map[string]struct{ Condition string } `yaml:"depends_on"`
}

func readCompose(t *testing.T) compose {
	t.Helper()
	var c compose
	if err := yaml.Unmarshal([]byte(read(t, "docker-compose.yml")), &c); err != nil {
		t.Fatalf("docker-compose.yml: %v", err)
	}
	for _, name := range []string{"holdfast", "n8n", "postgres"} {
		if _, ok := c.Services[name]; !ok {
			t.Fatalf("docker-compose.yml has no service %s", name)
		}
	}
	return c
}

// instruction is one line of a Dockerfile, continuations joined.
type instruction struct{ name, args string }

// dockerfile is the last stage, and the images that all stages begin with.
type dockerfile struct {
	bases []string
	final []instruction
}

func readDockerfile(t *testing.T) dockerfile {
	t.Helper()
	var d dockerfile
	text := regexp.MustCompile(`(?m)^\s*#.*\n`).ReplaceAllString(read(t, "Dockerfile"), "")
	text = regexp.MustCompile(`\\\n\s*`).ReplaceAllString(text, "")
	for line := range strings.Lines(text) {
		name, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch name {
		case "":
		case "FROM":
			image := regexp.MustCompile(`^(--\S+\s+)*`).ReplaceAllString(args, "")
			image, _, _ = strings.Cut(image, " ")
			d.bases = append(d.bases, image)
			d.final = nil
		default:
			d.final = append(d.final, instruction{name, args})
		}
	}
	return d
}

// last is what the last instruction of that name says, which is the one that counts.
func (d dockerfile) last(t *testing.T, name string) string {
	t.Helper()
	for _, in := range slices.Backward(d.final) {
		if in.name == name {
			return in.args
		}
	}
	t.Fatalf("Dockerfile: the final stage has no %s", name)
	return ""
}

// environment is what the final stage's ENV lines set.
func (d dockerfile) environment() map[string]string {
	env := make(map[string]string)
	for _, in := range d.final {
		if in.name == "ENV" {
			for _, pair := range strings.Fields(in.args) {
				name, value, _ := strings.Cut(pair, "=")
				env[name] = value
			}
		}
	}
	return env
}

// paths reads the argument of VOLUME: one path, or a JSON array of them.
func paths(t *testing.T, args string) []string {
	t.Helper()
	if !strings.HasPrefix(args, "[") {
		return strings.Fields(args)
	}
	var list []string
	if err := json.Unmarshal([]byte(args), &list); err != nil {
		t.Fatalf("%s: %v", args, err)
	}
	return list
}

func exists(t *testing.T, name string) bool {
	t.Helper()
	_, err := os.Stat(filepath.Join(root, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}
