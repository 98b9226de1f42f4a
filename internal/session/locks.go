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

// A LockEvent is what the agent says of a wait for a lock.
type LockEvent struct {
	ID         uint64
	Class      arch.Addr // of the object that is locked, as the agent has found it
	Monitor    bool      // somebody waits for the monitor of what the agent has found
	Begin, End time.Duration
	Methods    iter.Seq[arch.Addr] // of the stack, the leaf first
}

// LockedClass returns the class of an object that is locked; false: the agent has found another object, or no class, or
// it is not certain whose monitor the lock is.
//
// Where monitors are Locks, the sync table has those of the objects that live now. Objects can be gone by the time that
// their events are read. So that a Lock is none's monitor is known only if the table was looked through during the
// wait, or if only who enters a Lock itself calls the methods that the frames show.
func (p *Process) LockedClass(e *LockEvent) (class arch.Addr, ok bool) {
	isLock := p.IsLock(e.Class)
	if p.Runtime.Locks == nil || !p.Runtime.Locks.Managed() {
		_, err := p.Class(e.Class)
		return e.Class, isLock || e.Monitor && err == nil
	}
	if isLock {
		p.locked.class = e.Class
	} // else it had moved: all that events name are Locks
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
		c, err := p.Runtime.Objects.Class(m.Object)
		if err != nil {
			return 0, false
		}
		return c.Table, true
	}
	// What was no monitor a moment ago is none now, unless another Lock has the same handle by now.
	return p.locked.class, p.locked.class != 0 && !monitor && ok && seen.class == 0 && e.Begin-seen.at < lockLasts
}

const (
	lockLasts    = time.Second
	maxLockLooks = 1 << 12
)

// lockLook is what the sync table said of a Lock: at was a moment after the look began.
type lockLook struct {
	class arch.Addr // of the object whose monitor it is; 0: of none
	at    time.Duration
}

// lockLooks is what is known of Locks.
type lockLooks struct {
	of      map[uint64]lockLook // by the ids that events have for them
	class   arch.Addr           // the MethodTable of System.Threading.Lock; 0: not known yet
	methods map[arch.Addr]int   // how methods lead to waits for Locks
	at      time.Duration       // when the latest look through the sync table began
	all     bool                // it has found all monitors
}

// LookAtLock finds out whose monitor a Lock is, for which a thread waits now: since is when the wait began.
func (p *Process) LookAtLock(id uint64, since time.Duration) {
	if seen, ok := p.locked.of[id]; ok && seen.at >= since {
		return
	}
	if p.locked.of == nil || len(p.locked.of) >= maxLockLooks {
		p.locked.of = map[uint64]lockLook{}
	}
	m, ok := p.MonitorOf(id)
	if ok {
		if c, err := p.Runtime.Objects.Class(m.Object); err == nil {
			p.locked.of[id] = lockLook{c.Table, live.Monotonic()}
		}
	} else if p.locked.all && p.locked.at > since {
		p.locked.of[id] = lockLook{0, p.locked.at}
	}
}

// MonitorOf returns the monitor that is a System.Threading.Lock, by the id that events have for it; false: none that
// lives now, as far as the sync table was looked through.
func (p *Process) MonitorOf(id uint64) (m lock.Monitor, ok bool) {
	locks := p.Runtime.Locks
	if m, ok = locks.OfEvent(id); ok || !locks.Due(true) {
		return m, ok
	}
	p.Engine.Cache.Invalidate() // objects have moved since it was read
	p.locked.at = live.Monotonic()
	p.locked.all = p.settled() && locks.Look()
	p.Engine.Cache.Invalidate()
	p.locked.all = p.locked.all && locks.Unmoved() && p.settled()
	return locks.OfEvent(id)
}

// settled reports whether no objects are being moved now.
func (p *Process) settled() bool {
	return !p.Runtime.Heap.Known() || p.Runtime.Heap.Settled(p.Live)
}

// How methods lead to a wait for a Lock (System.Private.CoreLib: Lock.cs, Monitor.cs, Condition.cs).
const (
	leadsElsewhere = iota
	leadsToLock    // of a monitor, or not
	entersLock     // that is no monitor
	entersMonitor
)

// entersMonitor reports whether the methods of a stack say that it enters a monitor; if they are sure, and do not, it
// enters a Lock itself.
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
		"System.Diagnostics.Tracing.NativeRuntimeEventSource."): // which raises the event
		return leadsToLock
	}
	return leadsElsewhere
}

// IsWaitHandle reports whether a class is System.Threading.WaitHandle, or derives from it.
func (p *Process) IsWaitHandle(class arch.Addr) bool {
	if _, err := p.Class(class); err != nil {
		return false
	}
	c, err := p.Runtime.Objects.Table(class)
	return err == nil && c.Is(coreLib, "System.Threading.WaitHandle")
}

// IsLock reports whether a class is System.Threading.Lock, whose objects are locks themselves. Other
// objects have a monitor.
func (p *Process) IsLock(class arch.Addr) bool {
	c, err := p.Class(class)
	return err == nil && c.Display == "System.Threading.Lock" && c.Assembly == coreLib
}
