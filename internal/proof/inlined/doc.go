// Package inlined proves that the methods clrsnap shows as inlined were inlined there: against the trees
// that the runtime records with DOTNET_RichDebugInfo=1, which clrsnap's own proofs do not use, and
// against the events of the JIT (MethodJitInliningSucceeded). docs/correctness.md, Inlined methods, has the
// results.
//
// A proved method must be in the tree, on the path to a node whose IL has a call that can lead to the callee.
// The points of the tree stand for statements, and the JIT moves calls between statements: the return expression
// of an inlined method becomes part of the caller's statement, and a call whose result is used once moves to the
// use. At 135 of 510 calls of a compiler, the point named another method than the caller. So a node without a
// matching call in its IL does not count.
package inlined
