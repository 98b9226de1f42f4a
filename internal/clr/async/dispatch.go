package async

import (
	"errors"

	"clrsnap/internal/arch"
)

// RuntimeAsyncTask.DispatchContinuations resumes the methods that the runtime has suspended. A structure in its
// frame, an AsyncDispatcherInfo, has the task, and the Continuation that is resumed next, after the end of the
// running method. A static field of each thread has the address of the newest structure. The newest structure leads
// to the one before: a running method can resume others.
//
// Source (dotnet/runtime): System.Private.CoreLib/src/System/Runtime/CompilerServices/AsyncHelpers.CoreCLR.cs
// (AsyncDispatcherInfo).

// DispatcherClass is the class of the structure.
const DispatcherClass = "System.Runtime.CompilerServices.AsyncDispatcherInfo"

// DispatcherLayout has the offsets of an AsyncDispatcherInfo's fields, by their names.
type DispatcherLayout struct{ Next, Continuation, Task uint32 }

// Dispatching is a call that resumes methods.
type Dispatching struct {
	At   arch.Addr // the structure, in the call's frame
	Task arch.Addr // the RuntimeAsyncTask
	next arch.Addr // where the structure has the Continuation that is resumed next
}

// ErrNotDispatching: a frame resumes no method, or none any more.
var ErrNotDispatching = errors.New("the frame does not resume a method")

// maxDispatching bounds the resuming calls of a thread.
const maxDispatching = 64

// Dispatching reads the structure of a call. The call's frame is the stack from low to high. newest is the place of
// the address of the thread's newest structure.
func (r *Reader) Dispatching(newest arch.Addr, l DispatcherLayout, low, high arch.Addr) (d Dispatching, err error) {
	err = r.structures(newest, l, func(at arch.Addr) (more bool, err error) {
		if at < low || at >= high {
			return at < low, nil
		}
		d, err = r.dispatching(at, l)
		return false, err
	})
	if err == nil && d.At == 0 {
		err = ErrNotDispatching
	}
	return d, err
}

// AllDispatching reads the calls of a thread that resume methods, the newest first.
func (r *Reader) AllDispatching(newest arch.Addr, l DispatcherLayout) (out []Dispatching, err error) {
	err = r.structures(newest, l, func(at arch.Addr) (bool, error) {
		d, err := r.dispatching(at, l)
		out = append(out, d)
		return err == nil, err
	})
	return out, err
}

// structures calls use for the structures of a thread, the newest first, as long as use wants more.
func (r *Reader) structures(newest arch.Addr, l DispatcherLayout, use func(at arch.Addr) (bool, error)) error {
	at, err := r.objects.Word(newest)
	for n := 0; err == nil && at != 0 && n < maxDispatching; n++ {
		if more, err := use(at); err != nil || !more {
			return err
		}
		before := at
		// The stack grows down: the structure before is further up.
		if at, err = r.objects.Word(at + arch.Addr(l.Next)); at <= before {
			break
		}
	}
	return err
}

// Words are the words to read of a structure. The first word leads to the structure before.
func (l *DispatcherLayout) Words() (w Words) {
	w.word(l.Next, false)
	w.word(l.Continuation, true)
	w.word(l.Task, true)
	return w
}

// IsDispatching reports whether a stack, which ends at high, has the structure of a call at an address.
func (r *Reader) IsDispatching(at, high arch.Addr, l DispatcherLayout) bool {
	d, err := r.dispatching(at, l)
	if err != nil {
		return false
	}
	before, err := r.objects.Word(at + arch.Addr(l.Next))
	if err != nil || before != 0 && (before <= at || before >= high) {
		return false
	}
	next, err := r.objects.Word(d.next)
	if err != nil || next == 0 {
		return err == nil
	}
	class, err := r.objects.Class(next)
	return err == nil && class.Is(coreLib, continuationClass)
}

// DispatchingAt reads a call by its structure.
func (r *Reader) DispatchingAt(at arch.Addr, l DispatcherLayout) (Dispatching, error) {
	return r.dispatching(at, l)
}

func (r *Reader) dispatching(at arch.Addr, l DispatcherLayout) (d Dispatching, err error) {
	task, err := r.objects.Word(at + arch.Addr(l.Task))
	if err != nil {
		return d, err
	}
	s, err := r.shapeOfObject(task)
	if err != nil {
		return d, err
	}
	if s.kind != runtimeTask {
		return d, ErrNotDispatching
	}
	return Dispatching{At: at, Task: task, next: at + arch.Addr(l.Continuation)}, nil
}

// Resuming returns the awaiters of the method that a call has resumed: the methods suspended in the same task, and
// the awaiters of the task.
func (r *Reader) Resuming(d Dispatching) (Chain, error) {
	steps, err := r.continuations(d.next, d.Task)
	if err != nil {
		return Chain{}, err
	}
	c, err := r.Awaiting(d.Task)
	if err != nil {
		return Chain{}, err
	}
	c.Steps = append(steps, c.Steps...)
	return c, nil
}
