package session

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/lock"
	"clrsnap/internal/target/live"
)

// A LockEvent is the agent's report of a wait for a lock.
type LockEvent struct {
	ID         uint64
	Class      arch.Addr // of the locked object, as the agent has found it
	Monitor    bool      // a thread waits for the monitor of the object that the agent has found
	Begin, End time.Duration
	Methods    iter.Seq[arch.Addr] // of the stack, the leaf first
}

// LockedClass returns the class of a locked object; false: the agent has found another object, or no class, or the
// object of the lock is not certain.
//
// Where monitors are Locks, the sync table has the monitors of live objects only. An object can be gone before its
// events are read. So a Lock is known to be no monitor in two cases: the table was searched during the wait, or the
// frames have only methods that are called to enter a Lock itself.
func (p *Process) LockedClass(e *LockEvent) (class arch.Addr, ok bool) {
	isLock := p.IsLock(e.Class)
	if p.Managed.Locks == nil || !p.Managed.Locks.Managed() {
		_, err := p.Class(e.Class)
		return e.Class, isLock || e.Monitor && err == nil
	}
	if isLock {
		p.locked.class = e.Class
	} // otherwise the object had moved: all events name Locks
	monitor, sure := p.entersMonitor(e.Methods)
	if sure && !monitor {
		return p.locked.class, p.locked.class != 0
	}
	seen, ok := p.locked.of[e.ID]
	if ok && seen.at >= e.Begin && seen.at <= e.End && (seen.class != 0 || !monitor) {
		class = cmp.Or(seen.class, p.locked.class)
		return class, class != 0
	}
	if m, ok := p.MonitorOf(e.ID); ok {
		c, err := p.Managed.Objects.Class(m.Object)
		if err != nil {
			return 0, false
		}
		return c.Table, true
	}
	// A Lock that was no monitor a moment ago is no monitor now, unless another Lock has got the handle meanwhile.
	return p.locked.class, p.locked.class != 0 && !monitor && ok && seen.class == 0 && e.Begin-seen.at < lockLasts
}

const (
	lockLasts    = time.Second
	maxLockLooks = 1 << 12
)

// lockLook is the sync table's answer about a Lock. The field at is a moment after the look began.
type lockLook struct {
	class arch.Addr // of the object whose monitor the Lock is; 0: the Lock is no monitor
	at    time.Duration
}

// lockLooks keeps facts about Locks.
type lockLooks struct {
	of      map[uint64]lockLook // by the ids in events
	class   arch.Addr           // the MethodTable of System.Threading.Lock; 0: not known yet
	methods map[arch.Addr]int   // how methods lead to waits for Locks
	at      time.Duration       // when the latest look through the sync table began
	all     bool                // the latest look has found all monitors
}

// LookAtLock finds the object whose monitor a Lock is. A thread has waited for the Lock since the time since, and
// still waits.
func (p *Process) LookAtLock(id uint64, since time.Duration) {
	if seen, ok := p.locked.of[id]; ok && seen.at >= since {
		return
	}
	if p.locked.of == nil || len(p.locked.of) >= maxLockLooks {
		p.locked.of = map[uint64]lockLook{}
	}
	m, ok := p.MonitorOf(id)
	if ok {
		if c, err := p.Managed.Objects.Class(m.Object); err == nil {
			p.locked.of[id] = lockLook{c.Table, live.Monotonic()}
		}
	} else if p.locked.all && p.locked.at > since {
		p.locked.of[id] = lockLook{0, p.locked.at}
	}
}

// MonitorOf returns the monitor that is a System.Threading.Lock, by the Lock's id in events; false: the Lock is no
// live monitor, as far as the sync table was searched.
func (p *Process) MonitorOf(id uint64) (m lock.Monitor, ok bool) {
	locks := p.Managed.Locks
	if m, ok = locks.OfEvent(id); ok || !locks.Due(true) {
		return m, ok
	}
	p.Engine.Cache.Invalidate() // objects have moved since the cache was filled
	p.locked.at = live.Monotonic()
	p.locked.all = p.settled() && locks.Look()
	p.Engine.Cache.Invalidate()
	p.locked.all = p.locked.all && locks.Unmoved() && p.settled()
	return locks.OfEvent(id)
}

// settled reports whether no objects are being moved now.
func (p *Process) settled() bool {
	return !p.moments.Known() || p.moments.Settled()
}

// How methods lead to a wait for a Lock (System.Private.CoreLib: Lock.cs, Monitor.cs, Condition.cs).
const (
	leadsElsewhere = iota
	leadsToLock    // a monitor, or any other Lock
	entersLock     // a Lock that is no monitor
	entersMonitor
)

// entersMonitor reports whether the methods of a stack enter a monitor. If sure is true and monitor is false, the
// stack enters a Lock itself.
func (p *Process) entersMonitor(methods iter.Seq[arch.Addr]) (monitor, sure bool) {
	for method := range methods {
		how, ok := p.locked.methods[method]
		if !ok {
			if p.locked.methods == nil || len(p.locked.methods) >= maxLockLooks {
				p.locked.methods = map[arch.Addr]int{}
			}
			how = p.leadsTo(method)
			p.locked.methods[method] = how
		}
		switch how {
		case entersMonitor:
			return true, true
		case entersLock:
			return false, true
		case leadsElsewhere:
			return false, false
		}
	}
	return false, false
}

func (p *Process) leadsTo(method arch.Addr) int {
	m, err := p.Method(method)
	if err != nil || m.Assembly != coreLib {
		return leadsElsewhere
	}
	in := func(prefixes ...string) bool {
		return slices.ContainsFunc(prefixes, func(s string) bool { return strings.HasPrefix(m.Exact, s) })
	}
	switch {
	case in("System.Threading.Monitor.", "System.Threading.Condition.", "System.Threading.ObjectHeader."):
		return entersMonitor
	case in("System.Threading.Lock.EnterScope", "System.Threading.Lock.EnterAndGetCurrentThreadId"):
		return entersLock
	case in("System.Threading.Lock.", "System.Threading.WaitHandle.", "System.Threading.WaitSubsystem",
		"System.Diagnostics.Tracing.NativeRuntimeEventSource."): // this class raises the event
		return leadsToLock
	}
	return leadsElsewhere
}

// IsWaitHandle reports whether a class is or derives from System.Threading.WaitHandle.
func (p *Process) IsWaitHandle(class arch.Addr) bool {
	if _, err := p.Class(class); err != nil {
		return false
	}
	c, err := p.Managed.Objects.Table(class)
	return err == nil && c.Is(coreLib, "System.Threading.WaitHandle")
}

// IsLock reports whether a class is System.Threading.Lock. Objects of the class are locks themselves; other objects
// have a monitor.
func (p *Process) IsLock(class arch.Addr) bool {
	c, err := p.Class(class)
	return err == nil && c.Display == "System.Threading.Lock" && c.Assembly == coreLib
}
