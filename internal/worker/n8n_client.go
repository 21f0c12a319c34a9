package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"holdfast/internal/deadletter"
)

const (
	n8nTime   = 10 * time.Second
	n8nAnswer = 16 << 20
	n8nPage   = 250 // the most that n8n gives at once

	// While n8n cannot be asked, it is left alone for longer and longer.
	n8nFirstRest = 5 * time.Second
	n8nLastRest  = 5 * time.Minute
)

var (
	// errN8NAway: n8n cannot be asked at present. The client has said so in the log, once.
	errN8NAway = errors.New("n8n cannot be asked at present")
	// errNoExecution: n8n says itself that it has no such execution.
	errNoExecution = errors.New("n8n has no such execution")
	// errTooLarge: the answer is larger than what is read.
	errTooLarge = errors.New("n8n's answer is too large")
	errNoAPI    = errors.New("its public API is not there: is the address right, and the API turned on?")
)

// unusable is an answer about this one question; others may fare better.
type unusable string

func (u unusable) Error() string { return "n8n's answer is of no use: " + string(u) }

// badStatus is the same, told by the status.
type badStatus int

func (s badStatus) Error() string { return "n8n answers " + strconv.Itoa(int(s)) }

// n8nClient asks n8n's public API, and only reads.
type n8nClient struct {
	base   *url.URL
	key    string
	client *http.Client
	log    *slog.Logger
	now    func() time.Time

	mu        sync.Mutex
	failures  int       // in a row
	restUntil time.Time // not asked before
	awaySince time.Time
	outages   int           // that have ended
	ahead     time.Duration // by how much n8n's clock is ahead of ours
	provenAt  time.Time     // when a list of executions was last answered
}

func newN8NClient(base, key string, log *slog.Logger) (*n8nClient, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("the address of n8n must be http:// or https:// with a host")
	}
	u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/api/v1")
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return &n8nClient{
		base: u, key: key, log: log, now: time.Now,
		client: &http.Client{
			Timeout: n8nTime,
			// A redirect would carry the key to an address that nobody configured.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport: &http.Transport{ // no proxy: only the configured host is spoken to
				DialContext:           (&net.Dialer{Timeout: n8nTime}).DialContext,
				ResponseHeaderTimeout: n8nTime,
				MaxIdleConns:          2,
				IdleConnTimeout:       30 * time.Second,
			},
		},
	}, nil
}

var executionID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// execution reads one run, with its data if wanted.
func (c *n8nClient) execution(ctx context.Context, id string, withData bool) ([]byte, error) {
	if !executionID.MatchString(id) { // whatever a report said; n8n has numbers
		return nil, errNoExecution
	}
	raw, status, err := c.get(ctx, url.Values{"includeData": {strconv.FormatBool(withData)}}, "executions", id)
	switch {
	case err != nil:
		return nil, err
	case status == http.StatusNotFound, status == http.StatusBadRequest: // an id that is no number
		return nil, c.believe(ctx, raw)
	case status != http.StatusOK:
		c.back()
		return nil, badStatus(status)
	}
	if e, ok := deadletter.ReadExecution(raw); !ok || e.ID != id {
		return nil, unusable("it is not the execution that was asked for")
	}
	c.back()
	return raw, nil
}

// believe decides whether a refusal means that there is no such execution. It does if n8n says it in its own form and
// answers its list: behind a wrong address, or with the public API turned off, everything is a 404.
func (c *n8nClient) believe(ctx context.Context, raw []byte) error {
	var said struct {
		Message *string `json:"message"`
	}
	if json.Unmarshal(raw, &said) != nil || said.Message == nil {
		return c.away(errNoAPI, 0)
	}
	c.mu.Lock()
	proven := !c.provenAt.IsZero() && c.now().Sub(c.provenAt) < 10*time.Minute
	c.mu.Unlock()
	if !proven {
		if _, _, err := c.list(ctx, "error", 1, ""); err != nil {
			return err
		}
	}
	c.back()
	return errNoExecution
}

// list reads a page of runs with a status, the newest first.
func (c *n8nClient) list(ctx context.Context, status string, limit int, cursor string) (runs []deadletter.Execution, next string, err error) {
	query := url.Values{"status": {status}, "limit": {strconv.Itoa(limit)}, "includeData": {"false"}}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	raw, code, err := c.get(ctx, query, "executions")
	switch {
	case err != nil:
		return nil, "", err
	case code == http.StatusNotFound:
		return nil, "", c.away(errNoAPI, 0)
	case code != http.StatusOK:
		c.back()
		return nil, "", badStatus(code)
	}
	var page struct {
		Data       []json.RawMessage `json:"data"`
		NextCursor *string           `json:"nextCursor"`
	}
	if err := json.Unmarshal(raw, &page); err != nil || page.Data == nil {
		return nil, "", c.away(errNoAPI, 0)
	}
	c.back()
	for _, one := range page.Data {
		if e, ok := deadletter.ReadExecution(one); ok {
			runs = append(runs, e)
		}
	}
	c.mu.Lock()
	c.provenAt = c.now()
	c.mu.Unlock()
	if page.NextCursor != nil {
		next = *page.NextCursor
	}
	return runs, next, nil
}

// get asks once. What makes n8n as a whole unusable is errN8NAway; what else came is the caller's to judge,
// who also says whether it proves that n8n is there.
func (c *n8nClient) get(ctx context.Context, query url.Values, path ...string) (raw []byte, status int, err error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	c.mu.Lock()
	resting := c.now().Before(c.restUntil)
	c.mu.Unlock()
	if resting {
		return nil, 0, errN8NAway
	}
	address := c.base.JoinPath(append([]string{"api", "v1"}, path...)...)
	address.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), http.NoBody)
	if err != nil {
		return nil, 0, unusable("its address cannot be made")
	}
	req.Header.Set("X-N8N-API-KEY", c.key)
	req.Header.Set("Accept", "application/json")
	resp, err := c.client.Do(req)
	if err == nil {
		defer resp.Body.Close()
		raw, err = io.ReadAll(io.LimitReader(resp.Body, n8nAnswer+1))
	}
	if ctx.Err() != nil { // we stop: nothing is known of n8n
		return nil, 0, ctx.Err()
	}
	if err != nil {
		return nil, 0, c.away(cause(err), 0)
	}
	if reason := refusal(resp.StatusCode); reason != "" {
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return nil, 0, c.away(fmt.Errorf("it answers %d%s", resp.StatusCode, reason), time.Duration(max(seconds, 0))*time.Second)
	}
	c.see(resp.Header.Get("Date"))
	if len(raw) > n8nAnswer {
		c.back()
		return nil, 0, errTooLarge
	}
	return bytes.TrimSpace(raw), resp.StatusCode, nil
}

// refusal tells why a status concerns n8n as a whole, or is empty.
func refusal(status int) string {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return ": the API key is not valid, or lacks execution:read and execution:list"
	case status >= 300 && status < 400:
		return ", a redirect, which is not followed: write the address to which it leads"
	case status == http.StatusTooManyRequests:
		return ": it wants to be asked less often"
	case status == http.StatusBadGateway, status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		return ": it is not running, or starting"
	}
	return ""
}

// cause takes the address out of a client's error, which is in the log already.
func cause(err error) error {
	var outer *url.Error
	if errors.As(err, &outer) {
		return outer.Err
	}
	return err
}

// away notes that n8n cannot be asked and for how long it is left alone. The log has one line for an outage.
func (c *n8nClient) away(why error, atLeast time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	rest := min(n8nFirstRest<<min(c.failures, 10), n8nLastRest)
	c.restUntil = c.now().Add(min(max(rest, atLeast), n8nLastRest))
	if c.failures++; c.failures == 1 {
		c.awaySince = c.now()
		c.log.Warn("n8n cannot be asked: inputs of letters and missed runs wait; storing reports does not", "n8n", c.base.Host, "cause", why)
	}
	return errN8NAway
}

// back notes that n8n answers.
func (c *n8nClient) back() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failures > 0 {
		c.outages++
		c.log.Info("n8n answers again", "n8n", c.base.Host, "after", c.now().Sub(c.awaySince).Round(time.Second))
	}
	c.failures, c.restUntil = 0, time.Time{}
}

// see measures n8n's clock.
func (c *n8nClient) see(date string) {
	if at, err := http.ParseTime(date); err == nil {
		c.mu.Lock()
		c.ahead = at.Sub(c.now())
		c.mu.Unlock()
	}
}

// clock is the time by n8n's own clock, to a second or two: the times of its runs are by that.
func (c *n8nClient) clock() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now().Add(c.ahead)
}

// ended counts the outages that have ended. After one, runs may have crashed.
func (c *n8nClient) ended() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.outages
}
