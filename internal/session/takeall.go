package session

import (
	"context"
	"runtime"

	"golang.org/x/sys/unix"
)

// takeAll captures the stacks of the chosen threads with as few stops as possible. A blocked
// thread is captured without a stop, and without most registers (live.Process.TryBlocked). The other threads are put
// off, and captured together (together): with the registers that the kernel has saved, and otherwise only if more
// threads run than the process may use CPUs. If neither is the case, a thread stops at once, for some microseconds,
// and the wait can be read during the stop. After more stops than there are CPUs, the running threads are counted
// anew: the collector may have kept them from running.
func (g *gathering) takeAll(ctx context.Context, list []Thread) error {
	put := together{g: g, looks: true}
	may, counted := g.Live != nil && !g.Options.AlwaysStop, false
	put.began = may && g.waitForCPUs(countRunning(list))
	defer put.end()
	for i := range list {
		if err := ctx.Err(); err != nil {
			_ = put.take(ctx) // ends with the context's error, or with an error of less interest
			return err
		}
		t := &list[i]
		if g.o.Filter != nil && !g.o.Filter(t) {
			continue
		}
		if !may || g.room <= 0 {
			g.addLiving(g.take(t))
			continue
		}
		if !put.began && !counted && len(g.out.Stops) > runtime.NumCPU() {
			put.began, counted = g.waitForCPUs(g.runNow(list)), true
		}
		st, ok := g.withoutStop(t)
		if !ok {
			if put.began = put.began || g.Live.CanLook() == nil; put.began {
				if err := put.off(ctx, t); err != nil {
					return err
				}
				continue
			}
			st = g.take(t)
		}
		g.addLiving(st)
	}
	return put.take(ctx)
}

// addLiving adds a thread to the snapshot, unless the thread has ended.
func (g *gathering) addLiving(t taken) {
	if t.Depth() > 0 || t.Error != ErrThreadEnded.Error() {
		g.add(t)
	}
}

// withoutStop takes the stack of a thread, if the thread is blocked and the stack can be walked without a stop.
func (g *gathering) withoutStop(t *Thread) (st taken, ok bool) {
	st, blocked, ok := g.takeBlocked(t)
	if !ok && !blocked { // the thread may have been awake for a moment only; a blocked thread tells its wait better
		st, _, ok = g.takeBlocked(t)
	}
	return st, ok
}

// countRunning counts the threads that ran when the list was made.
func countRunning(list []Thread) (run int) {
	for i := range list {
		if list[i].Runs {
			run++
		}
	}
	return run
}

// runNow counts the listed threads that run now.
func (g *gathering) runNow(list []Thread) (run int) {
	for i := range list {
		if info, err := g.from.Thread(list[i].OSThreadID); err == nil && info.State == 'R' {
			run++
		}
	}
	return run
}

// waitForCPUs reports whether threads wait for a CPU, because more threads run than the process may use CPUs.
func (g *gathering) waitForCPUs(run int) bool { return float64(run) > g.cpus() }

// cpus is the number of CPUs that the process may use: of the machine, by the affinity of the main thread, and by the
// quota of the control groups.
func (g *gathering) cpus() float64 {
	n := float64(runtime.NumCPU())
	var set unix.CPUSet
	if unix.SchedGetaffinity(g.Live.PID(), &set) == nil {
		n = min(n, float64(set.Count()))
	}
	if g.quota > 0 {
		n = min(n, g.quota)
	}
	return n
}
