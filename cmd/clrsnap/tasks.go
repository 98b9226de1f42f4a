package main

import (
	"cmp"
	"context"
	"io"
	"time"

	"clrsnap"
	"clrsnap/profile"
	"clrsnap/report"

	"github.com/spf13/cobra"
)

// tasksFlags are the flags of the verb tasks.
type tasksFlags struct {
	coreFlags
	source   sourceFlags
	limit    int
	maxCPU   float64
	lines    string
	full     bool
	plumbing bool
	json     bool
	output   string
	linker   *linker // nil: source lines have no links
}

func newTasks(a *app) *cobra.Command {
	var f tasksFlags
	cmd := &cobra.Command{
		Use:   "tasks {PID | --core FILE}",
		Short: "Show what the async methods of a process wait for",
		Long: `Show the async methods that are suspended in an await, where no thread and so no stack shows
them: who awaits whom, from the inside out, with the lines of the awaits, and what the innermost
method waits for. Equal chains are shown once, with their number. It also shows the
state of the thread pool with the work that waits for a thread, and the timers that are armed.

All of that is read from the managed heap. The program is not stopped, and nothing runs
in it. While it runs, it changes: a chain is shown as it was at one moment, or left out
and counted. Methods whose tasks nobody can reach any more, but that have not been
collected yet, count like any others.

What is waited for:
  timer                 Task.Delay or a PeriodicTimer, with the time until it is due
  socket, pipe, channel an operation of System.Net.Sockets, System.IO.Pipelines, System.Threading.Channels
  semaphore             SemaphoreSlim.WaitAsync
  TaskCompletionSource  somebody's SetResult
  task                  code that runs, or is to run: that of Task.Run
  WhenAll, WhenAny      several tasks; async methods among them have chains of their own
  source, yield         another object; nothing that is known

The states:
  waiting               for that
  ready                 it is complete (or faulted, or canceled): the method goes on when a
                        thread of the pool has time
  running               a thread runs the innermost method: clrsnap stack shows it

With --core the heap is read from a core dump that has it: of the kernel, of gcore, or of
createdump with type 2 (with heap) or 4 (full).
`,
		Example: `  clrsnap tasks 4242                  what do the async methods wait for?
  clrsnap tasks 4242 --limit 5        the five most frequent chains
  clrsnap tasks 4242 --json | jq '.chains[] | select(.waitsFor.kind == "socket") | .count'
  clrsnap tasks 4242 --json | jq .pool
  clrsnap tasks --core core.4242`,
		Args:              func(cmd *cobra.Command, args []string) error { return f.checkArgs(cmd, args) },
		ValidArgsFunction: completePID,
	}
	f.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.check(); err != nil {
			return err
		}
		if err := a.mayBlockWalked(&f.coreFlags); err != nil {
			return err
		}
		return a.tasks(cmd.Context(), args, &f)
	}
	return cmd
}

func (f *tasksFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.IntVarP(&f.limit, "limit", "n", 40, "show this `number` of different chains and timers; 0: all")
	fs.StringVar(&f.lines, "lines", "auto", "`when` to show source lines: auto (where there are PDBs) or never")
	f.source.register(fs)
	fs.BoolVar(&f.plumbing, "plumbing", false, "each method of .NET's plumbing: of ASP.NET Core, for example")
	fs.BoolVar(&f.full, "full", false, "leave nothing out: any width, nothing folded")
	fs.Float64Var(&f.maxCPU, "max-cpu", 1, "use this `number` of CPUs at most, such as 0.2 or 4")
	f.registerCore(fs)
	fs.BoolVar(&f.json, "json", false, "as JSON (docs/json.md), with all chains unless --limit is given")
	fs.StringVarP(&f.output, "output", "o", "", "write to this `file`; - is standard output")
	complete(cmd, "lines", "auto", "never")
}

// checkArgs requires a PID or a core dump, and refuses flags that are for the other.
func (f *tasksFlags) checkArgs(cmd *cobra.Command, args []string) error {
	if f.json && !cmd.Flags().Changed("limit") {
		f.limit = 0
	}
	return f.pidOrCore(cmd, args, runningFlag{"max-cpu", "a core dump is read with one CPU"})
}

// check refuses flags that make no sense.
func (f *tasksFlags) check() error {
	switch {
	case f.limit < 0:
		return usagef("--limit %d: give a number of chains, or 0 for all", f.limit)
	case f.maxCPU < 0.01 || f.maxCPU > 64:
		return usagef("--max-cpu %g: give a number of CPUs from 0.01 to 64", f.maxCPU)
	}
	if err := oneOf("lines", f.lines, "auto", "never"); err != nil {
		return err
	}
	return f.source.check()
}

func (f *tasksFlags) options() clrsnap.Options {
	return clrsnap.Options{
		Lines: f.lines != "never", Symbols: f.source.symbols, SourceRoots: f.source.sourceRoots(),
	}
}

// tasks shows what async methods wait for.
func (a *app) tasks(ctx context.Context, args []string, f *tasksFlags) error {
	collectAbove(200)
	out, err := (&outputFile{path: cmp.Or(f.output, "-")}).open(a.stdout, "", time.Time{})
	if err != nil {
		return err
	}
	defer out.close()
	if out.path == "-" {
		f.linker = a.newLinker(a.stdout)
	}
	p, err := a.openWalked(&f.coreFlags, args, out, f.options(), f.source.folders()...)
	if err != nil {
		return err
	}
	defer p.Close()
	a.collects.Store(true)
	o := clrsnap.TasksOptions{MaxCPU: f.maxCPU}
	progress := walkProgress{to: a.stderr, begin: time.Now()}
	if isTerminal(a.stderr) {
		o.Progress = progress.show
	}
	t, err := p.Tasks(ctx, o)
	progress.end()
	if t == nil {
		return err
	}
	if werr := a.writeTasks(t, out, f); werr != nil || err != nil {
		return cmp.Or(werr, err)
	}
	return interruptedWalk(ctx, t.Partial)
}

// writeTasks writes what was found to standard output or a file.
func (a *app) writeTasks(t *profile.Tasks, out *pendingFile, f *tasksFlags) error {
	o := report.TasksOptions{Rows: f.limit, Full: f.full, Plumbing: f.plumbing, Color: a.color == "always"}
	if out.path == "-" {
		o.Color, o.Width = a.colors(a.stdout), terminalWidth(a.stdout)
	}
	if f.linker != nil {
		o.Link = f.linker.link
	}
	return out.print(func(w io.Writer) error {
		if f.json {
			return report.TasksJSON(w, t, o)
		}
		return report.TasksText(w, t, o)
	})
}
