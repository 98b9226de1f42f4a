package procfs

import (
	"bytes"
	"strconv"
)

// ExitCode is how a process has ended, as wait(2) has it, and false while it lives, or if this may not
// be known. It is there until the parent has collected it.
func (d Dir) ExitCode() (status uint32, ok bool) {
	b, err := d.ReadFile("stat")
	if err != nil {
		return 0, false
	}
	return parseExitCode(b)
}

// parseExitCode reads the last of the fields that proc_pid_stat(5) knows, which is 0 for those who may not
// know it.
func parseExitCode(b []byte) (status uint32, ok bool) {
	const state, exitCode = 3, 52
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) <= exitCode-state || len(fields[0]) != 1 || fields[0][0] != 'Z' && fields[0][0] != 'X' {
		return 0, false
	}
	v, err := strconv.ParseInt(string(fields[exitCode-state]), 10, 32)
	return uint32(v), err == nil
}
