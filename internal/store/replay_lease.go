package store

import (
	"context"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// started counts the leases of a replay r since a time.
const started = `(select count(*) from letter_entries e where e.replay_id = r.id and e.replay_id <> '' and e.kind = 'lease' and e.at > ?)`

// spentReplays are those that have started as many letters within a minute as they may, so that theirs are not looked at
// and stand in nobody's way. It is read without locks: what it says is a hint.
func (s *Store) spentReplays(ctx context.Context, tx *sqlx.Tx, now ledger.Instant) (ids []string, err error) {
	err = tx.SelectContext(ctx, &ids, tx.Rebind(`select r.id from replays r where r.status in ('sampling', 'running') and r.rate_per_minute > 0
		and r.rate_per_minute <= `+started), int64(now.Add(-time.Minute)))
	return ids, err
}

// paced leaves out letters whose replay has started as many within a minute as it may. The leases of the others are
// written before the locks of their replays are given back.
func (s *Store) paced(ctx context.Context, tx *sqlx.Tx, letters []deadletter.Letter, now ledger.Instant) ([]deadletter.Letter, error) {
	var ids []string
	for i := range letters {
		if id := letters[i].ReplayID; id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids) // all take their locks in one order
	left := map[string]int64{}
	for _, id := range ids {
		rep, err := s.lockedReplay(ctx, tx, id)
		if err != nil {
			return nil, err
		}
		if rep == nil || !rep.Status.Plays() {
			continue // it was paused or ended just now
		}
		left[id] = int64(len(letters))
		if rep.RatePerMinute > 0 {
			var n int64
			if err := tx.GetContext(ctx, &n, tx.Rebind(`select `+started+` from replays r where r.id = ?`), int64(now.Add(-time.Minute)), id); err != nil {
				return nil, err
			}
			left[id] = rep.RatePerMinute - n
		}
	}
	return slices.DeleteFunc(letters, func(l deadletter.Letter) bool {
		if l.ReplayID == "" {
			return false
		}
		left[l.ReplayID]--
		return left[l.ReplayID] < 0
	}), nil
}
