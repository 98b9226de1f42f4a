package live

import (
	"time"

	"clrsnap/internal/procfs"
)

// Ready returns how long the OS threads of this process that live now have been ready to run without a CPU, in all.
// It is 0 where the kernel does not count that.
func Ready() (all time.Duration) {
	self, err := procfs.Self()
	if err != nil {
		return 0
	}
	defer self.Close()
	threads, _ := self.Tasks()
	for _, tid := range threads {
		if b, err := self.ReadFile(procfs.TaskFile(tid, "schedstat")); err == nil { // else it has ended
			all += procfs.ParseSchedstat(b).Ready
		}
	}
	return all
}
