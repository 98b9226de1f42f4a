package live

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"clrsnap/internal/procfs"

	"golang.org/x/sys/unix"
)

// TestAlone: a process is alone as long as one of those who have said so has not ended that.
func TestAlone(t *testing.T) {
	first, second := Alone(), Alone()
	first()
	first()
	if !isAlone() {
		t.Error("one has ended it twice, and the other one's does not count any more")
	}
	if second(); isAlone() {
		t.Error("both have ended it")
	}
}

// TestPriority: all threads of a process that is alone have the higher priority meanwhile, also those that start
// then, and the one before afterwards.
func TestPriority(t *testing.T) {
	defer Alone()()
	quit := make(chan struct{})
	defer close(quit)
	before := nices(t)
	var denied error
	RunWithPriority(func(p *Priority) {
		if now := nices(t); now[highPriority] > before[highPriority] {
			t.Errorf("not raised yet, threads by their nice values: %v, before: %v", now, before)
		}
		p.Raise(true)
		denied = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), highPriority)
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
		if now := nices(t); now[highPriority] > before[highPriority] {
			t.Errorf("lowered, threads by their nice values: %v, before: %v", now, before)
		}
		p.Raise(true)
	})
	if after := nices(t); after[highPriority] > before[highPriority] {
		t.Errorf("threads by their nice values: %v, before: %v", after, before)
	}
	if denied != nil && !errors.Is(denied, unix.EACCES) && !errors.Is(denied, unix.EPERM) {
		t.Error(denied)
	}
}

// TestPriorityOfOne: in a process that does more, only the thread that does the work has the higher priority.
func TestPriorityOfOne(t *testing.T) {
	before := nices(t)
	RunWithPriority(func(p *Priority) {
		p.Raise(true)
		self := unix.Gettid()
		denied := unix.Setpriority(unix.PRIO_PROCESS, self, highPriority)
		if now := nices(t); denied == nil && now[highPriority] != before[highPriority]+1 {
			t.Errorf("threads by their nice values: %v, before: %v", now, before)
		}
		p.Raise(false)
		if now := nices(t); now[highPriority] > before[highPriority] {
			t.Errorf("lowered, threads by their nice values: %v, before: %v", now, before)
		}
	})
}

// TestPriorityOfAnother: work that always has a high priority keeps it while that of the whole process is lowered.
func TestPriorityOfAnother(t *testing.T) {
	defer Alone()()
	tid, quit, ended := make(chan int), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		RunAtHighPriority(func() {
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
	RunWithPriority(func(p *Priority) {
		for _, high := range []bool{true, false} {
			if p.Raise(high); nice() != before {
				t.Errorf("its nice value is %d, before it was %d", nice(), before)
			}
		}
	})
	close(quit)
	if <-ended; len(always.tids) > 0 {
		t.Errorf("%d threads are still left out", len(always.tids))
	}
	if before != highPriority {
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

// TestTimesOfOthers: how long a thread has run is known also to who may not read its other files.
func TestTimesOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become somebody else")
	}
	pr := start(t, nil, "spin")
	p := open(t, pr)
	type times struct {
		running time.Duration
		ok      bool
		denied  error
	}
	result := make(chan times)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its rights
		var r times
		if r.denied = unix.Setfsuid(65534); r.denied == nil {
			_, r.denied = openBlocked(p, pr.pid)
			counted, ok := p.Times(pr.pid)
			r.running, r.ok = counted.Running, ok
		}
		result <- r
	}()
	if r := <-result; !errors.Is(r.denied, unix.EACCES) || !r.ok || r.running == 0 {
		t.Errorf("it has run for %v; known: %v; the other file: %v", r.running, r.ok, r.denied)
	}
}
