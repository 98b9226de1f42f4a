package session

import (
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/name"
)

// Method names the method of a MethodDesc.
func (p *Process) Method(desc arch.Addr) (name.Method, error) {
	if p.Runtime == nil || desc == 0 {
		return name.Method{}, notOne(desc, "a method", nil)
	}
	m, err := p.Runtime.Methods.Read(desc)
	if err != nil {
		return name.Method{}, notOne(desc, "a method", err)
	}
	n, err := p.Runtime.Names.Method(&m, true)
	if err != nil {
		return name.Method{}, &Error{Kind: Failed, Text: fmt.Sprintf("method %v cannot be named", desc), Err: err}
	}
	return n, nil
}

// Class names the type of a MethodTable.
func (p *Process) Class(table arch.Addr) (name.Class, error) {
	if p.Runtime == nil || table == 0 {
		return name.Class{}, notOne(table, "a type", nil)
	}
	n, err := p.Runtime.Names.Class(table)
	if err != nil {
		return name.Class{}, notOne(table, "a type", err)
	}
	return n, nil
}

func notOne(id arch.Addr, what string, err error) error {
	return &Error{Kind: NoMethod, Text: fmt.Sprintf("%v is not %s", id, what), Err: err}
}
