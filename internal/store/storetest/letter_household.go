package storetest

import (
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// letterHousehold: the event in the main workflow, its effect in a sub-workflow. Whoever reports first, one failure is
// one letter, and it is the event's.
func letterHousehold(w *world) {
	child := func(execution, parent string) *deadletter.Report {
		return w.failed(execution, inWorkflow("Child."+w.source), childOf(parent))
	}
	parent := func(execution, of string, mods ...tell) *deadletter.Report {
		return w.failed(execution, append(mods, parentOf("Child."+w.source, of))...)
	}
	for name, run := range map[string][2]string{"the child first": {"100", "101"}, "the parent first": {"200", "201"}} {
		w.row(name, func(w *world) {
			main, sub := run[0], run[1]
			c := w.grant(w.event("order "+main, w.run(main)))
			e := w.grant(w.event("order "+main, step("charge"), func(r *ledger.Request) {
				r.Origin = ledger.Origin{Owner: sub + ":0:0", WorkflowID: "Child." + w.source, ExecutionID: sub, Node: "Charge"}
			}))
			w.ended(complete(worker(e), "ch_1"), ledger.Completed)
			var a, b deadletter.Letter
			if name == "the parent first" {
				a, b = w.told(parent(main, sub)), w.told(child(sub, main))
			} else {
				a, b = w.told(child(sub, main)), w.told(parent(main, sub))
			}
			if a.ID != b.ID || b.ClaimID != c.ID || b.WorkflowID != w.wf() || b.AttemptCount != 1 {
				w.Errorf("letters %s and %s of claim %s, workflow %s, attempt %d", a.ID, b.ID, b.ClaimID, b.WorkflowID, b.AttemptCount)
			}
		})
	}
	w.row("a retry whose new child reports first", func(w *world) {
		l := w.told(child("1", "2"))
		w.told(parent("2", "1"))
		alone := w.told(child("3", "4"))
		again := w.told(parent("4", "3", retryOf("2")))
		if again.ID != l.ID || again.AttemptCount != 2 {
			w.Errorf("letter %s, attempt %d; want %s, attempt 2", again.ID, again.AttemptCount, l.ID)
		}
		if alone.ID != l.ID {
			w.stands(alone.ID, deadletter.Resolved, deadletter.ReasonJoined, 1)
		}
		w.pass(time.Hour)
	})
}

// letterOfHandlersEvent: an error workflow that fails ends the lease of an event of its own as well.
func letterOfHandlersEvent(w *world) {
	c := w.grant(w.event("order", w.run("7")))
	l := w.told(w.failed("7", byHandler))
	if l.Status != deadletter.Dead || l.Reason != deadletter.ReasonHandlerFailed {
		w.Errorf("%s (%s)", l.Status, l.Reason)
	}
	w.status(c.ID, ledger.Failed)
	w.sweptLetters()
	if n := len(w.letters()); n != 2 {
		w.Errorf("%d letters, want the handler's and the event's", n)
	}
}
