// Clrsnap shows the work of a .NET program's threads at this moment.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"clrsnap"
	"clrsnap/internal/priority"
	"clrsnap/internal/priority/early"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// Exit statuses. A process ended by a signal's default action has 128 and the signal's number.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	exitFound   = 3 // clrsnap locks has found a deadlock
)

func main() {
	// Most commands end before garbage collection pays: without collection the commands are an eighth faster. Verbs
	// that take long or need much memory switch the collection on.
	if collectsAsUsual() {
		debug.SetGCPercent(-1)
		debug.SetMemoryLimit(memoryLimit)
	}
	if conn := fetcherOf(); conn != nil {
		calm()
		os.Exit(runFetcher(conn))
	}
	w := guardOf()
	status := run(os.Args[1:], os.Stdout, os.Stderr, w)
	w.end(status)
	os.Exit(status)
}

// memoryLimit is how many bytes of memory are used before garbage is collected.
const memoryLimit = 128 << 20

// collectsAsUsual reports whether the user has left the garbage collector's settings alone.
func collectsAsUsual() bool { return os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" }

// collectAbove sets GOGC to percent, unless the user has set GOGC.
func collectAbove(percent int) {
	if collectsAsUsual() {
		debug.SetGCPercent(percent)
	}
}

// collectLater is collectAbove once 24 MB are used. Each collection waits for several threads. Where the CPUs are busy,
// collections take longer than all the rest.
func collectLater(percent int) {
	if !collectsAsUsual() {
		return
	}
	debug.SetGCPercent(600) // of 4 MB (package runtime, heapminimum)
	garbage := new(*byte)
	runtime.AddCleanup(garbage, func(percent int) { debug.SetGCPercent(percent) }, percent)
}

// usageError is a mistake in how the command was called.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// statusError ends the command with a status and without a message, because the user has
// been told already.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// programError ends the command with the status of the recorded program, as in a shell. The user has been told already.
type programError int

func (e programError) Error() string { return fmt.Sprintf("the program ended with status %d", int(e)) }

// run runs the command and returns its exit status.
func run(args []string, stdout, stderr *os.File, w *worker) int {
	// If the reader has closed the pipe, writes return EPIPE; no signal ends the process.
	signal.Ignore(syscall.SIGPIPE)
	a := &app{stdout: stdout, stderr: stderr, worker: w}
	a.graceful.Store(int64(2 * time.Second))
	ctx, caught := a.interruptible()
	root := newRoot(a)
	if hurries, briefly := hurries(root, args); hurries {
		priority.HurryAll(early.Begun(), briefly)
	} else {
		calm()
	}
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	// The command is started again in a worker, unless the command has collected something already.
	if w == nil && errors.Is(err, clrsnap.ErrMayBlock) && !a.collects.Load() {
		a.graceful.Store(math.MaxInt64) // the worker decides when to end
		status, err := guard(args, stdout, stderr)
		if err != nil {
			explain(stderr, err)
		}
		return status
	}
	status := explain(stderr, err)
	// A signal that arrives when everything is done changes nothing.
	if sig := caught(); sig != 0 && status == exitFailure && !errors.As(err, new(programError)) {
		return 128 + int(sig)
	}
	return status
}

// calm ends the high priority of the start.
func calm() {
	if early.Begun() {
		priority.Calm()
		early.Release()
	}
}

// hurries reports whether a command looks at a running process, and soon prints the result or samples the process.
// briefly: a large heap takes longer.
func hurries(root *cobra.Command, args []string) (hurries, briefly bool) {
	verb, _, err := root.Find(args)
	if err != nil || slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--core") }) {
		return false, false
	}
	briefly = slices.Contains([]string{"tasks", "requests"}, verb.Name())
	return briefly || slices.Contains([]string{"stack", "locks", "why", "record"}, verb.Name()), briefly
}

// explain prints the error in one sentence, and returns the exit status.
func explain(stderr io.Writer, err error) int {
	var status statusError
	var program programError
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &program):
		return int(program)
	case errors.Is(err, syscall.EPIPE): // the reader, such as head or less, has ended
		return exitFailure
	case errors.As(err, &usage):
		say(stderr, "%s", oneLine(err))
		return exitUsage
	}
	say(stderr, "%s", oneLine(err))
	return exitFailure
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// interruptible returns a context and a function. The context ends with Ctrl-C or SIGTERM, or
// when a system call blocks for too long. The function returns the signal, or 0. A second
// signal ends the process; so does the first if the command does not end in time.
func (a *app) interruptible() (context.Context, func() syscall.Signal) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	// Notify waits for a new thread. Until then a signal ends the process, and nothing is lost: see collect.
	a.notified = make(chan struct{})
	go func() {
		signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
		close(a.notified)
	}()
	if a.worker != nil {
		signals = a.worker.signals(signals)
	} else {
		signals = withoutCopies(signals, nil)
	}
	late := make(chan struct{})
	go func() {
		if stuck() && !a.patient.Load() {
			close(late)
		}
	}()
	go func() {
		var why error
		status := exitFailure
		select {
		case sig := <-signals:
			why = signalError(sig.(syscall.Signal))
			status = 128 + int(sig.(syscall.Signal))
		case <-late:
			why = &stuckError{int(a.pid.Load())}
		}
		cancel(why)
		select {
		case <-signals:
		case <-time.After(a.grace(why)):
			if a.finished.Load() {
				<-signals // the command only waits for the recorded program
			}
		}
		switch {
		case a.finished.Load():
		case a.collects.Load():
			say(os.Stderr, "%v, and gave up before the collected data was written", why)
		default:
			say(os.Stderr, "%v", why)
		}
		a.worker.end(status)
		os.Exit(status)
	}()
	return ctx, func() syscall.Signal {
		var sig signalError
		if errors.As(context.Cause(ctx), &sig) {
			return syscall.Signal(sig)
		}
		return 0
	}
}

// grace returns how long the command may take to end by itself.
func (a *app) grace(why error) time.Duration {
	var stuck *stuckError
	if errors.As(why, &stuck) && !a.collects.Load() {
		return 0
	}
	return time.Duration(a.graceful.Load())
}

// signalError is a signal as the cause of a context's end.
type signalError syscall.Signal

func (s signalError) Error() string { return "interrupted by " + unix.SignalName(syscall.Signal(s)) }

// app is the common state of the verbs.
type app struct {
	stdout, stderr *os.File
	worker         *worker // nil: the process has no guard
	color          string  // --color

	pid      atomic.Int64           // of the target; 0: there is none
	graceful atomic.Int64           // how long an interrupted command may take to write its results, in ns
	collects atomic.Bool            // the command has collected results that would be lost
	notified chan struct{}          // closed as soon as signals are caught; nil: signals are not caught
	patient  atomic.Bool            // the verb itself bounds how long it waits
	finished atomic.Bool            // everything has been written
	fetching atomic.Pointer[string] // which symbols are being fetched; nil, "": none
}

// collect says that from now on the command has results that would be lost if a signal ended the process.
func (a *app) collect() {
	a.catchSignals()
	a.collects.Store(true)
}

// catchSignals waits until signals are caught.
func (a *app) catchSignals() {
	if a.notified != nil {
		<-a.notified
	}
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "clrsnap",
		Short: "What the threads of a .NET program are doing right now",
		Long: `Clrsnap shows the stacks of all threads of a running .NET program on Linux, managed
and native frames together, and records what the program spends its time on. Clrsnap
works from outside the process: the program needs no preparation. A thread is stopped
only while its registers and its stack are copied: for tens of microseconds, longer if
all CPUs are busy.

Exit status: 0 success; 1 failure or partial result; 2 wrong usage; 3 deadlock found by
clrsnap locks; 128+n ended by signal n. record -- COMMAND returns the command's status
if that is not 0, else its own.`,
		Example: `  clrsnap ps                     which .NET processes are there?
  clrsnap why 4242               why is process 4242 stuck, or slow?
  clrsnap stack 4242             what are its threads doing?
  clrsnap locks 4242             who waits for whom? is there a deadlock?
  clrsnap requests 4242          what is the web service doing for its clients?
  clrsnap heap 4242              what fills the managed heap of process 4242?
  clrsnap tasks 4242             what do the async methods of process 4242 wait for?
  clrsnap record 4242            what does process 4242 spend its time on?
  clrsnap view app.html          which functions of a recording are the hottest?
  clrsnap doctor 4242            why can clrsnap not read process 4242?`,
		Version:           versionText(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return unknownVerb(cmd, args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(a.stderr)
			if err := cmd.Help(); err != nil {
				return err
			}
			return statusError(exitUsage)
		},
	}
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetVersionTemplate("clrsnap {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w: see %s --help", err, cmd.CommandPath())
	})
	root.PersistentFlags().StringVar(&a.color, "color", "auto",
		"colours: `auto`, always or never; auto respects NO_COLOR")
	complete(root, "color", "auto", "always", "never")
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		return oneOf("color", a.color, "auto", "always", "never")
	}
	root.AddCommand(newPS(a), newStack(a), newWhy(a), newLocks(a), newHeap(a), newTasks(a), newRequests(a),
		newRecord(a), newView(a), newDoctor(a), newVersion(a))
	return root
}

func unknownVerb(cmd *cobra.Command, verb string) error {
	cmd.SuggestionsMinimumDistance = 2
	if s := cmd.SuggestionsFor(verb); len(s) > 0 {
		return usagef("unknown command %q: did you mean %s %s?", verb, cmd.CommandPath(), s[0])
	}
	return usagef("unknown command %q: see %s --help", verb, cmd.CommandPath())
}

func oneOf(flag, value string, allowed ...string) error {
	for _, v := range allowed {
		if v == value {
			return nil
		}
	}
	return usagef("--%s is %s, not %q", flag, enumerated(allowed, "or"), value)
}

// enumerated returns a list in words: "a, b or c".
func enumerated(list []string, last string) string {
	n := len(list) - 1
	if n < 1 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:n], ", ") + " " + last + " " + list[n]
}

// noArgs is cobra.NoArgs with clrsnap's message and exit status.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unexpected argument %q: see %s --help", args[0], cmd.CommandPath())
	}
	return nil
}
