package session

import (
	"context"
	"errors"
	"runtime"
	"slices"

	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
	"clrsnap/profile"
)

// takeAll takes the stacks of the threads that filter accepts, into out. It stops as few as possible. Threads that are
// blocked are captured one by one, without a stop, and without most of their registers (live.Process.TryBlocked). Where
// more threads run than there are CPUs, the others are captured together, with the registers that the kernel has of them
// (live.Process.Look), and only those are stopped of which that is not known. Elsewhere a thread stops at once, for some
// microseconds, and what it waits for can be read while it is stopped.
func (p *Process) takeAll(ctx context.Context, list []Thread, filter Filter, out *profile.Snapshot, f found) error {
	var later []*laterThread
	busy := waitForCPUs(list)
	defer func() {
		out.Threads = slices.DeleteFunc(out.Threads, func(t profile.Thread) bool {
			return t.Depth() == 0 && t.Error == ErrThreadEnded.Error()
		})
	}()
	for i := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		t := &list[i]
		if filter != nil && !filter(t) {
			continue
		}
		if p.Live == nil || p.Options.AlwaysStop || p.room <= 0 || !busy {
			out.Threads = append(out.Threads, p.snapshot(t))
			f.keep(p, t.OSThreadID)
			continue
		}
		st, blocked, ok := p.snapshotBlocked(t)
		if !ok {
			st = p.Summary(t)
			st.Error = ErrThreadEnded.Error() // until it is captured
			later = append(later, &laterThread{
				at: len(out.Threads), tried: blocked,
				s: Suspension{Process: p, Thread: *t, Also: p.AlsoBlocking(t)},
			})
		}
		out.Threads = append(out.Threads, st)
		if ok {
			f.keep(p, t.OSThreadID)
		}
	}
	if len(later) == 0 {
		return nil
	}
	return p.takeLater(ctx, later, filter, out, f)
}

// waitForCPUs reports whether threads wait for a CPU, because more of them run than there are CPUs.
func waitForCPUs(list []Thread) bool {
	run := 0
	for i := range list {
		if list[i].Runs {
			run++
		}
	}
	return run > runtime.NumCPU()
}

// laterThread is a thread that is not captured yet.
type laterThread struct {
	at       int // in Snapshot.Threads
	s        Suspension
	attempts int  // that brought a stack which was not complete
	tried    bool // once more whether it is blocked; so is one whose stack takes more registers
}

// takeLater takes the stacks of threads that could not be captured without their registers.
func (p *Process) takeLater(ctx context.Context, later []*laterThread, filter Filter, out *profile.Snapshot, f found,
) error {
	defer p.Live.FreeLook()
	var stop []*laterThread
	for len(later) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		// One at a time: filter is asked right before a thread is captured, and who asks may note the time.
		if filter != nil && !filter(&later[0].s.Thread) {
			later = later[1:]
			continue
		}
		if p.takeRested(later[0], out, f) {
			later = later[1:]
			continue
		}
		again, left, err := p.lookAtSome(later[:1], out, f)
		if err != nil {
			if errors.Is(err, live.ErrUnavailable) {
				out.Registers = profile.Registers{From: profile.RegistersStops, Reason: err.Error()}
			}
			break // it will be the same for the others
		}
		out.Registers.From = profile.RegistersKernel
		later, stop = append(later[1:], again...), append(stop, left...)
	}
	for _, l := range append(stop, later...) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if filter != nil && !filter(&l.s.Thread) {
			continue
		}
		l.s.Capture = &p.Capture
		p.calls, p.awaited, p.kept = p.calls[:0], p.awaited[:0], keptCalls{}
		out.Threads[l.at] = p.described(&l.s, l.s.StopAndWalk)
		f.keep(p, l.s.Thread.OSThreadID)
	}
	return nil
}

// takeRested takes the stack of a thread that was awake for a moment only, and is blocked again: what it waits for is
// known better.
func (p *Process) takeRested(l *laterThread, out *profile.Snapshot, f found) bool {
	if l.tried {
		return false
	}
	l.tried = true
	st, _, ok := p.snapshotBlocked(&l.s.Thread)
	if ok {
		out.Threads[l.at] = st
		f.keep(p, l.s.Thread.OSThreadID)
	}
	return ok
}

// lookAtSome takes the stacks of some threads without a stop. again are those that need another look, and left those
// that have to be stopped. The error says that there are no looks at all, or that the process has exited.
func (p *Process) lookAtSome(some []*laterThread, out *profile.Snapshot, f found) (
	again, left []*laterThread, err error,
) {
	reqs := make([]target.Request, len(some))
	for i, l := range some {
		reqs[i] = p.request(&l.s.Thread, slices.Concat(l.s.Also, l.s.extra, l.s.copies), true)
	}
	captures, errs := make([]target.Capture, len(some)), make([]error, len(some))
	p.moment++
	if err := p.Live.Look(reqs, captures, errs); err != nil {
		return nil, nil, err
	}
	p.Engine.Begin()
	for i, l := range some {
		l.s.Capture = &captures[i]
		switch {
		case errors.Is(errs[i], target.ErrThreadExited):
			continue
		case errors.Is(errs[i], live.ErrKernelThread):
			out.Threads[l.at].Error = errs[i].Error()
			continue
		case errs[i] != nil:
			left = append(left, l)
			continue
		}
		switch st, state := p.walkLooked(l); state {
		case lookedWell:
			out.Threads[l.at] = st
			f.keep(p, l.s.Thread.OSThreadID)
		case lookedTooLittle:
			l.attempts++
			again = append(again, l)
		}
	}
	return again, left, nil
}

// How a look at a thread went.
const (
	lookedWell      = iota
	lookedTooLittle // another one may bring more
	lookedTooLate   // it has ended
)

// walkLooked walks a thread that has been looked at.
func (p *Process) walkLooked(l *laterThread) (st profile.Thread, state int) {
	s := &l.s
	p.calls, p.awaited, p.kept = p.calls[:0], p.awaited[:0], keptCalls{}
	_ = p.FinishCapture(s, nil) // it has no error of its own
	switch {
	case s.Walk.Gap != nil && l.attempts < maxAttempts:
		return st, lookedTooLittle
	case s.Thread.ID != 0 && s.Walk.Info.Address == 0: // its Thread object is another thread's now
		return st, lookedTooLate
	}
	r := s.frames(&p.walked)
	if s.lacksMore(r, l.attempts) {
		return st, lookedTooLittle
	}
	return p.finish(s, r), lookedWell
}
