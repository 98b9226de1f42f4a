package session

import (
	"errors"
	"slices"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/engine"
	"clrsnap/internal/naming"
	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
	"clrsnap/internal/walk"
)

// Suspension is a thread as of one moment: its registers and its stack. A Suspension stands for the suspended thread
// of the profiling API's steps (suspend, get the context, seed, walk, resume), but the thread itself was stopped only
// for the copy, and runs again. A Suspension is valid until its Process captures a thread again.
type Suspension struct {
	Process *Process
	Thread  Thread
	Capture *target.Capture
	Walk    walk.Thread

	Exception    thread.Exception
	Managed      bool           // the last walk met managed frames
	FoundBlocked bool           // the thread was once found blocked
	SlowPoll     bool           // the thread most likely waits for a CPU: stop it without hurry
	Also         []target.Range // memory beside the stack, copied at the same moment: see Copied
	Unchanged    func() bool    // whether this very capture need not be walked; nil: it must be
	// Stops is where to note the duration of stops; nil: nowhere.
	Stops *[]time.Duration

	extra  []target.Range // further pieces of stack that are needed
	number uint64         // of the capture: see Process.captures; 0: there is none
	pause  time.Duration  // the longest stop
	ran    bool           // since the walk: see again

	restsOn  []target.Region  // memory with the owner of the awaited lock; nil: there is no such lock
	generics []naming.Generic // frames of the last walk whose instantiation depends on an object
	copies   []target.Range   // memory that is copied for generics: see askObjects
}

const maxAttempts = 4

// Suspend captures a thread, with everything that a walk of its stack needs. If the first copy lacks something (the
// ordinary stack below a signal stack, the base of a deep stack), the thread is captured again.
func (p *Process) Suspend(id arch.Addr) (*Suspension, error) {
	t, err := p.Find(id)
	if err != nil {
		return nil, err
	}
	s := &Suspension{Process: p, Thread: t, Capture: &p.Capture}
	p.announce(id)
	defer func() {
		if p.announced != s {
			p.announce(0)
		}
	}()
	for attempt := 0; ; attempt++ {
		err := s.stop()
		if err != nil && !errors.Is(err, target.ErrThreadExited) {
			return nil, p.failure(id, err)
		}
		if err != nil || s.Walk.Info.Address == 0 {
			// The Thread object is dead, or another thread's by now.
			p.known = nil
			if s.Thread, err = p.Find(id); err != nil || attempt == maxAttempts {
				return nil, &Error{Kind: NoThread, Thread: id, Text: "the thread has exited", Err: err}
			}
			continue
		}
		ctx := s.Walk.Context
		r := p.Walker.Unwind(&s.Walk, &ctx, walk.ByUnwindInfo, func(*walk.Frame) bool { return true })
		if attempt < maxAttempts {
			again := !r.Complete && s.mend(r.Err, attempt)
			if s.mendChain() || again {
				continue
			}
		}
		p.announced = s
		return s, nil
	}
}

// mendChain adds memory outside the stack to the next copy, if the thread's Frames point to the memory, and reports
// whether there is any. A debugger's evaluation of an expression has its context in the heap.
func (s *Suspension) mendChain() bool {
	if s.Walk.Info.Address == 0 || !errors.Is(s.Process.Walker.CheckChain(&s.Walk), walk.ErrMissing) {
		return false
	}
	at := s.Walk.Stack.Miss
	m := s.mapping(at)
	if m == nil {
		return false
	}
	for _, r := range s.extra {
		if at >= r.Addr && at-r.Addr < arch.Addr(r.Len) {
			return false
		}
	}
	const page = 4096 // a context is smaller, and the address missed may be anywhere in it
	start, end := max(m.Start, at&^(page-1)-page), min(m.End, at&^(page-1)+2*page)
	if start >= end {
		return false // a damaged dump
	}
	s.extra = append(s.extra, target.Range{Addr: start, Len: int(end - start)})
	return true
}

// mend removes the cause of an incomplete walk, if possible. A missing piece of stack is copied next time; the list
// of modules is read again, once. mend reports whether it makes sense to capture the thread again.
func (s *Suspension) mend(err error, attempt int) bool {
	extra, ok := s.missing(err)
	switch {
	case ok:
		s.extra = append(s.extra, extra)
	case !s.Process.moments.Changes():
		return false // another capture would be the same
	case attempt == 0:
		_ = s.Process.updateModules() // otherwise the walk reports its gap
	}
	return true
}

// Copied reads the copy of one of the ranges in Also; false: it could not be copied.
func (s *Suspension) Copied(r target.Range) ([]byte, bool) {
	for _, e := range s.Capture.Stack.Extra {
		if e.Base == r.Addr && len(e.Data) == r.Len {
			return e.Data, true
		}
	}
	return nil, false
}

// Valid reports whether the suspension still holds its moment.
func (s *Suspension) Valid() bool { return s.number != 0 && s.number == s.Process.captures }

// Release ends the suspension.
func (s *Suspension) Release() {
	if s.Process.announced == s {
		s.Process.announce(0)
	}
	s.number = 0
}

// announce passes the walked thread to p.Announce; 0: none is walked.
func (p *Process) announce(id arch.Addr) {
	if p.Announce != nil {
		p.Announce(id)
	}
}

// FirstStack is how much of a stack is copied at first, in bytes. Few stacks are deeper; a second capture copies the
// rest.
const FirstStack = 256 << 10

// Request says what to copy of a thread.
func (p *Process) Request(t *Thread, extra []target.Range) target.Request {
	return p.request(t, extra, true)
}

// request is Request, with or without the memory for an exception in flight on the thread.
func (p *Process) request(t *Thread, extra []target.Range, exception bool) target.Request {
	r := target.Request{TID: t.OSThreadID, StackLimit: FirstStack, Extra: extra}
	if t.ID != 0 {
		r.Head, r.HeadLen = t.ID, p.Managed.Threads.HeadLen()
		if !exception {
			return r
		}
		if at, n := p.Managed.Threads.TrackerRange(p.from, t.ID); n > 0 {
			r.Extra = append(slices.Clip(extra), target.Range{Addr: at, Len: n})
		}
	}
	return r
}

// stop captures the thread with a stop. It tries again if the thread, or our tracer, got no CPU in time, as happens
// on a machine under load.
func (s *Suspension) stop() error {
	for attempt := 1; ; attempt++ {
		err := s.take(s.Process.from.Capture, true)
		late := errors.Is(err, live.ErrWatchdog) || errors.Is(err, live.ErrTracerLost)
		again := errors.Is(err, live.ErrNotStopping) && attempt == 1 && !s.isDeep()
		if late && attempt < maxAttempts || again {
			continue
		}
		return err
	}
}

// peek captures the thread without a stop, if it is provably blocked. Few blocked threads have an exception in
// flight, so the first try does not look for exceptions.
func (s *Suspension) peek() error {
	return s.take(s.Process.from.TryBlocked, !s.Process.moments.Changes())
}

// take captures the thread. It captures again if the first copy lacks the memory for an exception, or if the thread
// has thrown an exception since.
func (s *Suspension) take(capture func(*target.Request, *target.Capture) error, exception bool) error {
	if s.Process.Walking {
		return NestedError(s.Thread.ID)
	}
	for attempt := 1; ; attempt++ {
		req := s.Process.request(&s.Thread, slices.Concat(s.Also, s.extra, s.copies), exception || attempt > 1)
		s.Process.captures++
		req.SlowPoll = s.SlowPoll
		err := capture(&req, s.Capture)
		if err == nil {
			s.Process.Engine.Begin()
		}
		err = s.Process.FinishCapture(s, err)
		if err != nil || s.Walk.Gap == nil || !s.Process.moments.Changes() || attempt == maxAttempts {
			return err
		}
	}
}

// FinishCapture puts the result of a capture into the suspension.
func (p *Process) FinishCapture(s *Suspension, err error) error {
	if s.number = 0; err != nil {
		return err
	}
	s.number = p.captures
	c := s.Capture
	if c.Stopped {
		s.pause = max(s.pause, c.Pause)
		if s.Stops != nil {
			*s.Stops = append(*s.Stops, c.Pause)
		}
	}
	s.Walk, s.Exception = p.Engine.Thread(&engine.Captured{
		Object: s.Thread.ID, OSID: s.Thread.NSThreadID,
		Context: c.Context, Head: c.Head, Stack: &c.Stack,
	})
	return nil
}

// missing returns the missing piece of stack of a walk: from the missed address to the end of the mapping, as far as
// Options.MaxStack allows.
func (s *Suspension) missing(err error) (target.Range, bool) {
	if !errors.Is(err, walk.ErrMissing) {
		return target.Range{}, false
	}
	at := s.Walk.Stack.Miss
	m := s.mapping(at)
	if m == nil {
		return target.Range{}, false
	}
	const below = 4096 // the used stack may reach below the first read
	start := max(m.Start, at&^(below-1)-below)
	left := s.Process.Options.MaxStack - FirstStack
	for _, r := range s.extra {
		left -= r.Len
	}
	if !s.Process.moments.Changes() {
		// Another copy costs next to nothing, and a damaged stack can lead anywhere: pieces grow.
		left = min(left, FirstStack<<(2*(len(s.extra)+1)))
	}
	n := min(int64(m.End-start), int64(left))
	return target.Range{Addr: start, Len: int(n)}, n > below
}

// mapping returns the mapping of an address; nil: there is none.
func (s *Suspension) mapping(at arch.Addr) *target.Mapping {
	m := s.Process.Engine.Maps.Find(at)
	if m == nil && s.Process.moments.Changes() && s.Process.updateModules() == nil {
		m = s.Process.Engine.Maps.Find(at)
	}
	return m
}

// maxUpdating bounds the time for reading the list of mappings: maxUpdating and a tenth of the time since the process
// was opened. A hostile target can make the list long, and the stack of each of its threads incomplete.
const maxUpdating = time.Second

var errUpdating = errors.New("the list of its mappings takes too long to read")

// updateModules reads the list of mappings again, for modules loaded and unloaded meanwhile.
func (p *Process) updateModules() error {
	began := time.Now()
	if p.updating > maxUpdating+began.Sub(p.opened)/10 {
		return errUpdating
	}
	defer func() { p.updating += time.Since(began) }()
	return p.Engine.UpdateModules()
}
