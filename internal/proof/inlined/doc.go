// Package inlined proves that the methods clrsnap shows as inlined were inlined there: against the trees
// that the runtime records with DOTNET_RichDebugInfo=1, which clrsnap's own proofs do not use, and
// against the events of the JIT.
package inlined
