package clrsnap

import (
	"context"
	"time"

	"clrsnap/internal/session"
	"clrsnap/internal/tasks"
	"clrsnap/snapshot"
)

// TasksOptions say how the heap is looked at. The zero value has good defaults.
type TasksOptions struct {
	// MaxCPU is how many CPUs may be used, such as 0.5; 0 stands for 1.
	MaxCPU float64
	// Progress is called from time to time with the number of bytes walked, and of all bytes; nil: no calls.
	Progress func(done, all uint64)
	// Doing is called from time to time while the found methods are read, with the name of the step and with how far
	// the step has come, from 0 to 1; nil: no calls.
	Doing func(what string, done float64)
	// Stop stops all threads of a running process for a further look, so that everything belongs to one moment.
	// snapshot.Tasks.Stop says whether that was so, and how long the threads stood still. If the threads cannot be
	// held, or if MaxPause is too short, the look while the program ran counts.
	Stop bool
	// MaxPause is how long threads may stand still; 0 stands for 2 s.
	MaxPause time.Duration
}

// Tasks walks the managed heap and finds the suspended async methods: who awaits whom, and the innermost method's wait.
// No thread is stopped. Each chain is proved by itself. Methods that are dead, but have not been collected yet, count
// as well. When ctx ends, the result has the methods found until then, and is Partial; when the process exits, there is
// an error and a result, too. With other errors there is no result. ErrNoHeap: the layout of this runtime's heap is not
// known. Lines are found with Options.Lines.
func (p *Process) Tasks(ctx context.Context, o TasksOptions) (*snapshot.Tasks, error) {
	t, err := tasks.Find(ctx, p.s, session.WalkOptions{
		MaxCPU: o.MaxCPU, Progress: o.Progress, Doing: o.Doing, Stop: o.Stop, MaxPause: o.MaxPause,
	})
	return t, publish(err)
}
