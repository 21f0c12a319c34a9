package storetest

import (
	"strings"

	"holdfast/internal/ledger"
)

// An endingRow is a cell of the contract's table of endings. want is the status that the answer shows or the
// code of the refusal, and then: changed; kept (in the history, though nothing moves); alert; now=STATUS where
// a refusal moves the claim all the same.
type endingRow struct {
	verb  string
	state string
	kinds []ledger.Kind
	by    string // newest, older, look, key, reference
	want  string
}

func (w *world) endings(rows []endingRow) {
	for _, row := range rows {
		w.each(row.verb+" by "+row.by+", "+row.state, row.kinds, func(x *subject) { x.ends(row) })
	}
}

// ending makes the report that a row of a table names.
func (x *subject) ending(row endingRow) *ledger.Ending {
	x.Helper()
	t := worker(x.last)
	switch row.by {
	case "older":
		t = worker(*x.older)
	case "look":
		t = looker(x.last)
	}
	verb, rest, _ := strings.Cut(row.verb, " ")
	switch verb + " " + rest {
	case "mark-unknown ":
		return markUnknown(t)
	case "mark-failed ":
		return report(ledger.MarkFailed, t)
	case "mark-failed not_executed":
		return notExecuted(t)
	case "mark-failed class, tries 1":
		return refused(t, 1)
	case "mark-failed class, tries 2":
		return refused(t, 2)
	case "mark-failed class":
		return refused(t, 0)
	case "mark-failed not now":
		return notNow(t, 30)
	case "extend ":
		return extend(t, 3600)
	}
	if verb != "complete" {
		x.Fatalf("no such verb: %s", row.verb)
	}
	switch row.by {
	case "key":
		return completeKey(x.last.Key, rest)
	case "reference":
		return completeReference(x.source, "ref", rest)
	}
	return complete(t, rest)
}

func (x *subject) ends(row endingRow) {
	x.Helper()
	x.found = row.by == "reference"
	if row.by == "older" {
		x.twice()
	}
	x.toState(row.state)
	before, history := x.get(x.last.ID)
	e := x.ending(row)
	out, code := x.end(e)
	want := strings.Fields(row.want)
	got := code
	if got == "" {
		got = string(out.Claim.Status)
	}
	if got != want[0] || out.Changed != (flag(want, "changed") || flag(want, "changed-lease")) || (out.Alert != "") != flag(want, "alert") {
		x.Errorf("%s, changed %v, alert %q; want %s", got, out.Changed, out.Alert, row.want)
	}
	after, more := x.get(before.ID)
	x.landed(want, before, after)
	grown := len(history)
	if flag(want, "changed") || now(want) != "" {
		grown++
	}
	if flag(want, "kept") {
		grown++
	}
	if len(more) != grown {
		x.Errorf("%d entries of history, want %d: %+v", len(more), grown, more)
	}
	if e.Verb == ledger.MarkFailed && got == string(ledger.Unknown) {
		x.end(e) // what is reported of an unknown claim is kept, also when it is the same again: once
	}
	x.again(e, got)
}

// landed checks where the claim stands afterwards.
func (x *subject) landed(want []string, before, after ledger.Claim) {
	x.Helper()
	status := before.Status
	switch {
	case now(want) != "":
		status = now(want)
	case ledger.Status(want[0]).Valid():
		status = ledger.Status(want[0])
	}
	if after.Status != status {
		x.Errorf("the claim is %s, want %s", after.Status, status)
	}
	if after.ProviderKey != before.ProviderKey || after.FirstAt != before.FirstAt || after.Grant != before.Grant {
		x.Errorf("the claim lost its identity: %+v, was %+v", after, before)
	}
	if before.Status == ledger.Completed && after.Status == ledger.Completed && (after.ResultID != before.ResultID || after.CompletedAt != before.CompletedAt) {
		x.Errorf("the first receipt does not stay: %q, was %q", after.ResultID, before.ResultID)
	}
}

// again sends the same report once more: the same outcome, and nothing moves.
func (x *subject) again(e *ledger.Ending, want string) {
	x.Helper()
	x.unwritten("the report sent again", func() {
		out, code := x.end(e)
		got := code
		if got == "" {
			got = string(out.Claim.Status)
		}
		if got != want || out.Changed {
			x.Errorf("sent again: %s, changed %v; want %s, unchanged", got, out.Changed, want)
		}
	})
}

func flag(want []string, name string) bool {
	for _, f := range want[1:] {
		if f == name {
			return true
		}
	}
	return false
}

func now(want []string) ledger.Status {
	for _, f := range want[1:] {
		if status, ok := strings.CutPrefix(f, "now="); ok {
			return ledger.Status(status)
		}
	}
	return ""
}
