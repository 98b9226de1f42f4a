package main

import (
	"cmp"
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"clrsnap"
	"clrsnap/report"
	"clrsnap/snapshot"
)

// chainFlags are the flags of the verbs tasks and requests, which show the async methods on the managed heap.
type chainFlags struct {
	coreFlags
	source   sourceFlags
	limit    int
	maxCPU   float64
	stop     heapStopFlags
	lines    string
	full     bool
	plumbing bool
	json     bool
	output   string
	linker   *linker // nil: source lines have no links
}

// chainTexts are the words of a verb for its results.
type chainTexts struct {
	limited string // "different chains and timers"
	all     string // "chains"
	things  string // "the async methods are"
}

// command completes a verb: its flags, with flags of the verb's own, and its run.
func (f *chainFlags) command(
	a *app, cmd *cobra.Command, texts chainTexts, own func(*pflag.FlagSet), run func(context.Context, []string) error,
) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error { return f.checkArgs(cmd, args) }
	cmd.ValidArgsFunction = completePID
	f.register(cmd, texts, own)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := cmp.Or(f.check(texts), f.stop.check(cmd, f.maxCPU)); err != nil {
			return err
		}
		if err := a.mayBlockWalked(&f.coreFlags); err != nil {
			return err
		}
		return run(cmd.Context(), args)
	}
	return cmd
}

func (f *chainFlags) register(cmd *cobra.Command, texts chainTexts, own func(*pflag.FlagSet)) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.IntVarP(&f.limit, "limit", "n", 40, "the `number` of "+texts.limited+" to show; 0: all")
	fs.StringVar(&f.lines, "lines", "auto", "`when` to show source lines: auto (where there are PDBs) or never")
	f.source.register(fs)
	own(fs)
	fs.BoolVar(&f.plumbing, "plumbing", false, "every framework method: of ASP.NET Core, for example")
	fs.BoolVar(&f.full, "full", false, "leave nothing out: any width, nothing folded")
	fs.Float64Var(&f.maxCPU, "max-cpu", 1, "use a `number` of CPUs at most, for example 0.2 or 4")
	f.stop.register(fs, texts.things)
	f.registerCore(fs)
	fs.BoolVar(&f.json, "json", false, "as JSON (docs/json.md), with all "+texts.all+" unless --limit is given")
	fs.StringVarP(&f.output, "output", "o", "", "write to a `file`; - is standard output")
	complete(cmd, "lines", "auto", "never")
}

// checkArgs requires a PID or a core dump, and refuses flags for the other.
func (f *chainFlags) checkArgs(cmd *cobra.Command, args []string) error {
	if f.json && !cmd.Flags().Changed("limit") {
		f.limit = 0
	}
	const because = "the threads of a core dump stand still"
	return f.pidOrCore(cmd, args, runningFlag{"max-cpu", "a core dump is read with a single CPU"},
		runningFlag{"stop", because}, runningFlag{"max-pause", because})
}

// check refuses flags that make no sense.
func (f *chainFlags) check(texts chainTexts) error {
	switch {
	case f.limit < 0:
		return usagef("--limit %d: give a number of %s, or 0 for all", f.limit, texts.all)
	case checkMaxCPU(f.maxCPU) != nil:
		return checkMaxCPU(f.maxCPU)
	}
	if err := oneOf("lines", f.lines, "auto", "never"); err != nil {
		return err
	}
	return f.source.check()
}

// checkMaxCPU refuses a --max-cpu that makes no sense, NaN included.
func checkMaxCPU(n float64) error {
	if n >= 0.01 && n <= 64 {
		return nil
	}
	return usagef("--max-cpu %g: give a number of CPUs from 0.01 to 64", n)
}

func (f *chainFlags) options() clrsnap.Options {
	return clrsnap.Options{
		Lines: f.lines != "never", Symbols: f.source.symbols, SourceRoots: f.source.sourceRoots(),
	}
}

// chainLook is the form of the result on the terminal, or in a file.
type chainLook struct {
	report.Terminal
	link func(*snapshot.SourceLine) string
}

// shownProgress has the functions that show how far a look has come; nil: nobody looks.
type shownProgress struct {
	walked func(done, all uint64)
	doing  func(what string, done float64)
}

// chainWalk is the work of a verb after its target is open. T is the result.
type chainWalk[T any] struct {
	walk    func(context.Context, *clrsnap.Process, shownProgress) (*T, error)
	partial func(*T) bool // the walk was ended early
	print   func(io.Writer, *T, chainLook) error
}

// run opens a process or a core dump, walks its heap, and writes the result to standard output or a file.
func (v *chainWalk[T]) run(ctx context.Context, a *app, args []string, f *chainFlags) error {
	collectLater(200)
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
	a.collect()
	progress := walkProgress{to: a.stderr, begin: time.Now()}
	var show shownProgress
	if isTerminal(a.stderr) {
		show = shownProgress{progress.show, progress.doing}
	}
	found, err := v.walk(ctx, p, show)
	progress.end()
	if found == nil {
		return err
	}
	look := a.chainLook(out, f)
	werr := out.print(func(w io.Writer) error { return v.print(w, found, look) })
	if werr != nil || err != nil {
		return cmp.Or(werr, err)
	}
	return interruptedWalk(ctx, v.partial(found))
}

func (a *app) chainLook(out *pendingFile, f *chainFlags) chainLook {
	l := chainLook{Terminal: a.writtenTo(out)}
	if f.linker != nil {
		l.link = f.linker.link
	}
	return l
}
