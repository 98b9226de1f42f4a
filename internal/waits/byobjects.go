package waits

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/lock"
	"clrsnap/snapshot"
)

// byObjects explains a wait by the thread's own managed objects. The objects identify the awaited
// object. So the objects also identify the primitive where the frames do not show the primitive, or
// show only the part that was not inlined. false: the objects say nothing beyond the frames.
func (e *explanation) byObjects() (done bool, err error) {
	if info, ok := e.info(); ok {
		return e.byInfo(&info)
	}
	if !unseen[e.p.kind] {
		return false, nil
	}
	s, err := e.subsystem()
	if err != nil || !s.known {
		return false, err
	}
	e.later = e.p.kind == ""
	switch {
	case !s.waits:
		return e.p.kind == "", nil
	case len(s.Objects) == 0:
		if e.p.kind == "" {
			e.w.Kind = snapshot.ThreadSleep
		}
		return e.p.kind == "", nil
	case len(s.Objects) > 1:
		e.p.kind = snapshot.HandleAny // or all: see handles
		return false, nil
	}
	e.p.guess = false
	obj, err := e.r.joined(&s.Objects[0])
	if err != nil {
		return false, err
	}
	if e.p.kind = snapshot.HandleOne; obj != 0 {
		e.p.kind = snapshot.ThreadJoin
	} else if kind := e.ofReaderWriter(&s); kind != "" {
		e.p.kind = kind
	}
	e.w.Kind = e.p.kind
	return false, nil
}

// unseen are the kinds of wait for which the frames may show too little, if callers were inlined.
var unseen = map[snapshot.WaitKind]bool{
	"": true, snapshot.HandleOne: true, snapshot.HandleAny: true, snapshot.HandleAll: true, snapshot.MonitorWait: true,
	snapshot.MonitorEnter: true, snapshot.LockEnter: true,
}

// info returns the thread's record of the awaited Lock or Condition.
func (e *explanation) info() (i lock.Info, ok bool) {
	rt := e.r.Managed
	at, ok := rt.InfoRange(e.s.Thread.Address)
	if !ok || e.s.Stack == nil {
		return i, false
	}
	if i, ok = rt.Locks.Info(at.Addr, e.s.Stack); ok {
		e.r.slot = max(i.Slot, i.At+8)
	}
	return i, ok
}

// byInfo explains a wait for a Lock or a Condition.
func (e *explanation) byInfo(i *lock.Info) (done bool, err error) {
	e.p.guess = false
	w := &monitorWait{enters: !i.Condition, timeout: timeout(i.Timeout)}
	w.read = func() (lock.Monitor, error) { return e.r.managedMonitor(i.Object, w.enters) }
	if i.Condition {
		m, err := w.read()
		if err != nil {
			return false, err
		}
		e.seePrimitive(&m)
		return true, e.monitor(w)
	}
	_, monitor, err := e.r.Managed.Locks.OfLock(i.Object)
	switch {
	case err != nil:
		return false, err
	case monitor || e.p.kind == snapshot.MonitorEnter || e.p.kind == snapshot.MonitorWait:
		return true, e.monitor(w)
	case !unseen[e.p.kind]:
		return true, nil // the Lock is a part of the primitive in the frames
	}
	e.p.kind, e.w.Kind, e.w.Timeout = snapshot.LockEnter, snapshot.LockEnter, w.timeout
	return true, e.lockAt(i.Object)
}

// semaphoreMonitor is the class of the object whose monitor a SemaphoreSlim uses
// (m_lockObjAndDisposed).
const semaphoreMonitor = "System.Runtime.CompilerServices.StrongBox<bool>"

// seePrimitive finds the primitive made of a Condition, and the primitive made of the first
// primitive, where the frames do not show them.
func (e *explanation) seePrimitive(m *lock.Monitor) {
	inner := m.Object
	if inner == 0 {
		inner = m.Lock
	}
	list := e.inFrames(true)
	of := func(p part, inner arch.Addr) (found, bool) {
		return e.r.only(list, func(f *found) bool {
			return f.class.Is(p.assembly, p.class) && e.refers(f, inner, p == taskPart)
		})
	}
	kind := e.p.kind
	if unseen[kind] || kind == snapshot.EventWait {
		if f, ok := of(eventSlim, inner); ok {
			kind = snapshot.EventWait
			if f.class.Plain() == countdownEvent {
				kind = snapshot.TaskWaitAll
			}
			for _, k := range []snapshot.WaitKind{snapshot.CountdownWait, snapshot.BarrierWait, snapshot.TaskWait} {
				if _, ok := of(madeOf[k][1], f.obj); ok {
					kind = k
				}
			}
		}
	}
	if m.Object != 0 && (unseen[kind] || kind == snapshot.SemaphoreWait) {
		if f, ok := of(semaphoreSlim, inner); ok {
			kind = snapshot.SemaphoreWait
			if c, ok := of(madeOf[snapshot.CollectionTake][1], f.obj); ok {
				kind = snapshot.CollectionTake
				if name, err := e.r.Managed.Objects.RefersTo(c.obj, c.class, f.obj); err == nil &&
					name == "_freeNodes" {
					kind = snapshot.CollectionAdd
				}
			}
		}
	}
	if unseen[kind] {
		kind = snapshot.MonitorWait
		if c, err := e.r.Managed.Objects.Class(m.Object); m.Object == 0 {
			kind, e.p.guess = snapshot.EventWait, true // a Condition of a Lock that is no monitor
		} else if err == nil && OfSemaphore(c) {
			kind = snapshot.SemaphoreWait
		}
	}
	e.p.kind, e.w.Kind = kind, kind
}

// ofReaderWriter returns the kind of lock of a ReaderWriterLockSlim that an event stands for; "":
// none.
func (e *explanation) ofReaderWriter(s *subsystem) snapshot.WaitKind {
	event, ok, err := e.waitHandle(&s.Objects[0])
	if err != nil || !ok {
		return ""
	}
	name := ""
	_, ok = e.r.only(e.inFrames(true), func(f *found) bool {
		if !f.class.Is(coreLib, readerWriterClass) {
			return false
		}
		of, err := e.r.Managed.Objects.RefersTo(f.obj, f.class, event.obj)
		if err == nil && of != "" {
			name = of
		}
		return err == nil && of != ""
	})
	if !ok {
		return ""
	}
	return readerWriterEvents[name]
}

// readerWriterEvents are the fields of a ReaderWriterLockSlim with the events that threads wait
// for.
var readerWriterEvents = map[string]snapshot.WaitKind{
	"_readEvent": snapshot.ReadLock, "_writeEvent": snapshot.WriteLock, "_waitUpgradeEvent": snapshot.WriteLock,
	"_upgradeEvent": snapshot.UpgradeableLock,
}
