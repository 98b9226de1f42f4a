package procfs

import (
	"bytes"
	"strconv"
)

// ExitCode is the exit status of a process, in wait(2)'s form, and false while the process lives,
// or if we may not know the status. The status exists until the parent has collected it.
func (d Dir) ExitCode() (status uint32, ok bool) {
	b, err := d.ReadFile("stat")
	if err != nil {
		return 0, false
	}
	return parseExitCode(b)
}

// parseExitCode reads the last field in proc_pid_stat(5). The field is 0 for readers without the
// right to the exit status.
func parseExitCode(b []byte) (status uint32, ok bool) {
	const state, exitCode = 3, 52
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) <= exitCode-state || len(fields[0]) != 1 || fields[0][0] != 'Z' && fields[0][0] != 'X' {
		return 0, false
	}
	v, err := strconv.ParseInt(string(fields[exitCode-state]), 10, 32)
	return uint32(v), err == nil
}
