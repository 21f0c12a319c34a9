package store_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"holdfast/internal/pgtest"
	"holdfast/internal/store"
)

// wire stands between a Store and its server and reads what the Store says: every statement, whoever wrote it,
// the migration library's included.
type wire struct {
	tb     testing.TB
	server string
	url    string // the way through

	mu         sync.Mutex
	statements map[string]int
	wrong      []string
	lose       func(statement string) bool // the answer to this one is lost; asked under mu
	losses     int
	conns      sync.WaitGroup
}

// tap puts a wire before the server of a URL.
func tap(tb testing.TB, address string) *wire {
	tb.Helper()
	u, err := url.Parse(address)
	if err != nil {
		tb.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	w := &wire{tb: tb, server: u.Host, statements: map[string]int{}}
	u.Host = l.Addr().String()
	w.url = u.String()
	w.conns.Go(func() { w.accept(l) })
	tb.Cleanup(func() {
		_ = l.Close()
		w.conns.Wait()
	})
	return w
}

func (w *wire) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return // closed
		}
		server, err := net.Dial("tcp", w.server)
		if err != nil { // as the Store would have met it
			_ = client.Close()
			continue
		}
		c := &carried{wire: w, client: client, server: server}
		w.conns.Go(c.up)
		w.conns.Go(c.down)
	}
}

// carried is one connection.
type carried struct {
	*wire
	client, server net.Conn
	mu             sync.Mutex
	lost           bool
}

func (c *carried) close() {
	_ = c.client.Close()
	_ = c.server.Close()
}

// up carries what the client says, message by message. The first one, with which a connection starts, has no type.
func (c *carried) up() {
	defer c.close()
	for kind := 0; ; kind = 1 {
		head := make([]byte, kind+4)
		if _, err := io.ReadFull(c.client, head); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[kind:])-4)
		if _, err := io.ReadFull(c.client, body); err != nil {
			return
		}
		if kind == 1 && c.heard(head[0], body) {
			c.mu.Lock()
			c.lost = true
			c.mu.Unlock()
		}
		if _, err := c.server.Write(append(head, body...)); err != nil {
			return
		}
	}
}

// down carries the answers. One that is to be lost has been given: the server sends it after its commit.
func (c *carried) down() {
	defer c.close()
	buf := make([]byte, 64<<10)
	for {
		n, err := c.server.Read(buf)
		c.mu.Lock()
		lost := c.lost
		c.mu.Unlock()
		if err != nil || lost {
			return
		}
		if _, err := c.client.Write(buf[:n]); err != nil {
			return
		}
	}
}

// sessional begins what belongs to a session, which a pooler lends to somebody else after the transaction.
var sessional = regexp.MustCompile(`(?is)^\s*(set\s+(?:[^l]|l[^o])|reset|listen|unlisten|prepare|execute|deallocate|discard|load|declare|create\s+(?:local\s+|global\s+)?temp|lock\s)|pg_(?:try_)?advisory_(?:lock|unlock)|set_config|pg_temp`)

// heard notes a message of the client, and tells whether its answer is to be lost.
func (w *wire) heard(kind byte, body []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	var name, statement []byte
	switch kind {
	case 'Q':
		statement = bytes.TrimSuffix(body, []byte{0})
	case 'P':
		name, statement, _ = bytes.Cut(body, []byte{0})
		statement, _, _ = bytes.Cut(statement, []byte{0})
	default:
		return false
	}
	text := string(statement)
	w.statements[text]++
	if len(name) > 0 {
		w.wrong = append(w.wrong, fmt.Sprintf("the prepared statement %s: %s", name, text))
	}
	if sessional.MatchString(text) {
		w.wrong = append(w.wrong, "session state: "+text)
	}
	return w.lose != nil && w.lose(text)
}

// check fails the test for all that a pooler in transaction mode does not keep, and returns how many different
// statements were seen.
func (w *wire) check() int {
	w.tb.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, what := range w.wrong {
		w.tb.Error(what)
	}
	return len(w.statements)
}

// loseOnce loses the answer to the first statement that begins so.
func (w *wire) loseOnce(start string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lose = func(statement string) bool {
		if !strings.HasPrefix(statement, start) {
			return false
		}
		w.lose = nil
		w.losses++
		return true
	}
}

// lost is how many answers were lost.
func (w *wire) lost() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.losses
}

// The pattern finds what it is for, and nothing else.
func TestSessional(t *testing.T) {
	t.Parallel()
	for _, statement := range []string{
		"SET search_path = x", "set timezone to 'UTC'", "set lc_time = 'C'", " LISTEN jobs", "PREPARE a AS select 1", "create temp table x (a int)",
		"CREATE TEMPORARY TABLE x (a int)", "select pg_advisory_lock(1)", "select pg_try_advisory_lock(1)", "select set_config('a', 'b', false)", "reset all", "discard all",
	} {
		if !sessional.MatchString(statement) {
			t.Errorf("%q passes", statement)
		}
	}
	for _, statement := range []string{
		"SET LOCAL lock_timeout = 1", "select pg_advisory_xact_lock(1)", "select 1", "update claims as c set status = $1", "BEGIN READ WRITE", "create table temp_x (a int)",
	} {
		if sessional.MatchString(statement) {
			t.Errorf("%q does not pass", statement)
		}
	}
}

// Replicas that start together in a pool smaller than their number: none holds a connection that another needs.
func TestPoolerMigrations(t *testing.T) {
	t.Parallel()
	url := pgtest.NewPooler(t, "default_pool_size = 2").URL(pgtest.Database(t))
	var took atomic.Int64
	var work sync.WaitGroup
	for range 4 {
		s := opened(t, url, store.Options{})
		work.Go(func() {
			n, err := s.Migrate(t.Context())
			if took.Add(int64(n)); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	if n := took.Load(); n < 2 || n > 20 {
		t.Errorf("%d steps were taken", n)
	}
}
