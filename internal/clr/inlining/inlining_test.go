package inlining

import (
	"encoding/binary"
	"errors"
	"reflect"
	"slices"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/ilmap"
	"clrsnap/internal/ecma335"
	"clrsnap/internal/testenv"
)

// fake is a node of a made-up graph; the sites name their callees.
func fake(rid uint32, name string, sites ...site) *node {
	return &node{def: Definition{1, rid}, name: name, known: true, il: sites}
}

func call(at uint32, name string) site { return site{at: at, op: ecma335.OpCall, name: name} }

func prove(calls Range, nodes ...*node) (names []string) {
	g, w := &graph{nodes: nodes, calls: calls}, work(maxWork)
	if err := g.connect(&w); err != nil {
		panic(err)
	}
	certain, err := g.certain(&w)
	if err != nil {
		panic(err)
	}
	for _, f := range certain {
		names = append(names, nodes[slices.IndexFunc(nodes, func(n *node) bool { return n.def == f.Definition })].name)
	}
	return names
}

func TestProve(t *testing.T) {
	leaf := fake(9, "leaf")
	step, other := fake(2, "step", call(0, "leaf")), fake(3, "other", call(0, "leaf"))
	above := fake(4, "above", call(0, "step"))
	invoke := site{at: 20, op: ecma335.OpCallvirt, name: "Invoke", any: true}
	for _, c := range []struct {
		what  string
		calls Range
		nodes []*node
		want  []string
	}{
		{"a direct call", All, []*node{fake(1, "root", call(0, "leaf")), step, leaf}, nil},
		{"one between", All, []*node{fake(1, "root", call(0, "step")), step, leaf}, []string{"step"}},
		{"two between", All, []*node{fake(1, "root", call(0, "above")), step, above, leaf}, []string{"above", "step"}},
		{"two ways", All, []*node{fake(1, "root", call(0, "step"), call(5, "other")), step, other, leaf}, nil},
		{"two ways, one of them elsewhere", Range{5, 9},
			[]*node{fake(1, "root", call(0, "step"), call(5, "other")), step, other, leaf}, []string{"other"}},
		{"two ways that meet", All, []*node{fake(1, "root", call(0, "above"), call(5, "step")), step, above, leaf},
			[]string{"step"}},
		{"or directly", All, []*node{fake(1, "root", call(0, "step"), call(5, "leaf")), step, leaf}, nil},
		{"no way", All, []*node{fake(1, "root", call(0, "other")), step, leaf}, nil},
		{"or by a delegate", All, []*node{fake(1, "root", call(0, "step"), invoke), step, leaf}, nil},
		{"only by a delegate", All, []*node{fake(1, "root", call(0, "step")), fake(2, "step", invoke), leaf}, nil},
		{"or by a delegate within", All, []*node{fake(1, "root", call(0, "step"), call(3, "other")), step,
			fake(3, "other", invoke), leaf}, nil},
		{"IL that is not known", All, []*node{fake(1, "root", call(0, "step"), call(3, "x")), step,
			{def: Definition{1, 5}, name: "x"}, leaf}, nil},
		{"IL that may be other IL, but calls its own kind only", All,
			[]*node{fake(1, "root", call(0, "step"), call(3, "x")), step,
				{def: Definition{1, 5}, name: "x", replaced: true}, leaf}, []string{"step"}},
		{"the same, where the IL itself calls", All, []*node{fake(1, "root", call(0, "step"), call(3, "x")), step,
			{def: Definition{1, 5}, name: "x", known: true, replaced: true, il: []site{call(0, "leaf")}}, leaf}, nil},
		{"the same, by another of its kind", All, []*node{fake(1, "root", call(0, "step"), call(3, "x")), step,
			{def: Definition{1, 5}, name: "x", replaced: true},
			{def: Definition{1, 6}, name: "y", known: true, replaced: true, il: []site{call(0, "leaf")}}, leaf}, nil},
		{"a circle", All,
			[]*node{fake(1, "root", call(0, "above")), fake(4, "above", call(0, "step"), call(1, "above")),
				step, leaf}, []string{"above", "step"}},
	} {
		if got := prove(c.calls, c.nodes...); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// TestWork: for many calls of the same methods, few edges are kept, and the work of a proof is bounded.
func TestWork(t *testing.T) {
	many := func(names ...string) (out []site) {
		for i := range uint32(maxCalls) {
			out = append(out, call(i, names[int(i)%len(names)]))
		}
		return out
	}
	nodes := []*node{
		fake(1, "root", many("step", "other")...), fake(2, "step", many("leaf")...), fake(3, "other", many("step")...),
		fake(4, "leaf"),
	}
	g, w := &graph{nodes: nodes, calls: All}, work(maxWork)
	if err := g.connect(&w); err != nil || g.size() != 4 {
		t.Errorf("%d edges, %v", g.size(), err)
	}
	if got, err := g.certain(&w); err != nil || len(got) != 1 || got[0].Definition != nodes[1].def || got[0].HasIL {
		t.Errorf("%+v, %v", got, err)
	}
	calls := many("step")
	for n := uint32(5); len(nodes) < maxNodes; n++ {
		nodes = slices.Insert(nodes, 1, fake(n, "step", calls...))
	}
	g, w = &graph{nodes: nodes, calls: All}, maxWork
	if err := g.connect(&w); err != ErrWork || w != 0 {
		t.Errorf("%v, %d left", err, w)
	}
}

// TestBoundsOfImages: an entry of an image has no end in sight.
func TestBoundsOfImages(t *testing.T) {
	rec := imageRecord{callees: map[uint32][]uint32{}, foreign: map[uint32]bool{}}
	n := numbers{b: append([]byte{0xff, 0, 0, 0, 0}, make([]byte, 3<<20)...)}
	n.b[0], n.b[1], n.b[2], n.b[3], n.b[4] = 0x0f, 0, 0, 0x30, 0 // as many numbers as there are bytes
	n.entry(&rec)
	if rec.pairs != maxImagePairs+1 || len(rec.callees[0]) != maxImagePairs+1 {
		t.Errorf("%d pairs are kept, %d of them", rec.pairs, len(rec.callees[0]))
	}
}

func TestMay(t *testing.T) {
	exact := Definition{1, 7}
	for _, c := range []struct {
		what string
		s    site
		n    node
		want bool
	}{
		{"the method itself", site{exact: exact}, node{def: exact}, true},
		{"another method of the same name", site{name: "A", exact: exact},
			node{name: "A", def: Definition{1, 8}}, false},
		{"by name", site{name: "A", params: 1}, node{name: "A", params: 1}, true},
		{"with other parameters", site{name: "A", params: 1}, node{name: "A", params: 2}, false},
		{"an explicit implementation", site{name: "A", virtual: true}, node{name: "N.I.A"}, true},
		{"of a call that is not virtual", site{name: "A"}, node{name: "N.I.A"}, false},
		{"an implementation of another name", site{name: "A", virtual: true}, node{name: "B", renamed: true}, true},
		{"a delegate", site{name: "Invoke", any: true, params: 2}, node{name: "B", params: 3}, true},
		{"a delegate with other parameters", site{name: "Invoke", any: true, params: 1},
			node{name: "B", params: 3}, false},
		{"a string's constructor", site{op: ecma335.OpNewobj, name: ".ctor", params: 1},
			node{owner: "System.String", name: "Ctor", params: 2}, true},
	} {
		if got := c.s.may(&c.n); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

func TestRecordedPaths(t *testing.T) {
	tree := &ilmap.Tree{
		Nodes: []ilmap.TreeNode{{Parent: -1}, {Parent: 2, IL: 5}, {Parent: 0, IL: 3}, {Parent: 2, IL: 8}}}
	if a, b := path(tree, 1), path(tree, 3); !slices.Equal(a, []int{2, 1}) || !slices.Equal(common(a, b), []int{2}) {
		t.Errorf("paths %v and %v", a, b)
	}
	nodes := []*node{fake(1, ""), fake(2, ""), fake(3, ""), fake(4, "")}
	call := func(at uint32) site { return site{at: at, exact: nodes[1].def} }
	for _, tt := range []struct {
		sites []site // of the calling method
		at    uint32
		has   bool
	}{
		{[]site{call(5), call(9)}, 5, true}, // the recorded place
		{[]site{call(2), call(9), call(7)}, 7, true},
		{[]site{call(2), call(4)}, 0, false},
		{[]site{call(2)}, 2, true}, // the only call
		{nil, 0, false},
	} {
		nodes[2].il = tt.sites
		want := []Frame{{Definition: nodes[2].def, IL: tt.at, HasIL: tt.has}, {Definition: nodes[1].def}}
		if got := frames(tree, nodes, path(tree, 1)); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// TestTable: a key may be in the slots that a search for the key visits.
func TestTable(t *testing.T) {
	const n = 7
	b := make(table, 8*n)
	key := arch.Addr(0x1000)
	first := uint32(key) % n
	second := (first + uint32(key)%(n-1) + 1) % n
	b.set(first, 0x9999)
	for i := range uint32(n) {
		if got := b.belongs(key, i); got != (i == first || i == second) {
			t.Errorf("slot %d: %v", i, got)
		}
	}
	if b.belongs(key+4, first) || b.belongs(0, 0) || make(table, 8).belongs(key, 0) {
		t.Error("what is no key belongs somewhere")
	}
}

func TestUsedValues(t *testing.T) {
	for _, c := range []struct{ in, want []uint64 }{
		{nil, nil}, {[]uint64{0}, nil}, {[]uint64{8}, []uint64{8}}, {[]uint64{8, 0}, []uint64{8}},
		{[]uint64{8, 16}, []uint64{8, 16}}, {[]uint64{0, 0}, nil}, {[]uint64{8, 16, 0, 2}, []uint64{8, 16}},
		{[]uint64{8, 8, 0, 2}, []uint64{8}},
	} {
		var b table
		for _, v := range c.in {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
		var want []arch.Addr
		for _, v := range c.want {
			want = append(want, arch.Addr(v))
		}
		if got, err := usedValues(b); err != nil || !slices.Equal(got, want) {
			t.Errorf("%v: %v, %v", c.in, got, err)
		}
	}
	b := binary.LittleEndian.AppendUint64(make(table, 16), 3)
	if _, err := usedValues(b[8:]); !errors.Is(err, ErrCorrupt) {
		t.Errorf("more values than there are: %v", err)
	}
}

// section is a hash table of one bucket: method 3 was inlined into 5 and 7, method 4 of another
// module into 7.
var section = []byte{
	0, 2, 6, // one bucket, with indices of a byte: from 2 to 6
	0xaa, 6 << 1, 0xaa, 8 << 1, // entries: a byte of the hash, and the distance to the entry
	0, 0, 0, // not used
	3 << 1, 3 << 2, 5 << 2, 2 << 2, // 3 numbers: method 3, methods 5 and 5+2
	4 << 1, 9 << 1, 1 << 1, 7 << 2,
}

func TestDecodeInlining(t *testing.T) {
	// The second entry: 3 numbers. The first tells that a module follows.
	b := slices.Clone(section)
	copy(b[14:], []byte{3 << 1, (4<<1 | 1) << 1, 1 << 1, 7 << 2})
	rec := decodeInlining(b)
	if rec.err != nil || !reflect.DeepEqual(rec.callees, map[uint32][]uint32{5: {3}, 7: {3}}) ||
		!reflect.DeepEqual(rec.foreign, map[uint32]bool{7: true}) {
		t.Errorf("%+v", rec)
	}
	for n := range b {
		if rec := decodeInlining(b[:n]); rec.err == nil {
			t.Errorf("%d bytes of it: %+v", n, rec)
		}
	}
	for _, indices := range [][]byte{{1, 4, 0, 8, 0}, {2, 8, 0, 0, 0, 12, 0, 0, 0}} { // of two bytes, and of four
		if got := decodeInlining(append(indices, b[3:]...)); !reflect.DeepEqual(got, rec) {
			t.Errorf("indices of %d bytes: %+v", len(indices)/2, got)
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		b        []byte
		unsigned uint32
		signed   int32
	}{
		{[]byte{5 << 1}, 5, 5}, {[]byte{0xfe}, 127, -1}, {[]byte{0x01, 0x02}, 128, 128},
		{[]byte{0xfd, 0xff}, 16383, -1}, {[]byte{0x03, 0x00, 0x01}, 8192, 8192},
		{[]byte{0x0f, 4, 3, 2, 1}, 0x01020304, 0x01020304},
	} {
		n, m := numbers{b: c.b}, numbers{b: c.b}
		if u, s := n.unsigned(), m.signed(); u != c.unsigned || s != c.signed || n.bad || m.bad || n.at != len(c.b) {
			t.Errorf("% x: %d and %d, want %d and %d", c.b, u, s, c.unsigned, c.signed)
		}
	}
}

// FuzzDecodeInlining: any bytes give a record or an error, for little memory.
func FuzzDecodeInlining(f *testing.F) {
	f.Add(section)
	f.Fuzz(func(t *testing.T, b []byte) {
		testenv.Allocates(t, len(b), 256, 1<<14, func() { decodeInlining(b) })
	})
}
