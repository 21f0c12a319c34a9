package packaging

import (
	"encoding/json"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// known are the variables that the program reads, without their prefix HOLDFAST_. A misspelt one would be ignored in
// silence by Docker. Replace this by the list of package config once that exports one.
var known = []string{
	"ADDR", "DATABASE_URL", "API_KEYS", "CONFIG", "PUBLIC_URL", "INGEST_URL", "LOG_FORMAT", "LOG_LEVEL", "MAX_BODY",
	"SWEEP_INTERVAL",
}

func TestVariablesAreKnown(t *testing.T) {
	t.Parallel()
	for file, env := range map[string]map[string]string{
		"docker-compose.yml": readCompose(t).Services["holdfast"].Environment,
		"Dockerfile":         readDockerfile(t).environment(),
	} {
		found := false
		for name := range env {
			short, ours := strings.CutPrefix(name, "HOLDFAST_")
			found = found || ours
			if ours && !slices.Contains(known, short) {
				t.Errorf("%s sets %s, which the program does not read", file, name)
			}
		}
		if !found {
			t.Errorf("%s sets no HOLDFAST_ variable", file)
		}
	}
}

// substitution is ${NAME}, with what follows the name; a lone $NAME counts too.
var substitution = regexp.MustCompile(`\$(?:\{([A-Za-z_][A-Za-z0-9_]*)([^}]*)\}|([A-Za-z_][A-Za-z0-9_]*))`)

func TestEveryVariableOfComposeIsInTheExample(t *testing.T) {
	t.Parallel()
	used := make(map[string]bool)
	for line := range strings.Lines(read(t, "docker-compose.yml")) {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for _, m := range substitution.FindAllStringSubmatch(strings.ReplaceAll(line, "$$", ""), -1) {
			if m[3] != "" {
				t.Errorf("docker-compose.yml: write $%s as ${%[1]s:?…}", m[3])
				continue
			}
			used[m[1]] = true
			// Unset or empty must stop compose: a default would be a password that everybody knows.
			if message, ok := strings.CutPrefix(m[2], ":?"); !ok || message == "" {
				t.Errorf("docker-compose.yml: ${%s%s} must be ${%[1]s:?message}", m[1], m[2])
			}
		}
	}

	example := make(map[string]bool)
	comment := ""
	for line := range strings.Lines(read(t, ".env.example")) {
		line = strings.TrimSpace(line)
		switch name, value, assigns := strings.Cut(line, "="); {
		case strings.HasPrefix(line, "#"):
			comment = line
		case line == "":
			comment = ""
		case !assigns:
			t.Errorf(".env.example: %q is neither a comment nor NAME=", line)
		default:
			example[name] = true
			if value != "" {
				t.Errorf(".env.example: %s has a value, which would end up in use", name)
			}
			if !strings.Contains(comment, "openssl rand -hex 32") {
				t.Errorf(".env.example: the line above %s does not say how to make one", name)
			}
		}
	}
	if len(used) == 0 {
		t.Error("docker-compose.yml takes nothing from .env: this test no longer sees what it checks")
	}
	if a, b := slices.Sorted(maps.Keys(used)), slices.Sorted(maps.Keys(example)); !slices.Equal(a, b) {
		t.Errorf("docker-compose.yml uses %v, .env.example names %v", a, b)
	}
}

func TestServicesAreHealthChecked(t *testing.T) {
	t.Parallel()
	c := readCompose(t)
	for name, s := range c.Services {
		if len(s.Healthcheck.Test) < 2 || !strings.HasPrefix(s.Healthcheck.Test[0], "CMD") || s.Healthcheck.Disable {
			t.Errorf("%s has no healthcheck", name)
		}
		for other, d := range s.DependsOn {
			if _, ok := c.Services[other]; !ok {
				t.Errorf("%s depends on %s, which does not exist", name, other)
			}
			if d.Condition != "service_healthy" {
				t.Errorf("%s waits for %s to be %q, not service_healthy", name, other, d.Condition)
			}
		}
	}
	if _, ok := c.Services["holdfast"].DependsOn["postgres"]; !ok {
		t.Error("holdfast does not wait for postgres")
	}
}

// pinned is a tag with at least a minor version.
var pinned = regexp.MustCompile(`^[^@]+:v?\d+\.\d+[^:]*(@sha256:[0-9a-f]{64})?$`)

func TestImagesArePinned(t *testing.T) {
	t.Parallel()
	for name, s := range readCompose(t).Services {
		switch {
		case s.Build != "":
			if !exists(t, path.Join(s.Build, "Dockerfile")) {
				t.Errorf("%s is built from %s, where there is no Dockerfile", name, s.Build)
			}
		case !pinned.MatchString(s.Image):
			t.Errorf("%s runs %q, which can change from one day to the next", name, s.Image)
		}
	}
	for _, image := range readDockerfile(t).bases {
		if image != "scratch" && !pinned.MatchString(image) {
			t.Errorf("Dockerfile builds from %q, which can change from one day to the next", image)
		}
	}
}

func TestPortsStayOnThisMachine(t *testing.T) {
	t.Parallel()
	d := readDockerfile(t)
	for name, s := range readCompose(t).Services {
		for _, p := range s.Ports {
			i := strings.LastIndex(p, ":")
			host, err := netip.ParseAddrPort(p[:max(i, 0)])
			if err != nil || !host.Addr().IsLoopback() {
				t.Errorf("%s publishes %s: write 127.0.0.1:PORT:PORT", name, p)
				continue
			}
			if name != "holdfast" {
				continue
			}
			// One port all the way: published, listened on, exposed.
			for where, addr := range map[string]string{
				"HOLDFAST_ADDR in docker-compose.yml": s.Environment["HOLDFAST_ADDR"],
				"HOLDFAST_ADDR in Dockerfile":         d.environment()["HOLDFAST_ADDR"],
				"EXPOSE in Dockerfile":                ":" + d.last(t, "EXPOSE"),
			} {
				if _, port, err := net.SplitHostPort(addr); err != nil || port != p[i+1:] {
					t.Errorf("%s is %s, but port %s of the container is published", where, addr, p[i+1:])
				}
			}
		}
	}
	if len(readCompose(t).Services["holdfast"].Ports) == 0 {
		t.Error("holdfast publishes no port")
	}
}

func TestVolumes(t *testing.T) {
	t.Parallel()
	c, d := readCompose(t), readDockerfile(t)
	mounted := make(map[string]bool)
	for name, s := range c.Services {
		for _, v := range s.Volumes {
			source, rest, ok := strings.Cut(v, ":")
			if !ok {
				t.Errorf("%s mounts %s without saying where", name, v)
				continue
			}
			target, _, _ := strings.Cut(rest, ":")
			if name == "holdfast" {
				mounted[target] = true
			}
			if strings.HasPrefix(source, ".") || strings.HasPrefix(source, "/") {
				// Docker would make an empty directory of a missing one.
				if !exists(t, source) {
					t.Errorf("%s mounts %s, which is not in the repository", name, source)
				}
				continue
			}
			if _, ok := c.Volumes[source]; !ok {
				t.Errorf("%s mounts the volume %s, which is not declared", name, source)
			}
		}
	}
	for volume := range c.Volumes {
		if !slices.ContainsFunc(slices.Collect(maps.Values(c.Services)), func(s service) bool {
			return slices.ContainsFunc(s.Volumes, func(v string) bool { return strings.HasPrefix(v, volume+":") })
		}) {
			t.Errorf("the volume %s is declared and never mounted", volume)
		}
	}

	volumes := paths(t, d.last(t, "VOLUME"))
	for _, p := range volumes {
		if !mounted[p] {
			t.Errorf("Dockerfile declares the volume %s and docker-compose.yml mounts none there: it would be anonymous", p)
		}
	}
	// The embedded database must lie in a volume, else it goes with the container.
	u, err := url.Parse(d.environment()["HOLDFAST_DATABASE_URL"])
	if err != nil || u.Scheme != "sqlite" || u.Host != "" || !slices.Contains(volumes, path.Dir(u.Path)) {
		t.Errorf("Dockerfile: HOLDFAST_DATABASE_URL=%s is no file of a volume %v", u, volumes)
	}
	if dir := d.last(t, "WORKDIR"); !slices.Contains(volumes, dir) {
		t.Errorf("Dockerfile: WORKDIR is %s, not a volume: relative paths would be lost with the container", dir)
	}
}

func TestDatabasesAgree(t *testing.T) {
	t.Parallel()
	c := readCompose(t)
	env := c.Services["postgres"].Environment
	u, err := url.Parse(substitution.ReplaceAllString(c.Services["holdfast"].Environment["HOLDFAST_DATABASE_URL"], "$1"))
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	want := [...]string{"postgres", "postgres:5432", env["POSTGRES_USER"], substitution.ReplaceAllString(env["POSTGRES_PASSWORD"], "$1"), "/" + env["POSTGRES_DB"]}
	got := [...]string{u.Scheme, u.Host, u.User.Username(), password, u.Path}
	if got != want {
		t.Errorf("holdfast asks for %q, postgres offers %q", got, want)
	}
}

func TestAPIKeys(t *testing.T) {
	t.Parallel()
	roles := make(map[string]bool)
	// The messages inside ${…} could hold commas.
	keys := substitution.ReplaceAllString(readCompose(t).Services["holdfast"].Environment["HOLDFAST_API_KEYS"], "$1")
	for key := range strings.SplitSeq(keys, ",") {
		parts := strings.SplitN(key, ":", 3)
		if len(parts) != 3 || parts[0] == "" || parts[2] == "" {
			t.Errorf("HOLDFAST_API_KEYS: %q is not name:role:secret", key)
			continue
		}
		roles[parts[1]] = true
	}
	if got := slices.Sorted(maps.Keys(roles)); !slices.Equal(got, []string{"operator", "workflow"}) {
		t.Errorf("HOLDFAST_API_KEYS has keys of the roles %v, want one of each", got)
	}
}

func TestImage(t *testing.T) {
	t.Parallel()
	d := readDockerfile(t)
	if user := d.last(t, "USER"); !regexp.MustCompile(`^[1-9]\d*(:[1-9]\d*)?$`).MatchString(user) {
		// A number, so that Kubernetes can tell that it is not root.
		t.Errorf("Dockerfile: the user is %q, want a numeric one that is not 0", user)
	}
	want := []string{"/holdfast", "healthcheck"}
	_, command, _ := strings.Cut(d.last(t, "HEALTHCHECK"), "CMD ")
	var got []string
	if err := json.Unmarshal([]byte(command), &got); err != nil || !slices.Equal(got, want) {
		t.Errorf("Dockerfile: HEALTHCHECK runs %s, want %q (there is no shell)", command, want)
	}
	if test := readCompose(t).Services["holdfast"].Healthcheck.Test; !slices.Equal(test, append([]string{"CMD"}, want...)) {
		t.Errorf("docker-compose.yml: holdfast's healthcheck is %q", test)
	}
}

var goDirective = regexp.MustCompile(`(?m)^go (\d+\.\d+)(?:\.(\d+))?$`)

func TestGoVersionIsThatOfTheModule(t *testing.T) {
	t.Parallel()
	module := goDirective.FindStringSubmatch(read(t, "go.mod"))
	if module == nil {
		t.Fatal("go.mod has no go line")
	}
	image := ""
	for _, base := range readDockerfile(t).bases {
		if version, ok := strings.CutPrefix(base, "golang:"); ok {
			image, _, _ = strings.Cut(version, "-")
		}
	}
	if image != module[1] && !strings.HasPrefix(image, module[1]+".") {
		t.Errorf("Dockerfile builds with Go %q, go.mod says %s", image, module[1])
	}
}

func TestN8NIsTheTestedOne(t *testing.T) {
	t.Parallel()
	var tested struct{ Dependencies map[string]string }
	if err := json.Unmarshal([]byte(read(t, "internal/e2e/n8n/package.json")), &tested); err != nil {
		t.Fatal(err)
	}
	image := readCompose(t).Services["n8n"].Image
	if want := tested.Dependencies["n8n"]; want == "" || !strings.HasSuffix(image, "/n8n:"+want) {
		t.Errorf("docker-compose.yml runs %s, the end-to-end tests n8n %q", image, want)
	}
}

func TestWorkflow(t *testing.T) {
	t.Parallel()
	var ci struct {
		Permissions map[string]string
		Jobs        map[string]struct {
			TimeoutMinutes int `yaml:"timeout-minutes"`
			Steps          []struct{ Run string }
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, ".github/workflows/ci.yml")), &ci); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(ci.Permissions, map[string]string{"contents": "read"}) {
		t.Errorf("the workflow may %v, reading is enough", ci.Permissions)
	}
	runs := false
	for name, job := range ci.Jobs {
		if job.TimeoutMinutes == 0 {
			t.Errorf("job %s has no timeout", name)
		}
		for _, step := range job.Steps {
			runs = runs || step.Run == ".ci/run"
		}
	}
	if !runs {
		t.Error("no job runs .ci/run")
	}
}
