package live

import (
	"time"

	"golang.org/x/sys/unix"
)

// Monotonic is CLOCK_MONOTONIC, which the kernel's own records can have as well.
func Monotonic() time.Duration { return readClock(unix.CLOCK_MONOTONIC) }

// ticks is the unit of ThreadInfo.StartTime (USER_HZ in include/uapi/asm-generic/param.h).
const ticks = time.Second / 100

// Age is how long a thread has been there.
func (i *ThreadInfo) Age() time.Duration {
	return readClock(unix.CLOCK_BOOTTIME) - time.Duration(i.StartTime)*ticks
}

// OwnCPU is the CPU time that this process has used, without its tracing tasks.
func OwnCPU() time.Duration { return readClock(unix.CLOCK_PROCESS_CPUTIME_ID) }

// readClock returns 0 for a clock that there is not: of a process that has ended.
func readClock(id int32) time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(id, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// PeakMemory is the most memory that this process has had in use, in bytes.
func PeakMemory() int64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return u.Maxrss << 10
}
