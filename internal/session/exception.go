package session

import (
	"context"
	"fmt"
	"slices"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/exceptions"
	"clrsnap/internal/naming"
	"clrsnap/snapshot"
)

// coreLib is the assembly with the classes that the runtime itself knows.
const coreLib = "System.Private.CoreLib"

// Why a described exception may be the wrong exception.
const (
	uncertainMoved = "the garbage collector ran, or the exception changed, while it was read"
	uncertainRan   = "the thread ran meanwhile: the exception was in flight a moment after the stack"
	uncertainFound = "found among the objects that the stack refers to"
	uncertainAlone = "the only exception with a stack trace on the heap: the dump lacks what the thread refers to"
	uncertainCut   = "the exception that the thread threw last: the dump lacks the record of the exceptions in flight"
)

// exception describes the exceptions of a captured thread.
func (s *visit) exception(st *snapshot.Thread) {
	p := s.Process
	switch {
	case p.Managed == nil:
		return
	case !p.moments.Changes():
		setExceptions(st, s.stillExceptions(st.Crashed))
	case s.Walk.Info.Address != 0 && s.Walk.Info.Exception != 0:
		setExceptions(st, s.liveExceptions())
	}
	if st.Exception == nil && p.Runtime != nil {
		s.unobserved(st)
	}
}

func setExceptions(st *snapshot.Thread, all []*snapshot.ExceptionInfo) {
	if len(all) > 0 {
		st.Exception, st.Handling = all[0], all[1:]
	}
}

// liveExceptions describes the exceptions in flight of a thread of a running process. Objects move
// and change meanwhile. Exceptions are certain if two readings are equal, and no collection was
// under way before, between and after the readings.
func (s *visit) liveExceptions() []*snapshot.ExceptionInfo {
	find := func() []arch.Addr { return s.Process.Managed.Threads.InFlight(&s.Walk.Info) }
	all, stands := s.Process.thrown.ReadTwice(find)
	uncertain := ""
	switch {
	case !stands:
		uncertain = uncertainMoved
	case !s.unmoved():
		uncertain = uncertainRan
	}
	if !s.Process.Managed.Threads.StillInFlight(&s.Walk.Info) {
		return nil // handled since: the data read can be anything
	}
	out := make([]*snapshot.ExceptionInfo, 0, len(all))
	for _, t := range all {
		out = append(out, t.Describe(s.g.names, uncertain))
	}
	return out
}

// unmoved reports whether the thread has certainly not run since the capture.
func (s *Suspension) unmoved() bool {
	return !s.ran && s.Process.moments.Rests(s.Thread.OSThreadID, s.Capture.Proof)
}

// The method that reports the exceptions of an unobserved task, and the class of the handlers'
// arguments (System.Private.CoreLib, TaskExceptionHolder.cs and TaskScheduler.cs).
const (
	holderFinalizer = "System.Threading.Tasks.TaskExceptionHolder.Finalize"
	unobservedArgs  = "System.Threading.Tasks.UnobservedTaskExceptionEventArgs"
)

// unobserved describes the exception that a thread passes to the handlers of
// TaskScheduler.UnobservedTaskException. The exception is not in flight: only the arguments of the
// handlers refer to the exception, and some frame refers to the arguments.
func (s *visit) unobserved(st *snapshot.Thread) {
	if s.Thread.Role != finalizer {
		return
	}
	at := slices.IndexFunc(st.Frames, func(f snapshot.Frame) bool {
		return f.Method == holderFinalizer && f.Module == coreLib
	})
	if at < 0 || at+1 >= len(st.Frames) {
		return
	}
	p := s.Process
	find := func() []arch.Addr {
		args := p.Managed.Threads.Objects(arch.Addr(st.Frames[0].SP), arch.Addr(st.Frames[at+1].SP), p.isUnobserved)
		if len(args) != 1 {
			return nil
		}
		return []arch.Addr{p.Managed.Threads.First(args[0])}
	}
	all, stands := p.thrown.ReadTwice(find)
	uncertain := uncertainFound
	if !stands {
		uncertain = uncertainMoved
	}
	if len(all) == 1 {
		st.Exception = all[0].Describe(s.g.names, uncertain)
	}
}

func (p *Process) isUnobserved(class arch.Addr) bool {
	c, err := p.Runtime.Names.Class(class)
	return err == nil && c.Display == unobservedArgs && c.Assembly == coreLib
}

// A dump can lack the memory of an exception, for example because the dump is cut off. What is there is shown, and the
// error of the read stands in the place of the rest.

// stillExceptions describes the exceptions of a thread of a dump. crashed: the process died of the thread.
func (s *visit) stillExceptions(crashed bool) []*snapshot.ExceptionInfo {
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
	all := p.thrown.Exceptions(names, objects, uncertain)
	if err := threads.ThrownError(info); len(all) == 0 && (crashed || cut) && p.from.LeftOut(err) {
		all = p.unreferenced(names, err, crashed)
	}
	return all
}

// searchTime bounds the search of a dump's heap for one exception.
const searchTime = 5 * time.Second

// unreferenced describes an exception to which the dump has no reference. err is why the reference cannot be read. If
// the process died of the exception, the exception can be the only exception with a stack trace on the heap.
func (p *Process) unreferenced(names naming.Stacks, err error, crashed bool) []*snapshot.ExceptionInfo {
	var found []arch.Addr
	if crashed && p.Runtime != nil && p.Managed.Heap != nil {
		found = p.onHeap()
	}
	if len(found) == 1 {
		return p.thrown.Exceptions(names, found, uncertainAlone)
	}
	reason := err.Error()
	if len(found) > 1 {
		reason += fmt.Sprintf("; %d exceptions with a stack trace are on the heap (clrsnap heap --core FILE "+
			"--type Exception)", len(found))
	}
	return []*snapshot.ExceptionInfo{{Type: "[exception]", NoMessage: true, NoFrames: reason}}
}

// onHeap returns the exceptions on the heap of a dump that were thrown, and that did not lead to others of these. A
// heap that cannot be searched to its end in time has none.
func (p *Process) onHeap() []arch.Addr {
	ctx, cancel := context.WithTimeout(context.Background(), searchTime)
	defer cancel()
	var objects []arch.Addr
	o := p.NewHeapWalk(ctx, WalkOptions{}).Options()
	o.Want = func(class arch.Addr) bool {
		is, known := p.thrown.IsException(class)
		return known && is
	}
	o.Visit = func(_ *heap.Region, all []heap.Object) {
		for i := 0; i < len(all) && len(objects) <= exceptions.Most; i++ {
			objects = append(objects, all[i].Addr)
		}
	}
	if _, err := p.WalkHeap(o); err != nil || ctx.Err() != nil || len(objects) > exceptions.Most {
		return nil
	}
	return p.thrown.Thrown(objects)
}
