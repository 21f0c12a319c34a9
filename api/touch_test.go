package api_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"holdfast/internal/ledger"
)

// withTouch settles what is unknown as a probe does: by what verdicts says of a key. A key that is not in it could not
// be asked about.
func withTouch(verdicts map[string]ledger.Verb, touched *[]string) setting {
	return func(s *settings) {
		s.touch = func(w *world) func(context.Context, *ledger.Claim) bool {
			return func(ctx context.Context, c *ledger.Claim) bool {
				*touched = append(*touched, c.Key.IdempotencyKey)
				looks, err := w.store.LeaseUnknown(ctx, &ledger.LookRequest{CallerKey: "probe:charge", Limit: 1, LeaseSeconds: 60, Probe: true, ID: c.ID})
				if err != nil || len(looks) == 0 {
					return false
				}
				verb, ok := verdicts[c.Key.IdempotencyKey]
				if !ok {
					return false
				}
				e := &ledger.Ending{Verb: verb, CallerKey: "probe:charge", ByToken: true, NotExecuted: true, ResultID: "ch_7"}
				e.Token, _ = ledger.ParseToken(looks[0].LookToken())
				_, err = w.store.End(ctx, e)
				return err == nil
			}
		}
	}
}

// A claim that meets an unknown one asks first, and answers what stands then. Nothing else touches: not before ask_after,
// not while somebody asks, and not before the next look is due.
func TestTouch(t *testing.T) {
	t.Parallel()
	var touched []string
	w := newWorld(t, withTouch(map[string]ledger.Verb{"found": ledger.Complete, "missing": ledger.MarkFailed, "away": ledger.MarkUnknown}, &touched))
	for _, k := range []string{"found", "missing", "away", "hangs"} {
		w.unknown(t, k)
		w.decides(t, "unknown", effect(k, "charge"))
	}
	w.clock.advance(5 * time.Minute)
	w.decides(t, "completed", effect("found", "charge")).has(t, obj{"result_id": "ch_7", "status": "completed"})
	w.decides(t, "proceed", effect("missing", "charge")).has(t, obj{"attempt": 2, "claimed": true})
	w.decides(t, "in_progress", effect("missing", "charge"))
	for range 3 {
		w.decides(t, "unknown", effect("away", "charge"))
		w.decides(t, "unknown", effect("hangs", "charge"))
	}
	w.clock.advance(59 * time.Second)
	w.decides(t, "unknown", effect("away", "charge"))
	w.decides(t, "unknown", effect("hangs", "charge"))
	w.clock.advance(time.Second)
	w.decides(t, "unknown", effect("away", "charge"))
	w.decides(t, "unknown", effect("hangs", "charge"))
	w.decides(t, "completed", effect("found", "charge"))
	w.proceeds(t, key("new"))
	w.clock.advance(24 * time.Hour)
	w.decides(t, "review", effect("away", "charge"))
	if got := strings.Join(touched, " "); got != "found missing away hangs away hangs" {
		t.Errorf("touched %s", got)
	}
}
