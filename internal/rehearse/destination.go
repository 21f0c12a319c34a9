package rehearse

import (
	"fmt"
	"sync"
)

// destination is a paid one that knows no idempotency keys: what it is asked twice it does twice. Its own count, and not
// what anybody was answered, is the judge.
type destination struct {
	mu   sync.Mutex
	done map[string][]string // what was done -> the receipts
}

// act does it, and returns the receipt.
func (d *destination) act(what string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	receipt := fmt.Sprintf("rcpt-%s-%d", what, len(d.done[what])+1)
	d.done[what] = append(d.done[what], receipt)
	return receipt
}

// count is how often it was done.
func (d *destination) count(what string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.done[what])
}

// receipt is the first one; empty where it was never done.
func (d *destination) receipt(what string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.done[what]) == 0 {
		return ""
	}
	return d.done[what][0]
}
