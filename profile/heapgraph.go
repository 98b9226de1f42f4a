package profile

import "iter"

// HeapGraph is every object of a heap, and to which others it refers.
type HeapGraph struct {
	Classes []HeapClass
	Count   int // how many objects there are; their numbers are 0 to Count - 1
	// Objects goes through all objects, by number, as often as it is called.
	Objects iter.Seq[HeapObject]
	Roots   []HeapRootSet // what keeps objects; every object can be reached from one of them
	Regions []HeapRegion  // by address
}

// HeapClass is the class of objects. Several can have the same name: an assembly can be loaded more than once.
type HeapClass struct {
	Name     string // as stacks name it, with namespaces
	Assembly string // simple name; empty: it has none
}

// HeapObject is an object.
type HeapObject struct {
	Address uint64
	Bytes   uint64
	Class   int // index in HeapGraph.Classes
	// References are the numbers of the objects that it refers to, once for each reference. They are valid until the
	// next object is asked for.
	References []uint32
}

// HeapRootSet is something that is no object of the heap, and the objects that it keeps.
type HeapRootSet struct {
	Root    HeapRoot
	Static  string     // of RootStatic and RootThreadStatic: the field, if it is known: Shop.Bus.Raised
	Handle  HandleKind // of RootHandle
	Objects []uint32
}

// HeapRegion is a piece of memory with objects of one generation.
type HeapRegion struct {
	Start, End uint64 // End is the first address behind it
	Generation Generation
}

// HeapKeeper is what objects of one type keep from being collected: those of which each is kept, first of all, by one
// of the objects of another HeapKeeper. A tree of them says what keeps what, type by type. Objects of one type that
// keep one another in a row, such as those of a linked list, are one HeapKeeper.
type HeapKeeper struct {
	Parent   int32      // index of an earlier one; of the first, which stands for all objects: 0
	Type     int32      // index in Heap.Types; -1: it stands for Root, or for all objects
	Root     HeapRoot   // what certainly keeps the objects below, if it has no Type; empty: of the first
	Static   string     // of RootStatic and RootThreadStatic: the field, if it is known
	Handle   HandleKind // of RootHandle
	Objects  HeapAmount // of the type
	Retained uint64     // bytes of Objects and of what only they keep, also of what is too little to be in the tree
}
