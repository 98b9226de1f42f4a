// Package waiting tells which threads of this process wait for something that need not come:
// the memory of another process, or a file, whose pages somebody has to provide. Such a wait
// cannot be interrupted.
package waiting

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// touching are the system calls with which processes and files are read.
var touching = map[int]bool{
	unix.SYS_PROCESS_VM_READV: true, unix.SYS_PREAD64: true, unix.SYS_READ: true, unix.SYS_OPENAT: true, unix.SYS_OPENAT2: true,
	unix.SYS_NEWFSTATAT: true, unix.SYS_STATX: true, unix.SYS_FSTAT: true, unix.SYS_READLINKAT: true,
}

// Threads returns what threads of this process wait for, in system calls on a process or a
// file that cannot be interrupted: a text for each, which is the same only as long as the
// thread has not run since. A thread that has only begun to wait may be missing once.
func Threads() ([]string, error) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, t := range tasks {
		if what := of(t.Name()); what != "" {
			out = append(out, what)
		}
	}
	return out, nil
}

// of says what one thread waits for; nothing is empty.
func of(tid string) string {
	dir := "/proc/self/task/" + tid + "/"
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
