package notify

import (
	"fmt"
	"net/url"
	"strings"

	"holdfast/internal/deadletter"
	"holdfast/internal/failure"
)

// Message is the whole text that a target gets: what happened, how often, and where to look.
func (s *Sender) Message(m *deadletter.OutboxMessage) string {
	lines := []string{titleOf(m)}
	if m.Count > 1 {
		lines[0] += fmt.Sprintf(" (and %d more like it)", m.Count-1)
	}
	if text := textOf(m); text != "" {
		lines = append(lines, text)
	}
	if m.Last != "" && m.Count > 1 {
		lines = append(lines, "The newest: "+failure.Redact(m.Last, nil))
	}
	if m.Path != "" {
		lines = append(lines, s.link(m.Path))
	}
	return strings.Join(lines, "\n")
}

// Who raises an alert keeps secrets out of it; this is the second lock.

func titleOf(m *deadletter.OutboxMessage) string { return failure.Redact(m.Title, nil) }

func textOf(m *deadletter.OutboxMessage) string { return failure.Redact(m.Text, nil) }

// link is where a person looks; a path that is none leads to the start.
func (s *Sender) link(path string) string {
	base := strings.TrimSuffix(s.PublicURL, "/")
	if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, " \n") {
		return base + "/"
	}
	if u, err := url.Parse(base); err == nil {
		u.User = nil
		base = u.String()
	}
	return base + path
}
