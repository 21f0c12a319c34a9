package proof

import (
	"context"
	"crypto/sha256"
	"time"

	"holdfast/internal/ledger"
)

// person is who settles by hand and pauses.
const person = "ada"

func (q claimCall) do(w *world, _ *model) answer {
	r := &ledger.Request{
		Key: w.key(q.slot), Basis: ledger.BasisGiven, Kind: ledger.Kind(q.kind), CallerKey: "n8n" + q.caller.apiKey, LeaseSeconds: q.lease,
		Origin: ledger.Origin{Owner: q.caller.owner, WorkflowID: q.caller.workflow, Node: q.caller.node},
		Entity: q.entity, Destination: q.destination, Fresh: fresh(),
	}
	if q.standardKey {
		r.Basis = ledger.BasisStandard
	}
	if q.version.given {
		r.Version = ledger.Version{Kind: ledger.IntegerVersion, Rank: q.version.n}
	}
	if q.payload != "" {
		sum := sha256.Sum256([]byte(q.payload))
		r.Payload, r.PayloadHash = []byte(`"`+q.payload+`"`), sum[:]
	}
	if q.byID {
		r.ClaimID, r.Key, r.Basis = w.ids[q.slot], ledger.Key{}, ""
		if r.ClaimID == "" {
			r.ClaimID = fresh().ID // no claim has it
		}
	}
	v, err := w.store.Claim(context.Background(), r)
	if err != nil {
		return refused(err)
	}
	c := &v.Claim
	w.ids[q.slot] = c.ID
	a := answer{
		decision: string(v.Decision), status: string(c.Status), kind: string(c.Kind), attempt: int(c.Attempt), reentrant: v.Reentrant,
		retryAfter: v.RetryAfter, providerKey: w.providerKey(q.slot, c.ProviderKey), resultID: c.ResultID, reference: c.Reference,
		firstSeen: c.FirstAt.Time(),
	}
	if v.PayloadMatches != nil {
		a.matches = "false"
		if *v.PayloadMatches {
			a.matches = "true"
		}
	}
	if c.Status == ledger.Processing {
		a.leaseEnd = c.LeaseUntil.Time()
	}
	if a.decision == proceed {
		a.token = w.worker(q.slot, c.LeaseToken())
	}
	return a
}

func (q endCall) do(w *world, m *model) answer {
	e := &ledger.Ending{
		Verb: ledger.Verb(q.verb), CallerKey: "n8n", ResultID: q.resultID, NotExecuted: q.notExecuted, ClassNotExecuted: q.refusal,
		Tries: q.tries, NotNow: q.notNow, LeaseSeconds: q.lease,
	}
	if q.refusal {
		e.HTTPStatus, e.ErrorClass, e.Message = 401, "auth", "401 Unauthorized"
	}
	if q.notNow {
		e.RetryAfter = 60
	}
	switch q.by {
	case "token":
		t, _ := q.token(m)
		parsed, ok := ledger.ParseToken(w.tokens[t])
		if !ok {
			return answer{code: "a token that was handed out cannot be read"}
		}
		e.Token, e.ByToken, e.Reference = parsed, true, q.reference
	case "reference":
		e.Key, e.RefKey = ledger.Key{Source: unique(q.slot.source, w.n)}, q.reference
	default:
		e.Key = w.key(q.slot)
	}
	out, err := w.store.End(context.Background(), e)
	if err != nil {
		a := refused(err)
		a.alerted = out.Alert != ""
		return a
	}
	a := ended(&out)
	if q.verb == "extend" {
		a.leaseEnd = out.Claim.LeaseUntil.Time()
		if out.Claim.Status == ledger.Unknown {
			a.leaseEnd = out.Claim.LookUntil.Time()
		}
	}
	return a
}

func ended(out *ledger.Ended) answer {
	c := &out.Claim
	return answer{
		status: string(c.Status), attempt: int(c.Attempt), changed: out.Changed, resultID: c.ResultID, completedAt: c.CompletedAt.Time(),
		alerted: out.Alert != "",
	}
}

func (q resolveCall) do(w *world, _ *model) answer {
	r := &ledger.Resolution{To: ledger.Status(q.to), ResultID: q.resultID, AuthorizedBy: person, Reason: "looked it up"}
	if q.newKey {
		r.NewProviderKey = newKey()
	}
	id := w.ids[q.slot]
	if id == "" {
		id = fresh().ID
	}
	out, err := w.store.Resolve(context.Background(), id, r)
	if err != nil {
		return refused(err)
	}
	return ended(&out)
}

func (q lookCall) do(w *world, _ *model) answer {
	claims, err := w.store.LeaseUnknown(context.Background(), &ledger.LookRequest{
		Source: unique(q.source, w.n), Owner: q.owner, CallerKey: "n8n", Limit: q.limit, LeaseSeconds: q.lease,
	})
	if err != nil {
		return refused(err)
	}
	var a answer
	for i := range claims {
		c := &claims[i]
		a.handed += handedOut(w.looker(w.slotOf(c.ID), c.LookToken()), int(c.Attempt), c.UnknownSince.Time(), c.LookUntil.Time(), c.Reference)
	}
	return a
}

func (w *world) slotOf(id string) slot {
	for s, have := range w.ids {
		if have == id {
			return s
		}
	}
	return slot{}
}

func (q pauseCall) do(w *world, _ *model) answer {
	if q.resume {
		cleared, err := w.store.ClearPause(context.Background(), w.scope(q.scope), person)
		if err != nil {
			return refused(err)
		}
		return answer{changed: cleared}
	}
	p := ledger.Pause{Scope: w.scope(q.scope), AuthorizedBy: person, Reason: "maintenance"}
	if q.seconds > 0 {
		p.Until = ledger.At(w.base.clock.now().Add(time.Duration(q.seconds) * time.Second))
	}
	if _, err := w.store.SetPause(context.Background(), p); err != nil {
		return refused(err)
	}
	return answer{}
}

func (sweepCall) do(w *world, _ *model) answer {
	if _, err := w.store.Sweep(context.Background()); err != nil {
		return refused(err)
	}
	return answer{}
}

// do moves the clock to where the model, which is asked first, has put it.
func (q passCall) do(w *world, m *model) answer {
	w.base.clock.set(m.now)
	return answer{}
}
