package clrsnap

import "clrsnap/internal/arch"

// FunctionName is the name of a method.
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

// FunctionName names a method. The error is an *Error. E_INVALIDARG: id is not a method, for example because the method
// has been unloaded. E_FAIL: the method cannot be named.
func (p *Process) FunctionName(id FunctionID) (FunctionName, error) {
	n, err := p.s.Method(arch.Addr(id))
	return FunctionName{n.Exact, n.Display, n.Short, n.Signature, n.Assembly}, publish(err)
}

// ClassName is the name of a type.
type ClassName struct {
	// Display is the name as C# would write it, with namespaces.
	Display string
	// Short is Display without namespaces.
	Short string
	// Assembly is the simple name; for an array, the name of the element type's assembly.
	Assembly string
}

// ClassName names a type. The error is an *Error. E_INVALIDARG: id is not a type.
func (p *Process) ClassName(id ClassID) (ClassName, error) {
	n, err := p.s.Class(arch.Addr(id))
	return ClassName{n.Display, n.Short, n.Assembly}, publish(err)
}

// GetFunctionFromIP returns the method at the address ip, or 0 if ip is not in jitted or ReadyToRun code.
func (p *Process) GetFunctionFromIP(ip uint64) (FunctionID, error) {
	if p.s.Runtime == nil {
		return 0, nil
	}
	c, ok, err := p.s.Walker.Managed(arch.Addr(ip))
	if err != nil || !ok {
		return 0, err
	}
	return FunctionID(c.MethodDesc), nil
}
