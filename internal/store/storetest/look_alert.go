package storetest

import (
	"fmt"
	"strings"
	"time"

	"holdfast/internal/ledger"
	"holdfast/internal/store"
)

// alertOfOutage: what could not be asked is one alert for its source and destination, however many claims wait; it is
// repeated only while nobody answers, and says what waits when it is sent.
func alertOfOutage(w *world) {
	const rows = 50
	since := ""
	inVain := func(want int) {
		w.Helper()
		n := 0
		for got := w.look(""); len(got) > 0; got = w.look("") {
			for _, c := range got {
				if n++; since == "" {
					since = w.clock.now().Format(time.RFC3339)
					w.ended(markUnknown(looker(c)), ledger.Unknown) // its answer is lost
				}
				w.ended(markUnknown(looker(c)), ledger.Unknown)
			}
		}
		if n != want {
			w.Fatalf("%d looks, want %d", n, want)
		}
	}
	event := func(i int) *ledger.Request { return w.effect(w.key(i), to("psp"), kind(ledger.Event)) }
	for i := range rows {
		w.unknownAt(w.key(i), to("psp"), kind(ledger.Event))
	}
	w.pass(time.Minute)
	inVain(rows)
	for i := range 2 {
		w.ended(completeKey(event(i).Key, "called back"), ledger.Completed)
	}
	w.pass(gather)
	m := w.wantDue("", "src at psp: the destination cannot be asked about unknown claims", rows)
	if m.Group != "unreachable/src/psp" || m.Path != "/claims?status=unknown&source=src" || m.Last != "" ||
		!strings.HasPrefix(m.Text, "48 unknown claims wait") || !strings.Contains(m.Text, since) {
		w.Errorf("%+v", m)
	}
	w.sent(m)
	c, history := w.get(w.decide(event(2), ledger.DecisionUnknown).Claim.ID)
	if last := history[len(history)-1]; !kept(last) || last.Reason != ledger.CouldNotBeAsked || c.Looks != 1 {
		w.Errorf("%d looks, %+v", c.Looks, last)
	}
	for _, minutes := range []time.Duration{2, 4, 60} {
		w.pass(minutes * time.Minute)
		inVain(rows - 2)
		w.wantNone("six hours are not over")
	}
	w.pass(5 * time.Hour)
	m = w.due("")
	if m == nil || m.Count != 3*(rows-2) || !strings.Contains(m.Text, since) {
		w.Fatalf("%+v, want a second one", m)
	}
	w.sent(m)
	inVain(rows - 2)
	w.pass(time.Hour)
	got := w.look("rec")
	w.ended(complete(looker(got[0]), "found"), ledger.Completed)
	w.pass(5 * time.Hour)
	w.wantNone("it answers again")
	inVain(rows - 3)
	w.pass(gather)
	w.wantDue("", m.Title, rows-3)
	for i := range rows {
		w.ended(completeKey(event(i).Key, ""), ledger.Completed)
	}
	w.pass(2 * time.Minute) // nobody said that it was sent
	if m := w.due(""); m == nil || !strings.HasPrefix(m.Text, "Each is asked about again") {
		w.Errorf("%+v, want no number of what does not wait any more", m)
	}
}

// alertOfBlanks: a claim that no question can be made for says nothing of the destination. It comes again every hour
// and is told once a day, in words of its own.
func alertOfBlanks(w *world) {
	w.source = "psp"
	blank := w.unknownAt("blank", to(slow), kind(ledger.Event))
	var told []string
	for hour := range 30 {
		w.unknownAt(w.key(hour), to(slow), kind(ledger.Event))
		got := w.look("")
		if len(got) != 2 || got[0].ID != blank.ID {
			w.Fatalf("after %d hours: %d, want the one and a new one", hour, len(got))
		}
		e := markUnknown(looker(got[0]))
		e.Unasked, e.Message = true, "probe charge: the claim has no value for {reference}"
		w.ended(e, ledger.Unknown)
		w.ended(e, ledger.Unknown) // its answer is lost
		w.ended(complete(looker(got[1]), "found"), ledger.Completed)
		w.pass(time.Hour - time.Microsecond)
		if got := w.look(""); len(got) != 0 {
			w.Fatalf("%d came before an hour", len(got))
		}
		for m := w.due(""); m != nil; m = w.due("") {
			told = append(told, fmt.Sprint(hour, " ", m.Count, " ", m.Group))
			if !strings.Contains(m.Text, blank.ID) || !strings.Contains(m.Text, "no value for {reference}") {
				w.Errorf("%+v", m)
			}
			w.sent(m)
		}
		w.pass(time.Microsecond)
	}
	if want := "0 1 unaskable/psp/slow, 24 1 unaskable/psp/slow"; strings.Join(told, ", ") != want {
		w.Errorf("told %q, want %q", told, want)
	}
	c, history := w.get(blank.ID)
	if last := history[len(history)-1]; c.Looks != 0 || last.Reason != ledger.NothingToAsk || last.Message != "probe charge: the claim has no value for {reference}" {
		w.Errorf("%d looks, %+v", c.Looks, last)
	}
}

// watching is a world whose sidecar is there: it watches once a minute, and tells what it alerts of unasked claims.
type watching struct {
	*world
	group     string
	meanwhile func() // every minute
}

func newWatching(w *world) *watching {
	one := *w
	one.store = openStore(w.T, w.url, store.Options{Now: w.clock.now, Policies: testPolicies, Limits: testLimits})
	return &watching{&one, "unasked/" + w.source, func() {}}
}

// minutes pass; want is what is told in them.
func (x *watching) minutes(n int, want ...string) {
	x.Helper()
	var told []string
	for range n {
		x.watch()
		x.meanwhile()
		x.pass(time.Minute)
		for m := x.due(""); m != nil; m = x.due("") {
			if strings.HasPrefix(m.Group, x.group) {
				told = append(told, m.Title)
			}
			x.sent(m)
		}
	}
	if strings.Join(told, "\n") != strings.Join(want, "\n") {
		x.Errorf("%q was told, want %q", told, want)
	}
}

// alertOfUnasked: unknown claims that nobody asks about are told once a day for each source, whoever was to ask.
func alertOfUnasked(w *world) {
	w.row("once a day, by source", func(w *world) {
		x := newWatching(w)
		x.unknownAt("a")
		x.unknownAt("b", to("crm"))
		x.unknownAt("patient", to(slow))
		x.minutes(15)
		src := x.source
		x.minutes(2, "Nobody asks about 3 unknown claims of "+src)
		x.unknownAt("c", to("crm"))
		x.source += ".other"
		x.unknownAt("d")
		x.minutes(30, "Nobody asks about 1 unknown claims of "+x.source)
		x.pass(day)
		x.swept() // what has no long window waits for a person by now
		x.minutes(20, "Nobody asks about 1 unknown claims of "+src)
	})
	w.row("a reconciler that is behind", func(w *world) {
		x := newWatching(w)
		x.unknownAt("a")
		b := x.unknownAt("b", to("crm"))
		x.pass(time.Minute)
		x.meanwhile = func() { x.lookFor(&ledger.LookRequest{Source: x.source, CallerKey: "n8n", Limit: 1, LeaseSeconds: 60}) }
		x.minutes(30)
		x.meanwhile = func() {}
		x.ended(completeKey(b.Key, "called back"), ledger.Completed)
		x.minutes(20, "Nobody asks about 1 unknown claims of "+x.source) // it was asked about before
	})
	w.row("a probe that comes to some only", func(w *world) {
		x := newWatching(w)
		for i := range 3 {
			x.unknownAt(w.key(i), to("crm"))
		}
		x.unknownAt("b", to("bank"))
		x.unknownAt("m", step("mail"), to("crm"))
		x.pass(time.Minute)
		x.meanwhile = func() {
			x.lookFor(&ledger.LookRequest{CallerKey: "probe", Probe: true, Of: ledger.Match{Source: x.source, Step: "charge", Destination: "crm"}, Limit: 1, LeaseSeconds: 60})
		}
		x.minutes(20, "Nobody asks about 2 unknown claims of "+x.source)
	})
	w.row("answers that wait for their next look", func(w *world) {
		x := newWatching(w)
		x.unknownAt("a", to(slow))
		x.meanwhile = func() {
			for _, c := range x.look("") {
				x.ended(markUnknown(looker(c)), ledger.Unknown)
			}
		}
		x.minutes(4 * 60)
	})
}

// alertOfUnaskedLater: nobody is missed who could not ask: while the sidecar was away, or the claims were paused.
func alertOfUnaskedLater(w *world) {
	want := func(x *watching) string { return "Nobody asks about 1 unknown claims of " + x.source }
	w.row("the sidecar was away", func(w *world) {
		w.unknownAt("a")
		w.pass(time.Hour)
		x := newWatching(w)
		x.minutes(15)
		x.minutes(2, want(x))
	})
	w.row("the machine stood still", func(w *world) {
		x := newWatching(w)
		x.unknownAt("a")
		x.minutes(5)
		x.pass(time.Hour)
		x.minutes(15)
		x.minutes(2, want(x))
	})
	for scope, ends := range map[string]bool{"all": false, "source.SRC": true, "destination.crm": false, "workflow.Wf": true} {
		w.row("paused: "+scope, func(w *world) {
			x := newWatching(w)
			scope := strings.Replace(scope, "SRC", x.source, 1)
			x.unknownAt("a", to("crm"), workflow("Wf"))
			for range 2 {
				x.pause(scope, map[bool]time.Duration{true: 30 * time.Minute}[ends])
				x.minutes(31)
				if !ends {
					x.resume(scope)
				}
				x.minutes(10)
			}
			x.minutes(7, want(x))
		})
	}
}
