package priority

import (
	"errors"
	"runtime"
	"testing"

	"clrsnap/internal/procfs"

	"golang.org/x/sys/unix"
)

// TestPriority: in a process without other work, all threads have the higher priority meanwhile,
// also threads started meanwhile. Afterwards all threads have the priority from before.
func TestPriority(t *testing.T) {
	quit := make(chan struct{})
	defer close(quit)
	before := nices(t)
	var denied error
	Run(true, func(p *Priority) {
		if now := nices(t); now[high] > before[high] {
			t.Errorf("not raised yet, threads by their nice values: %v, before: %v", now, before)
		}
		p.Raise(true)
		denied = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), high)
		ready := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(ready)
			<-quit
		}()
		<-ready
		if now := nices(t); denied == nil && len(now) != 1 {
			t.Errorf("threads by their nice values: %v, before: %v", now, before)
		}
		p.Raise(false)
		if now := nices(t); now[high] > before[high] {
			t.Errorf("lowered, threads by their nice values: %v, before: %v", now, before)
		}
		p.Raise(true)
	})
	if after := nices(t); after[high] > before[high] {
		t.Errorf("threads by their nice values: %v, before: %v", after, before)
	}
	if denied != nil && !errors.Is(denied, unix.EACCES) && !errors.Is(denied, unix.EPERM) {
		t.Error(denied)
	}
}

// TestPriorityOfOne: in a process with other work, only the working thread has the higher priority.
func TestPriorityOfOne(t *testing.T) {
	before := nices(t)
	Run(false, func(p *Priority) {
		p.Raise(true)
		self := unix.Gettid()
		denied := unix.Setpriority(unix.PRIO_PROCESS, self, high)
		if now := nices(t); denied == nil && now[high] != before[high]+1 {
			t.Errorf("threads by their nice values: %v, before: %v", now, before)
		}
		p.Raise(false)
		if now := nices(t); now[high] > before[high] {
			t.Errorf("lowered, threads by their nice values: %v, before: %v", now, before)
		}
	})
}

// TestPriorityOfAnother: work of RunHigh keeps the high priority while the priority of the whole
// process is lowered.
func TestPriorityOfAnother(t *testing.T) {
	tid, quit, ended := make(chan int), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		RunHigh(func() {
			tid <- unix.Gettid()
			<-quit
		})
	}()
	other := <-tid
	nice := func() int {
		p, err := unix.Getpriority(unix.PRIO_PROCESS, other)
		if err != nil {
			t.Error(err)
		}
		return kernelPriority - p
	}
	before := nice()
	Run(true, func(p *Priority) {
		for _, higher := range []bool{true, false} {
			if p.Raise(higher); nice() != before {
				t.Errorf("its nice value is %d, before it was %d", nice(), before)
			}
		}
	})
	close(quit)
	if <-ended; len(always.tids) > 0 {
		t.Errorf("%d threads are still left out", len(always.tids))
	}
	if before != high {
		t.Skipf("a higher priority is not permitted here (CAP_SYS_NICE): its nice value is %d", before)
	}
}

// nices counts the threads of this process by their nice values.
func nices(t *testing.T) map[int]int {
	t.Helper()
	self, err := procfs.Self()
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	tids, err := self.Tasks()
	if err != nil {
		t.Fatal(err)
	}
	out := map[int]int{}
	for _, tid := range tids {
		if p, err := unix.Getpriority(unix.PRIO_PROCESS, tid); err == nil {
			out[kernelPriority-p]++
		}
	}
	return out
}
