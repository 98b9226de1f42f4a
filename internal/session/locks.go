package session

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/lock"
)

// LockedClass returns the class of an object that is locked, as the agent says of the lock with an id; false: the
// agent has found another object, or no class, or it is not certain whose monitor the lock is. monitor: somebody waits
// for the monitor of what the agent has found.
func (p *Process) LockedClass(id, said uint64, monitor bool) (class arch.Addr, ok bool) {
	class = arch.Addr(said)
	if !p.IsLock(class) {
		_, err := p.Class(class)
		return class, monitor && err == nil
	}
	if p.Runtime.Locks == nil || !p.Runtime.Locks.Managed() {
		return class, true
	}
	m, ok, known := p.MonitorOf(id)
	if !ok {
		return class, known
	}
	c, err := p.Runtime.Objects.Class(m.Object)
	if err != nil {
		return 0, false
	}
	return c.Table, true
}

// MonitorOf returns the monitor that is a System.Threading.Lock, by the id that events have for it. If there is none,
// known says whether that is certain.
func (p *Process) MonitorOf(id uint64) (m lock.Monitor, ok, known bool) {
	if m, ok, known = p.Runtime.Locks.OfEvent(id); !ok && !known {
		p.Engine.Cache.Invalidate() // objects have moved since it was read
		m, ok, known = p.Runtime.Locks.OfEvent(id)
	}
	return m, ok, known
}

// IsLock reports whether a class is System.Threading.Lock, whose objects are locks themselves. Other
// objects have a monitor.
func (p *Process) IsLock(class arch.Addr) bool {
	c, err := p.Class(class)
	return err == nil && c.Display == "System.Threading.Lock" && c.Assembly == coreLib
}
