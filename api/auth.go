package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
)

// Key is one API key: who it is, what it may do, and its secret.
type Key struct {
	Name   string
	Role   string // "workflow" or "operator"
	Secret string
}

// Names under which a request's facts are kept in its echo.Context.
const (
	keyName   = "holdfast.key"
	requestID = "holdfast.request_id"
)

// keyring compares digests, so that neither the length nor the content of a secret shows in the time taken.
type keyring struct {
	keys    []Key
	digests [][sha256.Size]byte
}

func newKeyring(keys []Key) keyring {
	k := keyring{keys: keys}
	for _, key := range keys {
		k.digests = append(k.digests, sha256.Sum256([]byte(key.Secret)))
	}
	return k
}

func (k keyring) find(secret string) (found Key, ok bool) {
	digest := sha256.Sum256([]byte(secret))
	for i := range k.digests {
		if subtle.ConstantTimeCompare(digest[:], k.digests[i][:]) == 1 {
			found, ok = k.keys[i], true
		}
	}
	return found, ok
}

// authorize lets a role call a route. Without keys every caller is an operator.
func (s *server) authorize(need role) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if need == anyone {
				return next(c)
			}
			key, err := s.caller(c)
			if err != nil {
				return err
			}
			if need == operator && key.Role != string(operator) {
				return newProblem("forbidden", "this needs a key with the role operator")
			}
			c.Set(keyName, key)
			return next(c)
		}
	}
}

func (s *server) caller(c echo.Context) (Key, error) {
	if len(s.keys.keys) == 0 {
		return Key{Name: "local", Role: string(operator)}, nil
	}
	scheme, secret, _ := strings.Cut(c.Request().Header.Get(echo.HeaderAuthorization), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return Key{}, newProblem("unauthorized", "send Authorization: Bearer SECRET (in n8n: a Bearer Auth credential)")
	}
	key, ok := s.keys.find(strings.TrimSpace(secret))
	if !ok {
		return Key{}, newProblem("unauthorized", "no API key has this secret")
	}
	return key, nil
}

// identify gives each request an id: the caller's, if it is harmless to print, else a new one.
func (s *server) identify(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		id := c.Request().Header.Get(echo.HeaderXRequestID)
		if !plainID(id) {
			id = newID()
		}
		c.Set(requestID, id)
		h := c.Response().Header()
		h.Set(echo.HeaderXRequestID, id)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		return next(c)
	}
}

func plainID(id string) bool {
	for _, r := range id {
		if r != '-' && r != '_' && r != '.' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') {
			return false
		}
	}
	return id != "" && len(id) <= 64
}

// observe measures and logs each request: never its body, its query or its headers.
func (s *server) observe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		begin := time.Now()
		if err := next(c); err != nil {
			c.Error(err)
		}
		took, status := time.Since(begin), c.Response().Status
		s.Metrics.request(c.Request().Method, c.Path(), status, took)
		level := slog.LevelDebug
		if status >= 400 {
			level = slog.LevelInfo
		}
		if !s.Log.Enabled(c.Request().Context(), level) {
			return nil
		}
		key, _ := c.Get(keyName).(Key)
		s.Log.LogAttrs(c.Request().Context(), level, "request", slog.Any("request_id", c.Get(requestID)), slog.String("method", c.Request().Method),
			slog.String("route", c.Path()), slog.Int("status", status), slog.Duration("took", took), slog.String("key", key.Name))
		return nil
	}
}
