// Package heapwalk reads the managed heap of a process: objects by type, instances, strings, what keeps objects, and
// large collections.
//
// Heap counts objects, and finds roots, paths, retained sizes and dominators. Piles finds large collections,
// PilePath and KeptBy find what keeps them and others. The program runs while its heap is walked,
// unless Options.Stop asks for a stop: package internal/clr/heap says what is consistent.
package heapwalk

// coreLib is the assembly of the classes that are known here by name.
const coreLib = "System.Private.CoreLib"
