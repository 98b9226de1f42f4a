package session

import (
	"context"
	"regexp"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/heap"
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

// Kept says what keeps an object.
type Kept struct {
	// Source says whether the TaskCompletionSource of the awaited task is on the heap. Without a source nobody
	// completes the task.
	Source bool
	// Path leads to the source, or to the failed task; nil: nothing keeps the object, or nothing known.
	Path *profile.HeapPath
}

// KeptBy finds what keeps the sources that async methods wait for, and failed tasks, in one walk of the heap. Waits
// that have ended or changed, and tasks that were moved, are left out. The result is empty if the heap has changed
// too much meanwhile. Like HeapOptions.Roots, KeptBy takes memory for the references between all objects.
func (p *Process) KeptBy(ctx context.Context, waits []SourceWait, failed []uint64) (
	sources map[SourceWait]Kept, tasks map[uint64]Kept, err error,
) {
	if p.Runtime == nil {
		return nil, nil, p.NoRuntimeError("references")
	}
	w := newHeapWalk(ctx, p, HeapOptions{Roots: regexp.MustCompile("^" + regexp.QuoteMeta(permits.Completion))})
	p.Engine.Begin()
	of := map[arch.Addr][]arch.Addr{} // sources by task
	o := w.options()
	o.Data = true
	fields := map[arch.Addr]uint32{}
	o.Want = func(mt arch.Addr) bool {
		at, ok := p.sourceField(mt)
		if ok {
			fields[mt] = at
		}
		return ok
	}
	o.Visit = func(_ *heap.Region, list []heap.Object) {
		for i := range list {
			at, ok := fields[list[i].Table.Addr]
			if task := arch.Addr(number(list[i].Data, at, true)); ok && task != 0 {
				of[task] = append(of[task], list[i].Addr)
			}
		}
	}
	o.Workers = 1 // of and fields have no lock
	w.noteEpoch()
	census, err := p.Managed.Heap.Walk(o)
	switch {
	case err != nil:
		return nil, nil, p.orExit(err)
	case census.Stopped:
		return nil, nil, ctx.Err()
	case census.Graph == nil:
		return nil, nil, heap.ErrTooLarge
	case consistentShare(census) < 1:
		return nil, nil, nil
	}
	var all profile.Heap
	ways := w.findWays(census.Graph, &all)
	if ways == nil {
		return nil, nil, ctx.Err()
	}
	sources, tasks = map[SourceWait]Kept{}, map[uint64]Kept{}
	path := func(at arch.Addr) *profile.HeapPath {
		n, ok := census.Graph.Number(at)
		if !ok {
			return nil
		}
		byKey := map[string]*profile.HeapPath{}
		w.addPath(census.Graph, ways, n, byKey, &all)
		for _, path := range byKey {
			if path.Kept() || path.Conservative() {
				return path
			}
		}
		return nil
	}
	for _, wait := range waits {
		task, ok := p.sourceAwaited(wait)
		if !ok {
			continue
		}
		if _, there := census.Graph.Number(task); !there {
			continue // it was moved
		}
		k := Kept{Source: len(of[task]) > 0}
		for _, source := range of[task] {
			if k.Path = path(source); k.Path != nil {
				break
			}
		}
		sources[wait] = k
	}
	for _, task := range failed {
		if p.isFailed(arch.Addr(task)) {
			if _, there := census.Graph.Number(arch.Addr(task)); there {
				tasks[task] = Kept{Path: path(arch.Addr(task))}
			}
		}
	}
	return sources, tasks, p.Alive()
}

// sourceField is the offset of the task in the objects of a class, if the class is a TaskCompletionSource.
func (p *Process) sourceField(mt arch.Addr) (uint32, bool) {
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

// sourceAwaited is the task that a method waits for now; false: the method waits for something else, or has gone on.
// Only plain tasks are tasks of sources: .NET has tasks of its own.
func (p *Process) sourceAwaited(w SourceWait) (task arch.Addr, ok bool) {
	t := p.newTaskWalk(context.Background(), HeapOptions{})
	stands := p.moments.Read(func() error {
		ok = false
		steps, alive, err := t.r.Methods(w.Box)
		if err != nil || !alive || len(steps) == 0 || !isSuspended(&steps[0]) {
			return err
		}
		if steps = p.programSteps(steps); len(steps) == 0 || t.frame(steps, 0).Display != w.Method {
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

// isFailed reports whether an object is a task that has failed.
func (p *Process) isFailed(task arch.Addr) bool {
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
