package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"clrsnap"
	"clrsnap/profile"
	"clrsnap/report"

	"github.com/spf13/cobra"
)

// locksFlags are the flags of the verb locks. The flags shared with the verb stack are in stack.
type locksFlags struct {
	stack     stackFlags
	dot       bool
	svg, html string // the picture's file; empty: none
	all       bool
	awaits    string        // when to look for permits of async methods
	failOn    string        // which finding has the exit status 3
	watch     time.Duration // how long to wait between two looks; 0: one look
}

// watchEvery is the default time between two looks of --watch.
const watchEvery = 2 * time.Second

func newLocks(a *app) *cobra.Command {
	f := locksFlags{stack: stackFlags{
		group: "auto", lines: "auto", inlined: "proven", async: "auto", generics: "exact",
	}}
	cmd := &cobra.Command{
		Use:   "locks {PID | --core FILE}",
		Short: "Show who waits for whom: locks, their owners and waiters, deadlocks",
		Long: `Show which locks the threads of a process wait for, who holds each of them, and where in
the program's own code the owner and the waiters are. Deadlocks come first, each in one
sentence. The locks that block the most threads come next.

What counts as a deadlock:
  Threads that wait for one another in a circle. Each of them waits for a monitor, a
  System.Threading.Lock, a ReaderWriterLockSlim, the end of a thread, a task that another
  member runs, or a static constructor that another member runs. A thread that only waits
  for a member is a victim, and not a member. A lock whose owner has ended without leaving
  it counts as well: nobody can ever leave it.

  It is a fact. All waits of a circle are proved to have been there at the same time: none
  of its threads has run while they were read. Otherwise it is only suspected. So is a
  circle that ends by itself, because one of the waits has a timeout.

  Semaphores and events have no owner: anybody can release them. But code that is between
  Wait and Release most likely holds a permit, on a thread or suspended at an await. Circles
  of such are called likely deadlocks. The managed heap is read for them, which takes up to
  1.5 seconds; --awaits=never does without.

The exit status is 3 if there is a deadlock, so that a script or a probe can ask. What is
only suspected does not count, nor does what is likely without --fail-on likely. It is 1
if the stack of a thread is missing and no deadlock is found.

Threads are stopped as rarely as by clrsnap stack. No thread that is blocked is stopped.

  --watch       look again every two seconds, until Ctrl-C; --watch=500ms for another time
  --all         every waiter, the wait of an asynchronous Main, and the locks that nobody waits for
  --svg, --html a picture of who waits for whom, in one file, besides the text
  --dot         the graph for Graphviz
`,
		Example: `  clrsnap locks 4242                        who waits for whom?
  clrsnap locks 4242 >/dev/null; [ $? = 3 ] && echo deadlock
  clrsnap locks 4242 --json | jq -r '.deadlocks[].text'
  clrsnap locks 4242 --html locks.html      a picture to send
  clrsnap locks 4242 --dot | dot -Tpng > locks.png
  clrsnap locks --core core.4242            who waited for whom when it crashed`,
		Args:              func(cmd *cobra.Command, args []string) error { return f.stack.checkArgs(cmd, args) },
		ValidArgsFunction: completePID,
	}
	f.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.check(cmd); err != nil {
			return err
		}
		of, err := a.subject(&f.stack, args)
		if err != nil {
			return err
		}
		return a.locks(cmd.Context(), of, &f)
	}
	return cmd
}

func (f *locksFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&f.all, "all", false, "every waiter, the wait of an asynchronous Main, and the locks that nobody waits for")
	fs.DurationVar(&f.watch, "watch", 0, "look again and again, with this `time` between two looks; at least 100ms")
	fs.Lookup("watch").NoOptDefVal = watchEvery.String()
	fs.StringVar(&f.awaits, "awaits", "auto",
		"`when` to look for permits of semaphores that threads and suspended async methods hold: auto (if the heap "+
			"can be read within 1.5 s), always or never")
	fs.StringVar(&f.failOn, "fail-on", "certain",
		"`which` deadlocks the exit status 3 stands for: certain (those that are proved) or likely (all but "+
			"suspected ones)")
	complete(cmd, "awaits", "auto", "always", "never")
	complete(cmd, "fail-on", "certain", "likely")
	fs.BoolVar(&f.stack.text.Short, "short", false, "names without namespaces and parameters")
	fs.BoolVar(&f.stack.text.Full, "full", false, "names of any width")
	f.stack.source.register(fs)
	maxPauseFlag(fs, &f.stack.maxPause)
	f.stack.registerCore(fs)
	fs.BoolVar(&f.stack.json, "json", false, "as JSON (docs/json.md)")
	fs.BoolVar(&f.dot, "dot", false, "as a graph for Graphviz")
	fs.StringVarP(&f.stack.output, "output", "o", "", "write to this `file`; - is standard output")
	fs.StringVar(&f.svg, "svg", "", "write a picture of who waits for whom to this `file`, too")
	fs.StringVar(&f.html, "html", "", "write a page with that picture and the stacks to this `file`, too")
}

// check refuses flags that make no sense.
func (f *locksFlags) check(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	switch {
	case f.stack.json && f.dot:
		return usagef("--json and --dot exclude each other: both choose what is written")
	case f.dot && (f.all || f.stack.text.Short || f.stack.text.Full):
		return usagef("--dot has everything, and names of its own: leave out --all, --short and --full")
	case f.stack.json && (f.all || f.stack.text.Short || f.stack.text.Full):
		return usagef("--json has everything, with names of any width: leave out --all, --short and --full")
	case given("svg") && given("html"):
		return usagef("--svg and --html exclude each other: the page of --html has the picture in it")
	case given("svg") && f.svg == "" || given("html") && f.html == "":
		return usagef("the picture needs a file: write --svg locks.svg or --html locks.html")
	case f.svg == "-" || f.html == "-":
		return usagef("the picture needs a file, not standard output, which has the text: write --svg locks.svg")
	case f.picture() != "" && given("output"):
		return usagef("-o and a picture exclude each other: the text goes to standard output then")
	case given("watch") && f.watch < 100*time.Millisecond:
		return usagef("--watch=%v is too short: give 100ms or more", f.watch)
	case f.watch > 0 && (given("output") || f.picture() != "" || f.dot):
		return usagef("--watch shows one look after the other: it writes text or --json to standard output")
	}
	if err := oneOf("awaits", f.awaits, "auto", "always", "never"); err != nil {
		return err
	}
	if err := oneOf("fail-on", f.failOn, "certain", "likely"); err != nil {
		return err
	}
	if f.failOn == "likely" && f.awaits == "never" {
		return usagef("--fail-on likely needs what --awaits never leaves out: leave out one of them")
	}
	f.stack.permits = permitsModes[f.awaits]
	_, err := f.stack.check()
	return err
}

// permitsModes are the values of --awaits.
var permitsModes = map[string]clrsnap.PermitsMode{
	"auto": clrsnap.PermitsSoon, "always": clrsnap.PermitsAlways, "never": clrsnap.PermitsNever,
}

// picture is the file of the picture; empty: none is wanted.
func (f *locksFlags) picture() string { return cmp.Or(f.svg, f.html) }

func (a *app) locks(ctx context.Context, of subject, f *locksFlags) error {
	out, err := (&outputFile{path: cmp.Or(f.picture(), f.stack.output, "-")}).open(a.stdout, "", time.Time{})
	if err != nil {
		return err
	}
	defer out.close()
	p, err := a.open(ctx, of, &f.stack, out)
	defer f.stack.source.close()
	if err != nil {
		return err
	}
	defer p.Close()
	if !p.HasLocks() && !p.HasRuntime() {
		return fmt.Errorf("%s has no .NET runtime that can be read, and so no locks: clrsnap stack --native %s shows "+
			"native stacks", of.name, of.again)
	}
	for _, u := range p.Unknown() {
		if u.Contract == "SyncBlock" {
			return fmt.Errorf("the locks of %s are not known: clrsnap stack %s shows what is", of.name, of.again)
		}
	}
	for {
		found, err := a.lookAtLocks(ctx, p, out, f)
		if f.watch == 0 || err != nil {
			return a.verdict(found, err)
		}
		select {
		case <-ctx.Done():
			return a.verdict(found, nil)
		case <-time.After(f.watch):
		}
	}
}

// verdict is the exit status of a look that has found a deadlock, whatever went wrong afterwards, or else the look's
// error.
func (a *app) verdict(found bool, err error) error {
	if !found {
		return err
	}
	if err != nil {
		say(a.stderr, "warning: %v", err)
	}
	return statusError(exitFound)
}

// lookAtLocks takes a snapshot and shows who waits for whom. found: there is a deadlock, and the deadlock is shown. The
// error is why the look, or --watch, ends.
func (a *app) lookAtLocks(ctx context.Context, p *clrsnap.Process, out *pendingFile, f *locksFlags) (
	found bool, err error,
) {
	watch := a.watch(ctx, &threadFilter{})
	s, err := p.SnapshotWaits(ctx, watch.filter)
	watch.done()
	if s == nil {
		return false, err
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = nil // the context's cause says more
	}
	g := s.WaitGraph()
	if werr := a.writeLocks(s, g, out, f); werr != nil {
		return false, werr
	}
	found = len(g.Deadlocks) > 0 || f.failOn == "likely" && len(g.Likely) > 0
	switch cause := context.Cause(ctx); {
	case err != nil:
		return found, partial(err, s)
	case cause != nil && f.watch == 0:
		return found, partial(cause, s)
	}
	if n := s.Missing(); n > 0 {
		say(a.stderr, "warning: the stacks of %d of %d threads are missing: what they wait for is not known", n,
			len(s.Threads)+s.Unlisted)
		if !found && f.watch == 0 {
			return false, statusError(exitFailure)
		}
	}
	return found, nil
}

// writeLocks writes the text, JSON or graph, and the picture.
func (a *app) writeLocks(s *profile.Snapshot, g *profile.WaitGraph, out *pendingFile, f *locksFlags) error {
	text := out
	if f.picture() != "" {
		draw := report.WaitGraphSVG
		if f.html != "" {
			draw = report.WaitGraphHTML
		}
		if err := out.print(func(w io.Writer) error { return draw(w, s, g) }); err != nil {
			return err
		}
		text = &pendingFile{path: "-", stdout: a.stdout}
	}
	o := report.WaitGraphOptions{Text: f.stack.text, All: f.all}
	o.Text.Color = a.color == "always"
	if text.path == "-" {
		o.Text.Color, o.Text.Width = a.colors(a.stdout), terminalWidth(a.stdout)
	}
	if f.stack.linker != nil {
		o.Text.Link = f.stack.linker.link
	}
	return text.print(func(w io.Writer) error {
		switch {
		case f.stack.json:
			return report.WaitGraphJSON(w, s, g)
		case f.dot:
			return report.WaitGraphDOT(w, s, g)
		}
		return report.WaitGraph(w, s, g, o)
	})
}
