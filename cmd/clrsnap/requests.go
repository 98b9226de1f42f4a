package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"clrsnap"
	"clrsnap/report"
	"clrsnap/snapshot"
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
		Short: "Show the HTTP requests that a process is serving or waits for",
		Long: `Show what an ASP.NET Core service is doing for its clients right now, without preparation:
the requests that the server Kestrel is serving, and the calls of HttpClient under way. Requests
for one path that wait in the same place are shown once, with their number and ages.

A request has the object of its wait, and the async methods that lead there, or the stack of the
running thread. The age is shown if the server keeps the start time: with any logging, metrics or
events. A call waits for a connection or for the answer. The age of a call is shown if HttpClient
has a timeout, as by default. At the end come the connections to each server, and how many calls
queue for each server.

clrsnap takes the stacks of all threads, as clrsnap stack does, and reads the rest from the
managed heap, without a stop, and without running anything in the program. A request or a call
that has begun or ended meanwhile can be missing. While objects change or move during
the read clrsnap looks again, for 3 to 9 seconds. --stop then looks once more, with all threads
stopped: everything is of one moment.

The query of a path, from "?" on, may be secret: --query shows queries. Paths may be secret as
well, and are always shown.

How far a call has come:
  connection            the call waits for a free or a new connection
  answer                the call has a connection; the head of the answer has not come yet
  body                  the head of the answer has come: the program has not read all of the answer
  open                  the call has a connection; a thread waits in HttpClient.Send, so more is not
                        known

With --core the heap is read from a core dump with a heap: of the kernel, of gcore, or of
createdump with type 2 (with heap) or 4 (full).
`,
		Example: `  clrsnap requests 4242               which requests are there?
  clrsnap requests 4242 --limit 5     the five largest groups
  clrsnap requests 4242 --json | jq '.requests[] | {count, method, path, state}'
  clrsnap requests 4242 --json | jq '.pools[] | select(.queued > 0)'
  clrsnap requests 4242 --stop        everything of one moment, with all threads stopped
  clrsnap requests --core core.4242`,
	}, chainTexts{"groups of requests, and of calls", "groups", "requests and calls are"}, func(fs *pflag.FlagSet) {
		fs.BoolVar(&f.query, "query", false, "show queries as well; can be secrets")
	}, func(ctx context.Context, args []string) error { return a.requests(ctx, args, &f) })
}

// requests shows the requests in flight.
func (a *app) requests(ctx context.Context, args []string, f *requestsFlags) error {
	v := chainWalk[snapshot.Requests]{
		walk: func(ctx context.Context, p *clrsnap.Process, show shownProgress) (*snapshot.Requests, error) {
			return p.Requests(ctx, clrsnap.RequestsOptions{
				MaxCPU: f.maxCPU, Progress: show.walked, Doing: show.doing, Stop: f.stop.stop,
				MaxPause: f.stop.maxPause,
			})
		},
		partial: func(r *snapshot.Requests) bool { return r.Partial },
		print: func(w io.Writer, r *snapshot.Requests, l chainLook) error {
			o := report.RequestsOptions{
				Terminal: l.Terminal, Rows: f.limit, Query: f.query, Full: f.full, Plumbing: f.plumbing, Link: l.link,
			}
			if f.json {
				return report.RequestsJSON(w, r, o)
			}
			return report.RequestsText(w, r, o)
		},
	}
	return v.run(ctx, a, args, &f.chainFlags)
}
