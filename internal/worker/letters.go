package worker

import (
	"context"
	"log/slog"

	"holdfast/internal/deadletter"
)

// SweepLetters is one pass that makes letters of what was lost in silence, ends leases that are over, and settles what
// was completed meanwhile.
func SweepLetters(store deadletter.Store, log *slog.Logger) func(context.Context) error {
	return func(ctx context.Context) error {
		r, err := store.SweepLetters(ctx)
		if err == nil && r != (deadletter.SweepReport{}) {
			log.Info("dead letters moved by themselves", "lease_expired", r.LeaseExpired, "never_claimed", r.NeverClaimed, "leases_ended", r.Ended, "settled", r.Settled, "not_done", r.Undone)
		}
		return err
	}
}

// CountLetters is one pass that tells seen how many letters there are. It looks at all of them, so it is not for every
// few seconds.
func CountLetters(store deadletter.Store, seen func(deadletter.Stats)) func(context.Context) error {
	return func(ctx context.Context) error {
		stats, err := store.LetterStats(ctx)
		if err == nil {
			seen(stats)
		}
		return err
	}
}
