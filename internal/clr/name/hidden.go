package name

import (
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/types"
	"clrsnap/internal/ecma335"
)

const (
	hiddenAttribute    = "System.Diagnostics.StackTraceHiddenAttribute"
	aggressiveInlining = 0x100  // MethodImplAttributes (II.23.1.11)
	runtimeAsync       = 0x2000 // MethodImplAttributes.Async
)

// HiddenInTraces reports whether .NET's own text of a stack trace leaves a method out: the method or its class has
// the attribute StackTraceHidden, or the method asks to be inlined (System.Private.CoreLib,
// StackTrace.ShowInStackTrace).
func (n *Namer) HiddenInTraces(m *method.Method) (bool, error) {
	if !m.HasMetadata() || m.RID == 0 {
		return false, nil
	}
	flags, err := n.Attributes(m)
	if err != nil || flags&aggressiveInlining != 0 {
		return err == nil, err
	}
	a, err := n.assembly(m.Module)
	if err != nil {
		return false, err
	}
	hidden, err := a.md.HasAttribute(ecma335.MakeToken(ecma335.TableMethodDef, m.RID), hiddenAttribute)
	if err != nil || hidden {
		return hidden, err
	}
	t, err := n.types.Read(m.MethodTable)
	if err != nil || t.Kind != types.Class {
		return false, err
	}
	return a.md.HasAttribute(ecma335.MakeToken(ecma335.TableTypeDef, t.RID), hiddenAttribute)
}

// Suspends reports whether the runtime itself suspends a method at the method's awaits.
func (n *Namer) Suspends(m *method.Method) (bool, error) {
	if !m.HasMetadata() {
		return false, nil
	}
	flags, err := n.Attributes(m)
	return flags&runtimeAsync != 0, err
}
