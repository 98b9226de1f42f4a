package procfs

import (
	"bytes"
	"errors"
	"iter"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Processes lists the ids of the visible processes.
func Processes() ([]int, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return readIDs(d)
}

// Owner is the user id that /proc shows for a process: its effective id, or root's. The number
// can be another process's by then, so Owner is good for an estimate.
func Owner(pid int) (uid int, ok bool) {
	var st unix.Stat_t
	err := unix.Stat("/proc/"+strconv.Itoa(pid), &st)
	return int(st.Uid), err == nil
}

// Tasks lists the ids of the process's threads in the order of /proc.
func (d Dir) Tasks() ([]int, error) {
	f, err := d.Open("task")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	tids, err := readIDs(f)
	if err != nil {
		return nil, d.explain("read", "task", err)
	}
	if len(tids) == 0 {
		return nil, Exited(d.pid)
	}
	return tids, nil
}

// TasksOf is Tasks for a caller with only the number of a process, and perhaps only one file that
// may still be opened. The error is ErrExited, too, if there is no such process.
func TasksOf(pid int) ([]int, error) {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/task")
	var tids []int
	if err == nil {
		defer f.Close()
		tids, err = readIDs(f)
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) || err == nil && len(tids) == 0 {
		return nil, Exited(pid)
	}
	return tids, err
}

// readIDs lists the names of a directory that are ids.
func readIDs(dir *os.File) (list []int, err error) {
	var names []string
	buf := make([]byte, 32<<10) // there can be thousands
	for {
		n, err := unix.ReadDirent(int(dir.Fd()), buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return list, err
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names[:0])
		for _, name := range names {
			if id, err := strconv.Atoi(name); err == nil {
				list = append(list, id)
			}
		}
	}
}

// CountTasks is the process's number of threads, without a list of the threads: the kernel counts
// threads as links of the folder (proc_task_getattr in fs/proc/base.c). It is for repeated calls,
// so Go's scheduler is not told of the system call.
func (d Dir) CountTasks() (int, error) {
	var st unix.Stat_t
	_, _, errno := syscall.RawSyscall6(unix.SYS_NEWFSTATAT, uintptr(d.fd), uintptr(unsafe.Pointer(&taskName[0])),
		uintptr(unsafe.Pointer(&st)), 0, 0, 0)
	if errno != 0 {
		return 0, d.explain("stat", "task", errno)
	}
	return int(st.Nlink) - 2, nil
}

var taskName = []byte("task\x00")

// TaskFile is the name of a thread's file below the directory of its process.
func TaskFile(tid int, name string) string { return "task/" + strconv.Itoa(tid) + "/" + name }

// Children lists the processes that threads of the process have started, without the children of
// a thread that ends meanwhile.
func (d Dir) Children() ([]int, error) {
	tids, err := d.Tasks()
	if err != nil {
		return nil, err
	}
	var out []int
	for _, tid := range tids {
		if b, err := d.ReadFile(TaskFile(tid, "children")); err == nil {
			out = append(out, parseChildren(b)...)
		}
	}
	return out, nil
}

// parseChildren parses a list of ids with a blank behind each id (proc_tid_children(5)). The last
// id of a truncated list has no blank, and does not count.
func parseChildren(b []byte) (list []int) {
	b = b[:bytes.LastIndexByte(b, ' ')+1]
	for field := range bytes.FieldsSeq(b) {
		if child, ok := id(field); ok {
			list = append(list, child)
		}
	}
	return list
}

// Comm is the name of the process, which can be anything.
func (d Dir) Comm() (string, error) { return d.comm("comm") }

// TaskComm is the name of a thread.
func (d Dir) TaskComm(tid int) (string, error) { return d.comm(TaskFile(tid, "comm")) }

func (d Dir) comm(file string) (string, error) {
	b, err := d.ReadFile(file)
	return strings.TrimSuffix(string(b), "\n"), err
}

// Cmdline is the command line, with a blank between two arguments. The process chooses the text,
// which can be long.
func (d Dir) Cmdline() (string, error) {
	args, err := d.Args()
	return JoinArgs(args), err
}

// Args is the command line as a list. The process chooses the text.
func (d Dir) Args() ([]string, error) {
	b, err := d.ReadFile("cmdline")
	return parseArgs(b), err
}

// JoinArgs is a command line as one text, with a blank between two arguments.
func JoinArgs(args []string) string { return strings.TrimSpace(strings.Join(args, " ")) }

// maxArgs bounds the list: a process can claim to have millions of arguments.
const maxArgs = 1000

// parseArgs parses a command line with a 0 behind each argument. The last argument may have none.
// Of more than maxArgs arguments, the last argument contains all the rest.
func parseArgs(b []byte) []string {
	s := strings.TrimRight(string(b), "\x00")
	if s == "" {
		return nil
	}
	args := strings.SplitN(s, "\x00", maxArgs)
	last := &args[len(args)-1]
	*last = strings.ReplaceAll(*last, "\x00", " ")
	return args
}

// Environ is the environment at the process's start, as NAME=value each, or another text that the
// process has chosen.
func (d Dir) Environ() (iter.Seq[string], error) {
	b, err := d.ReadFile("environ")
	return strings.SplitSeq(string(b), "\x00"), err
}
