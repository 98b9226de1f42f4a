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

func newTasks(a *app) *cobra.Command {
	var f chainFlags
	return f.command(a, &cobra.Command{
		Use:   "tasks {PID | --core FILE}",
		Short: "Show what the async methods of a process wait for",
		Long: `Show the async methods that are suspended in an await. No thread runs these methods, so no stack
shows them. A chain shows who awaits whom, from the inside out, with the lines of the awaits, and
what the innermost method waits for. Equal chains are shown once, with their number. Below are the
state of the thread pool, with the work that waits for a thread, and the armed timers.

clrsnap reads all of this from the managed heap. The program is not stopped, and nothing runs in
the program. The heap changes meanwhile: a chain is shown as of one moment, or left out and
counted. While anything is left out clrsnap looks again, for 3 seconds. --stop then looks once
more, with all threads stopped: everything is of one moment. A method with an unreachable
task counts until the garbage collector has freed the task.

An await waits for:
  timer                 Task.Delay or a PeriodicTimer, with the time until the timer is due
  socket, pipe, channel an operation of System.Net.Sockets, System.IO.Pipelines, System.Threading.Channels
  semaphore             SemaphoreSlim.WaitAsync
  TaskCompletionSource  somebody's SetResult
  task                  code that runs, or is to run, for example of Task.Run
  WhenAll, WhenAny      several tasks; async methods among them have chains of their own
  method                another async method; the method's chain does not lead here
  source                another IValueTaskSource
  yield                 something unknown

The states:
  waiting               the awaited operation is not complete
  ready                 the operation is complete (or faulted, or canceled): the method goes on
                        when a thread of the pool has time
  running               a thread runs the innermost method: clrsnap stack shows the thread

With --core the heap is read from a core dump with a heap: of the kernel, of gcore, or of
createdump with type 2 (with heap) or 4 (full).
`,
		Example: `  clrsnap tasks 4242                  what do the async methods wait for?
  clrsnap tasks 4242 --limit 5        the five most frequent chains
  clrsnap tasks 4242 --json | jq '.chains[] | select(.waitsFor.kind == "socket") | .count'
  clrsnap tasks 4242 --json | jq .pool
  clrsnap tasks 4242 --stop           everything of one moment, with all threads stopped
  clrsnap tasks --core core.4242`,
	}, chainTexts{"different chains and timers", "chains", "the async methods are"}, func(*pflag.FlagSet) {},
		func(ctx context.Context, args []string) error { return a.tasks(ctx, args, &f) })
}

// tasks shows the waits of async methods.
func (a *app) tasks(ctx context.Context, args []string, f *chainFlags) error {
	v := chainWalk[snapshot.Tasks]{
		walk: func(ctx context.Context, p *clrsnap.Process, show shownProgress) (*snapshot.Tasks, error) {
			return p.Tasks(ctx, clrsnap.TasksOptions{
				MaxCPU: f.maxCPU, Progress: show.walked, Doing: show.doing, Stop: f.stop.stop,
				MaxPause: f.stop.maxPause,
			})
		},
		partial: func(t *snapshot.Tasks) bool { return t.Partial },
		print: func(w io.Writer, t *snapshot.Tasks, l chainLook) error {
			o := report.TasksOptions{
				Terminal: l.Terminal, Rows: f.limit, Full: f.full, Plumbing: f.plumbing, Link: l.link,
			}
			if f.json {
				return report.TasksJSON(w, t, o)
			}
			return report.TasksText(w, t, o)
		},
	}
	return v.run(ctx, a, args, f)
}
