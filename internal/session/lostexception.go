package session

import (
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/thread"
	"clrsnap/profile"
)

// A dump can lack the memory of an exception, for example because the dump is cut off. What is there is shown, and the
// error of the read stands in the place of the rest.

// unnamed stands for the name of a thing at an address.
func unnamed(what string, at arch.Addr) string { return fmt.Sprintf("[%s %v]", what, at) }

// lostException stands for an exception whose object is in memory that the dump lacks; nil: err has another reason.
func (p *Process) lostException(obj arch.Addr, err error) *thrown {
	if !p.from.leftOut(err) {
		return nil
	}
	return &thrown{
		at: obj, name: unnamed("exception", obj), object: thread.ExceptionObject{Unread: true}, traceErr: err.Error(),
	}
}

// stillExceptions describes the exceptions of a thread of a dump. crashed: the process died of the thread.
func (s *visit) stillExceptions(crashed bool) []*profile.ExceptionInfo {
	p, info := s.g.names, &s.Walk.Info
	threads := p.Managed.Threads
	objects, uncertain := threads.InFlight(info), ""
	cut := p.from.leftOut(threads.FlightError(info))
	if len(objects) == 0 && (crashed || cut) {
		objects = []arch.Addr{threads.LastException(info)}
		if !crashed {
			uncertain = uncertainCut
		}
	}
	all := p.exceptions(objects, uncertain)
	if err := threads.ThrownError(info); len(all) == 0 && (crashed || cut) && p.from.leftOut(err) {
		all = []*profile.ExceptionInfo{{Type: "[exception]", NoMessage: true, NoFrames: err.Error()}}
	}
	return all
}
