package session

import (
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/awaits"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/waits"
	"clrsnap/snapshot"
)

// AwaitingAt holds the methods that await an async method of a stack.
type AwaitingAt struct {
	SP     uint64 // of the frame above which Frames are shown
	Frames []snapshot.Frame
	task   uint64 // task at the end of the chain, with a thread that waits for the task; 0: the chain ends otherwise
}

// awaitingByThread holds the awaiting methods of stacks, by thread id.
type awaitingByThread map[int][]AwaitingAt

func (a awaitingByThread) keep(tid int, list []AwaitingAt) {
	if len(list) > 0 {
		a[tid] = list
	}
}

// awaiting returns the methods that await the async methods of the thread just walked.
func (s *visit) awaiting(frames []snapshot.Frame) (out []AwaitingAt) {
	p := s.g
	if p.Runtime == nil {
		return nil
	}
	for i := range p.stack.asyncs.Sites {
		site := &p.stack.asyncs.Sites[i]
		if site.Below >= len(frames) || p.room <= 0 || site.Serves {
			continue
		}
		below := &frames[site.Below]
		if n := len(out); n > 0 && out[n-1].SP == below.SP {
			continue // added for the frame above
		}
		if frame, ok := site.RunsTask(); ok {
			s.findTask(site, frame, frames)
		}
		chain, err := p.Awaiting(site, arch.Addr(below.SP), arch.Addr(below.IP), s.Rests)
		if err != nil {
			continue
		}
		at := AwaitingAt{SP: below.SP}
		if chain.End == async.Thread {
			at.task = uint64(chain.Last)
		}
		inner := site.Inner(func() string { return frames[site.Below-1].Method })
		for k := range chain.Steps {
			at.Frames = append(at.Frames, p.AsyncStep(&chain.Steps[k], inner))
			inner = &chain.Steps[k]
			p.room -= awaits.FrameCost(&at.Frames[k])
		}
		out = append(out, at)
	}
	return out
}

// findTask finds the task that a frame runs. The frame's thread has just been walked.
func (s *Suspension) findTask(site *awaits.Site, frame int, frames []snapshot.Frame) {
	if s.Walk.Stack != nil {
		subject := waits.Subject{Frames: frames, Stack: s.Walk.Stack, Thread: s.Walk.Info}
		site.Argument = s.Process.WaitReader().RunAt(&subject, frame)
	}
}

// Rests reports whether the thread has certainly not run since the copy of the stack.
func (s *Suspension) Rests() bool { return s.Capture != nil && !s.Capture.Stopped && s.unmoved() }

// addAwaiting adds to captured stacks the frames of the methods that await the stacks' async
// methods.
func addAwaiting(threads []snapshot.Thread, list awaitingByThread) {
	waiters := map[uint64]*snapshot.Thread{}
	for i := range threads {
		w := threads[i].Wait
		if w != nil && w.Kind == snapshot.TaskWait && w.Object != 0 {
			waiters[w.Object] = &threads[i]
		} else if w != nil {
			for k := range w.Tasks {
				waiters[w.Tasks[k].Object] = &threads[i]
			}
		}
	}
	for i := range threads {
		t := &threads[i]
		for k := range list[t.OSThreadID] {
			at := &list[t.OSThreadID][k]
			if w := waiters[at.task]; w != nil {
				at.Frames = append(at.Frames, waiterFrame(w))
			}
		}
		t.Frames = insertAwaiting(t.Frames, list[t.OSThreadID])
	}
}

// waiterFrame describes the thread that waits for the task at the end of a chain.
func waiterFrame(t *snapshot.Thread) snapshot.Frame {
	const wait, short = "System.Threading.Tasks.Task.Wait", "Task.Wait"
	return snapshot.Frame{
		Kind: snapshot.Async, Method: wait, Display: wait, Short: short, Module: coreLib,
		Waiter: &snapshot.ThreadRef{OSThreadID: t.OSThreadID, ManagedThreadID: t.ManagedThreadID, Name: t.Name},
	}
}

// insertAwaiting adds to a stack, leaf first, the frames of the methods that await the stack's
// async methods.
func insertAwaiting(frames []snapshot.Frame, list []AwaitingAt) []snapshot.Frame {
	var out []snapshot.Frame
	from := 0
	for i := range list {
		at := slices.IndexFunc(frames[from:], func(f snapshot.Frame) bool { return f.SP >= list[i].SP })
		if at < 0 || len(list[i].Frames) == 0 {
			continue
		}
		out = append(append(out, frames[from:from+at]...), list[i].Frames...)
		from += at
	}
	if out == nil {
		return frames
	}
	return append(out, frames[from:]...)
}
