package priority

import (
	"time"

	"clrsnap/internal/procfs"

	"golang.org/x/sys/unix"
)

// Ready returns how long the OS threads that have this priority have been ready to run without a CPU, in all: those of
// the process that live now, or only the calling one. It is 0 where the kernel does not count that.
func (p *Priority) Ready() time.Duration {
	self, err := procfs.Self()
	if err != nil {
		return 0
	}
	defer self.Close()
	threads := []int{unix.Gettid()}
	if p.all {
		threads, _ = self.Tasks()
	}
	var all time.Duration
	for _, tid := range threads {
		if b, err := self.ReadFile(procfs.TaskFile(tid, "schedstat")); err == nil { // else it has ended
			all += procfs.ParseSchedstat(b).Ready
		}
	}
	return all
}
