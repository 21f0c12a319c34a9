package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/ledger"
)

const (
	probeTurn    = 5 * time.Second
	probeBudget  = 40 * time.Second // of one pass; what is left over is for the next
	probeLease   = 60               // seconds; a look takes a fraction of it
	probesAtOnce = 4                // of one probe in its loop, and as many by touch
	touchTime    = 2 * time.Second
)

// Looks is what probes need of the ledger.
type Looks interface {
	LeaseUnknown(ctx context.Context, r *ledger.LookRequest) ([]ledger.Claim, error)
	End(ctx context.Context, e *ledger.Ending) (ledger.Ended, error)
}

// Probe is a question to a destination about the unknown claims that it is for.
type Probe struct {
	Name     string
	For      ledger.Match
	Method   string
	URL      []Part // the first is text and holds the host
	Headers  map[string]string
	Body     []Part // JSON; empty for none
	Found    string // dotted path to the id in the answer
	NotFound []int  // statuses that mean "not found"
}

// Part is text, or where Name is set, a value of the claim.
type Part struct {
	Text, Name string
	In         string // path, query or body
	Without    string // signs that the value must not hold, nor white space; empty: it may hold anything
}

// ProbeOptions configure the probes.
type ProbeOptions struct {
	Probes  []Probe
	Private []netip.Prefix // where they may go besides public addresses
	Log     *slog.Logger
}

// Probes ask destinations about unknown claims and settle them: in loops of their own, and when a claim is touched.
type Probes struct {
	list    []*probe // the one that says most of its claims first
	store   Looks
	outside *outside
	log     *slog.Logger

	stopping context.Context //nolint:containedctx // it ends what is being asked
	stop     context.CancelFunc
}

type probe struct {
	Probe
	except  []ledger.Match // claims of those that say more
	touches chan struct{}
	blank   sync.Once
}

// NewProbes prepares the probes; an address that no request may go to is an error. Loops runs them.
func NewProbes(o ProbeOptions, store Looks) (*Probes, error) {
	w := &Probes{store: store, outside: newOutside(o.Private), log: o.Log}
	w.stopping, w.stop = context.WithCancel(context.Background())
	sorted := slices.SortedStableFunc(slices.Values(o.Probes), func(a, b Probe) int { return b.For.Weight() - a.For.Weight() })
	for i, p := range sorted {
		u, err := url.Parse(p.URL[0].Text)
		if err != nil {
			return nil, fmt.Errorf("probes.%s.url: cannot be read", p.Name)
		}
		if err := mayGo(u.Hostname(), o.Private); err != nil {
			return nil, fmt.Errorf("probes.%s.url: %w", p.Name, err)
		}
		one := &probe{Probe: p, touches: make(chan struct{}, probesAtOnce)}
		for _, more := range sorted[:i] {
			one.except = append(one.except, more.For)
		}
		w.list = append(w.list, one)
	}
	return w, nil
}

// Loops are to be started and stopped by the caller; Stop breaks off what they are asking.
func (w *Probes) Loops() (out []*Loop) {
	for _, p := range w.list {
		out = append(out, &Loop{Name: "probe " + p.Name, Interval: probeTurn, Log: w.log, Pass: func(context.Context) error { return w.pass(p) }})
	}
	return out
}

// Stop breaks off what is being asked, and lets nothing be asked any more: what was not answered stays unknown.
func (w *Probes) Stop() { w.stop() }

// pass asks about what has come due, some at once, until a destination answers nothing: then it is left alone until the
// next pass. Claims that cannot be asked about say nothing of it.
func (w *Probes) pass(p *probe) error {
	for began := time.Now(); w.stopping.Err() == nil && time.Since(began) < probeBudget; {
		n, asked, answered, err := w.round(p, probesAtOnce, "")
		if err != nil || n < probesAtOnce || asked > 0 && answered == 0 {
			return err
		}
	}
	return nil
}

// Touch asks about an unknown claim that somebody has just met, if there is a probe for it and it is time for a look.
// It waits two seconds at most and tells whether an answer was settled; the look goes on without its caller.
func (w *Probes) Touch(ctx context.Context, c *ledger.Claim) bool {
	at := slices.IndexFunc(w.list, func(p *probe) bool { return p.For.Fits(c) })
	if at < 0 || w.stopping.Err() != nil {
		return false
	}
	p := w.list[at]
	select {
	case p.touches <- struct{}{}:
	default:
		return false
	}
	settled := make(chan bool, 1)
	go func() {
		defer func() { <-p.touches }()
		_, _, answered, err := w.round(p, 1, c.ID)
		if err != nil {
			w.log.Warn("a probe could not take its claim", "probe", p.Name, "cause", err)
		}
		settled <- answered > 0
	}()
	ctx, cancel := context.WithTimeout(ctx, touchTime)
	defer cancel()
	select {
	case yes := <-settled:
		return yes
	case <-ctx.Done():
		return false
	}
}

// round takes up to limit claims, or the one with this id, and asks about them at once: about n, or asked, where for
// some no question can be made. answered is about how many of them something was said.
func (w *Probes) round(p *probe, limit int64, id string) (n int, asked, answered int64, err error) {
	claims, err := w.store.LeaseUnknown(w.stopping, &ledger.LookRequest{
		CallerKey: "probe:" + p.Name, Limit: limit, LeaseSeconds: probeLease, Probe: true, Of: p.For, Except: p.except, ID: id,
	})
	var (
		looks sync.WaitGroup
		said  [ledger.Unasked + 1]atomic.Int64
	)
	for i := range claims {
		looks.Go(func() { said[w.look(p, &claims[i])].Add(1) })
	}
	looks.Wait()
	answered = said[ledger.Answered].Load()
	return len(claims), answered + said[ledger.Unanswered].Load(), answered, err
}

// look asks about one claim, settles what is answered, and tells what that says of the destination. What could not be
// asked is kept too, and not what the end of the program broke off.
func (w *Probes) look(p *probe, c *ledger.Claim) ledger.LookAnswer {
	ctx, cancel := context.WithTimeout(w.stopping, outsideTime)
	defer cancel()
	e := w.ask(ctx, p, c)
	if w.stopping.Err() != nil {
		return ledger.NoLook
	}
	e.AskedAt = c.LookUntil.Add(-probeLease * time.Second) // when it was taken, by the ledger's clock
	e.Token, e.ByToken = ledger.ParseToken(c.LookToken())
	e.CallerKey, e.Message = "probe:"+p.Name, "probe "+p.Name+": "+e.Message
	out, err := w.store.End(context.WithoutCancel(ctx), e)
	var refusal *ledger.Refusal
	switch {
	case out.Alert != "":
		w.log.Warn(out.Alert, "claim_id", c.ID, "probe", p.Name)
	case err != nil && !errors.As(err, &refusal): // refused: somebody else has settled it
		w.log.Warn("what a probe was told could not be stored and is asked again", "claim_id", c.ID, "probe", p.Name, "cause", err)
	case out.Changed:
		w.log.Info("a probe settled an unknown claim", "claim_id", c.ID, "probe", p.Name, "status", out.Claim.Status)
	}
	switch {
	case e.Unasked:
		return ledger.Unasked
	case e.Verb == ledger.MarkUnknown:
		return ledger.Unanswered
	}
	return ledger.Answered
}

// ask gives the ending that the destination's answer makes.
func (w *Probes) ask(ctx context.Context, p *probe, c *ledger.Claim) *ledger.Ending {
	req, why := p.request(ctx, c)
	if why != "" {
		p.blank.Do(func() {
			w.log.Warn("a probe cannot ask about some of its claims", "probe", p.Name, "claim_id", c.ID, "cause", why)
		})
		return &ledger.Ending{Verb: ledger.MarkUnknown, Message: why, Unasked: true}
	}
	status, body, err := w.outside.do(req)
	if err != nil {
		return &ledger.Ending{Verb: ledger.MarkUnknown, Message: err.Error(), HTTPStatus: int64(status)}
	}
	e := p.read(status, body)
	e.HTTPStatus = int64(status)
	return e
}
