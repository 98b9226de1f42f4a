package procfs

import "time"

// Schedstat is a line of /proc/PID/task/TID/schedstat: the scheduler's counts of a thread.
type Schedstat struct {
	Running time.Duration // on a CPU
	Ready   time.Duration // ready to run without a CPU
	Runs    uint64        // how often the thread was put on a CPU
}

// ParseSchedstat parses a schedstat. A field that is not a number is 0, as in a kernel that does
// not count.
func ParseSchedstat(b []byte) (s Schedstat) {
	var v [3]uint64
	for i := range v {
		var field []byte
		field, b = nextField(b)
		v[i], _ = number(field)
	}
	return Schedstat{time.Duration(v[0]), time.Duration(v[1]), v[2]}
}

// Syscall is /proc/PID/task/TID/syscall of a blocked thread (proc_pid_syscall(5)).
type Syscall struct {
	Nr     int64 // -1: blocked, but not in a system call
	Args   [6]uint64
	SP, PC uint64
}

// ParseSyscall parses a syscall. It reports false for "running", the kernel's text for a thread
// that has not been off the CPU while the kernel looked.
func ParseSyscall(b []byte) (s Syscall, blocked bool) {
	field, b := nextField(b)
	if len(field) > 0 && field[0] == '-' {
		s.Nr = -1
	} else {
		nr, ok := id(field)
		if !ok {
			return Syscall{}, false
		}
		s.Nr = int64(nr)
		for i := range s.Args {
			field, b = nextField(b)
			if s.Args[i], ok = hex(field); !ok {
				return Syscall{}, false
			}
		}
	}
	var ok1, ok2 bool
	field, b = nextField(b)
	s.SP, ok1 = hex(field)
	field, _ = nextField(b)
	s.PC, ok2 = hex(field)
	if !ok1 || !ok2 {
		return Syscall{}, false
	}
	return s, true
}
