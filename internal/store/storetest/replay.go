package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// replayMod changes a request for a replay.
type replayMod = func(*deadletter.ReplayRequest)

func sampleOf(n int64) replayMod  { return func(r *deadletter.ReplayRequest) { r.SampleSize = n } }
func atMost(n int64) replayMod    { return func(r *deadletter.ReplayRequest) { r.MaxConcurrency = n } }
func limitOf(n int64) replayMod   { return func(r *deadletter.ReplayRequest) { r.Limit = n } }
func perMinute(n int64) replayMod { return func(r *deadletter.ReplayRequest) { r.RatePerMinute = n } }

func choosing(s deadletter.Selector) replayMod {
	return func(r *deadletter.ReplayRequest) { r.Selector = s }
}

// choosingQueued selects what is queued instead of what is dead.
func choosingQueued(r *deadletter.ReplayRequest) { r.Selector.Status = deadletter.Queued }

// allSampled is a replay that needs no approval, of one letter at a time.
func allSampled(r *deadletter.ReplayRequest) { r.SampleSize, r.MaxConcurrency = r.Limit, 1 }

// replayOf asks for the dead letters of the test's workflow.
func (w *world) replayOf(mods ...replayMod) *deadletter.ReplayRequest {
	w.Helper()
	id, err := uuid.NewV7()
	if err != nil {
		w.Fatal(err)
	}
	r := &deadletter.ReplayRequest{
		ID: id.String(), Selector: deadletter.Selector{WorkflowID: w.wf(), Status: deadletter.Dead}, Limit: 50,
		SampleSize: deadletter.DefaultSample, MaxConcurrency: deadletter.DefaultReplayAtOnce,
		AuthorizedBy: "ada", Reason: "the outage is over", ExpectedEffects: []byte(`{"orders":9007199254740993}`), CallerKey: "ops",
	}
	for _, m := range mods {
		m(r)
	}
	return r
}

// start begins a replay, or finds the one that it equals.
func (w *world) start(r *deadletter.ReplayRequest) (rep deadletter.Replay, known bool) {
	w.Helper()
	one := *r
	rep, known, err := w.store.StartReplay(w.Context(), &one)
	if err != nil {
		w.Fatalf("start: %v", err)
	}
	if now, _ := w.replay(rep.ID); fmt.Sprintf("%+v", now) != fmt.Sprintf("%+v", rep) {
		w.Fatalf("start answered %+v\nand it is %+v", rep, now)
	}
	return rep, known
}

// started begins a new replay and returns its id.
func (w *world) started(mods ...replayMod) string {
	w.Helper()
	rep, known := w.start(w.replayOf(mods...))
	if known {
		w.Fatalf("replay %s was open already", rep.ID)
	}
	return rep.ID
}

// forecast asks what a replay would do; that changes nothing.
func (w *world) forecast(r *deadletter.ReplayRequest) (f deadletter.Forecast) {
	w.Helper()
	before := w.acts()
	w.unmoved("a forecast", func() {
		one := *r
		one.ID, one.AuthorizedBy, one.Reason, one.ExpectedEffects = "", "", "", nil
		var err error
		if f, err = w.store.ForecastReplay(w.Context(), &one); err != nil {
			w.Fatal(err)
		}
	})
	if after := w.acts(); after != before {
		w.Fatalf("a forecast left a trace\nbefore:\n%s\nafter:\n%s", before, after)
	}
	return f
}

// acts are all replays and all of the history, as text.
func (w *world) acts() string {
	w.Helper()
	replays, _, err := w.store.Replays(w.Context(), deadletter.ReplayFilter{Limit: 200})
	if err != nil {
		w.Fatal(err)
	}
	return fmt.Sprintf("%+v\n%+v", replays, w.walkHistory(ledger.HistoryFilter{}, 200))
}

// replay reads a replay with its letters, and checks what holds for every one at any time. That a free place is never
// left while letters wait says also that it is taken in the transaction that frees it.
func (w *world) replay(id string) (deadletter.Replay, []deadletter.ReplayLetter) {
	w.Helper()
	rep, letters, err := w.store.GetReplay(w.Context(), id)
	if err != nil {
		w.Fatal(err)
	}
	wrong := func(ok bool, what string) {
		w.Helper()
		if !ok {
			w.Fatalf("%s\n%+v\n%+v", what, rep, letters)
		}
	}
	c := rep.Counts
	active := c.Queued + c.Replaying
	wrong(c.Waiting+active+c.Resolved+c.Dead == rep.Matched, "the counts come to what was matched")
	wrong(active <= rep.MaxConcurrency, "never more at once")
	wrong(rep.Status.Open() == (rep.EndedAt == 0), "what is open has not ended")
	wrong((rep.Status == deadletter.ReplayPaused) == (rep.PausedFrom != ""), "what is paused goes back somewhere")
	wrong(int64(len(letters)) == min(rep.Matched, deadletter.ReplayLettersShown), "all letters are shown")
	wrong(slices.IsSortedFunc(letters, func(a, b deadletter.ReplayLetter) int { return int(a.N - b.N) }), "letters stand in their order")

	var waiting, queued, replaying, sample, open int64 // open: of the sample
	rest := false
	for _, m := range letters {
		played := m.State == deadletter.MemberWaiting || m.State == deadletter.MemberActive
		switch {
		case m.State == deadletter.MemberWaiting:
			waiting++
			wrong(m.Status == deadletter.Dead, "what waits for its turn is dead")
		case m.State == deadletter.MemberActive && m.Status == deadletter.Queued:
			queued++
		case m.State == deadletter.MemberActive:
			replaying++
			wrong(m.Status == deadletter.Replaying, "what is active is queued or replaying")
		}
		wrong((m.State == deadletter.MemberHeld) == (m.Held != ""), "what is held says why")
		if m.Sample {
			sample++
			wrong(!rest, "the sample comes first")
		}
		if m.Sample && played {
			open++
		}
		rest = rest || !m.Sample && m.State != deadletter.MemberHeld
	}
	wrong(sample <= rep.SampleSize, "the sample is not larger than was asked for")
	if int64(len(letters)) == rep.Matched {
		wrong(waiting == c.Waiting && queued == c.Queued && replaying == c.Replaying, "the counts are those of the letters")
	}
	switch rep.Status {
	case deadletter.ReplaySampling:
		wrong(open > 0 && (active == rep.MaxConcurrency || active == open), "the sample is being played")
	case deadletter.ReplayAwaiting:
		wrong(open == 0 && active == 0 && c.Waiting > 0, "the sample is settled, and something is left to approve")
	case deadletter.ReplayRunning:
		wrong(active > 0 && (active == rep.MaxConcurrency || c.Waiting == 0), "the rest is being played")
	case deadletter.ReplayDone:
		wrong(active+c.Waiting == 0, "what is done is settled")
	case deadletter.ReplayCancelled, deadletter.ReplayStopped:
		wrong(c.Queued+c.Waiting == 0, "what was not played is dead")
	}
	return rep, letters
}

func counts(waiting, queued, replaying, resolved, dead int64) deadletter.ReplayCounts {
	return deadletter.ReplayCounts{Waiting: waiting, Queued: queued, Replaying: replaying, Resolved: resolved, Dead: dead}
}

// plays checks where a replay stands.
func (w *world) plays(id string, want deadletter.ReplayStatus, c deadletter.ReplayCounts) deadletter.Replay {
	w.Helper()
	rep, letters := w.replay(id)
	if rep.Status != want || rep.Counts != c {
		w.Fatalf("the replay is %s with %+v, want %s with %+v\n%+v", rep.Status, rep.Counts, want, c, letters)
	}
	return rep
}

// member is how a letter stands in a replay.
func (w *world) member(id, letter string) deadletter.ReplayLetter {
	w.Helper()
	_, letters := w.replay(id)
	i := slices.IndexFunc(letters, func(m deadletter.ReplayLetter) bool { return m.LetterID == letter })
	if i < 0 {
		w.Fatalf("letter %s is not in the replay: %+v", letter, letters)
	}
	return letters[i]
}

// members are the letters of a replay in their order.
func (w *world) members(id string) []string {
	w.Helper()
	_, letters := w.replay(id)
	ids := make([]string, len(letters))
	for i := range letters {
		ids[i] = letters[i].LetterID
	}
	return ids
}

// say gives a person's word; code is the refusal's, "not_found", or empty.
func (w *world) say(id string, verb deadletter.ReplayVerb) (rep deadletter.Replay, changed bool, code string) {
	w.Helper()
	rep, changed, err := w.store.MoveReplay(w.Context(), id, &deadletter.ReplayMove{Verb: verb, AuthorizedBy: "duty", Reason: "as the sample shows"})
	if code = w.code(err); code != string(ledger.InvalidTransition) && code != "" {
		return rep, changed, code
	}
	if now, _ := w.replay(id); fmt.Sprintf("%+v", now) != fmt.Sprintf("%+v", rep) {
		w.Fatalf("/%s answered %+v\nand it is %+v", verb, rep, now)
	}
	return rep, changed, code
}

// said gives a person's word that changes the replay.
func (w *world) said(id string, verb deadletter.ReplayVerb, want deadletter.ReplayStatus) {
	w.Helper()
	if rep, changed, code := w.say(id, verb); code != "" || !changed || rep.Status != want {
		w.Fatalf("/%s: %s, changed %v, code %q; want %s", verb, rep.Status, changed, code, want)
	}
}

// deadLetters makes n letters that wait for a person, the oldest first.
func (w *world) deadLetters(n int, mods ...tell) []string {
	w.Helper()
	ids := make([]string, n)
	for i := range ids {
		l := w.told(w.failed(fmt.Sprint(100+i), append([]tell{verdict(wrongCredential)}, mods...)...))
		ids[i] = w.stands(l.ID, deadletter.Dead, l.Reason, 1).ID
		w.pass(time.Second)
	}
	return ids
}

// deadEvents makes n letters of events, key0 and so on, that wait for a person.
func (w *world) deadEvents(n int, mods ...mod) (ids []string, claims []ledger.Claim) {
	w.Helper()
	for i := range n {
		execution := fmt.Sprint(100 + i)
		claims = append(claims, w.grant(w.event(fmt.Sprint("key", i), append([]mod{w.run(execution)}, mods...)...)))
		l := w.told(w.failed(execution, verdict(wrongCredential)))
		ids = append(ids, w.stands(l.ID, deadletter.Dead, "auth", 1).ID)
		w.pass(time.Second)
	}
	return ids, claims
}

// play runs the next letter, and its worker says how it went.
func (w *world) play(verb deadletter.Verb) string {
	w.Helper()
	l := w.handed(handLimit(1))
	if out, code := w.close(l.ID, by(l, verb)); code != "" || !out.Changed {
		w.Fatalf("/%s: code %q, changed %v", verb, code, out.Changed)
	}
	return l.ID
}

// ends plays what is left of a replay, approving it, until every letter that it had is resolved, dead or discarded.
func (w *world) ends(id string) {
	w.Helper()
	for range 200 {
		rep, letters := w.replay(id)
		if rep.Status == deadletter.ReplayAwaiting || rep.Status == deadletter.ReplayPaused {
			w.say(id, deadletter.Approve)
			continue
		}
		w.pass(time.Hour)
		w.sweptLetters()
		out := w.hand("", handLimit(1))
		if len(out) == 1 {
			w.close(out[0].ID, by(out[0], deadletter.Resolve))
			w.end(completeKey(out[0].Key, "r"))
			continue
		}
		if !rep.Status.Open() && !slices.ContainsFunc(letters, func(m deadletter.ReplayLetter) bool {
			return m.Status == deadletter.Queued || m.Status == deadletter.Replaying
		}) {
			return
		}
	}
	rep, letters := w.replay(id)
	w.Fatalf("the replay never ends: %+v\n%+v", rep, letters)
}

// replayFields: what was asked for is kept as given, by whoever reads it.
func replayFields(w *world) {
	ids := w.deadLetters(3)
	from, to := w.now().Add(-time.Hour), w.now().Add(time.Hour)
	r := w.replayOf(choosing(deadletter.Selector{
		IDs: ids[:2], WorkflowID: w.wf(), Class: "auth", Status: deadletter.Dead, From: from, To: to,
	}), limitOf(7), sampleOf(1), atMost(9), perMinute(60))
	rep, known := w.start(r)
	if known || rep.ID != r.ID || fmt.Sprintf("%+v", rep.Selector) != fmt.Sprintf("%+v", r.Selector) || rep.Limit != 7 || rep.SampleSize != 1 || rep.MaxConcurrency != 9 ||
		rep.RatePerMinute != 60 || rep.AuthorizedBy != "ada" || rep.ApprovedBy != "" || rep.Reason != "the outage is over" ||
		string(rep.ExpectedEffects) != `{"orders":9007199254740993}` || rep.CallerKey != "ops" || rep.Matched != 2 || rep.CreatedAt != w.now() || rep.UpdatedAt != w.now() {
		w.Errorf("%+v", rep)
	}
	one := *w
	one.store = w.beside()
	if other, _ := one.replay(rep.ID); fmt.Sprintf("%+v", other) != fmt.Sprintf("%+v", rep) {
		w.Errorf("another replica reads %+v, want %+v", other, rep)
	}
	for _, id := range []string{"no such replay", ids[0]} {
		if _, _, err := w.store.GetReplay(w.Context(), id); !errors.Is(err, ledger.ErrNotFound) {
			w.Errorf("an unknown replay: %v", err)
		}
		if _, _, code := w.say(id, deadletter.Cancel); code != "not_found" {
			w.Errorf("an unknown replay: %q", code)
		}
	}
}
