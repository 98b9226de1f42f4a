package tasks

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/gcinfo"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/session"
)

// Fields of delegates (System.Private.CoreLib: MulticastDelegate.CoreCLR.cs, Delegate.CoreCLR.cs).
const (
	MulticastClass = "System.MulticastDelegate"
	DelegateTarget = "_target"
)

// delegateKey identifies the callee of a delegate: the code, and the class of the target.
type delegateKey struct{ code, table arch.Addr }

// maxDelegates bounds the remembered names of methods.
const maxDelegates = 1 << 12

// DelegateNames are the names of the methods that delegates call. The names are right for a moment:
// code can be replaced.
type DelegateNames map[delegateKey]string

// of names the method that a delegate calls, as in the source; "": the delegate calls several
// methods, or the method is unknown.
func (n DelegateNames) of(p *session.Process, delegate arch.Addr) string {
	objects := p.Managed.Objects
	class, err := objects.Class(delegate)
	if err != nil || !class.Is(coreLib, MulticastClass) {
		return ""
	}
	if p.Runtime == nil {
		return p.AheadDelegate(delegate, class)
	}
	code, _ := p.Runtime.DelegateCode(delegate, class)
	if code == 0 {
		return ""
	}
	key := delegateKey{code: code}
	if target, err := objects.Pointer(delegate, class, DelegateTarget); err == nil && target != 0 {
		if of, err := objects.Class(target); err == nil {
			key.table = of.Table
		}
	}
	method, ok := n[key]
	if !ok {
		if method = calledName(p, key); n != nil && len(n) < maxDelegates {
			n[key] = method
		}
	}
	return method
}

// calledName names the method that a delegate calls. The class of the target tells the type arguments of shared code.
func calledName(p *session.Process, key delegateKey) string {
	desc, err := p.Runtime.Inlined.MethodAt(key.code)
	if err != nil || desc == 0 {
		return ""
	}
	m, err := p.Runtime.Methods.Read(desc)
	if err != nil {
		return ""
	}
	n, err := p.Runtime.Names.Method(&m, true)
	if err != nil {
		return ""
	}
	if n.Shared && key.table != 0 {
		if exact, ok := p.Exactly(&m, gcinfo.This, key.table, true); ok {
			n = exact.Method
		}
	}
	return n.Display
}

// TargetName names the class of the object that a delegate calls. Nobody has written the class of a
// lambda: there the result is the name of the method.
func (n DelegateNames) TargetName(p *session.Process, delegate arch.Addr, target *object.Class) string {
	if _, full, err := p.Managed.Objects.FullName(target); err == nil && name.IsCapturing(full) {
		if method := n.of(p, delegate); method != "" {
			return method
		}
	}
	return target.Display
}
