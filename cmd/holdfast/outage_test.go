package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"holdfast/internal/pgtest"
)

// outage is a crowd of letters for one destination, worked off through two programs while other work goes on there.
type outage struct {
	*testing.T
	programs [2]atomic.Pointer[program]
	handed   sync.Map // id -> *atomic.Int64, how many leases there were of a letter
	resolved atomic.Int64
	others   atomic.Int64 // claims that proceeded
	done     atomic.Bool

	mu     sync.Mutex
	starts []span
}

// span is between asking and being told: the start lies in it.
type span struct{ asked, told time.Time }

func (o *outage) started(asked time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.starts = append(o.starts, span{asked, time.Now()})
}

// overRate tells of starts that lie certainly within one window, and are more than n.
func (o *outage) overRate(n int, window time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, first := range o.starts {
		within := 0
		for _, s := range o.starts {
			if !s.asked.Before(first.asked) && s.told.Before(first.asked.Add(window)) {
				within++
			}
		}
		if within > n {
			o.Fatalf("%d starts within %v", within, window)
		}
	}
}

// lease takes what is due; ok is false where no answer came, as while the program is being killed.
func (o *outage) lease(p *program, owner string) (items []map[string]any, ok bool) {
	resp, err := client.Post(p.url+"/dlq/lease", "application/json", bytes.NewBufferString(`{"limit":7,"owner":"`+owner+`"}`))
	if err != nil {
		return nil, false
	}
	defer resp.Body.Close()
	err = json.NewDecoder(resp.Body).Decode(&items)
	return items, err == nil
}

// worker plays letters until all are done. It asks and reports through whichever program is there.
func (o *outage) worker(n int) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	asked := time.Now()
	for turn := n; !o.done.Load(); turn++ {
		<-tick.C
		items, ok := o.lease(o.programs[turn%2].Load(), fmt.Sprint("worker-", n))
		for _, item := range items {
			tokens, _ := o.handed.LoadOrStore(item["id"], new(sync.Map))
			if _, again := tokens.(*sync.Map).LoadOrStore(item["lease_token"], true); !again {
				o.started(asked)
			}
			body := map[string]any{"lease_token": item["lease_token"]}
			status, a, err := o.programs[(turn+1)%2].Load().try(o.Context(), http.MethodPost, fmt.Sprintf("/dlq/%v/resolve", item["id"]), body, "")
			switch {
			case err != nil: // the next lease gives it again
			case status != http.StatusOK:
				o.Errorf("/resolve: %d %v", status, a)
			case a["changed"] == true:
				o.resolved.Add(1)
			}
		}
		if ok { // else the answer that is lost may come with the next
			asked = time.Now()
		}
	}
}

// live claims for the same destination as long as the letters last; who is told to wait asks again.
func (o *outage) live() {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	asked := time.Now()
	for turn := 0; !o.done.Load(); turn++ {
		<-tick.C
		body := map[string]any{"source": "shop", "idempotency_key": fmt.Sprint("live-", o.others.Load()), "destination": "crm", "owner": "live"}
		status, a, err := o.programs[turn%2].Load().try(o.Context(), http.MethodPost, "/claim", body, "")
		switch {
		case err != nil: // it is just being killed
			continue
		case status == http.StatusOK && a["decision"] == "proceed":
			o.started(asked)
			o.others.Add(1)
		case status != http.StatusOK || a["decision"] != "wait":
			o.Errorf("/claim: %d %v", status, a)
		}
		asked = time.Now()
	}
}

// After an outage everything comes back at once, and somebody presses the button twice. The destination's limit is one
// for both programs, for letters and for other work, and holds through a kill -9; each letter is handed out once.
func TestAfterAnOutage(t *testing.T) {
	t.Parallel()
	const letters, rate, window = 60, 20, 2 * time.Second
	database := pgtest.Database(t)
	env := []string{"HOLDFAST_DATABASE_URL=" + database, "HOLDFAST_CONFIG=" + configFile(t, fmt.Sprintf("destinations:\n  crm: {rate: %d/2s}\n", rate))}
	o := &outage{T: t}
	for i, p := range startBoth(t, env...) {
		o.programs[i].Store(p)
	}
	decide := map[string]any{"authorized_by": "asha@example.test", "reason": "it is back"}
	for i := range letters {
		report := map[string]any{"event_id": fmt.Sprint("order-", i), "workflow_id": "kT4bS0qX", "error_message": "later", "http_status": 429, "method": "POST", "destination": "crm", "payload": map[string]any{"n": i}}
		_, a := o.programs[0].Load().call(t, http.MethodPost, "/dlq", report, "")
		for press := range 2 {
			if status, again := o.programs[press].Load().call(t, http.MethodPost, fmt.Sprintf("/dlq/%v/requeue", a["id"]), decide, ""); status != http.StatusOK || again["changed"] != (press == 0) {
				t.Fatalf("/requeue: %d %v", status, again)
			}
		}
	}
	var work sync.WaitGroup
	work.Go(o.live)
	eventually(t, func() bool { return o.others.Load() >= 3 || t.Failed() })
	for n := range 4 {
		work.Go(func() { o.worker(n) })
	}
	eventually(t, func() bool { return o.resolved.Load() >= letters/3 || t.Failed() })
	gone := o.programs[1].Load()
	if err := gone.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-gone.ended
	o.programs[1].Store(start(t, env...))
	p := o.programs[0].Load()
	db := beside(t, database)
	resolved := func() int {
		return count(t, db, `select count(*) from letters where status = 'resolved'`)
	}
	eventually(t, func() bool { return resolved() == letters || t.Failed() })
	o.done.Store(true)
	work.Wait()

	o.handed.Range(func(id, tokens any) bool {
		n := 0
		tokens.(*sync.Map).Range(func(any, any) bool { n++; return true })
		_, a := p.call(t, http.MethodGet, fmt.Sprint("/dlq/", id), nil, "")
		if n != 1 || a["attempt_count"] != 2.0 || a["status"] != "resolved" {
			t.Errorf("letter %v was handed out %d times: %v", id, n, a)
		}
		return true
	})
	if n := len(o.starts); n != letters+int(o.others.Load()) {
		t.Errorf("%d starts, want those of %d letters and %d claims", n, letters, o.others.Load())
	}
	o.overRate(rate, window)
	t.Logf("%d letters and %d claims", letters, o.others.Load())
}
