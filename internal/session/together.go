package session

import (
	"context"
	"errors"
	"slices"

	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
	"clrsnap/profile"
)

// together captures the stacks of threads that run or wait for a CPU. live.Process.Look captures all of them with the
// registers saved by the kernel, and stops none. If the kernel does not tell registers, the threads have to be stopped.
// Most of the threads wait for a CPU to stop on, so live.Tracer.CaptureEach asks all threads together. A thread that
// had a CPU during the whole look, or that does not stop together with the others, is stopped alone.
type together struct {
	p     *Process
	out   *profile.Snapshot
	f     found
	began bool
	looks bool // the kernel may tell registers
	list  []*putOff
}

// putOff is a thread that is going to be captured.
type putOff struct {
	s  Suspension
	at int // in Snapshot.Threads
}

// mostTogether bounds the threads that are put off, by the memory of the first copies.
const mostTogether = allStacksAtOnce / FirstStack

// off puts a thread off.
func (g *together) off(ctx context.Context, t *Thread) error {
	if len(g.list) >= mostTogether {
		if err := g.take(ctx); err != nil {
			return err
		}
	}
	o := &putOff{at: len(g.out.Threads)}
	o.s = Suspension{Process: g.p, Thread: *t, Also: g.p.AlsoBlocking(t)}
	st := g.p.Summary(t)
	st.Error = ErrThreadEnded.Error() // as long as the thread is not captured
	g.out.Threads = append(g.out.Threads, st)
	g.list = append(g.list, o)
	return nil
}

// leaveDeep captures the threads that cannot be stopped one by one, and returns the others: together, the wait for a
// stop would come twice.
func (g *together) leaveDeep(list []*putOff) []*putOff {
	return slices.DeleteFunc(slices.Clone(list), func(o *putOff) bool {
		deep := o.s.isDeep()
		if deep {
			g.put(o, g.p.snapshot(&o.s.Thread))
		}
		return deep
	})
}

// put puts a stack in its place.
func (g *together) put(o *putOff, st profile.Thread) {
	g.out.Threads[o.at] = st
	g.f.keep(g.p, st.OSThreadID)
}

// end leaves out the threads that have ended, and the threads without a capture.
func (g *together) end() {
	if !g.began {
		return
	}
	g.p.Live.FreeLook()
	g.p.Live.FreeAll()
	g.out.Threads = slices.DeleteFunc(g.out.Threads, func(t profile.Thread) bool {
		return t.Depth() == 0 && t.Error == ErrThreadEnded.Error()
	})
}

// take captures the stacks of all threads that were put off. Threads with a gap in the copy are copied once more.
func (g *together) take(ctx context.Context) error {
	list := g.list
	g.list = nil
	for attempt := 0; len(list) > 0; attempt++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		var again []*putOff
		for rest := list; len(rest) > 0; {
			n := fitting(rest)
			more, err := g.capture(rest[:n], attempt)
			if err != nil {
				return err
			}
			again, rest = append(again, more...), rest[n:]
		}
		list = again
	}
	return nil
}

// fitting returns how many threads, with all requested memory, are copied at once.
func fitting(list []*putOff) int {
	room := allStacksAtOnce
	for i, o := range list {
		room -= FirstStack
		for _, r := range o.s.extra {
			room -= r.Len
		}
		if room < 0 && i > 0 {
			return i
		}
	}
	return len(list)
}

// capture captures threads together, and walks the stacks. Threads with a gap that another copy may fill are returned.
func (g *together) capture(list []*putOff, attempt int) (again []*putOff, err error) {
	p := g.p
	if !g.looks && attempt == 0 {
		list = g.leaveDeep(list)
	}
	reqs := make([]target.Request, len(list))
	for i, o := range list {
		reqs[i] = p.Request(&o.s.Thread, slices.Concat(o.s.Also, o.s.extra, o.s.copies))
	}
	captures, errs := make([]target.Capture, len(list)), make([]error, len(list))
	if g.looks {
		err = p.Live.Look(reqs, captures, errs)
		if errors.Is(err, live.ErrUnavailable) {
			g.looks = false
			g.out.Registers = profile.Registers{From: profile.RegistersTogether, Reason: err.Error()}
			return g.capture(list, attempt)
		}
		g.out.Registers.From = profile.RegistersKernel
	} else {
		err = p.Live.Trace(func(t *live.Tracer) error { return t.CaptureEach(reqs, captures, errs) })
	}
	if err != nil {
		return nil, err
	}
	p.Engine.Begin()
	for i, o := range list {
		o.s.Capture = &captures[i]
		p.moment++
		switch st, ok := g.walk(o, errs[i], attempt); {
		case ok:
			g.put(o, st)
		case errs[i] == nil:
			again = append(again, o)
		case errors.Is(errs[i], live.ErrKernelThread):
			st := p.Summary(&o.s.Thread)
			st.Error = errs[i].Error()
			g.put(o, st)
		default:
			g.put(o, p.snapshot(&o.s.Thread))
		}
	}
	return again, nil
}

// walk walks a captured thread. ok is false if the thread has to be captured again.
func (g *together) walk(o *putOff, failed error, attempt int) (st profile.Thread, ok bool) {
	p, s := g.p, &o.s
	p.calls, p.awaited, p.kept = p.calls[:0], p.awaited[:0], keptCalls{}
	err := p.FinishCapture(s, failed)
	ended := errors.Is(err, target.ErrThreadExited)
	if err != nil && !ended {
		return st, false
	}
	if s.Walk.Gap != nil && !ended && attempt < maxAttempts {
		return st, false
	}
	if ended || s.Thread.ID != 0 && s.Walk.Info.Address == 0 { // the Thread object is another thread's now
		st = p.Summary(&s.Thread)
		st.Error = ErrThreadEnded.Error()
		return st, true
	}
	r := s.frames(&p.walked)
	if s.lacksMore(r, attempt) {
		return st, false
	}
	return p.finish(s, r), true
}
