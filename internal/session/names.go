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

// NamedFrame is a walked frame with its name.
type NamedFrame struct {
	profile.Frame
	of      imageMethod // the zero value for native frames
	later   *generic    // how the name can be completed later; nil: the name is complete
	passing bool        // the name is not kept: the types in the name can be unloaded
}

// imageMethod is a method, and the image of the method's assembly.
type imageMethod struct {
	method.Method
	image arch.Addr // 0: the method could not be named
}

// hasPlace reports whether places in the code of a method are places in the IL of an assembly.
func (m *imageMethod) hasPlace() bool { return m.image != 0 && m.HasMetadata() }

// Frame names a walked frame. above is the method of the frame above; "": the frame above is not managed, or there is
// no frame above. With an error the frame has a placeholder in place of its name.
func (p *Process) Frame(f *walk.Frame, above string) (NamedFrame, error) {
	how := naming{Process: p}
	if p.Options.ExactGenerics {
		how.generics = anyInstance
	}
	return how.frame(f, above)
}

// LastingFrame is Frame for names that are kept. An instantiation of shared generic code is named only if the frame's
// Context tells the instantiation, and the instantiation cannot be unloaded. Native frames have no lines: the first
// line of a library takes long to read.
func (p *Process) LastingFrame(f *walk.Frame) (NamedFrame, error) {
	how := naming{Process: p, lasting: true}
	if p.Options.ExactGenerics && (f.Code == nil || !f.Code.Collectible) {
		how.generics = lastingInstance
	}
	return how.frame(f, "")
}

// naming says how the frames of a stack are named.
type naming struct {
	*Process
	generics instances
	lasting  bool  // names are kept
	late     *late // notes what lacks symbols, to be fetched later; nil: nothing is fetched
}

// instances says which instantiations of shared generic code are named.
type instances uint8

const (
	noInstance instances = iota
	lastingInstance
	anyInstance
)

func (n naming) frame(f *walk.Frame, above string) (out NamedFrame, err error) {
	switch f.Kind {
	case walk.Managed:
		return n.managedFrame(f, above)
	case walk.Stub:
		out.Frame = n.stubFrame(f)
		return out, nil
	}
	out.Frame = n.bare(f, profile.Native)
	out.Module, out.Offset = f.Module.Name, f.Module.Offset(f.IP())
	if n.nameAhead(&out.Frame, f) {
		return out, nil
	}
	n.nameNative(&out.Frame, placeOf(f))
	if n.late != nil && (out.Method == "" || n.lines != nil && out.Line == nil) && f.Module.Wanted() {
		n.late.addNative(f)
	}
	return out, nil
}

func (n naming) managedFrame(f *walk.Frame, above string) (out NamedFrame, err error) {
	out.Frame = n.bare(f, profile.Managed)
	if out.of, err = n.methodFrame(&out.Frame, f.Code, f.IP(), f.Place(), above); err != nil {
		return out, err
	}
	if out.Generics == profile.SharedGenerics && n.generics != noInstance {
		n.nameInstance(&out, f)
	}
	if n.Walker.Filter(f) {
		out.Display += " [filter]"
		out.Short += " [filter]"
	}
	if out.Tier == string(method.TierILStub) && out.Method == name.PInvokeStub {
		if call, ok := n.callee(f); ok {
			out.Display = call.Display()
			out.Short = out.Display
		}
	}
	return out, nil
}

// nameInstance names the instantiation that a frame of shared code runs, if it is known now, and not only later.
func (n naming) nameInstance(out *NamedFrame, f *walk.Frame) {
	exact, later, ok := n.instance(f, &out.of.Method)
	if n.generics == lastingInstance && (later != nil || exact.passing) {
		return
	}
	out.later, out.passing = later, exact.passing
	if ok {
		exact.name(&out.Frame)
	}
}

// methodFrame names the method whose code is at ip. The place at is the method's, and above the method of the frame
// above. With an error, out has a placeholder in place of the name, or no tier.
func (n naming) methodFrame(
	out *profile.Frame, code *codemap.Code, ip arch.Addr, at walk.Place, above string,
) (imageMethod, error) {
	m, tierErr, err := n.nameCode(out, code, ip)
	if err != nil {
		return m, err
	}
	out.Line = n.line(&m, code, at, out.Module, above)
	return m, tierErr
}

// nameCode is methodFrame without a line. tierErr is why the tier is not known.
func (p *Process) nameCode(out *profile.Frame, code *codemap.Code, ip arch.Addr) (m imageMethod, tierErr, err error) {
	out.FunctionID = uint64(code.MethodDesc)
	out.Offset = uint64(ip - code.MethodStart)
	known, err := p.methodOf(code)
	if m.Method = known.method; err == nil {
		m.image, err = p.nameMethod(out, &m.Method, code.Collectible)
	}
	if err != nil {
		out.Display = fmt.Sprintf("[method %v]", code.MethodDesc)
		out.Short = out.Display
		return m, nil, err
	}
	if known.tierErr != nil {
		return m, known.tierErr, nil
	}
	if out.Tier = string(known.tier); known.tier == method.TierUnknown {
		out.Tier = "JIT"
	}
	return m, nil, nil
}

// codeKey is code of a method. A method can have been compiled more than once.
type codeKey struct{ method, start arch.Addr }

// methodOfCode is the method of some code, and how the code was compiled.
type methodOfCode struct {
	method  method.Method
	tier    method.Tier
	tierErr error // why tier is not known
}

type methodsOfCode map[codeKey]methodOfCode

// maxMethods bounds Process.methods: 150 bytes each, more or less.
const maxMethods = 1 << 15

// methodOf returns the method of code. For code that stays, the method is read once.
func (p *Process) methodOf(code *codemap.Code) (m methodOfCode, err error) {
	key := codeKey{code.MethodDesc, code.MethodStart}
	if m, ok := p.methods[key]; ok && !code.Collectible {
		return m, nil
	}
	if m.method, err = p.Runtime.Methods.Read(code.MethodDesc); err != nil {
		return m, err
	}
	m.tier, m.tierErr = p.Runtime.Methods.Tier(&m.method, code)
	if m.tierErr == nil && m.tier != method.TierUnknown && !code.Collectible {
		if p.methods == nil || len(p.methods) >= maxMethods {
			p.methods = methodsOfCode{}
		}
		p.methods[key] = m
	}
	return m, nil
}

// nameMethod names a method, and returns the image of the method's assembly.
func (p *Process) nameMethod(out *profile.Frame, m *method.Method, volatile bool) (image arch.Addr, err error) {
	n, err := p.Runtime.Names.Method(m, volatile)
	if err != nil {
		return 0, err
	}
	out.Method, out.Display, out.Short, out.Signature, out.Module = n.Exact, n.Display, n.Short, n.Signature, n.Assembly
	out.Owner, out.Unproved = p.Owner(n.Assembly, n.Image), n.Unproved
	if n.Shared {
		out.Generics = profile.SharedGenerics
	}
	return n.Image, nil
}

// callee names the P/Invoke that a managed frame is in.
func (p *Process) callee(f *walk.Frame) (call name.PInvoke, ok bool) {
	desc := f.Callee()
	if desc == 0 {
		return call, false
	}
	return p.Runtime.Names.PInvoke(desc)
}

// NameCallee names a frame without a symbol by the P/Invoke of its caller, a managed frame. NameCallee returns false
// if nothing is changed: the frame must be of the function to which the runtime has linked the P/Invoke.
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

// stubFrame describes a frame in a stub. A stub is the runtime's own code, so its frame counts as native.
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

// symbolAddr is the address whose symbol a native frame shows. For a return address it is one byte less: a call can
// be the last instruction of a function.
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
