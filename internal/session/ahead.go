package session

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/aot"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/module"
	"clrsnap/internal/walk"
	"clrsnap/profile"
)

// tierAhead is the Tier of the methods of a native AOT program.
const tierAhead = "native AOT"

// nameAhead turns a frame walked as a native frame into the frame of a method compiled ahead of
// time. False: the function is no method, or has no name.
func (p *Process) nameAhead(out *profile.Frame, f *walk.Frame) bool {
	if p.Engine.Ahead == nil || f.Module == nil || f.Module != p.Found.Module {
		return false
	}
	at := placeOf(f)
	m, start, ok := p.methodAhead(f.Module, at.at)
	if !ok {
		return false
	}
	out.Kind, out.Tier, out.Offset = profile.Managed, tierAhead, uint64(f.IP()-start)
	out.Method, out.Display, out.Short, out.Signature, out.Module = m.Exact, m.Display, m.Short, m.Signature, m.Assembly
	if p.lines != nil && !p.lasting {
		out.Line = p.lines.of(at)
	}
	return true
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
