package priority

import (
	"time"

	"clrsnap/internal/procfs"

	"golang.org/x/sys/unix"
)

// Ready returns how long the OS threads with this priority have been ready to run without a CPU, in
// all: the living threads of the process, or only the calling thread. The result is 0 where the
// kernel does not count the time.
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
		if b, err := self.ReadFile(procfs.TaskFile(tid, "schedstat")); err == nil { // else the thread has ended
			all += procfs.ParseSchedstat(b).Ready
		}
	}
	return all
}
