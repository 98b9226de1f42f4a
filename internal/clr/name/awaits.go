package name

import (
	"slices"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/ecma335"
)

// An Await is a place in a method's IL where the method asks the runtime to suspend the method until something
// completes. Compilers write a call of an AsyncHelpers method (docs/design/specs/runtime-async.md;
// System.Private.CoreLib, AsyncHelpers).
type Await struct {
	IL     uint32   // offset of the call
	Calls  []string // the names of the methods called between the await before and the present await
	Result bool     // the awaited object may give a result
}

const asyncHelpers = "System.Runtime.CompilerServices.AsyncHelpers"

// IsAwait reports whether a method is one of the helpers for awaits.
func IsAwait(m *ecma335.Member) bool {
	return m.Owner == asyncHelpers && (m.Name == "Await" || m.Name == "AwaitAwaiter" || m.Name == "UnsafeAwaitAwaiter")
}

// Awaits returns the awaits of a method, by its row in the MethodDef table, in the order of their offsets.
func (n *Namer) Awaits(module arch.Addr, rid uint32) ([]Await, error) {
	a, err := n.assembly(module)
	if err != nil {
		return nil, err
	}
	il, err := n.body(a, rid)
	if err != nil {
		return nil, err
	}
	sites, err := ecma335.Sites(il)
	if err != nil {
		return nil, err
	}
	var out []Await
	var calls []string
	for _, s := range sites {
		if s.Token == 0 {
			continue
		}
		m, err := a.md.Member(s.Token)
		if err != nil {
			return nil, err
		}
		if !IsAwait(m) {
			calls = append(calls, m.Name[strings.LastIndexByte(m.Name, '.')+1:])
			continue
		}
		out = append(out, Await{IL: s.At, Calls: calls, Result: s.Token.Table() == ecma335.TableMethodSpec})
		calls = nil
	}
	return out, nil
}

const stateMachineAttribute = "System.Runtime.CompilerServices.AsyncStateMachineAttribute"

// HasStateMachine reports whether a compiler has made a state machine from a method, by the method's row in the
// MethodDef table.
func (n *Namer) HasStateMachine(module arch.Addr, rid uint32) (bool, error) {
	a, err := n.assembly(module)
	if err != nil {
		return false, err
	}
	return a.md.HasAttribute(ecma335.MakeToken(ecma335.TableMethodDef, rid), stateMachineAttribute)
}

// MethodName returns the name of a method without the type, by the method's row in the MethodDef table.
func (n *Namer) MethodName(module arch.Addr, rid uint32) (string, error) {
	a, err := n.assembly(module)
	if err != nil {
		return "", err
	}
	return a.md.MethodName(ecma335.MakeToken(ecma335.TableMethodDef, rid))
}

// Calls reports whether the IL of a method, by its row in the MethodDef table, calls one of some methods of a class.
func (n *Namer) Calls(module arch.Addr, rid uint32, class string, methods ...string) (bool, error) {
	a, err := n.assembly(module)
	if err != nil {
		return false, err
	}
	il, err := n.body(a, rid)
	if err != nil {
		return false, err
	}
	sites, err := ecma335.Sites(il)
	if err != nil {
		return false, err
	}
	for _, s := range sites {
		if s.Token == 0 {
			continue
		}
		m, err := a.md.Member(s.Token)
		if err != nil {
			return false, err
		}
		if m.Owner == class && slices.Contains(methods, m.Name) {
			return true, nil
		}
	}
	return false, nil
}

// CallsNamed counts the calls of methods with some names, of any class, in the IL of a method, by its row in the
// MethodDef table.
func (n *Namer) CallsNamed(module arch.Addr, rid uint32, names []string) (count int, err error) {
	a, err := n.assembly(module)
	if err != nil {
		return 0, err
	}
	il, err := n.body(a, rid)
	if err != nil {
		return 0, err
	}
	calls, err := ecma335.Calls(il)
	if err != nil {
		return 0, err
	}
	for _, c := range calls {
		if m, err := a.md.Member(c.Token); err == nil && slices.Contains(names, m.Name) {
			count++
		}
	}
	return count, nil
}

// SourceName returns the name of a method as its callers write the name, by the method's row in the MethodDef table:
// for the code in a state machine, the name of the async method. "": a local function, or a lambda.
func (n *Namer) SourceName(module arch.Addr, rid uint32) (string, error) {
	a, err := n.assembly(module)
	if err != nil {
		return "", err
	}
	name, err := a.md.MethodName(ecma335.MakeToken(ecma335.TableMethodDef, rid))
	if err != nil {
		return "", err
	}
	if slices.Contains(moveNexts, name) {
		owner, err := a.md.MethodOwner(rid)
		if err != nil {
			return "", err
		}
		t, err := a.md.TypeDef(owner)
		if err != nil {
			return "", err
		}
		if made, ok := strings.CutPrefix(t.Name, "<"); ok {
			name, _, _ = strings.Cut(made, ">")
		}
	}
	if strings.ContainsAny(name, "<>") {
		return "", nil
	}
	return name[strings.LastIndexByte(name, '.')+1:], nil
}
