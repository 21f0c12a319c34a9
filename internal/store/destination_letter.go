package store

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// crowded are the destinations that take nothing now, so that their letters are not looked at and stand in nobody's
// way. It is read without locks: what it says is a hint.
func (s *Store) crowded(ctx context.Context, tx *sqlx.Tx) (names []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(s.limits)) {
		if !s.limited(name) {
			continue
		}
		p, err := s.seePlace(ctx, tx, name)
		if err != nil {
			return nil, err
		}
		room, err := s.room(ctx, tx, p, 1)
		if err != nil {
			return nil, err
		}
		if room.Permits == 0 {
			names = append(names, name)
		}
	}
	return names, nil
}

// permitted leaves out letters whose destination takes no more now. A letter whose one request is sent again uses a
// permit, for as long as lease. One whose workflow runs again uses none: each of its steps claims first and uses its
// own. It is handed out while there is room, and no step must wait for its own letter.
func (s *Store) permitted(ctx context.Context, tx *sqlx.Tx, letters []deadletter.Letter, lease time.Duration) ([]deadletter.Letter, error) {
	wanted := map[string]int64{}
	for i := range letters {
		if d := letters[i].Destination; s.limited(d) {
			wanted[d]++
		}
	}
	left := map[string]int64{}
	for _, d := range slices.Sorted(maps.Keys(wanted)) { // all take their locks in one order
		p, err := s.lockPlace(ctx, tx, d)
		if err != nil {
			return nil, err
		}
		room, err := s.room(ctx, tx, p, wanted[d])
		if err != nil {
			return nil, err
		}
		left[d] = room.Permits
		s.held(p, room)
		if n := requests(letters, d, room.Permits); n > 0 {
			p.take(n, cmp.Or(lease, deadletter.DefaultLease*time.Second))
		}
		if err := s.savePlace(ctx, tx, p); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(letters, func(l deadletter.Letter) bool {
		if wanted[l.Destination] == 0 {
			return false
		}
		left[l.Destination]--
		return left[l.Destination] < 0
	}), nil
}

// requests counts those among the first n letters of a destination that are one request each.
func requests(letters []deadletter.Letter, destination string, n int64) (count int64) {
	for i := range letters {
		if l := &letters[i]; l.Destination == destination && n > 0 {
			n--
			if l.Play == deadletter.PlayRequest {
				count++
			}
		}
	}
	return count
}

// observeLetter feeds the circuit of a letter's destination with how its one request ended; before is the letter as
// it was leased. It comes before the letter is written and an alert raised, since claims take their locks so.
func (s *Store) observeLetter(ctx context.Context, tx *sqlx.Tx, before *deadletter.Letter, e *deadletter.Ending, out *deadletter.Ended) error {
	if !e.ByToken || !out.Changed || e.Verb == deadletter.Extend || before.Play != deadletter.PlayRequest || !s.circuited(before.Destination) {
		return nil
	}
	p, err := s.lockPlace(ctx, tx, before.Destination)
	if err != nil {
		return err
	}
	o := ledger.Observation{Began: before.UpdatedAt}
	switch {
	case e.Verb == deadletter.Resolve:
		o.Health = ledger.Healthy
	case !e.NotNow:
		o.Health = ledger.HealthOf(string(out.Letter.Class), out.Letter.HTTPStatus)
	}
	return s.observed(ctx, tx, p, o)
}
