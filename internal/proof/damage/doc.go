// Package damage proves that a damaged core dump gives a result or an error: no panic, no hang, no
// memory without bound. docs/correctness.md, Core dumps, has the results.
//
// The tests truncate dumps anywhere, and change bytes in headers, notes, stacks, Thread objects, MethodDescs,
// code headers, objects of the heap and other memory. A result may take 10 s, and at most twice the memory of the
// intact dump. TestDamagedCores prints its seed; the flag -seed repeats a single damage.
package damage
