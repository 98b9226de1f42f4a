package clrsnap

import (
	"clrsnap/internal/search"
	"clrsnap/profile"
	"context"
)

// Found is a .NET process that Discover found.
type Found struct {
	PID     int
	UID     int
	User    string // name of UID, or the number where it has none
	Command string // command line, arguments separated by spaces
	// Runtime is what is known of the runtime: nothing for a process that may
	// not be looked into.
	Runtime profile.Runtime
	// Err says why the process cannot be opened and what to do; nil if it can.
	Err error
}

// Discover lists the .NET processes that are visible here, by process id:
// programs compiled ahead of time and processes of other users too, with the
// reason why those cannot be opened. Of most other processes it reads the list
// of mappings and nothing else.
//
// One that keeps it waiting is given up after a moment, and listed with that as the reason;
// a thread of this process can go on waiting for ever (Options.Wary). With the error of ctx,
// or of a /proc that cannot be read, the result is what was found by then.
func Discover(ctx context.Context) ([]Found, error) {
	found, _, err := discover(ctx, false)
	return found, err
}

// DiscoverWary is Discover without processes that can keep it waiting for ever (ErrMayBlock):
// it does not touch them, and returns their ids as left.
func DiscoverWary(ctx context.Context) (found []Found, left []int, err error) {
	return discover(ctx, true)
}

func discover(ctx context.Context, wary bool) ([]Found, []int, error) {
	found, left, err := search.Processes(ctx, wary)
	out := make([]Found, len(found))
	for i, f := range found {
		out[i] = Found(f)
		out[i].Err = publish(f.Err)
	}
	return out, left, err
}
