// Package lines proves that source lines are right. A program (testdata/apps/lines) stops at every kind of
// place of a source text, compiled in every way: lambdas, local functions, iterators, async methods, every
// statement and kind of member, generics, exception handlers, loops, native callbacks, reflection, #line.
// docs/correctness.md, Lines, has the results.
//
// The witnesses are the runtime's own StackTrace(true), taken by the thread before the stop;
// [CallerLineNumber], the line of the call at the leaf as the compiler knows the line; comments in the sources,
// which name each place whose stack has the line; and Microsoft's debugger library (TestWitness). A line
// without a mark must be the sources' line. Where StackTrace says something else, a rule must explain the
// difference (rules_test.go). Other rules are about the witnesses: a statement of several lines has its
// first line, hidden text has the line before, and an inlined callee has no frame.
//
// TestSoak takes snapshots of a program that makes, replaces and unloads code, throws and collects. Each line
// must belong to the frame's method, as System.Reflection.Metadata reads the PDB.
package lines
