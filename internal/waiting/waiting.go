// Package waiting tells which threads of this process wait for something that need not come:
// the memory of another process, or a file, whose pages somebody has to provide. Such a wait
// cannot be interrupted.
package waiting

import (
	"fmt"
	"runtime"

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
// thread has not run since. perhaps: a thread may be waiting so that is not among them yet.
func Threads() (waits []string, perhaps bool, err error) {
	self, err := procfs.Self()
	if err != nil {
		return nil, false, err
	}
	defer self.Close()
	tids, err := self.Tasks()
	if err != nil {
		return nil, false, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	looks := unix.Gettid() // it reads files, and does not wait
	for _, tid := range tids {
		if tid == looks {
			continue
		}
		what, touches := of(self, tid)
		if perhaps = perhaps || touches; what != "" {
			waits = append(waits, what)
		}
	}
	return waits, perhaps, nil
}

// of says what one thread waits for; nothing is empty. touches: it is in such a system call.
func of(self procfs.Dir, tid int) (what string, touches bool) {
	text, err := self.ReadFile(procfs.TaskFile(tid, "syscall"))
	if err != nil {
		return "", false
	}
	if call, blocked := procfs.ParseSyscall(text); !blocked || !touching[call.Nr] {
		return "", false
	}
	status, err := self.TaskStatus(tid)
	if err != nil {
		return "", false
	}
	if status.State != 'D' {
		// A wait for a file system in user space looks like one that can be interrupted, such
		// as for a pipe, until a signal comes. This one means nothing to the Go runtime.
		_ = unix.Tgkill(unix.Getpid(), tid, unix.SIGURG)
		return "", true
	}
	return fmt.Sprintf("%d %s %d %d", tid, text, status.VoluntarySwitches, status.InvoluntarySwitches), true
}
