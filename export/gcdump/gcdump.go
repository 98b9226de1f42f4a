// Package gcdump writes the objects of a heap as a .gcdump file. Visual Studio, PerfView and
// dotnet-gcdump report open the file: all objects with their types, sizes, addresses and references,
// and the roots of the heap. The contents of objects, the texts of strings for example, are not in the
// file.
//
// The file is a FastSerialization stream (stream.go) of an object GCHeapDump with an object
// Graphs.MemoryGraph inside. The graph has, in this order: the sum of all sizes, the number of the
// root node, the types, for each node the start of its description in the blob, the blob, and the
// address of each node.
//
// Sources: GCHeapDump.cs, MemoryGraph.cs, Graph.cs and DotNetHeapInfo.cs in
// dotnet/diagnostics/src/Tools/dotnet-gcdump/DotNetHeapDump. The same files are in microsoft/perfview
// (src/HeapDump, src/HeapDumpCommon, src/MemoryGraph).
package gcdump

import (
	"cmp"
	"errors"
	"io"
	"math"
	"time"

	"clrsnap/internal/display"
	"clrsnap/snapshot"
)

// Options are the options of Write. The zero value works.
type Options struct {
	Version string // of clrsnap
	Log     string // text about the file; PerfView shows it as the log of the collection
}

// Errors of Write. ErrNoGraph: the heap was read without its Graph.
var (
	ErrTooLarge = errors.New("the heap has too many objects and references for a .gcdump file")
	ErrNoGraph  = errors.New("the references between objects were not read")
)

// Write writes the Graph of a heap. Besides the Graph, Write needs memory only for the types and the
// static fields: it goes through all objects four times.
func Write(w io.Writer, h *snapshot.Heap, o Options) error {
	if h.Graph == nil {
		return ErrNoGraph
	}
	s := newStream(w)
	g := newGraph(h.Graph)
	if g.blob > math.MaxInt32 || int64(g.nodes()) > math.MaxInt32 {
		return ErrTooLarge
	}
	s.begin("GCHeapDump", 10, 8)
	g.write(s)
	s.bool(true) // addresses have 64 bits
	s.float(1)   // nothing is sampled: multipliers of objects, and of bytes
	s.float(1)
	s.null() // JSHeapInfo
	writeInfo(s, h)
	s.string(o.Log)
	s.int64(ticks(h.CapturedAt))
	s.string("") // the machine's name
	s.string(h.Process.Program())
	s.int32(int32(h.Process.PID))
	s.int64(0) // committed memory, and the working set: not known
	s.int64(0)
	s.int32(0) // multipliers of samples, by type
	s.skippable(s.null)
	s.taggedString("clrsnap" + cmp.Or(" "+o.Version, ""))
	s.end()
	return s.close()
}

// ticks is a DateTime: units of 100 ns since the beginning of year 1, as a clock in t's location shows it.
func ticks(t time.Time) int64 {
	const toUnix = 62_135_596_800 // seconds from year 1 to 1970
	_, offset := t.Zone()
	at := t.Unix() + int64(offset) + toUnix
	if at < 0 {
		return 0
	}
	return at*10_000_000 + int64(t.Nanosecond()/100)
}

// writeInfo writes the places of the generations. The form is the oldest form, which all readers know.
// The form has no place for pinned objects, so they are in no generation. Frozen objects belong to the
// oldest generation.
func writeInfo(s *stream, h *snapshot.Heap) {
	size := uint64(0)
	for i := range h.Parts {
		size += h.Parts[i].Size
	}
	s.begin("DotNetHeapInfo", 0, 0)
	s.int64(int64(size))
	s.int32(int32(len(h.Graph.Regions)))
	for _, r := range h.Graph.Regions {
		s.begin("GCHeapDumpSegment", 0, 0)
		s.int64(int64(r.Start))
		s.int64(int64(r.End))
		for g := snapshot.Gen0; g <= snapshot.LargeObjects; g++ {
			of := r.Generation
			if of == snapshot.FrozenObjects {
				of = snapshot.Gen2
			}
			if of == g {
				s.int64(int64(r.End))
			} else {
				s.int64(0)
			}
		}
		s.end()
	}
	s.end()
}

// graph is the MemoryGraph: the objects, by their numbers, followed by the nodes of the roots.
type graph struct {
	of    *snapshot.HeapGraph
	types []nodeType // the classes of objects, and then a type for each root node with a name of its own
	roots []rootNode
	total int64 // bytes of all nodes
	blob  int64 // bytes that describe nodes
}

// nodeType is a type of nodes. A node with the type's size need not give its own size.
type nodeType struct {
	name   string
	module string
	size   int32 // of the first node; -1: there was no node yet
}

// rootNode is a node that is not an object.
type rootNode struct {
	typ      int
	children []uint32
}

// newGraph computes all sizes.
func newGraph(of *snapshot.HeapGraph) *graph {
	g := &graph{of: of}
	for i := range of.Classes {
		c := &of.Classes[i]
		g.types = append(g.types, nodeType{display.Clean(c.Name), moduleOf(c.Assembly), -1})
	}
	g.addRoots()
	for o := range of.Objects {
		if t := &g.types[o.Class]; t.size < 0 {
			t.size = sizeOf(o.Bytes)
		}
		g.total += int64(o.Bytes)
	}
	for i := range g.types {
		g.types[i].size = max(g.types[i].size, 0)
	}
	g.each(func(n node) { g.blob += int64(len(n.bytes)) })
	return g
}

func (g *graph) nodes() int { return g.of.Count + len(g.roots) }

// moduleOf is the name of an assembly's module. Readers take the text after the last dot for an
// extension.
func moduleOf(assembly string) string {
	if assembly == "" {
		return ""
	}
	return display.Clean(assembly) + ".dll"
}

// sizeOf is the size of a node: at most 2 GB.
func sizeOf(bytes uint64) int32 { return int32(min(bytes, math.MaxInt32)) }

// Names of nodes that are not objects. PerfView knows the names of the first three.
const (
	allRoots     = "[.NET Roots]"
	staticRoots  = "[static vars]"
	otherRoots   = "[other roots]"
	stackRoots   = "[local vars (conservative)]"
	unknownRoots = "[dead objects: nothing that is known keeps them]"
	circleRoots  = "[circles of objects that nothing else refers to]"
)

// addRoots makes the nodes of the roots: a tree with its root in the last node.
func (g *graph) addRoots() {
	var statics, others []uint32
	for i := range g.of.Roots {
		r := &g.of.Roots[i]
		switch {
		case len(r.Objects) == 0:
		case r.Root == snapshot.RootStatic:
			name := "[static var]"
			if r.Static != "" {
				name = "[static var " + display.Clean(r.Static) + "]"
			}
			statics = append(statics, g.addRoot(name, r.Objects))
		case r.Root == snapshot.RootThreadStatic:
			name := "[thread static var]"
			if r.Static != "" {
				name = "[thread static var " + display.Clean(r.Static) + "]"
			}
			statics = append(statics, g.addRoot(name, r.Objects))
		case r.Root == snapshot.RootHandle:
			others = append(others, g.addRoot("["+string(r.Handle)+" handles]", r.Objects))
		case r.Root == snapshot.RootStack:
			others = append(others, g.addRoot(stackRoots, r.Objects))
		case r.Root == snapshot.RootCircle:
			others = append(others, g.addRoot(circleRoots, r.Objects))
		case r.Root == snapshot.RootUnknown:
			others = append(others, g.addRoot(unknownRoots, r.Objects))
		default:
			others = append(others, g.addRoot("["+display.Clean(string(r.Root))+"]", r.Objects))
		}
	}
	var all []uint32
	if statics != nil {
		all = append(all, g.addRoot(staticRoots, statics))
	}
	if others != nil {
		all = append(all, g.addRoot(otherRoots, others))
	}
	g.addRoot(allRoots, all)
}

// addRoot makes a node with its own type, and returns the node's number.
func (g *graph) addRoot(name string, children []uint32) uint32 {
	g.types = append(g.types, nodeType{name: name})
	g.roots = append(g.roots, rootNode{len(g.types) - 1, children})
	return uint32(g.nodes() - 1)
}

// node is a node as described in the blob.
type node struct {
	address uint64
	bytes   []byte // valid until the next node
}

// each goes through all nodes, by number.
func (g *graph) each(f func(node)) {
	var b []byte
	number := int64(0)
	add := func(address uint64, typ int, size int32, children []uint32) {
		b = b[:0]
		if g.types[typ].size == size {
			b = appendPacked(b, int32(typ)<<1)
		} else {
			b = appendPacked(b, int32(typ)<<1|1)
			b = appendPacked(b, size)
		}
		b = appendPacked(b, int32(len(children)))
		for _, c := range children {
			b = appendPacked(b, int32(int64(c)-number))
		}
		f(node{address, b})
		number++
	}
	for o := range g.of.Objects {
		add(o.Address, o.Class, sizeOf(o.Bytes), o.References)
	}
	for i := range g.roots {
		add(0, g.roots[i].typ, 0, g.roots[i].children)
	}
}

// appendPacked appends a number in groups of seven bits, the most significant group first. The first
// group has the sign; in each group except the last the highest bit is set.
func appendPacked(b []byte, n int32) []byte {
	for shift := 28; shift > 0; shift -= 7 {
		if rest := 32 - shift; n<<rest>>rest != n { // it does not fit into the remaining groups
			b = append(b, byte(n>>shift)|0x80)
		}
	}
	return append(b, byte(n)&0x7f)
}

func (g *graph) write(s *stream) {
	s.begin("Graphs.MemoryGraph", 1, 0)
	s.int64(g.total)
	s.int32(int32(g.nodes() - 1))
	s.int32(int32(len(g.types)))
	for i := range g.types {
		t := &g.types[i]
		s.string(t.name)
		s.int32(t.size)
		if t.module == "" {
			s.noString()
		} else {
			s.string(t.module)
		}
	}
	s.int32(int32(g.nodes()))
	at := 0
	g.each(func(n node) {
		s.int32(int32(at))
		at += len(n.bytes)
	})
	s.int32(int32(g.blob))
	g.each(func(n node) { s.write(n.bytes) })
	s.int32(int32(g.nodes()))
	g.each(func(n node) { s.int64(int64(n.address)) })
	s.taggedBool(true) // addresses have 64 bits
	s.end()
}
