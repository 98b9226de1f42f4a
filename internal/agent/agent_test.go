package agent_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"clrsnap/internal/agent"
	"clrsnap/internal/diagnostics"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/internal/testenv/role"
)

func TestMain(m *testing.M) {
	role.Play()
	status := m.Run()
	os.RemoveAll(built.dir)
	os.Exit(status)
}

// The readers that get killed have three arguments: a process, the library and a folder.
var (
	willSuspend   = role.New("suspender", func(a role.Args) error { return suspendForGood(a.Int(0), a[1], a[2]) })
	willSubscribe = role.New("subscriber", func(a role.Args) error { return subscribeForGood(a.Int(0), a[1], a[2]) })
)

// suspendForGood attaches, suspends the runtime and waits to be killed.
func suspendForGood(pid int, lib, dir string) error {
	l, err := agent.Listen(dir)
	if err != nil {
		return err
	}
	c, err := l.Attach(pid, lib)
	if err != nil {
		return err
	}
	if _, err := c.Begin(agent.Subscription{}); err != nil {
		return err
	}
	if _, err := walk(c, time.Minute); err != nil {
		return err
	}
	fmt.Println("ready")
	time.Sleep(time.Hour)
	return nil
}

// walk walks, once the runtime has started and no garbage collection is in the way.
func walk(c *agent.Conn, hold time.Duration) (*agent.Walk, error) {
	const (
		inProgress    = 0x80131388 // CORPROF_E_SUSPENSION_IN_PROGRESS
		uninitialized = 0x80131371 // CORPROF_E_RUNTIME_UNINITIALIZED
	)
	for range 10000 {
		w, err := c.Walk(hold)
		if err != nil || w.Result == 0 {
			return w, err
		}
		if w.Result != inProgress && w.Result != uninitialized {
			return nil, fmt.Errorf("HRESULT 0x%08x", w.Result)
		}
		time.Sleep(time.Millisecond)
	}
	return nil, errors.New("the runtime is always suspended by somebody else")
}

// built is the agent, built once from its present sources.
var built struct {
	once sync.Once
	dir  string
	err  error
}

func library(tb testing.TB) string {
	tb.Helper()
	cc := testenv.CC(tb)
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "agent"); built.err == nil {
			built.err = agent.Build(cc, "../../agent", built.dir+"/agent.so")
		}
	})
	if built.err != nil {
		tb.Fatal(built.err)
	}
	return built.dir + "/agent.so"
}

func listen(tb testing.TB) *agent.Listener {
	tb.Helper()
	l, err := agent.Listen(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	return l
}

// start starts a busy program.
func start(tb testing.TB, env ...string) *testenv.App {
	tb.Helper()
	args := []string{"--only", "block,deep-recursion", "--busy", "3600", "--workers",
		"throw-catch,gc-collect,qsort-storm"}
	return testenv.Start(tb, "scenarios", testenv.Options{Args: args, Env: env})
}

func attach(tb testing.TB, l *agent.Listener, a *testenv.App, lib string) *agent.Conn {
	tb.Helper()
	c, _, err := attachAndBegin(l, a, lib, agent.Subscription{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	return c
}

func attachAndBegin(l *agent.Listener, a *testenv.App, lib string, s agent.Subscription) (
	*agent.Conn, agent.BeginResult, error,
) {
	c, err := l.Attach(a.PID, lib)
	if err != nil {
		return nil, agent.BeginResult{}, err
	}
	begun, err := c.Begin(s)
	if err != nil {
		c.Close()
		return nil, agent.BeginResult{}, err
	}
	return c, begun, nil
}

// check walks once more, and requires a sound answer.
func check(tb testing.TB, c *agent.Conn) {
	tb.Helper()
	w, err := walk(c, time.Minute)
	if err != nil {
		tb.Fatal(err)
	}
	most := 0
	for _, t := range w.Threads {
		most = max(most, len(t.Frames))
	}
	if most < 1000 || w.Truncated {
		tb.Errorf("%d threads, the deepest with %d frames, full %v", len(w.Threads), most, w.Truncated)
	}
	if err := c.Resume(); err != nil {
		tb.Error(err)
	}
}

func endsWell(tb testing.TB, a *testenv.App) {
	tb.Helper()
	if result, code := a.Stop(); result != "OK" || code != 0 {
		tb.Errorf("the target ended with result %q and exit code %d\n%s", result, code, a.Stderr())
	}
}

// TestAttachAgain: the agent can be attached and detached any number of times, but there is only
// one agent at a time.
func TestAttachAgain(t *testing.T) {
	layer.Live(t)
	lib, l := library(t), listen(t)
	a := start(t)
	for range 5 {
		c := attach(t, l, a, lib)
		check(t, c)
		var refused *diagnostics.ServerError
		if _, err := l.Attach(a.PID, lib); !errors.As(err, &refused) || refused.HRESULT != 0x8013136a {
			t.Fatalf("a second agent: %v", err)
		}
		check(t, c)
		if err := c.Detach(); err != nil {
			t.Fatal(err)
		}
	}
	endsWell(t, a)
}

// TestStartUp: an agent that was loaded with the program can walk from the first moment on, can
// leave, and be attached later.
func TestStartUp(t *testing.T) {
	layer.Live(t)
	lib, l := library(t), listen(t)
	early := make(chan error)
	var c *agent.Conn
	go func() {
		var err error
		if c, err = l.Accept(time.Minute); err == nil {
			err = beginAndWalkEarly(c)
		}
		early <- err
	}()
	a := start(t, l.Environment(lib)...)
	if err := <-early; err != nil {
		t.Fatal(err)
	}
	check(t, c)
	if err := c.Detach(); err != nil {
		t.Fatal(err)
	}
	check(t, attach(t, l, a, lib))
	endsWell(t, a)
}

func beginAndWalkEarly(c *agent.Conn) error {
	if _, err := c.Begin(agent.Subscription{}); err != nil {
		return err
	}
	return walkEarly(c)
}

// walkEarly walks a runtime that is just starting, some hundred times.
func walkEarly(c *agent.Conn) error {
	for range 300 {
		if _, err := walk(c, time.Minute); err != nil {
			return err
		}
		if err := c.Resume(); err != nil {
			return err
		}
	}
	return nil
}

// TestNoReader: without a reader the program runs as if there were no agent, and an agent can be
// attached.
func TestNoReader(t *testing.T) {
	layer.Live(t)
	lib, l := library(t), listen(t)
	env := l.Environment(lib)
	l.Close()
	a := start(t, env...)
	check(t, attach(t, listen(t), a, lib))
	endsWell(t, a)
	if s := a.Stderr(); s != "" {
		t.Errorf("the program's stderr: %s", s)
	}
}

// TestReaderKilled: a reader that dies while the runtime is suspended on its behalf does not keep
// the runtime suspended.
func TestReaderKilled(t *testing.T) {
	layer.Live(t)
	lib, l := library(t), listen(t)
	a := start(t)
	for range 3 {
		killReader(t, a, lib)
		runs(t, a)
		began := time.Now()
		c := attachSoon(t, l, a, lib)
		check(t, c)
		t.Logf("attached again after %v", time.Since(began))
		if err := c.Detach(); err != nil {
			t.Fatal(err)
		}
	}
	endsWell(t, a)
}

func killReader(t *testing.T, a *testenv.App, lib string) {
	t.Helper()
	cmd := startReader(t, a, lib, willSuspend)
	cmd.Process.Kill()
	cmd.Wait()
}

// runs requires that the program's busy workers get on, well before a suspension would have run
// out of time.
func runs(t *testing.T, a *testenv.App) {
	t.Helper()
	const tick = 10 * time.Millisecond // USER_HZ is 100 everywhere
	began, before := time.Now(), cpuTime(t, a.PID)
	for cpuTime(t, a.PID)-before < int64(300*time.Millisecond/tick) {
		if time.Since(began) > 8*time.Second { // the agent's HOLD_LIMIT_MS is 10 s
			t.Fatal("the program stands still: nobody has resumed it")
		}
		time.Sleep(tick)
	}
}

// cpuTime is the CPU time of a process, in ticks.
func cpuTime(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	const userTime, systemTime = 14 - 3, 15 - 3 // proc(5) counts from 1; two fields are cut off
	user, err1 := strconv.ParseInt(fields[userTime], 10, 64)
	system, err2 := strconv.ParseInt(fields[systemTime], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return user + system
}

// attachSoon attaches as soon as the previous agent has left. The runtime checks after 0.3 s
// whether it may let go of an agent, and then every 5 s (profdetach.cpp).
func attachSoon(t *testing.T, l *agent.Listener, a *testenv.App, lib string) *agent.Conn {
	t.Helper()
	for end := time.Now().Add(testenv.Hang); ; time.Sleep(10 * time.Millisecond) {
		c, _, err := attachAndBegin(l, a, lib, agent.Subscription{})
		if err == nil {
			t.Cleanup(func() { c.Close() })
			return c
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// TestHoldExpires: a slow reader does not keep the runtime suspended either, and gets an error.
func TestHoldExpires(t *testing.T) {
	layer.Live(t)
	lib, l := library(t), listen(t)
	a := start(t)
	c := attach(t, l, a, lib)
	for range 3 {
		if _, err := walk(c, 20*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		runs(t, a) // the agent has resumed the runtime
		if err := c.Resume(); !errors.Is(err, agent.ErrExpired) {
			t.Errorf("Resume: %v", err)
		}
		check(t, c)
	}
	if err := c.Resume(); err == nil || errors.Is(err, agent.ErrExpired) {
		t.Errorf("Resume without a suspension: %v", err)
	}
	endsWell(t, a)
}

// TestEndWhileSuspended: a program that wants to end while a reader keeps the program suspended
// ends well, when the time of the suspension has run out.
func TestEndWhileSuspended(t *testing.T) {
	layer.Live(t)
	lib, l := library(t), listen(t)
	a := start(t)
	c := attach(t, l, a, lib)
	if _, err := walk(c, time.Second); err != nil {
		t.Fatal(err)
	}
	endsWell(t, a)
	if _, err := c.Walk(time.Second); err == nil {
		t.Error("an agent answers, whose process has ended")
	}
}

// TestSignals: the agent changes no handler, and its thread takes no signal for the program.
func TestSignals(t *testing.T) {
	layer.Live(t)
	lib, l := library(t), listen(t)
	a := start(t)
	before := status(t, fmt.Sprintf("/proc/%d/status", a.PID), "SigCgt", "SigIgn")
	c := attach(t, l, a, lib)
	check(t, c)
	if after := status(t, fmt.Sprintf("/proc/%d/status", a.PID), "SigCgt", "SigIgn"); after != before {
		t.Errorf("signals caught and ignored: %s before, %s with the agent", before, after)
	}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", a.PID))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, comm := range tasks {
		if name, _ := os.ReadFile(comm); strings.TrimSpace(string(name)) != "clrsnap-agent" {
			continue
		}
		found++
		line := status(t, filepath.Join(filepath.Dir(comm), "status"), "SigBlk")
		blocked, err := strconv.ParseUint(strings.TrimPrefix(line, "SigBlk "), 16, 64)
		// All but SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS, the signals that
		// cannot be blocked, and the two signals that libc keeps for itself. The runtime unblocks
		// its signal for interrupting threads (34) in every thread that calls the runtime.
		const open, activation = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<10 | 1<<30 | 1<<8 | 1<<18 | 1<<31 | 1<<32,
			1 << 33
		if err != nil || blocked|activation != ^uint64(open) {
			t.Errorf("the agent's thread blocks %#x, expected %#x (%v)", blocked, ^uint64(open), err)
		}
	}
	if found != 1 {
		t.Errorf("%d threads of the agent", found)
	}
	endsWell(t, a)
}

// status returns lines of a status file of /proc.
func status(t *testing.T, file string, names ...string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, line := range strings.Split(string(text), "\n") {
		for _, name := range names {
			if v, ok := strings.CutPrefix(line, name+":"); ok {
				out = append(out, name+" "+strings.TrimSpace(v))
			}
		}
	}
	return strings.Join(out, " ")
}
