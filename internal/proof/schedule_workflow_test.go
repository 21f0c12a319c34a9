package proof

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/failure"
	"holdfast/internal/ledger"
)

// run is one execution of the workflow that pays: it claims its event, claims the charge, calls the destination, reports,
// does what comes after, and completes the event last.
type run struct {
	id      string
	retryOf string // the execution of which this is a hand retry
	notice  *notice
	node    int // where it is; a hand retry begins where the other failed
	over    bool
	answer  string // of its webhook: done, known, wait, failed; empty while it works and when it hangs up
	failed  bool   // n8n shows it as failed, so that it can be retried by hand

	eventToken  string
	effectToken string
	providerKey string
	leaseEnd    time.Time // of the effect, when it was claimed
	result      string
}

// The nodes. Each tells whether the run goes on to the next.
var nodes = []func(*schedule, *actor, *run) bool{claimEvent, claimCharge, pay, completeCharge, writeDown, completeEvent}

const atPay = 2

func (s *schedule) newRun(n *notice) *run {
	r := &run{id: fmt.Sprint(s.n*1000 + len(s.runs) + 1), notice: n}
	s.runs = append(s.runs, r)
	return r
}

func (r *run) String() string { return "run " + r.id[len(r.id)-3:] }

func (s *schedule) begin(r *run) {
	s.start(r.String()+" of "+r.notice.key, r, func(a *actor) {
		for r.node < len(nodes) && nodes[r.node](s, a, r) {
			r.node++
		}
	})
}

func (s *schedule) claim(a *actor, r *run, node string, q ledger.Request, payload fields) (ledger.Verdict, error) {
	q.Key.Source, q.Basis, q.CallerKey = s.source, ledger.BasisGiven, "n8n"
	q.Origin = ledger.Origin{Owner: r.id + ":0:0", WorkflowID: s.workflow(), WorkflowName: "Orders", ExecutionID: r.id, Node: node}
	q.Payload = asJSON(payload)
	sum := sha256.Sum256(q.Payload)
	q.PayloadHash = sum[:]
	return ask(s, a, 3, "/claim "+q.Key.IdempotencyKey, func() (ledger.Verdict, error) {
		one := q
		one.Fresh = fresh()
		return s.f.claims.Claim(context.Background(), &one)
	})
}

func (s *schedule) workflow() string { return fmt.Sprint("Wf", s.n) }

type fields map[string]any

func asJSON(v any) []byte {
	out, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return out
}

func claimEvent(s *schedule, a *actor, r *run) bool {
	v, _ := s.claim(a, r, "Claim the event", ledger.Request{
		Key: ledger.Key{IdempotencyKey: r.notice.key}, Kind: ledger.Event, LeaseSeconds: s.eventLease,
	}, fields{"event": r.notice.key})
	switch v.Decision {
	case ledger.Proceed:
		r.eventToken = v.Claim.LeaseToken()
		return true
	case ledger.DecisionCompleted:
		r.answer = "done"
	case ledger.InProgress, ledger.DecisionUnknown, ledger.DecisionReview:
		r.answer = "known"
	default: // wait, or no answer at all: the sender is to send it again
		r.answer = "wait"
	}
	return false
}

func claimCharge(s *schedule, a *actor, r *run) bool {
	action := r.notice.order.action
	v, err := s.claim(a, r, "Claim the charge", ledger.Request{
		Key: ledger.Key{IdempotencyKey: action, Step: "charge"}, Destination: s.destination(), LeaseSeconds: s.effectLease,
	}, fields{"order": action})
	switch {
	case err != nil:
		s.fail(a, r, "Claim the charge", n8nError(timedOut))
	case v.Decision == ledger.Proceed:
		r.effectToken, r.providerKey, r.leaseEnd = v.Claim.LeaseToken(), v.Claim.ProviderKey, v.Claim.LeaseUntil.Time()
		if _, known := s.firstAt[r.providerKey]; !known {
			s.firstAt[r.providerKey] = s.now()
		}
		return true
	case v.Decision == ledger.DecisionCompleted:
		r.result = v.Claim.ResultID
		r.node = atPay + 1 // nothing is left to do but what comes after
		return true
	default: // it is another's, or not known: not now
		_, _ = s.end(a, 5, r.eventToken, ledger.Ending{Verb: ledger.MarkFailed, NotNow: true, RetryAfter: 60})
		r.answer = "wait"
	}
	return false
}

func (s *schedule) destination() string {
	if s.manners.honours {
		return "stripe"
	}
	return "till"
}

// pay calls the destination and says how that went. Of several tries n8n shows the last one's error only.
func pay(s *schedule, a *actor, r *run) bool {
	var got reply
	for range s.manners.tries {
		a.pause()
		if s.tooLate(r) {
			s.tell("%s does not send any more", a.name)
			return false
		}
		if got = s.send(a, r); got.status == http.StatusOK {
			r.result = got.id
			return true
		}
	}
	fault := n8nError(got.status)
	e := reported(ledger.MarkUnknown, fault)
	if !s.manners.honours {
		e.Verb, e.Tries, e.NotExecuted = ledger.MarkFailed, 1, s.manners.hasty && got.status == timedOut
	}
	_, _ = s.end(a, 5, r.effectToken, e)
	s.fail(a, r, "Pay", fault)
	return false
}

// tooLate tells whether a worker that keeps the rules has ended by now.
func (s *schedule) tooLate(r *run) bool {
	if s.manners.slow {
		return s.now().After(s.firstAt[r.providerKey].Add(window + effectLease))
	}
	return !s.now().Before(r.leaseEnd)
}

// send makes one request to the destination.
func (s *schedule) send(a *actor, r *run) (got reply) {
	q := payment{r.notice.order.action, r.providerKey, r.notice.order.action}
	if s.once(20) {
		q.body += " (said differently)"
	}
	what := fmt.Sprintf("%s pays for %s", a.name, q.action)
	defer func() { s.tell("%s: %s", what, got) }()
	fate := s.fate(2, 7)
	refuse := 0
	switch fate {
	case 1:
		refuse = []int{401, 402, 400, 429, 500}[s.pick(5)]
	case 2:
		return reply{status: notConnected}
	case 3:
		return reply{status: hungUp} // before it was read
	case 4: // still on its way when its sender gives up
		s.later(what, r, false, func() {
			if _, act := s.shop.accept(q, 0); act != nil {
				act()
			}
		})
		return reply{status: timedOut}
	}
	got, act := s.shop.accept(q, refuse)
	switch {
	case act == nil:
	case fate == 5: // under way when its sender gives up
		s.later(what, r, true, func() { act() })
		return reply{status: timedOut}
	default:
		got = act()
	}
	s.count()
	if fate == 6 || fate == 7 {
		what += fmt.Sprintf(" (%s, answer lost)", got)
		got = reply{status: []int{timedOut, hungUp}[fate-6]}
	}
	return got
}

// later keeps a payment that is still under way.
func (s *schedule) later(what string, r *run, sure bool, land func()) {
	s.parcels = append(s.parcels, &parcel{what: what, until: s.now().Add(s.manners.late), paid: r.notice.order, sure: sure, land: func() { land(); s.count() }})
}

// count is the promise of all this.
func (s *schedule) count() {
	for _, action := range s.shop.twice() {
		s.broke("%s was charged twice: %v", action, s.shop.charged(action))
	}
}

func completeCharge(s *schedule, a *actor, r *run) bool {
	return s.complete(a, r, "Complete the charge", r.effectToken, r.result)
}

// writeDown is what the workflow does after the charge.
func writeDown(s *schedule, a *actor, r *run) bool {
	a.pause()
	if s.once(6) {
		s.tell("%s fails after the charge", a.name)
		s.fail(a, r, "Write it down", n8nError(http.StatusServiceUnavailable))
		return false
	}
	return true
}

func completeEvent(s *schedule, a *actor, r *run) bool {
	if !s.complete(a, r, "Complete the event", r.eventToken, "") {
		return false
	}
	r.answer = "done"
	return true
}

func (s *schedule) complete(a *actor, r *run, node, token, result string) bool {
	_, err := s.end(a, 5, token, ledger.Ending{Verb: ledger.Complete, ResultID: result})
	if err == nil {
		return true
	}
	fault := n8nError(timedOut)
	var refusal *ledger.Refusal
	if errors.As(err, &refusal) {
		fault = n8nError(http.StatusConflict)
		fault["messages"] = []string{fmt.Sprintf(`409 - {"status":409,"code":%q,"message":"refused","request_id":"r"}`, refusal.Code)}
	}
	fault["context"] = fields{"request": fields{"method": "POST", "uri": "http://holdfast:8088/complete", "body": fields{"lease_token": "hidden"}}}
	s.fail(a, r, node, fault)
	return false
}

// fail ends a run at a node that failed: the run says so itself, its error workflow does, both, or nobody.
func (s *schedule) fail(a *actor, r *run, node string, fault fields) {
	r.failed = true
	how := s.pick(4)
	if how < 2 {
		_, _ = s.end(a, 5, r.eventToken, reported(ledger.MarkFailed, fault))
	}
	if r.answer = "failed"; how == 0 || how == 2 {
		s.report(a, r, node, fault)
	}
}

// report is the failure report of a run, as n8n's Error Trigger has it.
func (s *schedule) report(a *actor, r *run, node string, fault fields) {
	execution := fields{"id": r.id, "mode": "webhook", "error": fault, "lastNodeExecuted": node}
	if r.retryOf != "" {
		execution["mode"], execution["retryOf"] = "retry", r.retryOf
	}
	body := asJSON(fields{"execution": execution, "workflow": fields{"id": s.workflow(), "name": "Orders"}})
	_, _ = ask(s, a, 5, "/dlq", func() (deadletter.Letter, error) {
		q, err := deadletter.Read(body, nil)
		if err != nil {
			return deadletter.Letter{}, err
		}
		q.CallerKey, q.Fresh = "n8n", deadletter.NewFresh()
		l, _, err := s.f.letters.Report(context.Background(), q)
		return l, err
	})
}

// Statuses that are none: what n8n shows where no answer came.
const (
	timedOut     = 1
	notConnected = 2
	hungUp       = 3
)

var noStatus = map[int][2]string{
	timedOut:     {"ECONNABORTED", "The connection was aborted, perhaps the server is offline"},
	notConnected: {"ECONNREFUSED", "The service refused the connection - perhaps it is offline"},
	hungUp:       {"ECONNRESET", "The connection to the server was closed unexpectedly"},
}

// n8nError is the error that n8n shows of a request.
func n8nError(status int) fields {
	code, text := fmt.Sprint(status), http.StatusText(status)
	if none, ok := noStatus[status]; ok {
		code, text = none[0], none[1]
	}
	return fields{
		"name": "NodeApiError", "message": text, "httpCode": code,
		"context": fields{"request": fields{"method": "POST", "uri": "https://pay.example.test/charges"}},
	}
}

// reported is an ending with an error, as the API reads it.
func reported(verb ledger.Verb, fault fields) ledger.Ending {
	v := failure.Classify(failure.Input{Error: asJSON(fault)})
	return ledger.Ending{Verb: verb, ErrorClass: string(v.Class), Message: v.Summary, HTTPStatus: int64(v.HTTPStatus), ClassNotExecuted: v.Outcome == failure.NotExecuted}
}
