package worker

import (
	"context"
	"log/slog"

	"holdfast/internal/ledger"
)

// Sweep is one pass that settles ended leases in the tables. Decisions never depend on it.
func Sweep(store ledger.Store, log *slog.Logger, seen func(ledger.SweepReport)) func(context.Context) error {
	return func(ctx context.Context) error {
		r, err := store.Sweep(ctx)
		if err != nil {
			return err
		}
		seen(r)
		if r.Expired > 0 || r.Reviewed > 0 {
			log.Info("leases ended without a report", "now_unknown", r.Expired, "now_in_review", r.Reviewed)
		}
		return nil
	}
}
