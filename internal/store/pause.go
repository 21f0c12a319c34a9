package store

import (
	"context"
	"fmt"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/ledger"
)

// pauses are those in force, by scope.
type pauses = map[string]ledger.Pause

func (s *Store) readPauses(ctx context.Context, q querier) (pauses, error) {
	list, err := selectPauses(ctx, q)
	out := make(pauses, len(list))
	for _, p := range list {
		out[p.Scope] = p
	}
	return out, err
}

func selectPauses(ctx context.Context, q querier) ([]ledger.Pause, error) {
	var rows []struct {
		Scope        string `db:"scope"`
		AuthorizedBy string `db:"authorized_by"`
		Reason       string `db:"reason"`
		Since        int64  `db:"since"`
		Until        int64  `db:"until"`
	}
	err := sqlx.SelectContext(ctx, q, &rows, `select scope, authorized_by, reason, since, until from pauses order by scope`)
	out := make([]ledger.Pause, len(rows))
	for i, r := range rows {
		out[i] = ledger.Pause{Scope: r.Scope, AuthorizedBy: r.AuthorizedBy, Reason: r.Reason, Since: ledger.Instant(r.Since), Until: ledger.Instant(r.Until)}
	}
	return out, err
}

// Pauses is part of ledger.Store. Pauses whose end has passed are left out.
func (s *Store) Pauses(ctx context.Context) ([]ledger.Pause, error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	all, err := selectPauses(ctx, s.read)
	now := s.clock.now()
	out := all[:0]
	for _, p := range all {
		if p.Until == 0 || p.Until > now {
			out = append(out, p)
		}
	}
	return out, s.translate(err)
}

// SetPause is part of ledger.Store. Sent again with the same words it changes nothing.
func (s *Store) SetPause(ctx context.Context, p ledger.Pause) (ledger.Pause, error) {
	err := s.inTx(ctx, func(tx *sqlx.Tx) error {
		now := s.clock.now()
		n, err := affected(tx.ExecContext(ctx, tx.Rebind(`insert into pauses (scope, authorized_by, reason, since, until) values (?, ?, ?, ?, ?)
			on conflict (scope) do update set authorized_by = excluded.authorized_by, reason = excluded.reason, since = excluded.since, until = excluded.until
			where pauses.authorized_by <> excluded.authorized_by or pauses.reason <> excluded.reason or pauses.until <> excluded.until`),
			p.Scope, p.AuthorizedBy, p.Reason, int64(now), int64(p.Until)))
		if err != nil {
			return err
		}
		all, err := s.readPauses(ctx, tx)
		if p = all[p.Scope]; err != nil || n == 0 {
			return err
		}
		return s.act(ctx, tx, now, "paused "+p.Scope, p.AuthorizedBy, p.Reason)
	})
	return p, s.translate(err)
}

// ClearPause is part of ledger.Store. It tells whether there was a pause.
func (s *Store) ClearPause(ctx context.Context, scope, by string) (cleared bool, err error) {
	err = s.inTx(ctx, func(tx *sqlx.Tx) error {
		n, err := affected(tx.ExecContext(ctx, tx.Rebind(`delete from pauses where scope = ?`), scope))
		if cleared = n > 0; err != nil || !cleared {
			return err
		}
		return s.act(ctx, tx, s.clock.now(), "resumed "+scope, by, "")
	})
	return cleared, s.translate(err)
}

// act records what a person did that concerns no single claim.
func (s *Store) act(ctx context.Context, q querier, now ledger.Instant, what, by, reason string) error {
	return s.insertEntries(ctx, q, []ledger.HistoryEntry{{
		ID: fmt.Sprintf("act-%d-%s", now, what), Transition: ledger.Transition{At: now, Message: what, By: by, Reason: reason},
	}})
}
