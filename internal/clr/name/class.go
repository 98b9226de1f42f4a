package name

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/types"
	"clrsnap/internal/ecma335"
)

// Class is what a type is called.
type Class struct {
	Display     string // with namespaces and generic arguments, as C# would write it
	Short       string // Display without namespaces
	Assembly    string // simple name; of an array that of its element's type
	Collectible bool   // it can be unloaded; then its ClassID may become another class's
}

// Class names the type of a type handle, such as a MethodTable, which is what the
// profiling API calls a ClassID.
func (n *Namer) Class(h arch.Addr) (Class, error) {
	if c, ok := n.classes[h]; ok {
		return c, nil
	}
	c, err := n.class(h)
	if err == nil && !c.Collectible {
		if err := n.take(nameCost + len(c.Display) + len(c.Short) + len(c.Assembly)); err != nil {
			return Class{}, err
		}
		n.classes[h] = c
	}
	return c, err
}

func (n *Namer) class(h arch.Addr) (Class, error) {
	t, err := n.types.Read(h)
	if err != nil {
		return Class{}, err
	}
	out := Class{Collectible: t.Collectible}
	if out.Display, err = n.Type(h, ecma335.Full); err != nil {
		return Class{}, err
	}
	if out.Short, err = n.Type(h, ecma335.Short); err != nil {
		return Class{}, err
	}
	out.Assembly, err = n.assemblyOf(h)
	return out, err
}

// assemblyOf names the assembly of a type; a function pointer has none.
func (n *Namer) assemblyOf(h arch.Addr) (string, error) {
	for range maxTypeDepth {
		t, err := n.types.Read(h)
		if err != nil {
			return "", err
		}
		switch {
		case t.Module != 0:
			a, err := n.assembly(t.Module)
			if err != nil {
				return "", err
			}
			return a.name, nil
		case t.Kind == types.FnPtr:
			return "", nil
		}
		h = t.Elem
	}
	return "", errTooDeep
}
