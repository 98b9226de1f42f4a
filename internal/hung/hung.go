// Package hung finds the threads of this process in a wait that may never end and cannot be
// interrupted: for the memory of another process, or for a file whose pages somebody has to
// provide.
package hung

import (
	"fmt"
	"runtime"

	"clrsnap/internal/procfs"

	"golang.org/x/sys/unix"
)

// touching are the system calls that read processes and files.
var touching = map[int64]bool{
	unix.SYS_PROCESS_VM_READV: true, unix.SYS_PREAD64: true, unix.SYS_READ: true,
	unix.SYS_OPENAT: true, unix.SYS_OPENAT2: true, unix.SYS_NEWFSTATAT: true,
	unix.SYS_STATX: true, unix.SYS_FSTAT: true, unix.SYS_READLINKAT: true,
}

// Threads describes the uninterruptible waits of this process's threads in system calls on a
// process or a file. The text of a wait stays the same only as long as the thread has not run.
// perhaps: a thread may be in an uninterruptible wait without being in the result yet.
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
	looks := unix.Gettid() // the current thread reads files, and does not wait
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

// of describes the wait of one thread; empty: no wait. touches: the thread is in a system call of
// touching.
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
		// Until a signal comes, a wait for a file system in user space looks like an interruptible
		// wait, for a pipe for example. SIGURG means nothing to the Go runtime.
		_ = unix.Tgkill(unix.Getpid(), tid, unix.SIGURG)
		return "", true
	}
	return fmt.Sprintf("%d %s %d %d", tid, text, status.VoluntarySwitches, status.InvoluntarySwitches), true
}
