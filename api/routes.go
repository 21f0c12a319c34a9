// Package api is the HTTP side of Holdfast: the route table, the shapes of requests and answers, and one
// adapter between them. It knows the rules only through the ledger, the dead letters and their Stores.
package api

import (
	"bytes"
	"context"
	_ "embed" // the OpenAPI document
	"log/slog"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"holdfast/internal/deadletter"
	"holdfast/internal/inbox"
	"holdfast/internal/ledger"
)

//go:embed openapi.yaml
var openAPI []byte

// OpenAPI is the machine-readable contract, as served at /openapi.yaml.
func OpenAPI() []byte { return openAPI }

// Options are what the API needs. Store, Letters, Log and Metrics are required.
type Options struct {
	Store   ledger.Store
	Letters deadletter.Store
	// Keys are who may call. None: every caller is an operator, which the program allows on loopback only.
	Keys []Key
	// Sources are those whose keys are found otherwise than by the profile of their name.
	Sources map[string]KeyRule
	Log     *slog.Logger
	Metrics *Metrics
	MaxBody int64
	// Redact are names whose values are secret besides the usual ones.
	Redact []string
	// PublicURL is the base of links for people.
	PublicURL string
	// Touch asks about an unknown claim at its destination, for a moment, if somebody may ask now, and tells whether it
	// may be settled by now; nil: nobody asks.
	Touch func(ctx context.Context, c *ledger.Claim) bool
}

// KeyRule is how the key of a source is found in a payload. Without either field the standard paths are tried.
type KeyRule struct {
	Profile *inbox.Profile
	KeyPath string // body.PATH or headers.NAME
}

type server struct {
	Options
	keys keyring
}

// who may call a route.
type role string

const (
	anyone   role = ""
	workflow role = "workflow"
	operator role = "operator"
)

// Route is one line of the API.
type Route struct {
	Method, Path string
	Role         string // "", "workflow" (an operator may too) or "operator"
}

type row struct {
	method, path string
	role         role
	handler      echo.HandlerFunc
}

// table is the whole API on one screen.
func (s *server) table() []row {
	return []row{
		{http.MethodPost, "/claim", workflow, post(s, s.claim)},
		{http.MethodPost, "/complete", workflow, post(s, s.complete)},
		{http.MethodPost, "/mark-unknown", workflow, post(s, s.markUnknown)},
		{http.MethodPost, "/mark-failed", workflow, post(s, s.markFailed)},
		{http.MethodPost, "/extend", workflow, post(s, s.extend)},
		{http.MethodPost, "/reconcile/lease", workflow, post(s, s.reconcileLease)},
		{http.MethodPost, "/classify", workflow, s.classify},
		{http.MethodPost, "/dlq", workflow, s.report},
		{http.MethodGet, "/dlq", workflow, get(s.listLetters)},
		{http.MethodGet, "/dlq/stats", workflow, get(s.letterStats)},
		{http.MethodPost, "/dlq/lease", workflow, post(s, s.leaseLetters)},
		{http.MethodGet, "/dlq/:id", workflow, get(s.getLetter)},
		{http.MethodPost, "/dlq/:id/resolve", workflow, post(s, s.resolveLetter)}, // without a token: operator
		{http.MethodPost, "/dlq/:id/fail", workflow, post(s, s.failLetter)},
		{http.MethodPost, "/dlq/:id/extend", workflow, post(s, s.extendLetter)},
		{http.MethodPost, "/dlq/:id/requeue", operator, post(s, s.byPerson(deadletter.Requeue))},
		{http.MethodPost, "/dlq/:id/discard", operator, post(s, s.byPerson(deadletter.Discard))},
		{http.MethodPost, "/replays", operator, post(s, s.startReplay)},
		{http.MethodGet, "/replays", operator, get(s.listReplays)},
		{http.MethodGet, "/replays/:id", operator, get(s.getReplay)},
		{http.MethodPost, "/replays/:id/approve", operator, post(s, s.moveReplay(deadletter.Approve))},
		{http.MethodPost, "/replays/:id/pause", operator, postOrEmpty(s, s.moveReplay(deadletter.Pause))},
		{http.MethodPost, "/replays/:id/cancel", operator, postOrEmpty(s, s.moveReplay(deadletter.Cancel))},
		{http.MethodGet, "/claims", workflow, get(s.listClaims)},
		{http.MethodGet, "/claims/:id", workflow, get(s.getClaim)},
		{http.MethodPost, "/claims/:id/resolve", operator, post(s, s.resolve)},
		{http.MethodGet, "/history", operator, get(s.history)},
		{http.MethodGet, "/pauses", workflow, get(s.listPauses)},
		{http.MethodPut, "/pauses/:scope", operator, post(s, s.setPause)},
		{http.MethodDelete, "/pauses/:scope", operator, get(s.clearPause)},
		{http.MethodGet, "/healthz", anyone, get(s.healthz)},
		{http.MethodGet, "/readyz", anyone, get(s.readyz)},
		{http.MethodGet, "/openapi.yaml", anyone, s.openapi},
		{http.MethodGet, "/metrics", workflow, s.Metrics.handler},
	}
}

// Routes lists the API for tests and tools.
func Routes() []Route {
	s := &server{Options: Options{Metrics: NewMetrics()}}
	var out []Route
	for _, r := range s.table() {
		out = append(out, Route{r.method, r.path, string(r.role)})
	}
	return out
}

// New returns the API as an http.Handler.
func New(o Options) http.Handler {
	s := &server{Options: o, keys: newKeyring(o.Keys)}
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.HTTPErrorHandler = s.answerError
	e.Use(s.identify, s.observe, s.recover)
	for _, r := range s.table() {
		e.Add(r.method, r.path, r.handler, s.authorize(r.role))
	}
	return e
}

// call is what a handler knows of one request.
type call struct {
	context.Context
	echo echo.Context
	key  Key
}

func (c call) param(name string) string { return c.echo.Param(name) }
func (c call) query(name string) string { return c.echo.QueryParam(name) }

// post adapts a handler that takes a JSON object, decoded strictly.
func post[Req, Resp any](s *server, fn func(call, *Req) (Resp, error)) echo.HandlerFunc {
	return posting(s, fn, decodeStrict)
}

// postOrEmpty is post where the body may be left out.
func postOrEmpty[Req, Resp any](s *server, fn func(call, *Req) (Resp, error)) echo.HandlerFunc {
	return posting(s, fn, func(body []byte, to any) error {
		if len(bytes.TrimSpace(body)) == 0 {
			return nil
		}
		return decodeStrict(body, to)
	})
}

func posting[Req, Resp any](s *server, fn func(call, *Req) (Resp, error), decode func(body []byte, to any) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		req := new(Req)
		body, err := s.body(c)
		if err != nil {
			return err
		}
		if err := decode(body, req); err != nil {
			return err
		}
		resp, err := fn(newCall(c), req)
		if err != nil {
			return err
		}
		return answer(c, http.StatusOK, resp)
	}
}

// get adapts a handler that reads only the address.
func get[Resp any](fn func(call) (Resp, error)) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := checkQuery(c); err != nil {
			return err
		}
		resp, err := fn(newCall(c))
		if err != nil {
			return err
		}
		return answer(c, http.StatusOK, resp)
	}
}

// checkQuery refuses what no stored text can be, and what a database would choke on.
func checkQuery(c echo.Context) error {
	for name, values := range c.QueryParams() {
		for _, v := range values {
			if !utf8.ValidString(v) || strings.ContainsRune(v, 0) {
				return badField(clip(text(name), 64), "must be text without NUL")
			}
		}
	}
	return nil
}

func newCall(c echo.Context) call {
	key, _ := c.Get(keyName).(Key)
	return call{Context: c.Request().Context(), echo: c, key: key}
}

func (s *server) openapi(c echo.Context) error {
	return c.Blob(http.StatusOK, "application/yaml", openAPI)
}

type health struct {
	Status string `json:"status"`
}

func (s *server) healthz(call) (health, error) { return health{"ok"}, nil }

func (s *server) readyz(c call) (health, error) {
	if err := s.Store.Ready(c); err != nil {
		return health{}, err
	}
	return health{"ready"}, nil
}
