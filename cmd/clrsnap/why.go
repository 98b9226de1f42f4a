package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"clrsnap"
	"clrsnap/internal/display"
	"clrsnap/profile"
	"clrsnap/report"
	"clrsnap/why"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// whyFlags are the flags of the verb why.
type whyFlags struct {
	stackFlags               // the flags that why has: see register
	duration   time.Duration // --for
	noAgent    bool
	full       bool
}

func newWhy(a *app) *cobra.Command {
	var f whyFlags
	cmd := &cobra.Command{
		Use:   "why {PID | --core FILE}",
		Short: "Say why a process is stuck, or slow",
		Long: `Look at a process for some seconds, and say why the process is stuck or slow: first a
verdict in plain words, then the evidence, and the command that shows more.

Causes, the gravest first:
  stopped                 a signal, or the freezer of its cgroup, holds the process
  debugger                another process traces the process
  deadlock                threads wait for one another, or for a lock that is never left
  suspension              the runtime waits for a thread that does not let itself be stopped
  finalizer               a finalizer does not return
  shutdown                the process is to end, and does not
  throttled               the cgroup's quota of CPU time is used up
  memory-pressure         the cgroup's memory, or the managed heap, is at its limit
  descriptors             the limit of open files is reached
  blocked-io              a read or write of a thread moves no byte
  remote-call             a remote address does not answer
  lock-contention         many threads wait for a lock that others keep too long
  thread-pool-starvation  all workers are blocked while work is queued
  stalled                 requests, async methods or threads neither end nor go on
  cpu                     a thread uses a whole CPU in one method: a loop, or a regular
                          expression that backtracks
  gc-pressure             garbage collections take the program's time
  exceptions              exceptions are thrown all the time
  heap-growth             objects pile up
  native-growth           memory outside the managed heap grows

A verdict is certain, likely or possible: certain if the evidence admits no other
explanation. The consequences of a cause are listed below the cause. If nothing is wrong,
why says so, and lists what was looked at and what could not be looked at.

The evidence: several snapshots of all threads with waits and held locks, as by stack; a
few seconds of samples and of the runtime's events, as by record; and the kernel's counts
for the process and its control groups. The events need a small agent in the process, which
leaves at the end; --no-agent does without events. why also looks at a process that does not
answer.

A core dump shows one moment, so causes that need time are not found.

The exit status is 0 whether or not something wrong is found.`,
		Example: `  clrsnap why 4242
  clrsnap why 4242 --for 30s           for trouble that comes and goes
  clrsnap why 4242 --no-agent          without loading anything into the process
  clrsnap why 4242 --json | jq -r '.verdicts[].cause'
  clrsnap why --core core.4242`,
		Args:              func(cmd *cobra.Command, args []string) error { return f.checkArgs(cmd, args) },
		ValidArgsFunction: completePID,
	}
	f.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if f.dump != "" {
			if err := a.mayBlock(os.Getpid()); err != nil {
				return err
			}
			return a.whyCore(cmd.Context(), &f)
		}
		pid, err := parsePID(args[0])
		if err != nil {
			return err
		}
		return a.why(cmd.Context(), pid, &f)
	}
	return cmd
}

func (f *whyFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.DurationVar(&f.duration, "for", why.DefaultFor, "how long to look: a `time` from 1s to 10m")
	fs.BoolVar(&f.noAgent, "no-agent", false, "load nothing into the process, and do without events")
	fs.BoolVar(&f.full, "full", false, "whole stacks, with native and framework frames")
	f.source.register(fs)
	maxPauseFlag(fs, &f.maxPause)
	f.registerCore(fs)
	fs.BoolVar(&f.json, "json", false, "as JSON (docs/json.md)")
	fs.StringVarP(&f.output, "output", "o", "", "write to a `file`; - is standard output")
}

// checkArgs requires a PID or a core dump, and refuses flags for the other.
func (f *whyFlags) checkArgs(cmd *cobra.Command, args []string) error {
	if f.duration < why.MinFor || f.duration > why.MaxFor {
		return usagef("--for %v: give a time between %v and %v", f.duration, why.MinFor, why.MaxFor)
	}
	const because = "a core dump is one moment"
	err := f.pidOrCore(cmd, args, runningFlag{"for", because}, runningFlag{"no-agent", because})
	if err != nil {
		return err
	}
	if f.json && f.full {
		return usagef("--full is for text: --json has whole stacks in any case")
	}
	if err := f.source.check(); err != nil {
		return err
	}
	return checkMaxPause(f.maxPause)
}

// options are how the process is read.
func (f *whyFlags) options() clrsnap.Options {
	o := clrsnap.Options{MaxPause: f.maxPause}
	f.lines, f.inlined, f.generics = "auto", "never", "exact"
	f.symbolOptions(&o)
	return o
}

// whyMemory is why's memoryLimit. why keeps four looks, of 30 MB each with 2,000 threads: below 128 MB the collector
// would never rest.
const whyMemory = 400 << 20

func (a *app) why(ctx context.Context, pid int, f *whyFlags) error {
	out, err := f.file().open(a.stdout, "", time.Time{})
	if err != nil {
		return err
	}
	defer out.close()
	collectLater(200)
	if collectsAsUsual() {
		debug.SetMemoryLimit(whyMemory)
	}
	a.pid.Store(int64(pid))
	o := f.options()
	o.NonBlocking = a.worker == nil
	pr := &whyProgress{a: a, pid: pid, terminal: isTerminal(a.stderr)}
	a.collects.Store(false)
	d, err := why.Look(ctx, pid, why.Options{Process: o, For: f.duration, NoAgent: f.noAgent, Progress: pr.show})
	pr.end()
	if d == nil {
		a.collects.Store(false)
		return hint(err, a.runningProcess(pid))
	}
	if werr := a.writeWhy(d, out, f); werr != nil {
		return werr
	}
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%w: the verdicts of the %.1f s until then are above", cause, d.Took.Seconds())
	}
	return err
}

func (a *app) whyCore(ctx context.Context, f *whyFlags) error {
	out, err := f.file().open(a.stdout, "", time.Time{})
	if err != nil {
		return err
	}
	defer out.close()
	collectLater(200)
	if err := out.confine(f.coreReads(f.source.folders()...), unix.CAP_DAC_READ_SEARCH); err != nil {
		return err
	}
	f.core.Options = f.options()
	d, err := why.LookCore(ctx, f.dump, f.core)
	if err != nil {
		return hint(err, coreDump(f.dump))
	}
	return a.writeWhy(d, out, f)
}

// writeWhy writes a diagnosis to standard output or a file.
func (a *app) writeWhy(d *profile.Findings, out *pendingFile, f *whyFlags) error {
	o := report.WhyOptions{Terminal: a.writtenTo(out), Full: f.full}
	if out.path == "-" {
		if l := a.newLinker(a.stdout); l != nil {
			o.Link = l.link
		}
	}
	return out.print(func(w io.Writer) error {
		if f.json {
			return report.WhyJSON(w, d)
		}
		return report.Why(w, d, o)
	})
}

// whyProgress shows the current step on a terminal.
type whyProgress struct {
	a        *app
	pid      int
	terminal bool
	shown    bool
}

func (p *whyProgress) show(doing string, done float64) {
	p.a.collect()
	if !p.terminal {
		return
	}
	line := fmt.Sprintf("looking at process %d: %.0f %% · %s · Ctrl-C ends the look earlier", p.pid, 100*done, doing)
	fmt.Fprintf(p.a.stderr, "\r\x1b[K%s", display.Clip(line, max(terminalWidth(p.a.stderr)-1, 20)))
	p.shown = true
}

func (p *whyProgress) end() {
	if p.shown {
		fmt.Fprint(p.a.stderr, "\r\x1b[K")
	}
}
