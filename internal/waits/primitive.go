package waits

import (
	"slices"

	"clrsnap/snapshot"
)

// The assemblies with primitives.
const (
	coreLib    = "System.Private.CoreLib"
	threading  = "System.Threading"
	concurrent = "System.Collections.Concurrent"
	sockets    = "System.Net.Sockets"
)

// primitive is a wait as the frames of a thread show it.
type primitive struct {
	kind  snapshot.WaitKind // "": none
	first int               // the managed frame nearest to the leaf; -1: there is none
	outer int               // the frame of the outermost primitive
	guess bool              // the kind is the likelier one of two
}

// classify finds the outermost primitive (snapshot.PrimitiveOf).
func classify(frames []snapshot.Frame) primitive {
	p := snapshot.PrimitiveOf(frames)
	first := slices.IndexFunc(frames, func(f snapshot.Frame) bool { return f.Kind == snapshot.Managed })
	return primitive{p.Kind, first, p.Outer, p.Guess}
}
