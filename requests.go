package clrsnap

import (
	"context"
	"time"

	"clrsnap/internal/requests"
	"clrsnap/internal/session"
	"clrsnap/snapshot"
)

// RequestsOptions say how the heap is looked at. The zero value has good defaults.
type RequestsOptions struct {
	// MaxCPU is how many CPUs may be used, such as 0.5; 0 stands for 1.
	MaxCPU float64
	// Progress is called from time to time with the number of bytes walked, and of all bytes; nil: no calls.
	Progress func(done, all uint64)
	// Doing is as in TasksOptions.
	Doing func(what string, done float64)
	// Stop stops all threads of a running process for a further look, so that everything belongs to one moment.
	// snapshot.Requests.Stop says whether that was so, and how long the threads stood still. If the threads cannot be
	// held, or if MaxPause is too short, the look while the program ran counts.
	Stop bool
	// MaxPause is how long threads may stand still; 0 stands for 2 s.
	MaxPause time.Duration
}

// Requests finds which HTTP requests ASP.NET Core's server Kestrel is serving, and which calls of HttpClient are under
// way. Requests takes the stacks of all threads as SnapshotAll does, and then walks the managed heap without stopping a
// thread. Each request and each call is proved by itself. When ctx ends, the result has the requests and calls found
// until then, and is Partial; when the process exits, there is an error and a result, too. With other errors there is
// no result. ErrNoHeap: the layout of this runtime's heap is not known. Lines are found with Options.Lines.
func (p *Process) Requests(ctx context.Context, o RequestsOptions) (*snapshot.Requests, error) {
	r, err := requests.Find(ctx, p.s, session.WalkOptions{
		MaxCPU: o.MaxCPU, Progress: o.Progress, Doing: o.Doing, Stop: o.Stop, MaxPause: o.MaxPause,
	})
	return r, publish(err)
}
