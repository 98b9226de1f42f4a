package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"clrsnap"
	"clrsnap/report"
	"clrsnap/snapshot"
)

// locksFlags are the flags of the verb locks. The flags shared with the verb stack are in stack.
type locksFlags struct {
	stack     stackFlags
	dot       bool
	svg, html string // the picture's file; empty: none
	all       bool
	awaits    string        // when to look for permits of async methods
	failOn    string        // which finding has the exit status 3
	stop      bool          // all threads stand still
	most      time.Duration // how long all threads may stand still; 0: the default
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
		Short: "Show who waits for whom: locks, owners, waiters and deadlocks",
		Long: `Show the locks that threads of a process wait for, the owner of each lock, and where in
the program's own code the owner and the waiters are. Deadlocks come first, each in one
sentence. The locks that block the most threads come next.

Deadlocks:
  In a deadlock threads wait for one another in a circle. Each member waits for a lock that
  another member holds (a monitor, System.Threading.Lock, ReaderWriterLockSlim or Mutex), for
  the end of another member, or for a task or a static constructor that another member runs. A
  thread that only waits for a member is a victim. A lock whose owner has ended without
  leaving the lock is a deadlock, too: nobody can ever leave the lock.

  A deadlock is proved: no thread of the circle ran while clrsnap read the waits. Without
  that proof, or if a wait has a timeout, the deadlock is only suspected.

  Semaphores and events have no owner. But code between Wait and Release most likely holds a
  permit, on a thread or suspended at an await. A circle through a permit is a likely
  deadlock. To find these, clrsnap reads the managed heap for up to 1.5 seconds;
  --awaits=never skips this.

Exit status: 3 for a proved deadlock, with --fail-on likely also for a likely one; 1 if a
stack is missing and there is no deadlock; 0 otherwise.

Threads are stopped as rarely as by clrsnap stack. Locks that change hands, or that the garbage
collector moves, are read again a few times. A wait that changed at each read is marked as
uncertain. --stop then looks once more, with all threads stopped for up to two seconds
(--max-pause): everything is of one moment, and no wait is uncertain.

  --watch       look again every two seconds, until Ctrl-C; --watch=500ms for another time
  --all         every waiter, the wait of an asynchronous Main, and locks without waiters
  --svg, --html a picture of who waits for whom, in one file, besides the text
  --dot         the graph for Graphviz
`,
		Example: `  clrsnap locks 4242                        who waits for whom?
  clrsnap locks 4242 >/dev/null; [ $? = 3 ] && echo deadlock
  clrsnap locks 4242 --json | jq -r '.deadlocks[].text'
  clrsnap locks 4242 --stop                 everything of one moment, with all threads stopped
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
	fs.BoolVar(&f.all, "all", false, "every waiter, the wait of an asynchronous Main, and locks without waiters")
	fs.DurationVar(&f.watch, "watch", 0, "look again and again; the `time` between two looks is at least 100ms")
	fs.Lookup("watch").NoOptDefVal = watchEvery.String()
	fs.StringVar(&f.awaits, "awaits", "auto",
		"`when` to look for holders of semaphore permits: auto (if the heap can be read within 1.5 s), always or never")
	fs.StringVar(&f.failOn, "fail-on", "certain",
		"`which` deadlocks give exit status 3: certain (proved), or likely (proved and likely)")
	complete(cmd, "awaits", "auto", "always", "never")
	complete(cmd, "fail-on", "certain", "likely")
	fs.BoolVar(&f.stack.text.Short, "short", false, "names without namespaces and parameters")
	fs.BoolVar(&f.stack.text.Full, "full", false, "names of any width")
	f.stack.source.register(fs)
	fs.BoolVar(&f.stop, "stop", false, "stop all threads while the waits are read, so that everything is of one moment")
	maxPauseFlag(fs, &f.stack.maxPause)
	f.stack.registerCore(fs)
	fs.BoolVar(&f.stack.json, "json", false, "as JSON (docs/json.md)")
	fs.BoolVar(&f.dot, "dot", false, "as a graph for Graphviz")
	fs.StringVarP(&f.stack.output, "output", "o", "", "write to a `file`; - is standard output")
	fs.StringVar(&f.svg, "svg", "", "also write a picture of who waits for whom to a `file`")
	fs.StringVar(&f.html, "html", "", "also write a page with the picture and the stacks to a `file`")
}

// check refuses flags that make no sense.
func (f *locksFlags) check(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	switch {
	case f.stack.json && f.dot:
		return usagef("--json and --dot exclude each other: give one format")
	case f.dot && (f.all || f.stack.text.Short || f.stack.text.Full):
		return usagef("--dot has everything, and names of its own: leave out --all, --short and --full")
	case f.stack.json && (f.all || f.stack.text.Short || f.stack.text.Full):
		return usagef("--json has everything, with names of any width: leave out --all, --short and --full")
	case given("svg") && given("html"):
		return usagef("--svg and --html exclude each other: the page of --html contains the picture")
	case given("svg") && f.svg == "" || given("html") && f.html == "":
		return usagef("the picture needs a file: write --svg locks.svg or --html locks.html")
	case f.svg == "-" || f.html == "-":
		return usagef("the picture needs a file, because standard output has the text: write --svg locks.svg")
	case f.picture() != "" && given("output"):
		return usagef("-o and a picture exclude each other: with a picture the text goes to standard output")
	case given("watch") && f.watch < 100*time.Millisecond:
		return usagef("--watch=%v is too short: give 100ms or more", f.watch)
	case f.watch > 0 && (given("output") || f.picture() != "" || f.dot):
		return usagef("--watch writes text or --json to standard output: leave out --output, --dot, --svg and --html")
	}
	if err := oneOf("awaits", f.awaits, "auto", "always", "never"); err != nil {
		return err
	}
	if err := oneOf("fail-on", f.failOn, "certain", "likely"); err != nil {
		return err
	}
	if f.failOn == "likely" && f.awaits == "never" {
		return usagef("--fail-on likely finds nothing with --awaits never: leave out one of the two")
	}
	if f.stop && given("max-pause") {
		f.most = f.stack.maxPause
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
		return fmt.Errorf("%s has no readable .NET runtime, and so no locks: clrsnap stack --native %s shows native "+
			"stacks", of.name, of.again)
	}
	for _, u := range p.Unknown() {
		if u.Contract == "SyncBlock" {
			return fmt.Errorf("clrsnap cannot read the locks of %s; clrsnap stack %s shows the stacks", of.name,
				of.again)
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
	look := p.SnapshotWaits
	if f.stop {
		look = func(ctx context.Context, filter clrsnap.Filter) (*snapshot.Snapshot, error) {
			return p.SnapshotWaitsAtRest(ctx, filter, f.most)
		}
	}
	s, err := look(ctx, watch.filter)
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
		say(a.stderr, "warning: the stacks of %d of %d threads are missing, and so are the waits of these threads", n,
			len(s.Threads)+s.Unlisted)
		if !found && f.watch == 0 {
			return false, statusError(exitFailure)
		}
	}
	return found, nil
}

// writeLocks writes the text, JSON or graph, and the picture.
func (a *app) writeLocks(s *snapshot.Snapshot, g *snapshot.WaitGraph, out *pendingFile, f *locksFlags) error {
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
	o.Text.Terminal = a.writtenTo(text)
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
