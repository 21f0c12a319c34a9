package store

import (
	"hash/maphash"
	"sync"

	"holdfast/internal/ledger"
)

// recent remembers the keys that this process has met lately, so that a duplicate is looked up at once instead of
// being inserted in vain first. It is a guess and nothing more: the decision is made over the row, and where there
// is none after all, the claim goes on as a new one.
type recent struct {
	seed maphash.Seed

	mu       sync.Mutex
	new, old map[uint64]struct{}
}

// recentKeys is how many keys each of the two generations holds.
const recentKeys = 1 << 14

func newRecent() *recent {
	return &recent{seed: maphash.MakeSeed(), new: map[uint64]struct{}{}, old: map[uint64]struct{}{}}
}

// met tells whether the key was met before, and remembers it.
func (r *recent) met(k ledger.Key) bool {
	h := maphash.Comparable(r.seed, k)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.new[h]; ok {
		return true
	}
	_, ok := r.old[h]
	if len(r.new) >= recentKeys {
		r.new, r.old = map[uint64]struct{}{}, r.new
	}
	r.new[h] = struct{}{}
	return ok
}
