package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"clrsnap"
	"clrsnap/internal/display"
	"clrsnap/report"
	"clrsnap/snapshot"
)

// heapFlags are the flags of the verb heap.
type heapFlags struct {
	coreFlags
	types   string
	roots   string
	strings bool
	retains bool
	limit   int
	diff    string
	every   time.Duration
	looks   int
	maxCPU  float64
	stop    heapStopFlags
	full    bool
	json    bool
	output  string

	format         *heapFormat    // of --output; nil: text or JSON
	pattern, keeps *regexp.Regexp // --type, --roots
}

func newHeap(a *app) *cobra.Command {
	var f heapFlags
	cmd := &cobra.Command{
		Use:   "heap {PID | --core FILE}",
		Short: "Show what fills the managed heap of a process",
		Long: `Show which types have the most objects and bytes on the managed heap. clrsnap walks over all
objects from outside. The program is not stopped unless a flag says so, nothing runs in the
program, and no collection is started: dead objects that have not been collected yet count like
any others. A gigabyte takes about a third of a second of one CPU.

The garbage collector of a running program moves objects. A part of the heap with moved objects is
read again, a few times. The column "consistent" is the share of a generation with a proof that
nothing was moved there while clrsnap read. In the rest objects can be missing or be counted twice,
but their types are always right.

One moment:
  --stop            stops all threads of the program while the heap is read, so that the whole heap
                    is of one moment, and says for how long. The threads go on when the heap is
                    read, when --max-pause is used up, and when clrsnap ends or is killed. If
                    --max-pause is too short, the heap is read without a stop, and a note says so

The generations:
  gen0, gen1     young objects; most of them die soon
  gen2           objects that have survived two collections or more
  large          arrays and strings of 85,000 bytes or more (LOH)
  pinned         arrays that were allocated so that they never move (POH)
  frozen         string literals and other objects that are never collected
"free" is the space between objects, "fragmented" its share in per cent. The column "old %"
is the share of a type's bytes outside gen0 and gen1.

Growth:
  --every 30s       looks again and again, and shows what has grown since the first look
  --diff FILE       compares with an earlier heap, written by clrsnap heap --json

Single objects:
  --type REGEX      the largest objects of the types whose names match, with namespaces:
                    'Shop\.Customer<', '\[\]$'
  --roots REGEX     what keeps the objects of the matching types from being collected: the shortest
                    ways to the objects, from static fields, handles, the queue of finalizers and
                    stacks. Everything on a stack that looks like a reference counts (conservative).
                    Each thread is stopped while its stack is copied. Takes 20 to 40 bytes of
                    memory an object
  --retained        the memory that could not be reached without the objects of each type. Local
                    variables do not count. Takes 40 to 60 bytes of memory an object
  --strings         the texts of the strings that use the most memory; can be secrets

Pictures, and files for other tools, by the file's extension:
` + heapFormatsHelp() + `
With --retained a picture shows how types keep other types alive; with --diff, and at the end of
--every, colours show growth. A .gcdump file has types, sizes, addresses and references of all
objects, and the roots, but no contents of objects: no text of a string. For a .gcdump file stacks
are read, and memory is taken, as with --roots.

With --core the heap is read from a core dump with a heap: of the kernel, of gcore, or of
createdump with type 2 (with heap) or 4 (full).
`,
		Example: `  clrsnap heap 4242                        which types fill the heap?
  clrsnap heap 4242 --every 30s            which types grow?
  clrsnap heap 4242 --json -o before.json  and later:
  clrsnap heap 4242 --diff before.json     what has grown since?
  clrsnap heap 4242 --type '^byte\[\]$'    the largest byte arrays
  clrsnap heap 4242 --roots '^Shop\.Order$'  why are they not collected?
  clrsnap heap 4242 --stop --max-pause 500ms  all of the same moment
  clrsnap heap 4242 -o heap.html           a picture, with search
  clrsnap heap 4242 --retained -o heap.html  a picture of what keeps what
  clrsnap heap 4242 -o heap.gcdump         for Visual Studio and PerfView
  clrsnap heap 4242 --json | jq '.types[] | select(.count > 100000).type'
  clrsnap heap --core core.4242`,
		Args:              func(cmd *cobra.Command, args []string) error { return f.checkArgs(cmd, args) },
		ValidArgsFunction: completePID,
	}
	f.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.check(cmd); err != nil {
			return err
		}
		if err := a.mayBlockWalked(&f.coreFlags); err != nil {
			return err
		}
		return a.heap(cmd.Context(), args, &f)
	}
	return cmd
}

func (f *heapFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVarP(&f.types, "type", "t", "", "list the largest objects of the types that match a `regex`")
	fs.StringVar(&f.roots, "roots", "",
		"show what keeps objects from being collected, for the types that match a `regex`")
	fs.BoolVar(&f.retains, "retained", false, "how much memory the objects of each type keep from being collected")
	fs.BoolVar(&f.strings, "strings", false, "show the texts of the strings that use the most memory; can be secrets")
	fs.IntVarP(&f.limit, "limit", "n", 40, "the `number` of types, objects or texts to show; 0: all")
	fs.StringVar(&f.diff, "diff", "", "show the changes since a `file` was written by heap --json")
	fs.DurationVar(&f.every, "every", 0,
		"look again and again, with a `time` between, and show the growth since the first look")
	fs.IntVar(&f.looks, "looks", 0, "with --every: end after a `number` of looks; 0: with Ctrl-C")
	fs.Float64Var(&f.maxCPU, "max-cpu", 1, "use a `number` of CPUs at most, for example 0.2 or 4")
	f.stop.register(fs, "the heap is")
	fs.BoolVar(&f.full, "full", false, "do not shorten names and texts")
	f.registerCore(fs)
	fs.BoolVar(&f.json, "json", false, "as JSON (docs/json.md), with all types unless --limit is given")
	fs.StringVarP(&f.output, "output", "o", "", "write to a `file`; the extension can choose a format; - is "+
		"standard output")
	completeOutput(cmd, "output", func(offer func(extension, description string)) {
		for _, f := range heapFormats {
			offer(f.extensions[0], f.description)
		}
	})
}

// checkArgs requires a PID or a core dump, and refuses flags for the other.
func (f *heapFlags) checkArgs(cmd *cobra.Command, args []string) error {
	return f.pidOrCore(cmd, args, runningFlag{"every", "a core dump does not change"},
		runningFlag{"max-cpu", "a core dump is read with a single CPU"},
		runningFlag{"stop", "the threads of a core dump stand still"},
		runningFlag{"max-pause", "the threads of a core dump stand still"})
}

// check refuses flags that make no sense.
func (f *heapFlags) check(cmd *cobra.Command) (err error) {
	given := cmd.Flags().Changed
	switch {
	case given("type") && f.types == "":
		return usagef("--type is empty: give a regular expression for names of types")
	case given("roots") && f.roots == "":
		return usagef("--roots is empty: give a regular expression for names of types")
	case given("roots") && (given("type") || given("diff") || given("every")),
		given("retained") && (given("type") || given("diff") || given("every") || given("roots")):
		return usagef("--roots and --retained exclude each other, and --type, --diff and --every: use one at a time")
	case f.limit < 0:
		return usagef("--limit %d: give a number of rows, or 0 for all", f.limit)
	case checkMaxCPU(f.maxCPU) != nil:
		return checkMaxCPU(f.maxCPU)
	case f.stop.check(cmd, f.maxCPU) != nil:
		return f.stop.check(cmd, f.maxCPU)
	case given("every") && f.every < time.Second:
		return usagef("--every %v is too short: give 1s or more", f.every)
	case given("looks") && (!given("every") || f.looks < 2):
		return usagef("--looks is how often to look with --every: 2 times or more")
	case given("every") && (given("diff") || given("type") || given("output") && heapFormatOf(f.output) == nil):
		return usagef("--every writes one table after the other: leave out --diff and --type; with -o, give a " +
			"picture (.html or .svg)")
	case given("diff") && f.diff == "":
		return usagef("--diff is empty: give a file of clrsnap heap --json")
	case given("diff") && given("type"):
		return usagef("--diff and --type exclude each other: --diff is about types, --type about single objects")
	}
	if err := f.checkOutput(cmd); err != nil {
		return err
	}
	if f.types != "" {
		if f.pattern, err = display.TypePattern(f.types); err != nil {
			return usagef("--type %q is not a regular expression: %w", f.types, err)
		}
	}
	if f.roots != "" {
		if f.keeps, err = display.TypePattern(f.roots); err != nil {
			return usagef("--roots %q is not a regular expression: %w", f.roots, err)
		}
	}
	if f.json && !given("limit") {
		f.limit = 0
	}
	return nil
}

// heap shows a heap, or again and again the growth of the heap.
func (a *app) heap(ctx context.Context, args []string, f *heapFlags) error {
	f.collect()
	out, err := (&outputFile{path: cmp.Or(f.output, "-")}).open(a.stdout, "", time.Time{})
	if err != nil {
		return err
	}
	defer out.close()
	var earlier *os.File
	if f.diff != "" {
		if earlier, err = openRecording(f.diff); err != nil {
			return err
		}
		defer earlier.Close()
	}
	p, err := a.openWalked(&f.coreFlags, args, out, clrsnap.Options{})
	if err != nil {
		return err
	}
	defer p.Close()
	a.collect()
	h, err := a.look(ctx, p, f)
	if h == nil {
		return err
	}
	o := report.HeapOptions{Terminal: a.writtenTo(out), Rows: f.limit, Full: f.full}
	if earlier != nil {
		if o.Base, err = f.earlier(out, earlier); err != nil {
			return err
		}
	}
	switch {
	case f.format != nil && (f.every == 0 || err != nil || h.Partial):
		return a.endHeap(ctx, h, err, a.exportHeap(h, o.Base, out, f))
	case f.every == 0 || err != nil || h.Partial:
		return a.endHeap(ctx, h, err, a.writeHeap(h, out, o, f))
	case f.format == nil:
		_, err = a.growth(ctx, p, h, out, o, f)
		return err
	}
	// Text goes to standard output meanwhile, and the difference from the first look to the file.
	o.Terminal = a.terminal()
	last, err := a.growth(ctx, p, h, &pendingFile{path: "-", stdout: a.stdout}, o, f)
	if last == nil {
		return err
	}
	return cmp.Or(a.exportHeap(last, h, out, f), err)
}

// collect turns garbage collection on. The references between objects are few large arrays without pointers: the
// collector can run often, and then little more memory is needed.
func (f *heapFlags) collect() {
	if !f.retains && f.keeps == nil && (f.format == nil || !f.format.graph) {
		collectAbove(100)
		return
	}
	collectAbove(5)
	if collectsAsUsual() {
		debug.SetMemoryLimit(math.MaxInt64)
	}
}

// earlier reads the heap for the comparison. The file can be hostile: all rights are given up before.
func (f *heapFlags) earlier(out *pendingFile, in io.Reader) (*snapshot.Heap, error) {
	if f.dump == "" {
		if err := out.confine(nil); err != nil {
			return nil, err
		}
	}
	h, err := report.ReadHeapJSON(in)
	if err != nil {
		return nil, fmt.Errorf("cannot compare with %s: %w", f.diff, err)
	}
	return h, nil
}

// endHeap returns the error of the command.
func (a *app) endHeap(ctx context.Context, h *snapshot.Heap, err, written error) error {
	if written != nil || err != nil {
		return cmp.Or(written, err)
	}
	return interruptedWalk(ctx, h.Partial)
}

// growth looks again and again, and shows the changes since the first look. growth returns the last whole look.
func (a *app) growth(
	ctx context.Context, p *clrsnap.Process, first *snapshot.Heap, out *pendingFile, o report.HeapOptions, f *heapFlags,
) (last *snapshot.Heap, err error) {
	if err := a.writeHeap(first, out, o, f); err != nil {
		return nil, err
	}
	o.Base, last = first, first
	for n := 2; ; n++ {
		select {
		case <-ctx.Done():
			return last, nil
		case <-time.After(f.every):
		}
		h, err := a.look(ctx, p, f)
		if h == nil || h.Partial {
			return last, err
		}
		if last = h; !f.json {
			fmt.Fprintln(a.stdout)
		}
		if werr := a.writeHeap(h, out, o, f); werr != nil || err != nil || n == f.looks {
			return last, cmp.Or(werr, err)
		}
	}
}

// look walks the heap once. On a terminal look shows the progress, if the walk takes long.
func (a *app) look(ctx context.Context, p *clrsnap.Process, f *heapFlags) (*snapshot.Heap, error) {
	o := clrsnap.HeapOptions{
		Type: f.pattern, Roots: f.keeps, Retained: f.retains, MaxInstances: f.limit, MaxCPU: f.maxCPU,
		Graph: f.format != nil && f.format.graph, Dominators: f.format != nil && f.retains,
		Owners: f.format != nil && !f.format.graph,
	}
	f.stop.apply(&o)
	if f.limit == 0 {
		o.MaxInstances = maxListed
	}
	if f.strings {
		o.MaxStrings = o.MaxInstances
	}
	progress := walkProgress{to: a.stderr, begin: time.Now()}
	if isTerminal(a.stderr) {
		o.Progress, o.Doing = progress.show, progress.doing
	}
	h, err := p.Heap(ctx, o)
	progress.end()
	return h, err
}

// maxListed bounds lists of objects and of texts without a limit.
const maxListed = 100_000

// writeHeap writes a heap to standard output or a file.
func (a *app) writeHeap(h *snapshot.Heap, out *pendingFile, o report.HeapOptions, f *heapFlags) error {
	return out.print(func(w io.Writer) error {
		if f.json {
			return report.HeapJSON(w, h, o)
		}
		return report.HeapText(w, h, o)
	})
}
