package session

import (
	"encoding/binary"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/gcinfo"
	"clrsnap/internal/clr/generics"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/target"
	"clrsnap/internal/walk"
	"clrsnap/profile"
)

// A generic is a frame of shared generic code with an object as context.
type generic struct {
	frame    int // index among the named frames
	method   method.Method
	slot     arch.Addr // of the object's address, on the stack
	object   arch.Addr
	volatile bool // the code can be unloaded
}

// maxGenerics bounds the objects examined for one thread.
const maxGenerics = 1 << 10

// A held context identifies the instantiation of a frame. slot is the place of the context.
type held struct {
	kind  gcinfo.Context
	value arch.Addr
	slot  arch.Addr // on the stack; 0: the context is in a register
}

// exactName is the name of an instantiation.
type exactName struct {
	name.Method
	passing bool // the types in the name can be unloaded
}

// name names a frame of shared code.
func (n *exactName) name(f *profile.Frame) {
	f.Display, f.Short, f.Signature, f.Generics = n.Display, n.Short, n.Signature, profile.ExactGenerics
}

// instance names the instantiation of the shared code of a method m that a frame runs. False:
// unknown. later: the instantiation depends on an object that may have moved since the capture of
// the stack.
func (p *Process) instance(f *walk.Frame, m *method.Method) (n exactName, later *generic, ok bool) {
	c, ok := p.context(f)
	if !ok {
		c, ok = p.variable(f, m)
	}
	if !ok {
		return n, nil, false
	}
	if c.kind == gcinfo.This {
		g := &generic{method: *m, slot: c.slot, object: c.value, volatile: f.Code.Collectible}
		if p.moments.Changes() {
			return n, g, false
		}
		n, ok = p.instanceOf(g, p.Engine.Cache)
		return n, nil, ok
	}
	n, ok = p.exactly(m, c.kind, c.value, f.Code.Collectible)
	return n, nil, ok
}

// context returns the context that a frame keeps for the runtime's own use.
func (p *Process) context(f *walk.Frame) (c held, ok bool) {
	place, slot, ok := p.contextSlot(f)
	if !ok {
		return c, false
	}
	word, ok := f.Word(slot)
	return held{place.Kind, arch.Addr(word), slot}, ok && word != 0
}

// Context returns the context of a frame of shared generic code, and the context's slot on the
// stack, if the context is a MethodDesc or a MethodTable. False: there is no context, or the
// context is an object.
func (p *Process) Context(f *walk.Frame) (slot, context arch.Addr, ok bool) {
	if p.Runtime == nil || f.Kind != walk.Managed {
		return 0, 0, false
	}
	c, ok := p.context(f)
	return c.slot, c.value, ok && c.kind != gcinfo.This
}

// MayHaveContext reports whether Context can tell more about a frame than the instruction pointer
// tells.
func (p *Process) MayHaveContext(f *walk.Frame) bool {
	if p.Runtime == nil || f.Kind != walk.Managed {
		return false
	}
	place, err := p.Runtime.Generic.Place(f.Code)
	return err != nil || place.Kind != gcinfo.NoContext
}

// contextSlot returns where a frame keeps the context; false: the frame keeps no context, or has
// none at this instruction.
func (p *Process) contextSlot(f *walk.Frame) (place generics.Place, slot arch.Addr, ok bool) {
	if !f.Walked() || f.Code.Funclet || f.Epilog() {
		return place, 0, false // the registers in a filter do not belong to the filter's method
	}
	place, err := p.Runtime.Generic.Place(f.Code)
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
		base, ok = register(f, p.Arch.SP)
	case generics.FrameRegister:
		base, ok = register(f, place.Register)
	}
	return place, base + arch.Addr(int64(place.Offset)), ok
}

func register(f *walk.Frame, r uint8) (arch.Addr, bool) {
	v, ok := f.Context.Reg(r)
	return arch.Addr(v), ok
}

// instanceOf names the instantiation that belongs to an object. mem must have the object.
func (p *Process) instanceOf(g *generic, mem target.Memory) (n exactName, ok bool) {
	if !p.Managed.Heap.Settled(mem) {
		return n, false
	}
	word, err := target.NewReader(mem).Uint64(g.object)
	if err != nil {
		return n, false
	}
	return p.exactly(&g.method, gcinfo.This, p.Runtime.Generic.ObjectTable(word), g.volatile)
}

// exactly names the instantiation of a method with a context.
func (p *Process) exactly(m *method.Method, kind gcinfo.Context, context arch.Addr, volatile bool) (
	out exactName, ok bool,
) {
	x, err := p.Runtime.Generic.Exact(m, kind, context)
	if err != nil {
		return out, false
	}
	if out.passing = volatile; !volatile {
		if out.passing, err = p.Runtime.Generic.Collectible(&x); err != nil {
			return exactName{}, false
		}
	}
	out.Method, err = p.Runtime.Names.Instance(&x, context, out.passing)
	return out, err == nil
}

// objects names the frames of a captured thread, where the instantiation depends on an object and
// the object is proved.
//
// The proof. The frames must have been on the stack all the time: the thread was blocked and has
// not run since, or the thread stood still. After the copy of the stack, with the addresses of the
// objects, the collector was not moving anything. Then the objects were read. Then the addresses on
// the stack were read once more. A collection changes the address on the stack before an object
// moves. So if the addresses are the same, the objects were there.
func (s *visit) objects() {
	if len(s.generics) == 0 {
		return
	}
	if s.Capture.Busy() {
		s.copiedObjects()
		return
	}
	if !s.g.moments.Settled() {
		return
	}
	tables := make([]arch.Addr, len(s.generics))
	mem := target.NewReader(s.g.from)
	for i := range s.generics {
		g := &s.generics[i]
		word, err := mem.Uint64(g.object)
		if err != nil {
			continue
		}
		if again, err := mem.Pointer(g.slot); err == nil && again == g.object {
			tables[i] = s.Process.Runtime.Generic.ObjectTable(word)
		}
	}
	if !s.g.moments.Rests(s.Thread.OSThreadID, s.Capture.Proof) {
		return
	}
	for i := range s.generics {
		s.rename(&s.generics[i], tables[i])
	}
}

// rename gives a frame the name of its instantiation.
func (s *visit) rename(g *generic, table arch.Addr) {
	if table == 0 {
		return
	}
	n, ok := s.Process.exactly(&g.method, gcinfo.This, table, g.volatile)
	if !ok {
		return
	}
	if n.name(&s.g.stack.frames[g.frame]); n.passing {
		s.g.stack.cost += len(n.Display) + len(n.Short) + len(n.Signature)
	}
}

// copiedObjects is objects for a thread that was stopped. The data was copied after the stack, as
// asked by askObjects.
func (s *visit) copiedObjects() {
	if len(s.copies) == 0 || s.Capture.SPUnmapped { // SPUnmapped: the stack may have been copied last
		return
	}
	state, ok := s.copied(0, s.copies[0].Addr)
	if !ok || uint32(state) != 0 {
		return
	}
	last := len(s.copies) - 1
	for i := range s.generics {
		g := &s.generics[i]
		if again, ok := s.copied(last, g.slot); !ok || arch.Addr(again) != g.object {
			continue
		}
		for k := 1; k < last; k++ {
			if word, ok := s.copied(k, g.object); ok {
				s.rename(g, s.Process.Runtime.Generic.ObjectTable(word))
				break
			}
		}
	}
}

// copied reads the word at an address in one of the copies.
func (s *Suspension) copied(i int, at arch.Addr) (uint64, bool) {
	r := s.copies[i]
	b, ok := s.Copied(r)
	if d := uint64(at - r.Addr); !ok || d > uint64(len(b)) || uint64(len(b))-d < 8 {
		return 0, false
	}
	return binary.LittleEndian.Uint64(b[at-r.Addr:]), true
}

const (
	maxCopied = 8        // objects copied with a stack
	maxSlots  = 64 << 10 // bytes of stack copied once more
)

// askObjects adds pieces to the next capture of a stopped thread, to be copied after the stack and
// in this order: the collector's state, the objects that the frames depend on, and the part of the
// stack with the objects' addresses. False: the pieces would bring nothing.
func (s *Suspension) askObjects() bool {
	if len(s.generics) == 0 || len(s.copies) > 0 || !s.Capture.Busy() {
		return false
	}
	at, ok := s.Process.Managed.Heap.Moving()
	if !ok {
		return false
	}
	s.copies = append(s.copies, target.Range{Addr: at, Len: 8})
	first := s.generics[0].slot
	end := first
	for i := range s.generics {
		g := &s.generics[i]
		known := slices.ContainsFunc(s.copies[1:], func(r target.Range) bool { return r.Addr == g.object })
		if g.slot < first || g.slot-first > maxSlots || !known && len(s.copies) > maxCopied {
			break
		}
		if end = g.slot + 8; !known {
			s.copies = append(s.copies, target.Range{Addr: g.object, Len: 8})
		}
	}
	s.copies = append(s.copies, target.Range{Addr: first, Len: int(end - first)})
	return true
}
