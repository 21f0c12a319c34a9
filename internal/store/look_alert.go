package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// calmSpacing is between the alerts of a destination that answered in between.
const calmSpacing = int64(time.Hour / time.Microsecond)

// outage begins the groups of alerts about destinations that cannot be asked.
const outage = "unreachable/"

// hearLook notes what the end of a look says of the destination, for its alerts.
func (w *work) hearLook(e *ledger.Ending, out *ledger.Ended) {
	if out.Look == ledger.NoLook {
		return
	}
	c := &out.Claim
	group, at := c.Key.Source+"/"+c.Destination, c.Key.Source
	if c.Destination != "" {
		at += " at " + c.Destination
	}
	a := raised{count: 1, spacing: outageSpacing, Alert: deadletter.Alert{
		Group: outage + group, Title: at + ": the destination cannot be asked about unknown claims",
		Text: "Each is asked about again after 1 min, doubling to 1 h. Nothing is decided meanwhile; past its window a claim waits for a person.",
		Path: "/claims?status=unknown&source=" + url.QueryEscape(c.Key.Source),
	}}
	status := ledger.Unknown
	switch out.Look {
	case ledger.Answered:
		a.calm, status = true, ""
	case ledger.Unasked:
		a.daily, a.Group, a.Title = true, "unaskable/"+group, at+": the probe cannot ask about some unknown claims"
		a.Text = wordsOf(c) + "\n" + e.Message + "\nIt tries again every hour. Report what is missing, or settle such claims under your name."
	}
	w.alerts = append(w.alerts, claimAlert{claimID: c.ID, status: status, raised: a})
}

// calm drops what was still to be repeated about a destination that answers again; should it fail anew, that is told
// after an hour at the latest.
const calm = `update outbox set unsent = 0, due_at = sent_at + ?, due_by = sent_at + ?
	where target = ? and grp = ? and sent_at > 0 and leased = 0 and (unsent > 0 or due_at > sent_at + ?)`

// mostCounted is up to where claims are counted for people.
const mostCounted = 10_000

// countOutage says in a message how much waits for a destination by now, and since when. It is counted when it is sent,
// and in no transaction: it may be very much.
func (s *Store) countOutage(ctx context.Context, m *deadletter.OutboxMessage) {
	name, ok := strings.CutPrefix(m.Group, outage)
	if !ok {
		return
	}
	source, destination, _ := strings.Cut(name, "/")
	var n, since int64
	err := s.read.QueryRowxContext(ctx, s.read.Rebind(`select n, coalesce((select min(h.at) from history h where h.claim_id = c.id and h.reason = ? and h.at >= c.unknown_since), c.unknown_since)
		from (select w.id, w.unknown_since, count(*) over () as n from (
			select c.id, c.unknown_since, c.looks from claims c where c.status = 'unknown' and c.source = ? and c.destination = ? and c.looks > 0
			order by c.unknown_since limit ?) as w
			order by w.looks desc, w.unknown_since limit 1) as c`),
		ledger.CouldNotBeAsked, source, destination, mostCounted+1).Scan(&n, &since)
	if err != nil {
		if !errors.Is(err, sql.ErrNoRows) {
			s.log.Warn("what waits for a destination could not be counted", "cause", err)
		}
		return
	}
	m.Text = fmt.Sprintf("%s unknown claims wait for its answer; the first look in vain was at %s. ", counted(n), ledger.Instant(since).Time().Format(time.RFC3339)) + m.Text
}

func counted(n int64) string {
	if n > mostCounted {
		return fmt.Sprint(mostCounted, "+")
	}
	return strconv.FormatInt(n, 10)
}

// lookMark names the claims that somebody asks about: of a source, or of a step of it at one destination.
func lookMark(parts ...string) string { return "looked/" + strings.Join(parts, "/") }

// noteLook remembers that somebody asks about such claims; once a minute is enough. A probe keeps the rates of
// destinations and is for some steps only, so what it asks about tells nothing of the others.
func (s *Store) noteLook(ctx context.Context, r *ledger.LookRequest, c *ledger.Claim) error {
	mark := lookMark(c.Key.Source)
	if r.Probe {
		mark = lookMark(c.Key.Source, c.Key.Step, c.Destination)
	}
	now := s.clock.now()
	if last, ok := s.alerts.looked.Load(mark); ok && now < last.(ledger.Instant).Add(time.Minute) {
		return nil
	}
	s.alerts.looked.Store(mark, now)
	return s.SetMark(ctx, mark, strconv.FormatInt(int64(now), 10))
}

// attention is what keeps anybody from asking about unknown claims; none of it is their fault.
type attention struct {
	mu    sync.Mutex
	seen  ledger.Instant            // when this process last looked
	since ledger.Instant            // since when it has been there without a gap
	stood map[string]ledger.Instant // by scope: until when it was paused
}

// attend notes that this process is there, and what is paused.
func (a *attention) attend(paused pauses, now ledger.Instant) {
	if now > a.seen.Add(unwatchedFor) {
		a.since = now
	}
	a.seen = now
	for scope, p := range paused {
		until := now
		if p.Until != 0 {
			until = min(now, p.Until)
		}
		a.stood[scope] = max(a.stood[scope], until)
	}
}

// free is since when somebody could ask about claims of these scopes.
func (a *attention) free(scopes []string) ledger.Instant {
	free := a.since
	for _, scope := range scopes {
		free = max(free, a.stood[scope])
	}
	return free
}

// patience is how long nobody may ask about an unknown claim.
func patience(p ledger.Policy) time.Duration { return max(15*time.Minute, 3*p.AskAfter) }

// unasked are unknown claims that nobody has asked about lately.
type unasked struct {
	Source, Step, Destination, Workflow string

	N, Since int64
}

// watchUnasked tells, once a day for each source, of unknown claims that nobody asks about: no workflow, and no probe
// that there may be for them.
func (s *Store) watchUnasked(ctx context.Context) error {
	s.alerts.asking.mu.Lock()
	defer s.alerts.asking.mu.Unlock()
	now := s.clock.now()
	paused, err := s.readPauses(ctx, s.read)
	if err != nil {
		return err
	}
	s.alerts.asking.attend(paused, now)
	f := new(filter)
	f.add("c.status = 'unknown'")
	s.past(f, now, patience, "c.unknown_since", "c.next_look", "c.look_until")
	var rows []unasked
	if err := s.read.SelectContext(ctx, &rows, s.read.Rebind(`select c.source, c.step, c.destination, c.workflow_id as workflow, count(*) as n, min(c.unknown_since) as since
		from claims c `+f.sql("group by c.source, c.step, c.destination, c.workflow_id order by c.source, since", mostCounted)), f.args...); err != nil {
		return err
	}
	var alerts []raised
	total, source := int64(0), ""
	for _, r := range rows {
		if free, err := s.freeToAsk(ctx, &r); err != nil {
			return err
		} else if free > now.Add(-patience(s.policy.For(r.Source, r.Destination))) {
			continue
		}
		if r.Source != source {
			total, source = 0, r.Source
			alerts = append(alerts, raised{count: 1, spacing: alertSpacing, daily: true, Alert: deadletter.Alert{
				Group: "unasked/" + source, Path: "/claims?status=unknown&source=" + url.QueryEscape(source),
				Text: fmt.Sprintf("Nobody knows whether they were done, the oldest since %s. Publish reconciler.json in n8n, or write a probe for them "+
					"(docs/unknown-outcomes.md). A probe that is there waits while work uses up its destination's rate.", ledger.Instant(r.Since).Time().Format(time.RFC3339)),
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

// freeToAsk is since when somebody could have asked about such claims and did not.
func (s *Store) freeToAsk(ctx context.Context, r *unasked) (ledger.Instant, error) {
	free := s.alerts.asking.free((&ledger.Request{
		Key: ledger.Key{Source: r.Source}, Destination: r.Destination, Origin: ledger.Origin{WorkflowID: r.Workflow},
	}).Scopes(nil))
	for _, name := range []string{lookMark(r.Source), lookMark(r.Source, r.Step, r.Destination)} {
		mark, err := s.Mark(ctx, name)
		if err != nil {
			return 0, err
		}
		last, _ := strconv.ParseInt(mark, 10, 64) // no mark: never
		free = max(free, ledger.Instant(last))
	}
	return free, nil
}
