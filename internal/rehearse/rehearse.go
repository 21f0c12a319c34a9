// Package rehearse plays an n8n workflow and a paid destination against a running sidecar, over its HTTP API alone, and
// judges what came of it by what the destination really did.
package rehearse

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// source is that of all claims of rehearsals, and person who decides in them.
const (
	source = "rehearsal"
	person = "rehearsal"
)

// Result is what came of one scenario.
type Result struct {
	Scenario string   `json:"scenario"`
	Seen     string   `json:"seen"`
	Passed   bool     `json:"passed"`
	Wrong    []string `json:"wrong"` // empty where it passed
}

// Report is what came of a rehearsal.
type Report struct {
	Run       string   `json:"run"`
	Passed    bool     `json:"passed"` // everything did, and nothing is left
	Scenarios []Result `json:"scenarios"`
	Left      []string `json:"left"` // what could not be cleaned up, and how a person can
}

// rehearsal is one run of all scenarios.
type rehearsal struct {
	client      *client
	run         string
	destination *destination
}

// workflow is the id of this run's workflow: no other letters are ever touched.
func (r *rehearsal) workflow() string { return "rehearsal-" + r.run }

// why is the reason of what is decided in this run.
func (r *rehearsal) why() string { return "rehearsal " + r.run }

// Run plays all scenarios against the sidecar at address, with an operator's key (or none), and cleans up. The error
// says in one line why nothing could be rehearsed. When ctx ends it stops early, and cleans up all the same.
func Run(ctx context.Context, address, key string) (*Report, error) {
	r := &rehearsal{
		client: newClient(address, key), run: strings.ToLower(rand.Text()[:12]), destination: &destination{done: map[string][]string{}},
	}
	if err := r.ready(ctx); err != nil {
		return nil, err
	}
	out := &Report{Run: r.run, Passed: true, Left: []string{}}
	var stopped error
	for i, sc := range scenarios {
		s := &scene{rehearsal: r, ctx: ctx, n: i + 1, wrong: []string{}}
		if stopped == nil {
			sc.play(s)
			stopped = s.err
		} else {
			s.wrong = append(s.wrong, "not played")
		}
		result := s.result(sc.name)
		out.Scenarios, out.Passed = append(out.Scenarios, result), out.Passed && result.Passed
	}
	if left := r.tidy(ctx); len(left) > 0 {
		out.Left, out.Passed = left, false
	}
	return out, nil
}

// ready tells in one line what makes a rehearsal impossible.
func (r *rehearsal) ready(ctx context.Context) error {
	var pauses struct {
		Items []struct {
			Scope        string `json:"scope"`
			AuthorizedBy string `json:"authorized_by"`
			Reason       string `json:"reason"`
		} `json:"items"`
	}
	err := r.client.call(ctx, http.MethodGet, "/readyz", nil, &struct{}{})
	if err == nil {
		err = r.client.call(ctx, http.MethodGet, "/replays?limit=1", nil, &struct{}{}) // only an operator may
	}
	if err == nil {
		err = r.client.call(ctx, http.MethodGet, "/pauses", nil, &pauses)
	}
	var no *refusal
	switch {
	case errors.As(err, &no) && (no.status == http.StatusUnauthorized || no.status == http.StatusForbidden):
		return fmt.Errorf("the key is refused by the sidecar at %s (%w): give an operator's secret", r.client.url, err)
	case errors.As(err, &no):
		return fmt.Errorf("the sidecar at %s is not ready: %w", r.client.url, err)
	case err != nil:
		return fmt.Errorf("the sidecar is not reachable at %s: %w", r.client.url, err)
	}
	for _, p := range pauses.Items {
		if p.Scope == "all" || p.Scope == "source."+source {
			return fmt.Errorf("work is paused (%s, by %s: %s), so nothing can be rehearsed: DELETE /pauses/%s first", p.Scope, p.AuthorizedBy, p.Reason, p.Scope)
		}
	}
	return nil
}
