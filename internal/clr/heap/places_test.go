package heap

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/contract"
)

const (
	variableAt  = arch.Addr(0x7800_0000) // variable with the address of the collector's descriptor
	headerAt    = arch.Addr(0x7800_1000)
	textAt      = arch.Addr(0x7800_2000)
	pointersAt  = arch.Addr(0x7800_8000)
	variablesAt = arch.Addr(0x7900_0000) // a kilobyte for each
	heapAt      = arch.Addr(0x7a00_0000) // of two heaps of servers
	listOfHeaps = arch.Addr(0x7b00_0000)
)

// ownWords is a collector with its own descriptor, and the memory that the descriptor leads to.
type ownWords struct {
	clrtest.Words
	t testing.TB
	d *contract.Descriptor // as the reader will see the descriptor
}

// describing puts a collector's descriptor into memory: a changed file of contract/testdata.
func describing(t testing.TB, file string, change func(string) string) (*Reader, *ownWords) {
	t.Helper()
	b, err := os.ReadFile("../../contract/testdata/net11.0.0-gc-" + file + ".json")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	if change != nil {
		if text = change(text); text == string(b) {
			t.Fatal("nothing was changed")
		}
	}
	const pointers = 29
	m := &ownWords{Words: clrtest.Words{}, t: t}
	all := make([]uint64, pointers)
	for i := range all {
		all[i] = uint64(variablesAt) + 0x400*uint64(i)
		m.Words[pointersAt+8*arch.Addr(i)] = all[i]
		m.Zero(arch.Addr(all[i]), 0x400)
	}
	if m.d, err = contract.FromJSON([]byte(text), all); err != nil {
		t.Logf("%v", err) // a test of a refused descriptor
	}
	m.Words[headerAt], m.Words[headerAt+8] = 0x00434144_43434e44, 1|uint64(len(text))<<32
	m.Words[headerAt+16], m.Words[headerAt+24] = uint64(textAt), pointers
	m.Words[headerAt+32] = uint64(pointersAt)
	for i := 0; i < len(text); i += 8 {
		var word [8]byte
		copy(word[:], text[i:])
		m.Words[textAt+arch.Addr(i)] = binary.LittleEndian.Uint64(word[:])
	}
	m.Words[variableAt] = uint64(headerAt)
	own := *clrtest.Descriptor(t, clrtest.Net11)
	own.SubDescriptors = map[string]contract.Global{
		"GC": {Value: uint64(variableAt), Number: true, Indirect: true},
	}
	r, err := New(m, &own)
	if err != nil {
		t.Fatal(err)
	}
	return r, m
}

// at returns the address in a pointer of the descriptor.
func (m *ownWords) at(global string) arch.Addr {
	v, ok := m.d.Global(global)
	if !ok {
		m.t.Fatalf("no global %s", global)
	}
	return arch.Addr(v)
}

// field returns the offset of a field.
func (m *ownWords) field(typ, name string) arch.Addr {
	v, ok := m.d.Offset(typ, name)
	if !ok {
		m.t.Fatalf("no field %s.%s", typ, name)
	}
	return arch.Addr(v)
}

// fill makes the memory that the descriptor leads to: a heap, or two heaps of a server, of three segments each.
func (m *ownWords) fill() {
	words := m.Words
	heaps := []struct{ generations, ephemeral, allocated, queue arch.Addr }{{}}
	if _, server := m.d.Global("NumHeaps"); server {
		heaps = append(heaps, heaps[0])
		words[m.at("NumHeaps")], words[m.at("Heaps")] = 2, uint64(listOfHeaps)
		words[m.at("TotalCpuCount")] = 3
		for i := range heaps {
			at := heapAt + 0x8000*arch.Addr(i)
			m.Zero(at, 0x8000)
			words[listOfHeaps+8*arch.Addr(i)] = uint64(at)
			heaps[i].generations = at + m.field("GCHeap", "GenerationTable")
			heaps[i].ephemeral = at + m.field("GCHeap", "EphemeralHeapSegment")
			heaps[i].allocated = at + m.field("GCHeap", "AllocAllocated")
			heaps[i].queue = at + m.field("GCHeap", "FinalizeQueue")
		}
	} else {
		table := m.at("GCHeapGenerationTable")
		m.Zero(table, 0x800) // reaches into the next variable, which nothing reads
		heaps[0].generations, heaps[0].ephemeral = table, m.at("GCHeapEphemeralHeapSegment")
		heaps[0].allocated, heaps[0].queue = m.at("GCHeapAllocAllocated"), m.at("GCHeapFinalizeQueue")
	}
	size, _ := m.d.Size("Generation")
	for i, h := range heaps {
		base := arch.Addr(0x1000_0000 * (i + 1))
		segments := segsAt + 0x1000*arch.Addr(i)
		segment := func(at, start, end, reserved, next arch.Addr) {
			m.Zero(at, 0x80)
			words[at+m.field("HeapSegment", "Mem")] = uint64(base + start)
			words[at+m.field("HeapSegment", "Allocated")] = uint64(base + end)
			words[at+m.field("HeapSegment", "Reserved")] = uint64(base + reserved)
			words[at+m.field("HeapSegment", "Next")] = uint64(next)
		}
		first := func(generation arch.Addr, at arch.Addr) {
			words[h.generations+generation*arch.Addr(size)+m.field("Generation", "StartSegment")] = uint64(at)
		}
		segment(segments, 0x2_0000, 0x2_0000, 0x3_0000, 0)
		segment(segments+0x100, 0x5_0000, 0x5_1000, 0x6_0000, segments+0x200)
		segment(segments+0x200, 0x1_0000, 0x1_0100, 0x2_0000, 0)
		words[segments+0x200+m.field("HeapSegment", "Flags")] = segmentReadOnly
		words[h.ephemeral], words[h.allocated] = uint64(segments), uint64(base+0x2_0800)
		first(0, segments)
		if _, shared := m.d.Offset("Generation", "AllocationStart"); shared {
			for g, start := range []arch.Addr{0x2_0600, 0x2_0200} {
				at := h.generations + arch.Addr(g)*arch.Addr(size) + m.field("Generation", "AllocationStart")
				words[at] = uint64(base + start)
			}
		}
		first(2, segments+0x100)
		queue, array := queueAt+0x100*arch.Addr(i), uint64(arrayAt)+0x1000*uint64(i)
		words[h.queue] = uint64(queue)
		for n, end := range []uint64{0, 0, 0, 0, 1, 2, 4, 0, 16} { // ends of parts, then the array and its end
			words[queue+8*arch.Addr(n)] = array + 8*end
		}
		for n := range uint64(16) {
			words[arch.Addr(array)+8*arch.Addr(n)] = uint64(base) + 0x1000*(n+1)
		}
	}
	m.handles(len(heaps))
}

// handles makes a map at HandleTableMap, with a table for each heap and one more.
func (m *ownWords) handles(heaps int) {
	at, words := m.at("HandleTableMap"), m.Words
	words[at], words[at+mapNext], words[at+mapCount] = uint64(bucketsAt), 0, 1
	words[bucketsAt], words[bucketAt] = uint64(bucketAt), uint64(tablesAt)
	if heaps > 1 {
		heaps++ // a table for each processor
	}
	for i := range heaps {
		table, segment := handlesAt+0x80*arch.Addr(i), segment1+0x1_0000*arch.Addr(i)
		words[tablesAt+8*arch.Addr(i)] = uint64(table)
		m.Zero(table, 0x80)
		words[table+m.field("HandleTable", "SegmentList")] = uint64(segment)
		withSegment(words, 13, segment, 0, []HandleKind{Strong})
		words[segment+tableHandles[1].owner()] = 0
		next := m.field("TableSegment", "NextSegment")
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], uint64(table))
		for n, c := range b { // not at a multiple of eight
			off := segment + next + 8 + arch.Addr(n)
			words[off&^7] = words[off&^7]&^(0xff<<(8*(off&7))) | uint64(c)<<(8*(off&7))
		}
		words[segment+segmentHead] = 0x1000 * uint64(i+1)
	}
}

// TestDescribed: the reader finds all places by the collector's own descriptor, in each of the descriptor's forms.
func TestDescribed(t *testing.T) {
	for file, heaps := range map[string]int{"workstation": 1, "server": 2, "segments": 1, "server-segments": 2} {
		t.Run(file, func(t *testing.T) {
			r, m := describing(t, file, nil)
			m.fill()
			checkDescribed(t, r, m, heaps, strings.HasSuffix(file, "segments"))
		})
	}
}

func checkDescribed(t *testing.T, r *Reader, m *ownWords, heaps int, shared bool) {
	t.Helper()
	var want []Region
	var ready []arch.Addr
	for i := range heaps {
		base := arch.Addr(0x1000_0000 * (i + 1))
		young := []Region{{Segment: Segment{Start: base + 0x2_0000, End: base + 0x2_0800}}}
		if shared {
			young = []Region{
				{Segment: Segment{Start: base + 0x2_0000, End: base + 0x2_0200}, Generation: Gen2},
				{Segment: Segment{Start: base + 0x2_0200, End: base + 0x2_0600}, Generation: Gen1},
				{Segment: Segment{Start: base + 0x2_0600, End: base + 0x2_0800}, Generation: Gen0},
			}
		}
		for _, one := range append(young,
			Region{Segment: Segment{Start: base + 0x5_0000, End: base + 0x5_1000}, Generation: Gen2},
			Region{Segment: Segment{Start: base + 0x1_0000, End: base + 0x1_0100}, Generation: Frozen}) {
			one.Heap = i
			want = append(want, one)
		}
		ready = append(ready, base+0x2000, base+0x3000, base+0x4000)
	}
	regions, err := r.Regions()
	if err != nil {
		t.Fatal(err)
	}
	for i := range regions {
		regions[i].node, regions[i].Reserved = 0, 0
	}
	if !slices.Equal(regions, want) {
		t.Errorf("%+v\nwant %+v", regions, want)
	}
	segments, err := r.Segments()
	if err != nil || len(segments) != 3*heaps {
		t.Errorf("%v, %v", segments, err)
	}
	if got, err := r.Ready(m); err != nil || !slices.Equal(got, ready) {
		t.Errorf("ready: %v, %v", got, err)
	}
	tables := heaps
	if heaps > 1 {
		tables++
	}
	if got, err := r.Handles(m); err != nil || len(got) != tables {
		t.Errorf("%d handles, %v", len(got), err)
	}
	count := m.at("StructureInvalidCount")
	if at, ok := r.Moving(); !ok || at != count || !r.Settled(m) {
		t.Errorf("it moves objects, as %v says", at)
	}
	if m.Words[count] = 1; r.Settled(m) {
		t.Error("it moves none")
	}
}

// TestNotStarted: the description of a collector that has not started is looked for again.
func TestNotStarted(t *testing.T) {
	r, m := describing(t, "workstation", nil)
	m.fill()
	m.Words[variableAt] = 0
	if _, err := r.Regions(); !errors.Is(err, errNotStarted) || !errors.Is(err, ErrUnknown) || r.Known() {
		t.Fatal(err)
	}
	m.Words[variableAt] = uint64(headerAt)
	if _, err := r.Regions(); err != nil || !r.Known() {
		t.Error(err)
	}
}

// TestDescribedRefused: an unknown description is not used, and the error says why.
func TestDescribedRefused(t *testing.T) {
	replace := func(old, new string) func(string) string {
		return func(s string) string { return strings.Replace(s, old, new, 1) }
	}
	for name, tt := range map[string]struct {
		file, want string
		change     func(string) string
	}{
		"another contract": {"workstation", "follows version c2 of the contract GC; this clrsnap understands c1",
			replace(`"GC":"c1"`, `"GC":"c2"`)},
		"no contract": {"workstation", "lacks contract GC", replace(`"GC":"c1"`, ``)},
		"no table": {"workstation", "lacks global GCHeapGenerationTable",
			replace(`"GCHeapGenerationTable"`, `"GCHeapOther"`)},
		"no field of a server": {"server", "lacks field GCHeap.GenerationTable",
			replace(`"GenerationTable"`, `"Other"`)},
		"no field of a segment": {"server", "lacks field HeapSegment.Reserved", replace(`"Reserved"`, `"Other"`)},
		"large generations":     {"workstation", "generations of 65536 bytes", replace(`"!":256`, `"!":65536`)},
		"many generations": {"workstation", "255 generations",
			replace(`"TotalGenerationCount":"0x5"`, `"TotalGenerationCount":"0xff"`)},
		"far fields": {"workstation", "segments of", replace(`"Mem":32`, `"Mem":4096`)},
		"queues": {"workstation", "queues of finalizers",
			replace(`"CFinalizeFillPointersLength":"0x7"`, `"CFinalizeFillPointersLength":"0xff"`)},
		"other tables of handles": {"workstation", "tables of handles",
			replace(`"HandlesPerBlock":"0x40"`, `"HandlesPerBlock":"0x20"`)},
		"another format":     {"workstation", `version "3"`, replace(`"version":2`, `"version":3`)},
		"a pointer too many": {"workstation", "of 29 pointers", replace(`[28]`, `[29]`)},
	} {
		t.Run(name, func(t *testing.T) {
			r, m := describing(t, tt.file, tt.change)
			_, err := r.Regions()
			if !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), tt.want) || r.Known() {
				t.Errorf("%v", err)
			}
			_, handles := r.Handles(m)
			_, ready := r.Ready(m)
			_, walk := r.Walk(still(m))
			for _, err := range []error{r.Begin(m), handles, ready, walk} {
				if !errors.Is(err, ErrUnknown) {
					t.Errorf("%v", err)
				}
			}
		})
	}
	r, m := describing(t, "workstation", nil)
	m.Words[headerAt+16] = 0x10 // no memory
	if _, err := r.Regions(); err == nil {
		t.Error("the text was read")
	}
	m.Words[headerAt] = 0
	if _, err := r.Regions(); !errors.Is(err, ErrUnknown) {
		t.Errorf("no descriptor: %v", err)
	}
}
