//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// holdfast is the running binary with its keys.
type holdfast struct {
	*process
	base        string
	workflowKey string // what n8n's credential carries
	operatorKey string // what the tests read with
}

// settings has times that a test can wait for, and leaves all else as it is.
const settings = `
destinations:
  paid: {ask_after: 0s, not_found_after: 0s}
  paid-patient: {ask_after: 0s, not_found_after: 30s}
`

// startHoldfast builds the binary and starts it on a database of its own in dir.
func startHoldfast(ctx context.Context, dir string) (*holdfast, error) {
	binary := os.Getenv("HOLDFAST_E2E_BINARY")
	if binary == "" {
		root, err := repoRoot()
		if err != nil {
			return nil, err
		}
		binary = filepath.Join(dir, "holdfast")
		build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", binary, "./cmd/holdfast")
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build cmd/holdfast: %w\n%s", err, out)
		}
	}
	config := filepath.Join(dir, "holdfast.yaml")
	if err := os.WriteFile(config, []byte(settings), 0o600); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	h := &holdfast{base: fmt.Sprintf("http://127.0.0.1:%d", port), workflowKey: secret(), operatorKey: secret()}
	h.process, err = startProcess("holdfast", dir, []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + dir,
		fmt.Sprintf("HOLDFAST_ADDR=127.0.0.1:%d", port),
		"HOLDFAST_DATABASE_URL=sqlite://" + filepath.Join(dir, "holdfast.db"),
		"HOLDFAST_CONFIG=" + config,
		"HOLDFAST_API_KEYS=n8n:workflow:" + h.workflowKey + ",op:operator:" + h.operatorKey,
	}, binary)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := h.await(ctx, func(ctx context.Context) error { return getOK(ctx, h.base+"/readyz") }); err != nil {
		h.stop()
		return nil, fmt.Errorf("holdfast is not ready: %w", err)
	}
	return h, nil
}

// claim is what GET /claims says about one row, as far as the tests look at it.
type claim struct {
	ID             string          `json:"claim_id"`
	Source         string          `json:"source"`
	IdempotencyKey string          `json:"idempotency_key"`
	Step           string          `json:"step"`
	Kind           string          `json:"kind"`
	Status         string          `json:"status"`
	Attempt        int             `json:"attempt"`
	ResultID       *string         `json:"result_id"`
	Result         json.RawMessage `json:"result"`
}

// claims lists the claims of a source.
func (h *holdfast) claims(ctx context.Context, source string) ([]claim, error) {
	var page struct {
		Items []claim `json:"items"`
	}
	err := callJSON(ctx, http.MethodGet, h.base+"/claims?limit=200&source="+url.QueryEscape(source),
		map[string]string{"Authorization": "Bearer " + h.operatorKey}, nil, &page)
	return page.Items, err
}

// letter is what GET /dlq/{id} says, as far as the tests look at it.
type letter struct {
	ID             string          `json:"id"`
	Status         string          `json:"status"`
	Reason         string          `json:"reason"`
	ErrorClass     string          `json:"error_class"`
	AttemptCount   int             `json:"attempt_count"`
	NextRetryAt    *time.Time      `json:"next_retry_at"`
	Summary        string          `json:"summary"`
	WorkflowID     string          `json:"workflow_id"`
	ClaimID        string          `json:"claim_id"`
	Play           string          `json:"play"`
	ProviderKey    string          `json:"provider_key"`
	HTTPStatus     int             `json:"http_status"`
	Message        string          `json:"message"`
	Method         string          `json:"method"`
	URL            string          `json:"url"`
	Input          string          `json:"input"`
	Reports        int             `json:"reports"`
	LeaseExpiresAt *time.Time      `json:"lease_expires_at"`
	Payload        json.RawMessage `json:"payload"`
	Attempts       []struct {
		Kind        string `json:"kind"`
		Status      string `json:"status"`
		Attempt     int    `json:"attempt"`
		ExecutionID string `json:"execution_id"`
		Message     string `json:"message"`
		Owner       string `json:"owner"`
		Reason      string `json:"reason"`
	} `json:"attempts"`
}

// letters gives the letters of a workflow with all there is to each, the newest first.
func (h *holdfast) letters(ctx context.Context, workflowID string) ([]letter, error) {
	var page struct {
		Items []letter `json:"items"`
	}
	if err := h.asOperator(ctx, http.MethodGet, "/dlq?limit=200&workflow_id="+url.QueryEscape(workflowID), nil, &page); err != nil {
		return nil, err
	}
	for i, l := range page.Items {
		var err error
		if page.Items[i], err = h.letter(ctx, l.ID); err != nil {
			return nil, err
		}
	}
	return page.Items, nil
}

func (h *holdfast) letter(ctx context.Context, id string) (l letter, err error) {
	err = h.asOperator(ctx, http.MethodGet, "/dlq/"+id, nil, &l)
	return l, err
}

// requeue makes a letter due at once.
func (h *holdfast) requeue(ctx context.Context, id string) error {
	return h.asOperator(ctx, http.MethodPost, "/dlq/"+id+"/requeue", map[string]string{"authorized_by": "e2e", "reason": "no time to wait"}, nil)
}

func (h *holdfast) asOperator(ctx context.Context, method, path string, body, out any) error {
	return callJSON(ctx, method, h.base+path, map[string]string{"Authorization": "Bearer " + h.operatorKey}, body, out)
}

func getOK(ctx context.Context, address string) error {
	return callJSON(ctx, http.MethodGet, address, nil, nil, nil)
}

// client is for all requests of the suite; a redirect is an answer like any other. Each request has a connection of its
// own: n8n closes idle ones, and one that is closed while a request is on its way leaves open whether that arrived.
var client = &http.Client{
	Timeout:       patience,
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// callJSON sends body as JSON and reads a 2xx answer into out; both may be nil.
func callJSON(ctx context.Context, method, address string, headers map[string]string, body, out any) error {
	var content io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, address, content)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %d %s", method, req.URL.Path, res.StatusCode, raw)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("%s %s: %w in %s", method, req.URL.Path, err, raw)
	}
	return nil
}
