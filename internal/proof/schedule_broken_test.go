package proof

import (
	"context"
	"strings"
	"testing"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// without is one rule that is not kept, by the store, by the workers or by the destination, and what comes of it.
type without struct {
	manners manners
	claims  func(*broken) ledger.Store
	letters func(deadletter.Store) deadletter.Store
	breaks  string
}

const twice = "was charged twice"

var rulesLeftOut = map[string]without{
	"a provider key for each attempt":           {manners: withKeys, claims: func(b *broken) ledger.Store { return rotating{b} }, breaks: twice},
	"not found is believed at once":             {manners: withoutKeys, claims: func(b *broken) ledger.Store { return credulous{b} }, breaks: twice},
	"time alone frees an effect":                {manners: withoutKeys, claims: func(b *broken) ledger.Store { return freedByTime{b} }, breaks: twice},
	"a time-out is taken for a refusal":         {manners: withoutKeys.but(func(m *manners) { m.hasty = true }), breaks: twice},
	"Retry On Fail without keys":                {manners: withoutKeys.but(func(m *manners) { m.tries = 3 }), breaks: twice},
	"a hand retry at the call, without keys":    {manners: withoutKeys.but(func(m *manners) { m.resumes = true }), breaks: twice},
	"a worker outlives its lease, without keys": {manners: withoutKeys.but(func(m *manners) { m.slow = true }), breaks: twice},
	"a request outlives not_found_after":        {manners: withoutKeys.but(func(m *manners) { m.late = time.Hour }), breaks: twice},
	"a search lags behind not_found_after":      {manners: withoutKeys.but(func(m *manners) { m.lag = time.Hour }), breaks: twice},
	"nobody looks for events that were lost": {
		manners: withKeys, letters: func(s deadletter.Store) deadletter.Store { return unswept{s} }, breaks: "there is no end to it",
	},
}

func (m manners) but(change func(*manners)) manners { change(&m); return m }

// The schedules can fail: with any one rule left out, they find what it prevents.
func TestRulesLeftOut(t *testing.T) {
	t.Parallel()
	for name, rule := range rulesLeftOut {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newField(t, databases["PostgreSQL"](t))
			if rule.claims != nil {
				f.claims = rule.claims(&broken{Store: f.claims, clock: f.clock, newest: map[string]ledger.Claim{}})
			}
			if rule.letters != nil {
				f.letters = rule.letters(f.letters)
			}
			found, moments, played := f.search(1, 4096, time.Now().Add(10*time.Minute), rule.manners)
			switch {
			case found == nil:
				t.Errorf("%d schedules did not find it", played)
			case !strings.Contains(found.wrong, rule.breaks):
				t.Error(found)
			case testing.Verbose():
				t.Logf("found within %d schedules: %v", played, f.shorter(moments, found))
			}
		})
	}
}

// credulous believes "not found" at once.
type credulous struct{ *broken }

func (b credulous) End(ctx context.Context, e *ledger.Ending) (ledger.Ended, error) {
	out, err := b.Store.End(ctx, e)
	if err != nil || !e.NotExecuted || e.Token.Look == 0 || out.Claim.Status != ledger.Unknown {
		return out, err
	}
	return b.Resolve(ctx, out.Claim.ID, &ledger.Resolution{To: ledger.Failed, AuthorizedBy: "reconciler", Reason: "it says so"})
}

// unswept makes no letters of events whose runs went silent.
type unswept struct{ deadletter.Store }

func (unswept) SweepLetters(context.Context) (deadletter.SweepReport, error) {
	return deadletter.SweepReport{}, nil
}
