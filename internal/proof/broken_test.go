package proof

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"holdfast/internal/ledger"
)

// broken is a store with one fault. What it remembers is what it needs to misbehave.
type broken struct {
	ledger.Store
	clock *clock

	mu     sync.Mutex
	newest map[string]ledger.Claim // by id, as last handed out
}

// faults are stores that break one promise each. The ledger's own rules stand beneath, so that each is wrong in
// this one way only.
var faults = map[string]func(*broken) ledger.Store{
	"forgets the fence":                   func(b *broken) ledger.Store { return unfenced{b} },
	"lets time free an effect":            func(b *broken) ledger.Store { return freedByTime{b} },
	"grants again after a completed":      func(b *broken) ledger.Store { return grantsAgain{b} },
	"grants again while a lease is live":  func(b *broken) ledger.Store { return grantsTwice{b} },
	"acknowledges before it is durable":   func(b *broken) ledger.Store { return forgetful{b} },
	"changes the provider key by itself":  func(b *broken) ledger.Store { return rotating{b} },
	"believes a refusal after many tries": func(b *broken) ledger.Store { return trusting{b} },
	"writes an entry of history twice":    func(b *broken) ledger.Store { return doubling{b} },
}

// The proof can fail: both the model and the promises alone find each fault, within the histories that a default run
// draws, and tell it in a few calls.
func TestFaultsAreFound(t *testing.T) {
	t.Parallel()
	for name, make := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBase(t, databases["PostgreSQL"](t))
			wrap := func(s ledger.Store, c *clock) ledger.Store {
				return make(&broken{Store: s, clock: c, newest: map[string]ledger.Claim{}})
			}
			for judge, by := range map[string]judges{"the model": {model: true}, "the promises": {invariants: true}} {
				calls, err := find(b, wrap, by)
				switch {
				case err == nil:
					t.Errorf("%s did not find it", judge)
				case len(calls) > 8:
					t.Errorf("%s tells it in %d calls: %v", judge, len(calls), err)
				default:
					t.Logf("%s found it: %v", judge, err)
				}
			}
		})
	}
}

// find plays histories, the same ones in every run, until one fails, and takes calls out of that one as long as it
// still does. Every other history is about one claim only, whose calls then meet more often.
func find(b *base, wrap func(ledger.Store, *clock) ledger.Store, by judges) (calls []call, found error) {
	histories := rapid.Custom(drawHistory)
	for seed := 0; found == nil && seed < 200; seed++ {
		calls = histories.Example(seed)
		if seed%2 == 1 {
			calls = narrow(calls)
		}
		found = b.history(wrap).play(calls, by)
	}
	if found == nil {
		return nil, nil
	}
	for shorter := true; shorter; {
		shorter = false
		for size := len(calls) / 2; size > 0; size /= 2 {
			for i := 0; i+size <= len(calls); {
				less := slices.Delete(slices.Clone(calls), i, i+size)
				if err := b.history(wrap).play(less, by); err != nil {
					calls, found, shorter = less, err, true
				} else {
					i += size
				}
			}
		}
	}
	return calls, found
}

func narrow(calls []call) (out []call) {
	for _, c := range calls {
		switch q := c.(type) {
		case claimCall:
			q.slot, q.kind, q.payload = slots[0], "", ""
			c = q
		case endCall:
			q.slot = slots[0]
			c = q
		case resolveCall:
			q.slot = slots[0]
			c = q
		case passCall:
			q.of = slots[0]
			c = q
		}
		out = append(out, c)
	}
	return out
}

// Without a fault the same histories hold: what finds the faults is not noise.
func TestNoFaultNoFinding(t *testing.T) {
	t.Parallel()
	b := newBase(t, databases["PostgreSQL"](t))
	histories := rapid.Custom(drawHistory)
	for seed := range 25 {
		for _, calls := range [][]call{histories.Example(seed), narrow(histories.Example(seed))} {
			if err := b.history(nil).play(calls, all); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (b *broken) Claim(ctx context.Context, r *ledger.Request) (ledger.Verdict, error) {
	v, err := b.Store.Claim(ctx, r)
	if err == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.newest[v.Claim.ID] = v.Claim
	}
	return v, err
}

// unfenced takes any token for the newest.
type unfenced struct{ *broken }

func (b unfenced) End(ctx context.Context, e *ledger.Ending) (ledger.Ended, error) {
	one := *e
	b.mu.Lock()
	c, ok := b.newest[e.Token.ClaimID]
	b.mu.Unlock()
	if ok && e.ByToken && e.Token.Look == 0 {
		one.Token, _ = ledger.ParseToken(c.LeaseToken())
	}
	return b.Store.End(ctx, &one)
}

// freedByTime sets an effect free that nobody has heard of for a while.
type freedByTime struct{ *broken }

func (b freedByTime) Claim(ctx context.Context, r *ledger.Request) (ledger.Verdict, error) {
	v, err := b.broken.Claim(ctx, r)
	long := ledger.At(b.clock.now().Add(-20 * time.Second))
	if err != nil || v.Decision != ledger.DecisionUnknown || v.Claim.UnknownSince > long {
		return v, err
	}
	if _, err := b.Resolve(ctx, v.Claim.ID, &ledger.Resolution{To: ledger.Failed, AuthorizedBy: "time", Reason: "it is long ago"}); err != nil {
		return v, nil //nolint:nilerr // then it is not free after all
	}
	return b.broken.Claim(ctx, r)
}

// grantsAgain lets a caller proceed although the claim is completed.
type grantsAgain struct{ *broken }

func (b grantsAgain) Claim(ctx context.Context, r *ledger.Request) (ledger.Verdict, error) {
	v, err := b.broken.Claim(ctx, r)
	if err == nil && v.Decision == ledger.DecisionCompleted {
		v.Decision = ledger.Proceed
	}
	return v, err
}

// grantsTwice lets a caller in beside the one that holds the lease.
type grantsTwice struct{ *broken }

func (b grantsTwice) Claim(ctx context.Context, r *ledger.Request) (ledger.Verdict, error) {
	v, err := b.broken.Claim(ctx, r)
	if err == nil && v.Decision == ledger.InProgress && r.Origin.Owner == "" {
		v.Decision, v.RetryAfter = ledger.Proceed, 0
	}
	return v, err
}

// forgetful answers a receipt and does not keep it.
type forgetful struct{ *broken }

func (b forgetful) End(ctx context.Context, e *ledger.Ending) (ledger.Ended, error) {
	c, _, err := b.Get(ctx, e.Token.ClaimID)
	if e.Verb != ledger.Complete || !e.ByToken || err != nil || c.Status != ledger.Processing || c.Grant != e.Token.Grant {
		return b.Store.End(ctx, e)
	}
	c.Status, c.ResultID, c.CompletedAt = ledger.Completed, e.ResultID, ledger.At(b.clock.now())
	return ledger.Ended{Claim: c, Changed: true}, nil
}

// rotating gives each attempt a provider key of its own.
type rotating struct{ *broken }

func (b rotating) Claim(ctx context.Context, r *ledger.Request) (ledger.Verdict, error) {
	v, err := b.broken.Claim(ctx, r)
	if v.Claim.Attempt > 1 {
		v.Claim.ProviderKey += "2"
	}
	return v, err
}

// trusting takes the last try's word for all tries, also where the effect is unknown.
type trusting struct{ *broken }

func (b trusting) End(ctx context.Context, e *ledger.Ending) (ledger.Ended, error) {
	out, err := b.Store.End(ctx, e)
	var refusal *ledger.Refusal
	if e.Verb != ledger.MarkFailed || errors.As(err, &refusal) || err != nil || out.Claim.Status != ledger.Unknown {
		return out, err
	}
	return b.Resolve(ctx, out.Claim.ID, &ledger.Resolution{To: ledger.Failed, AuthorizedBy: "n8n", Reason: "it says so"})
}

// doubling tells the newest entry of a history twice.
type doubling struct{ *broken }

func (b doubling) Get(ctx context.Context, id string) (ledger.Claim, []ledger.HistoryEntry, error) {
	c, history, err := b.Store.Get(ctx, id)
	if len(history) > 1 {
		history = append(history, history[len(history)-1])
	}
	return c, history, err
}
