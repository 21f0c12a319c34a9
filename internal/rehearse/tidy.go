package rehearse

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"time"
)

// tidyTime bounds the cleaning up, also after an interruption.
const tidyTime = 30 * time.Second

// tidyRounds is how often it is tried: one end may open another thing's way.
const tidyRounds = 3

var errStays = errors.New("it was ended, and stays as it is")

// item is something that the rehearsal has left open.
type item struct {
	what, path string
	end        func(context.Context) error
}

// tidy ends what is still open, and says what it could not. It asks the sidecar what that is: an answer that was lost
// would be missing in any list of our own.
func (r *rehearsal) tidy(ctx context.Context) (left []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTime)
	defer cancel()
	failed := map[string]error{}
	for range tidyRounds {
		open, err := r.open(ctx)
		if len(open) == 0 && err == nil {
			return nil
		}
		for _, i := range open {
			failed[i.path] = i.end(ctx)
		}
	}
	open, err := r.open(ctx)
	for _, i := range open {
		why := cmp.Or(failed[i.path], errStays)
		left = append(left, fmt.Sprintf("%s: POST %s (%v)", i.what, i.path, why))
	}
	if err != nil {
		left = append(left, fmt.Sprintf("perhaps more, look at GET /claims?%s, /dlq?%s and /replays (%v)", r.claims(), r.letters(), err))
	}
	return left
}

// claims and letters select those of this run.
func (r *rehearsal) claims() string {
	return url.Values{"source": {source}, "account": {r.run}, "limit": {"200"}}.Encode()
}

func (r *rehearsal) letters() string {
	return url.Values{"workflow_id": {r.workflow()}, "limit": {"200"}}.Encode()
}

// open lists replays first: what is in one cannot be ended by itself; then claims, since an event takes its letter
// along. What could be listed is there beside an error.
func (r *rehearsal) open(ctx context.Context) (out []item, err error) {
	var (
		replays struct{ Items []replay }
		claims  struct{ Items []standing }
		letters struct{ Items []letter }
	)
	err = cmp.Or(
		r.client.call(ctx, http.MethodGet, "/replays?limit=200", nil, &replays),
		r.client.call(ctx, http.MethodGet, "/claims?"+r.claims(), nil, &claims),
		r.client.call(ctx, http.MethodGet, "/dlq?"+r.letters(), nil, &letters),
	)
	for _, rep := range replays.Items {
		if rep.Reason == r.why() && rep.Status != "done" && rep.Status != "cancelled" && rep.Status != "stopped" {
			out = append(out, r.byHand("a replay is "+rep.Status, "/replays/"+rep.ID+"/cancel", nil))
		}
	}
	for _, c := range claims.Items {
		if c.Status != "completed" && c.Status != "stale" && (c.Status != "failed" || c.Kind == "event") {
			out = append(out, r.claim(c))
		}
	}
	for _, l := range letters.Items {
		if l.Status != "resolved" && l.Status != "discarded" {
			out = append(out, r.byHand("a letter is "+l.Status, "/dlq/"+l.ID+"/discard", nil))
		}
	}
	return out, err
}

// byHand is ended under a person's name.
func (r *rehearsal) byHand(what, path string, body map[string]any) item {
	said := map[string]any{"authorized_by": person, "reason": r.why()}
	maps.Copy(said, body)
	return item{what, path, func(ctx context.Context) error {
		return r.client.call(ctx, http.MethodPost, path, said, new(any))
	}}
}

// standing is a claim as it is listed: all that is needed to claim it again as who holds it.
type standing struct {
	claimCall
	ClaimID string `json:"claim_id"`
	Kind    string `json:"kind"`
	Status  string `json:"status"`
	Version any    `json:"version"` // hides the claim's, which is a number
}

// claim is completed, whatever became of it: a failed effect would be a letter, and an alert. What is under a live lease
// is completed by its owner, who gets it again.
func (r *rehearsal) claim(c standing) item {
	i := r.byHand("a claim is "+c.Status, "/claims/"+c.ClaimID+"/resolve", map[string]any{"status": "completed"})
	settle := i.end
	i.end = func(ctx context.Context) error {
		var g granted
		if c.Status == "processing" && r.client.call(ctx, http.MethodPost, "/claim", c.claimCall, &g) == nil &&
			r.client.call(ctx, http.MethodPost, "/complete", map[string]any{"lease_token": g.LeaseToken}, &ended{}) == nil {
			return nil
		}
		return settle(ctx)
	}
	return i
}
