package name

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/types"
)

// canonName is the type in place of every reference type in the name of shared code
// (System.Private.CoreLib/src/System/__Canon.cs).
const canonName = "System.__Canon"

// IsCanon reports whether a type handle is the handle of System.__Canon.
func (n *Namer) IsCanon(h arch.Addr) (bool, error) {
	if n.canon != 0 {
		return h == n.canon, nil
	}
	t, err := n.types.Read(h)
	if err != nil || t.Kind != types.Class || t.Generic || t.Module == 0 {
		return false, err
	}
	a, err := n.assembly(t.Module)
	if err != nil || a.name != coreLib {
		return false, err
	}
	s, err := a.md.TypeName(t.RID)
	if err != nil || s != canonName {
		return false, err
	}
	n.canon = h // CoreLib stays
	return true, nil
}

// HasCanon reports whether System.__Canon is among type handles, or among the handles' type arguments and element
// types.
func (n *Namer) HasCanon(handles ...arch.Addr) (bool, error) {
	left := maxTypeNodes
	return n.hasCanon(handles, &left, 0)
}

func (n *Namer) hasCanon(handles []arch.Addr, left *int, depth int) (bool, error) {
	for _, h := range handles {
		if *left--; *left < 0 || depth > maxTypeDepth {
			return false, errTooDeep
		}
		if is, err := n.IsCanon(h); is || err != nil {
			return is, err
		}
		t, err := n.types.Read(h)
		if err != nil {
			return false, err
		}
		inner := t.Args
		if t.Elem != 0 {
			inner = []arch.Addr{t.Elem}
		}
		if has, err := n.hasCanon(inner, left, depth+1); has || err != nil {
			return has, err
		}
	}
	return false, nil
}

// Instance names an instantiation of shared code: m has the instantiation's MethodTable and type arguments in place
// of the code's. volatile: the code, or a type among the arguments, can be unloaded.
func (n *Namer) Instance(m *method.Method, context arch.Addr, volatile bool) (Method, error) {
	key := instanceKey{m.Desc, m.MethodTable, context}
	if !volatile {
		if name, ok := n.instances[key]; ok {
			return name, nil
		}
	}
	name, err := n.method(m)
	if err == nil && !volatile {
		if err := n.take(nameCost + name.size()); err != nil {
			return Method{}, err
		}
		n.instances[key] = name
	}
	return name, err
}

// instanceKey is an instantiation: of a method's code, in a class, with a context.
type instanceKey struct{ desc, table, context arch.Addr }
