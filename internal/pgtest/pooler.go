package pgtest

import (
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Pooled returns the URL of a fresh, empty database by way of the pooler, and its direct one for what a test checks
// behind the program's back.
func Pooled(tb testing.TB) (pooled, direct string) {
	tb.Helper()
	at, err := parse(poolerVariable)
	if err != nil {
		tb.Fatal(err)
	}
	direct = Database(tb)
	return through(tb, direct, at.Host), direct
}

// through is the URL of the same database at another host.
func through(tb testing.TB, direct, host string) string {
	tb.Helper()
	u, err := url.Parse(direct)
	if err != nil {
		tb.Fatal("pgtest: not a URL") // the error would quote it, with its password
	}
	u.Host = host
	return u.String()
}

// Pooler is a PgBouncer in transaction mode of a test's own, which the test may kill and start again; the one of
// [Pooled] is everybody's.
type Pooler struct {
	tb      testing.TB
	host    string
	dir     string
	account *syscall.Credential
	cmd     *exec.Cmd
}

// NewPooler starts a pooler before the server. Settings are lines of its configuration, such as "default_pool_size = 2".
func NewPooler(tb testing.TB, settings ...string) *Pooler {
	tb.Helper()
	at, err := parse(variable)
	if err != nil {
		tb.Fatal(err)
	}
	p := &Pooler{tb: tb}
	if err := p.prepare(at, settings); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() {
		p.Kill()
		if err := os.RemoveAll(p.dir); err != nil {
			tb.Errorf("pgtest: %v", err)
		}
	})
	p.Start()
	return p
}

func (p *Pooler) prepare(at *url.URL, settings []string) (err error) {
	// The test's own folder is closed to the account that runs it where the tests run as root, which it refuses.
	if p.dir, err = os.MkdirTemp("", "holdfast-pooler"); err != nil {
		return err
	}
	if err := p.lend(); err != nil {
		return err
	}
	// Free a moment ago. The test keeps it over all restarts, as a service keeps its address.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	p.host = l.Addr().String()
	if err := l.Close(); err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(p.host)
	password, _ := at.User.Password()
	ini := append([]string{
		"[databases]", "* = host=" + at.Hostname() + " port=" + at.Port(),
		"[pgbouncer]", "listen_addr = 127.0.0.1", "listen_port = " + port, "unix_socket_dir =",
		"auth_type = scram-sha-256", "auth_file = " + filepath.Join(p.dir, "userlist"), "pool_mode = transaction", "max_client_conn = 500",
	}, settings...)
	return errors.Join(
		p.write("userlist", fmt.Sprintf("%q %q\n", at.User.Username(), password)),
		p.write("pgbouncer.ini", strings.Join(ini, "\n")+"\n"),
	)
}

// lend finds an account for the pooler where the tests run as root.
func (p *Pooler) lend() error {
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return err
		}
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return err
	}
	p.account = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return os.Chown(p.dir, int(uid), int(gid))
}

func (p *Pooler) write(name, text string) error {
	path := filepath.Join(p.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil || p.account == nil {
		return err
	}
	return os.Chown(path, int(p.account.Uid), int(p.account.Gid))
}

// URL is a database's direct URL, by way of this pooler.
func (p *Pooler) URL(direct string) string {
	p.tb.Helper()
	return through(p.tb, direct, p.host)
}

// Start starts the pooler and waits until it answers.
func (p *Pooler) Start() {
	p.tb.Helper()
	p.cmd = exec.Command("pgbouncer", "-q", filepath.Join(p.dir, "pgbouncer.ini"))
	p.cmd.Dir = p.dir
	// It must not outlive a test binary that is killed.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.account, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		p.cmd = nil
		p.tb.Fatalf("pgtest: PgBouncer cannot be started (`make test` brings it): %v", err)
	}
	db, err := sql.Open("postgres", p.URL(os.Getenv(variable)))
	if err != nil {
		p.tb.Fatalf("pgtest: %v", err)
	}
	defer func() { _ = db.Close() }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		if err = db.PingContext(p.tb.Context()); err == nil {
			return
		}
		if time.Now().After(deadline) {
			p.tb.Fatalf("pgtest: PgBouncer does not answer: %v", err)
		}
	}
}

// Kill ends the pooler at once, as a crash does: connections break, whatever is on its way in them.
func (p *Pooler) Kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill() // fails where it has ended already
	_ = p.cmd.Wait()         // says that it was killed
	p.cmd = nil
}
