package clrsnap

import (
	"context"
	"time"

	"clrsnap/internal/search"
	"clrsnap/snapshot"
)

// Found is a .NET process from Discover.
type Found struct {
	PID     int
	UID     int
	User    string // name of UID, or the number of a UID without a name
	Command string // command line, arguments separated by spaces
	// Program is the running program, without its folder: the assembly of "dotnet exec … app.dll 80". Arguments is
	// "80", the first 4 KB of the arguments. Both come from the command line, as Command does.
	Program, Arguments string
	// Threads is how many there are. 0: the kernel does not tell, nor Age, CPU and RSS.
	Threads int
	Age     time.Duration // since the process started
	CPU     time.Duration // of all threads since the process started, in user and kernel mode
	RSS     int64         // bytes of memory in RAM, shared memory included
	// Runtime describes the runtime. Runtime is zero if this process may not read the other process.
	Runtime snapshot.Runtime
	// Err says why the process cannot be opened and what to do; nil if it can.
	Err error
}

// Discover lists the visible .NET processes by process id. Programs compiled ahead of time are listed too, and
// processes that cannot be opened: Found.Err says why. Of most other processes Discover reads the list of mappings and
// nothing else.
//
// Discover takes about three seconds at most. A process that keeps Discover waiting is listed with ErrNoAnswer, but a
// thread of this process can go on waiting for ever: see Options.NonBlocking. When ctx ends, the result has the
// processes found by then, and the error is the context's. If /proc cannot be read, there is only an error.
func Discover(ctx context.Context) ([]Found, error) {
	found, _, err := discover(ctx, false)
	return found, err
}

// DiscoverNonBlocking is Discover, but does not touch processes that can keep it waiting for ever (ErrMayBlock). left
// are the ids of those processes.
func DiscoverNonBlocking(ctx context.Context) (found []Found, left []int, err error) {
	return discover(ctx, true)
}

func discover(ctx context.Context, nonBlocking bool) ([]Found, []int, error) {
	found, left, err := search.Processes(ctx, nonBlocking)
	out := make([]Found, len(found))
	for i, f := range found {
		out[i] = Found(f)
		out[i].Err = publish(f.Err)
	}
	return out, left, err
}
