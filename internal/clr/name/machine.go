package name

import (
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/types"
	"clrsnap/internal/ecma335"
)

// Machine is the type that a compiler has made of an async method.
type Machine struct {
	Method            // MoveNext, which has the method's code
	Module  arch.Addr // that defines it
	RID     uint32    // of MoveNext in the MethodDef table
	Passing bool      // it can be unloaded
}

// moveNexts are what MoveNext is called: by C# and F#, and by who implements the interface explicitly.
var moveNexts = []string{"MoveNext", "System.Runtime.CompilerServices.IAsyncStateMachine.MoveNext"}

// Machine names the async method that a type is the state machine of.
func (n *Namer) Machine(mt arch.Addr) (Machine, error) {
	t, err := n.types.Read(mt)
	if err != nil {
		return Machine{}, err
	}
	a, err := n.assembly(t.Module)
	if err != nil {
		return Machine{}, err
	}
	for _, name := range moveNexts {
		def, ok, err := a.md.OnlyMethod(t.RID, name)
		if err != nil {
			return Machine{}, err
		}
		if !ok {
			continue
		}
		m := method.Method{MethodTable: mt, Module: t.Module, RID: def.RID}
		out := Machine{Module: t.Module, RID: def.RID, Passing: t.Collectible}
		out.Method, err = n.Method(&m, true)
		return out, err
	}
	return Machine{}, fmt.Errorf("%w: the type at %v has no MoveNext", types.ErrCorrupt, mt)
}

// TypeName returns the metadata name of a class, such as System.Collections.Generic.List`1, with those of the
// types around it: Outer`1+Nested.
func (n *Namer) TypeName(t *types.Type) (string, error) {
	a, err := n.assembly(t.Module)
	if err != nil {
		return "", err
	}
	return a.md.TypeName(t.RID)
}

// A StateStore is where the code of a state machine notes at which await it is going to wait.
type StateStore struct {
	IL    uint32 // offset of the instruction
	State int32
}

// StateStores returns where a MoveNext, by its row in the MethodDef table, sets the state of its state machine.
func (n *Namer) StateStores(module arch.Addr, rid uint32) ([]StateStore, error) {
	il, err := n.IL(module, rid)
	if err != nil {
		return nil, err
	}
	stores, err := ecma335.StateStores(il)
	out := make([]StateStore, len(stores))
	for i, s := range stores {
		out[i] = StateStore{s.At, s.State}
	}
	return out, err
}
