//go:build e2e

package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	templates "holdfast/n8n-templates"
)

// The credentials that every n8n of the suite has. The first has the name that
// the templates ask for.
const (
	credentialName  = "Holdfast"
	credentialID    = "holdfastKey"
	wrongCredential = "A key that Holdfast does not know"
	wrongID         = "holdfastWrongKey"
	stripeName      = "Stripe"
	stripeID        = "stripeKey"
)

// n8n is one running instance with the templates imported.
type n8n struct {
	*process
	base   string
	apiKey string
	cli    []string // node and n8n's script
	env    []string
	dir    string
}

// startN8N imports credentials and templates, as a user does by the command
// line, then starts n8n and waits until it serves.
func startN8N(ctx context.Context, dir, holdfastKey string) (*n8n, error) {
	cli, err := installedN8N()
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	brokerPort, err := freePort()
	if err != nil {
		return nil, err
	}
	n := &n8n{base: fmt.Sprintf("http://127.0.0.1:%d", port), cli: cli, dir: dir, env: n8nEnv(dir, filepath.Dir(cli[0]), port, brokerPort)}
	if err := n.importAll(ctx, holdfastKey); err != nil {
		return nil, err
	}
	if err := n.start(ctx); err != nil {
		return nil, err
	}
	if err := n.setUpOwner(ctx); err != nil {
		n.stop()
		return nil, fmt.Errorf("n8n is not ready: %w", err)
	}
	return n, nil
}

// start starts the program and waits until it serves; after a kill as well.
func (n *n8n) start(ctx context.Context) (err error) {
	if n.process, err = startProcess("n8n", n.dir, n.env, append(n.cli, "start")...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	// /healthz answers before the database is ready.
	err = n.await(ctx, func(ctx context.Context) error { return getOK(ctx, n.base+"/healthz/readiness") })
	if err != nil {
		n.stop()
		return fmt.Errorf("n8n is not ready: %w", err)
	}
	return nil
}

// n8nEnv is the whole environment: nothing of the machine's own settings (a
// proxy, another n8n's folder) reaches the instance, and it calls nobody.
func n8nEnv(dir, nodeBin string, port, brokerPort int) []string {
	return []string{
		"PATH=" + nodeBin + ":/usr/local/bin:/usr/bin:/bin",
		"HOME=" + dir,
		"TMPDIR=" + os.TempDir(),
		"N8N_USER_FOLDER=" + dir,
		"N8N_LISTEN_ADDRESS=127.0.0.1",
		"N8N_HOST=127.0.0.1",
		fmt.Sprintf("N8N_PORT=%d", port),
		fmt.Sprintf("N8N_RUNNERS_BROKER_PORT=%d", brokerPort),
		"N8N_ENCRYPTION_KEY=" + secret(),
		"N8N_SECURE_COOKIE=false",
		"GENERIC_TIMEZONE=UTC", "TZ=UTC", "NO_COLOR=1",
		"N8N_DIAGNOSTICS_ENABLED=false", "N8N_DIAGNOSTICS_CONFIG_FRONTEND=", "N8N_DIAGNOSTICS_CONFIG_BACKEND=",
		"N8N_VERSION_NOTIFICATIONS_ENABLED=false", "N8N_VERSION_NOTIFICATIONS_WHATS_NEW_ENABLED=false",
		"N8N_TEMPLATES_ENABLED=false", "N8N_PERSONALIZATION_ENABLED=false", "N8N_HIRING_BANNER_ENABLED=false",
		"N8N_DYNAMIC_BANNERS_ENABLED=false", "EXTERNAL_FRONTEND_HOOKS_URLS=",
		"N8N_COMMUNITY_PACKAGES_ENABLED=false", "N8N_LICENSE_AUTO_RENEW_ENABLED=false", "N8N_AI_ENABLED=false",
		"N8N_DISABLED_MODULES=instance-ai,mcp,mcp-registry,chat-hub,community-packages,agents,agent-evals,insights," +
			"quick-connect,workflow-builder,breaking-changes,source-control,external-secrets,ldap,sso-oidc,sso-saml," +
			"provisioning,oauth-server,token-exchange,instance-version-history,promotions,workflow-reviews,favorites",
	}
}

// installedN8N finds what .ci/n8n installed, and refuses what it did not finish
// or what was installed from another lock file.
func installedN8N() ([]string, error) {
	root, err := repoRoot()
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(filepath.Join(root, "internal/e2e/n8n/package.json"))
	if err != nil {
		return nil, err
	}
	var pinned struct {
		Dependencies struct{ N8N, Node string }
	}
	if err := json.Unmarshal(raw, &pinned); err != nil {
		return nil, err
	}
	lock, err := os.ReadFile(filepath.Join(root, "internal/e2e/n8n/package-lock.json"))
	if err != nil {
		return nil, err
	}
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	nodePackage := "node-" + runtime.GOOS + "-" + arch
	sum := sha256.Sum256(lock)
	want := hex.EncodeToString(sum[:]) + " " + nodePackage + "@" + pinned.Dependencies.Node

	dir := filepath.Join(root, ".cache", "n8n-"+pinned.Dependencies.N8N)
	stamp, err := os.ReadFile(filepath.Join(dir, ".complete"))
	if err != nil || strings.TrimSpace(string(stamp)) != want {
		return nil, fmt.Errorf("n8n %s is not installed; run .ci/n8n first", pinned.Dependencies.N8N)
	}
	return []string{
		filepath.Join(dir, "node", "node_modules", nodePackage, "bin", "node"),
		filepath.Join(dir, "node_modules", "n8n", "bin", "n8n"),
	}, nil
}

// importAll uses n8n's command line before the first start. The credentials come
// first: an import connects a credential by its name only if it is there.
func (n *n8n) importAll(ctx context.Context, holdfastKey string) error {
	credential := func(id, name, token string) map[string]any {
		return map[string]any{"id": id, "name": name, "type": "httpBearerAuth", "data": map[string]any{"token": token}}
	}
	raw, err := json.Marshal([]map[string]any{
		credential(credentialID, credentialName, holdfastKey),
		credential(wrongID, wrongCredential, secret()),
		credential(stripeID, stripeName, "sk_test_123"),
	})
	if err != nil {
		return err
	}
	file := filepath.Join(n.dir, "credentials.json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		return err
	}
	folder := filepath.Join(n.dir, "templates")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	all, err := templates.All()
	if err != nil {
		return err
	}
	for _, t := range all {
		if err := os.WriteFile(filepath.Join(folder, t.Name+".json"), t.JSON, 0o600); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"import:credentials", "--input=" + file},
		{"import:workflow", "--separate", "--input=" + folder},
	} {
		cmd := exec.CommandContext(ctx, n.cli[0], append(n.cli[1:], args...)...)
		cmd.Dir, cmd.Env = n.dir, n.env
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("n8n %s: %w\n%s", args[0], err, out)
		}
	}
	return nil
}

// setUpOwner makes the first user and a key for the public API.
func (n *n8n) setUpOwner(ctx context.Context) error {
	owner := map[string]string{"email": "owner@example.test", "firstName": "End", "lastName": "ToEnd", "password": "Aa1" + secret()}
	raw, err := json.Marshal(owner)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.base+"/rest/owner/setup", strings.NewReader(string(raw)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(res.Body) // only to show it
		return fmt.Errorf("owner setup: %d %s", res.StatusCode, text)
	}
	var cookie string
	for _, c := range res.Cookies() {
		if c.Name == "n8n-auth" {
			cookie = c.Name + "=" + c.Value
		}
	}
	var key struct {
		Data struct {
			RawAPIKey string `json:"rawApiKey"`
		} `json:"data"`
	}
	err = callJSON(ctx, http.MethodPost, n.base+"/rest/api-keys", map[string]string{"Cookie": cookie}, map[string]any{
		"label": "e2e", "expiresAt": nil,
		"scopes": []string{"workflow:create", "workflow:read", "workflow:list", "workflow:activate", "workflow:deactivate", "execution:list", "execution:read", "execution:retry"},
	}, &key)
	if err != nil {
		return fmt.Errorf("api key: %w", err)
	}
	n.apiKey = key.Data.RawAPIKey
	return nil
}

// api calls n8n's public API.
func (n *n8n) api(ctx context.Context, method, path string, body, out any) error {
	return callJSON(ctx, method, n.base+"/api/v1"+path, map[string]string{"X-N8N-API-KEY": n.apiKey}, body, out)
}

// activate publishes a workflow that has no webhook to wait for.
func (n *n8n) activate(ctx context.Context, workflowID string) error {
	return n.api(ctx, http.MethodPost, "/workflows/"+workflowID+"/activate", map[string]any{}, nil)
}

// publish puts a workflow into service and waits until its webhook is served:
// n8n answers the request some 100 ms before that. The API also refuses what the
// command line lets pass: unknown node types and versions, missing parameters.
func (n *n8n) publish(ctx context.Context, workflowID, path string) error {
	if err := n.activate(ctx, workflowID); err != nil {
		return err
	}
	return n.awaitWebhook(ctx, path)
}

// awaitWebhook waits until a webhook is served.
func (n *n8n) awaitWebhook(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return n.await(ctx, func(ctx context.Context) error {
		// A GET never starts a workflow that listens for POST; the text tells whether one is there.
		err := getOK(ctx, n.base+"/webhook/"+path)
		if err != nil && strings.Contains(err.Error(), "make a POST request") {
			return nil
		}
		return fmt.Errorf("webhook %s is not served: %w", path, err)
	})
}

// execution is one run as n8n records it.
type execution struct {
	ID     string `json:"id"`
	Status string `json:"status"`
}

// executions lists the runs of a workflow that have ended, the newest first.
func (n *n8n) executions(ctx context.Context, workflowID string) ([]execution, error) {
	var page struct {
		Data []execution `json:"data"`
	}
	err := n.api(ctx, http.MethodGet, "/executions?limit=250&workflowId="+workflowID, nil, &page)
	// On a busy machine one that waits to start is listed too.
	ended := slices.DeleteFunc(page.Data, func(e execution) bool { return e.Status == "new" || e.Status == "running" })
	return ended, err
}
