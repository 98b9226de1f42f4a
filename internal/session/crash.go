package session

import (
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/thread"
	"clrsnap/profile"
)

// maxInner bounds the exceptions that led to one another.
const maxInner = 16

// exception describes the last managed exception of a thread; nil if there is none that can
// be read.
func (p *Process) exception(t *thread.Thread) *profile.ExceptionInfo {
	if p.Runtime == nil {
		return nil
	}
	var first *profile.ExceptionInfo
	to := &first
	obj := p.Runtime.Threads.LastException(t)
	for range maxInner {
		if obj == 0 {
			break
		}
		var e *profile.ExceptionInfo
		e, obj = p.readException(obj)
		if e == nil {
			break
		}
		*to, to = e, &e.Inner
	}
	return first
}

// readException describes an exception object and returns the address of the one that
// led to it.
func (p *Process) readException(obj arch.Addr) (*profile.ExceptionInfo, arch.Addr) {
	e, err := p.Runtime.Threads.ReadException(obj)
	if err != nil {
		return nil, 0
	}
	class, err := p.Runtime.Names.Class(e.Type)
	if err != nil {
		return nil, 0
	}
	return &profile.ExceptionInfo{
		Type: class.Display, Message: e.Message + p.parameter(obj, e), NoMessage: e.Unread, HResult: e.HResult,
	}, e.Inner
}

// maxBases bounds the classes that an exception's class derives from.
const maxBases = 32

// parameter is what an ArgumentException adds to its message: the name of the parameter, in the
// words of System.Private.CoreLib (Arg_ParamName_Name in Strings.resx).
func (p *Process) parameter(obj arch.Addr, e thread.ExceptionObject) string {
	if e.Message == "" {
		return ""
	}
	class := e.Type
	for range maxBases {
		switch c, err := p.Runtime.Names.Class(class); {
		case err != nil:
			return ""
		case c.Display == "System.ArgumentException" && c.Assembly == coreLib:
			if name, ok := p.Runtime.Threads.OwnString(obj, class); ok && name != "" {
				return " (Parameter '" + name + "')"
			}
			return ""
		}
		if class = p.Runtime.Threads.Base(class); class == 0 {
			return ""
		}
	}
	return ""
}

const (
	coreLib       = "System.Private.CoreLib"
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
	objects, chars := threads.Strings(arch.Addr(st.Frames[first].SP), arch.Addr(st.Frames[end].SP))
	st.FailFast = &profile.FailFast{}
	switch {
	case len(chars) == 1:
		st.FailFast.Message = chars[0]
	case len(chars) == 0 && len(objects) == 1:
		st.FailFast.Message = objects[0]
	default:
		st.FailFast.Unknown = true
	}
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
