package events

import (
	"time"

	"clrsnap"
	"clrsnap/internal/agent"
	"clrsnap/internal/bridge"
	"clrsnap/internal/session"
)

// root is the inside of the root package.
var root = clrsnap.Inside(bridge.Access{})

// inside leads from the options to the agent's side, and back from the agent's records.
type inside struct{}

// Inside is for the other packages of this module.
func Inside(bridge.Access) inside { return inside{} }

// Complete gives zero fields of the options their defaults; an error if the options are invalid.
func (inside) Complete(o *Options) error { return o.complete() }

// Request turns the options into a request to the agent.
func (inside) Request(o *Options, maxPause time.Duration) agent.Subscription {
	return o.request(maxPause)
}

// Attachable returns an error if the options need a program started with the agent.
func (inside) Attachable(o *Options) error { return o.attachable() }

// Notification makes a notification of a record of the agent's.
func (inside) Notification(p *session.Process, o *Options, means agent.AllocMeans, r *agent.Record) *Notification {
	return newNotification(p, o, means, r)
}
