package naming

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/aot"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/module"
	"clrsnap/snapshot"
)

// TierAhead is the Tier of the methods of a native AOT program.
const TierAhead = "native AOT"

// lineAhead returns the line of an instruction of a method, by the symbols or by the lines in the program itself; nil:
// not known. start is the start of the method's code.
func (n *Namer) lineAhead(at nativePlace, start arch.Addr) *snapshot.SourceLine {
	if l := n.lines.of(at); l != nil {
		return l
	}
	file, line, ok := n.engine.Ahead.Line(start, at.at)
	if !ok {
		return nil
	}
	return &snapshot.SourceLine{File: file, Line: line}
}

// methodAhead returns the method at an address in code, and the start of the method's code. A part
// of a method can be a separate function, for example an exception handler: the part belongs to the
// method.
func (n *Namer) methodAhead(in *module.Module, at arch.Addr) (m name.Method, start arch.Addr, ok bool) {
	if start, ok = in.Function(at); !ok {
		return m, 0, false
	}
	if first, data, ok := in.LanguageData(at); ok {
		whole, err := aot.MethodStart(n.engine.Cache, first, data)
		if err != nil {
			return m, 0, false
		}
		start = whole
	}
	m, ok = n.engine.Ahead.Method(start)
	return m, start, ok
}

// NameResumedAhead names the method that goes on at an address, of a chain of awaits.
func (n *Namer) NameResumedAhead(f *snapshot.Frame, at arch.Addr) {
	if n.engine.Ahead == nil || n.found == nil || n.found.Module == nil {
		return
	}
	m, start, ok := n.methodAhead(n.found.Module, at)
	if !ok {
		return
	}
	f.Tier, f.Offset = TierAhead, uint64(at-start)
	setName(f, &m)
}

// AheadDelegate names the method that a delegate of a native AOT program calls; "": not known. The delegate has the
// code of the method or, for a static method, of a stub, and then the code of the method in another field
// (src/coreclr/nativeaot/System.Private.CoreLib/src/System/Delegate.cs).
func (n *Namer) AheadDelegate(delegate arch.Addr, class *object.Class) string {
	if n.engine.Ahead == nil {
		return ""
	}
	for _, field := range []string{"_extraFunctionPointerOrData", "_methodPtr"} {
		code, err := n.engine.Managed.Objects.Pointer(delegate, class, field)
		if err != nil {
			return ""
		}
		if m, ok := n.engine.Ahead.Method(code); ok {
			return m.Display
		}
	}
	return ""
}
