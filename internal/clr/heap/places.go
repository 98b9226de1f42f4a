package heap

import (
	"encoding/binary"
	"errors"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// places is where the collector has what it says of itself. It stays while the process runs.
type places struct {
	size, generations uint64    // of the table of generations: bytes of each, and how many
	segment           arch.Addr // offset of a generation's first segment
	start             arch.Addr // of where it begins in a segment that it shares; 0: it shares none, heaps have regions
	node              nodeLayout
	background        arch.Addr // of the state of a collection in the background; 0: there is none
	invalid           arch.Addr // see Moving; 0: it is not known
	count, heaps      arch.Addr // of variables: the number of heaps and their list; 0: there is only one heap
	only              oneHeap   // addresses of the variables of an only heap
	fields            oneHeap   // offsets of the same in each of several heaps
	handles           handlePlaces
	queueAt           arch.Addr // offset in a queue of finalizers of the ends of its parts
	queueEnds         int       // how many there are
}

// oneHeap is one of the heaps: the collector of servers has several. queue is that of finalizers.
type oneHeap struct{ generations, ephemeral, allocated, queue arch.Addr }

// nodeLayout is what the collector says of a segment.
type nodeLayout struct {
	Allocated uint32 `clr:"HeapSegment.Allocated"`
	Reserved  uint32 `clr:"HeapSegment.Reserved"`
	Mem       uint32 `clr:"HeapSegment.Mem"`
	Flags     uint32 `clr:"HeapSegment.Flags"`
	Next      uint32 `clr:"HeapSegment.Next"`
}

// tableNode is dac_heap_segment (gcinterface.dac.h).
var tableNode = nodeLayout{Allocated: 0, Reserved: 16, Mem: 32, Flags: 40, Next: 48}

// rawSegment is what a node says.
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

// described reads where things are, once. What a collector that has started says of itself and is not known stays so.
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

// collector is its name among the parts of the runtime that describe themselves, and that of its contract.
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

// check bounds what was read.
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

// needs is the contract that is read, in the versions whose meaning is known.
var needs = map[string][]contract.Version{collector: {"c1"}}

// collectorLayout is what a collector says in its data descriptor. That of workstations has one heap, in variables;
// that of servers has several, in structures.
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

// readDescriptor reads the data descriptor of a collector.
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
