package procfs

import (
	"bytes"
	"math"
)

// OpenFiles is the process's limit of descriptors: the soft limit RLIMIT_NOFILE. -1: there is no
// limit.
func (d Dir) OpenFiles() (int, error) {
	b, err := d.ReadFile("limits")
	if err != nil {
		return 0, err
	}
	return parseOpenFiles(b)
}

// parseOpenFiles finds a line of limits (proc_pid_limits(5)): Max open files, soft limit, hard limit, unit.
func parseOpenFiles(b []byte) (int, error) {
	for line := range bytes.Lines(b) {
		rest, ok := bytes.CutPrefix(line, []byte("Max open files"))
		if !ok {
			continue
		}
		soft, _ := nextField(rest)
		if string(soft) == "unlimited" {
			return -1, nil
		}
		if n, ok := number(soft); ok && n <= math.MaxInt32 {
			return int(n), nil
		}
	}
	return 0, ErrFormat
}
