// Package details tests the facts about frames and threads besides their names: source lines, type arguments, inlined
// methods, exceptions, heaps, tasks and the waits of threads.
//
// Each program notes its own truth, and the tests compare: the type arguments by typeof, the chains of awaits in an
// AsyncLocal, the sets of deadlocked threads, the count of objects by class, the printed text of exceptions. Tests with
// Witness in the name compare with ClrMD. Tests with Collecting, Collected, Move or Moving in the name have the
// collector move the objects all the time: a result may then be missing or marked uncertain, but never wrong.
package details
