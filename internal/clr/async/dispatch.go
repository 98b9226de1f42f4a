package async

import (
	"errors"

	"clrsnap/internal/arch"
)

// The runtime resumes methods that it has suspended in RuntimeAsyncTask.DispatchContinuations. What that is about is in
// a structure in its frame, an AsyncDispatcherInfo: the task, and the Continuation that is resumed next, when the
// method that runs has ended. A static field of each thread has the address of the newest of these, which leads to the
// one before: a method that runs can resume others.
//
// Source (dotnet/runtime): System.Private.CoreLib/src/System/Runtime/CompilerServices/AsyncHelpers.CoreCLR.cs
// (AsyncDispatcherInfo).

// DispatcherClass is the class of the structure.
const DispatcherClass = "System.Runtime.CompilerServices.AsyncDispatcherInfo"

// DispatcherLayout is where an AsyncDispatcherInfo has what is read, by the names of its fields.
type DispatcherLayout struct{ Next, Continuation, Task uint32 }

// Dispatching is a call that resumes methods.
type Dispatching struct {
	At   arch.Addr // the structure, in the call's frame
	Task arch.Addr // the RuntimeAsyncTask
	next arch.Addr // where the structure has the Continuation that is resumed next
}

// ErrNotDispatching: a frame resumes no method, or none any more.
var ErrNotDispatching = errors.New("the frame does not resume a method")

// maxDispatching bounds the calls of one thread that resume methods.
const maxDispatching = 64

// Dispatching reads what the call is about that has some part of the stack as its frame. newest is where the address of
// the newest structure of the thread is.
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

// structures calls use for the structures of a thread, the newest first, as long as it wants more.
func (r *Reader) structures(newest arch.Addr, l DispatcherLayout, use func(at arch.Addr) (bool, error)) error {
	at, err := r.objects.Word(newest)
	for n := 0; err == nil && at != 0 && n < maxDispatching; n++ {
		if more, err := use(at); err != nil || !more {
			return err
		}
		before := at
		// The stack grows down: what was there before is further up.
		if at, err = r.objects.Word(at + arch.Addr(l.Next)); at <= before {
			break
		}
	}
	return err
}

// Words are the words of a structure that it is read from. The first one leads to the structure before.
func (l *DispatcherLayout) Words() (w Words) {
	w.word(l.Next, false)
	w.word(l.Continuation, true)
	w.word(l.Task, true)
	return w
}

// DispatchingAt reads what a call is about, by its structure.
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

// Resuming returns what awaits the method that a call has resumed: those that are suspended in the same task, and what
// awaits that.
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
