package codemap

import (
	"errors"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/contract"
)

const (
	imageBase = arch.Addr(0x7f10_0000_0000)
	r2rModule = arch.Addr(0x210000)
	r2rInfo   = arch.Addr(0x211000)
	r2rFuncs  = arch.Addr(0x212000)
	r2rTable  = arch.Addr(0x213000)
	r2rHdr    = imageBase + 0x100
)

// insert adds a pair to a HashMap as the runtime does (hash.cpp, InsertValue).
func insert(mem memory, l *layout, buckets arch.Addr, size uint32, key, value uint64) {
	seed, step := uint32(key>>2), 1+(uint32(key>>5)+1)%(size-1)
	for {
		b := buckets + arch.Addr(l.BucketSize)*arch.Addr(1+uint64(seed%size))
		r := newReader(mem)
		for slot := arch.Addr(0); slot < arch.Addr(l.BucketSlots); slot++ {
			if k, _ := r.Uint64(b + arch.Addr(l.BucketKeys) + 8*slot); k == 0 {
				v, _ := r.Uint64(b + arch.Addr(l.BucketVals) + 8*slot)
				mem.u64(b+arch.Addr(l.BucketKeys)+8*slot, key)
				mem.u64(b+arch.Addr(l.BucketVals)+8*slot, v&^l.BucketMask|value>>1)
				return
			}
		}
		first, _ := r.Uint64(b + arch.Addr(l.BucketVals))
		mem.u64(b+arch.Addr(l.BucketVals), first|^l.BucketMask)
		seed += step
	}
}

func emptyHash(mem memory, l *layout, at, buckets arch.Addr, size uint32) {
	mem.fill(at, 64)
	mem.ptr(at+arch.Addr(l.MapBuckets), buckets)
	mem.fill(buckets, int(l.BucketSize*(size+1)))
	mem.u32(buckets, size)
}

// lookup has the whole budget for one key.
func lookup(m *Map, at arch.Addr, key uint64) (uint64, bool, error) {
	budget := maxProbes
	return m.hashLookup(at, key, &budget)
}

func TestHashLookup(t *testing.T) {
	for _, size := range []uint32{2, 5, 11, 97} {
		mem := memory{}
		m := newMap(t, mem)
		const at, buckets = 0x220000, 0x221000
		emptyHash(mem, &m.l, at, buckets, size)
		n := uint64(size*uint32(m.l.BucketSlots)) - 2 // nearly full: many collisions
		for i := range n {
			insert(mem, &m.l, buckets, size, 0x7f10_0000_1000+i*0x24, 0x5500_0000_0000+i*8)
		}
		for i := range n {
			v, ok, err := lookup(m, at, 0x7f10_0000_1000+i*0x24)
			if err != nil || !ok || v != 0x5500_0000_0000+i*8 {
				t.Fatalf("%d buckets, key %d: %#x, %v, %v", size, i, v, ok, err)
			}
		}
		for i := range 50 {
			if v, ok, err := lookup(m, at, uint64(0x7f20_0000_0000+i*4)); ok || err != nil {
				t.Fatalf("%d buckets: a key that is not there: %#x, %v", size, v, err)
			}
		}
	}
	mem := memory{}
	m := newMap(t, mem)
	for _, size := range []uint32{0, 1, 1 << 31} {
		emptyHash(mem, &m.l, 0x220000, 0x221000, 3)
		mem.u32(0x221000, size)
		if _, _, err := lookup(m, 0x220000, 8); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d buckets: %v", size, err)
		}
	}
	emptyHash(mem, &m.l, 0x220000, 0x221000, 5)
	insert(mem, &m.l, 0x221000, 5, 8, 0x5500_0000_0000)
	spent := 0
	if _, _, err := m.hashLookup(0x220000, 8, &spent); !errors.Is(err, ErrCorrupt) {
		t.Errorf("without any budget: %v", err)
	}
}

// r2rImage is an image with some functions: method A 0x1000–0x1100 with a filter 0x1100–0x1140, method B
// 0x2000–0x2080, and the cold part of A 0x3000–0x3020, if the runtime knows cold parts. Delay-load thunks lie at
// 0x4000–0x4100.
func r2rImage(t *testing.T, d *contract.Descriptor) (memory, *Map) {
	mem := memory{}
	m := newMapOf(t, mem, d)
	l := &m.l
	mem.addSection(l, 0x300000, imageBase, imageBase+0x10000, section1, 0)
	mem.ptr(section1+arch.Addr(l.SecR2R), r2rModule)
	mem.fill(r2rModule, 4096)
	mem.ptr(r2rModule+arch.Addr(l.ModR2R), r2rInfo)
	mem.fill(r2rInfo, 4096)
	mem.ptr(r2rInfo+arch.Addr(l.R2RHeader), r2rHdr)
	mem.ptr(r2rInfo+arch.Addr(l.R2RFuncs), r2rFuncs)
	mem.u32(r2rInfo+arch.Addr(l.R2RCount), 4)
	for i, f := range []runtimeFunction{
		{0x1000, 0x1100, 0x800}, {0x1100, 0x1140, 0x810}, {0x2000, 0x2080, 0x820}, {0x3000, 0x3020, 0x830},
	} {
		at := r2rFuncs + arch.Addr(uint32(i)*l.FuncSize)
		mem.u32(at+arch.Addr(l.FuncBegin), f.begin)
		mem.u32(at+arch.Addr(l.FuncEnd), f.end)
		mem.u32(at+arch.Addr(l.FuncUnwind), f.unwind)
	}
	if l.R2RHot != contract.Absent {
		mem.ptr(r2rInfo+arch.Addr(l.R2RHot), 0x214000)
		mem.u32(r2rInfo+arch.Addr(l.R2RHotN), 2)
		mem.u32(0x214000, 3)
		mem.u32(0x214004, 0)
	}
	mem.ptr(r2rInfo+arch.Addr(l.R2RThunks), 0x215000)
	mem.u32(0x215000+arch.Addr(l.DirRVA), 0x4000)
	mem.u32(0x215000+arch.Addr(l.DirSize), 0x100)
	emptyHash(mem, l, r2rInfo+arch.Addr(l.R2RMethods), r2rTable, 5)
	insert(mem, l, r2rTable, 5, uint64(imageBase)+0x1000, 0xaaa0)
	insert(mem, l, r2rTable, 5, uint64(imageBase)+0x2000, 0xbbb0)

	// One clause for A, a filter at +0x100; a catch for B.
	mem.fill(imageBase, 0x1000)
	mem.u32(r2rHdr, r2rSignature)
	mem.u32(r2rHdr+r2rSectionCount, 2)
	mem.u32(r2rHdr+r2rSections, 100)
	mem.u32(r2rHdr+r2rSections+r2rSectionSize, r2rExceptionInfo)
	mem.u32(r2rHdr+r2rSections+r2rSectionSize+4, 0x200)
	mem.u32(r2rHdr+r2rSections+r2rSectionSize+8, 24)
	for i, v := range []uint32{0x1000, 0x300, 0x2000, 0x300 + r2rClauseSize, 0xffffffff, 0x300 + 2*r2rClauseSize} {
		mem.u32(imageBase+0x200+arch.Addr(4*i), v)
	}
	mem.u32(imageBase+0x300, ehFilterFlag)
	mem.u32(imageBase+0x300+r2rClauseFilter, 0x100)
	return mem, m
}

func TestLookupR2R(t *testing.T) { clrtest.OnEach(t, testLookupR2R) }

func testLookupR2R(t *testing.T, d *contract.Descriptor) {
	_, m := r2rImage(t, d)
	cold := arch.Addr(0xaaa0)
	if m.l.R2RHot == contract.Absent {
		cold = 0xbbb0 // code like any other behind method B
	}
	for _, tt := range []struct {
		rva     arch.Addr
		kind    Kind
		start   arch.Addr
		method  arch.Addr
		funclet bool
		filter  bool
	}{
		{0xfff, None, 0, 0, false, false},
		{0x1000, ReadyToRun, 0x1000, 0xaaa0, false, false},
		{0x10ff, ReadyToRun, 0x1000, 0xaaa0, false, false},
		{0x1100, ReadyToRun, 0x1100, 0xaaa0, true, true},
		{0x1140, None, 0, 0, false, false},
		{0x2000, ReadyToRun, 0x2000, 0xbbb0, false, false},
		{0x207f, ReadyToRun, 0x2000, 0xbbb0, false, false},
		{0x2080, None, 0, 0, false, false},
		{0x3000, ReadyToRun, 0x3000, cold, cold == 0xbbb0, false},
		{0x4000, Stub, 0, 0, false, false},
		{0x4100, None, 0, 0, false, false},
	} {
		c, err := m.Lookup(imageBase + tt.rva)
		if err != nil || c.Kind != tt.kind || c.MethodDesc != tt.method || c.Funclet != tt.funclet {
			t.Errorf("RVA %v: %+v, %v", tt.rva, c, err)
			continue
		}
		if c.Kind != ReadyToRun {
			continue
		}
		filter, err := m.IsFilter(&c)
		if c.Start != imageBase+tt.start || filter != tt.filter || err != nil {
			t.Errorf("RVA %v: %+v, filter %v, %v", tt.rva, c, filter, err)
		}
	}
	if m.l.R2RHot == contract.Absent {
		return
	}
	mem, m := r2rImage(t, d)
	mem.u32(0x214004, 9)
	if c, err := m.Lookup(imageBase + 0x3000); err == nil {
		t.Errorf("a cold part of function 9 of 4: %+v", c)
	}
}

// TestNotRunR2R: code of a method that the runtime does not know has no method, and above all not the method before.
// The funclets of known methods have one.
func TestNotRunR2R(t *testing.T) { clrtest.OnEach(t, testNotRunR2R) }

func testNotRunR2R(t *testing.T, d *contract.Descriptor) {
	mem, _ := r2rImage(t, d)
	// Methods A and B, and not the filter between, have debug info: entries 0 and 2 of the array.
	mem.u32(r2rHdr+r2rSections, r2rDebugInfo)
	mem.u32(r2rHdr+r2rSections+4, 0x500)
	mem.u32(r2rHdr+r2rSections+8, 16)
	mem.write(imageBase+0x500, []byte{4 << 2 << 1, 1, 2, 2, 3<<1 | 2<<2<<1, 2, 0xaa, 2, 0xbb})
	for table, known := range map[arch.Addr]bool{0x230000: true, 0x240000: false} {
		m := newMapOf(t, mem, d)
		l := &m.l
		emptyHash(mem, l, r2rInfo+arch.Addr(l.R2RMethods), table, 5)
		insert(mem, l, table, 5, uint64(imageBase)+0x1000, 0xaaa0)
		if known {
			insert(mem, l, table, 5, uint64(imageBase)+0x2000, 0xbbb0)
		}
		for _, rva := range []arch.Addr{0x1000, 0x1100} {
			if c, err := m.Lookup(imageBase + rva); err != nil || c.MethodDesc != 0xaaa0 {
				t.Errorf("%v of method A: %+v, %v", rva, c, err)
			}
		}
		c, err := m.Lookup(imageBase + 0x2010)
		if known && (err != nil || c.MethodDesc != 0xbbb0) ||
			!known && (!errors.Is(err, ErrCorrupt) || c.MethodDesc != 0) {
			t.Errorf("method B, known %v: %+v, %v", known, c, err)
		}
	}
}
