package procfs

import (
	"errors"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// MachineMemory is the size of the machine's memory, in bytes (sysinfo(2)).
func MachineMemory() (int64, error) {
	var s unix.Sysinfo_t
	if err := unix.Sysinfo(&s); err != nil {
		return 0, err
	}
	unit := uint64(max(s.Unit, 1))
	return int64(min(uint64(s.Totalram), math.MaxInt64/unit) * unit), nil
}

// MachineIdle is the time in which CPUs had nothing to do since the machine started, summed up over all CPUs
// (proc_stat(5): idle and iowait).
func MachineIdle() (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return parseIdle(b)
}

func parseIdle(stat []byte) (time.Duration, error) {
	field, b := nextField(stat)
	if string(field) != "cpu" {
		return 0, errors.New("/proc/stat does not begin with the sum of all CPUs")
	}
	sum := uint64(0)
	for i := range 5 { // user, nice, system, idle, iowait
		field, b = nextField(b)
		n, ok := number(field)
		if !ok || n > math.MaxInt64/2/uint64(ClockTick) {
			return 0, errors.New("/proc/stat: no number")
		}
		if i >= 3 {
			sum += n
		}
	}
	return time.Duration(sum) * ClockTick, nil
}
