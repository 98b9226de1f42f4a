package name

import (
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/types"
	"clrsnap/internal/ecma335"
)

// Machine is the type that a compiler has made from an async method.
type Machine struct {
	Method            // MoveNext, with the code of the async method
	Module  arch.Addr // of the type
	RID     uint32    // of MoveNext in the MethodDef table
	Passing bool      // the type can be unloaded
}

// moveNexts are the names of MoveNext: in C# and F#, and in an explicit implementation of the interface.
var moveNexts = []string{"MoveNext", "System.Runtime.CompilerServices.IAsyncStateMachine.MoveNext"}

// Machine names the async method of the state machine of the type at mt.
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

// TypeName returns the metadata name of a class, such as System.Collections.Generic.List`1, with the names of the
// types around the class: Outer`1+Nested.
func (n *Namer) TypeName(t *types.Type) (string, error) {
	a, err := n.assembly(t.Module)
	if err != nil {
		return "", err
	}
	return a.md.TypeName(t.RID)
}

// A StateStore is an instruction of a state machine that stores the number of the next await.
type StateStore struct {
	IL    uint32 // offset of the instruction
	State int32
}

// StateStores returns the places in a MoveNext, by its row in the MethodDef table, that set the state of the state
// machine.
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
