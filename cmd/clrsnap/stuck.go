package main

import (
	"errors"
	"fmt"
	"time"

	"clrsnap"
	"clrsnap/internal/hung"
)

// stuckFor is how long one system call on a process or a file may take until the command gives up. A file system in
// user space or on a network can take so long, and so can a page of memory that the program itself provides
// (userfaultfd).
const stuckFor = 5 * time.Second

// stuckError says that a system call has blocked for stuckFor. pid is the target; 0: there is no target.
type stuckError struct{ pid int }

func (e *stuckError) Error() string {
	if e.pid == 0 {
		return fmt.Sprintf("gave up after %v: a file system does not answer; use files on another file system",
			stuckFor)
	}
	s := fmt.Sprintf("gave up after %v: reading the memory or the files of process %d blocks", stuckFor, e.pid)
	if err := clrsnap.MayBlock(e.pid); err != nil {
		var b *clrsnap.BlockError
		if errors.As(err, &b) {
			s += fmt.Sprintf(": %v: make that file system answer first", b)
		}
	}
	return s
}

// How often stuck looks at the threads.
const (
	stuckEvery  = time.Second     // while a thread may be stuck
	stuckSeldom = 4 * time.Second // at most, while no thread is: a look takes half a millisecond of CPU time
)

// stuck watches the threads of this process until a thread has been in the same system call on a process or a file for
// stuckFor. stuck measures time by the number of looks, because the machine can be paused between two looks. stuck
// returns false if the threads cannot be watched.
func stuck() bool {
	before := map[string]int{} // by system call: consecutive looks with the call
	rest := stuckEvery
	for {
		time.Sleep(rest)
		seen := map[string]int{}
		waits, perhaps, err := hung.Threads()
		if err != nil {
			return false
		}
		for _, what := range waits {
			if seen[what] = before[what] + 1; seen[what] > int(stuckFor/stuckEvery) {
				return true
			}
		}
		before = seen
		if rest = min(2*rest, stuckSeldom); perhaps {
			rest = stuckEvery
		}
	}
}
