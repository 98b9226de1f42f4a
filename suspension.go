package clrsnap

import (
	"errors"
	"slices"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/engine"
	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
	"clrsnap/internal/walk"
)

// Suspension is a thread as it was at one moment: its registers and its stack.
// It stands for the suspended thread of the profiling API's steps (suspend, get
// the context, seed, walk, resume), but the thread itself was stopped only for
// the copy, and runs again. It is valid until the next use of its Process that
// captures a thread.
type Suspension struct {
	p         *Process
	thread    Thread
	capture   *target.Capture
	walk      walk.Thread
	exception thread.Exception
	extra     []target.Range // further pieces of stack that turned out to be needed
	moment    uint64         // Process.moment of the capture; 0: there is none

	pause   time.Duration // the longest stop
	managed bool          // the last walk met managed frames
	cost    int           // of the frames of the last walk that named them, in bytes
	waits   bool          // the thread was once found blocked
	patient bool          // the thread waits for a processor, most likely
	known   func() bool   // whether this very capture need not be walked; nil: it must be
}

const maxAttempts = 4

// Suspend captures a thread, with everything that a walk of its stack needs. If
// the first copy lacks something (the ordinary stack below a signal stack, the
// base of a deep stack), the thread is captured again.
func (p *Process) Suspend(id ThreadID) (*Suspension, error) {
	t, err := p.find(id)
	if err != nil {
		return nil, err
	}
	s := &Suspension{p: p, thread: t, capture: &p.capture}
	p.announce(id)
	defer func() {
		if p.current != s {
			p.announce(0)
		}
	}()
	for attempt := 0; ; attempt++ {
		err := s.stop()
		if err != nil && !errors.Is(err, target.ErrThreadExited) {
			return nil, p.failure(id, err)
		}
		if err != nil || s.walk.Info.Address == 0 {
			// The Thread object is dead, or another thread's by now.
			p.known = nil
			if s.thread, err = p.find(id); err != nil || attempt == maxAttempts {
				return nil, &Error{HRESULT: CORPROF_E_STACKSNAPSHOT_INVALID_TGT_THREAD, Thread: id, Text: "the thread has ended", Err: err}
			}
			continue
		}
		ctx := s.walk.Context
		r := p.walker.Unwind(&s.walk, &ctx, walk.ByUnwindInfo, func(*walk.Frame) bool { return true })
		if attempt < maxAttempts {
			again := !r.Complete && s.mend(r.Err, attempt)
			if s.mendChain() || again {
				continue
			}
		}
		p.current = s
		return s, nil
	}
}

// mendChain has what the thread's Frames point to copied next time, if it is not on the
// stack: a debugger's evaluation of an expression has its context in the heap.
func (s *Suspension) mendChain() bool {
	if s.walk.Info.Address == 0 || !errors.Is(s.p.walker.CheckChain(&s.walk), walk.ErrMissing) {
		return false
	}
	at := s.walk.Stack.Miss
	m := s.mapping(at)
	if m == nil {
		return false
	}
	for _, r := range s.extra {
		if at >= r.Addr && at-r.Addr < arch.Addr(r.Len) {
			return false
		}
	}
	const page = 4096 // a context has less, and what is missed of it first may be any part
	start, end := max(m.Start, at&^(page-1)-page), min(m.End, at&^(page-1)+2*page)
	if start >= end {
		return false // a damaged dump
	}
	s.extra = append(s.extra, target.Range{Addr: start, Len: int(end - start)})
	return true
}

// mend removes what made a walk incomplete, if it can: a piece of stack that was
// not copied is copied next time, and a library may have been loaded. It reports whether
// it makes sense to capture the thread again.
func (s *Suspension) mend(err error, attempt int) bool {
	extra, ok := s.missing(err)
	switch {
	case ok:
		s.extra = append(s.extra, extra)
	case s.p.core != nil:
		return false // it would be the same again
	case attempt == 0:
		_ = s.p.updateModules() // else the walk says what it lacks
	}
	return true
}

// Context returns the registers that the thread had.
func (s *Suspension) Context() Context { return s.walk.Context }

// Thread returns the thread.
func (s *Suspension) Thread() Thread { return s.thread }

// Resume ends the suspension.
func (s *Suspension) Resume() {
	if s.p.current == s {
		s.p.announce(0)
	}
	s.moment = 0
}

// announce tells the agent, if there is one, which thread is being walked; 0: none.
// The agent keeps the runtime's ThreadDestroyed waiting until then, no longer than
// Options.MaxPause.
func (p *Process) announce(id ThreadID) {
	if p.link != nil {
		p.link.conn.Walking(uint64(id))
	}
}

// firstStack is how much of a stack is copied at first, in bytes. Few are deeper;
// of those the rest is fetched in a second capture.
const firstStack = 256 << 10

// request says what to copy of a thread.
func (p *Process) request(t *Thread, extra []target.Range) target.Request {
	r := target.Request{TID: t.OSThreadID, StackLimit: firstStack, Extra: extra}
	if t.ID != 0 {
		r.Head, r.HeadLen = arch.Addr(t.ID), thread.HeadLen
		if at, n := p.rt.Threads.Beside(p.from, arch.Addr(t.ID)); n > 0 {
			r.Extra = append(slices.Clip(extra), target.Range{Addr: at, Len: n})
		}
	}
	return r
}

// stop captures the thread with a stop. A machine under load may not let the
// thread, or our tracer, run in time: then it is tried again.
func (s *Suspension) stop() error {
	for attempt := 1; ; attempt++ {
		err := s.take(s.p.from.Capture)
		late := errors.Is(err, live.ErrWatchdog) || errors.Is(err, live.ErrTracerLost)
		if late && attempt < maxAttempts || errors.Is(err, live.ErrNotStopping) && attempt == 1 {
			continue
		}
		return err
	}
}

// peek captures the thread without a stop, if it is provably blocked.
func (s *Suspension) peek() error { return s.take(s.p.live.TryBlocked) }

// take captures the thread; once more if it has thrown an exception since it was looked
// at for one.
func (s *Suspension) take(capture func(*target.Request, *target.Capture) error) error {
	if s.p.walking {
		return errNested(s.thread.ID)
	}
	for attempt := 1; ; attempt++ {
		req := s.p.request(&s.thread, s.extra)
		s.p.moment++
		req.Unhurried = s.patient
		err := capture(&req, s.capture)
		s.p.eng.Begin()
		err = s.p.taken(s, err)
		if err != nil || s.walk.Gap == nil || s.p.core != nil || attempt == maxAttempts {
			return err
		}
	}
}

// taken takes over what a capture brought.
func (p *Process) taken(s *Suspension, err error) error {
	if s.moment = 0; err != nil {
		return err
	}
	s.moment = p.moment
	c := s.capture
	if c.Stopped {
		s.pause = max(s.pause, c.Pause)
		if p.stops != nil {
			*p.stops = append(*p.stops, c.Pause)
		}
	}
	s.walk, s.exception = p.eng.Thread(&engine.Captured{
		Object: arch.Addr(s.thread.ID), OSID: s.thread.NSThreadID,
		Context: c.Context, Head: c.Head, Stack: &c.Stack,
	})
	return nil
}

// missing returns the piece of stack that a walk lacked: from there to the end of
// its mapping.
func (s *Suspension) missing(err error) (target.Range, bool) {
	if !errors.Is(err, walk.ErrMissing) {
		return target.Range{}, false
	}
	at := s.walk.Stack.Miss
	m := s.mapping(at)
	if m == nil {
		return target.Range{}, false
	}
	const below = 4096 // what was in use may reach below the first read
	start := max(m.Start, at&^(below-1)-below)
	left := s.p.opts.MaxStack - firstStack
	for _, r := range s.extra {
		left -= r.Len
	}
	if s.p.core != nil {
		// Another copy costs next to nothing, and a damaged stack can lead anywhere.
		left = min(left, firstStack<<(2*(len(s.extra)+1)))
	}
	n := min(int64(m.End-start), int64(left))
	return target.Range{Addr: start, Len: int(n)}, n > below
}

// mapping returns the mapping that an address lies in, nil if there is none.
func (s *Suspension) mapping(at arch.Addr) *target.Mapping {
	m := s.p.eng.Maps.Find(at)
	if m == nil && s.p.core == nil && s.p.updateModules() == nil {
		m = s.p.eng.Maps.Find(at)
	}
	return m
}

// maxUpdating bounds the time in which modules are looked for, beside a tenth of all time:
// the list of mappings can be as long as a target likes, and each of its threads incomplete.
const maxUpdating = time.Second

var errUpdating = errors.New("the list of its mappings takes too long to read")

// updateModules takes notice of modules that have come or gone.
func (p *Process) updateModules() error {
	began := time.Now()
	if p.updating > maxUpdating+began.Sub(p.opened)/10 {
		return errUpdating
	}
	defer func() { p.updating += time.Since(began) }()
	return p.eng.UpdateModules()
}
