// Package lines proves that source lines are right. A program (testdata/apps/lines) stops at every kind of
// place of a source text, compiled in every way. Its own StackTrace, the compiler's [CallerLineNumber],
// comments in its sources and Microsoft's debugger library each know the lines on its stacks.
// docs/correctness.md, Lines, has the methods and the results.
package lines
