package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/export"
	"clrsnap/internal/display"
	"clrsnap/internal/priority"
	"clrsnap/profile"
	"clrsnap/record"
	"clrsnap/snapshot"
)

// recordFlags are the flags of the verb record.
type recordFlags struct {
	duration     time.Duration
	rate         float64
	mode         string
	threads      []string
	managed      bool
	native       bool
	idle         bool
	subprocesses bool
	generics     string
	async        string
	maxPause     time.Duration
	maxCPU       string
	output       string
	format       string

	lines   string
	inlined string
	source  sourceFlags
	events  eventFlags

	durationGiven bool
	modeGiven     bool
	chosen        *threadFilter
	share         float64 // of one CPU: maxCPU
	file          outputFile
}

const defaultDuration = 30 * time.Second

func newRecord(a *app) *cobra.Command {
	var f recordFlags
	cmd := &cobra.Command{
		Use:   "record PID | -- COMMAND [ARG...]",
		Short: "Record what a process spends its time or memory on, as a flame graph",
		Long: `Sample the stacks of a process for some time, or record events of the process. The
result is a flame graph: an HTML file that needs no network. Other formats are below.

Samples of time:
  --mode cpu    What uses CPU time? The kernel samples each CPU --rate times a second
                and keeps the samples of this program. No thread is stopped.
  --mode wall   Where does time pass, waiting included? Each thread is sampled --rate
                times a second. The stack of a provably blocked thread is copied without
                a stop. For a running thread the kernel's CPU sample is used, so few
                threads are stopped: for tens of microseconds, never longer than
                --max-pause. If --max-cpu is too little for all threads, running threads
                are sampled less often; the result says so.
  --mode both   Both, in one file. This is the default without --event.

Events, each with the stack of its thread at that moment:
  --event alloc        Which code allocates which classes, and how many bytes? One
                       allocation is recorded for every --alloc-every bytes.
                       --live also shows which sampled objects are alive at the end:
                       what leaks. Only a garbage collection finds dead objects, so
                       objects allocated after the last collection are left out. --gc
                       forces a full collection at the end, which stops the program.
  --event exception    Who throws which exceptions, with which messages, and who catches
                       them? An exception thrown again, by await or throw;, counts once,
                       with its first stack and its last catcher. Messages can have
                       secrets; --no-messages leaves them out.
  --event contention   Who waits for which lock, for how long, and what was the holder
                       doing? clrsnap looks at the holders of contended locks, 100 times
                       a second at most.
  --event thread       Who starts threads?
  --event gc           Which garbage collections pause the program, for how long, and
                       what triggered the collections?
  --event wait         Who waits for what, and for how long? Every wait of a thread for a
                       lock, an event, a task or a thread, from --wait-min on (1ms).
                       Needs .NET 9 or later. Sleeps, input and output are not recorded,
                       nor is Thread.Join on .NET 11: --mode wall has all waits, on every
                       version.
--event takes several of these, separated by commas, or all. With --mode samples and
events go into the same file.
Events come from a small agent, written in C, that the .NET runtime loads without a
restart. The agent detaches at the end. An event never makes the program wait for
clrsnap.

The recording ends after --duration (30s for a PID; a COMMAND is recorded until the
command ends), with Ctrl-C, or when the process ends. A recording that ends early is
kept.

A COMMAND is recorded from its start. If the command runs the .NET program as another
process, as dotnet run does, add --subprocesses. The exit status is the COMMAND's,
as in a shell: 128+n if signal n ended the command, for example 134 after SIGABRT. If
clrsnap itself fails, the exit status is 1, or 2 for wrong usage.

Source lines:
  Managed code has source lines if the assembly's portable PDB is inside the assembly,
  beside the assembly, or in a folder of --symbols. A PDB of another build is not used.
  clrsnap finds the lines at the end of the recording; clrsnap view --symbols adds lines
  later, too. The text around the lines is kept if the source file has the checksum in the
  PDB. The source file is in the PDB, where the compiler read the file, or below
  --source-root; --no-source leaves the text out. If --symbol-server or
  CLRSNAP_SYMBOL_SERVER names a server, missing symbols are fetched at the end; otherwise
  clrsnap fetches nothing.

Inlined methods:
  A method that the compiler has inlined into its caller has no frame. If the call is
  proved, the method is recorded nevertheless. The program must still run at the end of
  the recording. --inlined=never records frames only, and clrsnap view --inlined=never
  leaves inlined methods out.

The file:
  The file extension chooses the format. Without --output, clrsnap writes an HTML file in
  the current directory, named after the process and the time. HTML and .clrsnap files
  keep the whole recording: clrsnap view converts them to any other format later.
  The number after a folded stack is microseconds, bytes, or a count. If there are
  several modes, the first frame of each stack names the mode and the unit, for example
  [wall: microseconds] or [alloc: bytes].

`,
		Example: `  clrsnap record 4242                            30 seconds, as a flame graph
  clrsnap record 4242 -d 10s -o hot.html         10 seconds, to a file
  clrsnap record 4242 --mode cpu -o cpu.pb.gz    for go tool pprof, Pyroscope, Parca
  clrsnap record 4242 --threads '^orders-' --mode wall
  clrsnap record 4242 --event alloc              which code allocates which classes
  clrsnap record 4242 -d 2m --event alloc --live  what leaks, and who allocated the leak
  clrsnap record 4242 --event all --mode both    everything
  clrsnap record -- dotnet MyService.dll         from the start to the end
  clrsnap record --subprocesses -- dotnet run`,
		Args:              recordArgs,
		ValidArgsFunction: completePID,
	}
	f.register(cmd)
	cmd.Long += formatsHelp()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.durationGiven, f.modeGiven = cmd.Flags().Changed("duration"), cmd.Flags().Changed("mode")
		if err := f.check(); err != nil {
			return err
		}
		if err := f.events.check(cmd); err != nil {
			return err
		}
		if err := a.forTerminal(f.file); err != nil {
			return err
		}
		// Unlike the other verbs, record can run for hours, and does one thing at a time. More CPUs for Go would only
		// serve garbage collection, at the program's cost. The second CPU is for the work that must go on when a system
		// call blocks.
		runtime.GOMAXPROCS(2)
		debug.SetGCPercent(100)
		debug.SetMemoryLimit(math.MaxInt64)
		if f.lines != "never" {
			// The fetcher is not interrupted with the recording: the recorded stacks then need symbols, too.
			if err := a.startFetching(context.Background(), &f.source, &fetchProgress{a: a, alone: true}); err != nil {
				return err
			}
			defer f.source.close()
		}
		if cmd.ArgsLenAtDash() == 0 {
			return a.recordCommand(cmd.Context(), args, &f)
		}
		pid, err := parsePID(args[0])
		if err != nil {
			return err
		}
		return a.recordPID(cmd.Context(), pid, &f)
	}
	return cmd
}

func (f *recordFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.DurationVarP(&f.duration, "duration", "d", 0,
		"how long to record; 0: until Ctrl-C or the end of the process (default 30s for a PID)")
	fs.Float64VarP(&f.rate, "rate", "r", record.DefaultRate, "samples a second, of CPU time or of each thread")
	fs.StringVarP(&f.mode, "mode", "m", "both", "the kind of time to `sample`: cpu, wall or both")
	f.events.register(cmd)
	fs.StringArrayVarP(&f.threads, "threads", "t", nil,
		"only threads with a matching name (`regexp`), or with an id; can be given several times")
	fs.BoolVar(&f.managed, "managed", false, "only managed frames in the output")
	fs.BoolVar(&f.native, "native", false, "every native frame in the output; also records processes without .NET")
	fs.BoolVar(&f.idle, "idle", false,
		"with idle threads in the picture; html and svg files leave idle threads out at first")
	fs.BoolVar(&f.subprocesses, "subprocesses", false, "also record child processes with .NET")
	fs.StringVar(&f.generics, "generics", "shared",
		"type arguments of shared generic code: shared (__Canon) or exact (where the stack has them, else __Canon)")
	fs.StringVar(&f.async, "async", "auto",
		"`when` to add the async methods that await the running methods: auto (where known) or never")
	maxPauseFlag(fs, &f.maxPause)
	fs.StringVar(&f.maxCPU, "max-cpu", "10%", "the share of a CPU that wall-clock sampling may `use`")
	fs.StringVar(&f.lines, "lines", "auto",
		"`when` to record source lines: auto (where there are PDBs), always (also lists assemblies without lines, "+
			"and why) or never")
	fs.StringVar(&f.inlined, "inlined", "proven",
		"`which` inlined methods to record: proven or never")
	f.source.register(fs)
	f.source.registerText(fs)
	fs.StringVarP(&f.output, "output", "o", "", "write to a `file`; - is standard output")
	completeOutput(cmd, "output", offerFormats)
	fs.StringVarP(&f.format, "format", "f", "", "the `format`, if the file extension does not choose a format")
	complete(cmd, "mode", "cpu", "wall", "both")
	complete(cmd, "lines", "auto", "always", "never")
	complete(cmd, "inlined", "proven", "never")
	complete(cmd, "generics", "shared", "exact")
	complete(cmd, "async", "auto", "never")
	complete(cmd, "format", formatNames()...)
}

// recordArgs requires a process id, or a command after two dashes.
func recordArgs(cmd *cobra.Command, args []string) error {
	switch dash := cmd.ArgsLenAtDash(); {
	case dash == 0 && len(args) == 0:
		return usagef("no program: write the command after the two dashes, for example %s -- dotnet MyService.dll",
			cmd.CommandPath())
	case dash == 0:
		return nil
	case dash > 0:
		return usagef("give a process id or a command, not both: see %s --help", cmd.CommandPath())
	case len(args) == 0:
		return usagef("no process: give a process id, for example %[1]s 4242, or a command, "+
			"for example %[1]s -- dotnet MyService.dll; clrsnap ps lists .NET processes", cmd.CommandPath())
	}
	if _, err := strconv.Atoi(args[0]); err != nil {
		return usagef("%q is not a process id; to start a program write two dashes before the program: %s -- %s",
			args[0], cmd.CommandPath(), args[0])
	}
	return onePID(cmd, args)
}

// check refuses flags that make no sense.
func (f *recordFlags) check() error {
	if err := oneOf("mode", f.mode, "cpu", "wall", "both"); err != nil {
		return err
	}
	if err := oneOf("lines", f.lines, "auto", "always", "never"); err != nil {
		return err
	}
	if err := oneOf("async", f.async, "auto", "never"); err != nil {
		return err
	}
	if err := oneOf("inlined", f.inlined, "proven", "never"); err != nil {
		return err
	}
	if err := oneOf("generics", f.generics, "shared", "exact"); err != nil {
		return err
	}
	if err := f.source.check(); err != nil {
		return err
	}
	if f.managed && f.native {
		return usagef("--managed and --native exclude each other: " +
			"without either, consecutive native frames without names share a frame")
	}
	if !(f.rate >= record.MinRate && f.rate <= record.MaxRate) {
		return usagef("--rate %v: give a number of samples a second between %v and %v; 99 is good for most purposes",
			f.rate, record.MinRate, record.MaxRate)
	}
	if f.duration < 0 {
		return usagef("--duration %v: give a positive time, for example 30s, or 0 for no end", f.duration)
	}
	err := checkMaxPause(f.maxPause)
	if err != nil {
		return err
	}
	if f.share, err = parseShare(f.maxCPU); err != nil {
		return err
	}
	if f.chosen, err = parseThreads("threads", f.threads); err != nil {
		return err
	}
	if f.file, err = chooseOutput(f.output, f.format, export.FormatHTML); err == nil {
		err = checkIdle(f.idle, f.file.format)
	}
	return err
}

// parseShare reads a share of one CPU: "20%" or "0.2".
func parseShare(s string) (float64, error) {
	n, unit := s, 1.0
	if len(s) > 0 && s[len(s)-1] == '%' {
		n, unit = s[:len(s)-1], 0.01
	}
	v, err := strconv.ParseFloat(n, 64)
	if err != nil || !(v > 0) || math.IsInf(v, 0) {
		return 0, usagef("--max-cpu %q: give a share of a CPU, for example 10%% or 0.1", s)
	}
	return v * unit, nil
}

func (f *recordFlags) options(a *app, pr *recordProgress) (clrsnap.Options, record.Options) {
	ro := record.Options{
		Rate: f.rate, Duration: f.duration, Subprocesses: f.subprocesses, MaxCPU: f.share, Progress: pr.show,
		Events: f.events.options(), Live: f.events.live, Collect: f.events.gc,
		Alone:      a.worker == nil, // a worker reads files that may block: the worker must be able to notice the block
		SourceText: !f.source.noText, ExplainLines: f.lines == "always",
	}
	switch {
	case ro.Events.Monitor != 0 && !f.modeGiven: // events alone
	case f.mode == "cpu":
		ro.Modes = []profile.Mode{profile.CPU}
	case f.mode == "wall":
		ro.Modes = []profile.Mode{profile.Wall}
	case f.mode == "both":
		ro.Modes = []profile.Mode{profile.CPU, profile.Wall}
	}
	if len(f.threads) > 0 {
		ro.Threads = f.chosen.matches
	}
	return clrsnap.Options{
		NativeOnly: f.native, MaxPause: f.maxPause, NonBlocking: a.worker == nil, ExactGenerics: f.generics == "exact",
		Async: f.async != "never",
		Lines: f.lines != "never", Symbols: f.source.symbols, SourceRoots: f.source.sourceRoots(),
		Source: f.source.remote(), Inlined: f.inlined == "proven",
	}, ro
}

func (a *app) recordPID(ctx context.Context, pid int, f *recordFlags) error {
	if !f.durationGiven {
		f.duration = defaultDuration
	}
	pr := a.newProgress(f)
	o, ro := f.options(a, pr)
	a.pid.Store(int64(pid))
	p, err := clrsnap.Open(context.Background(), pid, o)
	if err != nil {
		return hintRecord(err, pid)
	}
	defer p.Close()
	a.warnOfUnknown(p)
	a.collecting()
	info := p.Info()
	out, err := f.file.open(a.stdout, info.Program(), time.Now())
	if err != nil {
		return err
	}
	ro.Begun = func() {
		pr.begin(fmt.Sprintf("process %d (%s)", pid, display.Clip(display.OneLine(info.Command), 60)))
	}
	r, err := record.Record(ctx, p, ro)
	pr.end()
	if err != nil {
		return hintRecord(err, pid)
	}
	return a.finishRecording(r, out, f)
}

// collecting says that from now on there is data to write if the command is interrupted.
func (a *app) collecting() {
	a.graceful.Store(int64(time.Minute)) // enough to write a large recording
	a.collects.Store(true)
}

// hintRecord adds to an error the other possible commands for the user.
func hintRecord(err error, pid int) error {
	switch {
	case errors.Is(err, clrsnap.ErrNotDotNet) && pid > 0:
		return fmt.Errorf("%w: clrsnap ps lists .NET processes; clrsnap record --native %d records native stacks", err,
			pid)
	case errors.Is(err, events.ErrNoWaits):
		return fmt.Errorf("%w; --mode wall shows on every version what threads wait for", err)
	case errors.Is(err, record.ErrNoPerfEvents):
		return fmt.Errorf("%w; or record with --mode wall, without perf events", err)
	}
	return err
}

func (a *app) recordCommand(ctx context.Context, args []string, f *recordFlags) error {
	priority.Relax()                                // the program would inherit the priority
	if err := a.mayBlock(os.Getpid()); err != nil { // the program will have the same mounts
		return err
	}
	a.collecting()
	pr := a.newProgress(f)
	o, ro := f.options(a, pr)
	line := strings.Join(args, " ")
	out, err := f.file.open(a.stdout, (&snapshot.Process{Command: line}).Program(), time.Now())
	if err != nil {
		return err
	}
	cmd := exec.Command(args[0], args[1:]...)
	if cmd.Err != nil {
		return fmt.Errorf("cannot start the program: %w", cmd.Err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, a.stdout, a.stderr
	if out.path == "-" {
		cmd.Stdout = a.stderr // the program's output must not get into the recording
	}
	pr.begin(display.Clip(display.OneLine(line), 60))
	r, err := record.Command(ctx, cmd, o, ro)
	pr.end()
	if err = hintRecord(err, 0); r != nil {
		err = a.finishRecording(r, out, f)
	}
	if cmd.Process != nil {
		if ended := a.awaitCommand(ctx, cmd); err == nil {
			err = ended
		}
	}
	return err
}

// finishRecording writes a recording and prints a summary.
func (a *app) finishRecording(r *profile.Recording, out *pendingFile, f *recordFlags) error {
	defer priority.Hasten()() // the target may keep all CPUs busy
	r.Version = versionText()
	if len(r.Samples) == 0 {
		a.explainEmpty(r, f)
	}
	shown := r
	if f.managed || f.native || out.format != export.FormatHTML && out.format != export.FormatRecording {
		shown = r.Select(profile.Selection{Managed: f.managed, Native: f.native})
	}
	a.warnOfServers(&f.source)
	a.tellMode(r, out.format)
	o := export.Options{Idle: f.idle}
	err := out.write(func(w io.Writer) error { return export.Encode(w, shown, out.format, o) })
	if err != nil {
		return rescue(r, out, err)
	}
	a.finished.Store(true)
	a.summarize(r, out.path)
	return nil
}
