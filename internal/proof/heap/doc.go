// Package heap proves what the heap reader says: how many objects there are, by type, and which share of that is
// proved; that nothing is stopped for it, or everything if that is asked for. docs/correctness.md, "The heap", has the
// method and the results.
package heap
