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

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"clrsnap"
	"clrsnap/report"
	"clrsnap/snapshot"
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
		Long: `Show what every thread of a process is doing: the stack, leaf first, with managed and
native frames, and whether the thread runs or waits, and for what.

Threads of the runtime that wait for work are called idle: pool workers, the timer, the
finalizer and others. Idle threads come last.

A running thread is stopped while its stack is copied: for tens of microseconds, longer if
all CPUs are busy, never longer than --max-pause. A provably blocked thread is not stopped.
If clrsnap has CAP_BPF and CAP_PERFMON, the kernel tells the registers of threads. Then only
a thread that keeps a CPU for 20 ms is stopped.

With --stop-all all stacks belong to one instant: running threads are stopped together,
and all other threads are proved to have been blocked. The stop ends when the last
running thread has stopped, and to stop a thread needs a CPU. So the stop lasts
milliseconds on a busy machine, at most --max-pause plus 100 ms. If stacks are missing,
clrsnap tries again a few times.

The exit status is 1 if the stack of a thread is missing; the thread says why. Threads
that ended meanwhile do not count. An incomplete stack says why, and only causes a
warning.

Frames:
  By default managed frames have namespaces and parameters as far as the width of the
  terminal allows. Consecutive native frames without symbols share a line. Framework frames
  that only lead to the program's code, of the thread pool, of awaits and of ASP.NET Core,
  share a line, too: [pool → Kestrel → ASP.NET: 14 frames]. Recursion is folded. A stack of
  four or more threads is shown once. --json always has every frame.

  --managed         no native frames; threads without managed frames are only listed
  --native          every native frame on a line of its own; also opens processes
                    without a .NET runtime
  --group           equal stacks once, even of two threads, the largest group first
  --group=never     each thread by itself
  --plumbing        every framework frame
  --short, --full   shorter names; nothing folded or left out, with the address of
                    the runtime's Thread object and the GC mode of each thread

  Stacks are equal if they have the same methods, wherever in a method a thread is.

Source lines:
  A managed frame has a source line if the assembly's portable PDB is inside the assembly,
  beside the assembly, or in a folder of --symbols. A PDB of another build is not used. A
  calling frame is at the line of the call. Shop/Queue.cs:~42 is near, not certain: optimised
  code can belong to several lines, or to none. If threads at different lines share a
  stack, the frame has no line; --lines=always shows the threads apart. --source-root says
  where the source files are on this machine. Native frames have lines where there is
  DWARF: in the library, or in the library's debug file in the usual places. clrsnap
  fetches nothing unless --symbol-server or CLRSNAP_SYMBOL_SERVER names servers: see
  docs/usage.md.

Inlined methods:
  A method that the compiler has inlined into its caller has no frame. If the call is
  proved, the method is shown between the two frames, as (inlined). Other inlined methods
  are left out: docs/usage.md says which. --inlined=never shows frames only.

Async methods:
  After an await, an async method goes on in a thread of the pool, without its awaiters on
  the stack. clrsnap reads the awaiters from the heap, and shows them below the stack, as
  "awaited by", with the lines of the awaits. Awaiters that changed during the read are
  left out. --async=never shows frames only. clrsnap tasks shows the methods that no thread
  runs.

Core dumps:
  With --core the stacks are read from an ELF core dump: of createdump
  (DOTNET_DbgEnableMiniDump=1, dotnet-dump), of the kernel, or of gcore. The crashed
  thread comes first, with the signal and the exception. Memory that the dump lacks is read
  from the program's files, if the build ids are the same; memory that is still missing
  is listed at the end. clrsnap looks for files where the process had them, or below
  --sysroot: a folder with the files of the process's container, for example.
`,
		Example: `  clrsnap stack 4242                        every thread
  clrsnap stack 4242 --managed --group      the overview of a busy service
  clrsnap stack 4242 --thread 4250          one thread, by its id
  clrsnap stack 4242 --thread '^orders-'    threads by name, a regular expression
  clrsnap stack 4242 --json | jq '.threads[] | select(.state == "running").name'
  clrsnap stack $(pgrep -n dotnet) -o stacks.txt
  clrsnap stack --core core.4242            what the program was doing when it crashed
  clrsnap stack --core core.4242 --sysroot ./image   with the files of the container`,
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
		runningFlag{"stop", because}, runningFlag{"watch", because})
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
		"only the thread with this `id`, or threads by name, a regular expression; can be given several times")
	fs.BoolVar(&f.text.Managed, "managed", false, "only managed frames")
	fs.BoolVar(&f.text.Native, "native", false, "every native frame; also opens processes without .NET")
	fs.StringVarP(&f.group, "group", "g", "auto",
		"`when` to show equal stacks once: auto (from four threads on), always or never")
	fs.Lookup("group").NoOptDefVal = "always"
	fs.BoolVar(&f.text.Short, "short", false, "names without namespaces and parameters")
	fs.BoolVar(&f.text.Plumbing, "plumbing", false,
		"every framework frame between a thread and the program's code: thread pool, awaits, ASP.NET Core")
	fs.BoolVar(&f.text.Full, "full", false,
		"leave nothing out: full native names, any width, nothing folded, ThreadIDs and GC modes")
	fs.BoolVar(&f.text.Tier, "tier", false, "show how methods were compiled: tier-0, tier-1, ReadyToRun, …")
	fs.BoolVar(&f.text.IP, "ip", false,
		"show instruction pointers and offsets, each thread by itself unless --group is given")
	fs.StringVar(&f.lines, "lines", "auto",
		"`when` to show source lines: auto (where there are PDBs), always (also separates threads at different lines)"+
			" or never")
	fs.StringVar(&f.inlined, "inlined", "proven",
		"`which` inlined methods to show: proven or never")
	fs.StringVar(&f.async, "async", "auto",
		"`when` to show the async methods that await the running methods: auto (where known) or never")
	f.source.register(fs)
	fs.StringVar(&f.generics, "generics", "exact",
		"type arguments of shared generic code: exact (where the frame keeps them, else __Canon) or shared (__Canon)")
	fs.BoolVar(&f.stopAll, "stop-all", false, "take all stacks at the same instant")
	maxPauseFlag(fs, &f.maxPause)
	f.registerCore(fs)
	fs.BoolVar(&f.json, "json", false, "as JSON (docs/json.md)")
	fs.StringVarP(&f.output, "output", "o", "", "write to a `file`; - is standard output")
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
		"the longest `time` that a thread may be stopped, kept by a watchdog; at least 2ms")
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
		remedy := "another attempt may get them"
		if s.Process.Core != nil {
			remedy = "a dump with more memory may have them"
		}
		return fmt.Errorf("the stacks of %d of %d threads are missing, and each thread says why: %s", n,
			len(s.Threads)+s.Unlisted, remedy)
	}
	return nil
}

// open opens the subject, for output to a file. f.source has to be closed in any case.
func (a *app) open(ctx context.Context, of subject, f *stackFlags, out *pendingFile) (*clrsnap.Process, error) {
	collectLater(50)
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
	a.collect()
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

func partial(err error, s *snapshot.Snapshot) error {
	if n := len(s.Threads); n > 0 {
		return fmt.Errorf("%w: the stacks collected until then are above (threads: %d)", err, n)
	}
	return fmt.Errorf("%w before any stack could be taken", err)
}

// warn warns of incomplete stacks, and of symbols that could not be fetched.
func (a *app) warn(s *snapshot.Snapshot, f *sourceFlags) {
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
func (a *app) write(s *snapshot.Snapshot, out *pendingFile, f *stackFlags) error {
	o := f.text
	o.Group, o.Terminal = groupings[f.group], a.writtenTo(out)
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
