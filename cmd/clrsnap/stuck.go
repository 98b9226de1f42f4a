package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"clrsnap"

	"golang.org/x/sys/unix"
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

// touching are the system calls with which processes and files are read.
var touching = map[int]bool{
	unix.SYS_PROCESS_VM_READV: true, unix.SYS_PREAD64: true, unix.SYS_READ: true, unix.SYS_OPENAT: true, unix.SYS_OPENAT2: true,
	unix.SYS_NEWFSTATAT: true, unix.SYS_STATX: true, unix.SYS_FSTAT: true, unix.SYS_READLINKAT: true,
}

// stuck watches the threads of this process until one of them has been in the same system
// call on a process or a file for stuckFor. It counts looks: a machine can have been paused
// between two of them. False: it cannot watch them.
func stuck() bool {
	const every = 500 * time.Millisecond
	before := map[string]int{} // looks in a row that have found what a thread waits for
	for range time.Tick(every) {
		seen := map[string]int{}
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return false
		}
		for _, t := range tasks {
			what := waits("/proc/self/task/"+t.Name()+"/", t.Name())
			if what == "" {
				continue
			}
			if seen[what] = before[what] + 1; seen[what] > int(stuckFor/every) {
				return true
			}
		}
		before = seen
	}
	return false
}

// waits says which system call the thread at dir waits in, if it reads a process or a file
// with it and cannot be interrupted; else it is empty. It is the same text only as long as
// the thread has not run.
func waits(dir, tid string) string {
	call, err := os.ReadFile(dir + "syscall")
	if err != nil {
		return ""
	}
	first, _, _ := bytes.Cut(call, []byte{' '})
	nr, err := strconv.Atoi(string(first))
	if err != nil || !touching[nr] {
		return ""
	}
	status, err := os.ReadFile(dir + "status")
	if err != nil {
		return ""
	}
	_, state, _ := bytes.Cut(status, []byte("\nState:\t"))
	if !bytes.HasPrefix(state, []byte("D")) {
		// A wait for a file system in user space looks like one that can be interrupted, such
		// as for a pipe, until a signal comes. This one means nothing to the Go runtime.
		if n, err := strconv.Atoi(tid); err == nil {
			_ = unix.Tgkill(unix.Getpid(), n, unix.SIGURG)
		}
		return ""
	}
	_, switches, _ := bytes.Cut(status, []byte("\nvoluntary_ctxt_switches:"))
	return fmt.Sprintf("%s %s %s", tid, call, switches)
}
