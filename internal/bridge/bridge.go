// Package bridge leads from the public types of the root package to what is in them, for
// the public packages beside it: a Process is opened there, and recorded and subscribed to
// here. The root package fills in the variables; its types are any, because no package below
// it can know them.
package bridge

import (
	"clrsnap/internal/agent"
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/session"
	"clrsnap/profile"
	"time"
)

var (
	// Session is what a *clrsnap.Process works with.
	Session func(process any) *session.Process
	// Options are what clrsnap.Options mean.
	Options func(options any) session.Options
	// Thread is a *clrsnap.Thread.
	Thread func(*session.Thread) any
	// Publish turns an error of a session's into one that callers may know.
	Publish func(error) error
	// EventOptions are events.Options with the defaults of zero fields, or why they are none.
	EventOptions func(options any) (any, error)
	// EventRequest is what the agent is asked for by events.Options.
	EventRequest func(options any, maxPause time.Duration) agent.Subscription
	// Attachable returns why events.Options cannot be had of a program that runs already.
	Attachable func(options any) error
	// Notification is an *events.Notification, of what the agent has reported. options is
	// *events.Options.
	Notification func(p *session.Process, options any, means agent.AllocMeans, r *agent.Record) any
	// Watch has f told of every walk of a recording with *record.Options, and between which
	// times of CLOCK_MONOTONIC the moment was that it is about. It is for proofs.
	Watch func(options any, f func(th *profile.Thread, begin, end uint64))
	// Call calls a clrsnap.StackSnapshotCallback for a frame.
	Call func(p *session.Process, callback any, f *Frame, clientData any) error
)

// Frame is what a callback is told of a frame.
type Frame struct {
	Method  arch.Addr // its MethodDesc; 0: a run of unmanaged frames
	IP      arch.Addr
	Code    *codemap.Code // nil where it is not known
	Context *arch.Context // nil if it was not asked for
}
