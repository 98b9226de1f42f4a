package session

import (
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/walk"
	"clrsnap/profile"
)

// Method names the method of a MethodDesc.
func (p *Process) Method(desc arch.Addr) (name.Method, error) {
	if p.Runtime == nil || desc == 0 {
		return name.Method{}, notOne(desc, "a method", nil)
	}
	m, err := p.Runtime.Methods.Read(desc)
	if err != nil {
		return name.Method{}, notOne(desc, "a method", err)
	}
	n, err := p.Runtime.Names.Method(&m, true)
	if err != nil {
		return name.Method{}, &Error{Kind: Failed, Text: fmt.Sprintf("method %v cannot be named", desc), Err: err}
	}
	return n, nil
}

// Class names the type of a MethodTable.
func (p *Process) Class(table arch.Addr) (name.Class, error) {
	if p.Runtime == nil || table == 0 {
		return name.Class{}, notOne(table, "a type", nil)
	}
	n, err := p.Runtime.Names.Class(table)
	if err != nil {
		return name.Class{}, notOne(table, "a type", err)
	}
	return n, nil
}

func notOne(id arch.Addr, what string, err error) error {
	return &Error{Kind: NoMethod, Text: fmt.Sprintf("%v is not %s", id, what), Err: err}
}

// Tier says how code was compiled; "" for unmanaged code.
func (p *Process) Tier(c *codemap.Code) (string, error) {
	if c == nil || c.MethodDesc == 0 {
		return "", nil
	}
	m, err := p.Runtime.Methods.Read(c.MethodDesc)
	if err != nil {
		return "", err
	}
	t, err := p.Runtime.Methods.Tier(&m, c)
	return string(t), err
}

// Frame names a walked frame. With an error the frame has a placeholder in place of its name.
func (p *Process) Frame(f *walk.Frame) (profile.Frame, error) {
	switch f.Kind {
	case walk.Managed:
		return p.managedFrame(f)
	case walk.Stub:
		return p.stubFrame(f), nil
	}
	n := p.NativeFrame(f)
	out := profile.Frame{
		Kind: profile.Native, IP: n.IP, SP: n.SP, Method: n.Symbol, Module: f.Module.Name, Offset: n.Offset,
	}
	out.Display, out.Short = n.Symbol, n.Symbol
	if sym, _, ok := f.Module.Symbol(symbolAddr(f)); ok {
		out.Short = sym.Short
	} else {
		out.Nearest = f.Module.Nearest(symbolAddr(f))
	}
	return out, nil
}

func (p *Process) managedFrame(f *walk.Frame) (profile.Frame, error) {
	out := p.bare(f, profile.Managed)
	out.FunctionID = uint64(f.Code.MethodDesc)
	out.Offset = uint64(f.IP() - f.Code.MethodStart)
	p.image = 0
	n, err := p.named(f.Code)
	if err != nil {
		out.Display = fmt.Sprintf("[method %v]", f.Code.MethodDesc)
		out.Short = out.Display
		return out, err
	}
	out.Method, out.Display, out.Short, out.Signature, out.Module = n.Exact, n.Display, n.Short, n.Signature, n.Assembly
	p.image = n.Image
	out.Owner = p.owner(n.Assembly, n.Image)
	out.Line = p.line(f, n.Image)
	if p.Walker.Filter(f) {
		out.Display += " [filter]"
		out.Short += " [filter]"
	}
	t, err := p.Runtime.Methods.Tier(&p.method, f.Code)
	if err != nil {
		return out, err
	}
	if t == method.TierUnknown {
		t = "JIT"
	}
	out.Tier = string(t)
	if t == method.TierILStub && n.Exact == name.PInvokeStub {
		if call, ok := p.callee(f); ok {
			out.Display = call.Display()
			out.Short = out.Display
		}
	}
	return out, nil
}

// callee names the P/Invoke that a managed frame is in.
func (p *Process) callee(f *walk.Frame) (call name.PInvoke, ok bool) {
	desc := f.Callee()
	if desc == 0 {
		return call, false
	}
	return p.Runtime.Names.PInvoke(desc)
}

// NameCallee names a frame without a symbol by the P/Invoke that its caller, a managed frame, is
// in. It returns false if nothing is changed: the frame must be of the function that the runtime has
// linked the P/Invoke to.
func (p *Process) NameCallee(frame *profile.Frame, caller *walk.Frame) bool {
	if frame.Kind != profile.Native || frame.Method != "" || frame.Tier != "" {
		return false
	}
	call, ok := p.callee(caller)
	m := p.Engine.Modules.Find(arch.Addr(frame.IP))
	if !ok || m == nil || call.Target == 0 {
		return false
	}
	start, ok := m.Function(arch.Addr(frame.IP) - 1) // the call can be its last instruction
	if !ok || start != call.Target {
		return false
	}
	frame.Method, frame.Display, frame.Short, frame.Nearest = call.Name, call.Name, call.Name, ""
	frame.Offset = frame.IP - uint64(start)
	return true
}

// named reads and names a method, and keeps what it read in p.method.
func (p *Process) named(c *codemap.Code) (n name.Method, err error) {
	if p.method, err = p.Runtime.Methods.Read(c.MethodDesc); err != nil {
		return n, err
	}
	return p.Runtime.Names.Method(&p.method, c.Collectible)
}

// stubFrame describes a frame in a stub. A stub is the runtime's own code, so its frame counts
// as native.
func (p *Process) stubFrame(f *walk.Frame) profile.Frame {
	out := p.bare(f, profile.Native)
	out.Display = "[stub]"
	if f.Code == nil || f.Code.Kind == codemap.None {
		out.Display = "[runtime helper]"
	} else if f.Code.MethodStart != 0 {
		out.Offset = uint64(f.IP() - f.Code.MethodStart)
	}
	out.Short, out.Tier = out.Display, "stub"
	return out
}

func (p *Process) bare(f *walk.Frame, kind profile.Kind) profile.Frame {
	return profile.Frame{Kind: kind, IP: uint64(f.IP()), SP: f.Context.Regs[p.Arch.SP]}
}

// symbolAddr is the address whose symbol a native frame shows. For a return address it is one
// byte less: a call can be the last instruction of its function.
func symbolAddr(f *walk.Frame) arch.Addr {
	if f.Exact {
		return f.IP()
	}
	return f.IP() - 1
}

// NativeFrame is one unmanaged frame.
type NativeFrame struct {
	IP, SP uint64
	Module string // path, as the target sees it; empty for code outside any module
	Symbol string // demangled; empty where there is none
	Offset uint64 // of IP from the symbol, else from the module
}

// NativeFrame describes an unmanaged frame.
func (p *Process) NativeFrame(f *walk.Frame) NativeFrame {
	out := NativeFrame{IP: uint64(f.IP()), SP: f.Context.Regs[p.Arch.SP]}
	if f.Module == nil {
		return out
	}
	out.Module = f.Module.Path
	at := symbolAddr(f)
	if sym, off, ok := f.Module.Symbol(at); ok {
		out.Symbol, out.Offset = sym.Name, off+uint64(f.IP()-at)
		return out
	}
	out.Offset = f.Module.Offset(f.IP())
	return out
}
