package tasks

import (
	"context"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/session"
	"clrsnap/snapshot"
)

// A task of a TaskCompletionSource ends when somebody completes the source. Who refers to the source can complete the
// task; if nobody does, the task never ends (package heapwalk, kept.go).

// Bounds of the waits for sources.
const (
	maxSourceWaits = 256 // in all
	maxSourcePlace = 8   // in one method
)

// SourceWait is an async method, or a thread, that waits for the task of a TaskCompletionSource.
type SourceWait struct {
	Method string    // as snapshot.Frame.Display: the method that waits
	Box    arch.Addr // of the method, during the walk; 0: a thread waits
	Task   uint64    // address of the task that a thread waits for
}

// noteSource notes a chain that waits for a task that somebody has to complete. box is of the chain's first method.
func (t *Walk) noteSource(c *snapshot.TaskChain, box arch.Addr) {
	w := c.WaitsFor
	if w == nil || w.Kind != snapshot.AwaitsCompletion || c.State != snapshot.TaskWaiting || len(c.Frames) == 0 ||
		len(t.Sources) >= maxSourceWaits {
		return
	}
	method, n := c.Frames[0].Display, 0
	for i := range t.Sources {
		if t.Sources[i].Method == method {
			n++
		}
	}
	if n < maxSourcePlace {
		t.Sources = append(t.Sources, SourceWait{Method: method, Box: box})
	}
}

// SourceAwaited is the task that is waited for now; false: the method waits for something else, or has gone on.
// Only plain tasks are tasks of sources: .NET has tasks of its own.
func SourceAwaited(p *session.Process, w SourceWait) (task arch.Addr, ok bool) {
	t := NewWalk(context.Background(), p, session.WalkOptions{})
	stands := p.Moments().Read(func() error {
		if ok = false; w.Task != 0 {
			task = arch.Addr(w.Task)
			class, err := p.Managed.Objects.Class(task)
			if err == nil && isPlainTask(class) {
				complete, known := p.IsComplete(task, class)
				ok = known && !complete
			}
			return err
		}
		steps, alive, err := t.Reader.Methods(w.Box)
		if err != nil || !alive || len(steps) == 0 || !isSuspended(&steps[0]) {
			return err
		}
		if steps = p.ProgramSteps(steps); len(steps) == 0 || t.Frame(steps, 0).Display != w.Method {
			return nil
		}
		a, err := t.AwaitedBy(&steps[0])
		if err != nil {
			return err
		}
		if a, err = t.Unwrap(a); err != nil || a.Object == 0 || !isPlainTask(a.Class) {
			return err
		}
		complete, known := p.IsComplete(a.Object, a.Class)
		task, ok = a.Object, known && !complete
		return nil
	}, nil)
	return task, ok && stands
}

func isPlainTask(c *object.Class) bool {
	return c.Assembly == coreLib && c.Plain() == taskName
}
