package storetest

import (
	"fmt"
	"slices"
	"time"

	"holdfast/internal/ledger"
)

// crowd makes 24 claims of different kinds, states and accounts, a second apart, and returns them as they stand.
func crowd(w *world) []ledger.Claim {
	w.Helper()
	var ids []string
	for i := range 24 {
		w.pass(time.Second)
		r := w.event(fmt.Sprint("key", i/2), account([]string{"", "a", "b"}[i%3]), of([]string{"", "e"}[i/20], ""))
		if i%2 == 1 {
			r.Key.Step = "charge"
		}
		if i%5 == 0 {
			r.Key.Source = "elsewhere"
		}
		v := w.claim(r)
		ids = append(ids, v.Claim.ID)
		switch {
		case v.Decision != ledger.Proceed:
		case i%4 == 0:
			w.ended(complete(worker(v.Claim), fmt.Sprint("r", i)), ledger.Completed)
		case i%4 == 1:
			w.ended(withReference(markUnknown(worker(v.Claim)), fmt.Sprint("ref", i)), ledger.Unknown)
		case i%4 == 2:
			w.ended(notExecuted(worker(v.Claim)), ledger.Failed)
		}
	}
	slices.Reverse(ids) // newest first
	claims := make([]ledger.Claim, len(ids))
	for i, id := range ids {
		claims[i], _ = w.get(id)
	}
	return claims
}

func listFilters(w *world) {
	claims := crowd(w)
	empty, a := "", "a"
	from, to := claims[15].FirstAt, claims[5].FirstAt
	for name, filter := range map[string]struct {
		f    ledger.ClaimFilter
		pass func(*ledger.Claim) bool
	}{
		"all":         {ledger.ClaimFilter{}, func(*ledger.Claim) bool { return true }},
		"status":      {ledger.ClaimFilter{Status: ledger.Unknown}, func(c *ledger.Claim) bool { return c.Status == ledger.Unknown }},
		"pending":     {ledger.ClaimFilter{Status: ledger.Pending}, func(c *ledger.Claim) bool { return c.Status == ledger.Pending }},
		"source":      {ledger.ClaimFilter{Source: "elsewhere"}, func(c *ledger.Claim) bool { return c.Key.Source == "elsewhere" }},
		"account":     {ledger.ClaimFilter{Account: &a}, func(c *ledger.Claim) bool { return c.Key.Account == "a" }},
		"no account":  {ledger.ClaimFilter{Account: &empty}, func(c *ledger.Claim) bool { return c.Key.Account == "" }},
		"key":         {ledger.ClaimFilter{IdempotencyKey: "key3"}, func(c *ledger.Claim) bool { return c.Key.IdempotencyKey == "key3" }},
		"key, case":   {ledger.ClaimFilter{IdempotencyKey: "KEY3"}, func(*ledger.Claim) bool { return false }},
		"reference":   {ledger.ClaimFilter{Reference: "ref9"}, func(c *ledger.Claim) bool { return c.Reference == "ref9" }},
		"kind":        {ledger.ClaimFilter{Kind: ledger.Effect}, func(c *ledger.Claim) bool { return c.Kind == ledger.Effect }},
		"entity":      {ledger.ClaimFilter{Entity: "e"}, func(c *ledger.Claim) bool { return c.Entity == "e" }},
		"from":        {ledger.ClaimFilter{From: from}, func(c *ledger.Claim) bool { return c.FirstAt >= from }},
		"to":          {ledger.ClaimFilter{To: to}, func(c *ledger.Claim) bool { return c.FirstAt < to }},
		"from and to": {ledger.ClaimFilter{From: from, To: to}, func(c *ledger.Claim) bool { return c.FirstAt >= from && c.FirstAt < to }},
		"several": {ledger.ClaimFilter{Source: w.source, Kind: ledger.Event, Account: &a, Status: ledger.Failed}, func(c *ledger.Claim) bool {
			return c.Key.Source == w.source && c.Kind == ledger.Event && c.Key.Account == "a" && c.Status == ledger.Failed
		}},
		"nothing": {ledger.ClaimFilter{Source: "nowhere"}, func(*ledger.Claim) bool { return false }},
	} {
		w.row(name, func(w *world) {
			var want []string
			for _, c := range claims {
				if filter.pass(&c) {
					want = append(want, c.ID)
				}
			}
			for _, limit := range []int{50, 1, 7} {
				w.same(w.walk(filter.f, limit), want)
			}
		})
	}
}

// walk follows the cursors to the end.
func (w *world) walk(f ledger.ClaimFilter, limit int) (all []ledger.Claim) {
	w.Helper()
	f.Limit = limit
	for range 100 {
		claims, next, err := w.store.List(w.Context(), f)
		if err != nil {
			w.Fatal(err)
		}
		if len(claims) > limit || next != "" && len(claims) < limit {
			w.Fatalf("%d claims on a page of %d, next %q", len(claims), limit, next)
		}
		if all = append(all, claims...); next == "" {
			return all
		}
		f.Cursor = next
	}
	w.Fatal("the pages never end")
	return nil
}

// listPages: a walk misses nothing and repeats nothing while claims come in.
func listPages(w *world) {
	claims := crowd(w)
	var got []ledger.Claim
	f := ledger.ClaimFilter{Limit: 5}
	for i := range 100 {
		page, next, err := w.store.List(w.Context(), f)
		if err != nil {
			w.Fatal(err)
		}
		got = append(got, page...)
		if f.Cursor = next; next == "" {
			break
		}
		w.grant(w.event(fmt.Sprint("meanwhile", i)))
	}
	var want []string
	for _, c := range claims {
		want = append(want, c.ID)
	}
	w.same(got, want)
	for _, c := range got {
		full, _ := w.get(c.ID)
		full.Payload = c.Payload
		if fmt.Sprint(full) != fmt.Sprint(c) {
			w.Errorf("List shows %+v, Get %+v", c, full)
		}
	}
}

// historyPages: newest first, by claim, by name, by time; a walk by single entries gives the same.
func historyPages(w *world) {
	claims := crowd(w)
	w.pass(time.Second)
	middle := w.now()
	for i, c := range claims {
		w.pass(time.Millisecond * time.Duration(i%2)) // some at the same moment
		if c.Status != ledger.Processing && c.Status != ledger.Completed {
			w.resolved(c.ID, ledger.Review)
			w.resolved(c.ID, ledger.Completed)
		}
	}
	all := w.walkHistory(ledger.HistoryFilter{}, 200)
	if len(all) < 30 {
		w.Fatalf("only %d entries", len(all))
	}
	some := claims[slices.IndexFunc(claims, func(c ledger.Claim) bool { return c.Status == ledger.Failed })].ID
	for name, filter := range map[string]struct {
		f    ledger.HistoryFilter
		pass func(*ledger.HistoryEntry) bool
	}{
		"all":         {ledger.HistoryFilter{}, func(*ledger.HistoryEntry) bool { return true }},
		"claim":       {ledger.HistoryFilter{ClaimID: some}, func(e *ledger.HistoryEntry) bool { return e.ClaimID == some }},
		"by":          {ledger.HistoryFilter{By: "ada"}, func(e *ledger.HistoryEntry) bool { return e.By == "ada" }},
		"nobody":      {ledger.HistoryFilter{By: "ADA"}, func(*ledger.HistoryEntry) bool { return false }},
		"from":        {ledger.HistoryFilter{From: middle}, func(e *ledger.HistoryEntry) bool { return e.At >= middle }},
		"to":          {ledger.HistoryFilter{To: middle}, func(e *ledger.HistoryEntry) bool { return e.At < middle }},
		"by and from": {ledger.HistoryFilter{By: "n8n", From: middle}, func(e *ledger.HistoryEntry) bool { return e.By == "n8n" && e.At >= middle }},
	} {
		w.row(name, func(w *world) {
			var want []ledger.HistoryEntry
			for _, e := range all {
				if filter.pass(&e) {
					want = append(want, e)
				}
			}
			for _, limit := range []int{1, 7, 200} {
				if got := w.walkHistory(filter.f, limit); !slices.Equal(got, want) {
					w.Errorf("by pages of %d: %d entries, want %d", limit, len(got), len(want))
				}
			}
		})
	}
	if !slices.IsSortedFunc(all, func(a, b ledger.HistoryEntry) int { return int(b.At - a.At) }) {
		w.Error("not newest first")
	}
}

func (w *world) walkHistory(f ledger.HistoryFilter, limit int) (all []ledger.HistoryEntry) {
	w.Helper()
	f.Limit = limit
	for range 500 {
		entries, next, err := w.store.History(w.Context(), f)
		if err != nil {
			w.Fatal(err)
		}
		if all = append(all, entries...); next == "" {
			return all
		}
		f.Cursor = next
	}
	w.Fatal("the pages never end")
	return nil
}
