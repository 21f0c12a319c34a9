package proof

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"holdfast/internal/pgtest"
)

// runTime is how long the callers of a concurrent history go on.
func runTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("HOLDFAST_PROOF_SECONDS")
	if text == "" {
		return 5 * time.Second
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatal("HOLDFAST_PROOF_SECONDS must be a number of seconds")
	}
	return time.Duration(n) * time.Second
}

// Two replicas share one PostgreSQL and take turns at being killed: what callers see is what one ledger could have
// said, one call after the other.
func TestAtOnceReplicas(t *testing.T) {
	t.Parallel()
	url := pgtest.Schema(t)
	atOnceOn(t, newReplica(t, url), newReplica(t, url))
}

// One node on SQLite is killed and started again.
func TestAtOnceSQLite(t *testing.T) {
	t.Parallel()
	atOnceOn(t, newReplica(t, "sqlite://"+filepath.Join(t.TempDir(), "holdfast.db")))
}

const (
	callers  = 6
	killEach = 400 // calls
	perRound = 160 // calls, before the callers turn to new keys
	inRound  = 4   // keys that are worked on at a time
)

func atOnceOn(t *testing.T, replicas ...*replica) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runTime(t))
	defer cancel()
	c := &crowd{replicas: replicas, began: time.Now(), tokens: map[string][]held{}, kill: make(chan struct{}, 1)}
	seed := rand.Uint64()
	var work sync.WaitGroup
	for n := range callers {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		work.Go(func() {
			for ctx.Err() == nil {
				c.once(ctx, r, n)
			}
		})
	}
	kills := 0
	for done := false; !done; {
		select {
		case <-c.kill:
			r := replicas[kills%len(replicas)]
			r.kill()
			if err := r.start(); err != nil {
				t.Error(err)
				done = true
			}
			kills++
		case <-ctx.Done():
			done = true
		}
	}
	work.Wait()
	c.judge(t, seed, kills)
}

// crowd is many callers at once and what they have seen.
type crowd struct {
	replicas []*replica
	began    time.Time
	count    atomic.Int64
	kill     chan struct{}

	mu     sync.Mutex
	tokens map[string][]held // by key, as handed out
	ops    []porcupine.Operation
}

// held is a token in somebody's hands; all callers share them, so that old ones are used too.
type held struct {
	attempt int
	text    string
	look    bool
}

// now is the wall's time carried on by the monotonic clock.
func (c *crowd) now() int64 { return c.began.Add(time.Since(c.began)).UnixNano() }

// once makes one call.
func (c *crowd) once(ctx context.Context, r *rand.Rand, n int) {
	q := c.choose(r, n)
	on := c.replicas[r.IntN(len(c.replicas))]
	address, ok := on.base(ctx)
	if !ok {
		return
	}
	q.call = c.now()
	a, err := c.ask(on, address, &q)
	if errors.Is(err, errNotSent) {
		return
	}
	q.done = c.now()
	back := q.done
	if err != nil {
		a, q.done, back = heard{}, never, never
	}
	c.mu.Lock()
	c.ops = append(c.ops, porcupine.Operation{ClientId: n, Input: q.asked, Call: q.call, Output: a, Return: back})
	c.mu.Unlock()
	if c.count.Add(1)%killEach == 0 {
		select {
		case c.kill <- struct{}{}:
		default: // one is being killed
		}
	}
}

// request is a call with the text of its token.
type request struct {
	asked
	token string
}

func (c *crowd) choose(r *rand.Rand, n int) (q request) {
	round := int(c.count.Load() / perRound)
	number := inRound*round + r.IntN(inRound)
	if r.IntN(6) == 0 { // what was left behind
		number = r.IntN(inRound * (round + 1))
	}
	q.key, q.effect = fmt.Sprintf("k%d", number), number%2 == 0
	c.mu.Lock()
	tokens := slices.Clone(c.tokens[q.key])
	c.mu.Unlock()
	if len(tokens) == 0 || r.IntN(5) < 2 {
		q.op, q.lease = "claim", time.Duration(1+r.IntN(2))*time.Second
		if r.IntN(3) > 0 {
			q.owner = fmt.Sprint("owner", n%3)
		}
		return q
	}
	t := tokens[len(tokens)-1]
	if r.IntN(4) == 0 {
		t = tokens[r.IntN(len(tokens))]
	}
	q.op = []string{"mark-failed", "mark-unknown", "extend", "look", "look", "complete", "complete by key", "mark-failed"}[r.IntN(8)]
	switch {
	case q.op == "look":
		q.lease = time.Second
		return q
	case (q.op == "complete" || q.op == "complete by key") && r.IntN(2) == 0: // not too soon: nothing happens afterwards
		q.op = "mark-failed"
	case q.op == "extend" && t.look:
		q.op = "mark-failed"
	}
	if q.op == "complete by key" {
		q.result = fmt.Sprint("r", r.IntN(2))
		return q
	}
	q.token, q.attempt = t.text, t.attempt
	if t.look {
		q.look = t.text
	}
	switch q.op {
	case "complete":
		q.result = fmt.Sprint("r", r.IntN(2))
	case "extend":
		q.lease = time.Second
	}
	return q
}

// said is what any of the calls may answer.
type said struct {
	Code      string `json:"code"`
	Decision  string `json:"decision"`
	Status    any    `json:"status"` // an error's is a number
	Attempt   int    `json:"attempt"`
	Reentrant bool   `json:"reentrant"`
	Changed   bool   `json:"changed"`
	ResultID  string `json:"result_id"`
	Until     string `json:"lease_expires_at"`
	Token     string `json:"lease_token"`
}

func (s said) heard() heard {
	a := heard{
		answered: true, code: s.Code, decision: s.Decision, attempt: s.Attempt, reentrant: s.Reentrant, changed: s.Changed, result: s.ResultID,
	}
	a.status, _ = s.Status.(string)
	if until, err := time.Parse(time.RFC3339Nano, s.Until); err == nil {
		a.until = until.UnixNano()
	}
	return a
}

func (c *crowd) ask(on *replica, address string, q *request) (heard, error) {
	body := map[string]any{"lease_token": q.token}
	path := "/" + q.op
	switch q.op {
	case "claim":
		body = map[string]any{"source": q.key, "idempotency_key": "k", "owner": q.owner, "lease_seconds": int(q.lease / time.Second)}
		if q.effect {
			body["destination"] = "bank"
		}
	case "look":
		path, body = "/reconcile/lease", map[string]any{"source": q.key, "lease_seconds": int(q.lease / time.Second)}
	case "complete by key":
		path, body = "/complete", map[string]any{"source": q.key, "idempotency_key": "k", "result_id": q.result}
	case "complete":
		body["result_id"] = q.result
	case "mark-failed":
		body["outcome"] = "not_executed"
	case "extend":
		body["lease_seconds"] = int(q.lease / time.Second)
	}
	var raw json.RawMessage
	if _, err := on.post(address, path, body, &raw); err != nil {
		return heard{}, err
	}
	if q.op == "look" {
		return c.looked(q, raw)
	}
	var s said
	if err := json.Unmarshal(raw, &s); err != nil {
		return heard{}, err
	}
	a := s.heard()
	if q.op == "claim" && a.decision == proceed {
		c.hold(q.key, held{a.attempt, s.Token, false})
	}
	return a, nil
}

func (c *crowd) looked(q *request, raw json.RawMessage) (heard, error) {
	var list []said
	if err := json.Unmarshal(raw, &list); err != nil || len(list) > 1 {
		return heard{}, errors.Join(err, fmt.Errorf("%d were handed out", len(list)))
	}
	if len(list) == 0 {
		return heard{answered: true}, nil
	}
	a := heard{answered: true, look: list[0].Token, attempt: list[0].Attempt, until: list[0].heard().until}
	c.hold(q.key, held{a.attempt, a.look, true})
	return a, nil
}

// hold adds a token to those that all callers share; a lease handed out again is there already.
func (c *crowd) hold(key string, t held) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.tokens[key], t) {
		c.tokens[key] = append(c.tokens[key], t)
	}
}

// judge asks porcupine about each key by itself.
func (c *crowd) judge(t *testing.T, seed uint64, kills int) {
	t.Helper()
	slack := c.slack()
	keys := map[string][]porcupine.Operation{}
	lost := 0
	seen := map[string]int{}
	for _, op := range c.ops {
		q, a := op.Input.(asked), op.Output.(heard)
		keys[q.key] = append(keys[q.key], op)
		seen[words(q.op, a.code, a.decision)]++
		if !a.answered {
			lost++
		}
	}
	t.Logf("%d calls, %d without an answer, %d keys, %d kills, clocks within %v, seed %d: %v", len(c.ops), lost, len(keys), kills, slack, seed, seen)
	steps.Add(int64(len(c.ops)))
	if kills == 0 || lost == 0 {
		t.Log("no call lost its answer: this run proves less than others")
	}
	model := atOnce(slack)
	for key, ops := range keys {
		switch porcupine.CheckOperationsTimeout(model, ops, patience) {
		case porcupine.Illegal:
			t.Errorf("%s: no order of these calls explains the answers:\n%s", key, story(ops))
		case porcupine.Unknown:
			t.Errorf("%s: not decided in %v; %d calls", key, patience, len(ops))
		}
	}
}

// slack is how far the servers' clocks are from the callers': what the answers show, and a margin for what they do not.
func (c *crowd) slack() time.Duration {
	var apart int64
	for _, op := range c.ops {
		q, a := op.Input.(asked), op.Output.(heard)
		if q.op == "claim" && a.decision == proceed && !a.reentrant {
			served := a.until - int64(q.lease)
			apart = max(apart, q.call-served, served-q.done)
		}
	}
	return 200*time.Millisecond + 2*time.Duration(apart)
}

func story(ops []porcupine.Operation) string {
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	out := ""
	for _, op := range ops {
		out += describe(op.Input.(asked), op.Output.(heard)) + "\n"
	}
	return out
}
