package perfevent

import (
	"errors"
	"fmt"
	"strconv"

	"clrsnap/internal/procfs"

	"golang.org/x/sys/unix"
)

// ErrUnavailable is in the chain of Open's error if the kernel does not let us sample at all, or
// not this process.
var ErrUnavailable = errors.New("sampling with perf_event_open is not possible")

// ErrExited is in the chain of Open's error if the process has ended.
var ErrExited = errors.New("process has ended")

func exited(pid int) error { return fmt.Errorf("perfevent: process %d: %w", pid, ErrExited) }

// unread explains a failed read of a process's file in /proc.
func unread(pid int, err error) error {
	if errors.Is(err, procfs.ErrExited) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return exited(pid)
	}
	return fmt.Errorf("perfevent: process %d: %w", pid, err)
}

// Error is an ErrUnavailable with a remedy.
type Error struct {
	Err    error  // from the system call
	Detail string // why
	Remedy string // what to do; "" without a remedy
}

func (e *Error) Error() string {
	if e.Remedy == "" {
		return e.Reason()
	}
	return e.Reason() + ": " + e.Remedy
}

// Reason is the error without its remedy.
func (e *Error) Reason() string { return fmt.Sprintf("%v (%v): %s", ErrUnavailable, e.Err, e.Detail) }

// Unwrap returns ErrUnavailable and the system call's error.
func (e *Error) Unwrap() []error { return []error{ErrUnavailable, e.Err} }

// refused explains the refusal of even an idle event of our own.
func (e *Events) refused(err error) error {
	switch {
	case err == unix.EMFILE || err == unix.ENFILE:
		return e.tooManyFiles(err, 1)
	case err == unix.ENOSYS || err == unix.ENOENT || err == unix.EOPNOTSUPP:
		return &Error{err, "this kernel, or the sandbox, has no perf events", ""}
	case err == unix.EACCES && paranoid() > 2:
		return &Error{err, fmt.Sprintf("kernel.perf_event_paranoid is %d", paranoid()),
			"run sysctl kernel.perf_event_paranoid=2, or give clrsnap CAP_PERFMON (setcap cap_perfmon+ep), " +
				"or run it as root"}
	case err == unix.EPERM || err == unix.EACCES:
		return &Error{err, "most likely the container's seccomp profile, or a security module, forbids it",
			"start the container with --cap-add PERFMON, or run clrsnap on the host"}
	}
	return fmt.Errorf("perfevent: perf_event_open: %w", err)
}

// openError explains why an event of the target was refused, although our own event was granted.
func (e *Events) openError(err error, threads int) error {
	switch err {
	case unix.EMFILE, unix.ENFILE:
		return e.tooManyFiles(err, threads)
	case unix.EACCES, unix.EPERM:
		return &Error{err, fmt.Sprintf("process %d is another user's or is protected", e.o.PID),
			"run clrsnap as the user of the process, as root, or with CAP_PERFMON " +
				"(setcap cap_perfmon+ep; --cap-add PERFMON for a container)"}
	}
	return fmt.Errorf("perfevent: perf_event_open for process %d: %w", e.o.PID, err)
}

func (e *Events) tooManyFiles(err error, threads int) error {
	if err == unix.ENFILE {
		return systemFiles(err)
	}
	need := (threads + 1) * len(e.rings)
	if e.gen != nil { // the old events stay open until the new events are
		need += len(e.gen.events)
	}
	return &Error{err, fmt.Sprintf("%d threads on %d CPUs need %d file descriptors, and %d are allowed",
		threads, len(e.rings), need, fileLimit()), moreFiles}
}

const moreFiles = "raise the limit (ulimit -n)"

func systemFiles(err error) error {
	return &Error{err, "the whole system has too many open files", "raise the sysctl fs.file-max"}
}

// fewFiles gives the remedy for a file that could not be opened because too many are open.
func fewFiles(err error) error {
	switch {
	case errors.Is(err, ErrUnavailable): // has its remedy
	case errors.Is(err, unix.ENFILE):
		return systemFiles(unix.ENFILE)
	case errors.Is(err, unix.EMFILE):
		return &Error{unix.EMFILE, fmt.Sprintf("%d file descriptors are allowed", fileLimit()), moreFiles}
	}
	return err
}

// fileLimit is the number of files that we may have open; 0 if not known.
func fileLimit() uint64 {
	var limit unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	return limit.Cur
}

// paranoid is the kernel's setting. Debian and Ubuntu add levels above 2 that forbid everything.
func paranoid() int {
	n, err := strconv.Atoi(procfs.Sysctl("kernel/perf_event_paranoid"))
	if err != nil {
		return 0
	}
	return n
}

// raiseLimit raises a resource limit of ours as far as we may.
func raiseLimit(what int) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(what, &limit); err == nil && limit.Cur < limit.Max {
		limit.Cur = limit.Max
		_ = unix.Setrlimit(what, &limit) // an error shows when the resource runs out
	}
}
