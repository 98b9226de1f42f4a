package snapshot

import "iter"

// HeapGraph is every object of a heap, with its references.
type HeapGraph struct {
	Classes []HeapClass
	Count   int // how many objects there are; their numbers are 0 to Count - 1
	// Objects goes through all objects, by number, as often as it is called.
	Objects iter.Seq[HeapObject]
	Roots   []HeapRootSet // what keeps objects; every object can be reached from a root
	Regions []HeapRegion  // by address
}

// HeapClass is the class of objects. Several classes can have one name: an assembly can be loaded more than once.
type HeapClass struct {
	Name     string // as stacks name it, with namespaces
	Assembly string // simple name; empty: no assembly
}

// HeapObject is an object.
type HeapObject struct {
	Address uint64
	Bytes   uint64
	Class   int // index in HeapGraph.Classes
	// References are the numbers of the referenced objects, one number for each reference. The slice is valid until
	// the next object is asked for.
	References []uint32
}

// HeapRootSet is something outside the heap, and the objects that it keeps.
type HeapRootSet struct {
	Root    HeapRoot
	Static  string     // of RootStatic and RootThreadStatic: the field, if known: Shop.Bus.Raised
	Handle  HandleKind // of RootHandle
	Objects []uint32
}

// HeapRegion is a piece of memory with objects of one generation.
type HeapRegion struct {
	Start, End uint64 // End is the first address behind it
	Generation Generation
}

// HeapDominator is a node of the dominator tree, merged by type: objects of one type, whose immediate dominators all
// belong to the parent HeapDominator. Objects of one type that dominate one another in a row, for example the nodes of
// a linked list, are one HeapDominator.
type HeapDominator struct {
	Parent   int32      // index of an earlier HeapDominator; 0 for the first, which stands for all objects
	Type     int32      // index in Heap.Types; -1: this HeapDominator stands for Root, or for all objects
	Root     HeapRoot   // without a Type: what certainly keeps the objects below; empty for the first
	Static   string     // of RootStatic and RootThreadStatic: the field, if known
	Handle   HandleKind // of RootHandle
	Objects  HeapAmount // of the type
	Retained uint64     // bytes of Objects and of all that only Objects keep, also of parts too small for the tree
}
