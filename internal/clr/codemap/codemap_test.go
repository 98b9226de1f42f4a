package codemap

import (
	"errors"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

const (
	heapBase = arch.Addr(0x7f00_0002_0000)
	section1 = arch.Addr(0x200000)
	heapNode = arch.Addr(0x201000)
	nibbles1 = arch.Addr(0x202000)
	header1  = arch.Addr(0x203000)
	ehInfo   = arch.Addr(0x204000)
	method1  = arch.Addr(0x205000)
)

// jitHeap is memory with one code heap. There is a method of 0x100 bytes at +0x40, with a catch body at +0x80 and a
// filter at +0xa0 of the method, and a stub of kind 3 at +0x200.
func jitHeap(t *testing.T, d *contract.Descriptor) (memory, *Map) {
	mem := memory{}
	m := newMapOf(t, mem, d)
	l := &m.l
	mem.addSection(l, 0x300000, heapBase, heapBase+0x10000, section1, sectionCodeHeap|sectionCollectible)
	mem.ptr(section1+arch.Addr(l.SecHeap), heapNode)
	mem.fill(heapNode, 256)
	mem.ptr(heapNode+arch.Addr(l.HeapStart), heapBase)
	mem.ptr(heapNode+arch.Addr(l.HeapEnd), heapBase+0x1000)
	mem.ptr(heapNode+arch.Addr(l.HeapBase), heapBase)
	mem.ptr(heapNode+arch.Addr(l.HeapNibble), nibbles1)
	buildNibbles(mem, nibbles1, []block{{0x40, 0x140}, {0x200, 0x240}}, true)

	mem.fill(heapBase, 0x1000)
	mem.ptr(heapBase+0x40-headerSlot, header1)
	mem.u64(heapBase+0x200-headerSlot, 3)
	mem.fill(header1, 256)
	mem.ptr(header1+arch.Addr(l.HdrMethod), method1)
	mem.u32(header1+arch.Addr(l.HdrUnwinds), 3)
	for i, f := range []runtimeFunction{{0x40, 0xc0, 0x800}, {0xc0, 0xe0, 0x810}, {0xe0, 0x130, 0x820}} {
		at := header1 + arch.Addr(l.HdrUnwind) + arch.Addr(uint32(i)*l.FuncSize)
		mem.u32(at+arch.Addr(l.FuncBegin), f.begin)
		mem.u32(at+arch.Addr(l.FuncEnd), f.end)
		mem.u32(at+arch.Addr(l.FuncUnwind), f.unwind)
	}
	mem.ptr(header1+arch.Addr(l.HdrEH), ehInfo)
	mem.u64(ehInfo-8, 2)
	mem.fill(ehInfo, 256)
	mem.u32(ehInfo+ehHeader, 0) // a catch clause; a type lies in the filter's place
	mem.u32(ehInfo+ehHeader+jitClauseFilter, 0x80)
	mem.u32(ehInfo+ehHeader+jitClauseSize, ehFilterFlag)
	mem.u32(ehInfo+ehHeader+jitClauseSize+jitClauseFilter, 0xa0)
	return mem, m
}

func TestLookupJIT(t *testing.T) { clrtest.OnEach(t, testLookupJIT) }

func testLookupJIT(t *testing.T, d *contract.Descriptor) {
	mem, m := jitHeap(t, d)
	for _, tt := range []struct {
		off     arch.Addr
		kind    Kind
		start   arch.Addr
		funclet bool
		filter  bool
	}{
		{0x00, None, 0, false, false},
		{0x3f, None, 0, false, false},
		{0x40, JIT, 0x40, false, false},
		{0xbf, JIT, 0x40, false, false},
		{0xc0, JIT, 0xc0, true, false},
		{0xdf, JIT, 0xc0, true, false},
		{0xe0, JIT, 0xe0, true, true},
		{0x12f, JIT, 0xe0, true, true},
		{0x130, None, 0, false, false}, // behind the last function
		{0x200, Stub, 0, false, false},
		{0x23f, Stub, 0, false, false},
		{0x2000, None, 0, false, false}, // behind the heap's end
		{0x10000, None, 0, false, false},
	} {
		c, err := m.Lookup(heapBase + tt.off)
		if err != nil || c.Kind != tt.kind {
			t.Errorf("+%v: %+v, %v", tt.off, c, err)
			continue
		}
		if c.Kind == Stub && (c.StubKind != 3 || c.MethodStart != heapBase+0x200) {
			t.Errorf("+%v: %+v", tt.off, c)
		}
		if c.Kind != JIT {
			continue
		}
		filter, err := m.IsFilter(&c)
		if c.Start != heapBase+tt.start || c.Funclet != tt.funclet || filter != tt.filter || err != nil ||
			c.MethodDesc != method1 || c.MethodStart != heapBase+0x40 || c.Base != heapBase || !c.Collectible {
			t.Errorf("+%v: %+v, filter %v, %v", tt.off, c, filter, err)
		}
	}
	mem.u32(section1+arch.Addr(m.l.SecFlags), sectionCodeHeap|sectionInterpreter)
	if c, err := m.Lookup(heapBase + 0x50); err != nil || c.Kind != None {
		t.Errorf("byte code: %+v, %v", c, err)
	}
}

// If the descriptor lacks the place of exception clauses in a code header, IsFilter returns an error and does not
// guess.
func TestClausesUnknown(t *testing.T) {
	_, m := jitHeap(t, clrtest.Descriptor(t, clrtest.Net10))
	m.l.HdrEH = contract.Absent
	c, err := m.Lookup(heapBase + 0xe0)
	if err != nil || !c.Funclet {
		t.Fatalf("%+v, %v", c, err)
	}
	if filter, err := m.IsFilter(&c); err == nil {
		t.Errorf("filter: %v", filter)
	}
}

func TestLookupCorrupt(t *testing.T) { clrtest.OnEach(t, testLookupCorrupt) }

func testLookupCorrupt(t *testing.T, d *contract.Descriptor) {
	for name, spoil := range map[string]func(mem memory, m *Map){
		"a fragment that follows itself": func(mem memory, m *Map) {
			frag := arch.Addr(0x300000 + levels*0x1000)
			mem.ptr(frag+arch.Addr(m.l.FragEnd), heapBase)
			mem.ptr(frag+arch.Addr(m.l.FragNext), frag)
		},
		"a section that lies elsewhere": func(mem memory, m *Map) {
			mem.ptr(section1+arch.Addr(m.l.SecEnd), heapBase+0x10)
		},
		"a heap that cannot be read": func(mem memory, m *Map) {
			mem.ptr(section1+arch.Addr(m.l.SecHeap), 0xdead0000)
		},
		"a nibble map that leads outside": func(mem memory, m *Map) { mem.u32(nibbles1, 0xfffff009) },
		"a million funclets": func(mem memory, m *Map) {
			mem.u32(header1+arch.Addr(m.l.HdrUnwinds), 1_000_000)
		},
		"a header that cannot be read": func(mem memory, _ *Map) { mem.ptr(heapBase+0x40-headerSlot, 0xdead0000) },
	} {
		mem, m := jitHeap(t, d)
		spoil(mem, m)
		if c, err := m.Lookup(heapBase + 0x50); err == nil {
			t.Errorf("%s: %+v", name, c)
		}
	}
	mem, m := jitHeap(t, d)
	mem.u64(ehInfo-8, 1<<40)
	c, err := m.Lookup(heapBase + 0xe0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.IsFilter(&c); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a trillion clauses: %v", err)
	}
	mem.ptr(section1+arch.Addr(m.l.SecDelete), 1)
	if c, err := m.Lookup(heapBase + 0x50); err != nil || c.Kind != None {
		t.Errorf("a section on its way out: %+v, %v", c, err)
	}
}

// wrapped is memory of fuzz data, repeated: seven pages in eight can be read.
type wrapped []byte

func (w wrapped) ReadMemory(p []byte, addr arch.Addr) error {
	if len(w) == 0 || addr>>12&7 == 7 {
		return &target.ReadError{Addr: addr, Len: len(p)}
	}
	for i := range p {
		p[i] = w[(uint64(addr)+uint64(i))%uint64(len(w))]
	}
	return nil
}

// FuzzLookup: whatever the memory holds, Lookup returns, and the answer is consistent.
func FuzzLookup(f *testing.F) {
	f.Add(make([]byte, 64), uint64(0x7f00_0002_0050))
	f.Add([]byte("\x00\x10\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\x7f\x00\x00\x02\x00\x00\x00"), uint64(0x1000))
	f.Fuzz(func(t *testing.T, data []byte, ip uint64) {
		if len(data) > 4096 {
			return
		}
		m := newMap(t, wrapped(data))
		c, err := m.Lookup(arch.Addr(ip))
		if err != nil {
			return
		}
		if c.Kind.Managed() && !arch.Addr(ip).In(c.Start, c.End) {
			t.Fatalf("%#x is not in %+v", ip, c)
		}
		m.IsFilter(&c)
	})
}
