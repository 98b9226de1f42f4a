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

// requestsFlags are the flags of the verb requests.
type requestsFlags struct {
	coreFlags
	source   sourceFlags
	limit    int
	maxCPU   float64
	lines    string
	full     bool
	plumbing bool
	query    bool
	json     bool
	output   string
	linker   *linker // nil: source lines have no links
}

func newRequests(a *app) *cobra.Command {
	var f requestsFlags
	cmd := &cobra.Command{
		Use:   "requests {PID | --core FILE}",
		Short: "Show which HTTP requests a process is serving, and which it waits for",
		Long: `Show what an ASP.NET Core service is doing for its clients right now, without any preparation
of it: the requests that its server Kestrel is serving, and the calls of HttpClient that are under
way. Requests for one path that wait in the same place are shown once, with their number and ages.

A request is shown with what it waits for, and the async methods that lead there, or the stack of
the thread that runs it. Its age is shown if the server keeps it, which is so as soon as anything
may be logged at all. Of a call it is shown whether it waits for a connection or for the answer; its
age if HttpClient has a timeout, which it has by default. At the end there are the connections to
each server, and how many calls queue for them.

For that, the stacks of all threads are taken, as clrsnap stack does. The rest is read from the
managed heap: the program is not stopped for it, and nothing runs in it. What has begun or ended
meanwhile may be shown or not.

Queries, the part of a path from "?" on, may be secret: they are shown with --query. Paths may be as
well, and are always shown.

How far a call has come:
  connection            it waits for a connection: one that is free, or that is being made
  answer                it has one: the head of the answer has not come yet
  body                  the head of the answer has come: the program has not read all of it
  open                  it has one; more is not known, because a thread waits for it (HttpClient.Send)

With --core the heap is read from a core dump that has it: of the kernel, of gcore, or of
createdump with type 2 (with heap) or 4 (full).
`,
		Example: `  clrsnap requests 4242               what is it serving?
  clrsnap requests 4242 --limit 5     the five largest groups
  clrsnap requests 4242 --json | jq '.requests[] | {count, method, path, state}'
  clrsnap requests 4242 --json | jq '.pools[] | select(.queued > 0)'
  clrsnap requests --core core.4242`,
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
		return a.requests(cmd.Context(), args, &f)
	}
	return cmd
}

func (f *requestsFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.IntVarP(&f.limit, "limit", "n", 40, "show this `number` of groups of requests, and of calls; 0: all")
	fs.StringVar(&f.lines, "lines", "auto", "`when` to show source lines: auto (where there are PDBs) or never")
	f.source.register(fs)
	fs.BoolVar(&f.query, "query", false, "show queries as well: they may be secret")
	fs.BoolVar(&f.plumbing, "plumbing", false, "each method of .NET's plumbing: of ASP.NET Core, for example")
	fs.BoolVar(&f.full, "full", false, "leave nothing out: any width, nothing folded")
	fs.Float64Var(&f.maxCPU, "max-cpu", 1, "use this `number` of CPUs at most, such as 0.2 or 4")
	f.registerCore(fs)
	fs.BoolVar(&f.json, "json", false, "as JSON (docs/json.md), with all groups unless --limit is given")
	fs.StringVarP(&f.output, "output", "o", "", "write to this `file`; - is standard output")
	complete(cmd, "lines", "auto", "never")
}

// checkArgs requires a PID or a core dump, and refuses flags that are for the other.
func (f *requestsFlags) checkArgs(cmd *cobra.Command, args []string) error {
	if f.json && !cmd.Flags().Changed("limit") {
		f.limit = 0
	}
	return f.pidOrCore(cmd, args, runningFlag{"max-cpu", "a core dump is read with one CPU"})
}

// check refuses flags that make no sense.
func (f *requestsFlags) check() error {
	switch {
	case f.limit < 0:
		return usagef("--limit %d: give a number of groups, or 0 for all", f.limit)
	case f.maxCPU < 0.01 || f.maxCPU > 64:
		return usagef("--max-cpu %g: give a number of CPUs from 0.01 to 64", f.maxCPU)
	}
	if err := oneOf("lines", f.lines, "auto", "never"); err != nil {
		return err
	}
	return f.source.check()
}

func (f *requestsFlags) options() clrsnap.Options {
	return clrsnap.Options{
		Lines: f.lines != "never", Symbols: f.source.symbols, SourceRoots: f.source.sourceRoots(),
	}
}

// requests shows which requests are in flight.
func (a *app) requests(ctx context.Context, args []string, f *requestsFlags) error {
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
	o := clrsnap.RequestsOptions{MaxCPU: f.maxCPU}
	progress := walkProgress{to: a.stderr, begin: time.Now()}
	if isTerminal(a.stderr) {
		o.Progress = progress.show
	}
	r, err := p.Requests(ctx, o)
	progress.end()
	if r == nil {
		return err
	}
	if werr := a.writeRequests(r, out, f); werr != nil || err != nil {
		return cmp.Or(werr, err)
	}
	return interruptedWalk(ctx, r.Partial)
}

// writeRequests writes what was found to standard output or a file.
func (a *app) writeRequests(r *profile.Requests, out *pendingFile, f *requestsFlags) error {
	o := report.RequestsOptions{Rows: f.limit, Query: f.query, Full: f.full, Plumbing: f.plumbing, Color: a.color == "always"}
	if out.path == "-" {
		o.Color, o.Width = a.colors(a.stdout), terminalWidth(a.stdout)
	}
	if f.linker != nil {
		o.Link = f.linker.link
	}
	return out.print(func(w io.Writer) error {
		if f.json {
			return report.RequestsJSON(w, r, o)
		}
		return report.RequestsText(w, r, o)
	})
}
