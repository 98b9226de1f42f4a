package name

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/types"
	"clrsnap/internal/ecma335"
)

// Class has the names of a type.
type Class struct {
	Display     string    // with namespaces and generic arguments, as C# would write it
	Short       string    // Display without namespaces
	Assembly    string    // simple name; for an array the assembly of the element type
	Image       arch.Addr // of Assembly, where the assembly was loaded; 0: there is no image
	Collectible bool      // the class can be unloaded; the ClassID may then become another class's
}

// Class names the type of a type handle, such as a MethodTable. The profiling API calls the handle a ClassID.
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
	out.Assembly, out.Image, err = n.assemblyOf(h)
	return out, err
}

// RuntimeName names a type as the runtime's debuggers do: System.Collections.Generic.List<System.String>.
func (n *Namer) RuntimeName(h arch.Addr) (string, error) { return n.Type(h, ecma335.Runtime) }

// assemblyOf returns the name and the image of a type's assembly; a function pointer has none.
func (n *Namer) assemblyOf(h arch.Addr) (name string, image arch.Addr, err error) {
	for range maxTypeDepth {
		t, err := n.types.Read(h)
		if err != nil {
			return "", 0, err
		}
		switch {
		case t.Module != 0:
			a, err := n.assembly(t.Module)
			if err != nil {
				return "", 0, err
			}
			return a.name, a.id.base, nil
		case t.Kind == types.FnPtr:
			return "", 0, nil
		}
		h = t.Elem
	}
	return "", 0, errTooDeep
}
