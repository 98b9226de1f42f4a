package clrsnap

import (
	"context"
	"time"

	"clrsnap/internal/search"
	"clrsnap/profile"
)

// Found is a .NET process that Discover found.
type Found struct {
	PID     int
	UID     int
	User    string // name of UID, or the number where it has none
	Command string // command line, arguments separated by spaces
	// Program is what runs, without its folder: the assembly of "dotnet exec … app.dll 80", and
	// Arguments is "80", the first 4 KB of it. Both are what the command line says, as Command is.
	Program, Arguments string
	// Threads is how many there are. 0: the kernel does not tell, nor Age, CPU and RSS.
	Threads int
	Age     time.Duration // since the process started
	CPU     time.Duration // that all its threads have used since then, in user and kernel mode
	RSS     int64         // bytes of memory in RAM, those that it shares with other processes included
	// Runtime describes the runtime; it is zero for a process that this one may not read.
	Runtime profile.Runtime
	// Err says why the process cannot be opened and what to do; nil if it can.
	Err error
}

// Discover lists the .NET processes that are visible here, by process id. It lists programs
// compiled ahead of time too, and processes that cannot be opened: Found.Err says why. Of most
// processes that are not .NET it reads the list of mappings and nothing else.
//
// It takes about three seconds at most. A process that keeps it waiting is listed with
// ErrNoAnswer, but a thread of this process can go on waiting for ever: see Options.NonBlocking.
// When ctx ends, the result is what was found by then, and the error is that of ctx. If /proc cannot
// be read, there is only an error.
func Discover(ctx context.Context) ([]Found, error) {
	found, _, err := discover(ctx, false)
	return found, err
}

// DiscoverNonBlocking is Discover, but does not touch processes that can keep it waiting for ever
// (ErrMayBlock): it returns their ids as left.
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
