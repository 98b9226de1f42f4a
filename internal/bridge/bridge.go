// Package bridge gives the packages events and record access to the inside of the root package's public types, and
// gives record access to the inside of events. The root package and events set the variables. Public types are any
// here, because this package cannot import the packages that declare them.
package bridge

import (
	"time"

	"clrsnap/internal/agent"
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/session"
	"clrsnap/snapshot"
)

var (
	// Session returns the session of a *clrsnap.Process.
	Session func(process any) *session.Process
	// Suspension returns the session's part of a *clrsnap.Suspension, for tests.
	Suspension func(suspension any) *session.Suspension
	// SetMode changes the clrsnap.Mode of a *clrsnap.Process, for tests.
	SetMode func(process, mode any)
	// Options converts clrsnap.Options.
	Options func(options any) session.Options
	// Thread makes a *clrsnap.Thread.
	Thread func(*session.Thread) any
	// Publish turns an error of an inner package into an error of the root package.
	Publish func(error) error
	// EventOptions returns events.Options with defaults for zero fields; an error if the options are invalid.
	EventOptions func(options any) (any, error)
	// EventRequest turns events.Options into a request to the agent.
	EventRequest func(options any, maxPause time.Duration) agent.Subscription
	// Attachable returns an error if events.Options need a program started with the agent.
	Attachable func(options any) error
	// Notification makes an *events.Notification of a record of the agent's. options is
	// *events.Options.
	Notification func(p *session.Process, options any, means agent.AllocMeans, r *agent.Record) any
	// Watch makes a recording with these *record.Options call f for every walk. The walked moment lies between begin
	// and end, in nanoseconds of CLOCK_MONOTONIC. Watch is for proofs.
	Watch func(options any, f func(th *snapshot.Thread, begin, end uint64))
	// Call calls a clrsnap.StackSnapshotCallback for a frame.
	Call func(p *session.Process, callback any, f *Frame, clientData any) error
)

// Frame is a callback's view of a frame.
type Frame struct {
	Method  arch.Addr // the method's MethodDesc; 0: a run of unmanaged frames
	IP      arch.Addr
	Code    *codemap.Code // nil: unknown
	Context *arch.Context // nil: nobody asked for the context
}
