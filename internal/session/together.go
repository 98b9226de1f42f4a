package session

import (
	"context"
	"errors"
	"slices"

	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
	"clrsnap/snapshot"
)

// together captures the stacks of threads that run or wait for a CPU, or whose walk takes more registers than are
// known of a blocked thread. live.Process.Look captures all of them with the registers saved by the kernel, and stops
// none. If the kernel does not tell registers, the threads have to be stopped. Most of the threads wait for a CPU to
// stop on, so live.Tracer.CaptureEach asks all threads together. A thread that had a CPU during the whole look, or that
// does not stop together with the others, is stopped alone.
type together struct {
	g     *gathering
	began bool
	looks bool // the kernel may tell registers
	list  []*putOff
}

// putOff is a thread that is going to be captured.
type putOff struct {
	*visit
	at int // in Snapshot.Threads
}

// mostTogether bounds the threads that are put off, by the memory of the first copies.
const mostTogether = allStacksAtOnce / FirstStack

// off puts a thread off.
func (x *together) off(ctx context.Context, t *Thread) error {
	if len(x.list) >= mostTogether {
		if err := x.take(ctx); err != nil {
			return err
		}
	}
	x.list = append(x.list, &putOff{x.g.visit(t), len(x.g.out.Threads)})
	x.g.add(x.g.without(t, ErrThreadEnded)) // as long as the thread is not captured
	return nil
}

// leaveDeep captures the threads that cannot be stopped one by one, and returns the others: together, the wait for a
// stop would come twice.
func (x *together) leaveDeep(list []*putOff) []*putOff {
	return slices.DeleteFunc(slices.Clone(list), func(o *putOff) bool {
		deep := o.isDeep()
		if deep {
			x.put(o, x.g.take(&o.Thread))
		}
		return deep
	})
}

// put puts a stack in its place.
func (x *together) put(o *putOff, st taken) {
	x.g.out.Threads[o.at] = st.Thread
	x.g.keep(st)
}

// end leaves out the threads that have ended, and the threads without a capture.
func (x *together) end() {
	if !x.began {
		return
	}
	x.g.Live.FreeLook()
	x.g.Live.FreeAll()
	x.g.out.Threads = slices.DeleteFunc(x.g.out.Threads, func(t snapshot.Thread) bool {
		return t.Depth() == 0 && t.Error == ErrThreadEnded.Error()
	})
}

// take captures the stacks of all threads that were put off. Threads with a gap in the copy are copied once more. If
// ctx has ended, the stacks are still captured once: the threads count among the results until then.
func (x *together) take(ctx context.Context) error {
	list := x.list
	x.list = nil
	for attempt := 0; len(list) > 0; attempt++ {
		if err := ctx.Err(); err != nil && attempt > 0 {
			return err
		}
		var again []*putOff
		for rest := list; len(rest) > 0; {
			n := fitting(rest)
			more, err := x.capture(rest[:n], attempt)
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
		for _, r := range o.extra {
			room -= r.Len
		}
		if room < 0 && i > 0 {
			return i
		}
	}
	return len(list)
}

// capture captures threads together, and walks the stacks. Threads with a gap that another copy may fill are returned.
func (x *together) capture(list []*putOff, attempt int) (again []*putOff, err error) {
	g := x.g
	if !x.looks && attempt == 0 {
		list = x.leaveDeep(list)
	}
	reqs := make([]target.Request, len(list))
	for i, o := range list {
		reqs[i] = g.Request(&o.Thread, slices.Concat(o.Also, o.extra, o.copies))
	}
	captures, errs := make([]target.Capture, len(list)), make([]error, len(list))
	if x.looks {
		err = g.Live.Look(reqs, captures, errs)
		if errors.Is(err, live.ErrUnavailable) {
			x.looks = false
			g.out.Registers = snapshot.Registers{From: snapshot.RegistersTogether, Reason: err.Error()}
			return x.capture(list, attempt)
		}
		g.out.Registers.From = snapshot.RegistersKernel
	} else {
		err = g.Live.Trace(func(t *live.Tracer) error { return t.CaptureEach(reqs, captures, errs) })
	}
	if err != nil {
		return nil, err
	}
	g.Engine.Begin()
	for i, o := range list {
		o.Capture = &captures[i]
		g.captures++
		switch st, ok := o.walk(errs[i], attempt); {
		case ok:
			x.put(o, st)
		case errs[i] == nil:
			again = append(again, o)
		case errors.Is(errs[i], live.ErrKernelThread):
			x.put(o, g.without(&o.Thread, errs[i]))
		default:
			x.put(o, g.take(&o.Thread))
		}
	}
	return again, nil
}

// walk walks a captured thread. ok is false if the thread has to be captured again.
func (o *putOff) walk(failed error, attempt int) (st taken, ok bool) {
	err := o.g.FinishCapture(&o.Suspension, failed)
	ended := errors.Is(err, target.ErrThreadExited)
	if err != nil && !ended {
		return st, false
	}
	if o.Walk.Gap != nil && !ended && attempt < maxAttempts {
		return st, false
	}
	if ended || o.Thread.ID != 0 && o.Walk.Info.Address == 0 { // the Thread object is another thread's now
		return o.g.without(&o.Thread, ErrThreadEnded), true
	}
	r := o.frames()
	if o.lacksMore(r, attempt) {
		return st, false
	}
	return o.finish(r), true
}
