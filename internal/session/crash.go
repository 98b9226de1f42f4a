package session

import (
	"reflect"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/profile"
)

const (
	failFastName  = "System.Environment.FailFast"
	failFastError = "System.ExecutionEngineException"
)

// failFast describes the end of a thread that has called Environment.FailFast. The runtime makes an
// exception of it that nobody has thrown, for a debugger; its inner one is the last that was thrown
// (src/coreclr/vm/eepolicy.cpp, LogFatalError). The message is kept nowhere but on the stack, where
// the string is held while the runtime has its characters (src/coreclr/classlibnative/bcltype/system.cpp).
func (s *Suspension) failFast(st *profile.Thread) {
	if s.Process.Runtime == nil {
		return
	}
	first, end := s.failFastFrames(st.Frames)
	if end == len(st.Frames) {
		return
	}
	if e := st.Exception; e != nil && e.Type == failFastError {
		st.Exception = e.Inner
	}
	threads := s.Process.Runtime.Threads
	low, high := arch.Addr(st.Frames[first].SP), arch.Addr(st.Frames[end].SP)
	objects, chars := threads.Strings(low, high)
	st.FailFast = &profile.FailFast{Exception: s.failFastException(low, high)}
	if reflect.DeepEqual(st.FailFast.Exception, st.Exception) {
		st.FailFast.Exception = st.Exception // it is the same one
	}
	switch {
	case len(chars) == 1:
		st.FailFast.Message = chars[0]
	case len(chars) == 0 && len(objects) == 1:
		st.FailFast.Message = objects[0]
	default:
		st.FailFast.Unknown = true
	}
}

// failFastException reads the exception that FailFast was called with: its object is held where the message
// is. It is nil if there is none, or more than one that it could be.
func (s *Suspension) failFastException(low, high arch.Addr) *profile.ExceptionInfo {
	p := s.Process
	found := p.Runtime.Threads.Objects(low, high, func(class arch.Addr) bool {
		name, known := p.exceptionClass(class)
		return known && name != failFastError
	})
	if len(found) != 1 {
		return nil
	}
	all := p.exceptions(found, "")
	if len(all) != 1 {
		return nil
	}
	return all[0]
}

// failFastFrames returns where among the frames those of FailFast are, with what they have called
// of the runtime: [first, end). Without any both are the number of frames.
func (s *Suspension) failFastFrames(frames []profile.Frame) (first, end int) {
	isFailFast := func(f profile.Frame) bool { return f.Method == failFastName && f.Module == coreLib }
	first = slices.IndexFunc(frames, func(f profile.Frame) bool { return f.Kind == profile.Managed })
	switch {
	case first < 0:
		return len(frames), len(frames)
	case isFailFast(frames[first]):
		for end = first; end < len(frames) && isFailFast(frames[end]); end++ {
		}
	case s.inFailFast():
		end = first // in .NET 8 it is a function of the runtime
	default:
		return len(frames), len(frames)
	}
	return max(0, first-failFastNative), end
}

// failFastNative is how many of the runtime's frames are searched: FailFast and what it calls.
const failFastNative = 2

// inFailFast reports whether the newest Frame is that of FailFast.
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
