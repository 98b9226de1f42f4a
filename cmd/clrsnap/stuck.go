package main

import (
	"errors"
	"fmt"
	"time"

	"clrsnap"
	"clrsnap/internal/waiting"
)

// stuckFor is how long one system call on a process or a file may take until the command
// gives up. What can take so long is a file system in user space or of a network, or a page of
// memory that the program itself provides (userfaultfd).
const stuckFor = 5 * time.Second

// stuckError: something has kept the command waiting for too long.
type stuckError struct{ pid int }

func (e *stuckError) Error() string {
	if e.pid == 0 {
		return fmt.Sprintf("given up: a file has kept clrsnap waiting for %v; the file system that it lies on does not answer", stuckFor)
	}
	s := fmt.Sprintf("given up: process %d has kept clrsnap waiting for %v with its memory or its files", e.pid, stuckFor)
	if err := clrsnap.MayBlock(e.pid); err != nil {
		var b *clrsnap.BlockError
		if errors.As(err, &b) {
			s += fmt.Sprintf(": %v, and must answer first", b)
		}
	}
	return s
}

// stuck watches the threads of this process until one of them has been in the same system
// call on a process or a file for stuckFor. It counts looks: a machine can have been paused
// between two of them. False: it cannot watch them.
func stuck() bool {
	const every = 500 * time.Millisecond
	before := map[string]int{} // looks in a row that have found what a thread waits for
	for range time.Tick(every) {
		seen := map[string]int{}
		waits, err := waiting.Threads()
		if err != nil {
			return false
		}
		for _, what := range waits {
			if seen[what] = before[what] + 1; seen[what] > int(stuckFor/every) {
				return true
			}
		}
		before = seen
	}
	return false
}
