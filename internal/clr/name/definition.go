package name

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/ecma335"
)

// Assembly is what an assembly's image says of its methods.
type Assembly struct {
	Name     string // simple name
	Metadata *ecma335.Metadata
	Base     arch.Addr // of the image; 0: it has none
	Unproved bool      // the image may be another one than the runtime has loaded
}

// Assembly returns the assembly of a Module.
func (n *Namer) Assembly(module arch.Addr) (Assembly, error) {
	a, err := n.assembly(module)
	if err != nil {
		return Assembly{}, err
	}
	return Assembly{a.name, a.md, a.id.base, a.unproved}, nil
}

// Definition names a method of a Module by its row in the MethodDef table. Generic parameters have
// the names that the source gives them.
func (n *Namer) Definition(module arch.Addr, rid uint32) (Method, error) {
	a, err := n.assembly(module)
	if err != nil {
		return Method{}, err
	}
	owner, err := a.md.MethodOwner(rid)
	if err != nil {
		return Method{}, err
	}
	typeArgs, err := params(a.md, ecma335.MakeToken(ecma335.TableTypeDef, owner))
	if err != nil {
		return Method{}, err
	}
	methodArgs, err := params(a.md, ecma335.MakeToken(ecma335.TableMethodDef, rid))
	if err != nil {
		return Method{}, err
	}
	return n.defined(a, owner, rid, typeArgs, methodArgs)
}

// params are the generic parameters of a definition, as its arguments.
func params(md *ecma335.Metadata, of ecma335.Token) ([]typeText, error) {
	names, err := md.GenericParams(of)
	out := make([]typeText, len(names))
	for i, s := range names {
		out[i] = typeText{s, s}
	}
	return out, err
}

// IL returns the IL of a method of a Module, as its image has it. A method without IL is an error.
func (n *Namer) IL(module arch.Addr, rid uint32) ([]byte, error) {
	a, err := n.assembly(module)
	if err != nil {
		return nil, err
	}
	return n.body(a, rid)
}

// Arguments returns how many arguments a method of a Module has, its object included.
func (n *Namer) Arguments(module arch.Addr, rid uint32) (int, error) {
	a, err := n.assembly(module)
	if err != nil {
		return 0, err
	}
	f, err := a.md.Member(ecma335.MakeToken(ecma335.TableMethodDef, rid))
	if err != nil {
		return 0, err
	}
	if f.This {
		return f.Arguments + 1, nil
	}
	return f.Arguments, nil
}
