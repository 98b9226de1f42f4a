package session

import (
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/clr/lock"
	"clrsnap/internal/target"
	"clrsnap/profile"
)

// From .NET 11 on a monitor is a System.Threading.Lock, which the sync table leads to. So a Lock that is waited for,
// and that the table does not have, is nobody's monitor, and never will be. Apart from monitors, only
// ManualResetEventSlim has a Lock whose Condition is waited for: class Condition is internal to System.Private.CoreLib,
// a Lock makes its own (Lock.GetOrCreateCondition), and of .NET 11.0.0 no other class has a field or a variable of it.

// plainLocks are Locks that are waited for and that the sync table does not have, by their addresses, as of a stamp.
type plainLocks struct {
	stamp heap.Stamp
	since map[arch.Addr]time.Time // when it was seen; zero: it is no monitor
}

// maxPlainLocks bounds the Locks that are remembered.
const maxPlainLocks = 1 << 14

// plain returns what a thread waits for that has just been walked, and that is blocked on a Lock, or a Condition, that
// is not known to be a monitor's; "": that is not certain. stamp was taken before it was looked whether it is one.
func (s *Suspension) plain(i *lock.Info, stamp heap.Stamp) profile.WaitKind {
	p := s.Process
	p.Engine.Cache.Invalidate()
	at, err := p.Runtime.Locks.LockOf(i)
	// The collector keeps the thread's reference right: if it is what it was, the object is where it was.
	now, err2 := target.NewReader(p.from).Pointer(i.Slot)
	if err != nil || err2 != nil || now != i.Object || stamp == 0 || p.stampNow() != stamp || !s.Rests() {
		return ""
	}
	switch {
	case !p.isPlain(at, stamp):
		return ""
	case i.Condition:
		return profile.EventWait
	}
	return profile.LockEnter
}

// isPlain reports whether a Lock that is waited for, and that the sync table did not have when it was looked through
// last, is no monitor: it was there before a look that has found all monitors.
func (p *Process) isPlain(at arch.Addr, stamp heap.Stamp) bool {
	l, locks := &p.plainLocks, p.Runtime.Locks
	if l.stamp != stamp || len(l.since) >= maxPlainLocks {
		*l = plainLocks{stamp, map[arch.Addr]time.Time{}}
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
	if _, all := locks.Looked(); !all || p.stampNow() != stamp {
		return false
	}
	if _, monitor := locks.Entered(at); monitor {
		return false
	}
	l.since[at] = time.Time{}
	return true
}
