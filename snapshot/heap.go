package snapshot

import (
	"fmt"
	"strings"
	"time"
)

// Heap is what was on the managed heap of a process.
type Heap struct {
	Process    Process
	CapturedAt time.Time     // when the walk began
	Duration   time.Duration // of the walk

	Types []HeapType // of all objects, the types with the most bytes first
	Parts []HeapPart // heap by heap, the youngest generation first

	Instances []HeapInstance // of the requested types, the largest first
	Matching  HeapAmount     // all objects of the requested types, also objects that Instances lacks
	Strings   []HeapString   // if requested, the strings with the most bytes first

	// Paths are how the objects of Kept's type are kept, if requested. The paths of the most objects come first.
	Paths      []HeapPath
	Kept       HeapAmount // the objects of Paths
	OtherPaths HeapAmount // the objects of Kept with other paths: there were too many different paths

	Graph *HeapGraph // nil: not requested, or the walk ended early

	// Dominators are the dominator tree by type. A dominator comes before the dominated nodes. nil: not requested, or
	// the walk ended early.
	Dominators []HeapDominator

	// Nearest are the names of types most like the requested name, if no type matches.
	Nearest []string

	HasInstances bool // Instances were requested
	HasPaths     bool // Paths were requested
	HasRetained  bool // Retained of Types is known, and Types with the largest come first
	GraphCut     bool // Paths and Retained lack objects or references: there were too many to keep
	// RootsMoved: the collector moved objects between the reading of the objects and the reading of the roots. Paths
	// can begin wrong.
	RootsMoved bool
	// RootsLack says which roots could not be read, and why; empty: all were read.
	RootsLack []string

	ConsistentShare float64 // of the memory with objects: see HeapPart.ConsistentBytes
	Collecting      bool    // a core dump was made in the middle of a collection: the young generations may be torn
	Partial         bool    // the walk ended early

	Memory *Memory // of the whole process; nil: not known

	Stop *HeapStop // how the process was stopped for the reading; nil: not requested
}

// HeapAmount is a number of objects, and of bytes.
type HeapAmount struct {
	Count, Bytes uint64
}

// Add adds another amount.
func (a *HeapAmount) Add(b HeapAmount) {
	a.Count += b.Count
	a.Bytes += b.Bytes
}

// Generation is a part of the heap. The collector's numbers are 0 to 4.
type Generation uint8

// The generations. Frozen objects are never collected: string literals, for example.
const (
	Gen0 Generation = iota
	Gen1
	Gen2
	LargeObjects
	PinnedObjects
	FrozenObjects
	Generations = iota // how many there are
)

var generationNames = [Generations]string{"gen0", "gen1", "gen2", "large", "pinned", "frozen"}

// String is the generation's name in JSON: gen0, gen1, gen2, large, pinned or frozen.
func (g Generation) String() string {
	if int(g) >= len(generationNames) {
		return "?"
	}
	return generationNames[g]
}

// HeapType is a type, and its objects.
type HeapType struct {
	Name     string // as in stacks, with namespaces: Shop.Customer<string>, Shop.Line[]
	Assembly string // simple name; for an array, the assembly of the element type
	Context  string // name of the load context; empty: the default context, or not known
	Owner    Origin // whose the assembly is, if the name does not say so: see Origin
	HeapAmount
	Generations [Generations]HeapAmount
	// Retained is how many bytes the objects keep from collection, the objects included, if requested.
	Retained uint64
}

// Origin returns whose code the type is.
func (t *HeapType) Origin() Origin { return OriginOf(Managed, t.Assembly, t.Owner) }

// From is the assembly, and the load context unless the context is the default.
func (t *HeapType) From() string { return from(t.Assembly, t.Context) }

// From is as HeapType.From.
func (c *HeapChange) From() string { return from(c.Assembly, c.Context) }

func from(assembly, context string) string {
	if context == "" {
		return assembly
	}
	return assembly + " (" + context + ")"
}

// HeapPart is a generation of a heap. The collector of servers has several heaps.
type HeapPart struct {
	Heap       int // number; 0 if there is only one heap
	Generation Generation
	Regions    int    // or segments
	Size       uint64 // bytes of memory with objects, free space included
	Reserved   uint64 // bytes of address space
	Objects    HeapAmount
	Free       HeapAmount // space between objects
	Unused     uint64     // bytes that threads have received for allocation and have not filled with objects

	// ConsistentBytes is the part of Size, in bytes, in which the collector provably moved nothing during the
	// reading. In the rest, objects can be missing or counted twice.
	ConsistentBytes uint64
}

// HeapInstance is one object.
type HeapInstance struct {
	Address    uint64
	Type       string
	Of         string // as in Wait
	Bytes      uint64
	Generation Generation
}

// HeapString is a text, and the strings with this text.
type HeapString struct {
	Text string // its first part
	Cut  bool   // Text is not all
	HeapAmount
}

// Objects is the sum of all objects, without free space.
func (h *Heap) Objects() (all HeapAmount) {
	for i := range h.Parts {
		all.Add(h.Parts[i].Objects)
	}
	return all
}

// Free is the space between objects, in bytes.
func (h *Heap) Free() (n uint64) {
	for i := range h.Parts {
		n += h.Parts[i].Free.Bytes
	}
	return n
}

// Heaps is how many heaps there are.
func (h *Heap) Heaps() int {
	n := 0
	for i := range h.Parts {
		n = max(n, h.Parts[i].Heap+1)
	}
	return n
}

// Generation sums up a generation of all heaps. Its Heap is 0.
func (h *Heap) Generation(g Generation) HeapPart {
	out := HeapPart{Generation: g}
	for i := range h.Parts {
		p := &h.Parts[i]
		if p.Generation != g {
			continue
		}
		out.Regions += p.Regions
		out.Size += p.Size
		out.Reserved += p.Reserved
		out.Objects.Add(p.Objects)
		out.Free.Add(p.Free)
		out.Unused += p.Unused
		out.ConsistentBytes += p.ConsistentBytes
	}
	return out
}

// HeapChange is how a type differs between two heaps.
type HeapChange struct {
	Name, Assembly, Context string

	Count, Bytes int64 // more than before
	Now          HeapAmount
}

// ChangeFrom compares the heap with an earlier heap, type by type: the largest growth comes first. Unchanged types
// are left out.
func (h *Heap) ChangeFrom(before *Heap) []HeapChange {
	return changes(h.Types, before.Types)
}

// HeapPath is a path from a root to objects that the root keeps.
type HeapPath struct {
	Root HeapRoot
	// Static is the field of RootStatic and RootThreadStatic, if known: Shop.Bus.Raised. Ends in UnknownField if only
	// the class is known.
	Static string
	Listed bool       // of RootStatic: the program lists its static fields, without names
	Handle HandleKind // of RootHandle
	Thread *ThreadRef // of RootThreadStatic, RootStack and RootCode; nil: of other kinds
	Method string     // of RootStack: in or below whose frame the reference lies, if known; of RootCode
	Steps  []HeapStep // from the root to the objects; the last step has the objects' type
	// Objects are the objects with this path; Sampled says that their number is an estimate from a sample.
	Objects HeapAmount
	Sampled bool
}

// Conservative reports whether the path begins at a word of a thread's stack that looks like a reference. The thread
// may have no more use for the word.
func (p *HeapPath) Conservative() bool { return p.Root == RootStack }

// Kept reports whether the path begins at something that keeps objects for certain.
func (p *HeapPath) Kept() bool {
	switch p.Root {
	case RootStatic, RootThreadStatic, RootHandle, RootFinalizer, RootCode, RootFrozen:
		return true
	}
	return false
}

// UnknownField stands for the name of a static field of which only the class is known.
const UnknownField = "?"

// Beginning names the root of the path: "static field Shop.Bus.Raised", "handle (strong)".
func (p *HeapPath) Beginning() string {
	switch p.Root {
	case RootStatic:
		switch {
		case strings.HasSuffix(p.Static, "."+UnknownField):
			return "a static field of " + strings.TrimSuffix(p.Static, "."+UnknownField)
		case p.Static != "":
			return "static field " + p.Static
		case p.Listed:
			return "a static field"
		}
		return "a static field (likely)"
	case RootThreadStatic:
		return strings.TrimSpace("thread static field "+p.Static) + " of " + p.Thread.text()
	case RootHandle:
		return "handle (" + string(p.Handle) + ")"
	case RootFinalizer:
		return "finalizer queue: the finalizer is to run"
	case RootStack:
		text := "stack of " + p.Thread.text() + " (conservative)"
		if p.Method != "" {
			text += ", in " + p.Method
		}
		return text
	case RootCode:
		return "code that " + p.Thread.text() + " runs: " + p.Method
	case RootFrozen:
		return "part of the program: never collected"
	case RootCircle:
		return "objects that refer to each other, and nothing else known"
	}
	return "nothing known: likely to be collected next"
}

// text names a thread.
func (t *ThreadRef) text() string {
	switch {
	case t == nil:
		return "a thread"
	case t.Name == "":
		return fmt.Sprintf("thread %d", t.OSThreadID)
	}
	return fmt.Sprintf("thread %d \"%s\"", t.OSThreadID, t.Name)
}

// HeapRoot is what keeps the first object of a path.
type HeapRoot string

// The roots. A RootStatic that is neither named nor listed is likely: what keeps the object looks like a table of
// static fields.
const (
	RootStatic       HeapRoot = "static field"
	RootThreadStatic HeapRoot = "thread static field" // each thread has its own field
	RootHandle       HeapRoot = "handle"
	RootFinalizer    HeapRoot = "finalizer queue" // the finalizer is to run
	RootStack        HeapRoot = "stack"           // see Conservative
	RootCode         HeapRoot = "running code"    // a thread runs code of the load context
	RootFrozen       HeapRoot = "frozen"          // the compiler of a native AOT program has made the object
	RootUnknown      HeapRoot = "unknown"         // nothing on the heap, and no other known root
	RootCircle       HeapRoot = "circle"          // only objects that refer to each other, and no known root
)

// HandleKind is what a handle does.
type HandleKind string

// The handles that keep their objects. .NET 8 and later do not use the last two.
const (
	HandleStrong      HandleKind = "strong"
	HandlePinned      HandleKind = "pinned"
	HandleVariable    HandleKind = "variable"
	HandleRefCounted  HandleKind = "ref-counted" // as long as native code uses the object
	HandleAsyncPinned HandleKind = "async pinned"
	HandleSized       HandleKind = "sized"
)

// HeapStep is an object on a path, or several in a row of one type.
type HeapStep struct {
	Type  string
	Of    string // as in Wait, if equal for all objects with this path
	Times int    // how many follow one another; 1 or more
	Field string // the field with the reference to the next object; empty: not known, or an element of an array
	// Dependent: a dependent handle keeps the next object as long as this object exists; no field does.
	Dependent bool
	// ByType: an object of a type that can be unloaded keeps the type's LoaderAllocator; no field does.
	ByType bool
	Static string // of a table of static fields: the field that refers to the next object; empty: not known
	Gap    bool   // objects in front of this step are left out: the path has more than a thousand steps
}
