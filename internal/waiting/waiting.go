// Package waiting tells which threads of this process wait for something that need not come:
// the memory of another process, or a file, whose pages somebody has to provide. Such a wait
// cannot be interrupted.
package waiting

import (
	"fmt"

	"clrsnap/internal/procfs"

	"golang.org/x/sys/unix"
)

// touching are the system calls with which processes and files are read.
var touching = map[int64]bool{
	unix.SYS_PROCESS_VM_READV: true, unix.SYS_PREAD64: true, unix.SYS_READ: true,
	unix.SYS_OPENAT: true, unix.SYS_OPENAT2: true, unix.SYS_NEWFSTATAT: true,
	unix.SYS_STATX: true, unix.SYS_FSTAT: true, unix.SYS_READLINKAT: true,
}

// Threads returns what threads of this process wait for, in system calls on a process or a
// file that cannot be interrupted: a text for each, which is the same only as long as the
// thread has not run since. A thread that has only begun to wait may be missing once.
func Threads() ([]string, error) {
	self, err := procfs.Self()
	if err != nil {
		return nil, err
	}
	defer self.Close()
	tids, err := self.Tasks()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, tid := range tids {
		if what := of(self, tid); what != "" {
			out = append(out, what)
		}
	}
	return out, nil
}

// of says what one thread waits for; nothing is empty.
func of(self procfs.Dir, tid int) string {
	text, err := self.ReadFile(procfs.TaskFile(tid, "syscall"))
	if err != nil {
		return ""
	}
	if call, blocked := procfs.ParseSyscall(text); !blocked || !touching[call.Nr] {
		return ""
	}
	status, err := self.TaskStatus(tid)
	if err != nil {
		return ""
	}
	if status.State != 'D' {
		// A wait for a file system in user space looks like one that can be interrupted, such
		// as for a pipe, until a signal comes. This one means nothing to the Go runtime.
		_ = unix.Tgkill(unix.Getpid(), tid, unix.SIGURG)
		return ""
	}
	return fmt.Sprintf("%d %s %d %d", tid, text, status.VoluntarySwitches, status.InvoluntarySwitches)
}
