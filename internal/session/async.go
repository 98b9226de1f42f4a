package session

import (
	"errors"
	"slices"
	"strings"
	"unsafe"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/ilmap"
	"clrsnap/internal/clr/web"
	"clrsnap/internal/naming"
	"clrsnap/internal/target"
	"clrsnap/internal/walk"
	"clrsnap/profile"
)

// After an await, the thread pool most often resumes an async method. The awaiting method is then
// not on the stack, but on the heap (package async). The first argument of the async method's frame
// is the state machine; the first argument of a box method's frame is the box.

// AsyncChain is a chain of awaits. AsyncStep is a step of a chain.
type (
	AsyncChain = async.Chain
	AsyncStep  = async.Step
)

// AsyncCode is the meaning of the code at an instruction for async methods.
type AsyncCode struct {
	runner bool           // framework code that leads to the call of a MoveNext
	box    bool           // a method of a box
	serves bool           // the web server's method that serves requests, without a state machine
	resume bool           // resumes methods suspended by the runtime
	table  arch.Addr      // of a MoveNext: the type of the state machine
	place  ilmap.Variable // location of the first argument
	known  bool           // place is valid
}

// AsyncSite is a frame that runs an async method.
type AsyncSite struct {
	Below    int       // index of the frame above which the awaiting methods are shown
	Argument arch.Addr // first argument of the frame: state machine, box or task; 0: unknown
	Table    arch.Addr // of a MoveNext: the type of the state machine; 0: Argument is something else
	of       arch.Addr // of a box: the state machine type of the MoveNext called by the box; 0: unknown
	Serves   bool      // Argument is the object of the server
	task     int       // index of the frame that runs the delegate of the task in Argument; 0: none
	resumed  bool      // the caller is framework code that resumes a suspended method
	resumes  *resumingFrame
}

// AwaitingAt holds the methods that await an async method of a stack.
type AwaitingAt struct {
	SP     uint64 // of the frame above which Frames are shown
	Frames []profile.Frame
	task   uint64 // task at the end of the chain, with a thread that waits for the task; 0: the chain ends otherwise
}

// awaitingByThread holds the awaiting methods of stacks, by thread id.
type awaitingByThread map[int][]AwaitingAt

func (a awaitingByThread) keep(tid int, list []AwaitingAt) {
	if len(list) > 0 {
		a[tid] = list
	}
}

// maxAsyncSites bounds the async methods examined in one stack.
const maxAsyncSites = 32

// Asyncs finds the async methods in a walk.
type Asyncs struct {
	Sites  []AsyncSite
	Of     arch.Addr // the walked Thread of the runtime, if the walk does not know the Thread; 0: none
	runner int       // index where the latest unbroken run of runner frames begins; -1: no run

	task int // likewise of the frames between a task's delegate and the code that runs the task

	moves int       // index of the latest frame of a MoveNext
	table arch.Addr // state machine type of that MoveNext; 0: there was none
}

// Begin begins another walk.
func (a *Asyncs) Begin() { a.Sites, a.runner, a.task, a.table = a.Sites[:0], -1, -1, 0 }

// The prefixes of the .NET methods that call a MoveNext.
const (
	boxMethods     = "System.Runtime.CompilerServices.AsyncTaskMethodBuilder`1+AsyncStateMachineBox`1."
	pooledMethods  = "System.Runtime.CompilerServices.PoolingAsyncValueTaskMethodBuilder`1+StateMachineBox`1."
	listenedBoxes  = "System.Runtime.CompilerServices.AsyncTaskMethodBuilder`1+AsyncProfilerAsyncStateMachineBox`1."
	contextMethods = "System.Threading.ExecutionContext.Run"
)

// AsyncCode describes the code of a managed frame with the name fr; false: the code has nothing to
// do with async methods.
func (p *Process) AsyncCode(f *walk.Frame, fr *naming.NamedFrame) (c AsyncCode, ok bool) {
	core := fr.Module == coreLib
	c.box = core && (strings.HasPrefix(fr.Method, boxMethods) || strings.HasPrefix(fr.Method, pooledMethods) ||
		strings.HasPrefix(fr.Method, listenedBoxes))
	c.resume = core && ResumesMethods(fr.Method) && p.CanResume(fr.Of.MethodTable)
	c.runner = c.box || c.resume || core && strings.HasPrefix(fr.Method, contextMethods) || LiesBetween(fr.Method)
	moves := !c.box && strings.HasSuffix(fr.Method, "MoveNext")
	c.serves = !moves && web.RoleOf(fr.Module, fr.Method) == web.Serving
	if !c.runner && !moves && !c.serves {
		return c, false
	}
	if moves {
		c.table = fr.Of.MethodTable
	}
	if c.box || moves || c.serves || c.resume {
		c.place, c.known = p.VariableOf(f, ilmap.ThisVariable)
	}
	return c, true
}

// Frame records a frame of a walk. c is the meaning of the frame's code; nil: none.
func (a *Asyncs) Frame(f *walk.Frame, c *AsyncCode, index int) {
	site, ok := a.site(c, index)
	if !ok {
		return
	}
	if site.Argument, _, ok = naming.ValueAt(f, &c.place); !c.known {
		site.Argument = 0
	}
	if c.resume {
		site.resumes = resumingFrameOf(f, a.Of)
		ok = site.resumes != nil
	}
	if ok {
		a.Sites = append(a.Sites, site)
	}
}

// Reported records a frame, like Frame, but somebody else has read the argument; 0: nobody has.
// Reported reports whether the frame runs an async method. A state machine is on a stack only once:
// where a second frame reports the same state machine, the value comes from a register that was not
// restored. The argument of a frame that resumes methods is the frame's dispatcher structure.
func (a *Asyncs) Reported(c *AsyncCode, index int, argument arch.Addr) bool {
	site, ok := a.site(c, index)
	if !ok || argument == 0 {
		return ok
	}
	if site.Argument = argument; c.resume {
		site.resumes = &resumingFrame{}
	}
	again := func(s AsyncSite) bool { return s.Table != 0 && s.Argument == argument }
	if site.Table == 0 || !slices.ContainsFunc(a.Sites, again) {
		a.Sites = append(a.Sites, site)
	}
	return true
}

// site returns the site of a frame, without the argument; false: the frame is no site.
func (a *Asyncs) site(c *AsyncCode, index int) (s AsyncSite, ok bool) {
	if c == nil || !c.runner {
		a.runner = -1
	} else if a.runner < 0 {
		a.runner = index
		if n := len(a.Sites); n > 0 && a.Sites[n-1].Below == index {
			a.Sites[n-1].resumed = true
		}
	}
	if c != nil && c.table != 0 {
		a.moves, a.table = index, c.table
	}
	if c == nil || !c.known && !c.resume || len(a.Sites) == maxAsyncSites {
		return s, false
	}
	s = AsyncSite{Below: index + 1, Table: c.table, Serves: c.serves}
	if c.box || c.resume {
		s.Below = a.runner
		if a.moves+1 == a.runner {
			s.of = a.table
		}
	}
	return s, true
}

// asyncFrame records in a a frame of the walk with the name fr.
func (p *Process) asyncFrame(a *Asyncs, f *walk.Frame, fr *naming.NamedFrame, index int) {
	a.taskFrame(&fr.Frame, index)
	if f.Kind == walk.Managed {
		if c, ok := p.AsyncCode(f, fr); ok {
			a.Frame(f, &c, index)
			return
		}
	}
	a.Frame(f, nil, index)
}

// awaiting returns the methods that await the async methods of the thread just walked.
func (s *visit) awaiting(frames []profile.Frame) (out []AwaitingAt) {
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
		if site.task > 0 {
			s.findTask(site, frames)
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
			p.room -= AsyncCost(&at.Frames[k])
		}
		out = append(out, at)
	}
	return out
}

// AsyncCost is the size of a frame in bytes.
func AsyncCost(f *profile.Frame) int {
	return int(unsafe.Sizeof(*f)) + len(f.Method) + len(f.Display) + len(f.Short) + len(f.Signature)
}

// Why the methods that await an async method are unknown.
var (
	// ErrNeverSuspended: nothing but the caller awaits the method.
	ErrNeverSuspended = errors.New("the method has not been suspended yet")
	// ErrOver: the method has ended, and nothing awaits the method any more.
	ErrOver = errors.New("the method has ended")
	// ErrReused: the box of the method may serve another call by now.
	ErrReused   = errors.New("the box of the method is used again for others")
	errChanging = errors.New("what awaits the method changed all the time")
)

// Rests reports whether the thread has certainly not run since the copy of the stack.
func (s *Suspension) Rests() bool { return s.Capture != nil && !s.Capture.Stopped && s.unmoved() }

// Awaiting reads the methods that await an async method. sp and ip belong to the frame of the
// caller. The result counts only if all data was there at one moment, before the call returned. A
// later call from the same place may reuse the box: then rests must report that the thread has not
// run; nil: the thread may have run.
func (p *Process) Awaiting(site *AsyncSite, sp, ip arch.Addr, rests func() bool) (c async.Chain, err error) {
	reused := false
	var nobody error
	read := func() (err error) {
		c, reused, err = p.AwaitingSite(site)
		if nobody = nil; errors.Is(err, ErrNeverSuspended) || errors.Is(err, ErrOver) {
			nobody = err
			return nil
		}
		return err
	}
	called := func() bool { return p.StillCalled(sp, ip) }
	switch {
	case !p.moments.Read(read, called):
		return async.Chain{}, errChanging
	case nobody != nil:
		return async.Chain{}, nobody
	case reused && p.moments.Changes() && (rests == nil || !rests()):
		return async.Chain{}, ErrReused
	}
	c.Steps = p.ProgramSteps(c.Steps)
	return c, nil
}

// StillCalled reports whether a call is still active: the call returns to ip, and the stack pointer
// is sp after the return. When the call is over, all calls made within the call are over too.
func (p *Process) StillCalled(sp, ip arch.Addr) bool {
	at, err := target.NewReader(p.from).Uint64(sp - callSlot)
	return err == nil && arch.Addr(at) == ip
}

// AwaitingSite reads once the methods that await the async method of a site. reused: the data may
// serve another call by now.
func (p *Process) AwaitingSite(site *AsyncSite) (c async.Chain, reused bool, err error) {
	switch {
	case site.resumes != nil:
		return p.awaitingResumed(site)
	case site.task > 0:
		c, err = p.awaitingTask(site.Argument)
		return c, false, err
	}
	box, c, err := site.Awaiting(p.AsyncReader())
	return c, box != nil && box.Reused(), err
}

// Leads reports whether the frame of a site leads to the awaiting methods without a box: the frame resumes methods, or
// runs the delegate of a task.
func (site *AsyncSite) Leads() bool { return site.resumes != nil || site.task > 0 }

// Awaiting reads once the box of a site's async method, and the awaiting methods.
func (site *AsyncSite) Awaiting(r *async.Reader) (box *async.Box, c async.Chain, err error) {
	if site.Table == 0 {
		box, err = r.Box(site.Argument)
	} else if box, err = r.Of(site.Argument, site.Table); errors.Is(err, async.ErrNoBox) {
		if site.resumed {
			return nil, c, ErrOver // a method's end clears the state machine
		}
		return nil, c, ErrNeverSuspended
	}
	if err != nil {
		return nil, c, err
	}
	if site.of != 0 {
		is, err := r.Runs(box, site.of)
		if err != nil {
			return nil, c, err
		}
		if !is {
			return nil, c, ErrOver // the collector has put another box there
		}
	}
	if c, err = r.Awaiting(box.Object); err == nil && c.End == async.Done && len(c.Steps) == 0 {
		err = ErrOver
	}
	return box, c, err
}

// callSlot is the size in bytes of the return address that a call pushes.
const callSlot = 8

func (p *Process) AsyncReader() *async.Reader {
	if p.async == nil {
		// None of the fields that New binds is required: there is no error.
		var names async.Machines = p.Engine.Types
		if p.Runtime != nil {
			names = p.Runtime.Names
		}
		p.async, _ = async.New(p.Engine.Layout, p.Managed.Objects, names)
		p.async.ResumeInfoBy(p.resumeWord)
		if p.Runtime != nil {
			p.async.ContextsBy(p.savedContext)
		}
	}
	return p.async
}

// resumeWord reads a word of the constant data by which methods are resumed. For code compiled
// ahead of time the word is in the image, and some dumps lack this part of the image.
func (p *Process) resumeWord(at arch.Addr) (arch.Addr, error) {
	word, err := p.Managed.Objects.Word(at)
	if err != nil {
		if relocated, ok := p.from.relocated(at); ok {
			return relocated, nil
		}
	}
	return word, err
}

// addAwaiting adds to captured stacks the frames of the methods that await the stacks' async
// methods.
func addAwaiting(threads []profile.Thread, list awaitingByThread) {
	waiters := map[uint64]*profile.Thread{}
	for i := range threads {
		w := threads[i].Wait
		if w != nil && w.Kind == profile.TaskWait && w.Object != 0 {
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
func waiterFrame(t *profile.Thread) profile.Frame {
	const wait, short = "System.Threading.Tasks.Task.Wait", "Task.Wait"
	return profile.Frame{
		Kind: profile.Async, Method: wait, Display: wait, Short: short, Module: coreLib,
		Waiter: &profile.ThreadRef{OSThreadID: t.OSThreadID, ManagedThreadID: t.ManagedThreadID, Name: t.Name},
	}
}

// insertAwaiting adds to a stack, leaf first, the frames of the methods that await the stack's
// async methods.
func insertAwaiting(frames []profile.Frame, list []AwaitingAt) []profile.Frame {
	var out []profile.Frame
	from := 0
	for i := range list {
		at := slices.IndexFunc(frames[from:], func(f profile.Frame) bool { return f.SP >= list[i].SP })
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
