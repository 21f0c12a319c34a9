package rehearse

import "net/http"

// letter is what is read of a dead letter.
type letter struct {
	ID         string `json:"id"`
	Status     string `json:"status"`
	Reason     string `json:"reason"`
	Play       string `json:"play"`
	ReplayID   string `json:"replay_id"`
	LeaseToken string `json:"lease_token"`
}

// replay is what is read of a replay.
type replay struct {
	ID      string `json:"id"`
	Status  string `json:"status"`
	Matched int    `json:"matched"`
	Reason  string `json:"reason"`
	Counts  struct {
		Resolved int `json:"resolved"`
	} `json:"counts"`
}

func halfSucceeded(s *scene) {
	event := claim{Key: s.key("order"), Payload: map[string]any{"order": s.key("order")}}
	a, b := claim{Key: event.Key, Step: "a"}, claim{Key: event.Key, Step: "b"}
	first := s.execution(1)
	opened, doneA, failedB := first.claim(event), first.do(a), first.claim(b)
	s.want("the first run's claim of a", doneA.Decision, "proceed")
	s.want("the first run's claim of b", failedB.Decision, "proceed")
	// The destination does nothing and says so, which is what makes the letter come due by itself: nobody is alerted.
	refused := map[string]any{"lease_token": failedB.LeaseToken, "http_status": http.StatusTooManyRequests, "tries": 1}
	s.want("b's status after the refusal", first.report("/mark-failed", refused), "failed")
	lost := first.failed()
	s.want("the letter", lost.Status, "queued")
	s.want("how it is run again", lost.Play, "workflow")

	rep := s.replay(lost.ID)
	s.want("the number of letters that the replay matched", rep.Matched, 1)
	leased := s.lease(lost.ID)
	s.want("the replay of the letter that was handed out", leased.ReplayID, rep.ID)

	again := s.execution(2)
	reopened, againA, againB := again.claim(event), again.do(a), again.do(b)
	s.want("the event's claim in the replay", reopened.Decision, "proceed")
	s.stored("a's claim in the replay", againA, event.Key+"a", doneA)
	s.want("b's claim in the replay", againB.Decision, "proceed")
	s.want("b's provider_key in the replay", againB.ProviderKey, failedB.ProviderKey)
	s.want("the event's attempt in the replay", reopened.Attempt, opened.Attempt+1)
	again.finish(reopened, "")
	again.report("/dlq/"+lost.ID+"/resolve", map[string]any{"lease_token": leased.LeaseToken})

	s.call(http.MethodGet, "/dlq/"+lost.ID, nil, &lost)
	s.call(http.MethodGet, "/replays/"+rep.ID, nil, &rep)
	s.want("the letter afterwards", lost.Status, "resolved")
	s.want("the replay afterwards", rep.Status, "done")
	s.want("the replay's count of resolved letters", rep.Counts.Resolved, 1)
	s.judge(event.Key+"a", "a", 1)
	s.judge(event.Key+"b", "b", 1)
	s.see("a %s, b %s; letter %s, replay %s; a done %s, b %s", againA.Decision, againB.Decision, lost.Status, rep.Status, s.times(event.Key+"a"), s.times(event.Key+"b"))
}

// failed reports the run as n8n's error workflow does.
func (x *execution) failed() (l letter) {
	x.call(http.MethodPost, "/dlq", map[string]any{
		"workflow": map[string]any{"id": x.workflow(), "name": "holdfast rehearse"},
		"execution": map[string]any{
			"id": x.id, "mode": "webhook", "lastNodeExecuted": "b",
			"error": map[string]any{"name": "NodeApiError", "message": "The service is receiving too many requests from you", "httpCode": "429"},
		},
	}, &l)
	return l
}

// replay starts one over exactly this letter. With a sample of all there is, nobody has to approve anything.
func (s *scene) replay(letterID string) (rep replay) {
	s.call(http.MethodPost, "/replays", map[string]any{
		"authorized_by": person, "reason": s.why(), "expected_effects": map[string]any{"a": "nothing", "b": "once"},
		"selector": map[string]any{"ids": []string{letterID}, "status": "queued"}, "limit": 1, "sample_size": 1,
	}, &rep)
	return rep
}

// lease takes the letter as the retry worker does, and none of anybody else's.
func (s *scene) lease(letterID string) letter {
	var letters []letter
	s.until(func() bool {
		return !s.call(http.MethodPost, "/dlq/lease", map[string]any{"source": source, "workflow_id": s.workflow(), "owner": s.run, "limit": 1}, &letters) || len(letters) > 0
	})
	if len(letters) > 0 {
		s.want("the letter that was handed out", letters[0].ID, letterID)
		return letters[0]
	}
	var l letter
	s.call(http.MethodGet, "/dlq/"+letterID, nil, &l)
	s.want("what /dlq/lease hands out while the letter is "+shown(l.Status), "nothing", "the letter")
	return letter{}
}
