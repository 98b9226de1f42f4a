package live

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"

	"clrsnap/internal/procfs"
	"clrsnap/internal/target"

	"golang.org/x/sys/unix"
)

// missingError distinguishes a missing process from a process that /proc hides.
func missingError(pid int) error {
	if exists(pid) {
		return &AttachError{PID: pid, Err: ErrPermission, Detail: "the process exists, but /proc does not show it",
			Remedy: "run as root, or mount /proc without hidepid"}
	}
	return &AttachError{PID: pid, Err: ErrNoProcess,
		Remedy: "look for the process id with ps; in another PID namespace (a container) the process has another " +
			"number"}
}

// justExited explains why a directory in /proc has become empty. With hidepid=2 the directory of
// a process can be opened, but none of its files.
func justExited(pid int) error {
	if exists(pid) && !isShown(pid) { // and no other process has the id by now
		return missingError(pid)
	}
	return &AttachError{PID: pid, Err: ErrNoProcess, Detail: "the process has just exited"}
}

func isShown(pid int) bool {
	dir, err := procfs.Open(pid)
	if err != nil {
		return false
	}
	defer dir.Close()
	_, err = dir.Stat()
	return err == nil
}

func exists(pid int) bool {
	err := unix.Kill(pid, 0)
	return pid > 0 && (err == nil || err == unix.EPERM)
}

// CheckProc refuses a /proc of another PID namespace, as unshare and containers without a /proc
// mount leave it: system calls take our process ids, /proc takes the other namespace's. pid is
// the wanted process, or AllProcesses.
func CheckProc(pid int) error {
	self, err := os.Readlink("/proc/self")
	switch {
	case err != nil:
		return &AttachError{PID: pid, Err: ErrPermission,
			Detail: "/proc is not mounted, or does not show clrsnap itself: " + err.Error(),
			Remedy: "mount -t proc proc /proc, and try again"}
	case self != strconv.Itoa(os.Getpid()):
		return &AttachError{PID: pid, Err: ErrPermission,
			Detail: "/proc shows another PID namespace, where processes have other ids",
			Remedy: "mount the /proc of this namespace (mount -t proc proc /proc), or run in the other namespace " +
				"(nsenter --pid --mount --target PID)"}
	}
	return nil
}

// checkKind refuses threads, kernel threads and ended processes.
func checkKind(pid int, st *procfs.Stat, su *procfs.Status) error {
	switch {
	case su.TGID != pid:
		return &AttachError{PID: pid, Err: ErrNotProcess, Detail: fmt.Sprintf("of process %d", su.TGID),
			Remedy: fmt.Sprintf("attach to %d", su.TGID)}
	case st.KernelThread():
		return &AttachError{PID: pid, Err: ErrKernelThread, Detail: st.Comm,
			Remedy: "choose a process that runs a program"}
	case ended(st):
		return &AttachError{PID: pid, Err: ErrZombie, Detail: st.Comm,
			Remedy: fmt.Sprintf("nothing is left to look at; the parent is %d (%s)", st.PPID, commOf(st.PPID))}
	}
	return nil
}

// ended reports whether only the exit status is left of a process.
func ended(st *procfs.Stat) bool { return st.State == 'Z' && st.Threads <= 1 || st.State == 'X' }

// commOf names a process for a message.
func commOf(pid int) string {
	if dir, err := procfs.Open(pid); err == nil {
		defer dir.Close()
		if name, err := dir.Comm(); err == nil && name != "" {
			return name
		}
	}
	return "?"
}

// checkMachine looks at the ELF header of the program.
func checkMachine(pid, dir int) error {
	fd, err := unix.Openat(dir, "exe", unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		// Perhaps only the owner may read the file. The memory has proved readable.
		return nil //nolint:nilerr // explained above
	}
	defer unix.Close(fd)
	var h [20]byte
	if n, err := unix.Pread(fd, h[:], 0); err != nil || n != len(h) || string(h[:4]) != "\x7fELF" {
		return nil //nolint:nilerr // a program that is no ELF file is reported elsewhere
	}
	const class64, littleEndian = 2, 1
	machine := binary.LittleEndian.Uint16(h[18:])
	switch {
	case h[4] != class64:
		return &AttachError{PID: pid, Err: ErrArch, Detail: "a 32-bit program",
			Remedy: "only 64-bit programs can be read; run the 64-bit .NET runtime"}
	case h[5] != littleEndian || machine != hostELF:
		return &AttachError{PID: pid, Err: ErrArch, Detail: fmt.Sprintf("ELF machine %d", machine),
			Remedy: "use a clrsnap built for the program's architecture"}
	}
	return nil
}

// deniedError explains a refusal by its real causes.
func deniedError(dir procfs.Dir) error {
	e := &AttachError{PID: dir.PID(), Err: ErrPermission}
	var details, remedies []string
	for _, f := range accessFindings(dir) {
		if !f.OK {
			details = append(details, f.Detail)
			if f.Remedy != "" {
				remedies = append(remedies, f.Remedy)
			}
		}
	}
	e.Detail = strings.Join(details, "; ")
	e.Remedy = strings.Join(remedies, "; ")
	if e.Remedy == "" {
		e.Remedy = "run as root, or add --cap-add=SYS_PTRACE to the container"
	}
	return e
}

// tracedError reports that another process traces tid; nil if no process does.
func tracedError(tid, tracer int) error {
	if tracer == 0 {
		return nil
	}
	return &target.ThreadError{TID: tid, Err: ErrTraced,
		Detail: fmt.Sprintf("by process %d (%s): end that debugger or tracer, or capture without a stop",
			tracer, commOf(tracer))}
}

// self holds our own credentials, which the kernel compares with the target's. The rules are in
// __ptrace_may_access in kernel/ptrace.c, in the Yama security module and in
// cap_ptrace_access_check.
type self struct {
	procfs.Status
	uid, gid int
	userNS   string
	yama     string
	caps     bool // CAP_SYS_PTRACE, in our own user namespace
}

func whoAmI() self {
	s := self{uid: os.Getuid(), gid: os.Getgid(), yama: procfs.Sysctl(yamaScope)}
	if dir, err := procfs.Self(); err == nil {
		defer dir.Close()
		s.Status, _ = dir.Status() // without the file we count as a process without capabilities
		s.userNS, _ = dir.Readlink("ns/user")
	}
	s.caps = s.CapEff&(1<<unix.CAP_SYS_PTRACE) != 0
	return s
}

const yamaScope = "kernel/yama/ptrace_scope"

// rootAdvice says how to get CAP_SYS_PTRACE in our situation.
func (s *self) rootAdvice() string {
	switch {
	case s.caps:
		return "run in the user namespace of the host, or in the target's user namespace"
	case s.CapBnd&(1<<unix.CAP_SYS_PTRACE) == 0 || os.Geteuid() == 0:
		// Root lacks the capability, or nobody can get the capability: a container.
		return "add --cap-add=SYS_PTRACE to the container"
	}
	return "run as root, or give clrsnap the capability (setcap cap_sys_ptrace+ep)"
}

// sameIDs reports whether the real, effective and saved id are all ours.
func sameIDs(ids procfs.IDs, id int) bool {
	return ids.Real == id && ids.Effective == id && ids.Saved == id
}

// dumpable reports whether the target's files in /proc belong to the target's user. The files of
// a process that is not dumpable belong to root.
func dumpable(dir procfs.Dir, su *procfs.Status) bool {
	st, err := dir.StatFile("maps")
	if su.UID.Effective <= 0 || err != nil {
		return true // not known
	}
	return int(st.Uid) == su.UID.Effective
}
