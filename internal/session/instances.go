package session

import (
	"encoding/binary"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/naming"
	"clrsnap/internal/target"
)

// maxGenerics bounds the objects examined for one thread.
const maxGenerics = 1 << 10

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
		word, err := mem.Uint64(g.Object)
		if err != nil {
			continue
		}
		if again, err := mem.Pointer(g.Slot); err == nil && again == g.Object {
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
func (s *visit) rename(g *naming.Generic, table arch.Addr) {
	if table == 0 {
		return
	}
	n, ok := s.Process.ByClass(g, table)
	if !ok {
		return
	}
	if n.Rename(&s.g.stack.frames[g.Frame]); n.Passing {
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
		if again, ok := s.copied(last, g.Slot); !ok || arch.Addr(again) != g.Object {
			continue
		}
		for k := 1; k < last; k++ {
			if word, ok := s.copied(k, g.Object); ok {
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
	first := s.generics[0].Slot
	end := first
	for i := range s.generics {
		g := &s.generics[i]
		known := slices.ContainsFunc(s.copies[1:], func(r target.Range) bool { return r.Addr == g.Object })
		if g.Slot < first || g.Slot-first > maxSlots || !known && len(s.copies) > maxCopied {
			break
		}
		if end = g.Slot + 8; !known {
			s.copies = append(s.copies, target.Range{Addr: g.Object, Len: 8})
		}
	}
	s.copies = append(s.copies, target.Range{Addr: first, Len: int(end - first)})
	return true
}
