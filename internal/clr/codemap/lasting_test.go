package codemap

import (
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/contract"
)

// TestLasting: another address in lasting code needs no read. Code that can be unloaded, addresses without code, and
// stubs are read each time.
func TestLasting(t *testing.T) { clrtest.OnEach(t, testLasting) }

func testLasting(t *testing.T, d *contract.Descriptor) {
	mem, m := jitHeap(t, d)
	mem.u32(section1+arch.Addr(m.l.SecFlags), sectionCodeHeap)
	first, err := m.Lookup(heapBase + 0x50)
	if err != nil || first.Kind != JIT {
		t.Fatalf("%+v, %v", first, err)
	}
	mem.ptr(m.l.TopMap, 0)
	mem.ptr(heapBase+0x40-headerSlot, 0xdead0000)
	if c, err := m.Lookup(first.End - 1); err != nil || c != first {
		t.Errorf("the same code: %+v, %v, want %+v", c, err, first)
	}
	for _, at := range []arch.Addr{0x3f, 0xc0} { // no code, and a funclet that has not been met
		if c, err := m.Lookup(heapBase + at); err == nil && c.Kind != None {
			t.Errorf("+%v: %+v", at, c)
		}
	}
	mem, m = jitHeap(t, d) // with code that can be unloaded
	if c, err := m.Lookup(heapBase + 0x50); err != nil || !c.Collectible {
		t.Fatalf("%+v, %v", c, err)
	}
	mem.ptr(header1+arch.Addr(m.l.HdrMethod), method1+8)
	if c, err := m.Lookup(heapBase + 0x50); err != nil || c.MethodDesc != method1+8 {
		t.Errorf("other code in the same place: %+v, %v", c, err)
	}
}

// TestLastingBounded: more code than lasting remembers, and code of any size.
func TestLastingBounded(t *testing.T) {
	var l lasting
	for i := range arch.Addr(2 * maxLastingCodes) {
		l.add(&Code{Kind: JIT, Start: i * 64, End: i*64 + 32})
	}
	l.add(&Code{Kind: JIT, Start: 0, End: 1 << 40})
	l.add(&Code{Kind: JIT, Start: 8, End: 8})
	for range 2 * maxLastingInPage {
		l.add(&Code{Kind: ReadyToRun, Start: 1 << 30, End: 1<<30 + 1})
	}
	for i := range 2 * maxLastingSections {
		l.addSection(&section{begin: arch.Addr(i), end: arch.Addr(i + 1)})
	}
	all := 0
	for _, in := range l.codes {
		all += len(in)
	}
	if all > maxLastingCodes+maxLastingPages || len(l.sections) > maxLastingSections {
		t.Errorf("%d codes and %d sections", all, len(l.sections))
	}
}
