// Clrsnap shows what the threads of a .NET program are doing right now.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"clrsnap"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// Exit statuses. A process that is ended by a signal's default action has 128
// and the signal's number.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	// This process is over before garbage collection pays: without it the
	// command is an eighth faster. What lasts, or is large, decides for itself.
	if collectsAsUsual() {
		debug.SetGCPercent(-1)
		debug.SetMemoryLimit(memoryLimit)
	}
	w := guardOf()
	status := run(os.Args[1:], os.Stdout, os.Stderr, w)
	w.end(status)
	os.Exit(status)
}

// memoryLimit is how much memory, in bytes, is used before any is collected.
const memoryLimit = 128 << 20

// collectsAsUsual: nobody has said when garbage is to be collected.
func collectsAsUsual() bool { return os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" }

// collectAbove has garbage collected where there is much of it: not before the heap has
// 4 MB times percent/100, and then whenever it has grown by so much, or is near memoryLimit.
func collectAbove(percent int) {
	if collectsAsUsual() {
		debug.SetGCPercent(percent)
	}
}

// usageError is a mistake in how the command was called.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// statusError ends the command with a status and without a message: all has
// been said.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// run is the command without its process.
func run(args []string, stdout, stderr *os.File, w *worker) int {
	// A reader that has gone away is an error of a write, not a signal.
	signal.Ignore(syscall.SIGPIPE)
	a := &app{stdout: stdout, stderr: stderr, worker: w}
	a.graceful.Store(int64(2 * time.Second))
	ctx, caught := a.interruptible()
	root := newRoot(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	// What has begun is not begun once more.
	if w == nil && errors.Is(err, clrsnap.ErrMayBlock) && !a.collects.Load() {
		a.graceful.Store(math.MaxInt64) // it is the worker that ends by itself
		status, err := guard(args, stdout, stderr)
		if err != nil {
			report(stderr, err)
		}
		return status
	}
	status := report(stderr, err)
	// A signal that comes when all is done changes nothing.
	if sig := caught(); sig != 0 && status == exitFailure {
		return 128 + int(sig)
	}
	return status
}

// report says what went wrong, in one sentence, and returns the exit status.
func report(stderr io.Writer, err error) int {
	var status statusError
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &status):
		return int(status)
	case errors.Is(err, syscall.EPIPE): // head and less are done, and so are we
		return exitFailure
	case errors.As(err, &usage):
		say(stderr, "%s", oneLine(err))
		return exitUsage
	}
	say(stderr, "%s", oneLine(err))
	return exitFailure
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// interruptible returns a context that ends with Ctrl-C or SIGTERM, or when something keeps
// the command waiting for too long, and a function that tells which signal it was; 0 for none.
// The second signal, or one that is not heeded, ends the process.
func (a *app) interruptible() (context.Context, func() syscall.Signal) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if a.worker != nil {
		signals = a.worker.signals(signals)
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
				<-signals // it only waits for another program
			}
		}
		switch {
		case a.finished.Load():
		case a.collects.Load():
			say(os.Stderr, "%v, and given up before what had been collected was written", why)
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

// grace is how long the command has to end by itself.
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

// app is what the verbs share.
type app struct {
	stdout, stderr *os.File
	worker         *worker // nil: the process has no guard
	color          string  // --color

	pid      atomic.Int64 // of the process that is looked at; 0: of none
	graceful atomic.Int64 // how long an interrupted command may take to write what it has, in ns
	collects atomic.Bool  // something that would be lost
	patient  atomic.Bool  // the verb itself bounds how long it waits
	finished atomic.Bool  // all has been written
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "clrsnap",
		Short: "What the threads of a .NET program are doing right now",
		Long: `Clrsnap shows the stacks of all threads of a running .NET program on Linux,
managed and native frames together, from outside the process: nothing has to be
prepared in the program, and each thread is stopped only while its registers and
its stack are copied: tens of microseconds, or as long as it waits for a processor
on a busy machine.

Exit status: 0 all right, 1 failure or a partial result (something that was asked
for is missing), 2 wrong usage, 128+n ended by signal n.`,
		Example: `  clrsnap ps                     which .NET processes are there?
  clrsnap stack 4242             what are the threads of process 4242 doing?
  clrsnap view app.html          which functions of a recording are the hottest?
  clrsnap doctor 4242            why can process 4242 not be looked at?`,
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
	root.PersistentFlags().StringVar(&a.color, "color", "auto", "colours: `auto`, always or never; auto heeds NO_COLOR")
	complete(root, "color", "auto", "always", "never")
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return oneOf("color", a.color, "auto", "always", "never") }
	root.AddCommand(newPS(a), newStack(a), newRecord(a), newView(a), newDoctor(a), newVersion(a))
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

// enumerated is a list in words: "a, b or c".
func enumerated(list []string, last string) string {
	n := len(list) - 1
	if n < 1 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:n], ", ") + " " + last + " " + list[n]
}

// noArgs is cobra.NoArgs with our words and status.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unexpected argument %q: see %s --help", args[0], cmd.CommandPath())
	}
	return nil
}
