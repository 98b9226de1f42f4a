package live

import (
	"math"
	"time"

	"clrsnap/internal/procfs"

	"golang.org/x/sys/unix"
)

// Monotonic is CLOCK_MONOTONIC, a clock that the kernel's own records can have as well. Go's
// time.Now reads the clock without a system call, but does not show the value.
func Monotonic() time.Duration { return monotonicBase + time.Since(goBase) }

// goBase and monotonicBase are the same moment, with the error of one reading.
var goBase, monotonicBase = sameMoment()

func sameMoment() (ofGo time.Time, monotonic time.Duration) {
	least := time.Duration(math.MaxInt64)
	for range 10 { // we may lose our CPU in between
		before := readClock(unix.CLOCK_MONOTONIC)
		now := time.Now()
		after := readClock(unix.CLOCK_MONOTONIC)
		if after-before < least {
			least, ofGo, monotonic = after-before, now, before+(after-before)/2
		}
	}
	return ofGo, monotonic
}

// Age is the age of a process or thread with the given start time, in clock ticks since boot.
func Age(start uint64) time.Duration {
	return readClock(unix.CLOCK_BOOTTIME) - time.Duration(start)*procfs.ClockTick
}

// OwnCPU is the CPU time of our process, without its tracing tasks.
func OwnCPU() time.Duration { return readClock(unix.CLOCK_PROCESS_CPUTIME_ID) }

// ThreadCPU is the CPU time of the calling OS thread.
func ThreadCPU() time.Duration { return readClock(unix.CLOCK_THREAD_CPUTIME_ID) }

// PeakMemory is the largest resident memory of our process so far, in bytes.
func PeakMemory() int64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return u.Maxrss << 10
}
