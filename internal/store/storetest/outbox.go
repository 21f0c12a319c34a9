package storetest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/store"
)

// gather is longer than a message waits for more of its group.
const gather = 30 * time.Second

func (w *world) raise(group, title string) {
	w.Helper()
	if err := w.store.RaiseAlert(w.Context(), deadletter.Alert{Group: group, Title: title, Text: "text of " + title, Path: "/dlq/" + title}); err != nil {
		w.Fatal(err)
	}
}

// due leases a message of a target; nil where none is due.
func (w *world) due(target string) *deadletter.OutboxMessage {
	w.Helper()
	m, ok, err := w.store.LeaseAlert(w.Context(), target)
	if err != nil {
		w.Fatal(err)
	}
	if !ok {
		return nil
	}
	return &m
}

func (w *world) wantDue(target, title string, count int64) *deadletter.OutboxMessage {
	w.Helper()
	m := w.due(target)
	if m == nil || m.Title != title || m.Count != count {
		w.Fatalf("due %+v, want %q with %d", m, title, count)
	}
	return m
}

func (w *world) wantNone(why string) {
	w.Helper()
	if m := w.due(""); m != nil {
		w.Fatalf("%s: due %+v", why, m)
	}
}

func (w *world) sent(m *deadletter.OutboxMessage) {
	w.Helper()
	if err := w.store.AlertSent(w.Context(), m); err != nil {
		w.Fatal(err)
	}
}

func (w *world) notSent(m *deadletter.OutboxMessage) (again time.Duration, given bool) {
	w.Helper()
	again, given, err := w.store.AlertFailed(w.Context(), m)
	if err != nil {
		w.Fatal(err)
	}
	return again, given
}

func (w *world) watch() {
	w.Helper()
	if err := w.store.WatchAlerts(w.Context()); err != nil {
		w.Fatal(err)
	}
}

// alertsOfOneGroup: a thousand equal alerts are one message with a count, which waits for more of them, but not for ever.
func alertsOfOneGroup(w *world) {
	w.raise("dead/wf/auth", "first")
	w.raise("other", "other")
	w.wantNone("at once")
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for j := range 50 {
				if err := w.store.RaiseAlert(w.Context(), deadletter.Alert{Group: "dead/wf/auth", Title: fmt.Sprint("more", i, j), Text: "more"}); err != nil {
					w.Error(err)
				}
			}
		})
	}
	wg.Wait()
	w.pass(2*time.Second - time.Microsecond)
	w.wantNone("before it was quiet")
	w.pass(time.Microsecond)
	first := w.wantDue("", "first", 1001)
	if first.Last != "more" || first.Text != "text of first" || first.Path != "/dlq/first" {
		w.Errorf("%+v", first)
	}
	w.sent(first)
	w.sent(w.wantDue("", "other", 1))
	w.wantNone("all are sent")

	start := w.now()
	for w.now() < start.Add(29*time.Second) { // never quiet
		w.raise("flood", "flood")
		w.pass(time.Second)
	}
	w.wantNone("a flood that goes on")
	w.raise("flood", "flood")
	w.pass(time.Second)
	w.wantDue("", "flood", 30)
}

// alertSpacing: what comes after a message was sent is gathered for five minutes.
func alertSpacing(w *world) {
	w.raise("g", "one")
	w.pass(gather)
	m := w.wantDue("", "one", 1)
	w.raise("g", "two") // while it is being sent
	w.sent(m)
	w.sent(m) // said again
	for range 3 {
		w.raise("g", "three")
		w.pass(time.Minute)
	}
	w.pass(2*time.Minute - time.Microsecond)
	w.wantNone("within five minutes")
	w.pass(time.Microsecond)
	m = w.wantDue("", "two", 4)
	if m.Last != "text of three" {
		w.Errorf("the newest is %q", m.Last)
	}
	w.sent(m)
	w.pass(time.Hour)
	w.wantNone("nothing came")
	w.raise("g", "four")
	w.pass(gather)
	w.sent(w.wantDue("", "four", 1))
	w.pass(9 * 24 * time.Hour)
	w.watch()
	if left := w.query("select grp from outbox"); left != "" {
		w.Errorf("long sent and still there: %s", left)
	}
}

// alertRetries: after 10 s, doubling to an hour, gathering meanwhile; given up three days after the newest.
func alertRetries(w *world) {
	w.raise("g", "one")
	w.pass(gather)
	for attempt, want := range []time.Duration{10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600} {
		m := w.wantDue("", "one", int64(attempt+1))
		if m.Attempts != int64(attempt+1) {
			w.Errorf("attempt %d, want %d", m.Attempts, attempt+1)
		}
		again, given := w.notSent(m)
		if again != want*time.Second || given {
			w.Fatalf("attempt %d: again in %v (given up: %v), want %v s", attempt+1, again, given, int(want))
		}
		w.raise("g", "more")
		w.pass(again - time.Microsecond)
		w.wantNone("before its time")
		w.pass(time.Microsecond)
	}
	m := w.wantDue("", "one", 12)
	w.pass(time.Minute) // whoever had it is gone
	late := m
	w.wantDue("", "one", 12)
	w.notSent(late)
	w.sent(late)
	w.wantNone("it is leased again; the first sender's word is void")
	w.pass(3*24*time.Hour - 2*time.Hour)
	m = w.wantDue("", "one", 12)
	if _, given := w.notSent(m); given {
		w.Error("given up within three days of the newest")
	}
	w.pass(time.Hour)
	m = w.wantDue("", "one", 12)
	if _, given := w.notSent(m); !given {
		w.Error("not given up after three days")
	}
	w.pass(24 * time.Hour)
	w.wantNone("given up")
	if got := w.query("select unsent, given_up_at > 0 as given from outbox"); !strings.Contains(got, "unsent=0 ") || strings.Contains(got, "given=0") || strings.Contains(got, "given=false") {
		w.Error(got)
	}
	w.raise("g", "back")
	w.pass(gather)
	w.wantDue("", "back", 1)
}

func (w *world) withTargets(targets ...string) *world {
	w.Helper()
	one := *w
	one.store = openStore(w.T, w.url, store.Options{Now: w.clock.now, Policies: testPolicies, Alerts: store.AlertOptions{Targets: targets}})
	return &one
}

// alertTargets: each target has its own messages; one that nobody sends to any more leaves them to the others.
func alertTargets(w *world) {
	two := w.withTargets("chat", "mail")
	two.raise("g", "one")
	w.pass(gather)
	two.sent(two.wantDue("chat", "one", 1))
	m := two.wantDue("mail", "one", 1)
	two.notSent(m)
	two.raise("g", "two")
	w.pass(5 * time.Minute)
	two.sent(two.wantDue("chat", "two", 1))
	two.wantNone("nothing goes to the log")
	two.notSent(two.wantDue("mail", "one", 2))

	three := w.withTargets("chat", "pager")
	w.pass(9 * time.Minute)
	three.watch()
	if m := three.due("pager"); m != nil {
		w.Errorf("adopted too early: %+v", m)
	}
	w.pass(2 * time.Minute)
	three.watch()
	three.sent(three.wantDue("pager", "one", 2))
	for _, target := range []string{"chat", "mail"} {
		if m := three.due(target); m != nil {
			w.Errorf("%s: %+v", target, m)
		}
	}
}

// alertText: any text can be stored, and is cut.
func alertText(w *world) {
	long := strings.Repeat("ü", 5000)
	if err := w.store.RaiseAlert(w.Context(), deadletter.Alert{Group: "g\x00" + long, Title: "a\x00b\nc" + long, Text: "x\x00\xffy\nz" + long, Path: "/p"}); err != nil {
		w.Fatal(err)
	}
	w.pass(gather)
	m := w.due("")
	if m == nil || !strings.HasPrefix(m.Title, "a b cü") || len(m.Title) > 200 || !strings.HasPrefix(m.Text, "x \uFFFDy\nzü") || len(m.Text) > 1200 {
		w.Errorf("%+v", m)
	}
}

// raceAlerts: senders that come at once never get the same message, and none is forgotten.
func raceAlerts(t *testing.T, open Open) {
	stores := migrated(t, open(t), 2)
	const groups = 40
	var wg sync.WaitGroup
	for i := range groups {
		wg.Go(func() {
			for range 3 {
				if err := stores[i%2].RaiseAlert(t.Context(), deadletter.Alert{Group: fmt.Sprint("g", i), Title: "t"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	var mu sync.Mutex
	got := map[string]int64{}
	deadline := time.Now().Add(time.Minute)
	for i := range 8 {
		wg.Go(func() {
			ask := time.NewTicker(50 * time.Millisecond)
			defer ask.Stop()
			for time.Now().Before(deadline) {
				m, ok, err := stores[i%2].LeaseAlert(t.Context(), "")
				if err == nil && ok {
					err = stores[(i+1)%2].AlertSent(t.Context(), &m)
				}
				mu.Lock()
				if ok {
					got[m.Group] += m.Count
				}
				done := len(got) == groups
				mu.Unlock()
				if err != nil {
					t.Error(err)
					return
				}
				if done {
					return
				}
				if !ok {
					<-ask.C // as a sender's loop does
				}
			}
		})
	}
	wg.Wait()
	for group, count := range got {
		if count != 3 {
			t.Errorf("%s: %d alerts were sent, want 3", group, count)
		}
	}
	if len(got) != groups {
		t.Errorf("%d groups, want %d", len(got), groups)
	}
}
