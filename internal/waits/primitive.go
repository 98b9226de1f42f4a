package waits

import (
	"slices"

	"clrsnap/profile"
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
	kind  profile.WaitKind // "": none
	first int              // the managed frame nearest to the leaf; -1: there is none
	outer int              // the frame of the outermost primitive
	guess bool             // the kind is the likelier one of two
}

// classify finds the outermost primitive (profile.PrimitiveOf).
func classify(frames []profile.Frame) primitive {
	p := profile.PrimitiveOf(frames)
	first := slices.IndexFunc(frames, func(f profile.Frame) bool { return f.Kind == profile.Managed })
	return primitive{p.Kind, first, p.Outer, p.Guess}
}
