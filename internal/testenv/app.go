package testenv

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// killTimeout bounds the wait for the output of a killed program. Another process may hold the output open.
	killTimeout = 30 * time.Second
)

// Options say how to run a program. The zero value is right for most tests.
type Options struct {
	Args    []string
	Env     []string // NAME=value, on top of an environment without any .NET settings
	JitDump bool     // make the runtime write a jitdump of its code, for App.JitDump
	Runtime string   // "net10" (the default), "net9", "net10:dotnet-10.0.8": see DotNet.Host
	NoReady bool     // do not wait for READY: for programs that end at once
	Reuse   bool     // make new code soon get the addresses of unloaded code
	Dir     string   // working directory; empty: the test's
	Compile []string // more arguments for the compiler: see BuildWith
	// ReadyToRun has the program's methods compiled before the start.
	ReadyToRun bool
	Composite  bool // likewise, into an image beside the assembly
	// Prepare changes the command before the start: other namespaces, another user. In a PID namespace of its own the
	// program sees other ids than the test does.
	Prepare func(*exec.Cmd)
}

// An App is a running .NET program. The program is killed at the end of the test.
type App struct {
	PID    int
	Stacks map[string]Stack // by scenario; complete when Start returns
	Loads  map[string]int   // rounds by busy worker; complete when Wait returns
	Counts map[string]int   // events by kind, likewise
	Truths []Truth          // the program "events"'s own counts, likewise

	tb      testing.TB
	name    string
	runtime string // as in Options.Runtime
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	stdout  io.Closer
	stderr  lockedBuffer

	answer  []string // so far
	answers chan []string

	ready  chan struct{} // closed at READY
	ended  chan struct{} // closed when the process has ended
	result string        // valid after ended, like the following
	err    error
}

// Start builds a program of testdata/apps, runs it, and waits until it is ready.
func Start(tb testing.TB, app string, o Options) *App {
	tb.Helper()
	kit := Kit(tb)
	if o.Runtime == "" {
		o.Runtime = DefaultRuntime
	}
	dll := buildFor(tb, kit, app, o.Runtime, o.Compile...)
	if o.ReadyToRun || o.Composite {
		dll = kit.precompile(tb, dll, o.Runtime, o.Composite)
	}
	return start(tb, app, exec.Command(kit.Host(o.Runtime), dll), o)
}

// start runs a command for the program app.
func start(tb testing.TB, app string, cmd *exec.Cmd, o Options) *App {
	tb.Helper()
	a := &App{
		Stacks:  map[string]Stack{},
		Loads:   map[string]int{},
		Counts:  map[string]int{},
		tb:      tb,
		name:    app,
		runtime: o.Runtime,
		cmd:     cmd,
		answers: make(chan []string, 1),
		ready:   make(chan struct{}),
		ended:   make(chan struct{}),
	}
	cmd.Args = append(append(cmd.Args, "--stdin"), o.Args...)
	cmd.Env = environment(o)
	cmd.Dir = o.Dir
	cmd.Stderr = &a.stderr
	cmd.WaitDelay = killTimeout // for its stderr, after its end
	if o.Prepare != nil {
		o.Prepare(cmd)
	}
	if err := startLimited(o, a.start); err != nil {
		tb.Fatalf("starting %s: %v", app, err)
	}
	tb.Cleanup(a.cleanup)
	if !o.NoReady {
		a.waitReady()
	}
	return a
}

func (a *App) start() error {
	stdin, err := a.cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := a.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := a.cmd.Start(); err != nil {
		return err
	}
	a.stdin, a.stdout = stdin, stdout
	a.PID = a.cmd.Process.Pid
	go func() {
		err := a.read(stdout)
		if waitErr := a.cmd.Wait(); waitErr != nil {
			if _, exited := waitErr.(*exec.ExitError); !exited && err == nil {
				err = waitErr
			}
		}
		a.err = err
		close(a.ended)
	}()
	return nil
}

func (a *App) waitReady() {
	a.tb.Helper()
	select {
	case <-a.ready:
	case <-a.ended:
		a.tb.Fatalf("%s ended before it was ready: %v: %v\n%s", a, a.cmd.ProcessState, a.err, a.Stderr())
	case <-time.After(Hang):
		a.tb.Fatalf("%s is not ready after %v\n%s", a, Hang, a.Stderr())
	}
}

// environment is the test's environment without settings that would change the runtime.
func environment(o Options) []string {
	var env []string
	for _, v := range os.Environ() {
		if strings.HasPrefix(v, "DOTNET_") || strings.HasPrefix(v, "COMPlus_") || strings.HasPrefix(v, "CORECLR_") {
			continue
		}
		env = append(env, v)
	}
	env = append(env,
		// ICU may be missing, and costs start-up time.
		"DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1",
		// The C library reserves 64 MB for each of many arenas, and gcore writes all arenas: a gigabyte of zeros.
		"MALLOC_ARENA_MAX=1")
	if o.JitDump {
		env = append(env, jitDumpEnv()...)
	}
	if o.Reuse {
		env = append(env, "DOTNET_InitialExecMemoryPercent=0")
	}
	return append(env, o.Env...)
}

// startLimited starts a program. With Options.Reuse the program's address space is limited, to far more than the memory
// of the machine. Without a limit the runtime reserves 2 GB for code at its start, and never uses an address there
// twice. With a limit the runtime reserves nothing, and takes each piece of memory for code from the kernel. The kernel
// reuses freed addresses at once (ExecutableMemoryAllocator in src/coreclr/pal/src/map/virtual.cpp).
func startLimited(o Options, start func() error) error {
	if !o.Reuse {
		return start()
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &old); err != nil {
		return err
	}
	const most = 64 << 40
	if err := unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: min(most, old.Max), Max: old.Max}); err != nil {
		return err
	}
	return errors.Join(start(), unix.Setrlimit(unix.RLIMIT_AS, &old))
}

// read parses the program's stdout to its end.
func (a *App) read(stdout io.Reader) error {
	var stack *Stack
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 1<<20)
	var bad error
	for lines.Scan() {
		if err := a.line(lines.Text(), &stack); err != nil && bad == nil {
			bad = err // read on, lest the program block
		}
	}
	if bad == nil {
		bad = lines.Err()
	}
	return bad
}

// line parses one line of the protocol; *stack is the block around the line.
func (a *App) line(line string, stack **Stack) error {
	if *stack != nil {
		if line != "END" {
			return (*stack).add(line)
		}
		a.Stacks[(*stack).Scenario] = **stack
		*stack = nil
		return nil
	}
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "PID":
		// The host runs the program in its own process: Start knows the PID already.
		if rest != strconv.Itoa(a.PID) && !a.ownPIDs() {
			return fmt.Errorf("program says PID %s, we started %d", rest, a.PID)
		}
	case "STACK":
		s := &Stack{}
		if _, err := fmt.Sscanf(rest, "%s %d %d", &s.Scenario, &s.TID, &s.ManagedID); err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
		*stack = s
	case "LOAD", "COUNT":
		name, number, _ := strings.Cut(rest, " ")
		n, err := strconv.Atoi(number)
		if err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
		if word == "LOAD" {
			a.Loads[name] += n
		} else {
			a.Counts[name] = n
		}
	case "TRUTH":
		t, err := parseTruth(rest)
		if err != nil {
			return err
		}
		a.Truths = append(a.Truths, t)
	case "ANSWER":
		a.answer = append(a.answer, rest)
	case "ANSWERED":
		a.answers <- a.answer // for the waiting Ask
		a.answer = nil
	case "READY":
		close(a.ready)
	case "RESULT":
		a.result = rest
	}
	return nil
}

// Wait waits until the program ends by itself. Wait returns the rest of the last line after RESULT, and the exit code:
// 128 and the signal's number if a signal killed the program.
func (a *App) Wait() (result string, code int) {
	a.tb.Helper()
	select {
	case <-a.ended:
	case <-time.After(Hang):
		a.tb.Fatalf("%s does not end\n%s", a, a.Stderr())
	}
	if a.err != nil {
		a.tb.Fatalf("%s: %v\n%s", a, a.err, a.Stderr())
	}
	if s, ok := a.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		const shells = 128 // as in shells
		return a.result, shells + int(s.Signal())
	}
	return a.result, a.cmd.ProcessState.ExitCode()
}

// Stop asks the program to end, and waits.
func (a *App) Stop() (result string, code int) {
	a.tb.Helper()
	a.stdin.Close()
	return a.Wait()
}

// Ended is closed when the process has ended.
func (a *App) Ended() <-chan struct{} { return a.ended }

// Stderr is the program's output to stderr so far.
func (a *App) Stderr() string { return a.stderr.String() }

func (a *App) String() string {
	return fmt.Sprintf("%s (PID %d)", a.name, a.PID)
}

// ownPIDs reports whether the program was started in a PID namespace of its own.
func (a *App) ownPIDs() bool {
	attr := a.cmd.SysProcAttr
	return attr != nil && attr.Cloneflags&syscall.CLONE_NEWPID != 0
}

// cleanup kills the program and removes the files of a killed runtime.
func (a *App) cleanup() {
	a.stdin.Close()
	a.kill()
	if a.tb.Failed() && a.Stderr() != "" {
		a.tb.Logf("stderr of %s:\n%s", a, a.Stderr())
	}
	for _, pattern := range []string{
		"perf-%d.map", "perfinfo-%d.map", "jit-%d.dump", "dotnet-diagnostic-%d-*-socket", "clr-debug-pipe-%d-*",
	} {
		files, _ := filepath.Glob(filepath.Join(os.TempDir(), fmt.Sprintf(pattern, a.PID)))
		for _, file := range files {
			os.Remove(file)
		}
	}
}

// kill kills the program and its children. A child has the program's output: if createdump hangs, the program's output
// does not end with the program.
func (a *App) kill() {
	select {
	case <-a.ended:
		return // another process may have its PID
	default:
	}
	for _, pid := range a.children() {
		unix.Kill(pid, unix.SIGKILL) // fails if the child has ended
	}
	a.cmd.Process.Kill() // likewise
	select {
	case <-a.ended:
	case <-time.After(killTimeout):
		a.tb.Errorf("%s was killed %v ago: it, or another process that has its output, does not end", a, killTimeout)
		a.stdout.Close()
	}
}

// lockedBuffer can be read while a process writes to it.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
