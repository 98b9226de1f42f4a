package perfevent

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Scope is the set of threads or CPUs that the kernel watches in order to sample a process.
type Scope uint8

// The scopes, the best scope first. doc.go describes the requirements and the cost of each scope.
const (
	Filtered   Scope = iota + 1 // each CPU; a BPF program drops the samples of other processes
	Unfiltered                  // each CPU; the samples of other processes are copied, and dropped here
	PerThread                   // each thread of the process
)

func (s Scope) String() string {
	names := [...]string{"none", "CPUs, filtered", "CPUs, unfiltered", "threads"}
	return names[min(int(s), len(names)-1)]
}

// setScope opens the first generation of events in the best permitted scope, or in the requested
// scope.
func (e *Events) setScope(stackBytes int) error {
	if e.o.Scope != 0 {
		return e.tryScope(e.o.Scope, stackBytes)
	}
	for s := Filtered; ; s++ {
		err := e.tryScope(s, stackBytes)
		if err == nil || s == PerThread || errors.Is(err, ErrExited) {
			return err
		}
		e.why = err
	}
}

// tryScope opens the first generation of events in a scope, with the scope's filter.
func (e *Events) tryScope(s Scope, stackBytes int) error {
	e.scope, e.attr = s, e.asked
	e.accept.open, e.accept.adopts = e.o.Children && s != Unfiltered, e.o.Children && s == Unfiltered
	if s == Filtered {
		if err := e.openFilter(); err != nil {
			e.closeFilter()
			return err
		}
		e.idle = readIdle()
	}
	err := e.start(stackBytes)
	if err != nil {
		e.closeFilter()
	}
	return err
}

// wideError explains why an event of a whole CPU was not granted.
func wideError(err error) error {
	switch err {
	case unix.EACCES, unix.EPERM:
		return fmt.Errorf("whole CPUs may not be watched (%w): "+
			"that takes CAP_PERFMON, or kernel.perf_event_paranoid at 0 (it is %d)", err, paranoid())
	}
	return fmt.Errorf("whole CPUs may not be watched: %w", err)
}

// Scope returns the scope. why says why the scope is not better; nil: the scope is the best, or
// was requested.
func (e *Events) Scope() (s Scope, why error) { return e.scope, e.why }

// Follow makes the kernel sample another process too, from now on; not in the scope PerThread.
// With Options.Children, children of the process are followed automatically.
func (e *Events) Follow(pid int) error {
	e.accept.pids[pid] = true
	if e.filter != nil {
		return e.filter.follow(pid)
	}
	return nil
}

// Forget ends Follow, for a process that has ended.
func (e *Events) Forget(pid int) {
	delete(e.accept.pids, pid)
	if e.filter != nil {
		e.filter.forget(pid)
	}
}
