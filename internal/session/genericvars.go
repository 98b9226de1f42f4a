package session

import (
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/gcinfo"
	"clrsnap/internal/clr/ilmap"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/walk"
)

// variable returns the context of a frame that keeps no context, but still has the context as an
// argument: the frame's object, or the hidden argument of the frame's method m. The debug info has
// the location, and the range of code in which the location is valid.
//
// The address of an object counts only in a stack slot that the garbage collector updates at every
// instruction. In other places the address may be out of date.
func (p *Process) variable(f *walk.Frame, m *method.Method) (c held, ok bool) {
	if f.Code.Funclet || f.Epilog() || f.IP() < f.Code.MethodStart {
		return c, false
	}
	number, kind, ok := p.contextArgument(m)
	if !ok {
		return c, false
	}
	places, err := p.Runtime.IL.Variable(f.Code, number)
	if err != nil {
		return c, false
	}
	at := uint64(f.IP() - f.Code.MethodStart)
	i := slices.IndexFunc(places, func(v ilmap.Variable) bool {
		// The argument of a call that returns here may have been needed for the last time.
		return at < uint64(v.End) && (at > uint64(v.Start) || f.Exact && at == uint64(v.Start))
	})
	if i < 0 {
		return c, false
	}
	base, ok := register(f, places[i].Register)
	if !ok {
		return c, false
	}
	c = held{kind: kind, value: base}
	if places[i].OnStack {
		c.slot = base + arch.Addr(int64(places[i].Offset))
		word, ok := f.Word(c.slot)
		if !ok {
			return c, false
		}
		c.value = arch.Addr(word)
	}
	if kind == gcinfo.This && (c.slot == 0 || !p.lookedAfter(f, c.slot)) {
		return c, false
	}
	return c, c.value != 0
}

// contextArgument returns the argument that identifies the instantiation of a method with shared
// code.
func (p *Process) contextArgument(m *method.Method) (number uint32, kind gcinfo.Context, ok bool) {
	if len(m.Args) > 0 {
		return ilmap.ContextVariable, gcinfo.MethodDesc, true
	}
	static, err := p.Runtime.Names.IsStatic(m)
	if err != nil {
		return 0, 0, false
	}
	object, err := p.Runtime.Types.IsObject(m.MethodTable)
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
func (p *Process) lookedAfter(f *walk.Frame, slot arch.Addr) bool {
	slots, frameRegister, err := p.Runtime.Generic.Untracked(f.Code)
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
			base, ok = register(f, p.Arch.SP)
		case gcinfo.FromRegister:
			base, ok = register(f, frameRegister)
		}
		if ok && base+arch.Addr(int64(s.Offset)) == slot {
			return true
		}
	}
	return false
}
