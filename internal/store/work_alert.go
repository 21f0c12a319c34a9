package store

import (
	"context"
	"net/url"
	"strings"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// claimAlert is what a person must know of a claim, raised if what it tells of is written.
type claimAlert struct {
	raised
	claimID string
	entry   string        // of the history, for a report that was kept: told once however often it is sent
	status  ledger.Status // for a claim that moved: if it is still there when it is written
}

// alertReport notes what a report says that a person must know.
func (w *work) alertReport(e *ledger.Ending, out *ledger.Ended) {
	if out.Alert == "" || out.Late == nil {
		return
	}
	c := &out.Claim
	kind := strings.ReplaceAll(strings.ReplaceAll(out.Alert, ":", ""), " ", "-")
	w.alerts = append(w.alerts, claimAlert{claimID: c.ID, entry: lateID(e, out.Late), raised: raised{
		count: 1, spacing: alertSpacing, Alert: deadletter.Alert{
			Group: "claim/" + kind + "/" + c.Key.Source, Title: c.Key.Source + ": " + out.Alert, Text: wordsOf(c), Path: "/claims/" + c.ID,
		},
	}})
}

// alertReview notes that time, and not a person, brought a claim before a person. Those of one source and destination
// are one group: while a destination cannot be reached all that was sent there comes, one after the other.
func (w *work) alertReview(before, after *ledger.Claim) {
	if before.Status == ledger.Review || after.Status != ledger.Review {
		return
	}
	at := after.Key.Source
	if after.Destination != "" {
		at += " at " + after.Destination
	}
	w.alerts = append(w.alerts, claimAlert{claimID: after.ID, status: ledger.Review, raised: raised{
		count: 1, spacing: reviewSpacing, Alert: deadletter.Alert{
			Group: "review/" + after.Key.Source + "/" + after.Destination, Title: at + ": a person must find out what happened",
			Text: wordsOf(after) + "\nNobody knows whether it was done, and the time is over in which it could be asked again safely.",
			Path: "/claims?status=review&source=" + url.QueryEscape(after.Key.Source),
		},
	}})
}

// wordsOf names a claim to a person. Its key stays out of chats and logs: it may hold what a customer is known by.
func wordsOf(c *ledger.Claim) string {
	text := "Claim " + c.ID
	for _, part := range []struct{ name, value string }{
		{"step", c.Key.Step}, {"workflow", c.Origin.WorkflowName}, {"execution", c.Origin.ExecutionID},
	} {
		if part.value != "" {
			text += ", " + part.name + " " + part.value
		}
	}
	return text
}

// freshAlerts leaves out what was told before: a report that was sent again is in the history already.
func (s *Store) freshAlerts(ctx context.Context, tx *sqlx.Tx, alerts []claimAlert) (fresh []claimAlert, err error) {
	for i := range alerts {
		known := 0
		if a := &alerts[i]; a.entry != "" {
			err = tx.GetContext(ctx, &known, tx.Rebind(`select count(*) from history where claim_id = ? and entry = ?`), a.claimID, a.entry)
		}
		if err != nil {
			return nil, err
		}
		if known == 0 {
			fresh = append(fresh, alerts[i])
		}
	}
	return fresh, nil
}

// raiseClaims raises what was written.
func (s *Store) raiseClaims(ctx context.Context, tx *sqlx.Tx, w *work, alerts []claimAlert, written map[string]bool) error {
	var out []raised
	for i := range alerts {
		a := &alerts[i]
		ch, changed := w.changes[a.claimID]
		if changed && !written[a.claimID] || a.status != "" && (!changed || ch.claim.Status != a.status) {
			continue // decided anew, or moved on
		}
		out = append(out, a.raised)
	}
	return s.raiseAll(ctx, tx, out)
}
