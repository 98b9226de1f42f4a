package session

import "clrsnap/internal/arch"

// LockedClass returns the class of an object that is locked, as the agent says; false: the agent has
// found another object, or no class. monitor: somebody waits for the monitor of what it has found.
func (p *Process) LockedClass(said uint64, monitor bool) (class arch.Addr, ok bool) {
	class = arch.Addr(said)
	if !monitor {
		return class, p.IsLock(class)
	}
	_, err := p.Class(class)
	return class, err == nil
}

// IsLock reports whether a class is System.Threading.Lock, whose objects are locks themselves. Other
// objects have a monitor.
func (p *Process) IsLock(class arch.Addr) bool {
	c, err := p.Class(class)
	return err == nil && c.Display == "System.Threading.Lock" && c.Assembly == coreLib
}
