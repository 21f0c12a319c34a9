package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"

	"holdfast/internal/deadletter"
)

// written notes which groups of alerts are written, and how.
type written struct {
	querier

	groups []string
}

func (*written) Rebind(query string) string { return query }

func (w *written) ExecContext(_ context.Context, query string, args ...any) (sql.Result, error) {
	if query == calm {
		w.groups = append(w.groups, fmt.Sprint(args[3], " of ", args[2], " over"))
	} else {
		w.groups = append(w.groups, fmt.Sprint(args[1], " of ", args[0], " ", args[2]))
	}
	return nil, nil
}

// What is raised and what is over in one transaction takes its locks in one order, that of groups and targets, so that
// two of them never wait for each other. Of one group the newest word stands last.
func TestAlertsAreWrittenInOrder(t *testing.T) {
	t.Parallel()
	s := Store{clock: &clock{}, alerts: newAlerting(AlertOptions{Targets: []string{"mail", "chat"}})}
	var alerts []raised
	for _, of := range []string{"c", "-b", "a", "c", "-a", "b", "-c", "-c", "b", "a"} {
		group, over := of, of[0] == '-'
		if over {
			group = of[1:]
		}
		alerts = append(alerts, raised{Alert: deadletter.Alert{Group: group}, count: 1, calm: over})
	}
	var w written
	if err := s.raiseAll(t.Context(), &w, alerts); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, step := range []struct{ group, what string }{{"a", "1"}, {"a", "over"}, {"a", "1"}, {"b", "over"}, {"b", "2"}, {"c", "2"}, {"c", "over"}} {
		for _, target := range []string{"chat", "mail"} {
			want = append(want, step.group+" of "+target+" "+step.what)
		}
	}
	if !slices.Equal(w.groups, want) {
		t.Errorf("got  %q\nwant %q", w.groups, want)
	}
}
