package session

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/thread"
	"clrsnap/profile"
)

// maxInner bounds the exceptions that led to one another.
const maxInner = 16

// exception describes the last managed exception of a thread; nil if there is none that can
// be read.
func (p *Process) exception(t *thread.Thread) *profile.Thrown {
	if p.Runtime == nil {
		return nil
	}
	var first *profile.Thrown
	to := &first
	obj := p.Runtime.Threads.LastException(t)
	for range maxInner {
		if obj == 0 {
			break
		}
		var e *profile.Thrown
		e, obj = p.readException(obj)
		if e == nil {
			break
		}
		*to, to = e, &e.Inner
	}
	return first
}

// readException describes an exception object and returns the address of the one that
// led to it.
func (p *Process) readException(obj arch.Addr) (*profile.Thrown, arch.Addr) {
	e, err := p.Runtime.Threads.ReadException(obj)
	if err != nil {
		return nil, 0
	}
	class, err := p.Runtime.Names.Class(e.Type)
	if err != nil {
		return nil, 0
	}
	return &profile.Thrown{Type: class.Display, Message: e.Message, NoMessage: e.Unread, HResult: e.HResult}, e.Inner
}
