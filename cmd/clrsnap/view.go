package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"clrsnap/export"
	"clrsnap/profile"
	"clrsnap/report"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// viewFlags are the flags of the verb view.
type viewFlags struct {
	output   string
	format   string
	mode     string
	state    string
	threads  []string
	managed  bool
	native   bool
	top      int
	sort     string
	byThread bool
	by       string
	full     bool
	plumbing bool
	idle     bool
	callers  string
	callees  string
	path     bool
	from, to time.Duration
	diff     string
	json     bool
	lines    string
	inlined  string
	source   sourceFlags

	chosen *threadFilter
	file   outputFile // its path is empty: tables on standard output
}

func newView(a *app) *cobra.Command {
	var f viewFlags
	cmd := &cobra.Command{
		Use:   "view FILE",
		Short: "Show the hottest functions of a recording, or convert it",
		Long: `Show a recording as tables, for each mode: the functions with the most time, bytes or
events, first of your own code, then of all code, and the threads. With --output or
--format the recording, or the chosen part, is written in another format instead.

FILE is a file of clrsnap record, HTML flame graphs included. FILE can also be a profile of
any program in the format of pprof or speedscope, or as folded stacks. - is standard input.

The columns of the tables:
  flat   in the function itself: time, bytes, or the number of events
  cum    in the function and in all callees; recursion counts once
  run    the part of wall-clock time in which the thread ran, or was ready to run
  wait   the part of wall-clock time in which the thread waited
  CPU %  per cent of a CPU; wall %: per cent of the recording's length, so that two
         threads that are always there have 200; MiB/s, per s: per second
Each mode has its own tables. Ten threads have ten seconds of wall-clock time in each
second. Rates of functions need 110 columns, and are rates of cum. Threads that the runtime
has for the same purpose share a row; --by-thread shows each.

Idle threads are left out of tables and pictures: pool workers without work, also while
they spin, and threads of the runtime that wait for work. A line says how much idle threads
have; 100 % is the rest. --idle shows them. JSON and other formats always have them.

Native code without symbols is shown as its module: [libcoreclr.so]. Work of the runtime
itself has a name: [GC], [JIT], [finalizer], [tiered compilation].

--callers NAME shows the callers of a function as a tree, --callees NAME the called
functions, and --path the heaviest calls from the base of the stacks on. NAME is a
function's name, with or without namespaces, or else a part of names, or else a regular
expression. If several functions of a stack match, the outermost counts. 100 % is the
whole mode.

Folded stacks end with a number: microseconds, bytes, or a count. If there are several
modes, the first frame of each stack names the mode and the unit, for example
[wall: microseconds] or [alloc: bytes]; --mode chooses a mode, without a frame for the mode.

In tables a name that is wider than the terminal, or than 100 columns elsewhere, is cut in
the middle (…); --full shows the whole name. JSON and other formats have whole names.

In event modes another table shows the events: the allocated classes, the exceptions, or the
holders of locks. The messages of exceptions follow, with the number of each. The tables of
functions show where the events happened. In mode contention a table of the locks comes
first: the type of the locked object, and below the type the methods of the lock's holders,
with callers (←). "(code not seen)" is a thread that held a lock too briefly for a look.

~ marks an estimate, rounded to its reliable digits. The line above the tables has the
standard error: 4,500 ± 800 objects. Times have a ~ only below about a hundred samples.
Event counts without ~ are exact.

--lines shows the source lines below each function, with their shares, if the recording has
lines. --symbols DIR finds lines in PDBs and debug files in a folder, on any machine: the
files must be of the recorded build. --symbol-server URL fetches missing files.
--source-root says where the source files are, for their text.

With --diff BASE two recordings are compared function by function. The functions with the
largest changes of their shares come first. A change with ≈ is not significant: chance alone
can cause the change. The flags that choose a part apply to both recordings.

Formats, by file extension:
`,
		Example: `  clrsnap view app.clrsnap                            the hottest functions
  clrsnap view app.html --managed --sort cum          methods, callees included
  clrsnap view app.html --by wait                     who waits for what?
  clrsnap view app.html --mode alloc                  who allocates what?
  clrsnap view app.html --callers Thread.Sleep        who sleeps?
  clrsnap view app.html --callees Orders.Submit --mode wall
  clrsnap view app.html --path                        where most of the time goes
  clrsnap view app.clrsnap --lines --symbols ./bin --source-root ~/src/shop
  clrsnap view app.html --threads '^orders-' --from 5s --to 10s
  clrsnap view app.html -o app.pb.gz                  for go tool pprof
  clrsnap view app.html -m cpu -f folded | flamegraph.pl --countname=us >app.svg
  clrsnap view after.html --diff before.html          what has become slower?
  clrsnap view after.html --diff before.html -o diff.html
  clrsnap view app.html --json | jq '.modes[0].functions[0]'`,
		Args: oneFile,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
	}
	f.register(cmd)
	cmd.Long += formatsHelp()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.check(cmd); err != nil {
			return err
		}
		if err := a.mayBlock(os.Getpid()); err != nil {
			return err
		}
		// A recording can be large, and is in memory as a whole.
		debug.SetGCPercent(100)
		debug.SetMemoryLimit(viewLimit)
		return a.view(cmd.Context(), args[0], &f)
	}
	return cmd
}

// viewLimit is the memory limit of the garbage collector, in bytes. The data read from a file is smaller. With the
// limit, the verb needs less than a gigabyte.
const viewLimit = 680 << 20

func (f *viewFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVarP(&f.output, "output", "o", "",
		"write to a `file`, in the format of the file extension; - is standard output")
	completeOutput(cmd, "output", offerFormats)
	fs.StringVarP(&f.format, "format", "f", "",
		"the `format`, if no file extension chooses it; without --output, write to standard output")
	fs.StringVarP(&f.mode, "mode", "m", modeAll, "only one `mode`: "+enumerated(viewModes(), "or"))
	fs.StringVar(&f.state, "state", "", "only samples of threads in a `state`: running or waiting")
	fs.StringArrayVarP(&f.threads, "threads", "t", nil,
		"only threads with a matching name (`regexp`), or with an id; can be given several times")
	fs.DurationVar(&f.from, "from", 0, "only samples from a `time` after the start on, for example 5s")
	fs.DurationVar(&f.to, "to", 0, "only samples before a `time` after the start")
	fs.BoolVar(&f.managed, "managed", false,
		"only managed frames: native code counts for the calling method")
	fs.BoolVar(&f.native, "native", false, "every native frame, with or without a symbol")
	fs.BoolVar(&f.plumbing, "plumbing", false,
		"every framework function (thread pool, awaits, Kestrel); otherwise runs of them share a row in tables")
	fs.BoolVar(&f.idle, "idle", false,
		"with idle threads; otherwise tables and pictures leave idle threads out")
	fs.IntVarP(&f.top, "top", "n", 20,
		"the number of `rows` of functions in a table, half as many of your own; 0: all\n"+
			"(the default of --json; the default of --callers and --callees is 40, of --path 100)")
	fs.StringVar(&f.callers, "callers", "",
		"the callers of the functions with a `name`, part of a name, or regexp")
	fs.StringVar(&f.callees, "callees", "", "the callees of the functions with a `name`, part of a name, or regexp")
	fs.BoolVar(&f.path, "path", false, "the heaviest path, from the base of the stacks on")
	fs.StringVarP(&f.sort, "sort", "s", "flat", "the `order` of functions: flat or cum")
	fs.BoolVar(&f.byThread, "by-thread", false,
		"a table for each thread; in folded stacks the thread as the first frame")
	fs.StringVar(&f.by, "by", "",
		"group waiting time by the object of the `wait`: as a table, or as the first frame of stacks in files")
	fs.StringVar(&f.diff, "diff", "",
		"compare with a `file`, the base: as a table, or as a flame graph with -o FILE.html")
	fs.StringVar(&f.lines, "lines", "auto",
		"`when` to show source lines: auto, always (below each function), or never (also not in written files)")
	fs.Lookup("lines").NoOptDefVal = "always"
	fs.StringVar(&f.inlined, "inlined", "proven",
		"`which` inlined methods to show: proven (all in the recording) or never")
	f.source.register(fs)
	f.source.registerText(fs)
	fs.BoolVar(&f.full, "full", false,
		"names at full length; otherwise a name too long for a line is cut in the middle")
	fs.BoolVar(&f.json, "json", false, "the tables as JSON (docs/json.md)")
	complete(cmd, "mode", viewModes()...)
	complete(cmd, "state", "running", "waiting")
	complete(cmd, "lines", "auto", "always", "never")
	complete(cmd, "inlined", "proven", "never")
	complete(cmd, "sort", "flat", "cum")
	complete(cmd, "by", byWait)
	complete(cmd, "format", formatNames()...)
}

// oneFile requires exactly one argument, a file.
func oneFile(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return usagef("no recording: give a file, for example %s app.clrsnap; clrsnap record writes recordings",
			cmd.CommandPath())
	case 1:
		return nil
	}
	return usagef("unexpected argument %q after the first file: %s FILE --diff BASE compares two files",
		args[1], cmd.CommandPath())
}

// check refuses flags that make no sense.
func (f *viewFlags) check(cmd *cobra.Command) error {
	if err := oneOf("mode", f.mode, viewModes()...); err != nil {
		return err
	}
	if err := oneOf("sort", f.sort, "flat", "cum"); err != nil {
		return err
	}
	if err := oneOf("lines", f.lines, "auto", "always", "never"); err != nil {
		return err
	}
	if err := oneOf("inlined", f.inlined, "proven", "never"); err != nil {
		return err
	}
	if err := f.source.check(); err != nil {
		return err
	}
	if err := f.checkBy(cmd); err != nil {
		return err
	}
	if f.state != "" {
		if err := oneOf("state", f.state, "running", "waiting"); err != nil {
			return err
		}
	}
	switch {
	case f.managed && f.native:
		return usagef("--managed and --native exclude each other: " +
			"without either, consecutive native frames without names share a frame")
	case len(f.modes()) == 0:
		return usagef("--state %s leaves nothing of --mode %s: %s", f.state, f.mode, whyNoState[f.state])
	case f.top < 0:
		return usagef("--top %d: give a number of functions, or 0 for all", f.top)
	case f.from < 0 || f.to < 0:
		return usagef("--from and --to are times after the start of the recording: give positive times, for example 5s")
	case f.to > 0 && f.to <= f.from:
		return usagef("--to %v is not after --from %v", f.to, f.from)
	}
	var err error
	if f.chosen, err = parseThreads("threads", f.threads); err != nil {
		return err
	}
	return f.checkOutput(cmd)
}

// checkOutput chooses the output, and refuses flags that do not fit the output.
func (f *viewFlags) checkOutput(cmd *cobra.Command) error {
	if f.json && !cmd.Flags().Changed("top") {
		f.top = 0
	}
	if err := f.checkCalls(cmd); err != nil {
		return err
	}
	switch {
	case f.json && f.format != "":
		return usagef("--json and --format exclude each other: --json is about the tables")
	case f.byThread && (f.json || f.diff != ""):
		return usagef("--by-thread does not go with --json or --diff: choose a thread with --threads")
	case f.json && f.idle:
		return usagef("--idle is for tables and pictures: --json always has idle threads")
	case f.json && f.plumbing:
		return usagef("--plumbing is for tables: --json always has every function")
	case f.json:
		f.file.path = f.output
		return nil
	case f.output == "" && f.format == "":
		return nil
	}
	var err error
	if f.file, err = chooseOutput(f.output, f.format, ""); err != nil {
		return err
	}
	if f.file.path == "" {
		f.file.path = "-"
	}
	for _, flag := range []string{"top", "sort", "full", "plumbing"} {
		if cmd.Flags().Changed(flag) {
			return usagef("--%s is for tables, not for %s files", flag, f.file.format)
		}
	}
	if err := checkIdle(f.idle, f.file.format); err != nil {
		return err
	}
	switch {
	case f.diff != "" && f.file.format != export.FormatHTML:
		return usagef("%s files cannot show a difference between two recordings: "+
			"html can, and so can the table without -o",
			f.file.format)
	case f.by != "" && f.file.format == export.FormatRecording:
		return usagef("--by is for tables and pictures: %s files have everything, and can be grouped later",
			f.file.format)
	case f.byThread && f.file.format != export.FormatFolded:
		return usagef("--by-thread is for tables and folded stacks, not for %s files", f.file.format)
	}
	return nil
}

// checkIdle refuses --idle for a format that has idle threads anyway.
func checkIdle(idle bool, format export.Format) error {
	if idle && format != export.FormatHTML && format != export.FormatSVG {
		return usagef("--idle is for tables and pictures: %s files always have idle threads", format)
	}
	return nil
}

// view reads a recording, chooses a part of the recording and writes the part. Files can be hostile: view reads them
// without any right that view does not need.
func (a *app) view(ctx context.Context, file string, f *viewFlags) error {
	in, err := openRecording(file)
	if err != nil {
		return err
	}
	defer in.Close()
	var inBase *os.File
	if f.diff != "" {
		if inBase, err = openRecording(f.diff); err != nil {
			return err
		}
		defer inBase.Close()
	}
	f.file.path = cmp.Or(f.file.path, "-")
	out, err := f.file.open(a.stdout, "", time.Time{})
	if err != nil {
		return err
	}
	defer out.close()
	if f.lines != "never" {
		if err := a.startFetching(ctx, &f.source, &fetchProgress{a: a, alone: true}); err != nil {
			return err
		}
		defer f.source.close()
	}
	if err := f.confine(out); err != nil {
		return err
	}
	r, err := a.choose(ctx, file, in, f)
	if err != nil {
		return err
	}
	var base *profile.Recording
	if inBase != nil {
		if base, err = a.choose(ctx, f.diff, inBase, f); err != nil {
			return err
		}
		if err := requireCommon(r, file, base, f.diff); err != nil {
			return err
		}
	}
	if f.file.format != "" {
		return a.convert(ctx, out, r, base, f)
	}
	return a.tables(ctx, out, file, r, base, f)
}

// confine gives up all rights except to read the folders that the user has named.
func (f *viewFlags) confine(out *pendingFile) error {
	folders := f.source.folders()
	if len(folders) == 0 {
		return out.confine(nil)
	}
	return out.confine(folders, unix.CAP_DAC_READ_SEARCH)
}

// tables writes tables, for people or as JSON.
func (a *app) tables(
	ctx context.Context, out *pendingFile, file string, r, base *profile.Recording, f *viewFlags,
) error {
	o := report.TopOptions{
		Terminal: a.terminal(), Rows: f.top, ByThread: f.byThread, Full: f.full, Idle: f.idle,
		Plumbing: f.plumbing, Lines: f.lines == "always",
	}
	if f.sort == "cum" {
		o.Sort = report.Cum
	}
	r, base = f.span(r), f.span(base)
	encode := func(w io.Writer) error { return report.Top(w, r, o) }
	if f.tableOfWaits() && !f.json {
		return a.writeCalls(ctx, out, file, func(w io.Writer) error { return report.Waits(w, r, o) })
	}
	if calls, ok := f.calls(o); ok {
		encode = func(w io.Writer) error { return report.Calls(w, r, calls) }
		if f.json {
			encode = func(w io.Writer) error { return report.CallsJSON(w, r, calls) }
		}
		return a.writeCalls(ctx, out, file, encode)
	}
	switch {
	case f.json && base != nil:
		encode = func(w io.Writer) error { return report.DiffJSON(w, base, r, o) }
	case f.json:
		encode = func(w io.Writer) error { return report.TopJSON(w, r, o) }
	case base != nil:
		encode = func(w io.Writer) error { return report.Diff(w, base, r, o) }
	}
	return a.writeView(ctx, out, encode)
}

// convert writes another format.
func (a *app) convert(ctx context.Context, out *pendingFile, r, base *profile.Recording, f *viewFlags) error {
	if err := a.forTerminal(f.file); err != nil {
		return err
	}
	a.tellMode(r, f.file.format)
	o := export.Options{Base: base, ByThread: f.byThread, Idle: f.idle, ByWait: f.by == byWait}
	return a.writeView(ctx, out, func(w io.Writer) error { return export.Encode(w, r, f.file.format, o) })
}

// writeView writes to a file, or to standard output.
func (a *app) writeView(ctx context.Context, out *pendingFile, encode func(io.Writer) error) error {
	return out.print(func(w io.Writer) error {
		return encode(contextWriter{ctx, &boundedWriter{w, export.MaxOutput}})
	})
}

// openRecording opens a recording, or standard input.
func openRecording(file string) (*os.File, error) {
	if file == "-" {
		return os.Stdin, nil
	}
	in, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", file, unwrapPath(err))
	}
	return in, nil
}

// read reads a recording from a file.
func (a *app) read(ctx context.Context, file string, in io.Reader) (*profile.Recording, error) {
	var r *profile.Recording
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, err = export.ReadRecording(contextReader{ctx, in})
	}()
	select {
	case <-done:
	case <-ctx.Done(): // a blocked read from a pipe would not notice the end of ctx
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", file, unwrapPath(err))
	}
	return r, nil
}

// boundedWriter refuses to write more than left bytes.
type boundedWriter struct {
	io.Writer
	left int
}

func (w *boundedWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, export.ErrTooLarge
	}
	return w.Writer.Write(p)
}

// contextReader and contextWriter return an error once their context has ended.
type (
	contextReader struct {
		ctx context.Context
		io.Reader
	}
	contextWriter struct {
		ctx context.Context
		io.Writer
	}
)

func (r contextReader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.Read(p)
}

func (w contextWriter) Write(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	return w.Writer.Write(p)
}
