package session

import (
	"context"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/permits"
	"clrsnap/profile"
)

// A task of a TaskCompletionSource ends when somebody completes the source. Who refers to the source can complete it;
// if nobody does, the task never ends (System.Private.CoreLib, TaskCompletionSource.cs and
// TaskCompletionSource_T.cs: _task).
const sourceTask = "_task"

// Bounds of the waits for sources.
const (
	maxSourceWaits = 256 // in all
	maxSourcePlace = 8   // in one method
)

// SourceWait is an async method that waits for the task of a TaskCompletionSource.
type SourceWait struct {
	Method string    // as profile.Frame.Display: the method that waits
	Box    arch.Addr // of the method, during the walk
}

// noteSource notes a chain that waits for a task that somebody has to complete. box is of the chain's first method.
func (t *taskWalk) noteSource(c *profile.TaskChain, box arch.Addr) {
	w := c.WaitsFor
	if w == nil || w.Kind != profile.AwaitsCompletion || c.State != profile.TaskWaiting || len(c.Frames) == 0 ||
		len(t.sources) >= maxSourceWaits {
		return
	}
	method, n := c.Frames[0].Display, 0
	for i := range t.sources {
		if t.sources[i].Method == method {
			n++
		}
	}
	if n < maxSourcePlace {
		t.sources = append(t.sources, SourceWait{method, box})
	}
}

// SourceField is the offset of the task in the objects of a class, if the class is a TaskCompletionSource.
func (p *Process) SourceField(mt arch.Addr) (uint32, bool) {
	class, err := p.Managed.Objects.Table(mt)
	if err != nil {
		return 0, false
	}
	for c := range class.Bases {
		if c.Assembly == coreLib && strings.HasPrefix(c.Plain(), permits.Completion) {
			at, err := p.Managed.Objects.Offset(class, sourceTask)
			return at, err == nil
		}
	}
	return 0, false
}

// SourceAwaited is the task that a method waits for now; false: the method waits for something else, or has gone on.
// Only plain tasks are tasks of sources: .NET has tasks of its own.
func (p *Process) SourceAwaited(w SourceWait) (task arch.Addr, ok bool) {
	t := p.newTaskWalk(context.Background(), WalkOptions{})
	stands := p.moments.Read(func() error {
		ok = false
		steps, alive, err := t.r.Methods(w.Box)
		if err != nil || !alive || len(steps) == 0 || !isSuspended(&steps[0]) {
			return err
		}
		if steps = p.ProgramSteps(steps); len(steps) == 0 || t.frame(steps, 0).Display != w.Method {
			return nil
		}
		a, err := t.awaitedBy(&steps[0])
		if err != nil {
			return err
		}
		if a, err = t.unwrap(a); err != nil || a.Object == 0 || !isPlainTask(a.Class) {
			return err
		}
		complete, known := p.isComplete(a.Object, a.Class)
		task, ok = a.Object, known && !complete
		return nil
	}, nil)
	return task, ok && stands
}

func isPlainTask(c *object.Class) bool {
	return c.Assembly == coreLib && c.Plain() == taskName
}

// IsFailed reports whether an object is a task that has failed.
func (p *Process) IsFailed(task arch.Addr) bool {
	class, err := p.Managed.Objects.Class(task)
	if err != nil || !class.Is(coreLib, taskName) {
		return false
	}
	flags, err := p.Managed.Objects.Uint32(task, class, "m_stateFlags")
	return err == nil && flags&taskEnds[0].bit != 0
}

// completes reports whether a method completes a TaskCompletionSource, by its IL or by that of the methods that it
// calls in its module. The IL does not tell which.
func (p *Process) completes(m methodPlace) bool {
	if p.Runtime == nil || p.Managed.Objects == nil || m.module == 0 || m.rid == 0 ||
		!p.permitReader().Matters(m.module) {
		return false
	}
	c, err := p.permitReader().Code(m.module, m.rid)
	return err == nil && c.Completes()
}

// stepCompletes is completes for a step of a chain.
func (p *Process) stepCompletes(s *async.Step) bool {
	m, ok := p.stepMethod(s)
	return ok && p.completes(m)
}

// Completes reports whether the method of a frame completes a TaskCompletionSource, by its IL. For frames of .NET the
// answer is false.
func (p *Process) Completes(f *profile.Frame) bool {
	m, ok := p.frameMethod(f)
	return ok && p.completes(m)
}
