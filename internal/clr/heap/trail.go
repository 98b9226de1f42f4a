package heap

import (
	"encoding/binary"
	"math/bits"

	"clrsnap/internal/arch"
)

// Objects lie one behind the other. So a walk through a segment from the segment's beginning finds the addresses of
// all objects. Free space counts as an object; no object begins in the middle of free space, whatever the memory
// looks like. The unused rest of an allocation context is zero.
//
// A walk ends at the address asked for, and goes on from there later. Without a collection, a known object stays an
// object, and free space and allocation contexts become further objects.

// Bounds of walks, in bytes of the heap.
const (
	maxLook       = 64 << 20 // in one look
	maxBudget     = 512 << 20
	chunkLen      = 256 << 10 // of one read
	minSize       = 24        // of an object, in bytes (src/coreclr/gc/gcinterface.h, MIN_OBJECT_SIZE)
	maxTables     = 1 << 16
	maxTrailEdges = 1 << 10
)

// The size of an object is the MethodTable's BaseSize. If MTFlags has a component size, the size also has the
// component size times the count behind the pointer to the MethodTable.
const (
	hasComponents = 0x80000000
	countAt       = 8
	header        = 8  // of the next object: the word in front of the next object counts as part of the present object
	headLen       = 16 // of an object, up to the end of the count
)

// trail has the known objects of a segment.
type trail struct {
	start arch.Addr
	next  arch.Addr // all objects below are known
	bits  []uint64  // for every eight bytes: an object begins here
	edges []edge
	look  int // the look that has checked edges last
}

// edge is an object in front of an empty allocation context. If a thread was making the object, the object may have
// become larger since; then the objects behind the edge are wrong.
type edge struct {
	at   arch.Addr
	size uint64
}

// size has the sizes of a MethodTable.
type size struct{ base, component uint32 }

const recentSizes = 256

type mtSize struct {
	mt arch.Addr
	size
}

// IsObject reports whether an object begins at an address, as of the last Begin. known is false where the heap makes
// no sense, or where IsObject would have to read too much of the heap.
func (r *Reader) IsObject(at arch.Addr) (is, known bool) {
	i := r.find(at)
	if i < 0 || at%8 != 0 {
		return false, r.segments != nil
	}
	s := r.segments[i]
	w := r.trails[s.Start]
	if w == nil {
		if r.trails == nil {
			r.trails = map[arch.Addr]*trail{}
		}
		w = &trail{start: s.Start, next: s.Start, look: r.looks}
		r.trails[s.Start] = w
	}
	r.recheck(w)
	if w.has(at) {
		return true, true
	}
	from := w.next
	if at < from { // has an object begun here since?
		from = w.before(at)
	}
	if !r.advance(w, from, at, s.End) {
		return false, false
	}
	return w.has(at), true
}

// index returns the position of an address in bits.
func (w *trail) index(at arch.Addr) (word, bit int) {
	n := int(at-w.start) / 8
	return n / 64, n % 64
}

func (w *trail) has(at arch.Addr) bool {
	i, bit := w.index(at)
	return at >= w.start && i < len(w.bits) && w.bits[i]>>bit&1 != 0
}

func (w *trail) set(at arch.Addr) {
	i, bit := w.index(at)
	for i >= len(w.bits) {
		w.bits = append(w.bits, 0)
	}
	w.bits[i] |= 1 << bit
}

// before returns the nearest object before an address.
func (w *trail) before(at arch.Addr) arch.Addr {
	i, bit := w.index(at)
	if i >= len(w.bits) {
		i, bit = len(w.bits)-1, 63
	}
	for mask := ^uint64(0) >> (63 - bit); i >= 0; i, mask = i-1, ^uint64(0) {
		if word := w.bits[i] & mask; word != 0 {
			return w.start + arch.Addr(i*64+bits.Len64(word)-1)*8
		}
	}
	return w.start
}

// cut forgets the objects behind an address.
func (w *trail) cut(at arch.Addr) {
	w.next = at
	i, bit := w.index(at)
	if i < len(w.bits) {
		w.bits[i] &= 1<<bit - 1
		w.bits = w.bits[:i+1]
	}
}

// recheck checks the edges of a trail again, once in each look.
func (r *Reader) recheck(w *trail) {
	if w.look == r.looks {
		return
	}
	w.look = r.looks
	for i, e := range w.edges {
		var head [headLen]byte
		if r.mem.ReadMemory(head[:], e.at) != nil || r.size(head[:]) != e.size {
			w.edges = w.edges[:i]
			w.cut(e.at)
			return
		}
	}
}

// advance finds the objects from an object on, until an object begins at an address or behind the address. false: the
// heap makes no sense there, cannot be read, or there is too much to read.
func (r *Reader) advance(w *trail, from, at, end arch.Addr) bool {
	var data []byte // from base on
	base, last, lastSize := from, arch.Addr(0), uint64(0)
	empty := from == w.next // the word before may be in an empty context
	for pos := from; pos <= at; {
		if pos+minSize > end {
			return true // no further object has room
		}
		if pos < base || pos+headLen > base+arch.Addr(len(data)) {
			if data = r.read(pos, at, end); data == nil {
				return false
			}
			base = pos
		}
		head := data[pos-base:]
		mt := binary.LittleEndian.Uint64(head)
		if mt == 0 || mt>>32 != 0 && uint32(mt) == 0 { // nothing, or the word in front of an object
			if last != 0 && !w.edge(last, lastSize) {
				return false
			}
			last, empty = 0, mt == 0
			pos += 8
			continue
		}
		size := r.size(head)
		if (size+7)&^7 < minSize || size > uint64(end-pos)+header { // an empty string has 22 bytes, and 2 of padding
			if !empty {
				return false
			}
			empty = false // the word in front of an object, with the remains of a collection in one half
			pos += 8
			continue
		}
		empty = false
		w.set(pos)
		last, lastSize = pos, size
		pos += arch.Addr(size+7) &^ 7
		w.next = max(w.next, pos)
	}
	return true
}

// edge notes an edge; false: there are too many edges.
func (w *trail) edge(at arch.Addr, size uint64) bool {
	for _, e := range w.edges {
		if e.at == at {
			return true
		}
	}
	if len(w.edges) == maxTrailEdges {
		return false
	}
	w.edges = append(w.edges, edge{at, size})
	return true
}

// read reads a part of a segment, up to an address at least if the address is near; nil: the part cannot be read, or
// is too large.
func (r *Reader) read(from, at, end arch.Addr) []byte {
	n := int64(min(end-from, max(at-from+4096, 4096), chunkLen))
	if n > r.left || n > r.budget || n < headLen {
		return nil
	}
	r.left -= n
	r.budget -= n
	if r.chunk == nil {
		r.chunk = make([]byte, chunkLen)
	}
	if r.mem.ReadMemory(r.chunk[:n], from) != nil {
		return nil
	}
	return r.chunk[:n]
}

// size returns the size in bytes of the object with the given head; 0: no object has this head.
func (r *Reader) size(head []byte) uint64 {
	mt := arch.Addr(binary.LittleEndian.Uint64(head)) &^ arch.Addr(r.l.Untag)
	c := &r.recent[mt/8%recentSizes]
	if c.mt != mt || mt == 0 {
		s, ok := r.tableSize(mt)
		if !ok {
			return 0
		}
		*c = mtSize{mt, s}
	}
	total := uint64(c.base)
	if c.component != 0 {
		total += uint64(c.component) * uint64(binary.LittleEndian.Uint32(head[countAt:]))
	}
	return total
}

func (r *Reader) tableSize(mt arch.Addr) (s size, ok bool) {
	if s, ok = r.sizes[mt]; ok {
		return s, true
	}
	flags, err := r.mem.Uint32(mt + arch.Addr(r.l.Flags))
	if err != nil {
		return s, false
	}
	if s.base, err = r.mem.Uint32(mt + arch.Addr(r.l.BaseSize)); err != nil {
		return s, false
	}
	if flags&hasComponents != 0 {
		s.component = flags & 0xffff
	}
	if r.sizes == nil || len(r.sizes) >= maxTables {
		r.sizes = map[arch.Addr]size{}
	}
	r.sizes[mt] = s
	return s, true
}
