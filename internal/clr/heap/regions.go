package heap

import (
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// Generation is a part of the heap, by the age or by the kind of its objects.
type Generation uint8

// The generations have the collector's own numbers (gc.h, gc_generation_num). Frozen is our addition: objects that
// are never collected, such as string literals. The collector counts frozen objects among Gen2.
const (
	Gen0 Generation = iota
	Gen1
	Gen2
	Large  // the large object heap
	Pinned // the pinned object heap
	Frozen
	NumGenerations = iota
)

var generationNames = [NumGenerations]string{"gen0", "gen1", "gen2", "large", "pinned", "frozen"}

func (g Generation) String() string {
	if int(g) >= len(generationNames) {
		return fmt.Sprintf("generation %d", uint8(g))
	}
	return generationNames[g]
}

// young reports whether the collector moves objects out of the generation all the time.
func (g Generation) young() bool { return g <= Gen1 }

// Region is a contiguous piece of one generation. In older collectors and in clrgc, a Region is a segment, or a
// generation's part of a segment.
type Region struct {
	Segment           // the part that has been given to objects
	Generation        // of its objects
	Heap       int    // number of the heap; 0 if there is only one heap
	Reserved   uint64 // bytes of address space from Start on
	node       arch.Addr
}

// segmentReadOnly is a flag of a segment (gcinterface.dac.h).
const segmentReadOnly = 1

// maxReserved bounds the address space of one segment.
const maxReserved = 1 << 44

// Regions returns the pieces of memory with objects, heap by heap, the youngest generation first. Unlike Segments,
// Regions knows each region's generation, and returns no region twice. While the program runs, the list belongs to no
// single moment.
func (r *Reader) Regions() ([]Region, error) {
	var l look
	if err := r.look(r.mem, &l); err != nil {
		return nil, err
	}
	var out []Region
	var err error
	for i, h := range l.heaps {
		one := heapRegions{places: r.places, mem: r.mem, heap: h, number: i, out: out}
		if out, err = one.read(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// heapRegions reads the regions of one heap.
type heapRegions struct {
	*places
	mem    *target.Reader
	heap   oneHeap
	number int
	seen   map[arch.Addr]bool
	out    []Region
}

func (h *heapRegions) read() ([]Region, error) {
	h.seen = map[arch.Addr]bool{}
	for g := range arch.Addr(min(h.places.generations, uint64(Frozen))) {
		at, err := h.mem.Pointer(h.heap.generations + g*arch.Addr(h.size) + h.segment)
		if err != nil {
			return nil, err
		}
		for at != 0 && !h.seen[at] {
			if h.seen[at] = true; len(h.out) >= maxSegments {
				return nil, fmt.Errorf("%w: more than %d regions", ErrUnknown, maxSegments)
			}
			if at, err = h.add(at, Generation(g)); err != nil {
				return nil, err
			}
		}
	}
	return h.out, nil
}

// add adds the segment at an address, and returns the next segment's address.
func (h *heapRegions) add(at arch.Addr, g Generation) (next arch.Addr, err error) {
	n, err := h.node.read(h.mem, at)
	if err != nil {
		return 0, err
	}
	r := Region{Segment: Segment{Start: n.start, End: n.end}, Generation: g, Heap: h.number}
	r.node, r.Reserved = at, uint64(n.reserved-r.Start)
	ephemeral := at == h.heap.ephemeral
	if ephemeral {
		r.End = h.heap.allocated
	}
	if n.flags&segmentReadOnly != 0 {
		r.Generation = Frozen
	}
	if r.End < r.Start || r.End > n.reserved || r.End > maxAddress || r.Reserved > maxReserved || r.Start%8 != 0 {
		return 0, fmt.Errorf("%w: a segment from %v to %v", ErrUnknown, r.Start, r.End)
	}
	if !ephemeral || h.start == 0 {
		h.out = append(h.out, r)
		return n.next, nil
	}
	return n.next, h.share(r)
}

// share adds the parts of the segment that the three youngest generations share: the oldest generation lies first.
func (h *heapRegions) share(r Region) error {
	from := r.Start
	for g := Gen2; ; g-- {
		part := r
		part.Generation, part.Start = g, from
		if g > Gen0 {
			next, err := h.mem.Pointer(h.heap.generations + arch.Addr(g-1)*arch.Addr(h.size) + h.start)
			if err != nil {
				return err
			}
			if next < from || next > r.End || next%8 != 0 {
				return fmt.Errorf("%w: a generation begins at %v", ErrUnknown, next)
			}
			part.End, from = next, next
		}
		part.Reserved -= uint64(part.Start - r.Start)
		h.out = append(h.out, part)
		if g == Gen0 {
			return nil
		}
	}
}
