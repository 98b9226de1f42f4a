package name

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/ecma335"
)

// Assembly has an assembly's metadata.
type Assembly struct {
	Name     string // simple name
	Metadata *ecma335.Metadata
	Base     arch.Addr // of the image; 0: there is no image
	Unproved bool      // the image may differ from the image that the runtime has loaded
}

// Assembly returns the assembly of a Module.
func (n *Namer) Assembly(module arch.Addr) (Assembly, error) {
	a, err := n.assembly(module)
	if err != nil {
		return Assembly{}, err
	}
	return Assembly{a.name, a.md, a.id.base, a.unproved}, nil
}

// Definition names a method of a Module by the method's row in the MethodDef table. Generic parameters have their
// names in the source.
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

// params returns the generic parameters of a definition as its arguments.
func params(md *ecma335.Metadata, of ecma335.Token) ([]typeText, error) {
	names, err := md.GenericParams(of)
	out := make([]typeText, len(names))
	for i, s := range names {
		out[i] = typeText{s, s}
	}
	return out, err
}

// IL returns the IL of a method of a Module from the Module's image. A method without IL is an error.
func (n *Namer) IL(module arch.Addr, rid uint32) ([]byte, error) {
	a, err := n.assembly(module)
	if err != nil {
		return nil, err
	}
	return n.body(a, rid)
}

// Arguments returns the number of arguments of a method of a Module, the object included.
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
