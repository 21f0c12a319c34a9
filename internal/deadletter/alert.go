package deadletter

import "holdfast/internal/ledger"

// Alert is something that a person must know. Alerts of one group that come before the first of them was sent
// become one message with a count.
type Alert struct {
	Group string // such as "dead/WORKFLOW/CLASS": equal failures are one group
	Title string // one line, no secrets
	Text  string // a few lines, no secrets
	Path  string // what to look at, such as /dlq/ID; a GET never acts
	At    ledger.Instant
}

// OutboxMessage is a group of alerts to be sent as one to one target, leased to one sender.
type OutboxMessage struct {
	Target string // which address; empty: the log
	Lease  int64  // numbers the leases of this target and group
	Alert         // the first of the group
	Last   string // the newest text, where it differs
	Count  int64
	// Attempts counts those that failed, this one included.
	Attempts int64
	LastAt   ledger.Instant
}
