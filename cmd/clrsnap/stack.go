package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"clrsnap"
	"clrsnap/profile"
	"clrsnap/report"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// stackFlags are the flags of the verb stack.
type stackFlags struct {
	coreFlags
	threads  []string
	stopAll  bool
	maxPause time.Duration
	json     bool
	output   string
	group    string
	lines    string
	inlined  string
	async    string
	permits  clrsnap.PermitsMode
	generics string
	source   sourceFlags
	linker   *linker // nil: source lines have no links
	text     report.TextOptions
	packs    bool // stacks are packed: the outputs are only JSON and text
}

func newStack(a *app) *cobra.Command {
	f := stackFlags{packs: true}
	cmd := &cobra.Command{
		Use:   "stack {PID | --core FILE}",
		Short: "Show the stacks of a process's threads",
		Long: `Show what every thread of a process is doing: its stack, leaf first, with managed and
native frames, and whether it is running or what it waits for.

Threads of the runtime that wait for work are called idle: pool workers, the timer, the
finalizer and others. They come after those that are doing something.

Each thread that runs is stopped while its stack is copied. That takes tens of microseconds,
or longer if all CPUs are busy, but never longer than --max-pause. A thread that is provably
blocked is not stopped at all. Where more threads run than there are CPUs, and with CAP_BPF
and CAP_PERFMON, the kernel tells the registers of threads, and a thread is stopped only if
it never is without a CPU.

With --stop-all all stacks belong to the same instant. Every thread that was running
then was stopped, all at the same time. For every other thread it is proved that it
was blocked from before its stack was copied until after that instant. The stopped
threads stand still for longer than without --stop-all, until the last of them has
got a CPU to stop on: milliseconds on a busy machine, and at most 100 ms more than
--max-pause. If an instant does not give all stacks, a few further ones are tried.

The exit status is 1 if the stack of a thread is missing; the thread says why.
Threads that ended meanwhile do not count. Incomplete stacks say why they are
incomplete, and only cause a warning.

What is shown:
  By default managed frames have namespaces and parameters as far as the width of the
  terminal allows. Consecutive native frames without symbols share a line. So do frames
  that only lead from a thread to the program's code, such as those of the thread pool,
  of awaits and of ASP.NET Core: [pool → Kestrel → ASP.NET: 14 frames]. Recursion is
  folded. A stack that four or more threads have is shown once. --json always has
  every frame.

  --managed         no native frames; threads without managed frames are only listed
  --native          every native frame on a line of its own; also opens processes
                    without a .NET runtime
  --group           equal stacks once, even of two threads, the largest group first
  --group=never     each thread by itself
  --plumbing        every frame of .NET's plumbing
  --short, --full   shorter names; nothing folded or left out, with the address of
                    the runtime's Thread object and the GC mode of each thread

  Stacks are equal if they have the same methods, wherever in a method a thread is.

Source lines:
  A managed frame has its source line if the assembly's portable PDB is there: inside
  the assembly, beside it, or in a folder that --symbols names. A PDB of another build
  is not used. A frame that called another is at the line of the call. Shop/Queue.cs:~42
  is not certain: optimised code can belong to several lines, or to none. Threads that
  share a stack but not the line of a frame have none there; --lines=always shows them
  apart. --source-root says where the files are on this machine. Native frames have lines
  where there is DWARF: in the library, or in its debug file in the usual places. Nothing
  is fetched from anywhere, unless --symbol-server or CLRSNAP_SYMBOL_SERVER names servers:
  see docs/usage.md.

Inlined methods:
  A method that the compiler has inlined into its caller has no frame. It is shown
  between the two frames, as (inlined), where it is proved that it was called there.
  Others are left out: docs/usage.md says which. --inlined=never shows frames only.

Async methods:
  An async method that has waited goes on in a thread of the pool; who awaits it is not
  on that stack. Those methods are shown below it, as "awaited by", with the lines of
  their awaits: read from the heap, and only if nothing changed meanwhile.
  --async=never shows frames only. clrsnap tasks shows the methods that no thread runs.

Core dumps:
  With --core the stacks are read from an ELF core dump: of createdump
  (DOTNET_DbgEnableMiniDump=1, dotnet-dump), of the kernel, or of gcore. The thread
  that crashed comes first, with the signal and the exception. What the dump does not
  contain is read from the program's files, if they are the same files (by build id).
  What is still missing is listed at the end. Files are looked for where the process
  had them, or below --sysroot, a folder that has the files of its container, for
  example.
`,
		Example: `  clrsnap stack 4242                        every thread
  clrsnap stack 4242 --managed --group      the overview of a busy service
  clrsnap stack 4242 --thread 4250          one thread, by its id
  clrsnap stack 4242 --thread '^orders-'    threads by name, a regular expression
  clrsnap stack 4242 --json | jq '.threads[] | select(.state == "running").name'
  clrsnap stack $(pgrep -n dotnet) -o stacks.txt
  clrsnap stack --core core.4242            what the program was doing when it crashed
  clrsnap stack --core core.4242 --sysroot ./image   the files of its container are there`,
		Args:              func(cmd *cobra.Command, args []string) error { return f.checkArgs(cmd, args) },
		ValidArgsFunction: completePID,
	}
	f.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		of, err := a.subject(&f, args)
		if err != nil {
			return err
		}
		return a.stack(cmd.Context(), of, &f)
	}
	return cmd
}

// subject returns the process or dump in the arguments and --core.
func (a *app) subject(f *stackFlags, args []string) (subject, error) {
	if f.dump != "" {
		return coreDump(f.dump), a.mayBlock(os.Getpid())
	}
	pid, err := parsePID(args[0])
	return a.runningProcess(pid), err
}

// checkArgs requires a PID or a core dump, and refuses flags for the other.
func (f *stackFlags) checkArgs(cmd *cobra.Command, args []string) error {
	const because = "the threads of a core dump stand still"
	return f.pidOrCore(cmd, args, runningFlag{"stop-all", because}, runningFlag{"max-pause", because},
		runningFlag{"watch", because})
}

// A subject is a process or a core dump whose stacks are shown.
type subject struct {
	name   string // "process 42"
	again  string // the target in arguments of clrsnap stack
	others string // advice if the process is not a .NET process
	open   func(*stackFlags, *pendingFile) (*clrsnap.Process, error)
}

func (a *app) runningProcess(pid int) subject {
	return subject{
		name: fmt.Sprintf("process %d", pid), again: fmt.Sprint(pid), others: "clrsnap ps lists .NET processes; ",
		open: func(f *stackFlags, _ *pendingFile) (*clrsnap.Process, error) {
			a.pid.Store(int64(pid))
			o := clrsnap.Options{
				NativeOnly: f.text.Native, MaxPause: f.maxPause, NonBlocking: a.worker == nil, PackStacks: f.packs,
			}
			f.symbolOptions(&o)
			return clrsnap.Open(context.Background(), pid, o)
		},
	}
}

// symbolOptions say what frames have besides names, and where symbols are looked for.
func (f *stackFlags) symbolOptions(o *clrsnap.Options) {
	o.Lines, o.Inlined, o.ExactGenerics = f.lines != "never", f.inlined != "never", f.generics == "exact"
	o.Async, o.Permits = f.async != "never", f.permits
	o.Symbols, o.SourceRoots = f.source.symbols, f.source.sourceRoots()
	o.Source = f.source.remote()
}

func coreDump(path string) subject {
	return subject{
		name: "the core dump " + path, again: "--core " + path,
		open: func(f *stackFlags, out *pendingFile) (*clrsnap.Process, error) {
			if err := out.confine(f.coreReads(f.source.folders()...), unix.CAP_DAC_READ_SEARCH); err != nil {
				return nil, err
			}
			f.core.NativeOnly, f.core.PackStacks = f.text.Native, f.packs
			f.symbolOptions(&f.core.Options)
			return clrsnap.OpenCore(context.Background(), path, f.core)
		},
	}
}

func (f *stackFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringArrayVarP(&f.threads, "thread", "t", nil,
		"only the thread with this `id`, or those whose names match a regular expression; can be given several times")
	fs.BoolVar(&f.text.Managed, "managed", false, "only managed frames")
	fs.BoolVar(&f.text.Native, "native", false, "every native frame; also opens processes without .NET")
	fs.StringVarP(&f.group, "group", "g", "auto",
		"`when` to show equal stacks once: auto (those of four or more threads), always or never")
	fs.Lookup("group").NoOptDefVal = "always"
	fs.BoolVar(&f.text.Short, "short", false, "names without namespaces and parameters")
	fs.BoolVar(&f.text.Plumbing, "plumbing", false,
		"each frame between a thread and the program's code: of the thread pool, awaits, ASP.NET Core")
	fs.BoolVar(&f.text.Full, "full", false,
		"leave nothing out: full native names, any width, no folded recursion or plumbing, ThreadIDs and GC modes")
	fs.BoolVar(&f.text.Tier, "tier", false, "show how methods were compiled: tier-0, tier-1, ReadyToRun, …")
	fs.BoolVar(&f.text.IP, "ip", false,
		"show instruction pointers and offsets, each thread by itself unless --group is given")
	fs.StringVar(&f.lines, "lines", "auto",
		"`when` to show source lines: auto (where there are PDBs), always (threads at different lines are no group)"+
			" or never")
	fs.StringVar(&f.inlined, "inlined", "proven",
		"`which` inlined methods to show: proven (those that certainly were, where the frames are) or never")
	fs.StringVar(&f.async, "async", "auto",
		"`when` to show the async methods that await those which run: auto (where they are known) or never")
	f.source.register(fs)
	fs.StringVar(&f.generics, "generics", "exact",
		"type arguments of shared generic code: exact (where the frame keeps them, else __Canon) or shared (__Canon)")
	fs.BoolVar(&f.stopAll, "stop-all", false, "take all stacks at the same instant")
	maxPauseFlag(fs, &f.maxPause)
	f.registerCore(fs)
	fs.BoolVar(&f.json, "json", false, "as JSON (docs/json.md)")
	fs.StringVarP(&f.output, "output", "o", "", "write to this `file`; - is standard output")
	complete(cmd, "group", "auto", "always", "never")
	complete(cmd, "lines", "auto", "always", "never")
	complete(cmd, "inlined", "proven", "never")
	complete(cmd, "async", "auto", "never")
	complete(cmd, "generics", "exact", "shared")
}

// check refuses flags that make no sense.
func (f *stackFlags) check() (_ *threadFilter, err error) {
	if err := oneOf("group", f.group, "auto", "always", "never"); err != nil {
		return nil, err
	}
	if err := oneOf("lines", f.lines, "auto", "always", "never"); err != nil {
		return nil, err
	}
	if err := oneOf("inlined", f.inlined, "proven", "never"); err != nil {
		return nil, err
	}
	if err := oneOf("async", f.async, "auto", "never"); err != nil {
		return nil, err
	}
	if err := oneOf("generics", f.generics, "exact", "shared"); err != nil {
		return nil, err
	}
	if err := f.source.check(); err != nil {
		return nil, err
	}
	f.text.ByLine = f.lines == "always"
	if f.text.Managed && f.text.Native {
		return nil, usagef("--managed and --native exclude each other: without either, both kinds of frames are shown")
	}
	if f.text.Short && f.text.Full {
		return nil, usagef("--short and --full exclude each other: without either, names are as long as fits")
	}
	if err := checkMaxPause(f.maxPause); err != nil {
		return nil, err
	}
	return parseThreads("thread", f.threads)
}

func maxPauseFlag(fs *pflag.FlagSet, d *time.Duration) {
	fs.DurationVar(d, "max-pause", 10*time.Millisecond,
		"a watchdog resumes a thread that has been stopped for this `time`; at least 2ms")
}

func checkMaxPause(d time.Duration) error {
	if d < 2*time.Millisecond {
		return usagef("--max-pause %v is too short for any stop: give 2ms or more", d)
	}
	return nil
}

// groupings are the values of --group.
var groupings = map[string]report.Grouping{
	"auto": report.GroupAuto, "always": report.GroupAlways, "never": report.GroupNever,
}

func (a *app) stack(ctx context.Context, of subject, f *stackFlags) error {
	chosen, err := f.check()
	if err != nil {
		return err
	}
	out, err := f.file().open(a.stdout, "", time.Time{})
	if err != nil {
		return err
	}
	defer out.close()
	p, err := a.open(ctx, of, f, out)
	defer f.source.close()
	if err != nil {
		return err
	}
	defer p.Close()
	// A native AOT program has native frames only, most often without names.
	f.text.Native = f.text.Native || !p.HasRuntime() && !f.text.Managed
	watch := a.watch(ctx, chosen)
	take := p.SnapshotAll
	if f.stopAll {
		take = p.SnapshotAtOnce
	}
	s, err := take(context.WithoutCancel(ctx), watch.filter) // the filter ends the snapshot; finished stacks stay
	watch.done()
	if s == nil {
		return err
	}
	if len(s.Threads) == 0 && err == nil && ctx.Err() == nil {
		return fmt.Errorf("no thread of %s matches %s: clrsnap stack %s shows all", of.name, chosen, of.again)
	}
	if len(s.Threads) > 0 || err == nil && ctx.Err() == nil {
		if werr := a.write(s, out, f); werr != nil {
			return werr
		}
	}
	if err != nil {
		return partial(err, s)
	}
	if cause := context.Cause(ctx); cause != nil {
		return partial(cause, s)
	}
	a.warn(s, &f.source)
	if n := s.Missing(); n > 0 {
		return fmt.Errorf("the stacks of %d of %d threads are missing, and each thread says why: "+
			"another attempt may get them", n, len(s.Threads)+s.Unlisted)
	}
	return nil
}

// open opens the subject, for output to a file. f.source has to be closed in any case.
func (a *app) open(ctx context.Context, of subject, f *stackFlags, out *pendingFile) (*clrsnap.Process, error) {
	collectAbove(200)
	if out.path == "-" {
		f.linker = a.newLinker(a.stdout)
	}
	if err := a.startFetching(ctx, &f.source, &fetchProgress{a: a}); err != nil {
		return nil, err
	}
	p, err := of.open(f, out)
	if err != nil {
		return nil, hint(err, of)
	}
	a.warnOfUnknown(p)
	collectAbove(50) // little memory is kept: frequent collections take a few ms
	a.collects.Store(true)
	return p, nil
}

// warnOfUnknown prints what cannot be shown of a process because of unknown contracts. A verb that needs the heap says
// so itself.
func (a *app) warnOfUnknown(p *clrsnap.Process) {
	var all []string
	for _, u := range p.Unknown() {
		if u.Contract != "GC" {
			all = append(all, u.Text)
		}
	}
	if len(all) > 0 {
		say(a.stderr, "warning: %s", strings.Join(all, "; "))
	}
}

// hint adds to an error the other possible commands for the user.
func hint(err error, of subject) error {
	if errors.Is(err, clrsnap.ErrNotDotNet) {
		return fmt.Errorf("%w: %sclrsnap stack --native %s shows native stacks", err, of.others, of.again)
	}
	return err
}

func partial(err error, s *profile.Snapshot) error {
	if n := len(s.Threads); n > 0 {
		return fmt.Errorf("%w: what was collected until then is above (threads: %d)", err, n)
	}
	return fmt.Errorf("%w before any stack could be taken", err)
}

// warn warns of incomplete stacks, and of symbols that could not be fetched.
func (a *app) warn(s *profile.Snapshot, f *sourceFlags) {
	a.warnOfServers(f)
	n := 0
	for i := range s.Threads {
		if t := &s.Threads[i]; !t.Complete && t.Depth() > 0 {
			n++
		}
	}
	if n > 0 {
		say(a.stderr, "warning: the stacks of %d of %d threads are incomplete; each says why", n, len(s.Threads))
	}
}

// file returns the output of --output.
func (f *stackFlags) file() *outputFile { return &outputFile{path: cmp.Or(f.output, "-")} }

// write encodes a snapshot to standard output or a file.
func (a *app) write(s *profile.Snapshot, out *pendingFile, f *stackFlags) error {
	o := f.text
	o.Group, o.Color = groupings[f.group], a.color == "always"
	if out.path == "-" {
		o.Color, o.Width = a.colors(a.stdout), terminalWidth(a.stdout)
	}
	if f.linker != nil {
		o.Link = f.linker.link
	}
	return out.print(func(w io.Writer) error {
		if f.json {
			return report.JSON(w, s)
		}
		return report.Text(w, s, o)
	})
}

// unwrapPath drops the operation and the path from an error, if the message has both already.
func unwrapPath(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
