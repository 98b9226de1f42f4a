package clrsnap

import (
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/walk"
	"clrsnap/profile"
)

// FunctionName is what a method is called.
type FunctionName struct {
	// Exact is the metadata name of type and method, as the runtime's own stack
	// traces have them: Idle.Program+<>c.<Main>b__9_8.
	Exact string
	// Display is the name from the source's point of view, with namespaces and
	// generic arguments: Idle.Program.Main{lambda 9_8}.
	Display string
	// Short is Display without namespaces.
	Short string
	// Signature is the parameter types in parentheses; empty where unknown.
	Signature string
	// Assembly is the simple name of the assembly; empty for dynamic methods.
	Assembly string
}

// FunctionName names a method.
func (p *Process) FunctionName(id FunctionID) (FunctionName, error) {
	if p.rt == nil || id == 0 {
		return FunctionName{}, &Error{HRESULT: E_INVALIDARG, Text: fmt.Sprintf("%v is not a method", id)}
	}
	m, err := p.rt.Methods.Read(arch.Addr(id))
	if err != nil {
		return FunctionName{}, &Error{HRESULT: E_INVALIDARG, Text: fmt.Sprintf("%v is not a method", id), Err: err}
	}
	n, err := p.rt.Names.Method(&m, true)
	if err != nil {
		return FunctionName{}, &Error{HRESULT: E_FAIL, Text: fmt.Sprintf("method %v cannot be named", id), Err: err}
	}
	return FunctionName(n), nil
}

func (p *Process) tier(c *codemap.Code) (string, error) {
	if c == nil || c.MethodDesc == 0 {
		return "", nil // an unmanaged frame
	}
	m, err := p.rt.Methods.Read(c.MethodDesc)
	if err != nil {
		return "", err
	}
	t, err := p.rt.Methods.Tier(&m, c)
	return string(t), err
}

// frame turns a walked frame into one for people.
func (p *Process) frame(f *walk.Frame) (profile.Frame, error) {
	switch f.Kind {
	case walk.Managed:
		return p.managedFrame(f)
	case walk.Stub:
		return p.stubFrame(f), nil
	}
	n := p.nativeFrame(f)
	out := profile.Frame{Kind: profile.Native, IP: n.IP, SP: n.SP, Method: n.Symbol, Module: f.Module.Name, Offset: n.Offset}
	out.Display, out.Short = n.Symbol, n.Symbol
	if sym, _, ok := f.Module.Symbol(symbolAddr(f)); ok {
		out.Short = sym.Short
	}
	return out, nil
}

func (p *Process) managedFrame(f *walk.Frame) (profile.Frame, error) {
	out := p.bare(f, profile.Managed)
	out.FunctionID = uint64(f.Code.MethodDesc)
	out.Offset = uint64(f.IP() - f.Code.MethodStart)
	n, err := p.named(f.Code)
	if err != nil {
		out.Display = fmt.Sprintf("[method %v]", FunctionID(out.FunctionID))
		out.Short = out.Display
		return out, err
	}
	out.Method, out.Display, out.Short, out.Signature, out.Module = n.Exact, n.Display, n.Short, n.Signature, n.Assembly
	if p.walker.Filter(f) {
		out.Display += " [filter]"
		out.Short += " [filter]"
	}
	t, err := p.rt.Methods.Tier(&p.method, f.Code)
	if err != nil {
		return out, err
	}
	if t == method.TierUnknown {
		t = "JIT"
	}
	out.Tier = string(t)
	return out, nil
}

// named reads and names a method. What was read is in p.method then.
func (p *Process) named(c *codemap.Code) (n name.Method, err error) {
	if p.method, err = p.rt.Methods.Read(c.MethodDesc); err != nil {
		return n, err
	}
	return p.rt.Names.Method(&p.method, c.Collectible)
}

// stubFrame: a stub is the runtime's own code, so it is native for whoever asks.
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
	return profile.Frame{Kind: kind, IP: uint64(f.IP()), SP: f.Context.Regs[p.arch.SP]}
}

// symbolAddr is the address whose symbol a native frame shows: a return address
// may lie behind the function that called.
func symbolAddr(f *walk.Frame) arch.Addr {
	if f.Exact {
		return f.IP()
	}
	return f.IP() - 1
}

func (p *Process) nativeFrame(f *walk.Frame) NativeFrame {
	out := NativeFrame{IP: uint64(f.IP()), SP: f.Context.Regs[p.arch.SP]}
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
