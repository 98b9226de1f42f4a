package clrsnap

import (
	"clrsnap/internal/bridge"
	"clrsnap/internal/session"
)

// inside leads from the public types to the types behind them.
type inside struct{}

// Inside is for the other packages of this module.
func Inside(bridge.Access) inside { return inside{} }

// Session is the session of a process.
func (inside) Session(p *Process) *session.Process { return p.s }

// Suspension is the session's part of a suspension.
func (inside) Suspension(s *Suspension) *session.Suspension { return s.s }

// SetMode changes the mode of a process.
func (inside) SetMode(p *Process, m Mode) { p.mode = m }

// Options are the session's options.
func (inside) Options(o Options) session.Options { return o.session() }

// Thread is the public view of a thread.
func (inside) Thread(t *session.Thread) *Thread { return newThread(t) }

// Publish turns an error of an inner package into a public error.
func (inside) Publish(err error) error { return publish(err) }

// Call calls a callback for a frame of a notification.
func (inside) Call(p *session.Process, callback StackSnapshotCallback, f *bridge.Frame, clientData any) error {
	info := &FrameInfo{p: p, code: f.Code}
	var ctx *Context
	if f.Context != nil {
		ctx = newContext(f.Context)
	}
	err := callback(FunctionID(f.Method), uint64(f.IP), info, ctx, clientData)
	info.p = nil
	return err
}
