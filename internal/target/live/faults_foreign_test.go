package live

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"clrsnap/internal/target"
	"clrsnap/internal/testenv/role"

	"golang.org/x/sys/unix"
)

// runForeign captures in another process, and the other process kills or stops itself.
func (x *injection) runForeign() (r result) {
	cmd := disturbed.Command(x.pid, x.tid, x.step, strings.TrimPrefix(x.f.name, "our process "), x.each)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return result{err: err}
	}
	if err := cmd.Start(); err != nil {
		return result{err: err}
	}
	lines := bufio.NewScanner(out)
	var watchdog, tracer int
	if !lines.Scan() {
		return result{err: errors.New("the other process says nothing")}
	}
	if _, err := fmt.Sscanf(lines.Text(), "tasks %d %d", &watchdog, &tracer); err != nil {
		return result{err: fmt.Errorf("the other process says %q", lines.Text())}
	}
	if x.f.name == "our process stopped" {
		r = x.stopped(cmd, lines)
	} else {
		r.reached = !lines.Scan()
		if !r.reached {
			r.err = said(lines.Text())
		}
	}
	err = x.awaitEnd(cmd)
	if r.reached != (err != nil) && x.f.name == "our process killed" {
		return result{err: fmt.Errorf("the other process ended: %w", err)}
	}
	// The first process of the machine or container collects the zombies of orphans, at its own
	// pace.
	left := func() []string {
		return slices.DeleteFunc(leftTasks(watchdog, tracer), func(s string) bool { return strings.Contains(s, ") Z") })
	}
	if !within(waitLimit, func() bool { return len(left()) == 0 }) {
		r.err = fmt.Errorf("left behind: %q", left())
	}
	return r
}

// awaitEnd waits for the other process, which may have stopped itself too late.
func (x *injection) awaitEnd(cmd *exec.Cmd) error {
	over := make(chan error)
	go func() { over <- cmd.Wait() }()
	for end := time.Now().Add(2 * time.Minute); ; {
		select {
		case err := <-over:
			return err
		case <-time.After(5 * time.Millisecond):
			_ = cmd.Process.Signal(unix.SIGCONT)
		}
		if time.Now().After(end) {
			_ = cmd.Process.Kill()
		}
	}
}

// stopped requires that the target goes on while the stopping process is stopped itself.
func (x *injection) stopped(cmd *exec.Cmd, lines *bufio.Scanner) (r result) {
	pid := cmd.Process.Pid
	over := make(chan string, 1)
	go func() { lines.Scan(); over <- lines.Text() }()
	for r.reached = false; !r.reached; {
		select {
		case s := <-over:
			r.err = said(s)
			return r
		default:
		}
		r.reached = taskState(pid, pid) == 'T'
	}
	if err := notHeld(x.pid); err != nil {
		r.err = fmt.Errorf("while we are stopped: %w", err)
	}
	_ = unix.Kill(pid, unix.SIGCONT)
	if err := said(<-over); err != nil && r.err == nil {
		r.err = err
	}
	return r
}

// said accepts a successful capture. It also accepts the failure of a capture whose thread has
// ended, or got no CPU for a second on a machine where twenty threads want a CPU.
func said(line string) error {
	if line == "captured <nil>" || strings.HasPrefix(line, "captured thread") &&
		(strings.Contains(line, target.ErrThreadExited.Error()) || strings.Contains(line, ErrNotStopping.Error())) {
		return nil
	}
	return fmt.Errorf("the other process says %q", line)
}

// disturbed is the other process.
var disturbed = role.New("disturbed", func(a role.Args) error {
	tid, step, how := a.Int(1), uint32(a.Int(2)), a[3]
	p, err := Open(a.Int(0))
	if err != nil {
		return err
	}
	p.Watchdog = 20 * time.Second
	var sh *shared
	_ = p.Trace(func(t *Tracer) error { sh, err = t.ready(); return err })
	within(waitLimit, func() bool { return atomic.LoadInt32(&sh.tracer) != 0 })
	fmt.Println("tasks", sh.watchdog, atomic.LoadInt32(&sh.tracer))
	linger := 10 * time.Second // it is killed there
	if how == "stopped" {
		linger = 5 * time.Millisecond
	}
	sh.linger = int64(linger)
	atomic.StoreUint32(&sh.breaks, 1<<step)
	go func() {
		for atomic.LoadUint32(&sh.arrived) != step {
			runtime.Gosched()
		}
		sig := unix.SIGKILL
		if how == "stopped" {
			sig = unix.SIGSTOP
			atomic.StoreUint32(&sh.breaks, 0)
		}
		_ = unix.Kill(os.Getpid(), sig)
	}()
	var c target.Capture
	way := (&injection{each: a[4] == "true"}).way()
	err = p.Trace(func(t *Tracer) error { return way(t, &target.Request{TID: tid}, &c) })
	fmt.Println("captured", err)
	p.Close()
	return nil
})
