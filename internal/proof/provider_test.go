package proof

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// provider is a paid destination of the test's own. It counts what it charged for each business action, and can tell
// the truth. One that honours keys does with an Idempotency-Key as Stripe does: it answers from memory what it has
// charged, declined (402) or failed at (500), keeps nothing of a 400, 401 or 429, refuses the same key with another
// body, answers 409 while the first request is under way, and forgets a key after keyMemory.
type provider struct {
	honours bool
	lag     time.Duration // until its search shows a charge
	now     func() time.Time

	mu      sync.Mutex
	made    int
	charges map[string][]receipt // by business action
	keys    map[string]*keyed
	fates   map[string][]fate // of requests to come over HTTP, by business action
}

const keyMemory = 24 * time.Hour

// receipt is one charge.
type receipt struct {
	id, key string
	at      time.Time
}

// keyed is what is remembered of an Idempotency-Key.
type keyed struct {
	body    string
	since   time.Time
	running bool
	reply   reply
}

// payment is a request to pay for a business action.
type payment struct{ action, key, body string }

// reply is an answer: 200 with the id of a charge, or a refusal.
type reply struct {
	status int
	id     string
}

func (r reply) String() string {
	if none, ok := noStatus[r.status]; ok {
		return none[0]
	}
	return strings.TrimSpace(fmt.Sprint(r.status, " ", r.id))
}

func newProvider(honours bool, lag time.Duration, now func() time.Time) *provider {
	return &provider{honours: honours, lag: lag, now: now, charges: map[string][]receipt{}, keys: map[string]*keyed{}, fates: map[string][]fate{}}
}

// accept takes a request in. What needs no work is answered at once; else act is the work, done when it is called. refuse is
// the status with which the provider will not do it; 0: it will.
func (p *provider) accept(q payment, refuse int) (r reply, act func() reply) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if refuse == http.StatusUnauthorized {
		return reply{status: refuse}, nil // before anything is looked at
	}
	var k *keyed
	if p.honours && q.key != "" {
		k = p.keys[q.key]
		if k != nil && p.now().Before(k.since.Add(keyMemory)) {
			switch {
			case k.body != q.body:
				return reply{status: http.StatusBadRequest}, nil
			case k.running:
				return reply{status: http.StatusConflict}, nil
			}
			return k.reply, nil
		}
	}
	switch refuse {
	case http.StatusBadRequest, http.StatusTooManyRequests:
		return reply{status: refuse}, nil
	}
	if p.honours && q.key != "" {
		k = &keyed{body: q.body, since: p.now(), running: true}
		p.keys[q.key] = k
	}
	return reply{}, func() reply { return p.act(q, k, refuse) }
}

func (p *provider) act(q payment, k *keyed, refuse int) reply {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := reply{status: refuse}
	if refuse == 0 {
		p.made++
		r = reply{http.StatusOK, fmt.Sprintf("ch_%d", p.made)}
		p.charges[q.action] = append(p.charges[q.action], receipt{r.id, q.key, p.now()})
	}
	if k != nil {
		k.running, k.reply = false, r
	}
	return r
}

// find is the provider's search, by the key where it knows keys, else by the business action: the newest charge
// that it shows already, or nothing.
func (p *provider) find(q payment) (id string, found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.charges[q.action] {
		if (!p.honours || c.key == q.key) && !p.now().Before(c.at.Add(p.lag)) {
			id, found = c.id, true
		}
	}
	return id, found
}

// charged is the truth about a business action: the ids of all that was charged for it.
func (p *provider) charged(action string) (ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.charges[action] {
		ids = append(ids, c.id)
	}
	return ids
}

// twice are the business actions that were charged more than once.
func (p *provider) twice() (actions []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, action := range slices.Sorted(maps.Keys(p.charges)) {
		if len(p.charges[action]) > 1 {
			actions = append(actions, action)
		}
	}
	return actions
}

// fate is what becomes of one request over HTTP. The zero fate: it is done and answered.
type fate struct {
	refuse  int           // the status of a refusal
	lose    bool          // it is done, and the connection ends without an answer
	arrived chan struct{} // closed when the request is there; with goOn
	goOn    chan struct{} // it is done when this is closed, whether or not its client still waits
}

// next says what becomes of the next requests for a business action, in order.
func (p *provider) next(action string, fates ...fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fates[action] = append(p.fates[action], fates...)
}

// ServeHTTP is the provider at its address: POST /charges {"action","note"} and GET /search?action=&key=.
func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/search" {
		out := []map[string]string{}
		if id, ok := p.find(payment{action: r.FormValue("action"), key: r.FormValue("key")}); ok {
			out = append(out, map[string]string{"id": id})
		}
		writeReply(w, http.StatusOK, map[string]any{"data": out})
		return
	}
	var body struct{ Action, Note string }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		writeReply(w, http.StatusBadRequest, map[string]any{"error": "not JSON"})
		return
	}
	var f fate
	p.mu.Lock()
	if list := p.fates[body.Action]; len(list) > 0 {
		f, p.fates[body.Action] = list[0], list[1:]
	}
	p.mu.Unlock()
	answer, act := p.accept(payment{body.Action, r.Header.Get("Idempotency-Key"), body.Action + body.Note}, f.refuse)
	if f.arrived != nil {
		close(f.arrived)
		<-f.goOn
	}
	if act != nil {
		answer = act()
	}
	switch {
	case f.lose:
		panic(http.ErrAbortHandler)
	case answer.status == http.StatusOK:
		writeReply(w, answer.status, map[string]any{"id": answer.id})
	default:
		writeReply(w, answer.status, map[string]any{"error": http.StatusText(answer.status)})
	}
}

func writeReply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may have gone
}

// What the proof stands on: the provider does with keys what Stripe does.
func TestProvider(t *testing.T) {
	t.Parallel()
	c := &clock{at: began}
	p := newProvider(true, time.Minute, c.now)
	do := func(key, body string, refuse int) reply {
		r, act := p.accept(payment{"order", key, body}, refuse)
		if act != nil {
			r = act()
		}
		return r
	}
	want := func(what string, got reply, status int, id string) {
		t.Helper()
		if got != (reply{status, id}) {
			t.Errorf("%s: %v, want %d %s", what, got, status, id)
		}
	}
	want("a 401 is not kept", do("k1", "a", 401), 401, "")
	want("a refusal of the body is not kept", do("k1", "b", 400), 400, "")
	_, act := p.accept(payment{"order", "k1", "a"}, 0)
	want("while it is under way", do("k1", "a", 0), 409, "")
	want("then it is done", act(), 200, "ch_1")
	want("the same again is answered from memory", do("k1", "a", 0), 200, "ch_1")
	want("another body", do("k1", "b", 0), 400, "")
	want("a 401 all the same", do("k1", "a", 401), 401, "")
	want("declined", do("k2", "a", 402), 402, "")
	want("declined again, from memory", do("k2", "a", 0), 402, "")
	want("failed", do("k3", "a", 500), 500, "")
	want("failed again, from memory", do("k3", "a", 0), 500, "")
	if _, found := p.find(payment{action: "order", key: "k1"}); found {
		t.Error("the search does not lag")
	}
	c.set(began.Add(time.Minute))
	if id, found := p.find(payment{action: "order", key: "k1"}); !found || id != "ch_1" {
		t.Errorf("the search finds %q", id)
	}
	c.set(began.Add(keyMemory))
	want("forgotten", do("k1", "a", 0), 200, "ch_2")
	if got := p.twice(); !slices.Equal(got, []string{"order"}) || len(p.charged("order")) != 2 {
		t.Errorf("charged twice: %v", got)
	}
	none := newProvider(false, 0, c.now)
	for range 2 {
		if r, act := none.accept(payment{"order", "k1", "a"}, 0); act == nil || act().status != 200 {
			t.Errorf("without keys each request is a charge: %v", r)
		}
	}
	if id, found := none.find(payment{action: "order"}); !found || id != "ch_2" || len(none.twice()) != 1 {
		t.Errorf("found %q, twice %v", id, none.twice())
	}
}
