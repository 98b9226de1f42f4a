// Package bridge has the key to the inside of the public packages. The functions Inside of the root package, of events
// and of record want the key, so that only packages of this module can call the functions.
package bridge

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
)

// Access is the key. A program outside of this module cannot make one.
type Access struct{ _ bool }

// Frame is a callback's view of a frame.
type Frame struct {
	Method  arch.Addr // the method's MethodDesc; 0: a run of unmanaged frames
	IP      arch.Addr
	Code    *codemap.Code // nil: unknown
	Context *arch.Context // nil: nobody asked for the context
}
