// Package notify sends alerts to people: Slack, Telegram, mail and what else shoutrrr knows, or the log. Alerts wait
// in a durable outbox, grouped, until their target has taken them.
package notify

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"holdfast/internal/deadletter"
)

// Outbox keeps alerts until they are sent. Each target has its own messages, so that one that is broken neither stops
// the others nor has them repeat what they took.
type Outbox interface {
	// LeaseAlert hands the oldest due message of a target to a sender for a minute, never to two at a time. ok is
	// false where none is due. The target "" is the log.
	LeaseAlert(ctx context.Context, target string) (m deadletter.OutboxMessage, ok bool, err error)
	// AlertSent notes that a leased message was sent.
	AlertSent(ctx context.Context, m *deadletter.OutboxMessage) error
	// AlertFailed notes that it was not, and says when it is tried again, or that it was given up.
	AlertFailed(ctx context.Context, m *deadletter.OutboxMessage) (again time.Duration, given bool, err error)
}

// Sender sends what is due to one target. Its fields are set before the first pass.
//
// A message is sent, then noted as sent. Where the program is killed between the two, it is sent once more when its
// lease is over: at least once, and twice only then, or where a service answers too late.
type Sender struct {
	Outbox Outbox
	Target *Target // nil: the log
	// PublicURL is what links begin with. They lead to what can be looked at: no GET changes anything.
	PublicURL string
	Log       *slog.Logger
	Seen      func(service string, sent bool) // for metrics; may be nil

	once, stopped sync.Once
	stop          chan struct{}
}

// perPass bounds how many messages go out in one pass: services limit their senders.
const perPass = 5

// Pass sends what is due. After a message that failed the target is left alone for this pass.
func (s *Sender) Pass(ctx context.Context) error {
	s.ready()
	target := ""
	if s.Target != nil {
		target = s.Target.ID
	}
	for range perPass {
		select {
		case <-s.stop:
			return nil
		default:
		}
		m, ok, err := s.Outbox.LeaseAlert(ctx, target)
		if err != nil || !ok {
			return err
		}
		if sent, err := s.deliver(ctx, &m); err != nil || !sent {
			return err
		}
	}
	return nil
}

// Stop ends the pass under way soon and lets no other message out.
func (s *Sender) Stop() {
	s.ready()
	s.stopped.Do(func() { close(s.stop) })
}

func (s *Sender) ready() { s.once.Do(func() { s.stop = make(chan struct{}) }) }

func (s *Sender) deliver(ctx context.Context, m *deadletter.OutboxMessage) (sent bool, err error) {
	t := s.Target
	if t == nil {
		s.Log.Warn(titleOf(m), "alert", m.Group, "count", m.Count, "link", s.link(m.Path))
		return true, s.Outbox.AlertSent(ctx, m)
	}
	failed := t.send(s.stop, titleOf(m), s.Message(m))
	if s.Seen != nil {
		s.Seen(t.Service, failed == nil)
	}
	if failed == nil {
		return true, s.Outbox.AlertSent(ctx, m)
	}
	again, given, err := s.Outbox.AlertFailed(ctx, m)
	switch {
	case err != nil:
		return false, err
	case given:
		s.Log.Error("an alert could not be sent for three days and was given up", "service", t.Service, "alert", m.Group,
			"title", titleOf(m), "count", m.Count, "link", s.link(m.Path), "cause", failed)
	default:
		s.Log.Warn("an alert could not be sent and will be tried again", "service", t.Service, "alert", m.Group,
			"again_in", again, "attempt", m.Attempts, "cause", failed)
	}
	return false, nil
}
