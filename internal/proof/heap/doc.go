// Package heap proves the heap reader's results: the number of objects by type, and the proved share; no stop for a
// normal read, or a stop of everything on request. docs/correctness.md, "The heap", has the method and the results.
package heap
