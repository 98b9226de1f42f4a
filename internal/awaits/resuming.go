package awaits

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/source"
	"clrsnap/internal/walk"
)

// RuntimeAsyncTask.DispatchContinuations resumes the methods that the runtime itself has suspended. The awaiters of a
// resumed method are in a structure of the dispatching frame. A static field of the thread leads to the structure
// (package async).

// The code between a resumed method and the frame that has resumed the method: a stub of the runtime and, while a
// profiler of async methods listens, the wrapper that tells the profiler. The same methods have two names.
const (
	resumingMethods = "System.Runtime.CompilerServices.AsyncHelpers+RuntimeAsyncTask`1."
	resumingMethod  = "DispatchContinuations" // and InstrumentedDispatchContinuations
	listenedMethods = "System.Runtime.CompilerServices.AsyncProfiler+ContinuationWrapper."
	ResumeStub      = "IL_STUB_AsyncResume"
)

// StubCode returns the role in async methods of code that can be unloaded, by its method; nil: the name alone tells
// no role.
func StubCode(method string) *Code {
	if method == ResumeStub {
		return &Code{runner: true}
	}
	return nil
}

// ResumesMethods reports whether a method of the runtime resumes suspended methods, by its name.
func ResumesMethods(method string) bool {
	return strings.HasPrefix(method, resumingMethods) && strings.HasSuffix(method, resumingMethod)
}

// LiesBetween reports whether a method lies between a resumed method and the resuming method.
func LiesBetween(method string) bool {
	return method == ResumeStub || strings.HasPrefix(method, listenedMethods)
}

// resumingFrame is a frame that resumes methods.
type resumingFrame struct {
	thread    arch.Addr // the runtime's Thread
	low, high arch.Addr // the frame's part of the stack
}

// resumingFrameOf returns a frame that resumes methods; nil: there is none. The thread is of, if the walk does not
// know the thread.
func resumingFrameOf(f *walk.Frame, of arch.Addr) *resumingFrame {
	low, high, ok := f.Extent()
	if thread := cmp.Or(f.Thread(), of); ok && thread != 0 {
		return &resumingFrame{thread, low, high}
	}
	return nil
}

// Resumes reports whether the frame of a site resumes the methods of the structure at an address.
func (s *Site) Resumes(at arch.Addr) bool {
	return s.resumes != nil && at >= s.resumes.low && at < s.resumes.high
}

// CanResume finds the dispatcher once, by a class of System.Private.CoreLib.
func (p *Program) CanResume(core arch.Addr) bool {
	if p.dispatcher == nil {
		d, err := p.findDispatcher(core)
		if err != nil {
			return false
		}
		p.dispatcher = &d
	}
	return true
}

// findDispatcher reads the layout of the structure, and the offset of the static field with its address, by a class
// of System.Private.CoreLib.
func (p *Program) findDispatcher(core arch.Addr) (d dispatcher, err error) {
	if p.runtime == nil {
		return p.findDispatcherAhead()
	}
	objects := p.managed.Objects
	if d.field, err = objects.Direct(core, async.DispatcherClass, "t_current"); err != nil {
		return d, err
	}
	class, err := objects.Named(core, async.DispatcherClass)
	if err != nil {
		return d, err
	}
	for _, f := range []struct {
		to   *uint32
		name string
	}{
		{&d.layout.Next, "Next"}, {&d.layout.Continuation, "NextContinuation"}, {&d.layout.Task, "CurrentTask"},
	} {
		if *f.to, err = objects.Offset(class, f.name); err != nil {
			return d, err
		}
		*f.to -= objectHeader
	}
	return d, nil
}

// objectHeader is the base of the offsets of a struct's fields, in bytes: the offsets count as in an object.
const objectHeader = 8

// awaitingResumed is AwaitingSite of a frame that resumes methods. If the frame's argument is not the task, reused is
// true: the frame may belong to another call by now. But the collector may have moved the task instead.
func (p *Program) awaitingResumed(site *Site) (c async.Chain, reused bool, err error) {
	f, r := site.resumes, p.AsyncReader()
	data := p.managed.Threads.LocalData(f.thread)
	if data == 0 {
		return c, false, ErrNeverSuspended
	}
	d, err := r.Dispatching(data+arch.Addr(p.dispatcher.field), p.dispatcher.layout, f.low, f.high)
	if errors.Is(err, async.ErrNotDispatching) {
		return c, false, ErrNeverSuspended
	}
	if err != nil {
		return c, false, err
	}
	c, err = r.Resuming(d)
	return c, d.Task != site.Argument, err
}

// Inner is the step that the first step of a site's chain awaits, if known: the resumed method in the frame above.
// Other sites know their awaits.
func (s *Site) Inner(method func() string) *async.Step {
	if s.resumes == nil || s.Below == 0 {
		return nil
	}
	return &async.Step{Label: method()}
}

// Suspendable says how a method takes part in the runtime's own suspension of methods.
type Suspendable struct {
	Taskless bool // only methods suspended by the runtime call the method, and get no task
	Body     bool // the method is the IL of a suspendable method; code that wants the task calls a thunk
}

// Suspendable describes a method; false: it cannot be read.
func (p *Program) Suspendable(desc arch.Addr) (Suspendable, bool) {
	if p.runtime == nil {
		return Suspendable{}, false
	}
	m, err := p.runtime.Methods.Read(desc)
	if err != nil {
		return Suspendable{}, false
	}
	return Suspendable{m.Async.Suspends(), m.Async.Body()}, true
}

// TakesTask reports whether a method most likely takes the task of another method, instead of awaiting the call at
// once: the IL has calls of a method of that name, but none for its next await. The JIT does without the task if the
// await, or ConfigureAwait and then the await, follows the call (docs/design/specs/runtime-async.md).
func (p *Program) TakesTask(outer, inner arch.Addr) bool {
	by, err := p.runtime.Methods.Read(outer)
	if err != nil || !by.HasMetadata() {
		return false
	}
	of, err := p.runtime.Methods.Read(inner)
	if err != nil || !of.HasMetadata() {
		return false
	}
	named, err := p.runtime.Names.MethodName(of.Module, of.RID)
	if err != nil {
		return false
	}
	awaits, err := p.runtime.Names.Awaits(by.Module, by.RID)
	if err != nil {
		return false
	}
	named = source.LastName(named)
	taken := false
	for _, a := range awaits {
		calls := a.Calls
		if n := len(calls); n > 0 && calls[n-1] == "ConfigureAwait" {
			calls = calls[:n-1]
		}
		if n := len(calls); n > 0 && calls[n-1] == named {
			return false
		}
		taken = taken || slices.Contains(calls, named)
	}
	return taken
}
