package naming

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/gcinfo"
	"clrsnap/internal/clr/ilmap"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/walk"
)

// A held context identifies the instantiation of a frame. slot is the place of the context.
type held struct {
	kind  gcinfo.Context
	value arch.Addr
	slot  arch.Addr // on the stack; 0: the context is in a register
}

// variable returns the context of a frame that keeps no context, but still has the context as an
// argument: the frame's object, or the hidden argument of the frame's method m. The debug info has
// the location, and the range of code in which the location is valid.
//
// The address of an object counts only in a stack slot that the garbage collector updates at every
// instruction. In other places the address may be out of date.
func (n *Namer) variable(f *walk.Frame, m *method.Method) (c held, ok bool) {
	number, kind, ok := n.ContextArgument(m)
	if !ok {
		return c, false
	}
	at, ok := n.VariableOf(f, number)
	if !ok {
		return c, false
	}
	c.kind = kind
	if c.value, c.slot, ok = ValueAt(f, &at); !ok {
		return c, false
	}
	if kind == gcinfo.This && (c.slot == 0 || !n.lookedAfter(f, c.slot)) {
		return c, false
	}
	return c, true
}

// ContextArgument returns the argument that identifies the instantiation of a method with shared
// code.
func (n *Namer) ContextArgument(m *method.Method) (number uint32, kind gcinfo.Context, ok bool) {
	if len(m.Args) > 0 {
		return ilmap.ContextVariable, gcinfo.MethodDesc, true
	}
	static, err := n.runtime.Names.IsStatic(m)
	if err != nil {
		return 0, 0, false
	}
	object, err := n.runtime.Types.IsObject(m.MethodTable)
	if err != nil {
		return 0, 0, false
	}
	if static || !object {
		return ilmap.ContextVariable, gcinfo.MethodTable, true
	}
	return ilmap.ThisVariable, gcinfo.This, true
}

// lookedAfter reports whether the collector knows at every instruction that a slot of a frame has
// the address of an object.
func (n *Namer) lookedAfter(f *walk.Frame, slot arch.Addr) bool {
	slots, frameRegister, err := n.runtime.Generic.Untracked(f.Code)
	if err != nil {
		return false
	}
	for _, s := range slots {
		var base arch.Addr
		var ok bool
		switch s.Base {
		case gcinfo.FromCallerSP:
			base, ok = f.CallerSP()
		case gcinfo.FromSP:
			base, ok = register(f, n.engine.Arch.SP)
		case gcinfo.FromRegister:
			base, ok = register(f, frameRegister)
		}
		if ok && base+arch.Addr(int64(s.Offset)) == slot {
			return true
		}
	}
	return false
}

// VariableOf returns the location of a frame's argument or variable, if the debug info says that the value is still
// needed.
func (n *Namer) VariableOf(f *walk.Frame, number uint32) (v ilmap.Variable, ok bool) {
	if f.Code.Funclet || f.Epilog() || f.IP() < f.Code.MethodStart {
		return v, false
	}
	places, err := n.runtime.IL.Variable(f.Code, number)
	if err != nil {
		return v, false
	}
	at := uint64(f.IP() - f.Code.MethodStart)
	for _, v := range places {
		// The argument of a call that returns here may have been needed for the last time.
		if at < uint64(v.End) && (at > uint64(v.Start) || f.Exact && at == uint64(v.Start)) {
			return v, true
		}
	}
	return v, false
}

// ValueAt reads the value of a variable in a frame. slot is the place on the stack; 0: the value is in a register.
// False: the value is zero or cannot be read.
func ValueAt(f *walk.Frame, at *ilmap.Variable) (value, slot arch.Addr, ok bool) {
	v, ok := register(f, at.Register)
	if at.OnStack && ok {
		slot = v + arch.Addr(int64(at.Offset))
		var word uint64
		word, ok = f.Word(slot)
		v = arch.Addr(word)
	}
	return v, slot, ok && v != 0
}

func register(f *walk.Frame, r uint8) (arch.Addr, bool) {
	v, ok := f.Context.Reg(r)
	return arch.Addr(v), ok
}
