package session

import (
	"context"
	"runtime"

	"golang.org/x/sys/unix"
)

// takeAll captures the stacks of the chosen threads with as few stops as possible. A blocked
// thread is captured without a stop, and without most registers (live.Process.TryBlocked). If more threads run than
// the process may use CPUs, the other threads are put off, and captured together (together). Otherwise a thread stops
// at once, for some microseconds, and the wait can be read during the stop. After more stops than there are CPUs, the
// running threads are counted anew: the collector may have kept them from running.
func (g *gathering) takeAll(ctx context.Context, list []Thread) error {
	may := g.Live != nil && !g.Options.AlwaysStop
	put := together{g: g, looks: true}
	run := countRunning(list)
	put.began = may && g.waitForCPUs(run)
	g.looks = may && len(list) <= MostLooked && (g.Live.Looked() || run > 0)
	defer put.end()
	for i := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		t := &list[i]
		if g.o.Filter != nil && !g.o.Filter(t) {
			continue
		}
		if may && !put.began && len(g.out.Stops) > runtime.NumCPU() {
			put.began, may = g.waitForCPUs(g.runNow(list)), false
		}
		var st taken
		is := false
		if put.began && g.room > 0 {
			if st, is = g.withoutStop(t); !is {
				if err := put.off(ctx, t); err != nil {
					return err
				}
				continue
			}
		}
		if !is {
			st = g.take(t)
		}
		if st.Depth() > 0 || st.Error != ErrThreadEnded.Error() {
			g.add(st)
		}
	}
	return put.take(ctx)
}

// MostLooked bounds the threads of a program whose threads are looked at one by one (LookAndWalk): each look reads all
// threads.
const MostLooked = 512

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
