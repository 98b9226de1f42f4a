package heap

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// look is the collector's state at one time.
type look struct {
	heaps  []oneHeap // tables of generations, segments that are being allocated from, and the end of allocation
	stamp  []byte    // all words that a collection changes: see places.look
	moving bool      // objects were being moved, or that is not known: see Moving
	pieces pieces
}

// Begin begins a look at the present heap. If there has been no collection since the last look, its segments and
// trails stay. A nil memory stands for the memory of New, a dump, and never changes.
func (r *Reader) Begin(now target.Memory) error {
	r.looks++
	r.left, r.still, r.calm = maxLook, now == nil, false
	if now != nil {
		return r.begin(now)
	}
	if r.segments == nil && r.lost == nil {
		r.lost = r.begin(r.mem)
	}
	return r.lost
}

func (r *Reader) begin(mem target.Memory) error {
	if err := r.look(mem, &r.now); err != nil {
		r.drop()
		return err
	}
	r.calm = !r.now.moving
	if !bytes.Equal(r.now.stamp, r.kept.stamp) || r.segments == nil {
		r.drop()
	}
	if r.grow() {
		return nil
	}
	segments, err := r.places.list(target.NewReader(target.NewCache(mem, listPages)), r.now.heaps)
	if err != nil {
		r.drop()
		return err
	}
	r.keep(segments)
	return nil
}

// listPages is the number of pages that the segments' descriptions are read in.
const listPages = 64

// Stands reports whether there has been no collection since Begin, and none is running: every object found since
// Begin is still an object at the same address. A nil memory is as in Begin.
func (r *Reader) Stands(now target.Memory) bool {
	return now == nil || r.segments != nil && r.stamped(now) && bytes.Equal(r.again.stamp, r.kept.stamp)
}

// stamped reads a stamp into r.again; false: the stamp is not known, or objects are being moved.
func (r *Reader) stamped(now target.Memory) bool {
	return r.look(now, &r.again) == nil && !r.again.moving
}

// Calm reports whether no objects were being moved when the latest Begin began. If Moving is not known, Calm returns
// false.
func (r *Reader) Calm() bool { return r.still || r.calm }

// Refill begins a snapshot, with the full budget of bytes to walk.
func (r *Reader) Refill() { r.budget = maxBudget }

// Scarce reports whether a snapshot has used half of its budget.
func (r *Reader) Scarce() bool { return r.budget < maxBudget/2 }

// drop forgets all that is known of the heap.
func (r *Reader) drop() {
	r.segments, r.trails, r.sizes, r.recent = nil, nil, nil, [recentSizes]mtSize{}
	r.kept.stamp = r.kept.stamp[:0]
}

// keep takes the list of segments of the present look.
func (r *Reader) keep(segments []Segment) {
	slices.SortFunc(segments, func(a, b Segment) int {
		if a.Start < b.Start {
			return -1
		}
		return 1
	})
	r.segments, r.growing = segments, r.growing[:0]
	for _, h := range r.now.heaps {
		r.growing = append(r.growing, slices.IndexFunc(segments, func(s Segment) bool { return s.at == h.ephemeral }))
	}
	r.kept.stamp = append(r.kept.stamp[:0], r.now.stamp...)
	r.kept.heaps = append(r.kept.heaps[:0], r.now.heaps...)
}

// grow extends the segments that are being allocated from to the present end of allocation; false: the segments must
// be listed again.
func (r *Reader) grow() bool {
	if r.segments == nil || len(r.now.heaps) != len(r.kept.heaps) {
		return false
	}
	for i, h := range r.now.heaps {
		if h.ephemeral != r.kept.heaps[i].ephemeral {
			return false
		}
	}
	for i, h := range r.now.heaps {
		g := r.growing[i]
		if g < 0 {
			continue
		}
		if s := &r.segments[g]; h.allocated > s.End && h.allocated < maxAddress &&
			(g+1 == len(r.segments) || h.allocated <= r.segments[g+1].Start) {
			s.End = h.allocated
		}
	}
	return true
}

func (r *Reader) look(mem target.Memory, out *look) error {
	t, err := r.described()
	if err != nil {
		return err
	}
	return t.look(mem, out)
}

// stamped is the number of generations in a stamp: the generations of objects that are not large. Only a full
// collection moves objects in the others.
const stamped = 3

// look reads the heaps and a stamp of the heaps. The stamp has the collector's record of each generation, byte for
// byte: segments, free bytes, bytes given to objects. A collection that moves anything changes the record; allocation
// hardly does. While a background collection turns dead objects of the oldest generation into free space, and moves
// nothing, the stamp leaves out the oldest generation. Whether objects are being moved is read before the stamp.
func (t *places) look(mem target.Memory, out *look) error {
	const sweeping = 1 // c_gc_state_planning (gcpriv.h)
	out.stamp, out.heaps = out.stamp[:0], out.heaps[:0]
	p := &out.pieces
	p.begin()
	moving, count, state := p.word(t.invalid), p.word(t.count), p.word(t.background)
	if t.count != 0 {
		if err := p.read(mem); err != nil {
			return err
		}
	}
	n := count()
	if n > maxHeaps {
		return fmt.Errorf("%w: %d heaps", ErrUnknown, n)
	}
	if err := t.addresses(target.NewReader(mem), int(n), out); err != nil {
		return err
	}
	most := int(min(t.generations, stamped))
	for _, h := range out.heaps {
		p.add(h.generations, most*int(t.size))
		p.add(h.ephemeral, 8)
		p.add(h.allocated, 8)
	}
	if err := p.read(mem); err != nil {
		return err
	}
	out.moving = t.invalid == 0 || moving() != 0
	generations := most
	if state() == sweeping {
		generations = min(generations, stamped-1)
	}
	out.stamp = append(out.stamp, byte(n), byte(n>>8), byte(generations))
	const each = 3 // pieces of a heap
	for i := range out.heaps {
		h, got := &out.heaps[i], p.last(each*(len(out.heaps)-i))
		out.stamp = append(out.stamp, got[0].Data[:generations*int(t.size)]...)
		h.ephemeral = arch.Addr(binary.LittleEndian.Uint64(got[1].Data))
		h.allocated = arch.Addr(binary.LittleEndian.Uint64(got[2].Data))
	}
	return nil
}

// addresses lists the heaps, with the addresses of each heap's variables.
func (t *places) addresses(mem *target.Reader, n int, out *look) error {
	if n == 0 {
		if t.only.generations == 0 || t.only.ephemeral == 0 || t.only.allocated == 0 {
			return ErrUnknown
		}
		out.heaps = append(out.heaps, t.only)
		return nil
	}
	if t.heaps == 0 {
		return ErrUnknown
	}
	list, err := mem.Pointer(t.heaps)
	if err != nil {
		return err
	}
	b, err := mem.Bytes(list, 8*n)
	if err != nil {
		return err
	}
	for ; len(b) > 0; b = b[8:] {
		at := arch.Addr(binary.LittleEndian.Uint64(b))
		f := &t.fields
		out.heaps = append(out.heaps, oneHeap{at + f.generations, at + f.ephemeral, at + f.allocated, at + f.queue})
	}
	return nil
}

func (t *places) list(mem *target.Reader, heaps []oneHeap) (out []Segment, err error) {
	out = []Segment{}
	for i := range heaps {
		for g := range arch.Addr(t.generations) {
			first, err := mem.Pointer(heaps[i].generations + g*arch.Addr(t.size) + t.segment)
			if err != nil {
				return nil, err
			}
			if out, err = t.chain(mem, out, first, &heaps[i]); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func (t *places) chain(mem *target.Reader, out []Segment, at arch.Addr, h *oneHeap) ([]Segment, error) {
	for at != 0 {
		if len(out) >= maxSegments {
			return nil, fmt.Errorf("%w: more than %d segments", ErrUnknown, maxSegments)
		}
		n, err := t.node.read(mem, at)
		if err != nil {
			return nil, err
		}
		s := Segment{Start: n.start, End: n.end, Frozen: n.flags&segmentReadOnly != 0, at: at}
		if at == h.ephemeral {
			s.End = h.allocated // the rest is left over from before the last collection
		}
		s.limit = min(n.reserved, maxAddress)
		if s.End < s.Start || s.End > n.reserved || s.End > maxAddress {
			return nil, fmt.Errorf("%w: a segment from %v to %v", ErrUnknown, s.Start, s.End)
		}
		out = append(out, s)
		at = n.next
	}
	return out, nil
}
