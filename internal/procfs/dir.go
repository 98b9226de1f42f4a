// Package procfs reads and parses the kernel's information about processes in /proc. No other
// package parses it; internal/target/live itself reads files that it keeps open for repeated
// reading.
//
// A Dir holds on to a process by its directory. A read through a Dir is about the process as long
// as the process lives, and an error afterwards, even when its number has gone to another
// process.
package procfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrExited: the process has ended. The text names the process.
var ErrExited = errors.New("process has exited")

// Exited is ErrExited for process pid.
func Exited(pid int) error { return exitedError(pid) }

type exitedError int

func (e exitedError) Error() string        { return fmt.Sprintf("process %d has exited", int(e)) }
func (e exitedError) Is(target error) bool { return target == ErrExited }

// Dir is the directory of a process in /proc.
type Dir struct{ fd, pid int }

// Open takes hold of process pid.
func Open(pid int) (Dir, error) { return open("/proc/"+strconv.Itoa(pid), pid) }

// Self takes hold of our process.
func Self() (Dir, error) { return open("/proc/self", os.Getpid()) }

func open(name string, pid int) (Dir, error) {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Dir{-1, pid}, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return Dir{fd, pid}, nil
}

// Of is the Dir of process pid with an open descriptor.
func Of(fd, pid int) Dir { return Dir{fd, pid} }

// PID is the process id, in our PID namespace.
func (d Dir) PID() int { return d.pid }

// FD is the descriptor, opened with O_PATH.
func (d Dir) FD() int { return d.fd }

// Dup returns a descriptor of the same directory, with its own Close.
func (d Dir) Dup() (Dir, error) {
	fd, err := unix.FcntlInt(uintptr(d.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return Dir{-1, d.pid}, d.explain("dup", "", err)
	}
	return Dir{fd, d.pid}, nil
}

// Close lets go of the process.
func (d Dir) Close() {
	if d.fd >= 0 {
		unix.Close(d.fd)
	}
}

// Open opens a file or a directory for reading.
func (d Dir) Open(name string) (*os.File, error) {
	return d.open(name, unix.O_RDONLY)
}

// Root opens the root directory of the process with O_PATH.
func (d Dir) Root() (*os.File, error) {
	return d.open("root", unix.O_PATH|unix.O_DIRECTORY)
}

func (d Dir) open(name string, flags int) (*os.File, error) {
	for {
		fd, err := unix.Openat(d.fd, name, flags|unix.O_CLOEXEC, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			if other, ok := d.living(name); ok {
				return d.open(other, flags)
			}
			return nil, d.explain("open", name, err)
		}
		return os.NewFile(uintptr(fd), d.path(name)), nil
	}
}

// living returns the other path of a file that the folder of a process lacks because the first
// thread has ended and other threads live on: in the folder of a living thread. Memory, open
// files and namespaces go away with the first thread.
func (d Dir) living(name string) (string, bool) {
	if name == "stat" || strings.HasPrefix(name, "task") {
		return "", false
	}
	if st, err := d.Stat(); err != nil || st.State != 'Z' || st.Threads <= 1 {
		return "", false
	}
	tid, ok := d.LivingTask()
	return TaskFile(tid, name), ok
}

// LivingTask returns a thread that has not ended; false: there is none.
func (d Dir) LivingTask() (tid int, ok bool) {
	tids, _ := d.Tasks() // none: the process has ended
	for _, tid := range tids {
		if st, err := d.TaskStat(tid); err == nil && st.State != 'Z' && st.State != 'X' {
			return tid, true
		}
	}
	return 0, false
}

// maxFile bounds the read of a file: a process itself chooses the memory that the kernel shows as
// its command line and its environment (prctl(2), PR_SET_MM). They have 6 MB at most when a
// program starts (fs/exec.c).
const maxFile = 8 << 20

// ReadFile reads a file; from a long file, only the beginning.
func (d Dir) ReadFile(name string) ([]byte, error) { return d.ReadMost(name, maxFile) }

// ReadMost reads a file; from a file of more than most bytes, only the beginning.
func (d Dir) ReadMost(name string, most int64) ([]byte, error) {
	f, err := d.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return nil, d.explain("read", name, cause(err))
	}
	if len(b) == 0 {
		if other, ok := d.living(name); ok {
			return d.ReadMost(other, most)
		}
	}
	return b, nil
}

// ReadInto reads a whole file into buf, or into more memory for a longer file. It is for repeated
// reading: the error is the plain system call's, or ErrTooLong.
func (d Dir) ReadInto(name string, buf []byte) ([]byte, error) {
	b, err := d.readInto(name, buf)
	if err == nil && len(b) > 0 || err == ErrTooLong {
		return b, err
	}
	if other, ok := d.living(name); ok {
		return d.readInto(other, buf)
	}
	return b, err
}

func (d Dir) readInto(name string, buf []byte) ([]byte, error) {
	fd, err := unix.Openat(d.fd, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	buf = buf[:0]
	for {
		if len(buf) > MaxMaps {
			return nil, ErrTooLong
		}
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		// The kernel gives a file in pieces; the end is a read of 0.
		n, err := unix.Read(fd, buf[len(buf):cap(buf)])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return buf, err
		case n <= 0:
			return buf, nil
		default:
			buf = buf[:len(buf)+n]
		}
	}
}

// Names lists a directory.
func (d Dir) Names(name string) ([]string, error) {
	f, err := d.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, d.explain("read", name, cause(err))
	}
	return names, nil
}

// Readlink reads a link.
func (d Dir) Readlink(name string) (string, error) {
	var buf [unix.PathMax]byte
	n, err := unix.Readlinkat(d.fd, name, buf[:])
	if err != nil {
		if other, ok := d.living(name); ok {
			return d.Readlink(other)
		}
		return "", d.explain("readlink", name, err)
	}
	return string(buf[:n]), nil
}

// StatFile describes the file behind a name.
func (d Dir) StatFile(name string) (st unix.Stat_t, err error) {
	if err = unix.Fstatat(d.fd, name, &st, 0); err == nil {
		return st, nil
	}
	if other, ok := d.living(name); ok {
		return d.StatFile(other)
	}
	return st, d.explain("stat", name, err)
}

func (d Dir) path(name string) string { return fmt.Sprintf("/proc/%d/%s", d.pid, name) }

// Sysctl is a setting of the kernel, for example "kernel/yama/ptrace_scope"; "" if the kernel has
// no such setting.
func Sysctl(name string) string {
	b, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// explain distinguishes a missing file from the end of the process.
func (d Dir) explain(op, name string, err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		var st unix.Stat_t
		if e := unix.Fstatat(d.fd, "stat", &st, 0); e == unix.ENOENT || e == unix.ESRCH {
			return Exited(d.pid)
		}
	}
	return &os.PathError{Op: op, Path: d.path(name), Err: err}
}

// cause is an error without the operation and the path.
func cause(err error) error {
	var inPath *os.PathError
	if errors.As(err, &inPath) {
		return inPath.Err
	}
	return err
}
