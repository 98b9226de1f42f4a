// Package heap proves the heap reader's results: the number of objects by type, and the proved share. It also proves
// that a read stops no thread, and that a read with a stop stops all threads. docs/correctness.md, The heap, has the
// results.
//
// A heap of one moment has exactly the counted objects of each type. In a heap that grows, the objects of one moment
// are in the order of their allocation: for each thousand objects of one type there is one object of another type, in
// another part of the heap. In TestNoStop a thread never waits. The kernel counts how often the thread gives up its
// CPU by itself: never during a read, and at least once for each stop.
package heap
