package worker

import (
	"context"
	"log/slog"

	"holdfast/internal/ledger"
)

// retainPages is how many pages of rows one pass of the retention looks at: few enough not to be felt.
const retainPages = 20

// Retain is one pass that removes what is older than the rules allow.
func Retain(store ledger.Store, keep ledger.Retention, log *slog.Logger) func(context.Context) error {
	return func(ctx context.Context) error {
		r, err := store.Retain(ctx, keep, retainPages)
		if r != (ledger.RetentionReport{}) {
			log.Info("removed what is older than the rules of retention", "payloads", r.Payloads, "events", r.Events, "letters", r.Letters, "history", r.History)
		}
		return err
	}
}
