package heapwalk

import (
	"context"
	"regexp"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/awaits"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/clr/permits"
	"clrsnap/internal/session"
	"clrsnap/internal/tasks"
	"clrsnap/snapshot"
)

// Kept says what keeps an object.
type Kept struct {
	// Source says whether the TaskCompletionSource of the awaited task is on the heap. Without a source nobody
	// completes the task.
	Source bool
	// Path leads to the source, or to the failed task; nil: nothing keeps the object, or nothing known.
	Path *snapshot.HeapPath
}

// KeptBy finds what keeps the sources that async methods wait for, and failed tasks, in one walk of the heap. Waits
// that have ended or changed, and tasks that were moved, are left out. The result is empty if the heap has changed
// too much meanwhile. Like Options.Roots, KeptBy takes memory for the references between all objects.
func KeptBy(ctx context.Context, p *session.Process, waits []tasks.SourceWait, failed []uint64) (
	sources map[tasks.SourceWait]Kept, faults map[uint64]Kept, err error,
) {
	if p.Runtime == nil {
		return nil, nil, p.NoRuntimeError("references")
	}
	w := newWalk(ctx, p, Options{Roots: regexp.MustCompile("^" + regexp.QuoteMeta(permits.Completion))})
	p.Engine.Begin()
	of := map[arch.Addr][]arch.Addr{} // sources by task
	o := w.options()
	o.Data = true
	fields := map[arch.Addr]uint32{}
	o.Want = func(mt arch.Addr) bool {
		at, ok := sourceField(p, mt)
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
	census, err := w.references(o)
	switch {
	case err != nil:
		return nil, nil, err
	case census.Size == 0 || census.Consistent < census.Size:
		return nil, nil, nil
	}
	var all snapshot.Heap
	ways := w.findWays(census.Graph, &all)
	if ways == nil {
		return nil, nil, ctx.Err()
	}
	sources, faults = map[tasks.SourceWait]Kept{}, map[uint64]Kept{}
	path := func(at arch.Addr) *snapshot.HeapPath {
		n, ok := census.Graph.Number(at)
		if !ok {
			return nil
		}
		byKey := map[string]*snapshot.HeapPath{}
		w.addPath(census.Graph, ways, n, byKey, &all)
		for _, path := range byKey {
			if path.Kept() || path.Conservative() {
				return path
			}
		}
		return nil
	}
	for _, wait := range waits {
		task, ok := tasks.SourceAwaited(p, wait)
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
		if isFailed(p, arch.Addr(task)) {
			if _, there := census.Graph.Number(arch.Addr(task)); there {
				faults[task] = Kept{Path: path(arch.Addr(task))}
			}
		}
	}
	return sources, faults, p.Alive()
}

// Unkept finds out which of some objects nothing keeps, so that nobody can go on with them. false: the heap has changed
// too much meanwhile, or the roots are not all known.
func Unkept(ctx context.Context, p *session.Process, objects []uint64) (out []uint64, known bool, err error) {
	if p.Runtime == nil {
		return nil, false, p.NoRuntimeError("references")
	}
	w := newWalk(ctx, p, Options{Graph: true})
	p.Engine.Begin()
	census, err := w.references(w.options())
	if err != nil {
		return nil, false, err
	}
	var all snapshot.Heap
	ways := w.findWays(census.Graph, &all)
	if ways == nil {
		return nil, false, ctx.Err()
	}
	if census.Graph.Full || len(all.RootsLack) > 0 || all.RootsMoved || census.Consistent < census.Size {
		return nil, false, p.Alive()
	}
	for _, at := range objects {
		if n, there := census.Graph.Number(arch.Addr(at)); there && !ways.Kept(n) {
			out = append(out, at)
		}
	}
	return out, true, p.Alive()
}

// references walks the heap for the references between objects.
func (h *heapWalk) references(o heap.Options) (*heap.Census, error) {
	h.noteEpoch()
	census, err := h.p.Managed.Heap.Walk(o)
	switch {
	case err != nil:
		return nil, h.p.OrExit(err)
	case census.Stopped:
		return nil, h.ctx.Err()
	case census.Graph == nil:
		return nil, heap.ErrTooLarge
	}
	return census, nil
}

// A task of a TaskCompletionSource ends when somebody completes the source. Who refers to the source can complete the
// task; if nobody does, the task never ends (System.Private.CoreLib, TaskCompletionSource.cs and
// TaskCompletionSource_T.cs: _task).
const sourceTask = "_task"

// sourceField is the offset of the task in the objects of a class, if the class is a TaskCompletionSource.
func sourceField(p *session.Process, mt arch.Addr) (uint32, bool) {
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

// isFailed reports whether an object is a task that has failed.
func isFailed(p *session.Process, task arch.Addr) bool {
	class, err := p.Managed.Objects.Class(task)
	if err != nil || !awaits.IsTask(class) {
		return false
	}
	flags, err := p.Managed.Objects.Uint32(task, class, "m_stateFlags")
	return err == nil && awaits.TaskEnd(flags) == snapshot.TaskFaulted
}
