package async

import (
	"errors"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/contract"
)

// From .NET 11 on the runtime itself can suspend async methods ("runtime async"). A method suspended by the runtime
// has no state machine. Methods that are suspended together have a Continuation each, an object that leads to the
// caller's Continuation. The innermost Continuation is in a RuntimeAsyncTask, the task returned by the outermost
// method. The task has its awaiter, as other tasks do. The place of a method's await is an address in the method's
// code. In front of the innermost Continuation is a Continuation of the runtime's own, with the awaited task or the
// awaited source of a ValueTask. The awaited task also notes the runtime's Continuation as its follower. A custom
// awaiter has a delegate to the RuntimeAsyncTask.
//
// While the innermost method runs, the task has no Continuation: the runtime's call that resumes the methods keeps
// the next Continuation on its stack. See dispatch.go.
//
// Sources (dotnet/runtime): src/coreclr/vm/datadescriptor/datadescriptor.inc (ContinuationObject, AsyncResumeInfo),
// src/coreclr/vm/asynccontinuations.cpp, src/coreclr/inc/corinfo.h (CORINFO_AsyncResumeInfo),
// System.Private.CoreLib/src/System/Runtime/CompilerServices/AsyncHelpers.CoreCLR.cs (RuntimeAsyncTask).
const (
	runtimeTaskClass  = "System.Runtime.CompilerServices.AsyncHelpers+RuntimeAsyncTask`1"
	continuationClass = "System.Runtime.CompilerServices.Continuation"
	leafContinuation  = "System.Runtime.CompilerServices.RuntimeAsyncTaskContinuation"
	headField         = "m_stateObject"
)

// continuationLayout has the offsets of a Continuation's fields. Before .NET 11 there are none.
type continuationLayout struct {
	Size   uint32 `clr:"ContinuationObject.!,optional"` // without the values that a method saves
	Next   uint32 `clr:"ContinuationObject.Next,optional"`
	Resume uint32 `clr:"ContinuationObject.ResumeInfo,optional"`
	State  uint32 `clr:"ContinuationObject.State,optional"`
	IP     uint32 `clr:"AsyncResumeInfo.DiagnosticIP,optional"`
}

func (l *continuationLayout) known() bool {
	for _, v := range []uint32{l.Size, l.Next, l.Resume, l.State, l.IP} {
		if v == contract.Absent {
			return false
		}
	}
	return true
}

// Resumptions reports whether the runtime can itself suspend methods.
func (r *Reader) Resumptions() bool { return r.continuation.known() }

// Resumption is a method suspended by the runtime itself.
type Resumption struct {
	Object arch.Addr // the method's Continuation
	Task   arch.Addr // the RuntimeAsyncTask of the suspended method
	IP     arch.Addr // where the method goes on, in the code
	State  int32     // the number of the await
	// Context tells the instantiation of shared generic code: a MethodDesc, or a MethodTable, for example of the
	// method's object. 0: not known, or the code is not shared.
	Context arch.Addr
}

// ContextsBy sets the function that finds the Context of a suspended method; 0: not known.
func (r *Reader) ContextsBy(context func(*Resumption) arch.Addr) { r.context = context }

// resumptions returns the methods suspended in a RuntimeAsyncTask, the innermost first; none: the task runs, or has
// ended. Continuations without an address are the runtime's own.
func (r *Reader) resumptions(task arch.Addr, s *shape) (steps []Step, err error) {
	if s.next == 0 {
		return nil, nil
	}
	return r.continuations(task+arch.Addr(s.next), task)
}

// continuations returns the methods suspended in a task, from the Continuation in the word next on.
func (r *Reader) continuations(next, task arch.Addr) (steps []Step, err error) {
	if !r.continuation.known() {
		return nil, nil
	}
	seen := map[arch.Addr]bool{}
	for len(seen) < maxSteps {
		at, err := r.objects.Word(next)
		if err != nil || at == 0 || seen[at] {
			return steps, err
		}
		seen[at], next = true, at+arch.Addr(r.continuation.Next)
		class, err := r.objects.Class(at)
		if err != nil {
			return nil, err
		}
		if !class.Is(coreLib, continuationClass) {
			return nil, nil // an object that the runtime has not put there
		}
		one := Resumption{Object: at, Task: task}
		if one.State, err = r.objects.Int32(at + arch.Addr(r.continuation.State)); err != nil {
			return nil, err
		}
		info, err := r.objects.Word(at + arch.Addr(r.continuation.Resume))
		if err == nil && info != 0 {
			one.IP, err = r.resume(info + arch.Addr(r.continuation.IP))
		}
		if err != nil {
			return nil, err
		}
		if one.IP != 0 {
			if r.context != nil {
				one.Context = r.context(&one)
			}
			steps = append(steps, Step{Resumption: &one})
		}
	}
	return steps, nil
}

// leaves are the Continuations that the runtime puts in front of the methods' Continuations, with the field of the
// object awaited by the innermost method.
var leaves = map[string]string{
	leafContinuation: "Task",
	"System.Runtime.CompilerServices.AsyncHelpers+ValueTaskSourceContinuation": "Source",
}

// AwaitedIn returns the object awaited by the innermost method in a RuntimeAsyncTask.
func (r *Reader) AwaitedIn(task arch.Addr) (Awaited, error) {
	s, err := r.shapeOfObject(task)
	if err != nil || s.kind != runtimeTask || s.next == 0 {
		return Awaited{}, err
	}
	head, err := r.objects.Word(task + arch.Addr(s.next))
	if err != nil || head == 0 {
		return Awaited{}, err
	}
	class, err := r.objects.Class(head)
	if err != nil {
		return Awaited{}, err
	}
	_, full, err := r.objects.FullName(class)
	if err != nil {
		return Awaited{}, err
	}
	field, ok := leaves[full]
	if !ok || class.Assembly != coreLib {
		return r.awaiter(task, head, class)
	}
	obj, err := r.objects.Pointer(head, class, field)
	if err != nil || obj == 0 {
		return Awaited{}, err
	}
	class, err = r.objects.Class(obj)
	return Awaited{obj, class}, err
}

// inContext is a bit of Continuation.Flags: the method goes on in the SynchronizationContext of its suspension
// (ContinuationFlags.ContinueOnCapturedSynchronizationContext of .NET 11.0.0).
const inContext = 2

// Posted reports whether a method without an awaited object goes on in its SynchronizationContext. The context has
// then got the rest of the method.
func (r *Reader) Posted(s *Step) (bool, error) {
	if s.Resumption == nil {
		return false, nil
	}
	class, err := r.objects.Class(s.Resumption.Object)
	if err != nil {
		return false, err
	}
	flags, err := r.objects.Uint32(s.Resumption.Object, class, "Flags")
	return flags&inContext != 0, err
}

// maxSaved bounds the words that are read of a Continuation.
const maxSaved = 512

// awaiter returns the awaiter of a method of a RuntimeAsyncTask, by the method's Continuation. The method has saved
// the awaiter, and the awaiter leads to the task, for example with the delegate that resumes the task. Optimised code
// saves only an awaiter with a later use.
func (r *Reader) awaiter(task, head arch.Addr, class *object.Class) (Awaited, error) {
	action, err := r.Action(task)
	if err != nil || action == 0 || !class.Is(coreLib, continuationClass) {
		return Awaited{}, err
	}
	var out Awaited
	err = r.saved(head, class, func(obj arch.Addr, of *object.Class) bool {
		if r.Resumes(obj, of, action) {
			out = Awaited{obj, of}
		} else if to, err := r.next(obj); err == nil && to.obj == task { // a task, by its own awaiter
			out = Awaited{obj, of}
		}
		return out.Object == 0
	})
	return out, err
}

// Action returns the delegate that resumes the methods of a RuntimeAsyncTask. The awaited object calls the delegate.
// 0: there is none.
func (r *Reader) Action(task arch.Addr) (arch.Addr, error) {
	class, err := r.objects.Class(task)
	if err != nil {
		return 0, err
	}
	return r.objects.Pointer(task, class, "m_action")
}

// taskNow returns the current address of a RuntimeAsyncTask: the target of its delegate. If the collector has moved
// the task, the target is elsewhere, and task is only the old copy.
func (r *Reader) taskNow(task arch.Addr) (arch.Addr, error) {
	action, err := r.Action(task)
	if err != nil || action == 0 {
		return task, err
	}
	class, err := r.objects.Class(action)
	if err != nil {
		return 0, err
	}
	at, err := r.objects.Pointer(action, class, "_target")
	if err != nil || at == task {
		return at, err
	}
	if s, err := r.shapeOfObject(at); err != nil || s.kind != runtimeTask {
		return task, err
	}
	return at, nil
}

// Resumes reports whether an object has the delegate that resumes methods.
func (r *Reader) Resumes(obj arch.Addr, class *object.Class, action arch.Addr) bool {
	field, err := r.objects.RefersTo(obj, class, action)
	return err == nil && field != ""
}

// Methods returns the methods of an object recognised by IsBox, the innermost first, and whether the methods have not
// ended.
func (r *Reader) Methods(obj arch.Addr) (steps []Step, alive bool, err error) {
	s, err := r.shapeOfObject(obj)
	if err != nil {
		return nil, false, err
	}
	if s.kind == runtimeTask {
		if at, err := r.taskNow(obj); err != nil || at != obj {
			return nil, false, errors.Join(err, ErrMoved)
		}
		steps, err = r.resumptions(obj, s)
		return steps, len(steps) > 0, err
	}
	b, err := r.Box(obj)
	if err != nil {
		return nil, false, err
	}
	alive, err = r.Alive(b)
	return []Step{{Box: b}}, alive, err
}

// Place returns the current address of an object recognised by IsBox, in case the collector has moved the object. 0:
// the object's methods have ended, or rest.
func (r *Reader) Place(obj arch.Addr) (arch.Addr, error) {
	s, err := r.shapeOfObject(obj)
	if err != nil {
		return 0, err
	}
	if s.kind == runtimeTask {
		if at, err := r.taskNow(obj); err != nil || at != obj {
			return at, err
		}
		if steps, err := r.resumptions(obj, s); err != nil || len(steps) == 0 {
			return 0, err
		}
		return obj, nil
	}
	b, err := r.Box(obj)
	if errors.Is(err, errEnded) {
		return 0, nil
	}
	if err != nil || b.Rests() {
		return 0, err
	}
	return r.Current(b)
}

func (r *Reader) shapeOfObject(obj arch.Addr) (*shape, error) {
	class, err := r.objects.Class(obj)
	if err != nil {
		return nil, err
	}
	return r.shape(class)
}
