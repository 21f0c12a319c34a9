package store

import (
	"context"
	"sync"
	"time"

	"holdfast/internal/ledger"
)

// Work asks for permits all the time, and a probe every few seconds: where work uses up a rate, looks would never come.
// So when a claim has waited too long, a permit is kept from work for a while; looks get about a tenth of a rate in this way.
const (
	turnKept  = 30 * time.Second // some turns of a probe
	turnShare = 10
)

// turns are the permits that this process keeps for looks.
type turns struct {
	mu    sync.Mutex
	until map[string]ledger.Instant // by destination: how long one is kept
	after map[string]ledger.Instant // not before another one is
}

func newTurns() *turns {
	return &turns{until: map[string]ledger.Instant{}, after: map[string]ledger.Instant{}}
}

func (t *turns) kept(name string, now ledger.Instant) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now < t.until[name] {
		return 1
	}
	return 0
}

func (t *turns) keep(name string, now ledger.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now >= t.after[name] {
		t.until[name] = now.Add(turnKept)
	}
}

// took notes that a look was let through.
func (t *turns) took(p *place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.until[p.name], t.after[p.name] = 0, p.now.Add(p.limit.Rate.Per*turnShare/time.Duration(max(1, p.limit.Rate.N)))
}

// keepTurn keeps a permit where one of these claims has waited for it too long.
func (s *Store) keepTurn(ctx context.Context, f *filter, p *place) error {
	if p.now < p.load.OpenUntil {
		return nil
	}
	waits := f.copied()
	waits.add("c.destination = ?", p.name)
	s.past(waits, p.now, patience, "c.unknown_since", "c.next_look", "c.look_until")
	var n int
	err := s.read.GetContext(ctx, &n, s.read.Rebind("select count(*) from (select 1 from claims c "+waits.sql("", 0)+") as w"), waits.args...)
	if err == nil && n > 0 {
		s.turns.keep(p.name, p.now)
	}
	return err
}
