package store

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// calmSpacing is between the alerts of a destination that answered in between.
const calmSpacing = time.Hour

// asked is where unknown claims are asked about together.
type asked struct{ source, destination string }

func (a asked) group() string { return "unreachable/" + a.source + "/" + a.destination }

func (a asked) String() string {
	if a.destination == "" {
		return a.source
	}
	return a.source + " at " + a.destination
}

// hearLook notes what the end of a look says of the destination, for its alert.
func (w *work) hearLook(out *ledger.Ended) {
	c := &out.Claim
	at := asked{c.Key.Source, c.Destination}
	switch out.Look {
	case ledger.Answered:
		w.answered[c.ID] = at
	case ledger.Unanswered:
		w.alerts = append(w.alerts, claimAlert{claimID: c.ID, status: ledger.Unknown, outage: &at, raised: raised{count: 1, spacing: reviewSpacing, Alert: deadletter.Alert{
			Group: at.group(), Title: at.String() + ": the destination cannot be asked about unknown claims",
			Path: "/claims?status=unknown&source=" + url.QueryEscape(at.source),
		}}})
	}
}

// outageText says how much waits for an answer, and since when.
func (s *Store) outageText(ctx context.Context, tx *sqlx.Tx, at asked) (string, error) {
	var n int64
	var since ledger.Instant
	err := tx.QueryRowxContext(ctx, tx.Rebind(`select count(*) over (),
		(select coalesce(min(h.at), c.unknown_since) from history h where h.claim_id = c.id and h.reason = ? and h.at >= c.unknown_since)
		from claims c where c.status = 'unknown' and c.source = ? and c.destination = ? and c.looks > 0 order by c.looks desc, c.unknown_since limit 1`),
		ledger.CouldNotBeAsked, at.source, at.destination).Scan(&n, (*int64)(&since))
	return fmt.Sprintf("%d unknown claims wait for its answer; the first look in vain was at %s. Each is asked about again after 1 min, doubling to 1 h. "+
		"Nothing is decided meanwhile; past its window a claim waits for a person.", n, since.Time().Format(time.RFC3339)), err
}

// calm drops what was still to be repeated about destinations that answer again; should they fail anew, that is told
// after an hour at the latest.
func (s *Store) calm(ctx context.Context, tx *sqlx.Tx, w *work, written map[string]bool) error {
	done := map[asked]bool{}
	for id, at := range w.answered {
		if done[at] || !written[id] {
			continue
		}
		done[at] = true
		spacing := int64(calmSpacing / time.Microsecond)
		if _, err := tx.ExecContext(ctx, tx.Rebind(`update outbox set unsent = 0, due_at = sent_at + ?, due_by = sent_at + ?
			where grp = ? and sent_at > 0 and leased = 0 and (unsent > 0 or due_at > sent_at + ?)`), spacing, spacing, at.group(), spacing); err != nil {
			return err
		}
	}
	return nil
}

// unaskedFor is how long nobody may ask about the unknown claims of a source.
const unaskedFor = 15 * time.Minute

func lookMark(source string) string { return "looked/" + source }

// noteLook remembers that a workflow asks about a source's unknown claims; once a minute is enough.
func (s *Store) noteLook(ctx context.Context, r *ledger.LookRequest, c *ledger.Claim) error {
	now := s.clock.now()
	if last, ok := s.alerts.looked.Load(c.Key.Source); r.Probe || ok && now < last.(ledger.Instant).Add(time.Minute) {
		return nil
	}
	s.alerts.looked.Store(c.Key.Source, now)
	return s.SetMark(ctx, lookMark(c.Key.Source), strconv.FormatInt(int64(now), 10))
}

// watchUnasked tells, once a day for each source, of unknown claims that no probe is for and no workflow asks about.
func (s *Store) watchUnasked(ctx context.Context) error {
	now := s.clock.now()
	f := new(filter)
	f.add("c.status = 'unknown'")
	f.add("c.unknown_since <= ?", int64(now.Add(-unaskedFor)))
	f.add("c.look_until = 0 and c.looks = 0")
	for _, m := range s.alerts.probed {
		without(f, m)
	}
	paused, err := s.readPauses(ctx, s.read)
	if err != nil || !unpaused(f, "c.", paused, now) {
		return err
	}
	var rows []struct {
		Source      string
		Destination string
		N           int64
		Since       int64
	}
	if err := s.read.SelectContext(ctx, &rows, s.read.Rebind(`select c.source, c.destination, count(*) as n, min(c.unknown_since) as since from claims c `+
		f.sql("group by c.source, c.destination order by c.source, since", page-1)), f.args...); err != nil {
		return err
	}
	var alerts []raised
	total, source := int64(0), ""
	for _, r := range rows {
		patience := max(unaskedFor, 3*s.policy.For(r.Source, r.Destination).AskAfter)
		mark, err := s.Mark(ctx, lookMark(r.Source))
		if err != nil {
			return err
		}
		last, _ := strconv.ParseInt(mark, 10, 64) // no mark: never
		if max(last, r.Since) > int64(now.Add(-patience)) {
			continue
		}
		if r.Source != source {
			total, source = 0, r.Source
			alerts = append(alerts, raised{count: 1, spacing: alertSpacing, daily: true, Alert: deadletter.Alert{
				Group: "unasked/" + source, Path: "/claims?status=unknown&source=" + url.QueryEscape(source),
				Text: fmt.Sprintf("Nobody knows whether they were done, the oldest since %s. Publish reconciler.json in n8n, or write a probe for them (docs/unknown-outcomes.md).",
					ledger.Instant(r.Since).Time().Format(time.RFC3339)),
			}})
		}
		total += r.N
		alerts[len(alerts)-1].Title = fmt.Sprintf("Nobody asks about %d unknown claims of %s", total, source)
	}
	if len(alerts) == 0 {
		return nil
	}
	return s.inTx(ctx, func(tx *sqlx.Tx) error { return s.raiseAll(ctx, tx, alerts) })
}
