package live

import (
	"time"

	"golang.org/x/sys/unix"
)

// ClockTime returns the current CLOCK_MONOTONIC, or CLOCK_REALTIME (clock_gettime(2)).
func ClockTime(realtime bool) (time.Duration, bool) {
	clock := int32(unix.CLOCK_MONOTONIC)
	if realtime {
		clock = unix.CLOCK_REALTIME
	}
	var now unix.Timespec
	err := unix.ClockGettime(clock, &now)
	return time.Duration(now.Nano()), err == nil
}
