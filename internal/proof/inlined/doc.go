// Package inlined proves that what clrsnap shows as inlined was inlined there: against the trees that the
// runtime records with DOTNET_RichDebugInfo=1, and which the proofs do not use, and against the events of
// its JIT.
package inlined
