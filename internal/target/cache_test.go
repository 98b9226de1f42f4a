package target

import (
	"bytes"
	"errors"
	"math/rand"
	"testing"

	"clrsnap/internal/arch"
)

// ram is a Memory with holes that counts its reads.
type ram struct {
	base  arch.Addr
	data  []byte
	holes map[arch.Addr]bool // page addresses
	calls int
}

func (r *ram) ReadMemory(p []byte, addr arch.Addr) error {
	r.calls++
	o := uint64(addr - r.base)
	if o > uint64(len(r.data)) || uint64(len(p)) > uint64(len(r.data))-o {
		return &ReadError{Addr: addr, Len: len(p)}
	}
	for a := addr &^ (pageSize - 1); a < addr+arch.Addr(len(p)); a += pageSize {
		if r.holes[a] {
			return &ReadError{Addr: addr, Len: len(p)}
		}
	}
	copy(p, r.data[o:])
	return nil
}

func newRAM(pages, tail int) *ram {
	r := &ram{base: 0x10000, data: make([]byte, pages*pageSize+tail), holes: map[arch.Addr]bool{}}
	rand.New(rand.NewSource(1)).Read(r.data)
	return r
}

func TestCacheReadsWhatMemoryHolds(t *testing.T) {
	r := newRAM(64, 100)
	r.holes[0x10000+7*pageSize] = true
	c := NewCache(r, 16)
	rnd := rand.New(rand.NewSource(2))
	for range 20000 {
		addr := r.base + arch.Addr(rnd.Intn(len(r.data)+pageSize)) - 200
		n := rnd.Intn(5000)
		if rnd.Intn(50) == 0 {
			n *= 20
		}
		got, want := make([]byte, n), make([]byte, n)
		gerr, werr := c.ReadMemory(got, addr), r.ReadMemory(want, addr)
		if n == 0 {
			continue
		}
		if (gerr == nil) != (werr == nil) || gerr == nil && !bytes.Equal(got, want) {
			t.Fatalf("read of %d at %v: %v, memory says %v", n, addr, gerr, werr)
		}
		if c.Len() > 16 {
			t.Fatalf("%d pages held, bound is 16", c.Len())
		}
	}
}

func TestCacheBatchesAndForgets(t *testing.T) {
	r := newRAM(32, 0)
	c := NewCache(r, 0)
	p := make([]byte, 8*pageSize)
	if err := c.ReadMemory(p, r.base+5); err != nil || r.calls != 1 {
		t.Fatalf("9 pages: %v, %d calls, want 1", err, r.calls)
	}
	for i := range 100 {
		if err := c.ReadMemory(p[:8], r.base+arch.Addr(i*300)); err != nil {
			t.Fatal(err)
		}
	}
	if r.calls != 1 {
		t.Fatalf("%d calls for pages that are held", r.calls)
	}
	r.data[5]++
	c.Invalidate()
	if err := c.ReadMemory(p[:1], r.base+5); err != nil || p[0] != r.data[5] {
		t.Fatalf("stale byte after Invalidate (%v)", err)
	}
}

func TestCacheNeverKeepsAFailure(t *testing.T) {
	r := newRAM(4, 0)
	r.holes[r.base] = true
	c := NewCache(r, 0)
	var p [8]byte
	var re *ReadError
	if err := c.ReadMemory(p[:], r.base+16); !errors.As(err, &re) || re.Addr != r.base+16 || re.Len != 8 {
		t.Fatalf("hole: %v", err)
	}
	delete(r.holes, r.base)
	if err := c.ReadMemory(p[:], r.base+16); err != nil {
		t.Fatalf("the page is there now: %v", err)
	}
	if err := c.ReadMemory(p[:], ^arch.Addr(0)-3); err == nil {
		t.Fatal("a range beyond the address space was read")
	}
}

func TestMappingsFind(t *testing.T) {
	ms := Mappings{{Start: 0x1000, End: 0x2000}, {Start: 0x2000, End: 0x3000}, {Start: 0x5000, End: 0x6000}}
	for addr, want := range map[arch.Addr]int{
		0: -1, 0xfff: -1, 0x1000: 0, 0x1fff: 0, 0x2000: 1, 0x3000: -1, 0x5000: 2, 0x5fff: 2, 0x6000: -1,
	} {
		m := ms.Find(addr)
		if want < 0 != (m == nil) || m != nil && m != &ms[want] {
			t.Errorf("Find(%v) = %v, want %d", addr, m, want)
		}
	}
	if !ms.Sorted() || (Mappings{ms[1], ms[0]}).Sorted() || (Mappings{{Start: 2, End: 1}}).Sorted() {
		t.Error("Sorted is wrong")
	}
	if s := (PermRead | PermExec).String(); s != "r-xp" {
		t.Error(s)
	}
}

func BenchmarkCacheHit(b *testing.B) {
	c := NewCache(newRAM(32, 0), 0)
	var p [8]byte
	for i := 0; b.Loop(); i++ {
		if c.ReadMemory(p[:], 0x10000+arch.Addr(i&31)*pageSize) != nil {
			b.Fatal("read")
		}
	}
}

// TestCacheGivesBack: after a moment with many pages come moments with few pages.
func TestCacheGivesBack(t *testing.T) {
	r := newRAM(8*chunkPages, 0)
	c := NewCache(r, 8*chunkPages)
	var b [8]byte
	read := func(pages int) {
		t.Helper()
		c.Invalidate()
		for i := range pages {
			at := r.base + arch.Addr(i)*pageSize
			if err := c.ReadMemory(b[:], at); err != nil || !bytes.Equal(b[:], r.data[i*pageSize:][:8]) {
				t.Fatalf("page %d: %x, %v", i, b, err)
			}
		}
	}
	read(8 * chunkPages)
	for range 100 {
		read(chunkPages + 1)
	}
	if n := len(c.pages); n != 2 {
		t.Errorf("%d chunks for %d pages", n, chunkPages+1)
	}
	read(8 * chunkPages)
	for range 100 {
		read(3 * chunkPages)
		read(8 * chunkPages)
	}
	if n := len(c.pages); n != 8 {
		t.Errorf("%d chunks for pages that are needed again and again", n)
	}
}
