package heap

import (
	"encoding/binary"

	"clrsnap/internal/arch"
)

// Objects lie one behind the other. So which addresses are those of objects is known by going through a
// segment from its beginning. Free space counts as an object, in the middle of which there is none, whatever it
// looks like. The rest of an allocation context, which a thread is going to use, is zero.

// Bounds of a walk.
const (
	maxWalk   = 64 << 20 // bytes of one segment
	maxBudget = 128 << 20
	minSize   = 24 // of an object, in bytes (src/coreclr/gc/gcinterface.h, MIN_OBJECT_SIZE)
	maxTables = 1 << 16
)

// The size of an object (MethodTable.MTFlags, BaseSize): with a component size, times what follows the pointer
// to the MethodTable.
const (
	hasComponents = 0x80000000
	countAt       = 8
	header        = 8 // of the next object: the word in front of it, which counts as this one's
)

// Starts are the addresses of the objects of a segment.
type starts struct {
	segment Segment
	bits    []uint64 // for every eight bytes
	walked  int      // when: Reader.moment
	end     arch.Addr
}

// size is what is known of a MethodTable.
type size struct{ base, component uint32 }

// Begin starts a new moment: what was walked before may have changed. fresh: the walks of earlier moments are
// not used at all, and there may be as many as ever.
func (r *Reader) Begin(fresh bool) {
	if r.moment++; fresh {
		r.walks, r.budget, r.sizes = nil, maxBudget, nil
	}
}

// IsObject reports whether an object begins at an address. It is false as well if that cannot be told.
func (r *Reader) IsObject(segments []Segment, at arch.Addr) bool {
	i := find(segments, at)
	if i < 0 || at%8 != 0 {
		return false
	}
	s := segments[i]
	w := r.walks[s.Start]
	if w != nil && w.has(at) {
		return true
	}
	if w != nil && w.walked == r.moment {
		return false
	}
	if w = r.walk(s); w == nil {
		return false
	}
	if r.walks == nil {
		r.walks = map[arch.Addr]*starts{}
	}
	r.walks[s.Start] = w
	return w.has(at)
}

func (s *starts) has(at arch.Addr) bool {
	if at < s.segment.Start || at >= s.end {
		return false
	}
	n := (at - s.segment.Start) / 8
	return s.bits[n/64]>>(n%64)&1 != 0
}

// walk finds the objects of a segment, up to where it cannot be understood. nil: there is too much of it.
func (r *Reader) walk(s Segment) *starts {
	n := int64(s.End - s.Start)
	if n < 0 || n > maxWalk || n > r.budget {
		return nil
	}
	r.budget -= n
	data := make([]byte, n)
	if r.mem.ReadMemory(data, s.Start) != nil {
		return nil
	}
	w := &starts{segment: s, bits: make([]uint64, n/512+1), walked: r.moment}
	at := 0
	for at+minSize <= len(data) {
		mt := binary.LittleEndian.Uint64(data[at:])
		if mt == 0 || mt>>32 != 0 && uint32(mt) == 0 { // nothing, or the word in front of an object
			at += 8
			continue
		}
		size := r.size(data[at:], arch.Addr(mt))
		if size < minSize || size > uint64(len(data)-at)+header {
			break
		}
		w.bits[at/512] |= 1 << (at / 8 % 64)
		at += int((size + 7) &^ 7)
	}
	w.end = s.Start + arch.Addr(min(at, len(data)))
	return w
}

// size returns the size of an object in bytes; 0: it is none.
func (r *Reader) size(obj []byte, tagged arch.Addr) uint64 {
	mt := tagged &^ arch.Addr(r.l.Untag)
	s, ok := r.sizes[mt]
	if !ok {
		flags, err := r.mem.Uint32(mt + arch.Addr(r.l.Flags))
		if err != nil {
			return 0
		}
		if s.base, err = r.mem.Uint32(mt + arch.Addr(r.l.BaseSize)); err != nil {
			return 0
		}
		if flags&hasComponents != 0 {
			s.component = flags & 0xffff
		}
		if r.sizes == nil || len(r.sizes) >= maxTables {
			r.sizes = map[arch.Addr]size{}
		}
		r.sizes[mt] = s
	}
	total := uint64(s.base)
	if s.component != 0 {
		total += uint64(s.component) * uint64(binary.LittleEndian.Uint32(obj[countAt:]))
	}
	return total
}
