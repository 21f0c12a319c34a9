//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a program with a process group of its own, so that what it starts
// (n8n forks a task runner) ends with it.
type process struct {
	name    string
	cmd     *exec.Cmd
	logPath string
	exited  chan struct{} // closed when the program has ended
	guard   io.Closer     // while open, the group may live
}

// startProcess starts argv with exactly env, its output going to a file in dir.
func startProcess(name, dir string, env []string, argv ...string) (*process, error) {
	logFile, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = logFile.Close() }() // the child has its own handle
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, env, logFile, logFile
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{name: name, cmd: cmd, logPath: logFile.Name(), exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended is in the log; that it ended is what callers need
		close(p.exited)
	}()
	if p.guard, err = guardGroup(cmd.Process.Pid); err != nil {
		p.stop()
		return nil, fmt.Errorf("guard %s: %w", name, err)
	}
	return p, nil
}

// guardGroup starts a shell that kills the group when this test process is gone.
// A test binary that is killed or times out runs no cleanup, and an n8n left
// behind would keep its ports and 700 MB.
func guardGroup(pgid int) (io.Closer, error) {
	guard := exec.Command("sh", "-c", `cat >/dev/null; kill -9 -"$1" 2>/dev/null`, "guard", strconv.Itoa(pgid))
	guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := guard.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := guard.Start(); err != nil {
		return nil, err
	}
	return closerFunc(func() error {
		err := stdin.Close()
		_ = guard.Wait() // its kill finds nobody when the group ended by itself
		return err
	}), nil
}

type closerFunc func() error

func (f closerFunc) Close() error { return f() }

// stop asks the group to end, and kills it when it does not.
func (p *process) stop() {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		_ = syscall.Kill(-p.cmd.Process.Pid, sig) // an ended group is what we want
		select {
		case <-p.exited:
		case <-time.After(20 * time.Second):
			continue
		}
		break
	}
	if p.guard != nil {
		_ = p.guard.Close()
	}
}

// kill ends the group at once, as a crash does.
func (p *process) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // an ended group is what we want
	<-p.exited
	_ = p.guard.Close()
}

// tail gives the last lines of the program's output.
func (p *process) tail(lines int) string {
	raw, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(raw), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// await polls until check has no error, the program has ended or ctx is over.
func (p *process) await(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-p.exited:
			cancel(fmt.Errorf("%s has ended:\n%s", p.name, p.tail(40)))
		case <-ctx.Done():
		}
	}()
	return pollEvery(ctx, 150*time.Millisecond, check) // asking costs n8n more than waiting costs us
}

// poll repeats check until it has no error; when ctx ends first, its cause and
// the last error are the answer.
func poll(ctx context.Context, check func(context.Context) error) error {
	return pollEvery(ctx, 50*time.Millisecond, check)
}

func pollEvery(ctx context.Context, pause time.Duration, check func(context.Context) error) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil { // the one that ctx has cut off tells nothing
			last = err
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), last)
		case <-tick.C:
		}
	}
}

// freePort gives a loopback port that nobody listens on at this moment.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}
