package codemap

import (
	"slices"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/contract"
)

func TestCollectible(t *testing.T) { clrtest.OnEach(t, testCollectible) }

func testCollectible(t *testing.T, d *contract.Descriptor) {
	mem, m := jitHeap(t, d)
	// The second block has stubs: Lookup tells.
	want := []arch.Addr{heapBase + 0x40, heapBase + 0x200}
	if got, whole := m.Collectible(10); !whole || !slices.Equal(got, want) {
		t.Errorf("of a heap: %v, %v", got, whole)
	}
	if got, whole := m.Collectible(1); whole || len(got) == 0 {
		t.Errorf("one of two: %v, %v", got, whole)
	}
	mem.ptr(heapNode+arch.Addr(m.l.HeapEnd), heapBase-1)
	if got, whole := m.Collectible(10); whole || len(got) != 0 {
		t.Errorf("of a heap that ends before it begins: %v, %v", got, whole)
	}
	mem.ptr(heapNode+arch.Addr(m.l.HeapEnd), 1<<60)
	if got, whole := m.Collectible(10); whole || len(got) > 2+nibblesInWord*4096/4 {
		t.Errorf("of a heap that does not end: %d, %v", len(got), whole)
	}
	mem, m = jitHeap(t, d)
	mem.u32(section1+arch.Addr(m.l.SecFlags), sectionCodeHeap)
	if got, whole := m.Collectible(10); !whole || len(got) != 0 {
		t.Errorf("of a heap that stays: %v, %v", got, whole)
	}
	_, m = r2rImage(t, d)
	if got, whole := m.Collectible(10); !whole || len(got) != 0 {
		t.Errorf("of an image: %v, %v", got, whole)
	}
}

// TestCollectibleEnd: Collectible leaves a range section map that leads back into itself.
func TestCollectibleEnd(t *testing.T) {
	mem := memory{}
	m := newMap(t, mem)
	mem.fill(m.l.TopMap, 0x1000)
	for i := range arch.Addr(256) {
		mem.ptr(m.l.TopMap+8*i, m.l.TopMap)
	}
	if got, whole := m.Collectible(10); whole || len(got) != 0 {
		t.Errorf("%v, %v", got, whole)
	}
}
