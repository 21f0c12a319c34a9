package deadletter

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"holdfast/internal/ledger"
)

func TestReplayNext(t *testing.T) {
	for name, c := range map[string]struct {
		status ReplayStatus
		tally  Tally
		to     ReplayStatus
		places int64
	}{
		"the sample fills the free places":      {ReplaySampling, Tally{Waiting: 9, SampleWaits: 4, Active: 1, SampleActive: 1}, ReplaySampling, 2},
		"only the sample":                       {ReplaySampling, Tally{Waiting: 9, SampleWaits: 1}, ReplaySampling, 1},
		"the sample is under way":               {ReplaySampling, Tally{Waiting: 9, Active: 1, SampleActive: 1}, ReplaySampling, 0},
		"the sample is settled":                 {ReplaySampling, Tally{Waiting: 9, Settled: 5}, ReplayAwaiting, 0},
		"the sample was all":                    {ReplaySampling, Tally{Settled: 5}, ReplayDone, 0},
		"nothing to play":                       {ReplaySampling, Tally{}, ReplayDone, 0},
		"no sample was asked for":               {ReplaySampling, Tally{Waiting: 3}, ReplayAwaiting, 0},
		"it waits for approval":                 {ReplayAwaiting, Tally{Waiting: 9, Settled: 5}, ReplayAwaiting, 0},
		"nothing is left to approve":            {ReplayAwaiting, Tally{Settled: 5}, ReplayDone, 0},
		"approved":                              {ReplayRunning, Tally{Waiting: 9, Active: 1}, ReplayRunning, 2},
		"the last are under way":                {ReplayRunning, Tally{Active: 2}, ReplayRunning, 0},
		"all is played":                         {ReplayRunning, Tally{Settled: 7}, ReplayDone, 0},
		"a quarter failed":                      {ReplayRunning, Tally{Waiting: 9, Settled: 20, LastFailed: 5}, ReplayRunning, 3},
		"more than a quarter failed":            {ReplayRunning, Tally{Waiting: 9, Settled: 20, LastFailed: 6}, ReplayStopped, 0},
		"all failed, before the twentieth":      {ReplayRunning, Tally{Waiting: 9, Settled: 19, LastFailed: 19}, ReplayRunning, 3},
		"a sample that fails":                   {ReplaySampling, Tally{Waiting: 9, SampleWaits: 9, Settled: 25, LastFailed: 20}, ReplayStopped, 0},
		"stopped although nothing is left":      {ReplayRunning, Tally{Settled: 20, LastFailed: 6}, ReplayStopped, 0},
		"paused: nothing moves":                 {ReplayPaused, Tally{Waiting: 9, Settled: 20, LastFailed: 20}, ReplayPaused, 0},
		"paused, and all is settled by the way": {ReplayPaused, Tally{}, ReplayPaused, 0},
		"cancelled":                             {ReplayCancelled, Tally{Active: 1}, ReplayCancelled, 0},
	} {
		r := Replay{Status: c.status, MaxConcurrency: 3}
		if to, places := r.Next(c.tally); to != c.to || places != c.places {
			t.Errorf("%s: %s %d, want %s %d", name, to, places, c.to, c.places)
		}
	}
}

func TestReplayMove(t *testing.T) {
	const refused = ReplayStatus("409")
	for _, c := range []struct {
		from ReplayStatus
		verb ReplayVerb
		to   ReplayStatus
	}{
		{ReplaySampling, Approve, refused},
		{ReplaySampling, Pause, ReplayPaused},
		{ReplaySampling, Cancel, ReplayCancelled},
		{ReplayAwaiting, Approve, ReplayRunning},
		{ReplayAwaiting, Pause, ReplayPaused},
		{ReplayAwaiting, Cancel, ReplayCancelled},
		{ReplayRunning, Approve, ReplayRunning},
		{ReplayRunning, Pause, ReplayPaused},
		{ReplayRunning, Cancel, ReplayCancelled},
		{ReplayPaused, Pause, ReplayPaused},
		{ReplayPaused, Cancel, ReplayCancelled},
		{ReplayDone, Approve, refused},
		{ReplayDone, Pause, refused},
		{ReplayDone, Cancel, refused},
		{ReplayStopped, Approve, refused},
		{ReplayStopped, Cancel, refused},
		{ReplayCancelled, Approve, refused},
		{ReplayCancelled, Cancel, ReplayCancelled},
	} {
		r := Replay{Status: c.from}
		changed, err := r.Move(&ReplayMove{Verb: c.verb, AuthorizedBy: "ada"}, 7)
		var refusal *ledger.Refusal
		if c.to == refused {
			if !errors.As(err, &refusal) || refusal.Code != ledger.InvalidTransition || r.Status != c.from || changed {
				t.Errorf("%s from %s: %v, now %s", c.verb, c.from, err, r.Status)
			}
			continue
		}
		if err != nil || r.Status != c.to || changed != (c.from != c.to) || (r.EndedAt != 0) != (changed && c.to == ReplayCancelled) {
			t.Errorf("%s from %s: %v %v, now %+v", c.verb, c.from, changed, err, r)
		}
		if again, err := r.Move(&ReplayMove{Verb: c.verb, AuthorizedBy: "ada"}, 8); again || err != nil {
			t.Errorf("%s again after %s: %v %v", c.verb, c.from, again, err)
		}
	}
}

// A pause ends where it began; what was never approved is not approved by going on.
func TestReplayGoesOn(t *testing.T) {
	for from, to := range map[ReplayStatus]ReplayStatus{ReplaySampling: ReplaySampling, ReplayAwaiting: ReplayRunning, ReplayRunning: ReplayRunning} {
		r := Replay{Status: from}
		for range 2 { // also after a second pause
			for _, verb := range []ReplayVerb{Pause, Pause, Approve, Approve} {
				if _, err := r.Move(&ReplayMove{Verb: verb, AuthorizedBy: "ada"}, 7); err != nil {
					t.Fatalf("%s from %s: %v", verb, from, err)
				}
			}
		}
		approved := ""
		if to == ReplayRunning {
			approved = "ada"
		}
		if r.Status != to || r.ApprovedBy != approved || r.PausedFrom != "" {
			t.Errorf("from %s: %+v", from, r)
		}
	}
}

func TestReplayLetterAfter(t *testing.T) {
	for _, c := range []struct {
		from   ReplayLetterState
		now    Status
		to     ReplayLetterState
		judged bool
	}{
		{MemberActive, Resolved, MemberResolved, true},
		{MemberActive, Dead, MemberFailed, true},
		{MemberActive, Discarded, MemberLeft, false},
		{MemberWaiting, Dead, MemberWaiting, false},
		{MemberWaiting, Resolved, MemberResolved, false},
		{MemberWaiting, Discarded, MemberLeft, false},
		{MemberFailed, Resolved, MemberResolved, true}, // it had only been slow
		{MemberFailed, Discarded, MemberFailed, false},
		{MemberResolved, Dead, MemberFailed, true}, // its worker was wrong
		{MemberHeld, Resolved, MemberHeld, false},
		{MemberReleased, Dead, MemberReleased, false},
	} {
		if to, judged := c.from.After(&Letter{Status: c.now}); to != c.to || judged != c.judged {
			t.Errorf("%s, now %s: %s %v, want %s %v", c.from, c.now, to, judged, c.to, c.judged)
		}
	}
}

// An equal choice is the same replay, whoever asks, in whatever order.
func TestReplayIdentity(t *testing.T) {
	base := ReplayRequest{Selector: Selector{IDs: []string{"a", "b"}, Status: Dead}, Limit: 5, AuthorizedBy: "ada"}
	same := base
	same.Selector.IDs, same.AuthorizedBy, same.SampleSize = []string{"b", "a", "b"}, "eve", 3
	if same.identity() != base.identity() {
		t.Error("an equal choice is another replay")
	}
	if !slices.Equal(same.Selector.IDs, []string{"b", "a", "b"}) {
		t.Error("the request was changed")
	}
	for name, change := range map[string]func(*ReplayRequest){
		"limit": func(r *ReplayRequest) { r.Limit++ }, "status": func(r *ReplayRequest) { r.Selector.Status = Queued },
		"ids": func(r *ReplayRequest) { r.Selector.IDs = []string{"a"} }, "workflow": func(r *ReplayRequest) { r.Selector.WorkflowID = "w" },
		"source": func(r *ReplayRequest) { r.Selector.Source = "w" }, "from": func(r *ReplayRequest) { r.Selector.From = 1 },
	} {
		other := base
		change(&other)
		if other.identity() == base.identity() {
			t.Errorf("%s makes no difference", name)
		}
	}
}

// Whatever letters do in whatever order, no more than allowed are out at once, none is played twice, and the replay ends.
func TestReplayEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 60).Draw(t, "letters")
		r := Replay{Status: ReplaySampling, MaxConcurrency: rapid.Int64Range(1, 5).Draw(t, "at once")}
		sample := rapid.IntRange(0, n).Draw(t, "sample")
		states, settled, played := make([]ReplayLetterState, n), []ReplayLetterState(nil), make([]int, n)
		for i := range states {
			states[i] = MemberWaiting
		}
		for step := 0; r.Status.Open(); step++ {
			if step > 20*(n+2) {
				t.Fatalf("it does not end: %s %v", r.Status, states)
			}
			tally := Tally{Settled: int64(len(settled))}
			for _, s := range settled[max(0, len(settled)-ReplayWindow):] {
				if s == MemberFailed {
					tally.LastFailed++
				}
			}
			for i, s := range states {
				if s == MemberWaiting {
					tally.Waiting++
					if i < sample {
						tally.SampleWaits++
					}
				}
				if s == MemberActive {
					tally.Active++
					if i < sample {
						tally.SampleActive++
					}
				}
			}
			to, places := r.Next(tally)
			if to != r.Status {
				r.Enter(to, 1)
				continue
			}
			for i := range states {
				if places > 0 && states[i] == MemberWaiting && (i < sample || r.Status == ReplayRunning) {
					states[i], places = MemberActive, places-1
					played[i]++
					tally.Active++
				}
			}
			if tally.Active > r.MaxConcurrency {
				t.Fatalf("%d are out, allowed are %d", tally.Active, r.MaxConcurrency)
			}
			if i := slices.Index(states, MemberActive); i >= 0 && rapid.Bool().Draw(t, "ends") {
				states[i], _ = states[i].After(&Letter{Status: rapid.SampledFrom([]Status{Resolved, Resolved, Resolved, Dead}).Draw(t, "as")})
				settled = append(settled, states[i])
			} else if r.Status == ReplayAwaiting || r.Status == ReplayPaused {
				if _, err := r.Move(&ReplayMove{Verb: Approve}, 1); err != nil {
					t.Fatal(err)
				}
			} else if rapid.IntRange(0, 20).Draw(t, "pause") == 0 {
				if _, err := r.Move(&ReplayMove{Verb: Pause}, 1); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i, n := range played {
			if n > 1 {
				t.Fatalf("letter %d was played %d times", i, n)
			}
		}
		if r.Status == ReplayDone && (slices.Contains(states, MemberWaiting) || slices.Contains(states, MemberActive)) {
			t.Fatalf("done with %v", states)
		}
	})
}
