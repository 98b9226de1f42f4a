package session

import (
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/lock"
	"clrsnap/internal/moment"
	"clrsnap/internal/target"
	"clrsnap/snapshot"
)

// From .NET 11 on a monitor is a System.Threading.Lock, and the sync table refers to it. So a Lock that a thread
// waits for, and that the table lacks, is nobody's monitor, and never will be. Apart from monitors, only
// ManualResetEventSlim has a Lock with a Condition to wait for: class Condition is internal to
// System.Private.CoreLib, a Lock makes its own Condition (Lock.GetOrCreateCondition), and in .NET 11.0.0 no other
// class has a field or a variable of type Condition.

// plainLocks are Locks with waiters that the sync table lacks, by their addresses, as of a GC epoch.
type plainLocks struct {
	epoch moment.Epoch
	since map[arch.Addr]time.Time // when the Lock was seen; zero: the Lock is no monitor
}

// maxPlainLocks bounds the remembered Locks.
const maxPlainLocks = 1 << 14

// plain returns the kind of a thread's wait. The thread has just been walked, and is blocked on a Lock, or a
// Condition, that is not known to be a monitor's; "": the kind is not certain. epoch is from before the search for
// the monitor.
func (s *Suspension) plain(i *lock.Info, epoch moment.Epoch) snapshot.WaitKind {
	p := s.Process
	p.Engine.Cache.Invalidate()
	at, err := p.Managed.Locks.LockOf(i)
	// The collector updates the thread's reference: if the reference is the same, the object was not moved.
	now, err2 := target.NewReader(p.from).Pointer(i.Slot)
	if err != nil || err2 != nil || now != i.Object || !p.moments.Unmoved(epoch) || !s.Rests() {
		return ""
	}
	switch {
	case !p.isPlain(at, epoch):
		return ""
	case i.Condition:
		return snapshot.EventWait
	}
	return snapshot.LockEnter
}

// isPlain reports whether a Lock with waiters, and without an entry at the last look through the sync table, is no
// monitor: the Lock was there before the begin of a look that found all monitors.
func (p *Process) isPlain(at arch.Addr, epoch moment.Epoch) bool {
	l, locks := &p.plainLocks, p.Managed.Locks
	if l.epoch != epoch || len(l.since) >= maxPlainLocks {
		*l = plainLocks{epoch, map[arch.Addr]time.Time{}}
	}
	since, seen := l.since[at]
	if !seen {
		since = time.Now()
		l.since[at] = since
	}
	if since.IsZero() {
		return true
	}
	if begun, _ := locks.Looked(); !begun.After(since) {
		if !locks.Due(true) {
			return false
		}
		locks.Look()
		p.Engine.Cache.Invalidate()
	}
	if _, all := locks.Looked(); !all || !p.moments.Unmoved(epoch) {
		return false
	}
	if _, monitor := locks.Entered(at); monitor {
		return false
	}
	l.since[at] = time.Time{}
	return true
}
