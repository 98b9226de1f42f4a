package clrsnap

import (
	"context"

	"clrsnap/internal/search"
	"clrsnap/snapshot"
)

// Discover lists the visible .NET processes by process id. Programs compiled ahead of time are listed too, and
// processes that cannot be opened: Err says why. Of most other processes Discover reads the list of mappings
// and nothing else.
//
// Discover takes about three seconds at most. A process that keeps Discover waiting is listed with ErrNoAnswer, but a
// thread of this process can go on waiting for ever: see Options.NonBlocking. When ctx ends, the result has the
// processes found by then, and the error is the context's. If /proc cannot be read, there is only an error.
func Discover(ctx context.Context) ([]snapshot.Found, error) {
	found, _, err := discover(ctx, false)
	return found, err
}

// DiscoverNonBlocking is Discover, but does not touch processes that can keep it waiting for ever (ErrMayBlock). left
// are the ids of those processes.
func DiscoverNonBlocking(ctx context.Context) (found []snapshot.Found, left []int, err error) {
	return discover(ctx, true)
}

func discover(ctx context.Context, nonBlocking bool) ([]snapshot.Found, []int, error) {
	found, left, err := search.Processes(ctx, nonBlocking)
	for i := range found {
		found[i].Err = publish(found[i].Err)
	}
	return found, left, err
}
