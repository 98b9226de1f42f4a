package codemap

import (
	"errors"
	"slices"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/contract"
)

func TestSamples(t *testing.T) { clrtest.OnEach(t, testSamples) }

func testSamples(t *testing.T, d *contract.Descriptor) {
	mem, m := jitHeap(t, d)
	if got, err := m.Samples(10); err != nil || len(got) != 0 {
		t.Errorf("of code that can be unloaded: %v, %v", got, err)
	}
	mem.u32(section1+arch.Addr(m.l.SecFlags), sectionCodeHeap)
	// The stub in the heap is no method.
	if got, err := m.Samples(10); err != nil || !slices.Equal(got, []Sample{{JIT, heapBase + 0x40}}) {
		t.Errorf("of a heap: %v, %v", got, err)
	}

	mem, m = r2rImage(t, d)
	got, err := m.Samples(10)
	slices.SortFunc(got, func(a, b Sample) int { return int(a.Start) - int(b.Start) })
	if err != nil || !slices.Equal(got, []Sample{{ReadyToRun, imageBase + 0x1000}, {ReadyToRun, imageBase + 0x2000}}) {
		t.Errorf("of an image: %v, %v", got, err)
	}
	if got, err := m.Samples(1); err != nil || len(got) == 0 {
		t.Errorf("one of an image: %v, %v", got, err)
	}
	for what, spoil := range map[string]func(){
		"no ReadyToRun header":      func() { mem.u32(r2rHdr, 0x1234) },
		"thunks beyond the image":   func() { mem.u32(0x215000+arch.Addr(m.l.DirSize), 0x100000) },
		"a hash map of one bucket":  func() { mem.u32(r2rTable, 1) },
		"a range section elsewhere": func() { mem.ptr(section1+arch.Addr(m.l.SecBegin), imageBase+0x1000) },
	} {
		mem, m = r2rImage(t, d)
		spoil()
		if got, err := m.Samples(10); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
}

// TestSamplesEnd: Samples leaves a range section map that leads back into itself.
func TestSamplesEnd(t *testing.T) {
	mem := memory{}
	m := newMap(t, mem)
	mem.fill(m.l.TopMap, 0x1000)
	for i := range arch.Addr(256) {
		mem.ptr(m.l.TopMap+8*i, m.l.TopMap)
	}
	if got, err := m.Samples(10); len(got) != 0 || !errors.Is(err, ErrCorrupt) {
		t.Errorf("%v, %v", got, err)
	}
}
