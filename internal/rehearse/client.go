package rehearse

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// callTime is how long an answer may take.
const callTime = 10 * time.Second

// maxAnswer bounds what is read of an answer.
const maxAnswer = 16 << 20

var errInterrupted = errors.New("interrupted")

// client calls the sidecar as a workflow does.
type client struct {
	url, key string
	http     *http.Client
}

func newClient(address, key string) *client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = racers
	return &client{address, key, &http.Client{
		Transport: transport, Timeout: callTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// refusal is an answer other than 200.
type refusal struct {
	status        int
	code, message string
}

func (r *refusal) Error() string {
	if r.code == "" {
		return fmt.Sprintf("HTTP %d, which is no answer of Holdfast", r.status)
	}
	return fmt.Sprintf("%d %s: %s", r.status, r.code, r.message)
}

// call sends body, unless it is nil, and decodes a 200 into out. The error is a *refusal for any other answer. A call
// that has begun is not cut off by the end of ctx: only its answer says what there is to clean up.
func (c *client) call(ctx context.Context, method, path string, body, out any) error {
	if ctx.Err() != nil {
		return errInterrupted
	}
	var sent io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), method, c.url+path, sent)
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return unreachable(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return unreachable(err)
	}
	if resp.StatusCode != http.StatusOK {
		return refused(resp.StatusCode, text)
	}
	if err := json.Unmarshal(text, out); err != nil {
		return &refusal{status: resp.StatusCode}
	}
	return nil
}

func refused(status int, text []byte) *refusal {
	var said struct{ Code, Message string }
	if json.Unmarshal(text, &said) != nil {
		said.Code = ""
	}
	return &refusal{status, said.Code, said.Message}
}

// unreachable leaves out the address, which the library repeats.
func unreachable(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return fmt.Errorf("no answer: %w", err)
}
