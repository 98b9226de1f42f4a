package session

import (
	"context"
	"fmt"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/naming"
	"clrsnap/profile"
)

// A dump can lack the memory of an exception, for example because the dump is cut off. What is there is shown, and the
// error of the read stands in the place of the rest.

// unnamed stands for the name of a thing at an address.
func unnamed(what string, at arch.Addr) string { return fmt.Sprintf("[%s %v]", what, at) }

// lostException stands for an exception whose object is in memory that the dump lacks; nil: err has another reason.
func (p *Process) lostException(obj arch.Addr, err error) *thrown {
	if !p.from.LeftOut(err) {
		return nil
	}
	return &thrown{
		at: obj, name: unnamed("exception", obj), object: thread.ExceptionObject{Unread: true}, traceErr: err.Error(),
	}
}

// stillExceptions describes the exceptions of a thread of a dump. crashed: the process died of the thread.
func (s *visit) stillExceptions(crashed bool) []*profile.ExceptionInfo {
	p, names, info := s.Process, s.g.names, &s.Walk.Info
	threads := p.Managed.Threads
	objects, uncertain := threads.InFlight(info), ""
	cut := p.from.LeftOut(threads.FlightError(info))
	if len(objects) == 0 && (crashed || cut) {
		objects = []arch.Addr{threads.LastException(info)}
		if !crashed {
			uncertain = uncertainCut
		}
	}
	all := p.exceptions(names, objects, uncertain)
	if err := threads.ThrownError(info); len(all) == 0 && (crashed || cut) && p.from.LeftOut(err) {
		all = p.unreferenced(names, err, crashed)
	}
	return all
}

// searchTime bounds the search of a dump's heap for one exception.
const searchTime = 5 * time.Second

// unreferenced describes an exception to which the dump has no reference. err is why the reference cannot be read. If
// the process died of the exception, the exception can be the only exception with a stack trace on the heap.
func (p *Process) unreferenced(names naming.Stacks, err error, crashed bool) []*profile.ExceptionInfo {
	var found []arch.Addr
	if crashed && p.Runtime != nil && p.Managed.Heap != nil {
		found = p.onHeap()
	}
	if len(found) == 1 {
		return p.exceptions(names, found, uncertainAlone)
	}
	reason := err.Error()
	if len(found) > 1 {
		reason += fmt.Sprintf("; %d exceptions with a stack trace are on the heap (clrsnap heap --core FILE "+
			"--type Exception)", len(found))
	}
	return []*profile.ExceptionInfo{{Type: "[exception]", NoMessage: true, NoFrames: reason}}
}

// onHeap returns the exceptions on the heap of a dump that were thrown, and that did not lead to others of these. A
// heap that cannot be searched to its end in time has none.
func (p *Process) onHeap() (found []arch.Addr) {
	ctx, cancel := context.WithTimeout(context.Background(), searchTime)
	defer cancel()
	var objects []arch.Addr
	o := p.NewHeapWalk(ctx, WalkOptions{}).Options()
	o.Want = func(class arch.Addr) bool {
		_, base, known := p.knownBase(class)
		return known && base != ""
	}
	o.Visit = func(_ *heap.Region, all []heap.Object) {
		for i := 0; i < len(all) && len(objects) <= maxExceptions; i++ {
			objects = append(objects, all[i].Addr)
		}
	}
	if _, err := p.WalkHeap(o); err != nil || ctx.Err() != nil || len(objects) > maxExceptions {
		return nil
	}
	all := p.read(objects)
	led := map[arch.Addr]bool{}
	for _, t := range all {
		led[t.object.Inner] = true
	}
	for _, t := range all {
		if len(t.trace.Frames) > 0 && !led[t.at] {
			found = append(found, t.at)
		}
	}
	return found
}
