package rehearse

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// scenarios are what is rehearsed, in the order of the table.
var scenarios = []struct {
	name string
	play func(*scene)
}{
	{"the same event twice", sameEvent},
	{"two events for one effect", oneEffect},
	{"the destination's answer is lost", lostAnswer},
	{"a stale event after a newer one", staleEvent},
	{"a worker killed in the middle", killedWorker},
	{"a replay of what had half succeeded", halfSucceeded},
}

// charge is a step that no probe is for: the real provider knows nothing of it.
const charge = "rehearsal-charge"

// racers deliver the same event at once.
const racers = 20

func sameEvent(s *scene) {
	event := claim{Key: s.key("event"), Payload: map[string]any{"id": s.key("event")}}
	answers := s.race(event)
	proceeding := 0
	for i, g := range answers {
		if g.proceeds() {
			proceeding++
			s.execution(i).finish(g, s.destination.act(event.Key))
		}
	}
	s.want("the number of those who may proceed", proceeding, 1)
	again := s.execution(racers).do(event)
	s.stored("the answer afterwards", again, event.Key, answers[0])
	s.judge(event.Key, "work", 1)
	s.see("%s, then %s; done %s", tally(answers), again.Decision, s.times(event.Key))
}

// race claims the same by all racers at once.
func (s *scene) race(c claim) []granted {
	answers, errs := make([]granted, racers), make([]error, racers)
	var all sync.WaitGroup
	begin := make(chan struct{})
	for i := range racers {
		body := s.execution(i).body(c)
		all.Go(func() {
			<-begin
			errs[i] = s.client.call(s.ctx, http.MethodPost, "/claim", body, &answers[i])
		})
	}
	close(begin)
	all.Wait()
	for _, err := range errs {
		s.answered("POST /claim", err)
	}
	return answers
}

// tally counts decisions: "1 proceed, 19 in_progress".
func tally(answers []granted) string {
	count := map[string]int{}
	for _, g := range answers {
		count[g.Decision]++
	}
	var out []string
	for _, decision := range []string{"proceed", "in_progress", "completed", "wait", "unknown", "review", "stale"} {
		if n := count[decision]; n > 0 {
			out = append(out, fmt.Sprintf("%d %s", n, decision))
		}
	}
	return strings.Join(out, ", ")
}

func oneEffect(s *scene) {
	a, b := s.execution(1), s.execution(2)
	effect := claim{Key: s.key("order"), Step: charge}
	eventA, eventB := a.claim(claim{Key: s.key("event-a")}), b.claim(claim{Key: s.key("event-b")})
	s.want("the claim of event a", eventA.Decision, "proceed")
	s.want("the claim of event b", eventB.Decision, "proceed")

	first := a.claim(effect)
	s.want("a's claim of the charge", first.Decision, "proceed")
	meanwhile := b.do(effect)
	s.want("b's claim meanwhile", meanwhile.Decision, "in_progress")
	s.want("b's provider_key meanwhile", meanwhile.ProviderKey, first.ProviderKey)
	if first.proceeds() {
		a.finish(first, s.destination.act(effect.Key+charge))
	}
	then := b.do(effect)
	s.stored("b's claim afterwards", then, effect.Key+charge, first)
	a.finish(eventA, "")
	b.finish(eventB, "")
	s.judge(effect.Key+charge, "charges", 1)
	s.see("a %s, b %s, then %s; charged %s", first.Decision, meanwhile.Decision, then.Decision, s.times(effect.Key+charge))
}

func lostAnswer(s *scene) {
	a, b := s.execution(1), s.execution(2)
	effect, reference := claim{Key: s.key("order"), Step: charge}, s.key("push")
	first := a.claim(effect)
	s.want("the claim of the charge", first.Decision, "proceed")
	if first.proceeds() {
		s.destination.act(effect.Key + charge) // and its answer never arrives
	}
	lost := map[string]any{"message": "timeout of 60000ms exceeded", "code": "ECONNABORTED"}
	marked := a.report("/mark-unknown", map[string]any{"lease_token": first.LeaseToken, "error": lost, "reference": reference})
	s.want("the status after /mark-unknown", marked, "unknown")
	meanwhile := b.do(effect)
	s.want("the next claim", meanwhile.Decision, "unknown")

	receipt := map[string]any{"source": source, "reference": reference, "result_id": s.destination.receipt(effect.Key + charge)}
	s.want("the status after the receipt", b.report("/complete", receipt), "completed")
	then := b.do(effect)
	s.stored("the claim afterwards", then, effect.Key+charge, first)
	s.judge(effect.Key+charge, "charges", 1)
	s.see("%s, with its receipt %s; charged %s", meanwhile.Decision, then.Decision, s.times(effect.Key+charge))
}

func staleEvent(s *scene) {
	var decisions, written []string
	for _, step := range []struct {
		version, written int
		decision         string
	}{{2, 1, "proceed"}, {1, 0, "stale"}, {3, 1, "proceed"}} {
		name := fmt.Sprint("version ", step.version)
		event := claim{Key: s.key(fmt.Sprint("v", step.version)), Entity: s.key("customer"), Version: step.version}
		g := s.execution(step.version).do(event)
		s.want(name, g.Decision, step.decision)
		s.judge(event.Key, "writes of "+name, step.written)
		decisions, written = append(decisions, fmt.Sprintf("%d %s", step.version, g.Decision)), append(written, s.times(event.Key))
	}
	s.see("version %s; written %s", strings.Join(decisions, ", "), strings.Join(written, ", "))
}

func killedWorker(s *scene) {
	a, b := s.execution(1), s.execution(2)
	event := claim{Key: s.key("event"), Seconds: shortLease, Payload: map[string]any{"order": s.key("order")}}
	effect := claim{Key: s.key("order"), Step: charge, Seconds: shortLease}
	killed, charging := a.claim(event), a.claim(effect)
	s.want("the claim of the charge", charging.Decision, "proceed")
	if charging.proceeds() {
		s.destination.act(effect.Key + charge) // and nothing more is heard of a
	}
	event.Seconds, effect.Seconds = 0, 0 // b has the time that it needs

	taken := s.outlast(func() granted { return b.claim(event) })
	s.want("the event's claim after the lease", taken.Decision, "proceed")
	s.want("its attempt", taken.Attempt, 2)
	code := s.late(killed)
	s.want("the answer to the old token", code, "lease_lost")

	unsure := s.outlast(func() granted { return b.do(effect) })
	s.want("the charge's claim after the lease", unsure.Decision, "unknown")
	word := map[string]any{"status": "completed", "result_id": s.destination.receipt(effect.Key + charge), "authorized_by": person, "reason": "found at the destination"}
	s.want("the status after a person's word", b.report("/claims/"+charging.ClaimID+"/resolve", word), "completed")
	then := b.do(effect)
	s.stored("the charge's claim afterwards", then, effect.Key+charge, charging)
	b.finish(taken, "")
	s.judge(effect.Key+charge, "charges", 1)
	s.see("event %s again, old token %s; effect %s, by hand %s; charged %s", taken.Decision, code, unsure.Decision, then.Decision, s.times(effect.Key+charge))
}

// late reports with a token that is no longer the newest, and returns the code of the refusal. It reports a failure,
// since a receipt would be an alert.
func (s *scene) late(old granted) string {
	var (
		e ended
		r *refusal
	)
	if s.err != nil {
		return ""
	}
	err := s.client.call(s.ctx, http.MethodPost, "/mark-failed", map[string]any{"lease_token": old.LeaseToken, "http_status": http.StatusServiceUnavailable}, &e)
	if errors.As(err, &r) {
		return r.code
	}
	s.answered("POST /mark-failed", err)
	return "taken: " + e.Status
}
