package procfs

import (
	"bytes"
	"iter"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Processes lists the ids of the processes that can be seen here.
func Processes() ([]int, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	return ids(names), err
}

// Owner is the user id that a process is shown with: its effective one, or root's. The number can
// be another process's by then, so this serves for an estimate.
func Owner(pid int) (uid int, ok bool) {
	var st unix.Stat_t
	err := unix.Stat("/proc/"+strconv.Itoa(pid), &st)
	return int(st.Uid), err == nil
}

// ids are those names that are ids.
func ids(names []string) (list []int) {
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			list = append(list, n)
		}
	}
	return list
}

// Tasks lists the ids of the process's threads in the order of /proc.
func (d Dir) Tasks() ([]int, error) {
	f, err := d.Open("task")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var tids []int
	var names []string
	buf := make([]byte, 32<<10) // a process can have thousands
	for {
		n, err := unix.ReadDirent(int(f.Fd()), buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, d.explain("read", "task", err)
		}
		if n <= 0 {
			break
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names[:0])
		tids = append(tids, ids(names)...)
	}
	if len(tids) == 0 {
		return nil, Exited(d.pid)
	}
	return tids, nil
}

// CountTasks is how many threads the process has, without a list of them: the kernel counts
// them as links of the folder (proc_task_getattr in fs/proc/base.c).
func (d Dir) CountTasks() (int, error) {
	st, err := d.StatFile("task")
	return int(st.Nlink) - 2, err
}

// TaskFile is the name of a thread's file below the directory of its process.
func TaskFile(tid int, name string) string { return "task/" + strconv.Itoa(tid) + "/" + name }

// Children lists the processes that threads of this one have started, without those that a
// thread has started that ends meanwhile.
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

// parseChildren parses a list of ids with a blank behind each (proc_tid_children(5)). The last
// one of a list that is cut off has none, and does not count.
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

// Cmdline is the command line, with a blank between two arguments. It is what the process
// claims it to be, and can be long.
func (d Dir) Cmdline() (string, error) {
	b, err := d.ReadFile("cmdline")
	return strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " ")), err
}

// Environ is the environment that the process was started with, as NAME=value each, or what the
// process claims it to be.
func (d Dir) Environ() (iter.Seq[string], error) {
	b, err := d.ReadFile("environ")
	return strings.SplitSeq(string(b), "\x00"), err
}
