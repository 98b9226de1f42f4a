package ilmap

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/target"
	"clrsnap/internal/testenv"
)

func (w *writer) signed(v int32) {
	if v < 0 {
		w.number(uint32(-v)<<1 | 1)
		return
	}
	w.number(uint32(v) << 1)
}

func (w *writer) plain(v uint32) {
	for i := range 8 {
		w.nibble(byte(v >> (4 * i) & 0xf))
	}
}

// encodeTree writes the input of decodeTree; links are the first child and the next sibling of each node.
func encodeTree(t *Tree, links [][2]uint32) []byte {
	w := &writer{}
	w.number(uint32(len(t.Nodes)))
	w.number(uint32(len(t.Points)))
	il, last := uint32(Prolog), [2]uint32{}
	for i, n := range t.Nodes {
		w.plain(uint32(n.Method))
		w.plain(uint32(n.Method >> 32))
		w.signed(int32(n.IL - il))
		il = n.IL
		for k, v := range links[i] {
			w.signed(int32(v - last[k]))
			last[k] = v
		}
	}
	native, node, il := uint32(0), 0, uint32(Prolog)
	for _, p := range t.Points {
		w.number(p.Native - native)
		w.signed(int32(p.Node - node))
		w.signed(int32(p.IL - il))
		w.number(2)
		native, node, il = p.Native, p.Node, p.IL
	}
	return append(w.b, 0)
}

// someTree has a method with two inlined methods, and a third method inlined into the second.
func someTree() (*Tree, [][2]uint32) {
	return &Tree{
		Nodes:  []TreeNode{{0x7f00_1234_5678, -1, NoMapping}, {0x1000, 2, 12}, {0x2000, 0, 5}, {0x3000, 0, 40}},
		Points: []TreePoint{{0, 0, 0}, {8, 2, 0}, {20, 1, 3}, {20, 2, 7}, {90, 0, 44}},
	}, [][2]uint32{{3, 0}, {0, 0}, {1, 0}, {0, 2}}
}

func TestDecodeTree(t *testing.T) {
	want, links := someTree()
	got, err := decodeTree(encodeTree(want, links))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, %v", got, err)
	}
	for native, node := range map[uint32]int{0: 0, 7: 0, 8: 2, 19: 2, 20: 2, 89: 2, 90: 0, 1 << 31: 0} {
		if p, ok := got.At(native); !ok || p.Node != node {
			t.Errorf("at %d: %+v, %v, want node %d", native, p, ok, node)
		}
	}
	if p, ok := (&Tree{Points: []TreePoint{{Native: 5}}}).At(4); ok {
		t.Errorf("before the first point: %+v", p)
	}
	for what, links := range map[string][][2]uint32{
		"a circle": {{3, 0}, {2, 0}, {1, 0}, {0, 2}}, "an orphan": {{3, 0}, {0, 0}, {0, 0}, {0, 2}},
		"two parents": {{3, 0}, {2, 0}, {0, 1}, {0, 2}}, "no such node": {{4, 0}, {0, 0}, {1, 0}, {0, 2}},
	} {
		if got, err := decodeTree(encodeTree(want, links)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
}

func TestStatement(t *testing.T) {
	m := Map{{Native: 0, IL: Prolog}, {Native: 5, IL: 0}, {Native: 9, IL: 12}, {Native: 20, IL: 30},
		{Native: 30, IL: 4}, {Native: 40, IL: NoMapping}, {Native: 50, IL: Epilog}}
	const all = ^uint32(0)
	for _, c := range []struct{ native, start, end uint32 }{
		{0, 0, 12}, {5, 0, 12}, {9, 4, all}, {25, 12, all}, {30, 0, 30}, {45, 0, all},
	} {
		if start, end := m.Statement(c.native); start != c.start || end != c.end {
			t.Errorf("%d: from %d to %d, want %d to %d", c.native, start, end, c.start, c.end)
		}
	}
}

// FuzzDecodeTree: any bytes give a tree or an error, for little memory.
func FuzzDecodeTree(f *testing.F) {
	f.Add(encodeTree(someTree()))
	f.Fuzz(func(t *testing.T, b []byte) {
		testenv.Allocates(t, len(b), 64, 1<<14, func() {
			tree, err := decodeTree(b)
			if err == nil {
				tree.At(uint32(len(b)))
			}
		})
	})
}

// TestTreeBehindFatHeader: in .NET 11 the tree is among the parts behind the header.
func TestTreeBehindFatHeader(t *testing.T) {
	want, links := someTree()
	tree := encodeTree(want, links)
	w := &writer{}
	for _, size := range []int{40, 16, 8, 24, len(tree), 8} {
		if len(w.b) == 0 {
			w.number(0)
		}
		w.number(uint32(size))
	}
	const at = arch.Addr(0x10000)
	all := slices.Concat(w.b, make([]byte, 40+16+8+24), tree, make([]byte, 64))
	mem := clrtest.Words{}
	for i, b := range all {
		p := at + arch.Addr(i)
		mem[p&^7] |= uint64(b) << (8 * (p & 7))
	}
	r := &Reader{mem: target.NewReader(mem)}
	found, size, err := r.richAt(at, forms[".NET 11"])
	if err != nil || int(size) != len(tree) {
		t.Fatalf("%d bytes, %v", size, err)
	}
	b, err := r.mem.Bytes(found, int(size))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeTree(b); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}
