package rehearse

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// scene is one scenario while it is played. After the first call without an answer it calls nothing more: err says why.
type scene struct {
	*rehearsal
	ctx   context.Context
	n     int // which scenario it is, in its keys
	err   error
	seen  []string
	wrong []string
}

// see notes what was seen, for the table.
func (s *scene) see(format string, args ...any) {
	if s.err == nil {
		s.seen = append(s.seen, fmt.Sprintf(format, args...))
	}
}

// want demands what the contract promises.
func (s *scene) want(what string, got, want any) {
	if s.err == nil && got != want {
		s.wrong = append(s.wrong, fmt.Sprintf("%s is %s, want %s", what, shown(got), shown(want)))
	}
}

func shown(v any) string {
	if text := fmt.Sprint(v); text != "" {
		return text
	}
	return "empty"
}

// judge compares with what the destination really did.
func (s *scene) judge(what, name string, want int) {
	s.want("the destination's count of "+name, s.destination.count(what), want)
}

// times is how often the destination did it, in words.
func (s *scene) times(what string) string {
	switch n := s.destination.count(what); n {
	case 0:
		return "never"
	case 1:
		return "once"
	case 2:
		return "twice"
	default:
		return fmt.Sprintf("%d times", n)
	}
}

// call tells whether there is an answer to go by.
func (s *scene) call(method, path string, body, out any) bool {
	return s.err == nil && s.answered(method+" "+path, s.client.call(s.ctx, method, path, body, out))
}

// answered notes a refusal as wrong; no answer at all ends the scenario.
func (s *scene) answered(what string, err error) bool {
	var r *refusal
	switch {
	case errors.As(err, &r):
		s.wrong = append(s.wrong, fmt.Sprintf("%s: %s", what, r))
	case err != nil && s.err == nil:
		s.err = err
	}
	return err == nil
}

// key is one that no other run and no other scenario has.
func (s *scene) key(name string) string { return fmt.Sprintf("%s-%d-%s", s.run, s.n, name) }

// execution is a run of the rehearsal's workflow, as n8n would make one.
type execution struct {
	*scene
	id string
}

func (s *scene) execution(n int) *execution { return &execution{s, s.key(fmt.Sprint("run-", n))} }

// claim is what is claimed; the rest is the same for all.
type claim struct {
	Key     string `json:"idempotency_key"`
	Step    string `json:"step,omitempty"`
	Payload any    `json:"payload,omitempty"`
	Seconds int    `json:"lease_seconds,omitempty"`
	Entity  string `json:"entity,omitempty"`
	Version int    `json:"version,omitempty"`
}

type claimCall struct {
	claim
	Source       string `json:"source"`
	Account      string `json:"account"`
	Owner        string `json:"owner"`
	WorkflowID   string `json:"workflow_id"`
	WorkflowName string `json:"workflow_name"`
	ExecutionID  string `json:"execution_id"`
}

// granted is the answer to a claim.
type granted struct {
	Decision    string `json:"decision"`
	ClaimID     string `json:"claim_id"`
	Attempt     int    `json:"attempt"`
	LeaseToken  string `json:"lease_token"`
	ProviderKey string `json:"provider_key"`
	ResultID    string `json:"result_id"`
}

func (g *granted) proceeds() bool { return g.Decision == "proceed" }

func (x *execution) body(c claim) claimCall {
	return claimCall{c, source, x.run, x.id + ":0:0", x.workflow(), "holdfast rehearse", x.id}
}

func (x *execution) claim(c claim) (g granted) {
	x.call(http.MethodPost, "/claim", x.body(c), &g)
	return g
}

// do claims, and acts only where it may: what a workflow does with each step.
func (x *execution) do(c claim) granted {
	g := x.claim(c)
	if g.proceeds() {
		x.finish(g, x.destination.act(c.Key+c.Step))
	}
	return g
}

// ended is the answer to an ending.
type ended struct {
	Status string `json:"status"`
}

// finish reports a receipt; without one it is the end of an event.
func (x *execution) finish(g granted, receipt string) {
	if !g.proceeds() {
		return // there is nothing to finish
	}
	body := map[string]any{"lease_token": g.LeaseToken}
	if receipt != "" {
		body["result_id"], body["result"] = receipt, map[string]any{"receipt": receipt}
	}
	x.want("the status after /complete", x.report("/complete", body), "completed")
}

// report sends an ending, and returns the status that it brought the claim to.
func (x *execution) report(path string, body map[string]any) string {
	var e ended
	x.call(http.MethodPost, path, body, &e)
	return e.Status
}

// stored demands the answer that is given for what is done: the receipt of the destination, under the first one's key.
func (s *scene) stored(who string, g granted, what string, first granted) {
	s.want(who, g.Decision, "completed")
	s.want(who+"'s result_id", g.ResultID, s.destination.receipt(what))
	s.want(who+"'s provider_key", g.ProviderKey, first.ProviderKey)
}

// Leases of a second end, and letters that are due are handed out, within a few seconds, or never.
const (
	shortLease = 1 // second
	lookEvery  = 250 * time.Millisecond
	maxLooks   = 20
)

// until waits for what comes with time only.
func (s *scene) until(come func() bool) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for range maxLooks {
		if come() || s.err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-s.ctx.Done(): // the next call says so
		}
	}
}

// outlast claims until nobody holds the claim any more.
func (s *scene) outlast(claim func() granted) (g granted) {
	s.until(func() bool {
		g = claim()
		return g.Decision != "in_progress"
	})
	return g
}

// result is what the scenario came to.
func (s *scene) result(name string) Result {
	if s.err != nil {
		s.wrong = append(s.wrong, s.err.Error())
	}
	return Result{Scenario: name, Seen: strings.Join(s.seen, "; "), Passed: len(s.wrong) == 0, Wrong: s.wrong}
}
