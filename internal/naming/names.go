package naming

import (
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/walk"
	"clrsnap/snapshot"
)

// Tier says how code was compiled; "" for unmanaged code.
func (n *Namer) Tier(c *codemap.Code) (string, error) {
	if c == nil || c.MethodDesc == 0 {
		return "", nil
	}
	m, err := n.runtime.Methods.Read(c.MethodDesc)
	if err != nil {
		return "", err
	}
	t, err := n.runtime.Methods.Tier(&m, c)
	return string(t), err
}

// NamedFrame is a walked frame with its name.
type NamedFrame struct {
	snapshot.Frame
	Of      ImageMethod // the zero value for native frames
	Later   *Generic    // how the name can be completed later; nil: the name is complete
	Passing bool        // the name is not kept: the types in the name can be unloaded
}

// ImageMethod is a method, and the image of the method's assembly.
type ImageMethod struct {
	method.Method
	Image arch.Addr // 0: the method could not be named
}

// HasPlace reports whether places in the code of a method are places in the IL of an assembly.
func (m *ImageMethod) HasPlace() bool { return m.Image != 0 && m.HasMetadata() }

// nameCode is methodFrame without a line. tierErr is why the tier is not known.
func (n *Namer) nameCode(out *snapshot.Frame, code *codemap.Code, ip arch.Addr) (m ImageMethod, tierErr, err error) {
	out.FunctionID = uint64(code.MethodDesc)
	out.Offset = uint64(ip - code.MethodStart)
	known, err := n.MethodOf(code)
	if m.Method = known.Method; err == nil {
		m.Image, err = n.nameMethod(out, &m.Method, code.Collectible)
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

// MethodOfCode is the method of some code, and how the code was compiled.
type MethodOfCode struct {
	Method  method.Method
	tier    method.Tier
	tierErr error // why tier is not known
}

type methodsOfCode map[codeKey]MethodOfCode

// maxMethods bounds Namer.methods: 150 bytes each, more or less.
const maxMethods = 1 << 15

// MethodOf returns the method of code. For code that stays, the method is read once.
func (n *Namer) MethodOf(code *codemap.Code) (m MethodOfCode, err error) {
	key := codeKey{code.MethodDesc, code.MethodStart}
	if m, ok := n.methods[key]; ok && !code.Collectible {
		return m, nil
	}
	if m.Method, err = n.runtime.Methods.Read(code.MethodDesc); err != nil {
		return m, err
	}
	m.tier, m.tierErr = n.runtime.Methods.Tier(&m.Method, code)
	if m.tierErr == nil && m.tier != method.TierUnknown && !code.Collectible {
		if n.methods == nil || len(n.methods) >= maxMethods {
			n.methods = methodsOfCode{}
		}
		n.methods[key] = m
	}
	return m, nil
}

// nameMethod names a method, and returns the image of the method's assembly.
func (n *Namer) nameMethod(out *snapshot.Frame, m *method.Method, volatile bool) (image arch.Addr, err error) {
	named, err := n.runtime.Names.Method(m, volatile)
	if err != nil {
		return 0, err
	}
	n.setOwned(out, &named)
	if named.Shared {
		out.Generics = snapshot.SharedGenerics
	}
	return named.Image, nil
}

// setName gives a frame the name of a method.
func setName(out *snapshot.Frame, m *name.Method) {
	out.Method, out.Display, out.Short, out.Signature, out.Module = m.Exact, m.Display, m.Short, m.Signature, m.Assembly
}

// setOwned is setName for an assembly with an owner.
func (n *Namer) setOwned(out *snapshot.Frame, m *name.Method) {
	setName(out, m)
	out.Owner, out.Unproved = n.Owner(m.Assembly, m.Image), m.Unproved
}

// callee names the P/Invoke that a managed frame is in.
func (n *Namer) callee(f *walk.Frame) (call name.PInvoke, ok bool) {
	desc := f.Callee()
	if desc == 0 {
		return call, false
	}
	return n.runtime.Names.PInvoke(desc)
}

// NameCallee names a frame without a symbol by the P/Invoke of its caller, a managed frame. NameCallee returns false
// if nothing is changed: the frame must be of the function to which the runtime has linked the P/Invoke.
func (n *Namer) NameCallee(frame *snapshot.Frame, caller *walk.Frame) bool {
	if frame.Kind != snapshot.Native || frame.Method != "" || frame.Tier != "" {
		return false
	}
	call, ok := n.callee(caller)
	m := n.engine.Modules.Find(arch.Addr(frame.IP))
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
func (n *Namer) stubFrame(f *walk.Frame) snapshot.Frame {
	out := n.bare(f, snapshot.Native)
	out.Display = "[stub]"
	if f.Code == nil || f.Code.Kind == codemap.None {
		out.Display = "[runtime helper]"
	} else if f.Code.MethodStart != 0 {
		out.Offset = uint64(f.IP() - f.Code.MethodStart)
	}
	out.Short, out.Tier = out.Display, "stub"
	return out
}

func (n *Namer) bare(f *walk.Frame, kind snapshot.Kind) snapshot.Frame {
	return snapshot.Frame{Kind: kind, IP: uint64(f.IP()), SP: f.Context.Regs[n.engine.Arch.SP]}
}
