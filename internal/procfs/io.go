package procfs

import (
	"bytes"
	"errors"
)

// Transferred is how many bytes the read and write system calls of a thread have moved (proc_pid_io(5)). A call counts
// when the call returns; send and receive calls do not count.
type Transferred struct{ Read, Written uint64 }

// TaskIO reads a thread's io. Kernels without CONFIG_TASK_IO_ACCOUNTING have no such file.
func (d Dir) TaskIO(tid int) (Transferred, error) {
	b, err := d.ReadFile(TaskFile(tid, "io"))
	if err != nil {
		return Transferred{}, err
	}
	t, ok := parseIO(b)
	if !ok {
		return t, errNoIO
	}
	return t, nil
}

var errNoIO = errors.New("the io file has no rchar or no wchar")

// parseIO parses lines like "rchar: 323934931".
func parseIO(b []byte) (t Transferred, ok bool) {
	var read, written bool
	for line := range bytes.Lines(b) {
		name, value := nextField(line)
		field, _ := nextField(value)
		n, is := number(field)
		switch {
		case !is:
		case string(name) == "rchar:":
			t.Read, read = n, true
		case string(name) == "wchar:":
			t.Written, written = n, true
		}
	}
	return t, read && written
}
