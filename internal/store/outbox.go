package store

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// The outbox holds one row per target and group of alerts: what is unsent in it is one message. A message waits a
// moment for more of its group, and its group's next one for the spacing.
const (
	alertQuiet   = 2 * time.Second  // without another alert of the group, and the message is due
	alertGather  = 30 * time.Second // and after this in any case
	alertSpacing = 5 * time.Minute
	// reviewSpacing is for rows that come before a person one by one, as their windows end.
	reviewSpacing = 30 * time.Minute
	// outageSpacing is for a destination that stays away.
	outageSpacing = 6 * time.Hour
)

// logTarget takes the alerts where no other target is configured.
const logTarget = ""

// raised is an alert on its way into the outbox.
type raised struct {
	deadletter.Alert
	count   int64         // how many it stands for
	spacing time.Duration // between two messages of its group
	daily   bool          // only if the group was silent for a day
	calm    bool          // no alert: what the group tells of is over
}

// raise puts an alert into the outbox, in the transaction of what it tells of; nil is none.
func (s *Store) raise(ctx context.Context, q querier, a *deadletter.Alert) error {
	if a == nil {
		return nil
	}
	return s.raiseAll(ctx, q, []raised{{Alert: *a, count: 1, spacing: alertSpacing}})
}

// RaiseAlert puts an alert into the outbox, in a transaction of its own.
func (s *Store) RaiseAlert(ctx context.Context, a deadletter.Alert) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	return s.translate(s.inTx(ctx, func(tx *sqlx.Tx) error { return s.raise(ctx, tx, &a) }))
}

// Until a message is sent its row gathers: the first alert's words, the newest one's, and how many there were. More
// alerts put the message off up to due_by; one that is being sent, or could not be, keeps its time.
const raiseAlert = `insert into outbox (target, grp, unsent, title, body, path, first_at, last_title, last_body, last_path, last_at, spacing, due_at, due_by)
	values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
	on conflict (target, grp) do update set
		unsent = outbox.unsent + excluded.unsent,
		title = case when outbox.unsent = 0 then excluded.title else outbox.title end,
		body = case when outbox.unsent = 0 then excluded.body else outbox.body end,
		path = case when outbox.unsent = 0 then excluded.path else outbox.path end,
		first_at = case when outbox.unsent = 0 then excluded.first_at else outbox.first_at end,
		last_title = excluded.last_title, last_body = excluded.last_body, last_path = excluded.last_path, last_at = excluded.last_at,
		spacing = excluded.spacing,
		due_at = case when outbox.attempts > 0 or outbox.due_at >= excluded.due_at then outbox.due_at
			when outbox.unsent > 0 and outbox.due_by < excluded.due_at then outbox.due_by else excluded.due_at end,
		due_by = case when outbox.unsent > 0 or outbox.due_by >= excluded.due_by then outbox.due_by else excluded.due_by end`

// raiseAll raises alerts. Equal groups are one row that stays locked until the transaction ends: they are written last.
func (s *Store) raiseAll(ctx context.Context, q querier, alerts []raised) error {
	if end := s.lastOf(q); end != nil {
		end.alerts = append(end.alerts, alerts...)
		return nil
	}
	return s.writeAlerts(ctx, q, alerts)
}

// writeAlerts writes alerts in the order of their groups.
func (s *Store) writeAlerts(ctx context.Context, q querier, alerts []raised) error {
	alerts = gathered(alerts)
	now := s.clock.now()
	for i := range alerts {
		a := &alerts[i]
		unlessSince := int64(math.MaxInt64)
		if a.daily {
			unlessSince = int64(now.Add(-24 * time.Hour))
		}
		group, title, body, path := oneLine(a.Group, maxAlertGroup), oneLine(a.Title, maxAlertTitle), clean(a.Text, maxAlertText), oneLine(a.Path, maxAlertPath)
		for _, target := range s.alerts.targets {
			query, args := raiseAlert+` where outbox.last_at <= ?`, []any{
				target, group, a.count, title, body, path, int64(now), title, body, path, int64(now), int64(a.spacing / time.Microsecond),
				int64(now.Add(alertQuiet)), int64(now.Add(alertGather)), unlessSince,
			}
			if a.calm {
				query, args = calm, []any{calmSpacing, calmSpacing, target, group, calmSpacing}
			}
			if _, err := q.ExecContext(ctx, q.Rebind(query), args...); err != nil {
				return err
			}
		}
	}
	return nil
}

// gathered makes one of those of the same group.
func gathered(alerts []raised) (out []raised) {
	alerts = slices.Clone(alerts)
	slices.SortStableFunc(alerts, func(a, b raised) int { return cmp.Compare(a.Group, b.Group) })
	for _, a := range alerts {
		if n := len(out); n > 0 && out[n-1].Group == a.Group && out[n-1].calm == a.calm {
			out[n-1].count += a.count
			continue
		}
		out = append(out, a)
	}
	return out
}

// What chats take in one message, with room for the rest.
const (
	maxAlertTitle = 200
	maxAlertText  = 1200
	maxAlertPath  = 300
	maxAlertGroup = 300
)

// clean keeps what any database and any chat can hold, and cuts it.
func clean(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	if len(s) <= limit {
		return s
	}
	const cut = "…"
	return strings.ToValidUTF8(s[:limit-len(cut)], "") + cut
}

func oneLine(s string, limit int) string { return clean(strings.ReplaceAll(s, "\n", " "), limit) }

// alertLease is how long a sender may take for one message.
const alertLease = time.Minute

// giveUpAfter is how long sending a message is tried, counted from its newest alert.
const giveUpAfter = 3 * 24 * time.Hour

// LeaseAlert hands the oldest due message of a target to a sender, never to two at a time. ok is false where none is due.
func (s *Store) LeaseAlert(ctx context.Context, target string) (m deadletter.OutboxMessage, ok bool, err error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	now := int64(s.clock.now())
	// Looked at before anything is locked: mostly there is nothing.
	var due int
	err = s.read.GetContext(ctx, &due, s.read.Rebind(`select count(*) from (select 1 from outbox where target = ? and unsent > 0 and due_at <= ? and lease_until <= ? limit 1) as o`),
		target, now, now)
	if err != nil || due == 0 {
		return m, false, s.translate(err)
	}
	var rows []outboxRow
	err = s.inTx(ctx, func(tx *sqlx.Tx) error {
		return tx.SelectContext(ctx, &rows, tx.Rebind(`update outbox set lease_no = lease_no + 1, lease_until = ?, leased = unsent, attempts = attempts + 1
			where target = ? and unsent > 0 and lease_until <= ? and grp = (select grp from outbox
				where target = ? and unsent > 0 and due_at <= ? and lease_until <= ? order by due_at, grp limit 1`+s.skipLocked()+`)
			returning `+outboxColumns), now+int64(alertLease/time.Microsecond), target, now, target, now, now)
	})
	if err != nil || len(rows) == 0 {
		return m, false, s.translate(err)
	}
	m = rows[0].message()
	s.countOutage(ctx, &m)
	return m, true, nil
}

// skipLocked passes over what another replica is taking right now; SQLite has one writer.
func (s *Store) skipLocked() string {
	if s.dialect.forUpdate == "" {
		return ""
	}
	return s.dialect.forUpdate + " skip locked"
}

const outboxColumns = `target, grp, lease_no, leased, attempts, title, body, path, first_at, last_body, last_at`

type outboxRow struct {
	Target   string `db:"target"`
	Group    string `db:"grp"`
	Lease    int64  `db:"lease_no"`
	Leased   int64  `db:"leased"`
	Attempts int64  `db:"attempts"`
	Title    string `db:"title"`
	Body     string `db:"body"`
	Path     string `db:"path"`
	FirstAt  int64  `db:"first_at"`
	LastBody string `db:"last_body"`
	LastAt   int64  `db:"last_at"`
}

func (r *outboxRow) message() deadletter.OutboxMessage {
	m := deadletter.OutboxMessage{
		Target: r.Target, Lease: r.Lease, Count: r.Leased, Attempts: r.Attempts, LastAt: ledger.Instant(r.LastAt),
		Alert: deadletter.Alert{Group: r.Group, Title: r.Title, Text: r.Body, Path: r.Path, At: ledger.Instant(r.FirstAt)},
	}
	if r.LastBody != r.Body {
		m.Last = r.LastBody
	}
	return m
}

// AlertSent notes that a leased message was sent. What came meanwhile is the group's next message.
func (s *Store) AlertSent(ctx context.Context, m *deadletter.OutboxMessage) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	now := int64(s.clock.now())
	return s.translate(s.inTx(ctx, func(tx *sqlx.Tx) error {
		_, err := tx.ExecContext(ctx, tx.Rebind(`update outbox set unsent = unsent - leased, leased = 0, lease_until = 0, attempts = 0, sent_at = ?,
			title = last_title, body = last_body, path = last_path, first_at = last_at, due_at = ? + spacing, due_by = ? + spacing
			where target = ? and grp = ? and lease_no = ? and leased > 0`), now, now, now, m.Target, m.Group, m.Lease)
		return err
	}))
}

// AlertFailed notes that a leased message could not be sent and says when it is tried again: after 10 s, doubling to
// an hour. given is true where it is not, since even its newest alert is three days old.
func (s *Store) AlertFailed(ctx context.Context, m *deadletter.OutboxMessage) (again time.Duration, given bool, err error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	again = alertBackoff(m.Attempts)
	now := s.clock.now()
	old := int64(now.Add(-giveUpAfter))
	var left []int64
	err = s.inTx(ctx, func(tx *sqlx.Tx) error {
		return tx.SelectContext(ctx, &left, tx.Rebind(`update outbox set leased = 0, lease_until = 0, due_at = ?,
			given_up_at = case when last_at <= ? then ? else given_up_at end,
			attempts = case when last_at <= ? then 0 else attempts end,
			unsent = case when last_at <= ? then 0 else unsent end
			where target = ? and grp = ? and lease_no = ? and leased > 0 returning unsent`),
			int64(now.Add(again)), old, int64(now), old, old, m.Target, m.Group, m.Lease)
	})
	return again, len(left) > 0 && left[0] == 0, s.translate(err)
}

func alertBackoff(attempts int64) time.Duration {
	const first, most = 10 * time.Second, time.Hour
	if attempts > 9 {
		return most
	}
	return min(first<<max(0, attempts-1), most)
}
