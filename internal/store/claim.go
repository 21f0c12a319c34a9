package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"holdfast/internal/ledger"
)

// callTime bounds what one batch or transaction may take; then the callers are told to ask again.
const callTime = 15 * time.Second

// tries bounds how often a decision is made anew because its row moved in between.
const tries = 20

// errNeedsFacts sends a call from its lane to the path that takes the locks of its entity and its destination.
var errNeedsFacts = errors.New("store: the decision needs a lock")

// errMoved says that a row moved between reading and writing.
var errMoved = errors.New("store: the row moved")

// Claim is part of ledger.Store. A plain claim shares one insert with those that arrive meanwhile; one with an
// entity takes its own transaction under its locks. Those at a destination with limits share a lane of their own.
func (s *Store) Claim(ctx context.Context, r *ledger.Request) (v ledger.Verdict, err error) {
	err = errNeedsFacts
	if r.Entity == "" {
		lane := s.claims
		if place := s.places[r.Destination]; place != nil {
			lane = place
		}
		v, err = lane.do(ctx, r, len(r.Payload))
	}
	if errors.Is(err, errNeedsFacts) {
		v, err = s.claimUnderLocks(ctx, r)
	}
	if err == nil {
		s.alerts.hear(v.Claim.Key.Source, v.Claim.FirstAt)
	}
	return v, s.translate(err)
}

type claimCall = call[*ledger.Request, ledger.Verdict]

func (s *Store) runClaims(batch []*claimCall) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	rest := s.claimNew(ctx, batch)
	for range tries {
		if len(rest) == 0 {
			return
		}
		rest = s.claimStanding(ctx, rest)
	}
	failAll(rest, ledger.ErrUnavailable)
}

// claimNew tries to insert the batch as claims that nobody made before, and returns the calls whose keys exist.
func (s *Store) claimNew(ctx context.Context, batch []*claimCall) []*claimCall {
	now := s.clock.now()
	verdicts := make(map[string]ledger.Verdict, len(batch))
	rows := make([]ledger.Claim, 0, len(batch))
	for _, c := range batch {
		if c.q.ClaimID != "" || s.recent.met(c.q.Key) {
			continue
		}
		v, _ := ledger.Decide(nil, c.q, s.facts(nil, c.q, now)) // nothing stands against a new row
		v.Claim.Rev, v.Claim.Moves = 1, 1
		verdicts[v.Claim.ID] = v
		rows = append(rows, v.Claim)
	}
	if len(rows) == 0 {
		return batch
	}
	// In the order of keys, so that two replicas never wait for each other; of equal keys the first to come wins.
	slices.SortStableFunc(rows, func(a, b ledger.Claim) int { return compareKeys(a.Key, b.Key) })
	inserted, err := s.insertPlain(ctx, rows, now)
	if err != nil {
		return failed(batch, err, s.dialect.kindOf(err), func(one []*claimCall) []*claimCall { return s.claimNew(ctx, one) })
	}
	var rest []*claimCall
	for _, c := range batch {
		if inserted[c.q.Fresh.ID] {
			c.a = verdicts[c.q.Fresh.ID]
		} else {
			rest = append(rest, c)
		}
	}
	return rest
}

func compareKeys(a, b ledger.Key) int {
	switch {
	case a.Less(b):
		return -1
	case b.Less(a):
		return 1
	}
	return 0
}

// failed handles a statement that failed for a whole batch: a member that cannot be written fails alone. Where
// it is not known what happened, all fail.
func failed[Q, A any](batch []*call[Q, A], err error, kind errorKind, alone func([]*call[Q, A]) []*call[Q, A]) (rest []*call[Q, A]) {
	if kind == kindBusy || errors.Is(err, errMoved) {
		return batch // rolled back, such as after a deadlock: it is decided anew
	}
	if len(batch) == 1 || kind == kindAway || errors.Is(err, ledger.ErrUnavailable) {
		failAll(batch, err)
		return nil
	}
	for i := range batch {
		rest = append(rest, alone(batch[i:i+1])...)
	}
	return rest
}

func failAll[Q, A any](batch []*call[Q, A], err error) {
	for _, c := range batch {
		c.err = err
	}
}

func (s *Store) facts(row *ledger.Claim, r *ledger.Request, now ledger.Instant) ledger.Facts {
	if row != nil {
		return ledger.Facts{Now: now, Policy: s.policyOf(row)} // as the sweeper judges it
	}
	return ledger.Facts{Now: now, Policy: s.policy.For(r.Key.Source, r.Destination)}
}

// claimStanding decides calls whose keys exist (or that are paused), and returns those whose rows moved meanwhile.
func (s *Store) claimStanding(ctx context.Context, batch []*claimCall) []*claimCall {
	alone := func(one []*claimCall) []*claimCall { return s.claimStanding(ctx, one) }
	rows, err := s.readTargets(ctx, s.write, claimTargets(batch))
	if err != nil {
		return failed(batch, err, s.dialect.kindOf(err), alone)
	}
	now := s.clock.now()
	w := newWork(rows)
	paused := pauses{}
	// A duplicate of what is done or under way needs no more than its row.
	if slices.ContainsFunc(batch, func(c *claimCall) bool { return ledger.Free(w.find(c.q.ClaimID, c.q.Key), now) }) {
		if paused, err = s.readPauses(ctx, s.write); err != nil {
			return failed(batch, err, s.dialect.kindOf(err), alone)
		}
	}
	for _, c := range batch {
		c.a, c.err = s.decide(w, c.q, paused, now)
	}
	stood, err := s.apply(ctx, w)
	if err != nil {
		return failed(batch, err, s.dialect.kindOf(err), alone)
	}
	return slices.DeleteFunc(slices.Clone(batch), func(c *claimCall) bool {
		id := c.a.Claim.ID
		return id == "" || stood(id)
	})
}

func claimTargets(batch []*claimCall) (t targets) {
	for _, c := range batch {
		if c.q.ClaimID != "" {
			t.ids = append(t.ids, c.q.ClaimID)
		} else {
			t.keys = append(t.keys, c.q.Key)
		}
	}
	return t
}

// decide decides one call over the rows as the calls before it have left them.
func (s *Store) decide(w *work, r *ledger.Request, paused pauses, now ledger.Instant) (ledger.Verdict, error) {
	row := w.find(r.ClaimID, r.Key)
	if row == nil && r.ClaimID != "" {
		return ledger.Verdict{}, ledger.ErrNotFound
	}
	if s.needsLocks(row, r, now) {
		return ledger.Verdict{}, errNeedsFacts
	}
	f := s.facts(row, r, now)
	f.Pause = ledger.PauseWait(paused, r.Scopes(row), now)
	v, err := ledger.Decide(row, r, f)
	switch {
	case err != nil:
		v.Claim.ID = row.ID // the refusal stands only if the row does; a new row is never refused
	case v.Changed:
		w.put(row, &v.Claim, false)
	}
	return v, err
}

// claimUnderLocks decides a claim that names an entity or a destination with limits, under their locks.
func (s *Store) claimUnderLocks(ctx context.Context, r *ledger.Request) (v ledger.Verdict, err error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	leave, err := s.queue(ctx)
	if err != nil {
		return v, err
	}
	defer leave()
	for range tries {
		err = s.inTx(ctx, func(tx *sqlx.Tx) (err error) {
			v, err = s.decideUnderLocks(ctx, tx, r)
			return err
		})
		if !errors.Is(err, errMoved) && s.kind(err) != kindBusy {
			return v, err
		}
	}
	return v, ledger.ErrUnavailable
}

// queue lets only some calls at once into transactions that may wait for each other's locks: a crowd at one row must
// not hold all connections, with which everything else goes on.
func (s *Store) queue(ctx context.Context) (leave func(), err error) {
	select {
	case s.crowd <- struct{}{}:
		return func() { <-s.crowd }, nil
	case <-ctx.Done():
		return nil, ledger.ErrUnavailable
	}
}

func (s *Store) kind(err error) errorKind {
	if err == nil {
		return ""
	}
	return s.dialect.kindOf(err)
}

func (s *Store) decideUnderLocks(ctx context.Context, tx *sqlx.Tx, r *ledger.Request) (v ledger.Verdict, err error) {
	t := targets{keys: []ledger.Key{r.Key}}
	if r.ClaimID != "" {
		t = targets{ids: []string{r.ClaimID}}
	}
	rows, err := s.readTargets(ctx, tx, t)
	if err != nil {
		return v, err
	}
	w := newWork(rows)
	row := w.find(r.ClaimID, r.Key)
	if row == nil && r.ClaimID != "" {
		return v, ledger.ErrNotFound
	}
	now := s.clock.now()
	f := s.facts(row, r, now)
	if r.NeedsFacts(row, now) {
		if f.Entity, err = s.entityFacts(ctx, tx, entityOf(row, r), now); err != nil {
			return v, err
		}
	}
	var p *place
	if name := r.Place(row); s.limited(name) && ledger.Free(row, now) {
		if p, err = s.lockPlace(ctx, tx, name); err != nil {
			return v, err
		}
		f.Now = p.now
	}
	paused, err := s.readPauses(ctx, tx)
	if err != nil {
		return v, err
	}
	f.Pause = ledger.PauseWait(paused, r.Scopes(row), f.Now)
	if v, err = s.decideAt(ctx, tx, p, row, r, f); err != nil || !v.Changed {
		return v, err
	}
	w.put(row, &v.Claim, false)
	return v, s.writeAll(ctx, tx, w)
}

// decideAt decides with what the claim's destination has room for. A permit is used only by what proceeds. p is nil
// where no limits matter.
func (s *Store) decideAt(ctx context.Context, tx *sqlx.Tx, p *place, row *ledger.Claim, r *ledger.Request, f ledger.Facts) (v ledger.Verdict, err error) {
	if p == nil {
		return ledger.Decide(row, r, f)
	}
	room, err := s.room(ctx, tx, p, 1)
	if err != nil {
		return v, err
	}
	f.Pause = max(f.Pause, room.Wait)
	if v, err = ledger.Decide(row, r, f); err != nil {
		return v, err
	}
	switch v.Decision {
	case ledger.Proceed:
		p.take(1, v.Claim.LeaseUntil.Sub(p.now))
	case ledger.Wait:
		s.held(p, room)
	}
	return v, s.savePlace(ctx, tx, p)
}

// entity is the identity of what versions order.
type entity struct{ source, account, name string }

func entityOf(row *ledger.Claim, r *ledger.Request) entity {
	e := entity{r.Key.Source, r.Key.Account, r.Entity}
	if row != nil {
		e.source, e.account = row.Key.Source, row.Key.Account
		if e.name == "" {
			e.name = row.Entity
		}
	}
	return e
}

// entityFacts takes the entity's lock and reads what else concerns it.
func (s *Store) entityFacts(ctx context.Context, tx *sqlx.Tx, e entity, now ledger.Instant) (*ledger.EntityFacts, error) {
	if _, err := tx.ExecContext(ctx, tx.Rebind(`insert into entities (source, account, entity) values (?, ?, ?) on conflict do nothing`),
		e.source, e.account, e.name); err != nil {
		return nil, err
	}
	var done struct {
		Integer *int64 `db:"done_integer"`
		Time    *int64 `db:"done_time"`
	}
	if err := tx.GetContext(ctx, &done, tx.Rebind(`select done_integer, done_time from entities where source = ? and account = ? and entity = ?`+
		s.dialect.forUpdate), e.source, e.account, e.name); err != nil {
		return nil, err
	}
	f := &ledger.EntityFacts{}
	if done.Integer != nil {
		f.Completed = append(f.Completed, ledger.Version{Kind: ledger.IntegerVersion, Rank: *done.Integer})
	}
	if done.Time != nil {
		f.Completed = append(f.Completed, ledger.Version{Kind: ledger.TimeVersion, Rank: *done.Time})
	}
	others, err := selectClaims(ctx, tx, lean, leanSelect+
		`where c.source = ? and c.account = ? and c.entity = ? and c.entity <> '' and c.status in ('processing', 'unknown')`, e.source, e.account, e.name)
	for _, o := range others {
		if ledger.Settle(&o, s.policyOf(&o), now, sweeper) {
			continue // before a person, whether or not the sweeper has come by
		}
		f.Others = append(f.Others, ledger.Other{Key: o.Key, Kind: o.Kind, Status: o.Status, Version: o.Version, LeaseUntil: o.LeaseUntil})
	}
	return f, err
}

// newestDone keeps the newest completed version of an entity, for ever.
func newestDone(ctx context.Context, q querier, c *ledger.Claim) error {
	if c.Entity == "" || c.Version.Kind == ledger.NoVersion {
		return nil
	}
	column := "done_integer"
	if c.Version.Kind == ledger.TimeVersion {
		column = "done_time"
	}
	query := strings.ReplaceAll(`insert into entities (source, account, entity, COLUMN) values (?, ?, ?, ?)
		on conflict (source, account, entity) do update set COLUMN = excluded.COLUMN
		where entities.COLUMN is null or entities.COLUMN < excluded.COLUMN`, "COLUMN", column)
	_, err := q.ExecContext(ctx, q.Rebind(query), c.Key.Source, c.Key.Account, c.Entity, c.Version.Rank)
	return err
}
