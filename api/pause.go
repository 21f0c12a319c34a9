package api

import (
	"strings"

	"holdfast/internal/ledger"
)

type pauseRequest struct {
	AuthorizedBy string `json:"authorized_by"`
	Reason       string `json:"reason"`
	Until        string `json:"until"`
}

type pauseView struct {
	Scope        string          `json:"scope"`
	AuthorizedBy string          `json:"authorized_by"`
	Reason       string          `json:"reason"`
	Since        ledger.Instant  `json:"since"`
	Until        *ledger.Instant `json:"until"`
}

func viewPause(p ledger.Pause) pauseView {
	return pauseView{p.Scope, p.AuthorizedBy, p.Reason, p.Since, instantOrNull(p.Until)}
}

func (s *server) listPauses(c call) (*list[pauseView], error) {
	pauses, err := s.Store.Pauses(c)
	if err != nil {
		return nil, err
	}
	out := &list[pauseView]{Items: make([]pauseView, len(pauses))}
	for i, p := range pauses {
		out.Items[i] = viewPause(p)
	}
	return out, nil
}

func (s *server) setPause(c call, req *pauseRequest) (*pauseView, error) {
	p := ledger.Pause{Scope: c.param("scope"), AuthorizedBy: clip(text(req.AuthorizedBy), maxContext), Reason: clip(text(req.Reason), maxMessage)}
	if err := firstError(checkScope(p.Scope), checkPerson(req.AuthorizedBy, req.Reason)); err != nil {
		return nil, err
	}
	until, err := instantOf("until", req.Until)
	if err != nil {
		return nil, err
	}
	p.Until = until
	p, err = s.Store.SetPause(c, p)
	if err != nil {
		return nil, err
	}
	out := viewPause(p)
	return &out, nil
}

// cleared is the answer of DELETE /pauses/{scope}; changed is false when there was no pause.
type cleared struct {
	Scope   string `json:"scope"`
	Changed bool   `json:"changed"`
}

func (s *server) clearPause(c call) (*cleared, error) {
	scope := c.param("scope")
	if err := checkScope(scope); err != nil {
		return nil, err
	}
	was, err := s.Store.ClearPause(c, scope, c.key.Name)
	if err != nil {
		return nil, err
	}
	return &cleared{scope, was}, nil
}

func checkScope(scope string) error {
	kind, name, _ := strings.Cut(scope, ".")
	switch {
	case scope == "all":
		return nil
	case name != "" && (kind == "source" || kind == "destination"):
		return checkName("scope", name)
	case name != "" && kind == "workflow":
		return checkWorkflow("scope", text(name))
	}
	return badField("scope", "must be all, source.NAME, destination.NAME or workflow.ID")
}
