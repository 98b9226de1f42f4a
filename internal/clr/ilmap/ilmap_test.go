package ilmap

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"

	"clrsnap/internal/testenv"
)

// TestNumbers are the examples of the contract DebugInfo.
func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		want uint32
		b    []byte
	}{
		{0, []byte{0x00}}, {1, []byte{0x01}}, {7, []byte{0x07}}, {8, []byte{0x09}}, {9, []byte{0x19}},
		{63, []byte{0x7f}}, {64, []byte{0x89, 0x00}}, {511, []byte{0xff, 0x07}}, {512, []byte{0x89, 0x08}},
		{513, []byte{0x89, 0x18}},
	} {
		r := nibbles{b: c.b}
		if got := r.number(); got != c.want || r.bad {
			t.Errorf("% x: %d, bad %v, want %d", c.b, got, r.bad, c.want)
		}
	}
}

// writer encodes the input of this package.
type writer struct {
	b    []byte
	half bool
}

func (w *writer) nibble(n byte) {
	if w.half {
		w.b[len(w.b)-1] |= n << 4
	} else {
		w.b = append(w.b, n)
	}
	w.half = !w.half
}

func (w *writer) number(v uint32) {
	shift := 0
	for v>>shift > 7 && shift < 30 {
		shift += 3
	}
	for ; shift > 0; shift -= 3 {
		w.nibble(byte(v>>shift&7) | 8)
	}
	w.nibble(byte(v & 7))
}

func (w *writer) bits(v uint64, n uint, at *uint) {
	for i := range n {
		if *at%8 == 0 {
			w.b = append(w.b, 0)
		}
		w.b[len(w.b)-1] |= byte(v>>i&1) << (*at % 8)
		*at++
	}
}

func encode(m Map, f form) []byte {
	w := &writer{}
	w.number(uint32(len(m)))
	const native, il = 12, 17
	if f.packed != 0 {
		w.number(native - 1)
		w.number(il - 1)
		w.half = false
	}
	last, at := uint32(0), uint(0)
	for _, p := range m {
		flags := uint64(0)
		set := func(is bool, nibble, packed uint64) {
			switch {
			case is && f.packed == 0:
				flags |= nibble
			case is:
				flags |= packed
			}
		}
		set(p.Call, sourceCall, packedCall)
		set(p.StackEmpty, sourceStackEmpty, packedStackEmpty)
		set(p.Async, 0, packedAsync)
		if f.packed == 0 {
			w.number(p.Native - last)
			w.number(p.IL + ilBias)
			w.number(uint32(flags))
		} else {
			w.bits(flags, f.packed, &at)
			w.bits(uint64(p.Native-last), native, &at)
			w.bits(uint64(p.IL+ilBias), il, &at)
		}
		last = p.Native
	}
	return w.b
}

var forms = map[string]form{
	".NET 8 and 9": {extra: true}, "ReadyToRun before 16": {}, ".NET 10": {extra: true, packed: 2},
	".NET 11": {fat: true, packed: 3},
}

func TestDecode(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for name, f := range forms {
		for range 200 {
			var m Map
			native := uint32(0)
			for range 1 + r.IntN(40) {
				p := Point{Native: native, IL: uint32(r.IntN(1<<16)) - 3, Call: r.IntN(2) == 0,
					StackEmpty: r.IntN(2) == 0}
				p.Async = f.packed == 3 && r.IntN(2) == 0
				m = append(m, p)
				native += uint32(r.IntN(1 << 12))
			}
			got, err := decode(encode(m, f), f)
			if err != nil || !reflect.DeepEqual(got, m) {
				t.Fatalf("%s: %v\n got %v\nwant %v", name, err, got, m)
			}
			if cut := encode(m, f); len(cut) > 4 {
				if _, err := decode(cut[:len(cut)/2], f); !errors.Is(err, ErrCorrupt) {
					t.Errorf("%s: half of the bytes: %v", name, err)
				}
			}
		}
	}
}

func TestHeader(t *testing.T) {
	numbers := func(list ...uint32) []byte {
		w := &writer{}
		for _, v := range list {
			w.number(v)
		}
		return append(w.b, make([]byte, 8)...)
	}
	for _, c := range []struct {
		form string
		b    []byte
		size uint32
	}{
		{".NET 8 and 9", numbers(100, 7), 100},
		{".NET 10", numbers(100, 7), 100},
		{".NET 10", numbers(hasInstrumented, 200, 100, 7), 200},
		{".NET 11", numbers(100, 7), 100},
		{".NET 11", numbers(0, 300, 7, 200, 0, 0, 0), 300},
	} {
		h, err := readHeader(c.b, forms[c.form])
		if err != nil || h.size != c.size || int(h.at) != len(c.b)-8 {
			t.Errorf("%s: %+v, %v, want %d bytes at %d", c.form, h, err, c.size, len(c.b)-8)
		}
	}
	h, err := readHeader(numbers(0, 300, 7, 200, 50, 20, 9), forms[".NET 11"])
	if err != nil || h.vars != 7 || h.async != 270 || h.asyncs != 9 {
		t.Errorf("%+v, %v", h, err)
	}
	if h, err := readHeader(numbers(0, 300, 7, 0xffff_ffff, 50, 20, 9), forms[".NET 11"]); !errors.Is(err, ErrCorrupt) {
		t.Errorf("too much in between: %+v, %v", h, err)
	}
	if _, err := readHeader([]byte{0xff, 0xff}, form{}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a header that does not end: %v", err)
	}
}

// TestAwait: only a point for suspensions at exactly the method's offset counts as the await.
func TestAwait(t *testing.T) {
	m := Map{
		{Native: 5, IL: 7}, {Native: 9, IL: 12, Async: true}, {Native: 9, IL: 13},
		{Native: 20, IL: NoMapping, Async: true}, {Native: 30, IL: 4},
	}
	for native, want := range map[uint32]int{5: -1, 9: 12, 10: -1, 20: -1, 30: -1} {
		if il, ok := m.Await(native); ok != (want >= 0) || ok && int(il) != want {
			t.Errorf("%d: %d, %v, want %d", native, il, ok, want)
		}
	}
}

func TestIL(t *testing.T) {
	m := Map{{Native: 0, IL: Prolog}, {Native: 5, IL: 0}, {Native: 9, IL: 12}, {Native: 20, IL: NoMapping},
		{Native: 30, IL: 4}, {Native: 40, IL: Epilog}}
	for _, c := range []struct {
		native, il uint32
		exact      bool
	}{
		{0, 0, true}, {4, 0, true}, {5, 0, true}, {8, 0, true}, {9, 12, true}, {19, 12, true}, {20, 12, false},
		{29, 12, false}, {30, 4, true}, {39, 4, true}, {40, 4, true}, {0xffff_ffff, 4, true},
	} {
		if il, exact := m.IL(c.native); il != c.il || exact != c.exact {
			t.Errorf("%d: %d, exact %v, want %d, %v", c.native, il, exact, c.il, c.exact)
		}
	}
	if il, exact := Map(nil).IL(3); il != 0 || !exact {
		t.Errorf("an empty map: %d, %v", il, exact)
	}
}

// FuzzDecode: any bytes give points or an error, for little memory.
func FuzzDecode(f *testing.F) {
	m := Map{{Native: 0, IL: Prolog}, {Native: 5, IL: 0}, {Native: 9, IL: 12, Call: true}}
	for _, form := range forms {
		f.Add(encode(m, form), form.packed, form.extra)
	}
	f.Fuzz(func(t *testing.T, b []byte, packed uint, extra bool) {
		form := form{extra: extra, packed: packed % 4, fat: !extra}
		if form.packed == 1 {
			form.packed = 2
		}
		readHeader(b, form)
		testenv.Allocates(t, len(b), 64, 1<<14, func() {
			m, err := decode(b, form)
			if err == nil && len(m) > 8*len(b) {
				t.Errorf("%d points of %d bytes", len(m), len(b))
			}
			m.IL(uint32(len(b)))
		})
	})
}

func TestNext(t *testing.T) {
	m := Map{{Native: 0, IL: Prolog}, {Native: 4, IL: 0}, {Native: 9, IL: 12}, {Native: 11, IL: NoMapping},
		{Native: 20, IL: 5}, {Native: 30, IL: Epilog}}
	for _, c := range [][2]uint32{{0, 5}, {4, 5}, {5, 12}, {12, NoMapping}, {40, NoMapping}} {
		if got := m.Next(c[0]); got != c[1] {
			t.Errorf("behind IL %d comes %#x, want %#x", c[0], got, c[1])
		}
	}
}
