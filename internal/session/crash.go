package session

import (
	"reflect"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/snapshot"
)

const (
	failFastName  = "System.Environment.FailFast"
	failFastError = "System.ExecutionEngineException"
)

// failFast describes the end of a thread that has called Environment.FailFast. The message is only
// on the stack: the string stays there while the runtime uses the characters
// (src/coreclr/classlibnative/bcltype/system.cpp).
func (s *visit) failFast(st *snapshot.Thread) {
	if s.Process.Runtime == nil {
		return
	}
	first, end := s.failFastFrames(st.Frames)
	if end == len(st.Frames) {
		return
	}
	st.FailFast = &snapshot.FailFast{}
	s.failFastException(st)
	threads := s.Process.Managed.Threads
	objects, chars := threads.Strings(arch.Addr(st.Frames[first].SP), arch.Addr(st.Frames[end].SP))
	switch {
	case len(chars) == 1:
		st.FailFast.Message = chars[0]
	case len(chars) == 0 && len(objects) == 1:
		st.FailFast.Message = objects[0]
	default:
		st.FailFast.Unknown = true
	}
}

// failFastException describes the exception passed to FailFast. The runtime makes another exception
// for debuggers: the last exception of the thread, although nobody has thrown it. The inner
// exception of the runtime's exception is always the exception passed to FailFast, never an
// exception that was merely thrown before (live, .NET 8 to 10; src/coreclr/vm/eepolicy.cpp).
func (s *visit) failFastException(st *snapshot.Thread) {
	last := []arch.Addr{s.Process.Managed.Threads.LastThrown(&s.Walk.Info)}
	if all := s.Process.thrown.Exceptions(s.g.names, last, ""); len(all) == 1 && all[0].Type == failFastError {
		st.FailFast.Exception = all[0].Inner
	}
	switch e := st.Exception; {
	case e != nil && e.Type == failFastError:
		st.Exception = st.FailFast.Exception
	case e != nil && reflect.DeepEqual(e, st.FailFast.Exception):
		st.FailFast.Exception = e // FailFast was called while the exception was handled
	}
}

// failFastFrames returns the range [first, end) of the frames of FailFast, with the runtime
// functions that FailFast has called. Without FailFast both are the number of frames.
func (s *Suspension) failFastFrames(frames []snapshot.Frame) (first, end int) {
	isFailFast := func(f snapshot.Frame) bool { return f.Method == failFastName && f.Module == coreLib }
	first = slices.IndexFunc(frames, func(f snapshot.Frame) bool { return f.Kind == snapshot.Managed })
	switch {
	case first < 0:
		return len(frames), len(frames)
	case isFailFast(frames[first]):
		for end = first; end < len(frames) && isFailFast(frames[end]); end++ {
		}
	case s.inFailFast():
		end = first // in .NET 8 FailFast is a function of the runtime
	default:
		return len(frames), len(frames)
	}
	return max(0, first-failFastNative), end
}

// failFastNative is the number of runtime frames that are searched: FailFast and its callees.
const failFastNative = 2

// inFailFast reports whether the newest Frame belongs to FailFast.
func (s *Suspension) inFailFast() bool {
	r := s.Process.Runtime
	desc := r.Chain.Method(s.Walk.Stack, s.Walk.Info.Frame)
	if desc == 0 {
		return false
	}
	m, err := r.Methods.Read(desc)
	if err != nil {
		return false
	}
	name, err := r.Names.Method(&m, true)
	return err == nil && name.Exact == failFastName && name.Assembly == coreLib
}
