package storetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/failure"
	"holdfast/internal/ledger"
	"holdfast/internal/store"
)

// letterBytes: payloads, errors and results come back as the bytes that were received, and text as it was given.
func letterBytes(w *world) {
	for i, text := range ugly {
		w.row(fmt.Sprint("json ", i), func(w *world) {
			given := i%2 == 0
			mods := []tell{harmless, func(r *deadletter.Report) { r.Error = []byte(text) }}
			if given {
				mods = append(mods, input(text))
			} else {
				w.grant(w.event("key", w.run("7"), payload(text)))
			}
			id := w.told(w.failed("7", mods...)).ID
			w.pass(backoff(1) * 2)
			l := w.handed()
			if got, _ := w.letter(id); string(l.Payload) != text || string(got.Payload) != text || string(got.Error) != text {
				w.Errorf("handed out %.80q, payload %.80q, error %.80q; want %.80q", l.Payload, got.Payload, got.Error, text)
			}
			w.closed(id, by(l, deadletter.Resolve, func(e *deadletter.Ending) { e.Result = []byte(text) }), deadletter.Resolved, "replayed")
			if got, _ := w.letter(id); string(got.LastResult) != text || string(got.Payload) != text {
				w.Errorf("result %.80q, want %.80q", got.LastResult, text)
			}
		})
	}
	for i, text := range []string{"7:0:0 \u2028 😀 '\"\\", "Charge {{ $json }}\u00a0", "日本語, {curly}, \"quoted\", NULL", `\N \x00 \u0000`, strings.Repeat("é", 30_000), "'; drop table letters; --"} {
		w.row(fmt.Sprint("text ", i), func(w *world) {
			short := text
			if len(short) > 100 {
				short = "7"
			}
			r := w.failed(short, ofEvent(text), func(r *deadletter.Report) {
				r.WorkflowName, r.Node, r.Message, r.URL, r.IdempotencyKey, r.Verdict.Summary, r.Key.Account, r.Key.IdempotencyKey = text, text, text, text, text, text, text, text
			})
			id := w.told(r).ID
			l, entries := w.letter(id)
			if l.ExecutionID != short || l.WorkflowName != text || l.Node != text || l.Message != text || l.URL != text || l.ProviderKey != text ||
				l.Summary != text || l.Key.Account != text || entries[0].Node != text || entries[0].Message != text || entries[0].ExecutionID != short {
				w.Errorf("%.80q became %+.2000v", text, l)
			}
			w.known(r, id)
			e := byPerson(deadletter.Discard)
			e.AuthorizedBy, e.Reason = short, text
			w.closed(id, e, deadletter.Discarded, "discarded")
			if _, entries = w.letter(id); entries[1].By != short || entries[1].Reason != text {
				w.Errorf("%+.2000v", entries[1])
			}
			w.pass(time.Second)
		})
	}
}

// letterRestart: what was answered is there for another Store on the same database.
func letterRestart(w *world) {
	c := w.grant(w.event("key", w.run("7"), payload(`{"n":1}`)))
	r := w.failed("7")
	id := w.told(r).ID
	w.pass(backoff(1) * 2)
	w.told(w.failed("9", harmless))
	held := w.hand("poll")
	if len(held) != 1 {
		w.Fatalf("%+v", held)
	}
	if err := w.store.SetMark(w.Context(), "mark", "position"); err != nil {
		w.Fatal(err)
	}
	before := w.letterDump()
	if err := w.store.Close(); err != nil {
		w.Fatal(err)
	}
	if _, _, err := w.store.Report(w.Context(), w.failed("10")); err == nil {
		w.Error("a closed store took a report")
	}
	w.store = w.beside()
	if after := w.letterDump(); after != before {
		w.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	w.known(r, id)
	if again := w.hand("poll"); len(again) != 1 || again[0].LeaseToken() != held[0].LeaseToken() || string(again[0].Payload) != `{"n":1}` {
		w.Errorf("%+v", again)
	}
	w.closed(id, by(held[0], deadletter.Resolve), deadletter.Resolved, "replayed")
	w.status(c.ID, ledger.Failed)
	if mark, err := w.store.Mark(w.Context(), "mark"); err != nil || mark != "position" {
		w.Errorf("%q, %v", mark, err)
	}
}

// letterCrowd makes letters of several kinds, a second apart, and returns them newest first.
func letterCrowd(w *world) []deadletter.Letter {
	w.Helper()
	var ids []string
	for i := range 24 {
		w.pass(time.Second)
		mods := []tell{atDestination([]string{"stripe", "github", ""}[i%3], []string{"crm", ""}[i%2]), input(`"` + strings.Repeat("x", 100) + `"`)}
		if i%4 != 0 {
			mods = append(mods, harmless)
		}
		if i%5 == 0 {
			mods = append(mods, verdict(wrongCredential))
		}
		if i%6 == 0 {
			mods = append(mods, inWorkflow("Other"))
		}
		l := w.told(w.failed(fmt.Sprint(100+i), mods...))
		if i%7 == 0 {
			w.close(l.ID, byPerson(deadletter.Discard))
		}
		ids = append(ids, l.ID)
	}
	slices.Reverse(ids)
	letters := make([]deadletter.Letter, len(ids))
	for i, id := range ids {
		letters[i], _ = w.letter(id)
	}
	return letters
}

func (w *world) walkLetters(f deadletter.Filter, limit int) (ids []string) {
	w.Helper()
	f.Limit = limit
	for range 100 {
		page, next, err := w.store.Letters(w.Context(), f)
		if err != nil || len(page) > limit {
			w.Fatalf("%v, %d letters of at most %d", err, len(page), limit)
		}
		for i := range page {
			if len(page[i].Payload) != 0 {
				w.Errorf("a list brings no payloads: %.80q", page[i].Payload)
			}
			ids = append(ids, page[i].ID)
		}
		if next == "" {
			return ids
		}
		if len(page) == 0 {
			w.Fatal("a cursor behind an empty page")
		}
		f.Cursor = next
	}
	w.Fatal("the pages never end")
	return nil
}

// letterLists: filters, and pages that bring each letter once, newest first.
func letterLists(w *world) {
	letters := letterCrowd(w)
	from, to := letters[15].CreatedAt, letters[5].CreatedAt
	for name, filter := range map[string]struct {
		f    deadletter.Filter
		pass func(*deadletter.Letter) bool
	}{
		"all":            {deadletter.Filter{}, func(*deadletter.Letter) bool { return true }},
		"status":         {deadletter.Filter{Status: deadletter.Dead}, func(l *deadletter.Letter) bool { return l.Status == deadletter.Dead }},
		"workflow":       {deadletter.Filter{WorkflowID: "Other"}, func(l *deadletter.Letter) bool { return l.WorkflowID == "Other" }},
		"workflow, case": {deadletter.Filter{WorkflowID: "OTHER"}, func(*deadletter.Letter) bool { return false }},
		"source":         {deadletter.Filter{Source: "stripe"}, func(l *deadletter.Letter) bool { return l.Key.Source == "stripe" }},
		"destination":    {deadletter.Filter{Destination: "crm"}, func(l *deadletter.Letter) bool { return l.Destination == "crm" }},
		"class":          {deadletter.Filter{Class: "auth"}, func(l *deadletter.Letter) bool { return l.Class == failure.Auth }},
		"from":           {deadletter.Filter{From: from}, func(l *deadletter.Letter) bool { return l.CreatedAt >= from }},
		"to":             {deadletter.Filter{To: to}, func(l *deadletter.Letter) bool { return l.CreatedAt < to }},
		"several": {deadletter.Filter{Status: deadletter.Queued, Source: "github", WorkflowID: w.wf(), From: from}, func(l *deadletter.Letter) bool {
			return l.Status == deadletter.Queued && l.Key.Source == "github" && l.WorkflowID == w.wf() && l.CreatedAt >= from
		}},
		"nothing": {deadletter.Filter{Source: "nowhere"}, func(*deadletter.Letter) bool { return false }},
	} {
		w.row(name, func(w *world) {
			var want []string
			for i := range letters {
				if filter.pass(&letters[i]) {
					want = append(want, letters[i].ID)
				}
			}
			for _, limit := range []int{50, 24, 7, 1} {
				if got := w.walkLetters(filter.f, limit); !slices.Equal(got, want) {
					w.Errorf("limit %d: got %v, want %v", limit, got, want)
				}
			}
		})
	}
}

// letterStats: counts of what stands.
func letterStats(w *world) {
	stats := func() deadletter.Stats {
		w.Helper()
		s, err := w.store.LetterStats(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		return s
	}
	if s := stats(); len(s.ByStatus) != 0 || s.Due != 0 || s.OldestDueAt != 0 || s.OldestDeadAt != 0 || s.InputsMissing != 0 {
		w.Errorf("%+v, want nothing", s)
	}
	letters := letterCrowd(w)
	w.told(w.failed("7")) // it has no input
	w.pass(time.Hour)
	held := w.handed(handLimit(1))
	letters, _, err := w.store.Letters(w.Context(), deadletter.Filter{Limit: len(letters) + 1})
	if err != nil {
		w.Fatal(err)
	}
	want := deadletter.Stats{ByStatus: map[deadletter.Status]int64{}, ByClass: map[string]int64{}, ByWorkflow: map[string]int64{}}
	for i := range letters {
		l := &letters[i]
		want.ByStatus[l.Status]++
		if l.Status == deadletter.Queued && (want.OldestDueAt == 0 || l.NextRetryAt < want.OldestDueAt) {
			want.OldestDueAt = l.NextRetryAt
		}
		if l.Status == deadletter.Queued {
			want.Due++
		}
		if l.Status.Open() {
			want.ByClass[string(l.Class)]++
			want.ByWorkflow[l.WorkflowID]++
		}
	}
	got := stats()
	if !maps.Equal(got.ByStatus, want.ByStatus) || !maps.Equal(got.ByClass, want.ByClass) || !maps.Equal(got.ByWorkflow, want.ByWorkflow) ||
		got.Due != want.Due || got.OldestDueAt != want.OldestDueAt || got.InputsMissing != 1 {
		w.Errorf("%+v, want %+v", got, want)
	}
	if got.OldestDeadAt == 0 || got.OldestDeadAt >= w.now() || got.ByStatus[deadletter.Replaying] != 1 || held.ID == "" {
		w.Errorf("%+v", got)
	}
	for i := range 12 {
		w.told(w.failed("7", inWorkflow(fmt.Sprint("Many", i))))
	}
	if n := len(stats().ByWorkflow); n != 10 {
		w.Errorf("%d workflows, want the ten with the most", n)
	}
}

// letterInputs: payloads that n8n is to be asked for.
func letterInputs(w *world) {
	ctx := w.Context()
	wanted := func(limit int, want ...string) {
		w.Helper()
		letters, err := w.store.WantedInputs(ctx, limit)
		if err != nil {
			w.Fatal(err)
		}
		got := make([]string, len(letters))
		for i := range letters {
			got[i] = letters[i].ID
		}
		if !slices.Equal(got, want) {
			w.Errorf("got %v, want %v", got, want)
		}
	}
	wanted(10)
	inCode := func(r *deadletter.Report) { r.Method, r.URL, r.SafeToRepeat = "", "", true } // no request tells the input
	a, b := w.told(w.failed("7", inCode)).ID, w.told(w.failed("8", inCode)).ID
	w.told(w.failed("9", inCode, input(`1`)))
	wanted(10, a, b)
	wanted(1, a)
	if err := w.store.SetInput(ctx, a, []byte(ugly[0])); err != nil {
		w.Fatal(err)
	}
	if err := w.store.SetInput(ctx, b, nil); err != nil {
		w.Fatal(err)
	}
	wanted(10)
	if l, _ := w.letter(a); string(l.Payload) != ugly[0] || l.InputState != deadletter.InputStored || l.Status != deadletter.Queued {
		w.Errorf("%+v", l)
	}
	if l, _ := w.letter(b); len(l.Payload) != 0 || l.InputState != deadletter.InputMissing {
		w.Errorf("%+v", l)
	}
	w.unmoved("what is stored stays", func() {
		for _, id := range []string{a, "no such letter"} {
			if err := w.store.SetInput(ctx, id, []byte(`"late"`)); err != nil {
				w.Error(err)
			}
		}
	})
	c := w.told(w.failed("10", inCode)).ID
	w.pass(backoff(1) * 2)
	for _, l := range w.hand("") {
		if l.ID != c {
			continue
		}
		if err := w.store.SetInput(ctx, c, []byte(`2`)); err != nil {
			w.Fatal(err)
		}
		if got := w.closed(c, by(l, deadletter.Resolve), deadletter.Resolved, "replayed"); string(got.Payload) != `2` {
			w.Errorf("%+v", got)
		}
	}
	w.stands(c, deadletter.Resolved, "replayed", 2)
}

// letterExecutions: which executions were reported, and which succeeded after all.
func letterExecutions(w *world) {
	knows := func(workflow, execution string, want bool) {
		w.Helper()
		if got, err := w.store.KnowsExecution(w.Context(), workflow, execution); err != nil || got != want {
			w.Errorf("%s %s: %v, %v; want %v", workflow, execution, got, err, want)
		}
	}
	succeeded := func(workflow, execution string, want int) {
		w.Helper()
		if got, err := w.store.Succeeded(w.Context(), workflow, execution); err != nil || got != want {
			w.Errorf("%s %s: %d, %v; want %d", workflow, execution, got, err, want)
		}
	}
	knows(w.wf(), "7", false)
	queued := w.told(w.failed("7", harmless)).ID
	dead := w.told(w.failed("8")).ID
	done := w.told(w.failed("9")).ID
	w.closed(done, byPerson(deadletter.Discard), deadletter.Discarded, "discarded")
	retried := w.told(w.failed("10", harmless)).ID
	w.told(w.failed("11", harmless, retryOf("10")))
	for execution, want := range map[string]bool{"7": true, "8": true, "9": true, "10": true, "11": true, "12": false, "": false} {
		knows(w.wf(), execution, want)
		knows("Other", execution, false)
	}
	succeeded("Other", "7", 0)
	succeeded(w.wf(), "", 0)
	succeeded(w.wf(), "12", 0)
	for execution, id := range map[string]string{"7": queued, "8": dead, "11": retried} {
		succeeded(w.wf(), execution, 1)
		if l, entries := w.letter(id); l.Status != deadletter.Resolved || l.Reason != "succeeded" || entries[len(entries)-1].Kind != "settled" {
			w.Errorf("%s (%s), %s", l.Status, l.Reason, kinds(entries))
		}
		w.unmoved("again", func() { succeeded(w.wf(), execution, 0) })
	}
	succeeded(w.wf(), "9", 0)
	w.stands(done, deadletter.Discarded, "discarded", 1)
	w.row("after its event was completed", func(w *world) {
		c := w.grant(w.event("key", w.run("7")))
		w.ended(complete(worker(c), "r"), ledger.Completed)
		id := w.told(w.failed("7")).ID
		w.stands(id, deadletter.Dead, "failed_after_completion", 1)
		succeeded(w.wf(), "7", 1)
		if l, _ := w.letter(id); l.Status != deadletter.Resolved {
			w.Errorf("%s (%s)", l.Status, l.Reason)
		}
	})
}

// letterMarks: named positions.
func letterMarks(w *world) {
	for _, step := range []struct{ name, set, want string }{{"a", "", ""}, {"a", "1", "1"}, {"b", "", ""}, {"a", "2 '\"\\ 😀", "2 '\"\\ 😀"}, {"A", "", ""}} {
		if step.set != "" {
			if err := w.store.SetMark(w.Context(), step.name, step.set); err != nil {
				w.Fatal(err)
			}
		}
		if got, err := w.store.Mark(w.Context(), step.name); err != nil || got != step.want {
			w.Errorf("%s: %q, %v; want %q", step.name, got, err, step.want)
		}
	}
	other := store.Options{Now: w.clock.now}
	if got, err := openStore(w.T, w.url, other).Mark(w.Context(), "a"); err != nil || got != "2 '\"\\ 😀" {
		w.Errorf("%q, %v", got, err)
	}
}
