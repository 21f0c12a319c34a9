package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// AlertOptions say where alerts go and what is alerted by itself.
type AlertOptions struct {
	// Targets are the addresses that alerts go to, as hashes; none: the log.
	Targets []string
	// Silence is, by source, how long it may be without a new claim.
	Silence map[string]time.Duration
}

// alerting is what a Store remembers for its alerts.
type alerting struct {
	targets []string
	silence map[string]time.Duration
	heard   map[string]*atomic.Int64 // by source of silence: the newest claim that this process has met
	slow    atomic.Int64             // when the slower part of the watch is due
	looked  sync.Map                 // by mark: when this process last noted that somebody asks about such claims
	asking  attention
}

func newAlerting(o AlertOptions) *alerting {
	a := &alerting{targets: slices.Sorted(slices.Values(o.Targets)), silence: o.Silence, heard: map[string]*atomic.Int64{}, asking: attention{stood: map[string]ledger.Instant{}}}
	if len(a.targets) == 0 {
		a.targets = []string{logTarget}
	}
	for source := range o.Silence {
		a.heard[source] = new(atomic.Int64)
	}
	return a
}

// hear remembers when a source made a claim, in memory only: claims must not pay for it. The watch writes it down.
func (a *alerting) hear(source string, at ledger.Instant) {
	newest := a.heard[source]
	if newest == nil {
		return
	}
	for old := newest.Load(); old < int64(at); old = newest.Load() {
		if newest.CompareAndSwap(old, int64(at)) {
			return
		}
	}
}

// How often the slower part of the watch runs, and what is old by then.
const (
	slowWatch    = time.Minute
	pauseOld     = 24 * time.Hour
	orphanAfter  = 10 * time.Minute
	keepSent     = 8 * 24 * time.Hour
	unwatchedFor = 10 * time.Minute
)

// WatchAlerts is one pass that raises what nobody reports: sources that fell silent, pauses that were forgotten, and
// unknown claims that nobody asks about. It also keeps the outbox tidy.
func (s *Store) WatchAlerts(ctx context.Context) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	if err := s.watchSilence(ctx); err != nil {
		return s.translate(err)
	}
	now := int64(s.clock.now())
	if now < s.alerts.slow.Load() {
		return nil
	}
	for _, part := range []func(context.Context) error{s.watchPauses, s.watchUnasked, s.adoptOrphans, s.dropSent} {
		if err := part(ctx); err != nil {
			return s.translate(err)
		}
	}
	s.alerts.slow.Store(now + int64(slowWatch/time.Microsecond))
	return nil
}

// watchPauses alerts pauses that are older than a day, once a day each.
func (s *Store) watchPauses(ctx context.Context) error {
	pauses, err := s.Pauses(ctx)
	if err != nil {
		return err
	}
	now := s.clock.now()
	var old []raised
	for _, p := range pauses {
		if now < p.Since.Add(pauseOld) {
			continue
		}
		old = append(old, raised{count: 1, spacing: alertSpacing, daily: true, Alert: deadletter.Alert{
			Group: "pause/" + p.Scope, Title: "Work is still paused: " + p.Scope, Path: "/pauses",
			Text: fmt.Sprintf("Paused by %s since %s: %s", p.AuthorizedBy, p.Since.Time().UTC().Format(time.RFC3339), p.Reason),
		}})
	}
	if len(old) == 0 {
		return nil
	}
	return s.inTx(ctx, func(tx *sqlx.Tx) error { return s.raiseAll(ctx, tx, old) })
}

// heardRow is what the database knows of a source.
type heardRow struct {
	Source    string `db:"source"`
	At        int64  `db:"at"`
	AlarmedAt int64  `db:"alarmed_at"`
	WatchedAt int64  `db:"watched_at"`
}

// watchSilence writes down what was heard and alarms the sources that were not. It reads one small table and mostly
// writes nothing.
func (s *Store) watchSilence(ctx context.Context) error {
	if len(s.alerts.silence) == 0 {
		return nil
	}
	var rows []heardRow
	if err := s.read.SelectContext(ctx, &rows, `select source, at, alarmed_at, watched_at from heard`); err != nil {
		return err
	}
	known := map[string]heardRow{}
	for _, r := range rows {
		known[r.Source] = r
	}
	for _, source := range slices.Sorted(maps.Keys(s.alerts.silence)) {
		if err := s.watchSource(ctx, source, known); err != nil {
			return err
		}
	}
	return nil
}

// lag is how far the table may be behind what a process has heard.
func lag(silence time.Duration) time.Duration { return min(time.Minute, silence/10) }

func (s *Store) watchSource(ctx context.Context, source string, known map[string]heardRow) error {
	silence := s.alerts.silence[source]
	now := s.clock.now()
	row, found := known[source]
	newest := s.alerts.heard[source].Load()
	// Silence counts only while somebody listens: from the first time, and anew after nobody was there.
	unwatched := found && row.AlarmedAt == 0 && row.WatchedAt < int64(now.Add(-unwatchedFor))
	watched := found && row.WatchedAt > int64(now.Add(-lag(silence)))
	spoke := newest > row.At && (row.AlarmedAt != 0 || newest-row.At >= int64(lag(silence)/time.Microsecond))
	silent := found && !unwatched && row.AlarmedAt == 0 && max(row.At, newest) <= int64(now.Add(-silence-lag(silence)))
	if watched && !spoke && !silent {
		return nil
	}
	at := max(row.At, newest)
	if !found || unwatched {
		at = int64(now)
	}
	return s.inTx(ctx, func(tx *sqlx.Tx) error {
		_, err := tx.ExecContext(ctx, tx.Rebind(`insert into heard (source, at, watched_at) values (?, ?, ?)
			on conflict (source) do update set
				alarmed_at = case when heard.at < excluded.at then 0 else heard.alarmed_at end,
				at = case when heard.at < excluded.at then excluded.at else heard.at end,
				watched_at = case when heard.watched_at < excluded.watched_at then excluded.watched_at else heard.watched_at end`),
			source, at, int64(now))
		if err != nil || !silent {
			return err
		}
		// Another replica may have heard it, or alarmed, since the table was read.
		n, err := affected(tx.ExecContext(ctx, tx.Rebind(`update heard set alarmed_at = ? where source = ? and alarmed_at = 0 and at = ?`), int64(now), source, at))
		if err != nil || n == 0 {
			return err
		}
		return s.raise(ctx, tx, &deadletter.Alert{
			Group: "silence/" + source, Title: "Nothing was heard from " + source, Path: "/claims?source=" + source, At: now,
			Text: fmt.Sprintf("Its newest claim is from %s; it was to be heard from every %s. Is the webhook still registered, and its workflow active?",
				ledger.Instant(at).Time().UTC().Format(time.RFC3339), silence),
		})
	})
}

// adoptOrphans takes over messages for targets that nobody sends to any more, such as an address whose token was
// changed: today's targets get those that they were not told of.
func (s *Store) adoptOrphans(ctx context.Context) error {
	now := s.clock.now()
	var rows []outboxRow
	query, args, err := sqlx.In(`select `+outboxColumns+` from outbox where unsent > 0 and due_at <= ? and lease_until <= ? and target not in (?) order by target, grp limit ?`,
		int64(now.Add(-orphanAfter)), int64(now), s.alerts.targets, page)
	if err != nil {
		return err
	}
	if err := s.read.SelectContext(ctx, &rows, s.read.Rebind(query), args...); err != nil {
		return err
	}
	for i := range rows {
		if err := s.inTx(ctx, func(tx *sqlx.Tx) error { return s.adopt(ctx, tx, &rows[i], now) }); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) adopt(ctx context.Context, tx *sqlx.Tx, r *outboxRow, now ledger.Instant) error {
	var unsent []int64
	if err := tx.SelectContext(ctx, &unsent, tx.Rebind(`delete from outbox where target = ? and grp = ? and lease_no = ? and unsent > 0 and lease_until <= ? returning unsent`),
		r.Target, r.Group, r.Lease, int64(now)); err != nil || len(unsent) == 0 {
		return err
	}
	for _, target := range s.alerts.targets {
		if _, err := tx.ExecContext(ctx, tx.Rebind(raiseAlert+` where outbox.unsent = 0 and outbox.sent_at < excluded.first_at`),
			target, r.Group, unsent[0], r.Title, r.Body, r.Path, r.FirstAt, r.Title, r.LastBody, r.Path, r.LastAt,
			int64(alertSpacing/time.Microsecond), int64(now), int64(now)); err != nil {
			return err
		}
	}
	return nil
}

// dropSent forgets groups that have been quiet for long. Messages that were given up stay as long.
func (s *Store) dropSent(ctx context.Context) error {
	old := int64(s.clock.now().Add(-keepSent))
	var n int
	if err := s.read.GetContext(ctx, &n, s.read.Rebind(`select count(*) from (select 1 from outbox where unsent = 0 and last_at <= ? limit 1) as o`), old); err != nil || n == 0 {
		return err
	}
	return s.inTx(ctx, func(tx *sqlx.Tx) error {
		_, err := tx.ExecContext(ctx, tx.Rebind(`delete from outbox where unsent = 0 and last_at <= ? and given_up_at <= ?`), old, old)
		return err
	})
}
