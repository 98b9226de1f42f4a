package procfs

import "time"

// Schedstat is a line of /proc/PID/task/TID/schedstat: what the scheduler counts of a thread.
type Schedstat struct {
	Running time.Duration // it has had a CPU
	Ready   time.Duration // it was ready to run and had none
	Runs    uint64        // how often it was given one
}

// ParseSchedstat parses a schedstat. What is not a number is 0, as where the kernel does not
// count.
func ParseSchedstat(b []byte) (s Schedstat) {
	var v [3]uint64
	for i := range v {
		var field []byte
		field, b = nextField(b)
		v[i], _ = number(field)
	}
	return Schedstat{time.Duration(v[0]), time.Duration(v[1]), v[2]}
}

// Syscall is /proc/PID/task/TID/syscall of a thread that is blocked (proc_pid_syscall(5)).
type Syscall struct {
	Nr     int64 // -1: it is blocked, but not in a system call
	Args   [6]uint64
	SP, PC uint64
}

// ParseSyscall parses a syscall. It reports false for "running", which is what the kernel
// writes for a thread that has not been off the CPU while it looked.
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
