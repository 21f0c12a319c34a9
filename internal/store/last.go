package store

import (
	"cmp"
	"context"
	"slices"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/deadletter"
)

// last is what a transaction does at its end: the locks of replays, and then those of the groups of alerts, come behind
// all others and each in one order, so that two transactions do not wait for each other.
type last struct {
	letters map[string]deadletter.Letter // of replays, as they stand
	alerts  []raised
}

// lastOf is the end of a transaction that is under way; nil for what is none.
func (s *Store) lastOf(q querier) *last {
	l, _ := s.lasts.Load(q)
	end, _ := l.(*last)
	return end
}

// finish does what was put off.
func (s *Store) finish(ctx context.Context, tx *sqlx.Tx, end *last) error {
	letters := make([]deadletter.Letter, 0, len(end.letters))
	for _, l := range end.letters {
		if l.ReplayID != "" {
			letters = append(letters, l)
		}
	}
	slices.SortFunc(letters, func(a, b deadletter.Letter) int {
		return cmp.Or(cmp.Compare(a.ReplayID, b.ReplayID), cmp.Compare(a.ID, b.ID))
	})
	for len(letters) > 0 {
		n := 1
		for n < len(letters) && letters[n].ReplayID == letters[0].ReplayID {
			n++
		}
		if err := s.replayed(ctx, tx, letters[:n]); err != nil {
			return err
		}
		letters = letters[n:]
	}
	return s.writeAlerts(ctx, tx, end.alerts)
}
