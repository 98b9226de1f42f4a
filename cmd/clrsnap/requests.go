package main

import (
	"context"
	"io"

	"clrsnap"
	"clrsnap/profile"
	"clrsnap/report"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// requestsFlags are the flags of the verb requests.
type requestsFlags struct {
	chainFlags
	query bool
}

func newRequests(a *app) *cobra.Command {
	var f requestsFlags
	return f.command(a, &cobra.Command{
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
	}, chainTexts{"groups of requests, and of calls", "groups"}, func(fs *pflag.FlagSet) {
		fs.BoolVar(&f.query, "query", false, "show queries as well: they may be secret")
	}, func(ctx context.Context, args []string) error { return a.requests(ctx, args, &f) })
}

// requests shows the requests in flight.
func (a *app) requests(ctx context.Context, args []string, f *requestsFlags) error {
	v := chainWalk[profile.Requests]{
		walk: func(ctx context.Context, p *clrsnap.Process, show func(done, all uint64)) (*profile.Requests, error) {
			return p.Requests(ctx, clrsnap.RequestsOptions{MaxCPU: f.maxCPU, Progress: show})
		},
		partial: func(r *profile.Requests) bool { return r.Partial },
		print: func(w io.Writer, r *profile.Requests, l chainLook) error {
			o := report.RequestsOptions{
				Rows: f.limit, Query: f.query, Full: f.full, Plumbing: f.plumbing, Color: l.color, Width: l.width,
				Link: l.link,
			}
			if f.json {
				return report.RequestsJSON(w, r, o)
			}
			return report.RequestsText(w, r, o)
		},
	}
	return v.run(ctx, a, args, &f.chainFlags)
}
