package waits

import (
	"errors"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/lock"
	"clrsnap/snapshot"
)

// In .NET 11 the monitor is managed code (package lock, managedmonitor.go). A thread that wants to
// enter a monitor is in the Enter of the monitor's Lock. A thread in Monitor.Wait is in the Wait of
// the Lock's Condition. Both leave a record of the wait on the stack. The sync table leads from the
// Lock to the object.
//
// Sources (dotnet/runtime, development branch of .NET 11): System.Private.CoreLib: Monitor.cs,
// Condition.cs, ThreadBlockingInfo.cs.

const (
	conditionClass = "System.Threading.Condition"
	conditionWait  = conditionClass + ".Wait"
	lockMethods    = lockClass + "."

	maxWaiting = 1 << 10 // threads counted as waiters of one Condition
)

// managedMonitor returns a thread's wait for a managed monitor; nil: no known wait.
func (e *explanation) managedMonitor() (*monitorWait, error) {
	if e.p.kind == snapshot.LockEnter || e.p.kind == "" {
		return nil, nil // no monitor's Lock
	}
	w := &monitorWait{}
	obj := arch.Addr(0)
	switch waits, enters := e.inMonitor(); {
	case enters:
		at, most, ok := e.blockingInfo(infoOfLock, lockClass)
		if !ok || !e.isMonitor(at) {
			return nil, nil
		}
		w.enters, w.timeout, obj = true, most, at
	case waits:
		at, most, ok := e.blockingInfo(infoOfCondition, conditionClass)
		if !ok {
			return nil, nil
		}
		w.timeout, obj = most, at
	default:
		return nil, nil
	}
	w.read = func() (lock.Monitor, error) { return e.r.managedMonitor(obj, w.enters) }
	return w, nil
}

// isMonitor reports whether a Lock stands for the monitor that the thread wants to enter: the
// frames say so, or the sync table does. A primitive may be made of a Lock that is no monitor.
func (e *explanation) isMonitor(obj arch.Addr) bool {
	if e.p.kind == snapshot.MonitorEnter || e.p.kind == snapshot.MonitorWait {
		return true
	}
	_, ok, err := e.r.Managed.Locks.OfLock(obj)
	return ok && err == nil
}

// inMonitor reports whether the frames of the primitive say that the thread is in Monitor.Wait or
// wants to enter a Lock. A thread woken in Monitor.Wait enters.
func (e *explanation) inMonitor() (waits, enters bool) {
	for i := range e.s.Frames[:min(e.p.outer+1, len(e.s.Frames))] {
		f := &e.s.Frames[i]
		if f.Kind != snapshot.Managed || f.Module != coreLib {
			continue
		}
		switch {
		case strings.HasPrefix(f.Method, conditionWait):
			return true, false
		case strings.HasPrefix(f.Method, lockMethods):
			return false, true
		}
	}
	return false, false
}

// managedMonitor returns the monitor of a Lock or, without enters, of a Condition's Lock. If no
// object is known, the monitor has only the Lock.
func (r *Reader) managedMonitor(obj arch.Addr, enters bool) (m lock.Monitor, err error) {
	at, waiting := obj, 0
	if !enters {
		if at, waiting, err = r.condition(obj); err != nil {
			return m, err
		}
	}
	m, ok, err := r.Managed.Locks.OfLock(at)
	if err == nil && !ok {
		if m, err = r.Managed.Locks.Lock(at); err == nil {
			m.Object, m.Lock = 0, at
		}
	}
	if err == nil && enters && m.Owner == 0 {
		err = lock.ErrChanging // nobody is in the way
	}
	m.Waiting = waiting
	return m, err
}

// condition returns the Lock of a Condition, and the number of waiting threads; 0: too many to be
// counted for each thread.
func (r *Reader) condition(obj arch.Addr) (of arch.Addr, waiting int, err error) {
	objects := r.Managed.Objects
	class, err := objects.Class(obj)
	if err != nil {
		return 0, 0, err
	}
	if of, err = objects.Pointer(obj, class, "_lock"); err != nil {
		return 0, 0, err
	}
	head, err := objects.Pointer(obj, class, "_waitersHead")
	if err != nil {
		return of, 0, err
	}
	if waiting, err = r.waiters(head, "next", maxWaiting); errors.Is(err, errLong) {
		return of, 0, nil
	}
	return of, waiting, err
}
