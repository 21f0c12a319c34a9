package store

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/ledger"
)

// Retain is part of ledger.Store. It walks all rows in the order of their ids, which is the order of time, a few pages
// at a time, and begins anew when it has come to the end.
func (s *Store) Retain(ctx context.Context, keep ledger.Retention, pages int) (r ledger.RetentionReport, err error) {
	now := s.clock.now()
	for _, step := range []struct {
		mark string
		page func(ctx context.Context, after string) (next string, err error)
	}{
		{"retain_claims", func(ctx context.Context, after string) (string, error) {
			return s.retainClaims(ctx, keep, now, after, &r)
		}},
		{"retain_letters", func(ctx context.Context, after string) (string, error) {
			return s.retainLetters(ctx, keep, now, after, &r)
		}},
		{"retain_replays", func(ctx context.Context, after string) (string, error) {
			return s.retainReplays(ctx, now.Add(-keep.History), after)
		}},
	} {
		if err := s.walk(ctx, step.mark, pages, step.page); err != nil {
			return r, s.translate(err)
		}
	}
	r.History, err = s.retainHistory(ctx, now.Add(-keep.History), pages)
	return r, s.translate(err)
}

// walk goes on where it stopped last.
func (s *Store) walk(ctx context.Context, mark string, pages int, page func(context.Context, string) (string, error)) error {
	at, err := s.Mark(ctx, mark)
	if err != nil {
		return err
	}
	for range pages {
		if at, err = page(ctx, at); err != nil || at == "" || s.stopping.Load() {
			break
		}
	}
	if err != nil {
		return err
	}
	return s.SetMark(ctx, mark, at)
}

// idBefore is the smallest id that a row made at this time can have: ids begin with milliseconds.
func idBefore(at ledger.Instant) string {
	ms := uint64(max(0, at)) / 1000 //nolint:gosec // not negative
	return fmt.Sprintf("%08x-%04x-", ms>>16, ms&0xffff)
}

// retainClaims takes one page: payloads of what is settled, then events that are done. Effects stay for ever, and so
// does everything that still waits for something.
func (s *Store) retainClaims(ctx context.Context, keep ledger.Retention, now ledger.Instant, after string, r *ledger.RetentionReport) (next string, err error) {
	var ids []string
	youngest := now.Add(-min(keep.Payloads, keep.Events))
	if err := s.read.SelectContext(ctx, &ids, s.read.Rebind(`select id from claims where id > ? and id < ? order by id limit ?`), after, idBefore(youngest), page); err != nil || len(ids) == 0 {
		return "", err
	}
	err = s.inTx(ctx, func(tx *sqlx.Tx) error {
		n, err := among(ctx, tx, `update claims set payload = ?, rev = rev + 1 where id in (?) and status in ('completed', 'stale') and last_at < ? and length(payload) > 0`,
			[]byte{}, ids, int64(now.Add(-keep.Payloads)))
		if err != nil {
			return err
		}
		r.Payloads += n
		n, err = among(ctx, tx, `delete from claims where id in (?) and kind = 'event' and status in ('completed', 'stale') and last_at < ?
			and not exists (select 1 from letters l where l.claim_id = claims.id and l.claim_id <> '' and l.status in ('queued', 'replaying', 'dead'))`,
			ids, int64(now.Add(-keep.Events)))
		r.Events += n
		return err
	})
	return ids[len(ids)-1], err
}

// retainLetters takes one page of letters that are settled.
func (s *Store) retainLetters(ctx context.Context, keep ledger.Retention, now ledger.Instant, after string, r *ledger.RetentionReport) (next string, err error) {
	var ids []string
	if err := s.read.SelectContext(ctx, &ids, s.read.Rebind(`select id from letters where id > ? and id < ? order by id limit ?`),
		after, idBefore(now.Add(-min(keep.Payloads, keep.History))), page); err != nil || len(ids) == 0 {
		return "", err
	}
	err = s.inTx(ctx, func(tx *sqlx.Tx) error {
		n, err := among(ctx, tx, `update letters set payload = ?, error = ?, last_result = ?, input_state = 'aged', rev = rev + 1
			where id in (?) and status in ('resolved', 'discarded') and updated_at < ? and input_state <> 'aged'`,
			[]byte{}, []byte{}, []byte{}, ids, int64(now.Add(-keep.Payloads)))
		if err != nil {
			return err
		}
		r.Payloads += n
		if _, err := among(ctx, tx, `delete from letter_entries where letter_id in (select id from letters where id in (?) and status in ('resolved', 'discarded') and updated_at < ?)`,
			ids, int64(now.Add(-keep.History))); err != nil {
			return err
		}
		n, err = among(ctx, tx, `delete from letters where id in (?) and status in ('resolved', 'discarded') and updated_at < ?`, ids, int64(now.Add(-keep.History)))
		r.Letters += n
		return err
	})
	return ids[len(ids)-1], err
}

// retainReplays takes one page of replays that have ended.
func (s *Store) retainReplays(ctx context.Context, horizon ledger.Instant, after string) (next string, err error) {
	var ids []string
	if err := s.read.SelectContext(ctx, &ids, s.read.Rebind(`select id from replays where id > ? and id < ? order by id limit ?`), after, idBefore(horizon), page); err != nil || len(ids) == 0 {
		return "", err
	}
	err = s.inTx(ctx, func(tx *sqlx.Tx) error {
		if _, err := among(ctx, tx, `delete from replay_letters where replay_id in (select id from replays where id in (?) and ended_at > 0 and ended_at < ?)`, ids, int64(horizon)); err != nil {
			return err
		}
		_, err := among(ctx, tx, `delete from replays where id in (?) and ended_at > 0 and ended_at < ?`, ids, int64(horizon))
		return err
	})
	return ids[len(ids)-1], err
}

func among(ctx context.Context, tx *sqlx.Tx, query string, args ...any) (int, error) {
	query, args, err := sqlx.In(query, args...)
	if err != nil {
		return 0, err
	}
	n, err := affected(tx.ExecContext(ctx, tx.Rebind(query), args...))
	return int(n), err
}

// retainHistory removes entries from before the horizon, which it writes down first: the database lets nothing
// younger go.
func (s *Store) retainHistory(ctx context.Context, horizon ledger.Instant, pages int) (total int, err error) {
	if horizon <= 0 {
		return 0, nil
	}
	if err := s.SetMark(ctx, "history_horizon", strconv.FormatInt(int64(horizon), 10)); err != nil {
		return 0, err
	}
	for range pages {
		var n int64
		err := s.inTx(ctx, func(tx *sqlx.Tx) (err error) {
			n, err = affected(tx.ExecContext(ctx, tx.Rebind(`delete from history where (claim_id, entry) in (
				select claim_id, entry from (select h.claim_id, h.entry from history h where h.at < ? order by h.at limit ?) as old)`), int64(horizon), page))
			return err
		})
		if total += int(n); err != nil || n < page || s.stopping.Load() {
			return total, err
		}
	}
	return total, nil
}
