package live

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"

	"clrsnap/internal/procdir"

	"golang.org/x/sys/unix"
)

// missingError distinguishes a process that does not exist from one that /proc hides.
func missingError(pid int) error {
	if pid > 0 && (unix.Kill(pid, 0) == unix.EPERM || unix.Kill(pid, 0) == nil) {
		return &AttachError{PID: pid, Err: ErrPermission, Detail: "it exists, but /proc does not show it",
			Remedy: "run as root, or mount /proc without hidepid"}
	}
	return &AttachError{PID: pid, Err: ErrNoProcess,
		Remedy: "look for the process id with ps; in another PID namespace (a container) it has another number"}
}

func justExited(pid int) error {
	return &AttachError{PID: pid, Err: ErrNoProcess, Detail: "it has just exited"}
}

// checkKind refuses what is not a process that runs a program.
func checkKind(pid int, st *stat, su *status) error {
	switch {
	case su.tgid != pid:
		return &AttachError{PID: pid, Err: ErrNotProcess, Detail: fmt.Sprintf("of process %d", su.tgid),
			Remedy: fmt.Sprintf("attach to %d", su.tgid)}
	case st.flags&pfKthread != 0:
		return &AttachError{PID: pid, Err: ErrKernelThread, Detail: st.comm, Remedy: "choose a process that runs a program"}
	case st.state == 'Z' && st.count <= 1, st.state == 'X':
		return &AttachError{PID: pid, Err: ErrZombie, Detail: st.comm,
			Remedy: fmt.Sprintf("nothing is left to look at; its parent is %d (%s)", st.ppid, commOf(st.ppid))}
	}
	return nil
}

// checkMachine looks at the ELF header of the program.
func checkMachine(pid, dir int) error {
	fd, err := unix.Openat(dir, "exe", unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		// The file may be readable for its owner only. The memory has proved readable.
		return nil //nolint:nilerr // explained above
	}
	defer unix.Close(fd)
	var h [20]byte
	if n, err := unix.Pread(fd, h[:], 0); err != nil || n != len(h) || string(h[:4]) != "\x7fELF" {
		return nil //nolint:nilerr // a program that is no ELF file is somebody else's error
	}
	const class64, littleEndian = 2, 1
	machine := binary.LittleEndian.Uint16(h[18:])
	switch {
	case h[4] != class64:
		return &AttachError{PID: pid, Err: ErrArch, Detail: "a 32-bit program",
			Remedy: "only 64-bit programs can be read; run the 64-bit .NET runtime"}
	case h[5] != littleEndian || machine != hostELF:
		return &AttachError{PID: pid, Err: ErrArch, Detail: fmt.Sprintf("ELF machine %d", machine),
			Remedy: "use the clrsnap that was built for this program's architecture"}
	}
	return nil
}

// deniedError explains a refusal by its actual causes.
func deniedError(dir procdir.Dir) error {
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

// tracedError reports that somebody else traces tid, nil if nobody does.
func tracedError(tid, tracer int) error {
	if tracer == 0 {
		return nil
	}
	return &ThreadError{TID: tid, Err: ErrTraced,
		Detail: fmt.Sprintf("by process %d (%s): end that debugger or tracer, or capture without a stop",
			tracer, commOf(tracer))}
}

// self is what the kernel compares the target with: the rules are those of
// __ptrace_may_access in kernel/ptrace.c, of the Yama security module and of
// cap_ptrace_access_check.
type self struct {
	status
	uid, gid uint64
	userNS   string
	yama     string
	caps     bool // CAP_SYS_PTRACE, in our own user namespace
}

func whoAmI() self {
	s := self{status: parseStatus([]byte(readProc("self/status"))), uid: uint64(os.Getuid()), gid: uint64(os.Getgid()),
		yama: readProc("sys/kernel/yama/ptrace_scope")}
	s.userNS, _ = os.Readlink("/proc/self/ns/user")
	s.caps = s.effective&(1<<unix.CAP_SYS_PTRACE) != 0
	return s
}

// rootAdvice says how to get CAP_SYS_PTRACE in our situation.
func (s *self) rootAdvice() string {
	switch {
	case s.caps:
		return "run in the user namespace of the host, or in the one that the target belongs to"
	case s.bounding&(1<<unix.CAP_SYS_PTRACE) == 0 || os.Geteuid() == 0:
		// Root without the capability, or nobody can get it: a container.
		return "add --cap-add=SYS_PTRACE to the container"
	}
	return "run as root, or give the program the capability (setcap cap_sys_ptrace+ep)"
}

// sameIDs reports whether the real, effective and saved id are all ours.
func sameIDs(ids [4]uint64, id uint64) bool { return ids[0] == id && ids[1] == id && ids[2] == id }

// dumpable reports whether the target's files in /proc belong to the target's
// user: the kernel gives those of a process that is not dumpable to root.
func dumpable(dir procdir.Dir, su *status) bool {
	st, err := dir.Stat("maps")
	if su.uid[1] == 0 || err != nil {
		return true // not known
	}
	return uint64(st.Uid) == su.uid[1]
}
