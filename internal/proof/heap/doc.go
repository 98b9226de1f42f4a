// Package heap proves the heap reader's results: the number of objects by type, and the proved share. It also proves
// that a read stops no thread, and that a read with a stop stops all threads. docs/correctness.md, "The heap", has the
// method and the results.
package heap
