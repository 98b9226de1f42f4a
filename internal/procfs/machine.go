package procfs

import (
	"math"

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
