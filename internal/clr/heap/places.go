package heap

import (
	"encoding/binary"
	"errors"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// places has the places of the collector's record of the heap. The places stay while the process runs.
type places struct {
	size, generations uint64    // of the table of generations: bytes of each, and the number of generations
	segment           arch.Addr // offset of a generation's first segment
	start             arch.Addr // of a generation's beginning in a shared segment; 0: heaps have regions
	node              nodeLayout
	background        arch.Addr // of the state of a background collection; 0: there is none
	invalid           arch.Addr // see Moving; 0: not known
	count, heaps      arch.Addr // of variables: the number of heaps and their list; 0: there is only one heap
	only              oneHeap   // addresses of a single heap's variables
	fields            oneHeap   // offsets of the fields in each of several heaps
	handles           handlePlaces
	queueAt           arch.Addr // offset in a queue of finalizers of the ends of its parts
	queueEnds         int       // number of the ends
}

// oneHeap is one heap: the collector of servers has several heaps. queue is the queue of finalizers.
type oneHeap struct{ generations, ephemeral, allocated, queue arch.Addr }

// nodeLayout is the layout of the collector's record of a segment.
type nodeLayout struct {
	Allocated uint32 `clr:"HeapSegment.Allocated"`
	Reserved  uint32 `clr:"HeapSegment.Reserved"`
	Mem       uint32 `clr:"HeapSegment.Mem"`
	Flags     uint32 `clr:"HeapSegment.Flags"`
	Next      uint32 `clr:"HeapSegment.Next"`
}

// tableNode is dac_heap_segment (gcinterface.dac.h).
var tableNode = nodeLayout{Allocated: 0, Reserved: 16, Mem: 32, Flags: 40, Next: 48}

// rawSegment is the contents of a node.
type rawSegment struct{ start, end, reserved, flags, next arch.Addr }

func (l *nodeLayout) len() int { return int(max(l.Allocated, l.Reserved, l.Mem, l.Flags, l.Next)) + 8 }

func (l *nodeLayout) read(mem *target.Reader, at arch.Addr) (rawSegment, error) {
	var buf [maxNode]byte
	b := buf[:l.len()]
	if err := mem.ReadMemory(b, at); err != nil {
		return rawSegment{}, err
	}
	word := func(off uint32) arch.Addr { return arch.Addr(binary.LittleEndian.Uint64(b[off:])) }
	return rawSegment{word(l.Mem), word(l.Allocated), word(l.Reserved), word(l.Flags), word(l.Next)}, nil
}

// described reads the places, once. If a started collector's description is unknown, the error stays.
func (r *Reader) described() (*places, error) {
	if r.places != nil || r.strange != nil {
		return r.places, r.strange
	}
	t, err := r.readPlaces()
	if err == nil {
		err = t.check()
	}
	switch {
	case err == nil:
		r.places = t
		return t, nil
	case errors.Is(err, ErrUnknown) && !errors.Is(err, errNotStarted):
		r.strange = err
	}
	return nil, err
}

var errNotStarted = fmt.Errorf("%w: the collector has not started", ErrUnknown)

// collector names the collector among the runtime's parts with descriptors, and the collector's contract.
const collector = "GC"

func (r *Reader) readPlaces() (*places, error) {
	if _, ok := r.own.SubDescriptors[collector]; !ok {
		return r.readTable()
	}
	d, err := r.own.Part(r.mem, collector)
	switch {
	case errors.Is(err, contract.ErrFormat):
		return nil, fmt.Errorf("%w: %w", ErrUnknown, err)
	case err != nil:
		return nil, err
	case d == nil:
		return nil, errNotStarted
	}
	return readDescriptor(d)
}

func (t *places) check() error {
	if t.size > maxSize || t.generations > maxGenerations {
		return fmt.Errorf("%w: %d generations of %d bytes", ErrUnknown, t.generations, t.size)
	}
	if t.node.len() > maxNode {
		return fmt.Errorf("%w: segments of %d bytes", ErrUnknown, t.node.len())
	}
	if t.queueEnds <= readyParts || t.queueEnds > maxGenerations+readyParts {
		return fmt.Errorf("%w: queues of finalizers of %d parts", ErrUnknown, t.queueEnds)
	}
	return nil
}

// needs is the contract of the collector, in the known versions.
var needs = map[string][]contract.Version{collector: {"c1"}}

// collectorLayout is the part of a collector's data descriptor that is read. The workstation collector has one heap,
// in variables; the server collector has several heaps, in structures.
type collectorLayout struct {
	Size        uint32    `clr:"size:Generation"`
	Segment     uint32    `clr:"Generation.StartSegment"`
	Start       uint32    `clr:"Generation.AllocationStart,optional"`
	Generations uint64    `global:"TotalGenerationCount"`
	Invalid     arch.Addr `global:"StructureInvalidCount"`
	Background  arch.Addr `global:"CurrentGCState,optional"`
	Handles     arch.Addr `global:"HandleTableMap"`
	QueueEnds   uint64    `global:"CFinalizeFillPointersLength"`
	Queue       uint32    `clr:"CFinalize.FillPointers"`

	Count      arch.Addr `global:"NumHeaps,optional"`
	Heaps      arch.Addr `global:"Heaps,optional"`
	Processors arch.Addr `global:"TotalCpuCount,optional"`
}

type onlyHeap struct {
	Generations arch.Addr `global:"GCHeapGenerationTable"`
	Ephemeral   arch.Addr `global:"GCHeapEphemeralHeapSegment"`
	Allocated   arch.Addr `global:"GCHeapAllocAllocated"`
	Queue       arch.Addr `global:"GCHeapFinalizeQueue"`
}

type serverHeap struct {
	Generations uint32 `clr:"GCHeap.GenerationTable"`
	Ephemeral   uint32 `clr:"GCHeap.EphemeralHeapSegment"`
	Allocated   uint32 `clr:"GCHeap.AllocAllocated"`
	Queue       uint32 `clr:"GCHeap.FinalizeQueue"`
}

func readDescriptor(d *contract.Descriptor) (*places, error) {
	unknown := func(err error) error {
		if err != nil {
			err = fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		return err
	}
	if err := d.Require(needs); err != nil {
		return nil, unknown(err)
	}
	var l collectorLayout
	var t places
	if err := errors.Join(d.Bind(&l), d.Bind(&t.node)); err != nil {
		return nil, unknown(err)
	}
	t.size, t.segment, t.generations = uint64(l.Size), arch.Addr(l.Segment), l.Generations
	if l.Start != contract.Absent {
		t.start = arch.Addr(l.Start)
	}
	t.invalid, t.background, t.count, t.heaps = l.Invalid, l.Background, l.Count, l.Heaps
	t.queueAt, t.queueEnds = arch.Addr(l.Queue), int(min(l.QueueEnds, maxSize))
	layout, err := describedHandles(d)
	if err != nil {
		return nil, unknown(err)
	}
	t.handles = handlePlaces{first: l.Handles, processors: l.Processors, layouts: []handleLayout{layout}}
	if l.Count == 0 {
		var h onlyHeap
		err = d.Bind(&h)
		t.only = oneHeap{h.Generations, h.Ephemeral, h.Allocated, h.Queue}
		return &t, unknown(err)
	}
	var h serverHeap
	err = d.Bind(&h)
	t.fields = oneHeap{arch.Addr(h.Generations), arch.Addr(h.Ephemeral), arch.Addr(h.Allocated), arch.Addr(h.Queue)}
	return &t, unknown(err)
}
