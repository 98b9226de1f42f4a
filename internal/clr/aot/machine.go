package aot

import (
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/ecma335"
)

// Machine names the async method of the type of a state machine. The metadata need not have the methods of the type,
// but the name of the type has the name of the method. The Module of the result stands for the method: it is the
// generic definition of the type, or the type.
func (t *Types) Machine(mt arch.Addr) (name.Machine, error) {
	k, err := t.name(mt)
	if err != nil {
		return name.Machine{}, err
	}
	f := name.FriendlyName(k.full, "MoveNext", name.Async)
	if f.Kind != name.StateMachine {
		return name.Machine{}, fmt.Errorf("%w: %s is no state machine", ErrUnnamed, k.class.Display)
	}
	typ, err := t.Read(mt)
	if err != nil {
		return name.Machine{}, err
	}
	var args [styles][]string
	for _, a := range typ.Args {
		w := typeName{t: t, nodes: maxRecords, text: maxTypeText}
		arg, _, err := w.of(a, 0)
		if err != nil {
			return name.Machine{}, err
		}
		for style := range args {
			args[style] = append(args[style], arg.texts[style])
		}
	}
	out := name.Machine{Module: mt}
	if len(typ.Args) > 0 {
		if out.Module, _, err = t.instance(&k.head); err != nil {
			return name.Machine{}, err
		}
	}
	out.Exact, out.Assembly = k.full+".MoveNext", k.class.Assembly
	out.Display = f.Text(args[ecma335.Full], nil, ecma335.Full)
	out.Short = f.Text(args[ecma335.Short], nil, ecma335.Short)
	return out, nil
}
