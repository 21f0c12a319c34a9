package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/api"
	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
)

// faulty is a store that answers every call with err, or panics.
type faulty struct {
	ledger.Store
	err   error
	panic string
}

func (f *faulty) fail() error {
	if f.panic != "" {
		panic(f.panic)
	}
	return f.err
}

func (f *faulty) Claim(context.Context, *ledger.Request) (ledger.Verdict, error) {
	return ledger.Verdict{}, f.fail()
}

func (f *faulty) End(context.Context, *ledger.Ending) (ledger.Ended, error) {
	return ledger.Ended{}, f.fail()
}

func (f *faulty) Resolve(context.Context, string, *ledger.Resolution) (ledger.Ended, error) {
	return ledger.Ended{}, f.fail()
}

func (f *faulty) LeaseUnknown(context.Context, *ledger.LookRequest) ([]ledger.Claim, error) {
	return nil, f.fail()
}

func (f *faulty) Get(context.Context, string) (ledger.Claim, []ledger.HistoryEntry, error) {
	return ledger.Claim{}, nil, f.fail()
}

func (f *faulty) List(context.Context, ledger.ClaimFilter) ([]ledger.Claim, string, error) {
	return nil, "", f.fail()
}

func (f *faulty) History(context.Context, ledger.HistoryFilter) ([]ledger.HistoryEntry, string, error) {
	return nil, "", f.fail()
}

func (f *faulty) SetPause(context.Context, ledger.Pause) (ledger.Pause, error) {
	return ledger.Pause{}, f.fail()
}

func (f *faulty) ClearPause(context.Context, string, string) (bool, error) {
	return false, f.fail()
}
func (f *faulty) Pauses(context.Context) ([]ledger.Pause, error) { return nil, f.fail() }
func (f *faulty) Ready(context.Context) error                    { return f.fail() }

// faultyLetters is the same for letters.
type faultyLetters struct {
	deadletter.Store
	faulty
}

func (f *faultyLetters) Report(context.Context, *deadletter.Report) (deadletter.Letter, bool, error) {
	return deadletter.Letter{}, false, f.fail()
}

func (f *faultyLetters) LeaseLetters(context.Context, *deadletter.LeaseRequest) ([]deadletter.Letter, error) {
	return nil, f.fail()
}

func (f *faultyLetters) EndLetter(context.Context, string, *deadletter.Ending) (deadletter.Ended, error) {
	return deadletter.Ended{}, f.fail()
}

func (f *faultyLetters) GetLetter(context.Context, string) (deadletter.Letter, []deadletter.Entry, error) {
	return deadletter.Letter{}, nil, f.fail()
}

func (f *faultyLetters) Letters(context.Context, deadletter.Filter) ([]deadletter.Letter, string, error) {
	return nil, "", f.fail()
}

func (f *faultyLetters) LetterStats(context.Context) (deadletter.Stats, error) {
	return deadletter.Stats{}, f.fail()
}

func (f *faultyLetters) StartReplay(context.Context, *deadletter.ReplayRequest) (deadletter.Replay, bool, error) {
	return deadletter.Replay{}, false, f.fail()
}

func (f *faultyLetters) MoveReplay(context.Context, string, *deadletter.ReplayMove) (deadletter.Replay, bool, error) {
	return deadletter.Replay{}, false, f.fail()
}

func (f *faultyLetters) GetReplay(context.Context, string) (deadletter.Replay, []deadletter.ReplayLetter, error) {
	return deadletter.Replay{}, nil, f.fail()
}

func (f *faultyLetters) Replays(context.Context, deadletter.ReplayFilter) ([]deadletter.Replay, string, error) {
	return nil, "", f.fail()
}

const anID = "019acb1c-7c1e-7d7f-9a55-0f3c2b1a4d5e"

// aToken has the form of a token and was never issued.
const aToken = "hft_AZrLHHwefX-aVQ8PKxpNXgAAAAEAAAAAVx3mQy0dT2p1nE8c8bZl5Q"

// aLetterToken has the form of a letter's token for anID, and was never issued.
const aLetterToken = "hfl_AZrLHHwefX-aVQ88KxpNXgAAAAFXHeZDLR1PanWcTxzxtmV5"

// good are bodies that pass all checks before the store is asked.
var good = map[string]obj{
	"/claim":              {"source": "shop", "idempotency_key": "order-77001"},
	"/complete":           {"lease_token": aToken},
	"/mark-unknown":       {"lease_token": aToken},
	"/mark-failed":        {"lease_token": aToken},
	"/extend":             {"lease_token": aToken, "lease_seconds": 60},
	"/reconcile/lease":    {},
	"/dlq":                {"event_id": "order-77001", "error_message": "socket hang up"},
	"/dlq/lease":          {},
	"/dlq/:id/resolve":    {"lease_token": aLetterToken},
	"/dlq/:id/fail":       {"lease_token": aLetterToken},
	"/dlq/:id/extend":     {"lease_token": aLetterToken, "lease_seconds": 60},
	"/dlq/:id/requeue":    {"authorized_by": "asha", "reason": "the credential was renewed"},
	"/dlq/:id/discard":    {"authorized_by": "asha", "reason": "a test order"},
	"/claims/:id/resolve": {"status": "review", "authorized_by": "asha", "reason": "to be looked at"},
	"/pauses/:scope":      {"authorized_by": "asha", "reason": "maintenance"},

	"/replays":             {"selector": obj{"source": "shop"}, "limit": 10, "authorized_by": "asha", "reason": "the outage is over", "expected_effects": "none"},
	"/replays/:id/approve": {"authorized_by": "asha"},
	"/replays/:id/pause":   {},
	"/replays/:id/cancel":  {},
}

// eachStored calls every route that needs the store.
func eachStored(t *testing.T, w *world, check func(t *testing.T, route api.Route, a answer)) {
	t.Helper()
	for _, r := range api.Routes() {
		switch r.Path {
		case "/healthz", "/openapi.yaml", "/metrics", "/classify":
			continue
		}
		body := ""
		if r.Method == http.MethodPost || r.Method == http.MethodPut {
			body = text(t, good[r.Path])
		}
		path := strings.NewReplacer(":id", anID, ":scope", "all").Replace(r.Path)
		check(t, r, w.send(t, r.Method, path, body))
	}
}

func TestFaultsOfTheStore(t *testing.T) {
	t.Parallel()
	inside := errors.New(`pq: password authentication failed for user "holdfast-inside" at 10.9.8.7`)
	for name, c := range map[string]struct {
		store  faulty
		status int
		code   string
		retry  bool
	}{
		"unavailable": {faulty{err: fmt.Errorf("%w: %w", ledger.ErrUnavailable, inside)}, 503, "unavailable", true},
		"overloaded":  {faulty{err: ledger.ErrOverloaded}, 429, "overloaded", true},
		"internal":    {faulty{err: inside}, 500, "internal", false},
		"panic":       {faulty{panic: "holdfast-inside"}, 500, "internal", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, withStore(func(real ledger.Store) ledger.Store {
				f := c.store
				f.Store = real
				return &f
			}), withLetters(func(real deadletter.Store) deadletter.Store { return &faultyLetters{real, c.store} }))
			eachStored(t, w, func(t *testing.T, r api.Route, a answer) {
				t.Helper()
				a.refused(t, c.status, c.code)
				if strings.Contains(string(a.raw), "inside at") || strings.Contains(string(a.raw), "holdfast-inside") || strings.Contains(string(a.raw), "10.9.8.7") {
					t.Errorf("%s %s shows the inside: %s", r.Method, r.Path, a.raw)
				}
				if (a.header.Get("Retry-After") != "") != c.retry {
					t.Errorf("%s %s: Retry-After %q", r.Method, r.Path, a.header.Get("Retry-After"))
				}
			})
			w.get(t, "/healthz").ok(t) // the process lives on
		})
	}
}

// Every code of the table, with its status, from the cause that the contract gives it.
func TestEveryCode(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, w *world) {
		as, op := bearer(workflowSecret), bearer(operatorSecret)
		w.post(t, "/claim", `{"source":`, as).refused(t, 400, "invalid_json")
		w.post(t, "/claim", obj{"idempotency_key": "order-1"}, as).refused(t, 400, "invalid_request").names(t, "source")
		w.post(t, "/claim", key("order-1")).refused(t, 401, "unauthorized")
		w.get(t, "/history", as).refused(t, 403, "forbidden")
		w.post(t, "/complete", obj{"lease_token": aToken}, as).refused(t, 404, "not_found")
		w.post(t, "/claim", `{"source":"`+strings.Repeat("a", 5000)+`"}`, as).refused(t, 413, "too_large")
		w.post(t, "/claim", key("order-1"), as, header("Content-Type", "text/plain")).refused(t, 415, "unsupported_media_type")
		w.post(t, "/claim", obj{"source": "shop"}, as).refused(t, 422, "missing_key")
		w.post(t, "/claim", key("undefined"), as).refused(t, 422, "invalid_key")
		token := w.proceeds(t, and(effect("order-1", "charge"), obj{"payload": obj{"amount": 5}}), as)
		w.post(t, "/claim", and(effect("order-1", "charge"), obj{"payload": obj{"amount": 6}}), as).refused(t, 422, "key_reused")
		w.post(t, "/complete", obj{"lease_token": token, "http_status": 500}, as).refused(t, 422, "looks_like_failure")
		w.post(t, "/complete", and(effect("order-1", "charge"), obj{"result_id": "ch_other"}), as).refused(t, 409, "lease_live")
		w.post(t, "/complete", obj{"lease_token": token, "result_id": "ch_77", "result": obj{"charge": "ch_77"}}, as).ok(t)
		for body, code := range map[string]string{
			text(t, obj{"lease_token": token, "result_id": "ch_78"}): "result_conflict",
		} {
			a := w.post(t, "/complete", body, as).refused(t, 409, code)
			details, _ := a.body["details"].(obj)
			hasAll(t, details, obj{"status": "completed", "result_id": "ch_77", "result": obj{"charge": "ch_77"}})
		}
		w.post(t, "/extend", obj{"lease_token": token, "lease_seconds": 60}, as).refused(t, 409, "lease_lost")
		event := w.proceeds(t, key("order-2"), as)
		w.post(t, "/mark-failed", obj{"lease_token": event, "retry_after": 60}, as).ok(t).has(t, obj{"status": "pending"})
		w.post(t, "/mark-unknown", obj{"lease_token": event}, as).refused(t, 409, "invalid_transition")
		_ = op
	}, withKeys(bothKeys...), withMaxBody(4096))
}

// details of a 409 have the claim's status and result, as null where there is none.
func TestConflictSaysWhereTheClaimStands(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.proceeds(t, key("order-3"))
	id := w.get(t, "/claims?idempotency_key=order-3").ok(t)
	items, _ := id.body["items"].([]any)
	item, _ := items[0].(obj)
	a := w.post(t, "/claims/"+fmt.Sprint(item["claim_id"])+"/resolve", obj{"status": "review", "authorized_by": "asha", "reason": "look"}).refused(t, 409, "lease_live")
	details, _ := a.body["details"].(obj)
	hasAll(t, details, obj{"status": "processing", "result": nil})
	for i, result := range []string{`{}`, `[]`, `""`, `null`, `0`} {
		k := fmt.Sprint("order-4-", i)
		token := w.proceeds(t, key(k))
		w.post(t, "/complete", `{"lease_token":"`+token+`","result_id":"one","result":`+result+`}`).ok(t)
		a := w.post(t, "/complete", obj{"lease_token": token, "result_id": "two"}).refused(t, 409, "result_conflict")
		details, _ := a.body["details"].(obj)
		if _, there := details["result"]; !there {
			t.Errorf("a result of %s is not in details: %s", result, clip(a.raw))
		}
	}
	w.clock.advance(301 * time.Second)
	w.proceeds(t, key("order-3"))
	w.post(t, "/mark-failed", obj{"lease_token": token}).refused(t, 409, "lease_lost")
}
