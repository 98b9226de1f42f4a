package profile

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

	Types []HeapType // of all objects, those with the most bytes first
	Parts []HeapPart // heap by heap, the youngest generation first

	Instances []HeapInstance // of the types that were asked for, the largest first
	Matching  HeapAmount     // all objects of these types, also those that Instances lacks
	Strings   []HeapString   // if they were asked for, those with the most bytes first

	// Paths are how the objects of Kept's type are kept: if that was asked for, those of the most objects first.
	Paths      []HeapPath
	Kept       HeapAmount // the objects that Paths are about
	OtherPaths HeapAmount // of these, those that are kept in other ways: there were too many that differ

	Graph *HeapGraph // nil: it was not asked for, or the walk was ended early

	// Keepers say what keeps what, type by type: a tree, in which each comes before those below it. nil: it was not
	// asked for, or the walk was ended early.
	Keepers []HeapKeeper

	// Nearest are names of types that are most like what was asked for, if no object is of a type that matches.
	Nearest []string

	HasInstances bool // Instances were asked for
	HasPaths     bool // Paths were asked for
	HasRetained  bool // Retained of Types is known, and Types with the largest come first
	GraphCut     bool // Paths and Retained lack objects or references: there were more than can be kept
	// RootsMoved: the collector has moved objects between when they were read and when it was read what keeps them.
	// Paths can begin wrong.
	RootsMoved bool
	// RootsLack says what could not be read of what keeps objects, and why; empty: nothing.
	RootsLack []string

	ConsistentShare float64 // of the memory that objects are in: see HeapPart.ConsistentBytes
	Collecting      bool    // a core dump was made in the middle of a collection: the young generations may be torn
	Partial         bool    // the walk was ended early

	Memory *Memory // of the whole process; nil: not known

	Stop *HeapStop // how the process was stopped for it; nil: that was not asked for
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

// GenerationOf returns the generation of a name.
func GenerationOf(name string) (Generation, bool) {
	for g, n := range generationNames {
		if n == name {
			return Generation(g), true
		}
	}
	return 0, false
}

// HeapType is a type, and its objects.
type HeapType struct {
	Name     string // as stacks name it, with namespaces: Shop.Customer<string>, Shop.Line[]
	Assembly string // simple name; of an array that of its element's type
	Context  string // name of the load context; empty: the default one, or it is not known
	Owner    Origin // whose the assembly is, if that is not what its name says: see Origin
	HeapAmount
	Generations [Generations]HeapAmount
	// Retained is how many bytes its objects keep from being collected, themselves included: if that was asked for.
	Retained uint64
}

// Origin returns whose code the type is.
func (t *HeapType) Origin() Origin { return originOf(Managed, t.Assembly, t.Owner) }

// From is the assembly, and the load context if that is not the default one.
func (t *HeapType) From() string { return from(t.Assembly, t.Context) }

// From is that of HeapType.
func (c *HeapChange) From() string { return from(c.Assembly, c.Context) }

func from(assembly, context string) string {
	if context == "" {
		return assembly
	}
	return assembly + " (" + context + ")"
}

// HeapPart is a generation of a heap. The collector of servers has several heaps.
type HeapPart struct {
	Heap       int // number; 0 if there is one only
	Generation Generation
	Regions    int    // or segments
	Size       uint64 // bytes of memory that objects are in, free space included
	Reserved   uint64 // bytes of address space
	Objects    HeapAmount
	Free       HeapAmount // space between objects
	Unused     uint64     // bytes that threads have been given and have not put objects into

	// ConsistentBytes are those bytes of Size of which it is proved that the collector moved nothing in them while
	// they were read. Of the others a part can be missing, or have been counted twice.
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

// HeapString is a text, and the strings that have it.
type HeapString struct {
	Text string // its first part
	Cut  bool   // Text is not all
	HeapAmount
}

// Objects is what all objects are together, without free space.
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

// ChangeFrom compares the heap with an earlier one, type by type: what has grown most comes first. Types that have not
// changed are left out.
func (h *Heap) ChangeFrom(before *Heap) []HeapChange {
	return changes(h.Types, before.Types)
}

// HeapPath is a way by which objects are kept.
type HeapPath struct {
	Root   HeapRoot
	Static string     // of RootStatic and RootThreadStatic: the field, if it is known: Shop.Bus.Raised
	Handle HandleKind // of RootHandle
	Thread *ThreadRef // of RootThreadStatic, RootStack and RootCode; nil: of another kind
	Method string     // of RootStack: in or below whose frame the reference lies, if it is known; of RootCode
	Steps  []HeapStep // from the root to the objects, whose type is the last
	// Objects are those that are kept like this; Sampled says that their number was estimated from a sample.
	Objects HeapAmount
	Sampled bool
}

// Conservative reports whether the way begins at what looks like a reference: a word of a thread's stack. It may be one
// that the thread has no more use for.
func (p *HeapPath) Conservative() bool { return p.Root == RootStack }

// Kept reports whether the path begins at something that keeps objects for certain.
func (p *HeapPath) Kept() bool {
	switch p.Root {
	case RootStatic, RootThreadStatic, RootHandle, RootFinalizer, RootCode:
		return true
	}
	return false
}

// Beginning says what the path begins at: "static field Shop.Bus.Raised", "handle (strong)".
func (p *HeapPath) Beginning() string {
	switch p.Root {
	case RootStatic:
		if p.Static == "" {
			return "a static field (likely)"
		}
		return "static field " + p.Static
	case RootThreadStatic:
		return strings.TrimSpace("thread static field "+p.Static) + " of " + p.Thread.text()
	case RootHandle:
		return "handle (" + string(p.Handle) + ")"
	case RootFinalizer:
		return "finalizer queue: its finalizer is to run"
	case RootStack:
		text := "stack of " + p.Thread.text() + " (conservative)"
		if p.Method != "" {
			text += ", in " + p.Method
		}
		return text
	case RootCode:
		return "code that " + p.Thread.text() + " runs: " + p.Method
	case RootCircle:
		return "objects that refer to each other, and nothing else that is known"
	}
	return "nothing that is known: it is likely to be collected next"
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

// The roots. A RootStatic without a field is likely: what keeps the object looks like a table of static fields.
const (
	RootStatic       HeapRoot = "static field"
	RootThreadStatic HeapRoot = "thread static field" // of which each thread has its own
	RootHandle       HeapRoot = "handle"
	RootFinalizer    HeapRoot = "finalizer queue" // its finalizer is to run
	RootStack        HeapRoot = "stack"           // see Conservative
	RootCode         HeapRoot = "running code"    // a thread runs code of the load context
	RootUnknown      HeapRoot = "unknown"         // nothing on the heap, and nothing else that is known
	RootCircle       HeapRoot = "circle"          // only objects that refer to each other, and nothing that is known
)

// HandleKind is what a handle does.
type HandleKind string

// The handles that keep their objects. .NET 8 and later have no use for the last two.
const (
	HandleStrong      HandleKind = "strong"
	HandlePinned      HandleKind = "pinned"
	HandleVariable    HandleKind = "variable"
	HandleRefCounted  HandleKind = "ref-counted" // as long as native code has a use for it
	HandleAsyncPinned HandleKind = "async pinned"
	HandleSized       HandleKind = "sized"
)

// HeapStep is an object on a path, or several in a row of the same type.
type HeapStep struct {
	Type  string
	Of    string // as in Wait, if it is the same of all objects that are kept like this
	Times int    // how many follow one another; 1 or more
	Field string // in which the next object is referred to; empty: not known, or an element of an array
	// Dependent: a dependent handle keeps the next one as long as this one is there; no field does.
	Dependent bool
	// ByType: an object of a type that can be unloaded keeps the LoaderAllocator of the type; no field does.
	ByType bool
	Static string // of a table of static fields: the one that refers to the next object; empty: not known
	Gap    bool   // objects in front of these are left out: the way has more than a thousand
}
