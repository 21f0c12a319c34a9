package proof

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"holdfast/internal/ledger"
)

// judges says who watches a history.
type judges struct {
	model      bool // every answer must be the model's
	invariants bool // no answer may break a promise, whatever the model says
}

var all = judges{model: true, invariants: true}

// fault is a counterexample: the calls up to the one that was answered wrongly.
type fault struct {
	told  []string
	wrong string
}

func (f *fault) Error() string {
	return "counterexample:\n" + strings.Join(f.told, "\n") + "\n==> " + f.wrong
}

// play lets a history happen in a world and asks the judges after each call, and about all that is stored at the end.
func (w *world) play(calls []call, by judges) error {
	m, watch := newModel(began), newWatch()
	defer w.finish(m)
	f := &fault{}
	failed := func(format string, args ...any) error {
		f.wrong = fmt.Sprintf(format, args...)
		return f
	}
	for _, c := range calls {
		if e, ok := c.(endCall); ok && e.idle(m) {
			continue
		}
		about := watch.names(c, m)
		want := c.ask(m)
		got := c.do(w, m)
		f.told = append(f.told, fmt.Sprintf("%s  %v: %v", clockTime(m.now), c, got))
		if by.invariants {
			if wrong := watch.see(m, c, about, got); wrong != "" {
				return failed("%s", wrong)
			}
		}
		if by.model && !want.agrees(got) {
			return failed("want %v", want)
		}
		steps.Add(1)
	}
	return w.end(m, watch, by, failed)
}

// end compares all that is stored.
func (w *world) end(m *model, watch *watch, by judges, failed func(string, ...any) error) error {
	for _, s := range slices.SortedFunc(mapKeys(w.ids), func(a, b slot) int { return strings.Compare(a.String(), b.String()) }) {
		c, history, err := w.store.Get(context.Background(), w.ids[s])
		if err != nil {
			return failed("reading %v at the end: %v", s, err)
		}
		if by.invariants {
			if wrong := watch.atEnd(s, &c, history); wrong != "" {
				return failed("%v: %s, in its history %s", s, wrong, tell(history))
			}
		}
		if by.model {
			if wrong := w.differs(m.records[s], &c); wrong != "" {
				return failed("%v at the end: %s", s, wrong)
			}
			if wrong := m.records[s].historyDiffers(history); wrong != "" {
				return failed("%v: %s, in its history %s", s, wrong, tell(history))
			}
		}
	}
	return nil
}

func mapKeys[K comparable, V any](of map[K]V) func(func(K) bool) {
	return func(yield func(K) bool) {
		for k := range of {
			if !yield(k) {
				return
			}
		}
	}
}

// differs says what is stored otherwise than the model has it. What time alone has moved may not be written yet.
func (w *world) differs(r *record, c *ledger.Claim) string {
	v := version{c.Version.Kind != ledger.NoVersion, c.Version.Rank}
	stored := ""
	if len(c.Payload) > 1 {
		stored = string(c.Payload[1 : len(c.Payload)-1])
	}
	for _, x := range []struct {
		what      string
		want, got any
	}{
		{"attempt", r.attempt, int(c.Attempt)},
		{"kind", r.kind, string(c.Kind)},
		{"payload", r.payload, stored},
		{"entity", r.entity, c.Entity},
		{"version", r.version, v},
		{"destination", r.destination, c.Destination},
		{"reference", r.reference, c.Reference},
		{"result_id", r.resultID, c.ResultID},
		{"completed_at", clockTime(r.completedAt), clockTime(c.CompletedAt.Time())},
		{"provider key", r.providerKey, w.providerKey(r.slot, c.ProviderKey)},
	} {
		if x.want != x.got {
			return fmt.Sprintf("%s is %v, want %v", x.what, x.got, x.want)
		}
	}
	return ""
}

// historyDiffers compares the transitions: each one once, in order, and none besides; what time alone did may be
// missing or stand there.
func (r *record) historyDiffers(history []ledger.HistoryEntry) string {
	var moves []ledger.HistoryEntry
	kept := 0
	for _, h := range history {
		if isKept(h) {
			kept++
		} else {
			moves = append(moves, h)
		}
	}
	if r.kept && kept == 0 || kept > r.keptMost {
		return fmt.Sprintf("%d reports that moved nothing are kept, want at most %d", kept, r.keptMost)
	}
	next := 0
	for _, want := range r.trail {
		found := next < len(moves) && string(moves[next].To) == want.to && int(moves[next].Attempt) == want.attempt
		if found {
			acted := moves[next].By == person && moves[next].Reason != ""
			found = want.optional && !acted || !want.optional && moves[next].At == ledger.At(want.at)
		}
		switch {
		case found:
			next++
		case !want.optional:
			return fmt.Sprintf("transition %d should be to %s, attempt %d, at %s", next+1, want.to, want.attempt, clockTime(want.at))
		}
	}
	if next < len(moves) {
		return fmt.Sprintf("transition %d never happened", next+1)
	}
	return ""
}

// isKept tells whether an entry is a report that moved nothing: it says for what reason. A person may replace a
// provider key and leave the state as it is, and an event that is taken over is processing before and after.
func isKept(h ledger.HistoryEntry) bool { return h.From == h.To && h.By != person && h.Reason != "" }

func tell(history []ledger.HistoryEntry) string {
	var out strings.Builder
	for _, h := range history {
		fmt.Fprintf(&out, "\n    %s  %q -> %q, attempt %d, by %s: %s", clockTime(h.At.Time()), h.From, h.To, h.Attempt, h.By, h.Message+h.Reason)
	}
	return out.String()
}
