package session

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/aot"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/module"
	"clrsnap/internal/walk"
	"clrsnap/profile"
)

// tierAhead is the Tier of the methods of a native AOT program.
const tierAhead = "native AOT"

// nameAhead turns a frame walked as a native frame into the frame of a method compiled ahead of
// time. False: the function is no method, or has no name.
func (n naming) nameAhead(out *profile.Frame, f *walk.Frame) bool {
	if n.Engine.Ahead == nil || f.Module == nil || f.Module != n.Found.Module {
		return false
	}
	at := placeOf(f)
	m, start, ok := n.methodAhead(f.Module, at.at)
	if !ok {
		return false
	}
	out.Kind, out.Tier, out.Offset = profile.Managed, tierAhead, uint64(f.IP()-start)
	out.Method, out.Display, out.Short, out.Signature, out.Module = m.Exact, m.Display, m.Short, m.Signature, m.Assembly
	if n.lines != nil && !n.lasting {
		out.Line = n.lineAhead(at, start)
	}
	return true
}

// lineAhead returns the line of an instruction of a method, by the symbols or by the lines in the program itself; nil:
// not known. start is the start of the method's code.
func (p *Process) lineAhead(at nativePlace, start arch.Addr) *profile.SourceLine {
	if l := p.lines.of(at); l != nil {
		return l
	}
	file, line, ok := p.Engine.Ahead.Line(start, at.at)
	if !ok {
		return nil
	}
	return &profile.SourceLine{File: file, Line: line}
}

// methodAhead returns the method at an address in code, and the start of the method's code. A part
// of a method can be a separate function, for example an exception handler: the part belongs to the
// method.
func (p *Process) methodAhead(in *module.Module, at arch.Addr) (m name.Method, start arch.Addr, ok bool) {
	if start, ok = in.Function(at); !ok {
		return m, 0, false
	}
	if first, data, ok := in.LanguageData(at); ok {
		whole, err := aot.MethodStart(p.Engine.Cache, first, data)
		if err != nil {
			return m, 0, false
		}
		start = whole
	}
	m, ok = p.Engine.Ahead.Method(start)
	return m, start, ok
}

// nameResumedAhead names the method that goes on at an address, of a chain of awaits.
func (p *Process) nameResumedAhead(f *profile.Frame, at arch.Addr) {
	if p.Engine.Ahead == nil || p.Found == nil || p.Found.Module == nil {
		return
	}
	m, start, ok := p.methodAhead(p.Found.Module, at)
	if !ok {
		return
	}
	f.Tier, f.Offset = tierAhead, uint64(at-start)
	f.Method, f.Display, f.Short, f.Signature, f.Module = m.Exact, m.Display, m.Short, m.Signature, m.Assembly
}

// AheadDelegate names the method that a delegate of a native AOT program calls; "": not known. The delegate has the
// code of the method or, for a static method, of a stub, and then the code of the method in another field
// (src/coreclr/nativeaot/System.Private.CoreLib/src/System/Delegate.cs).
func (p *Process) AheadDelegate(delegate arch.Addr, class *object.Class) string {
	if p.Engine.Ahead == nil {
		return ""
	}
	for _, field := range []string{"_extraFunctionPointerOrData", "_methodPtr"} {
		code, err := p.Managed.Objects.Pointer(delegate, class, field)
		if err != nil {
			return ""
		}
		if m, ok := p.Engine.Ahead.Method(code); ok {
			return m.Display
		}
	}
	return ""
}
