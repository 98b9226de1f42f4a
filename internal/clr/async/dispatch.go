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
	at, err := r.objects.Word(newest)
	for n := 0; err == nil && at != 0 && at < high && n < maxDispatching; n++ {
		if at < low {
			before := at
			// The stack grows down: what was there before is further up.
			if at, err = r.objects.Word(at + arch.Addr(l.Next)); at <= before {
				break
			}
			continue
		}
		d.next = at + arch.Addr(l.Continuation)
		d.Task, err = r.objects.Word(at + arch.Addr(l.Task))
		if err != nil {
			return Dispatching{}, err
		}
		s, err := r.shapeOfObject(d.Task)
		if err != nil {
			return Dispatching{}, err
		}
		if s.kind != runtimeTask {
			return Dispatching{}, ErrNotDispatching
		}
		return d, nil
	}
	if err != nil {
		return Dispatching{}, err
	}
	return Dispatching{}, ErrNotDispatching
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
