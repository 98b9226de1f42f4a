package session

import (
	"encoding/binary"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/gcinfo"
	"clrsnap/internal/clr/generics"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/target"
	"clrsnap/internal/walk"
	"clrsnap/profile"
)

// A generic is a frame of shared generic code whose context is an object.
type generic struct {
	frame    int // index among the named frames
	method   method.Method
	slot     arch.Addr // of the object's address, on the stack
	object   arch.Addr
	volatile bool // the code can be unloaded
}

// maxGenerics bounds the objects of one thread that are looked at.
const maxGenerics = 1 << 10

// instance names the instantiation of shared code that a frame runs, whose method is p.method; false: it
// is not known. later: it depends on an object, which may have moved since the stack was captured.
func (p *Process) instance(f *walk.Frame) (n name.Method, later *generic, ok bool) {
	place, slot, ok := p.contextSlot(f)
	if !ok {
		return n, nil, false
	}
	word, ok := f.Word(slot)
	if !ok || word == 0 {
		return n, nil, false
	}
	context := arch.Addr(word)
	if place.Kind == gcinfo.This {
		g := &generic{method: p.method, slot: slot, object: context, volatile: f.Code.Collectible}
		if p.from.changes() {
			return n, g, false
		}
		n, ok = p.instanceOf(g, p.Engine.Cache)
		return n, nil, ok
	}
	n, ok = p.exactly(&p.method, place.Kind, context, f.Code.Collectible)
	return n, nil, ok
}

// Context returns the context of a frame of shared generic code, and the slot on the stack where it is, if
// that is what tells its instantiation: a MethodDesc or a MethodTable.
func (p *Process) Context(f *walk.Frame) (slot, context arch.Addr, ok bool) {
	if p.Runtime == nil || f.Kind != walk.Managed {
		return 0, 0, false
	}
	place, slot, ok := p.contextSlot(f)
	if !ok || place.Kind == gcinfo.This {
		return 0, 0, false
	}
	word, ok := f.Word(slot)
	return slot, arch.Addr(word), ok && word != 0
}

// contextSlot is where a frame keeps its context; false: it keeps none, or has none at this instruction.
func (p *Process) contextSlot(f *walk.Frame) (place generics.Place, slot arch.Addr, ok bool) {
	if f.Code.Funclet || f.Epilog() {
		return place, 0, false // a filter's registers are not those of its method
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

// instanceOf names the instantiation that belongs to an object, which mem has.
func (p *Process) instanceOf(g *generic, mem target.Memory) (n name.Method, ok bool) {
	if !p.Runtime.Generic.Settled(mem) {
		return n, false
	}
	word, err := target.NewReader(mem).Uint64(g.object)
	if err != nil {
		return n, false
	}
	return p.exactly(&g.method, gcinfo.This, p.Runtime.Generic.ObjectTable(word), g.volatile)
}

// exactly names the instantiation of a method that has a context.
func (p *Process) exactly(m *method.Method, kind gcinfo.Context, context arch.Addr, volatile bool) (name.Method, bool) {
	x, err := p.Runtime.Generic.Exact(m, kind, context)
	if err != nil {
		return name.Method{}, false
	}
	if !volatile {
		if volatile, err = p.Runtime.Generic.Collectible(&x); err != nil {
			return name.Method{}, false
		}
	}
	n, err := p.Runtime.Names.Instance(&x, context, volatile)
	p.passing = volatile
	return n, err == nil
}

// objects names the frames of a captured thread whose instantiation depends on objects, as far as it can
// be proved which objects these were.
//
// Of a thread that was captured without a stop: it has not run until after an object was read, so that
// its frames are as they were; and their slots still lead to the same object, and the collector was at
// rest between, so that the object is where it was. Of a thread that was stopped in cooperative mode:
// objects that were copied with its stack. No collection moves anything while such a thread stands
// still, unless it is collecting itself, which the collector's state says.
func (s *Suspension) objects(frames []profile.Frame) {
	if len(s.generics) == 0 {
		return
	}
	if s.Capture.Stopped {
		s.copiedObjects(frames)
		return
	}
	live := s.Process.from
	if !s.Process.Runtime.Generic.Settled(live) {
		return
	}
	tables := make([]arch.Addr, len(s.generics))
	mem := target.NewReader(live)
	for i := range s.generics {
		g := &s.generics[i]
		word, err := mem.Uint64(g.object)
		if err != nil {
			continue
		}
		if at, err := mem.Pointer(g.slot); err == nil && at == g.object {
			tables[i] = s.Process.Runtime.Generic.ObjectTable(word)
		}
	}
	if s.Process.Live == nil || !s.Process.Live.Holds(s.Thread.OSThreadID, s.Capture.Proof) {
		return
	}
	for i := range s.generics {
		s.rename(frames, &s.generics[i], tables[i])
	}
}

// rename gives a frame the name of its instantiation.
func (s *Suspension) rename(frames []profile.Frame, g *generic, table arch.Addr) {
	if table == 0 {
		return
	}
	n, ok := s.Process.exactly(&g.method, gcinfo.This, table, g.volatile)
	if !ok {
		return
	}
	f := &frames[g.frame]
	f.Display, f.Short, f.Signature, f.Generics = n.Display, n.Short, n.Signature, profile.ExactGenerics
	if s.Process.passing {
		s.cost += len(n.Display) + len(n.Short) + len(n.Signature)
	}
}

// copiedObjects is objects for a thread that was stopped.
func (s *Suspension) copiedObjects(frames []profile.Frame) {
	state, ok := s.copiedWord(s.collector, 4)
	if !ok || state != 0 || !s.Walk.Info.Cooperative {
		return
	}
	for i := range s.generics {
		g := &s.generics[i]
		if word, ok := s.copiedWord(g.object, 8); ok {
			s.rename(frames, g, s.Process.Runtime.Generic.ObjectTable(word))
		}
	}
}

func (s *Suspension) copiedWord(at arch.Addr, n int) (uint64, bool) {
	b, ok := s.Copied(target.Range{Addr: at, Len: n})
	if !ok || at == 0 {
		return 0, false
	}
	var word [8]byte
	copy(word[:], b)
	return binary.LittleEndian.Uint64(word[:]), true
}

// maxCopied bounds the objects that are copied with a stack.
const maxCopied = 8

// askObjects has the next capture of a thread that was stopped copy the objects that its frames depend
// on. It returns false if that would bring nothing.
func (s *Suspension) askObjects() bool {
	if len(s.generics) == 0 || s.collector != 0 || !s.Capture.Stopped || !s.Walk.Info.Cooperative || !s.Process.from.changes() {
		return false
	}
	at, ok := s.Process.Runtime.Generic.CollectorState()
	if !ok {
		return false
	}
	s.collector = at
	s.copies = append(s.copies[:0], target.Range{Addr: at, Len: 4})
	seen := map[arch.Addr]bool{}
	for i := range s.generics {
		if o := s.generics[i].object; !seen[o] && len(seen) < maxCopied {
			seen[o] = true
			s.copies = append(s.copies, target.Range{Addr: o, Len: 8})
		}
	}
	return true
}
