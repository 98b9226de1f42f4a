package gcdump

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap/snapshot"
)

// testHeap is a heap with some classes, objects and roots.
func testHeap(classes []snapshot.HeapClass, objects []snapshot.HeapObject,
	roots []snapshot.HeapRootSet) *snapshot.Heap {
	return &snapshot.Heap{
		Process:    snapshot.Process{PID: 4242, Command: "dotnet /srv/Shop.dll"},
		CapturedAt: time.Date(2026, 3, 4, 5, 6, 7, 800, time.FixedZone("", 3600)),
		Parts:      []snapshot.HeapPart{{Size: 1 << 20}, {Size: 1 << 21}},
		Graph: &snapshot.HeapGraph{
			Classes: classes, Count: len(objects), Objects: slices.Values(objects), Roots: roots,
			Regions: []snapshot.HeapRegion{
				{Start: 0x1000, End: 0x2000, Generation: snapshot.Gen0},
				{Start: 0x3000, End: 0x4000, Generation: snapshot.Gen2},
				{Start: 0x5000, End: 0x6000, Generation: snapshot.PinnedObjects},
				{Start: 0x7000, End: 0x8000, Generation: snapshot.FrozenObjects},
			},
		},
	}
}

func writeTest(tb testing.TB, h *snapshot.Heap) *file {
	tb.Helper()
	var b bytes.Buffer
	if err := Write(&b, h, Options{Version: "1.2", Log: "a log"}); err != nil {
		tb.Fatal(err)
	}
	f, err := readFile(b.Bytes())
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func TestWrite(t *testing.T) {
	classes := []snapshot.HeapClass{
		{Name: "Shop.Order", Assembly: "Shop"}, {Name: "string", Assembly: "System.Private.CoreLib"},
		{Name: "Kôrb\U0001f6d2\x1b[31m"}, {Name: "nothing has this class"},
	}
	objects := []snapshot.HeapObject{
		{Address: 0x1000, Bytes: 40, Class: 0, References: []uint32{1, 2, 1}},
		{Address: 0x1028, Bytes: 24, Class: 1},
		{Address: 0x7f00_0000_1040, Bytes: 5 << 30, Class: 1, References: []uint32{2}},
		{Address: 0xffff_ffff_ffff_fff8, Bytes: 1 << 20, Class: 2, References: []uint32{3, 0}},
	}
	f := writeTest(t, testHeap(classes, objects, []snapshot.HeapRootSet{
		{Root: snapshot.RootStatic, Static: "Shop.Bus.Raised", Objects: []uint32{0}},
		{Root: snapshot.RootThreadStatic, Static: "Shop.Cache.own", Objects: []uint32{1}},
		{Root: snapshot.RootHandle, Handle: snapshot.HandlePinned, Objects: []uint32{2}},
		{Root: snapshot.RootFinalizer, Objects: []uint32{1}},
		{Root: snapshot.RootStack, Objects: []uint32{0, 1}},
		{Root: snapshot.RootUnknown, Objects: []uint32{3}},
		{Root: snapshot.RootCircle, Objects: nil},
		{Root: snapshot.RootCircle, Objects: []uint32{2}},
	}))

	want := file{
		process: "Shop.dll", pid: 4242, log: "a log", tool: "clrsnap 1.2", segments: 3 << 20,
		collected: time.Date(2026, 3, 4, 5, 6, 7, 800, time.UTC), total: 40 + 24 + 5<<30 + 1<<20, root: 13,
		regions: [][6]uint64{
			{0x1000, 0x2000, 0x2000, 0, 0, 0}, {0x3000, 0x4000, 0, 0, 0x4000, 0}, {0x5000, 0x6000, 0, 0, 0, 0},
			{0x7000, 0x8000, 0, 0, 0x8000, 0},
		},
		nodes: []fileNode{
			{"Shop.Order", "Shop.dll", 40, 0x1000, []int{1, 2, 1}},
			{"string", "System.Private.CoreLib.dll", 24, 0x1028, nil},
			{"string", "System.Private.CoreLib.dll", math.MaxInt32, 0x7f00_0000_1040, []int{2}},
			{`Kôrb` + "\U0001f6d2" + `\x1b[31m`, "", 1 << 20, 0xffff_ffff_ffff_fff8, []int{3, 0}},
			{"[static var Shop.Bus.Raised]", "", 0, 0, []int{0}},
			{"[thread static var Shop.Cache.own]", "", 0, 0, []int{1}},
			{"[pinned handles]", "", 0, 0, []int{2}},
			{"[finalizer queue]", "", 0, 0, []int{1}},
			{stackRoots, "", 0, 0, []int{0, 1}},
			{unknownRoots, "", 0, 0, []int{3}},
			{circleRoots, "", 0, 0, []int{2}},
			{staticRoots, "", 0, 0, []int{4, 5}},
			{otherRoots, "", 0, 0, []int{6, 7, 8, 9, 10}},
			{allRoots, "", 0, 0, []int{11, 12}},
		},
	}
	if got, want := fmt.Sprintf("%+v", *f), fmt.Sprintf("%+v", want); got != want {
		t.Errorf("the file has\n%s\nand not\n%s", got, want)
	}
}

// TestPacked: numbers take as few bytes as possible.
func TestPacked(t *testing.T) {
	for n, size := range map[int32]int{
		0: 1, 63: 1, -64: 1, 64: 2, -65: 2, 8191: 2, -8192: 2, 8192: 3, 1<<20 - 1: 3, 1 << 20: 4, 1<<27 - 1: 4,
		1 << 27: 5, math.MaxInt32: 5, math.MinInt32: 5, -1 << 27: 4, -1<<27 - 1: 5,
	} {
		b := appendPacked(nil, n)
		in := &input{b: b}
		if got := in.packed(); got != n || len(b) != size || in.at != size {
			t.Errorf("%d is packed into %x, which is %d", n, b, got)
		}
	}
}

func TestErrors(t *testing.T) {
	h := testHeap(nil, nil, nil)
	if err := Write(failing{}, h, Options{}); !errors.Is(err, errFull) {
		t.Error("a full disk is", err)
	}
	h.Graph = nil
	if err := Write(&bytes.Buffer{}, h, Options{}); !errors.Is(err, ErrNoGraph) {
		t.Error("no graph is", err)
	}
	s := newStream(&bytes.Buffer{})
	s.at = math.MaxUint32
	if err := s.close(); !errors.Is(err, ErrTooLarge) {
		t.Error("4 GB are", err)
	}
}

var errFull = errors.New("no space left")

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errFull }

// FuzzWrite: a file is read back as it was written, whatever the graph looks like.
func FuzzWrite(f *testing.F) {
	f.Add([]byte{}, "Shop.Order", "")
	f.Add([]byte{1, 2, 3, 4, 200, 6, 7, 255, 9, 10, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}, "a\xff\ud7ff\U0010ffff", "[x")
	f.Fuzz(func(t *testing.T, b []byte, one, other string) {
		classes := []snapshot.HeapClass{{Name: one, Assembly: other}, {Name: other}}
		var objects []snapshot.HeapObject
		for len(b) >= 6 && len(objects) < 1000 {
			o := snapshot.HeapObject{
				Address: uint64(b[0]) << (b[1] % 64), Bytes: uint64(b[2]) << (b[3] % 31), Class: int(b[4] & 1),
			}
			n := int(b[5] % 16)
			b = b[6:]
			for ; n > 0 && len(b) > 0; n, b = n-1, b[1:] {
				o.References = append(o.References, uint32(b[0]))
			}
			objects = append(objects, o)
		}
		var all []uint32
		for i := range objects {
			for j, to := range objects[i].References {
				objects[i].References[j] = to % uint32(len(objects))
			}
			all = append(all, uint32(i))
		}
		f := writeTest(t, testHeap(classes, objects, []snapshot.HeapRootSet{{Root: snapshot.RootUnknown,
			Objects: all}}))
		for i := range objects {
			o, n := &objects[i], &f.nodes[i]
			if n.address != o.Address || n.size != sizeOf(o.Bytes) || len(n.children) != len(o.References) {
				t.Fatalf("%+v has become %+v", o, n)
			}
			for j, to := range o.References {
				if n.children[j] != int(to) {
					t.Fatalf("%+v has become %+v", o, n)
				}
			}
		}
		if root := f.nodes[f.root]; len(objects) > 0 && (root.typ != allRoots || len(f.nodes) != len(objects)+3) {
			t.Fatalf("the root is %+v", root)
		}
	})
}

// file is a .gcdump file as its readers see it.
type file struct {
	process, log, tool string
	pid                int32
	collected          time.Time
	segments           int64
	regions            [][6]uint64 // start, end, and ends of the generations
	total              int64
	root               int
	nodes              []fileNode
}

type fileNode struct {
	typ, module string
	size        int32
	address     uint64
	children    []int
}

// readFile reads a file as Microsoft's readers do.
func readFile(b []byte) (f *file, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("at %v: %v", f, r)
		}
	}()
	f = &file{}
	in := &input{b: b, types: map[int]string{}}
	in.must(in.string() == signature, "no signature")
	in.begin("GCHeapDump", 10, 8)
	f.readGraph(in)
	in.must(in.byte() == 1, "not 64 bits")
	for range 2 {
		in.must(in.float() == 1, "samples")
	}
	in.must(in.byte() == tagNull, "a JSHeapInfo")
	in.begin("DotNetHeapInfo", 0, 0)
	f.segments = in.int64()
	for range in.int32() {
		in.begin("GCHeapDumpSegment", 0, 0)
		var r [6]uint64
		for i := range r {
			r[i] = uint64(in.int64())
		}
		f.regions = append(f.regions, r)
		in.end()
	}
	in.end()
	f.log = in.string()
	n := in.int64()
	f.collected = time.Unix(n/10_000_000-62_135_596_800, n%10_000_000*100).UTC()
	in.must(in.string() == "", "a machine")
	f.process, f.pid = in.string(), in.int32()
	for range 2 {
		in.must(in.int64() == 0, "memory of the process")
	}
	in.must(in.int32() == 0, "samples")
	in.must(in.byte() == tagSkip && in.int32() == 0 && in.byte() == tagNull, "no InteropInfo")
	skipped := in.at
	in.must(in.byte() == tagString, "no tool")
	f.tool = in.string()
	in.end()
	in.end()
	table := in.at
	in.must(in.int32() == 1 && int(in.int32()) == skipped, "no forward reference")
	trailer := in.at
	in.must(int(in.int32()) == table && int(in.int32()) == trailer && in.at == len(b), "no trailer")
	return f, nil
}

func (f *file) readGraph(in *input) {
	in.begin("Graphs.MemoryGraph", 1, 0)
	f.total, f.root = in.int64(), int(in.int32())
	types := make([]fileNode, in.int32())
	for i := range types {
		types[i] = fileNode{typ: in.string(), size: in.int32(), module: in.string()}
	}
	f.nodes = make([]fileNode, in.int32())
	labels := make([]int, len(f.nodes))
	for i := range labels {
		labels[i] = int(in.int32())
	}
	blob := &input{b: in.bytes(int(in.int32()))}
	for i, at := range labels {
		blob.at = at
		typ := blob.packed()
		n := types[typ>>1]
		if typ&1 != 0 {
			n.size = blob.packed()
		}
		for range blob.packed() {
			to := i + int(blob.packed())
			in.must(to >= 0 && to < len(f.nodes), "a reference to nowhere")
			n.children = append(n.children, to)
		}
		f.nodes[i] = n
	}
	in.must(int(in.int32()) == len(f.nodes), "addresses")
	for i := range f.nodes {
		f.nodes[i].address = uint64(in.int64())
	}
	in.must(in.byte() == tagByte && in.byte() == 1, "not 64 bits")
	in.end()
}

// input reads a FastSerialization stream. It panics where the stream is broken.
type input struct {
	b     []byte
	at    int
	types map[int]string
}

func (in *input) must(ok bool, what string) {
	if !ok {
		panic(fmt.Sprintf("%#x: %s", in.at, what))
	}
}

func (in *input) bytes(n int) []byte {
	in.at += n
	return in.b[in.at-n : in.at]
}

func (in *input) byte() byte     { return in.bytes(1)[0] }
func (in *input) int32() int32   { return int32(binary.LittleEndian.Uint32(in.bytes(4))) }
func (in *input) int64() int64   { return int64(binary.LittleEndian.Uint64(in.bytes(8))) }
func (in *input) float() float32 { return math.Float32frombits(uint32(in.int32())) }
func (in *input) end()           { in.must(in.byte() == tagEnd, "no end") }

func (in *input) string() string {
	n := in.int32()
	var b strings.Builder
	high := rune(0)
	for range n {
		r := rune(in.byte())
		switch {
		case r >= 0xe0:
			r = r&0xf<<12 | rune(in.byte())&0x3f<<6
			r |= rune(in.byte()) & 0x3f
		case r >= 0x80:
			r = r&0x1f<<6 | rune(in.byte())&0x3f
		}
		switch {
		case r >= 0xd800 && r < 0xdc00:
			high = r
			continue
		case r >= 0xdc00 && r < 0xe000:
			r = 0x10000 + (high-0xd800)<<10 + r - 0xdc00
		}
		b.WriteRune(r)
	}
	return b.String()
}

// begin expects an object.
func (in *input) begin(name string, version, least int32) {
	in.must(in.byte() == tagBegin, "no object")
	at := in.at
	if in.byte() == tagReference {
		in.must(in.types[int(in.int32())] == name, "no "+name)
		return
	}
	in.must(in.byte() == tagNull && in.int32() == version && in.int32() == least && in.string() == name, "no "+name)
	in.end()
	in.types[at] = name
}

func (in *input) packed() int32 {
	b := in.byte()
	n := int32(b<<1) << 24 >> 25
	for b&0x80 != 0 {
		b = in.byte()
		n = n<<7 | int32(b&0x7f)
	}
	return n
}
