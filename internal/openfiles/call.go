package openfiles

import (
	"strconv"
	"strings"
	"syscall"

	"clrsnap/internal/procfs"
)

// Call is a system call that reads or writes a descriptor, in which a thread is blocked.
type Call struct {
	FD     int
	Writes bool
	Link   string // of the descriptor: "pipe:[173886]", "socket:[…]", a path
}

// IsPipe, IsSocket and IsTerminal report what the descriptor leads to.
func (c *Call) IsPipe() bool   { return strings.HasPrefix(c.Link, "pipe:[") }
func (c *Call) IsSocket() bool { return strings.HasPrefix(c.Link, "socket:[") }
func (c *Call) IsTerminal() bool {
	return strings.HasPrefix(c.Link, "/dev/pts/") || c.Link == "/dev/tty"
}

// transfers are the system calls that read or write their first argument.
var transfers = map[int64]bool{ // whether the call writes
	syscall.SYS_READ: false, syscall.SYS_READV: false, syscall.SYS_RECVFROM: false, syscall.SYS_RECVMSG: false,
	syscall.SYS_WRITE: true, syscall.SYS_WRITEV: true, syscall.SYS_SENDTO: true, syscall.SYS_SENDMSG: true,
}

// CallOf returns the call in which a thread of a process is blocked; false: the thread is in none, or the process may
// not be looked at. The thread may go on at any time.
func CallOf(dir procfs.Dir, tid int) (c Call, ok bool) {
	b, err := dir.ReadFile(procfs.TaskFile(tid, "syscall"))
	if err != nil {
		return c, false
	}
	call, blocked := procfs.ParseSyscall(b)
	writes, is := transfers[call.Nr]
	fd := int32(call.Args[0])
	if !blocked || !is || fd < 0 {
		return c, false
	}
	c = Call{FD: int(fd), Writes: writes}
	c.Link, err = dir.Readlink("fd/" + strconv.Itoa(c.FD))
	return c, err == nil
}
