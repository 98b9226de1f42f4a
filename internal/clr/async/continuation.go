package async

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
)

// From .NET 11 on the runtime itself can suspend async methods ("runtime async"). Such a method has no state machine.
// For each of those that are suspended together there is a Continuation, an object that leads to that of its caller.
// The innermost one is in a RuntimeAsyncTask, which is the task that the outermost method returned. What awaits that
// task is found in it, as with others. Where a method waits is an address in its code.
//
// While the methods run, the Continuations are not in the task, but on the thread's stack: they are not read.
//
// Sources (dotnet/runtime): src/coreclr/vm/datadescriptor/datadescriptor.inc (ContinuationObject, AsyncResumeInfo),
// src/coreclr/vm/asynccontinuations.cpp, src/coreclr/inc/corinfo.h (CORINFO_AsyncResumeInfo),
// System.Private.CoreLib/src/System/Runtime/CompilerServices/AsyncHelpers.CoreCLR.cs (RuntimeAsyncTask).
const (
	runtimeTaskClass  = "System.Runtime.CompilerServices.AsyncHelpers+RuntimeAsyncTask`1"
	continuationClass = "System.Runtime.CompilerServices.Continuation"
	headField         = "m_stateObject"
)

// continuationLayout is where a Continuation has what is read. It is absent before .NET 11.
type continuationLayout struct {
	Next   uint32 `clr:"ContinuationObject.Next,optional"`
	Resume uint32 `clr:"ContinuationObject.ResumeInfo,optional"`
	State  uint32 `clr:"ContinuationObject.State,optional"`
	IP     uint32 `clr:"AsyncResumeInfo.DiagnosticIP,optional"`
}

func (l *continuationLayout) known() bool {
	for _, v := range []uint32{l.Next, l.Resume, l.State, l.IP} {
		if v == contract.Absent {
			return false
		}
	}
	return true
}

// Resumption is a method that the runtime itself has suspended.
type Resumption struct {
	Object arch.Addr // its Continuation
	IP     arch.Addr // where it goes on, in its code
	State  int32     // the number of the await
}

// resumptions returns the methods that are suspended in a RuntimeAsyncTask, the inner one first; none: it runs, or has
// ended. Those without an address are the runtime's own.
func (r *Reader) resumptions(task arch.Addr, s *shape) (steps []Step, err error) {
	if s.next == 0 || !r.continuation.known() {
		return nil, nil
	}
	seen := map[arch.Addr]bool{}
	next := task + arch.Addr(s.next)
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
			return nil, nil // what somebody else has put there
		}
		one := Resumption{Object: at}
		if one.State, err = r.objects.Int32(at + arch.Addr(r.continuation.State)); err != nil {
			return nil, err
		}
		info, err := r.objects.Word(at + arch.Addr(r.continuation.Resume))
		if err == nil && info != 0 {
			one.IP, err = r.objects.Word(info + arch.Addr(r.continuation.IP))
		}
		if err != nil {
			return nil, err
		}
		if one.IP != 0 {
			steps = append(steps, Step{Resumption: &one})
		}
	}
	return steps, nil
}

// Methods returns the methods that an object stands for that IsBox has recognised, the inner one first, and whether
// they have not ended.
func (r *Reader) Methods(obj arch.Addr) (steps []Step, alive bool, err error) {
	class, err := r.objects.Class(obj)
	if err != nil {
		return nil, false, err
	}
	s, err := r.shape(class)
	if err != nil {
		return nil, false, err
	}
	if s.kind == runtimeTask {
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
