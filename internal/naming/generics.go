package naming

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/gcinfo"
	"clrsnap/internal/clr/generics"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/target"
	"clrsnap/internal/walk"
	"clrsnap/snapshot"
)

// Generic is a frame of shared generic code with an object as context.
type Generic struct {
	Frame    int // index among the named frames; set by the caller
	method   method.Method
	Slot     arch.Addr // of the object's address, on the stack
	Object   arch.Addr
	volatile bool // the code can be unloaded
}

// ExactName is the name of an instantiation.
type ExactName struct {
	name.Method
	Passing bool // the types in the name can be unloaded
}

// Rename names a frame of shared code.
func (n *ExactName) Rename(f *snapshot.Frame) {
	f.Display, f.Short, f.Signature, f.Generics = n.Display, n.Short, n.Signature, snapshot.ExactGenerics
}

// instance names the instantiation of the shared code of a method m that a frame runs. False:
// unknown. later: the instantiation depends on an object that may have moved since the capture of
// the stack.
func (n *Namer) instance(f *walk.Frame, m *method.Method) (exact ExactName, later *Generic, ok bool) {
	c, ok := n.context(f)
	if !ok {
		c, ok = n.variable(f, m)
	}
	if !ok {
		return exact, nil, false
	}
	if c.kind == gcinfo.This {
		g := &Generic{method: *m, Slot: c.slot, Object: c.value, volatile: f.Code.Collectible}
		if n.changes() {
			return exact, g, false
		}
		exact, ok = n.instanceOf(g)
		return exact, nil, ok
	}
	exact, ok = n.Exactly(m, c.kind, c.value, f.Code.Collectible)
	return exact, nil, ok
}

// context returns the context that a frame keeps for the runtime's own use.
func (n *Namer) context(f *walk.Frame) (c held, ok bool) {
	place, slot, ok := n.contextSlot(f)
	if !ok {
		return c, false
	}
	word, ok := f.Word(slot)
	return held{place.Kind, arch.Addr(word), slot}, ok && word != 0
}

// Context returns the context of a frame of shared generic code, and the context's slot on the
// stack, if the context is a MethodDesc or a MethodTable. False: there is no context, or the
// context is an object.
func (n *Namer) Context(f *walk.Frame) (slot, context arch.Addr, ok bool) {
	if n.runtime == nil || f.Kind != walk.Managed {
		return 0, 0, false
	}
	c, ok := n.context(f)
	return c.slot, c.value, ok && c.kind != gcinfo.This
}

// MayHaveContext reports whether Context can tell more about a frame than the instruction pointer
// tells.
func (n *Namer) MayHaveContext(f *walk.Frame) bool {
	if n.runtime == nil || f.Kind != walk.Managed {
		return false
	}
	place, err := n.runtime.Generic.Place(f.Code)
	return err != nil || place.Kind != gcinfo.NoContext
}

// contextSlot returns where a frame keeps the context; false: the frame keeps no context, or has
// none at this instruction.
func (n *Namer) contextSlot(f *walk.Frame) (place generics.Place, slot arch.Addr, ok bool) {
	if !f.Walked() || f.Code.Funclet || f.Epilog() {
		return place, 0, false // the registers in a filter do not belong to the filter's method
	}
	place, err := n.runtime.Generic.Place(f.Code)
	if err != nil || place.Kind == gcinfo.NoContext {
		return place, 0, false
	}
	if f.Exact && f.Code.Start == f.Code.MethodStart && uint64(f.IP()-f.Code.MethodStart) < uint64(place.From) {
		return place, 0, false
	}
	var base arch.Addr
	switch place.Base {
	case generics.CallerSP:
		base, ok = f.CallerSP()
	case generics.SP:
		base, ok = register(f, n.engine.Arch.SP)
	case generics.FrameRegister:
		base, ok = register(f, place.Register)
	}
	return place, base + arch.Addr(int64(place.Offset)), ok
}

// instanceOf names the instantiation that belongs to an object of a target that does not change.
func (n *Namer) instanceOf(g *Generic) (exact ExactName, ok bool) {
	mem := n.engine.Cache
	if !n.engine.Managed.Heap.Settled(mem) {
		return exact, false
	}
	word, err := target.NewReader(mem).Uint64(g.Object)
	if err != nil {
		return exact, false
	}
	return n.ByClass(g, n.runtime.Generic.ObjectTable(word))
}

// ByClass names the instantiation of a frame by the class of the frame's object.
func (n *Namer) ByClass(g *Generic, table arch.Addr) (exact ExactName, ok bool) {
	return n.Exactly(&g.method, gcinfo.This, table, g.volatile)
}

// Exactly names the instantiation of a method with a context.
func (n *Namer) Exactly(m *method.Method, kind gcinfo.Context, context arch.Addr, volatile bool) (
	out ExactName, ok bool,
) {
	x, err := n.runtime.Generic.Exact(m, kind, context)
	if err != nil {
		return out, false
	}
	if out.Passing = volatile; !volatile {
		if out.Passing, err = n.runtime.Generic.Collectible(&x); err != nil {
			return ExactName{}, false
		}
	}
	out.Method, err = n.runtime.Names.Instance(&x, context, out.Passing)
	return out, err == nil
}

// nameSaved names the instantiation of a method by a context, if the context tells.
func (n *Namer) nameSaved(f *snapshot.Frame, m *method.Method, context arch.Addr, volatile bool) {
	_, kind, ok := n.ContextArgument(m)
	if !ok {
		return
	}
	if exact, ok := n.Exactly(m, kind, context, volatile); ok {
		exact.Rename(f)
	}
}
