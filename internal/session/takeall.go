package session

import (
	"context"
	"errors"
	"runtime"
	"slices"

	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
	"clrsnap/profile"

	"golang.org/x/sys/unix"
)

// takeAll captures the stacks of the threads that filter accepts, into out, with as few stops as possible. A blocked
// thread is captured without a stop, and without most registers (live.Process.TryBlocked). If more threads run than
// the process may use CPUs, any other thread is captured with the registers saved by the kernel (live.Process.Look), and
// stopped only if the kernel has none. If the kernel does not tell registers, these threads are put off, and stopped
// together (together). Otherwise a thread stops at once, for some microseconds, and the wait can be read during the
// stop. After more stops than there are CPUs, the running threads are counted anew: the collector may have kept them
// from running.
func (p *Process) takeAll(ctx context.Context, list []Thread, filter Filter, out *profile.Snapshot, f found) error {
	may := p.Live != nil && !p.Options.AlwaysStop
	looks := may && p.waitForCPUs(list)
	if may {
		defer p.Live.FreeLook()
	}
	put := together{p: p, out: out, f: f}
	defer put.end()
	for i := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		t := &list[i]
		if filter != nil && !filter(t) {
			continue
		}
		if may && !looks && len(out.Stops) > runtime.NumCPU() {
			now, err := p.Threads()
			looks, may = err == nil && p.waitForCPUs(now), false
		}
		var st profile.Thread
		taken := false
		switch {
		case p.room <= 0:
		case put.began:
			st, taken = p.takeBlocked(t)
		case looks:
			var err error
			if st, taken, err = p.takeUnstopped(t, out); errors.Is(err, live.ErrUnavailable) {
				out.Registers = profile.Registers{From: profile.RegistersTogether, Reason: err.Error()}
				put.began = true
			}
			looks, may = err == nil, false // otherwise it will be the same for the others
		}
		if !taken && put.began && p.room > 0 {
			if err := put.off(ctx, t); err != nil {
				return err
			}
			continue
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

// takeUnstopped takes the stack of a thread without a stop. taken is false if the thread has to be stopped. The error
// says that there are no looks at all, or that the process has exited.
func (p *Process) takeUnstopped(t *Thread, out *profile.Snapshot) (st profile.Thread, taken bool, err error) {
	if st, taken = p.takeBlocked(t); taken {
		return st, true, nil
	}
	s := &Suspension{Process: p, Thread: *t, Also: p.AlsoBlocking(t)}
	ended := func() (profile.Thread, bool, error) {
		st := p.Summary(t)
		st.Error = ErrThreadEnded.Error()
		return st, true, nil
	}
	for attempt := 0; ; attempt++ {
		var capture [1]target.Capture
		var errs [1]error
		reqs := []target.Request{p.request(t, slices.Concat(s.Also, s.extra, s.copies), true)}
		p.moment++
		if err := p.Live.Look(reqs, capture[:], errs[:]); err != nil {
			return st, false, err
		}
		out.Registers.From = profile.RegistersKernel
		p.Engine.Begin()
		s.Capture = &capture[0]
		switch {
		case errors.Is(errs[0], target.ErrThreadExited):
			return ended()
		case errors.Is(errs[0], live.ErrKernelThread):
			st := p.Summary(t)
			st.Error = errs[0].Error()
			return st, true, nil
		case errs[0] != nil:
			return st, false, nil
		}
		p.calls, p.awaited, p.kept = p.calls[:0], p.awaited[:0], keptCalls{}
		_ = p.FinishCapture(s, nil) // there is no error of its own
		if s.Walk.Gap != nil && attempt < maxAttempts {
			continue
		}
		if s.Thread.ID != 0 && s.Walk.Info.Address == 0 {
			return ended() // the Thread object is another thread's now
		}
		if r := s.frames(&p.walked); !s.lacksMore(r, attempt) {
			return p.finish(s, r), true, nil
		}
	}
}
