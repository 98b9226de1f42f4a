// Package search finds the .NET processes of a machine.
package search

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"clrsnap/internal/engine"
	"clrsnap/internal/locate"
	"clrsnap/internal/procfs"
	"clrsnap/internal/session"
	"clrsnap/internal/target/live"
	"clrsnap/profile"
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

// ErrNoAnswer: the process keeps whoever looks at it waiting.
var ErrNoAnswer = errors.New("the process keeps whoever looks at it waiting")

var (
	errNoAnswer = fmt.Errorf("%w: its memory or its files lie on a file system that does not answer: "+
		"make that answer or unmount it; its mounts are in /proc/PID/mountinfo (look for fuse, nfs, cifs)", ErrNoAnswer)
	errNoTime = errors.New("not looked at, because other processes have used up the time: try again, or look at it by its id")
)

// How long Discover waits for processes that do not answer. What comes later than its
// patience is not lost as long as there is time.
const (
	patience = 100 * time.Millisecond // for the first before it goes on; a half for the second, a third for the third …
	moreTime = time.Second            // for those that it has gone on without, at the end
	allTime  = 3 * time.Second        // for all of them together
	maxLate  = 64                     // are waited for at the same time
)

// Processes lists the .NET processes that are visible here, by process id. Wary: without
// those that can keep it waiting for ever, which it does not touch, and returns as left.
// When ctx ends, what was found by then is the result, and the error that of ctx.
func Processes(ctx context.Context, wary bool) (found []Found, left []int, err error) {
	pids, err := procfs.Processes()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot list the processes: %w", err)
	}
	takeTurns(pids)
	s := &search{ctx: ctx, end: time.Now().Add(allTime)}
	mayBlock := s.lookAt(pids, false)
	if wary {
		left = mayBlock
	} else {
		s.lookAt(mayBlock, true)
	}
	s.awaitLate()
	slices.SortFunc(s.out, func(a, b Found) int { return a.PID - b.PID })
	return s.out, left, ctx.Err()
}

// takeTurns puts the processes of all users in turn: one user's, however many they are and
// whatever they cost, do not use up the time of the others'.
func takeTurns(pids []int) {
	turn, met := map[int]int{}, map[int]int{}
	for _, pid := range pids {
		if uid, ok := procfs.Owner(pid); ok {
			turn[pid] = met[uid]
			met[uid]++
		}
	}
	slices.SortStableFunc(pids, func(a, b int) int { return turn[a] - turn[b] })
}

// runtimeIn looks for the runtime of a process, through its mappings. With a
// runtime the error is why it cannot be read.
func runtimeIn(dir procfs.Dir) (*locate.Runtime, error) {
	p, err := live.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	e, err := engine.New(p)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	r, err := e.OpenRuntime()
	if r == nil {
		return nil, err
	}
	return r, session.RuntimeError(err, p)
}

// openError is why a process cannot be opened.
func openError(dir procfs.Dir) error {
	p, err := live.OpenDir(dir)
	if err == nil {
		p.Close()
	}
	return err
}

// dotNetThreads recognises a process that may not be looked into by the names
// that the runtime gives to its threads, which everybody may read.
func dotNetThreads(dir procfs.Dir) bool {
	tids, err := dir.Tasks()
	if err != nil {
		return false
	}
	const first = 1000 // the runtime's are among those that a program starts with
	for _, tid := range tids[:min(len(tids), first)] {
		if name, err := dir.TaskComm(tid); err == nil && strings.HasPrefix(name, ".NET ") {
			return true
		}
	}
	return false
}
