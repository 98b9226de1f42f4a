package session

import (
	"context"
	"runtime"

	"clrsnap/profile"

	"golang.org/x/sys/unix"
)

// takeAll captures the stacks of the threads that filter accepts, into out, with as few stops as possible. A blocked
// thread is captured without a stop, and without most registers (live.Process.TryBlocked). If more threads run than
// the process may use CPUs, the other threads are put off, and captured together (together). Otherwise a thread stops
// at once, for some microseconds, and the wait can be read during the stop. After more stops than there are CPUs, the
// running threads are counted anew: the collector may have kept them from running.
func (p *Process) takeAll(ctx context.Context, list []Thread, filter Filter, out *profile.Snapshot, f found) error {
	may := p.Live != nil && !p.Options.AlwaysStop
	put := together{p: p, out: out, f: f, looks: true}
	put.began = may && p.waitForCPUs(list)
	defer put.end()
	for i := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		t := &list[i]
		if filter != nil && !filter(t) {
			continue
		}
		if may && !put.began && len(out.Stops) > runtime.NumCPU() {
			now, err := p.Threads()
			put.began, may = err == nil && p.waitForCPUs(now), false
		}
		var st profile.Thread
		taken := false
		if put.began && p.room > 0 {
			if st, taken = p.takeBlocked(t); !taken {
				if err := put.off(ctx, t); err != nil {
					return err
				}
				continue
			}
		}
		if !taken {
			st = p.snapshot(t)
		}
		if st.Depth() == 0 && st.Error == ErrThreadEnded.Error() {
			continue
		}
		out.Threads = append(out.Threads, st)
		f.keep(p, t.OSThreadID)
	}
	return put.take(ctx)
}

// takeBlocked takes the stack of a thread if it is blocked and can be walked without a stop.
func (p *Process) takeBlocked(t *Thread) (st profile.Thread, taken bool) {
	st, blocked, taken := p.snapshotBlocked(t)
	if !taken && !blocked { // the thread may have been awake for a moment only; a blocked thread tells its wait better
		st, _, taken = p.snapshotBlocked(t)
	}
	return st, taken
}

// waitForCPUs reports whether threads wait for a CPU, because more threads run than the process may use CPUs.
func (p *Process) waitForCPUs(list []Thread) bool {
	run := 0
	for i := range list {
		if list[i].Runs {
			run++
		}
	}
	return float64(run) > p.cpus()
}

// cpus is the number of CPUs that the process may use: of the machine, by the affinity of the main thread, and by the
// quota of the control groups.
func (p *Process) cpus() float64 {
	n := float64(runtime.NumCPU())
	var set unix.CPUSet
	if unix.SchedGetaffinity(p.Live.PID(), &set) == nil {
		n = min(n, float64(set.Count()))
	}
	if p.quota > 0 {
		n = min(n, p.quota)
	}
	return n
}
