package waits

import (
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/lock"
	"clrsnap/internal/clr/pal"
	"clrsnap/internal/clr/thread"
	"clrsnap/snapshot"
)

// maxHolds bounds the named locks of a thread.
const maxHolds = 64

// Holds returns the locks that a thread holds and that the thread's stack refers to. The lock
// statement of C# keeps the object on the stack until the end of the statement, and so do using and
// finally. The state of each lock says that the thread holds the lock. The result is certain for a
// thread that has not run since the copy of the stack.
func (r *Reader) Holds(s *Subject) []snapshot.Wait {
	if s.Thread.Address == 0 || r.Managed == nil || r.Managed.Locks == nil || len(s.Frames) == 0 {
		return nil
	}
	list := r.mayHold(s)
	mutexes := r.mutexesOf(s)
	if len(list) == 0 && mutexes == nil {
		return nil
	}
	var out []snapshot.Wait
	blocked := s
	if !s.Blocked {
		blocked = nil // the stack has changed by now
	}
	stands := r.steadily(func() error {
		if r.renewed {
			list = r.mayHold(s)
			r.Managed.Seen.Begin()
		}
		out = out[:0]
		for _, f := range list {
			h, err := r.held(f, s)
			if err != nil {
				return err
			}
			if h != nil && r.isObject(f.obj) && (h.Lock == 0 || !hasLock(out, arch.Addr(h.Lock))) {
				out = append(out, *h)
			}
		}
		if mutexes == nil {
			return nil
		}
		owned, err := mutexes()
		out = withMutexes(out, owned)
		if err == nil {
			out, err = r.withNamed(out, &s.Thread)
		}
		return err
	}, blocked, primitive{outer: len(s.Frames)})
	named := make([]*snapshot.Wait, len(out))
	for i := range out {
		out[i].Certain = stands && !r.unknown && (s.Blocked || r.Live == nil)
		named[i] = &out[i]
	}
	r.nameFields(s, 0, named...)
	return out
}

// mayHold returns the objects on a stack that the thread holds, by the state of each object.
func (r *Reader) mayHold(s *Subject) (out []found) {
	if r.Managed.Heap.Begin(r.Live) != nil {
		return nil
	}
	list := r.look(s.Stack, arch.Addr(s.Frames[0].SP), s.Stack.Base+arch.Addr(len(s.Stack.Data)))
	for _, f := range list {
		if len(out) == maxHolds {
			break
		}
		if held, _ := r.held(f, s); held == nil {
			continue
		}
		if is, known := r.Managed.Heap.IsObject(f.obj); is || !known {
			out = append(out, f)
		}
	}
	return out
}

// mutexesOf returns a reader of the mutexes that a thread owns; nil: unknown.
func (r *Reader) mutexesOf(s *Subject) func() ([]pal.Object, error) {
	if r.Managed.Locks.Managed() {
		return func() ([]pal.Object, error) { return r.owned(&s.Thread) }
	}
	if b, ok := r.inNative(s, classify(s.Frames)); ok {
		return func() ([]pal.Object, error) { return r.Managed.PAL.Owned(&b) }
	}
	return nil
}

// withMutexes adds the mutexes that a thread owns and that the thread's stack does not refer to.
func withMutexes(list []snapshot.Wait, owned []pal.Object) []snapshot.Wait {
	for i := range owned {
		o := &owned[i]
		if len(list) < maxHolds && !hasLock(list, o.At) {
			list = append(list, heldMutex(snapshot.Wait{Type: mutexClass}, o))
		}
	}
	return list
}

func hasLock(list []snapshot.Wait, at arch.Addr) bool {
	return slices.ContainsFunc(list, func(w snapshot.Wait) bool { return w.Lock == uint64(at) })
}

func heldMutex(w snapshot.Wait, o *pal.Object) snapshot.Wait {
	w.Kind, w.Lock, w.Recursion, w.Waiters = snapshot.HandleOne, uint64(o.At), o.Recursion, o.Waiters
	return w
}

// held describes an object that a thread holds; nil: the thread does not hold the object.
func (r *Reader) held(f found, s *Subject) (*snapshot.Wait, error) {
	w := snapshot.Wait{Object: uint64(f.obj), Type: f.class.Display}
	switch {
	case f.class.Is(coreLib, lockClass):
		m, err := r.Managed.Locks.Lock(f.obj)
		if err != nil || !holds(&m, &s.Thread) {
			return nil, err
		}
		of, ok, err := r.Managed.Locks.OfLock(f.obj)
		if err != nil {
			return nil, err
		}
		if ok { // from .NET 11 on: the thread holds the monitor
			class, err := r.Managed.Objects.Class(of.Object)
			if err != nil {
				return nil, err
			}
			w.Object, w.Type = uint64(of.Object), class.Display
			return heldMonitor(kept(w), &of), nil
		}
		w.Kind, w.Recursion, w.Waiters = snapshot.LockEnter, m.Recursion, m.Waiters
		w.Lock, err = r.Managed.Locks.EventOf(f.obj)
		return kept(w), err
	case f.class.Is(coreLib, readerWriterClass):
		rw, err := r.readerWriter(f)
		if own := s.Thread.ManagedID; err != nil || rw.writer == own {
			w.Kind = snapshot.WriteLock
		} else if rw.upgrader == own {
			w.Kind = snapshot.UpgradeableLock
		}
		if w.Kind != "" {
			w.Waiters, w.Lock = rw.waiters, rw.id
			return kept(w), err
		}
	case f.class.Is(coreLib, mutexClass):
		if o, ok, err := r.handleState(&f); err != nil || ok && o.Owner != 0 && o.Owner == s.Thread.OSID {
			w = heldMutex(w, &o)
			return kept(w), err
		}
		if data, ok := r.namedOf(&f); ok {
			if n, err := r.named(data, &s.Thread); err == nil && n.often > 0 {
				return kept(heldNamed(w, &n)), nil
			}
		}
	}
	m, err := r.Managed.Locks.Of(f.obj)
	if err != nil || !holds(&m, &s.Thread) {
		return nil, err
	}
	w.Of = r.meaning(f.obj, f.class)
	return heldMonitor(kept(w), &m), nil
}

// kept allocates a wait: most objects that held examines are nobody's, and need no allocation.
func kept(w snapshot.Wait) *snapshot.Wait { return &w }

// HeldNow describes the lock at an address as held by a thread; nil: the thread certainly does not
// hold the lock, or the holder is unknown.
func (r *Reader) HeldNow(obj arch.Addr, t *thread.Thread) (w *snapshot.Wait) {
	s := &Subject{Thread: *t}
	stands := r.steadily(func() error {
		class, err := r.Managed.Objects.Class(obj)
		if err != nil {
			return err
		}
		w, err = r.held(found{obj, class}, s)
		return err
	}, nil, primitive{})
	if !stands {
		return nil
	}
	return w
}

// HeldAt reports whether a thread certainly holds the monitor of the object at an address, and
// nobody else wants the monitor.
func (r *Reader) HeldAt(obj uint64, managedID int) bool {
	var m lock.Monitor
	stands := r.steadily(func() (err error) {
		m, err = r.Managed.Locks.Of(arch.Addr(obj))
		return err
	}, nil, primitive{})
	return stands && m.Thin && m.Owner == managedID
}

func heldMonitor(w *snapshot.Wait, m *lock.Monitor) *snapshot.Wait {
	w.Kind, w.Recursion, w.Waiters, w.Lock = snapshot.MonitorEnter, m.Recursion, m.Waiters, uint64(m.Block)
	return w
}

// together is the number of monitors that are read as of one moment.
const together = 32

// Monitors returns the held monitors that somebody has waited for once, by the owner's operating
// system id in the target's PID namespace. all is false if there may be more.
func (r *Reader) Monitors() (held map[int][]snapshot.Wait, all bool) {
	if r.Managed == nil || r.Managed.Locks == nil {
		return nil, false
	}
	list, all, err := r.Managed.Locks.Held()
	if err != nil {
		return nil, false
	}
	held = map[int][]snapshot.Wait{}
	var now []snapshot.Wait
	for group := range slices.Chunk(list, together) {
		read := func(list []lock.Monitor) bool {
			return r.steadily(func() error { now = now[:0]; return r.described(list, &now) }, nil, primitive{})
		}
		whole := read(group)
		for i := range group {
			if !whole && !read(group[i:i+1]) {
				continue
			}
			owner, w := r.osID(&group[i]), &now[0]
			if whole {
				w = &now[i]
			}
			if len(held[owner]) == maxHolds {
				all = false
				continue
			}
			held[owner] = append(held[owner], *w)
		}
	}
	return held, all
}

// osID returns the operating system id of the holder of a monitor; 0: unknown.
func (r *Reader) osID(m *lock.Monitor) int {
	if !m.ByManagedID {
		return m.Owner
	}
	if t := r.find(func() *thread.Thread { return r.People.Managed(m.Owner) }, anybody); t != nil {
		return t.OSID
	}
	return 0
}

// described reads monitors again, and describes them.
func (r *Reader) described(list []lock.Monitor, out *[]snapshot.Wait) error {
	for _, m := range list {
		now, err := r.Managed.Locks.Of(m.Object)
		if err != nil {
			return err
		}
		if now.Owner != m.Owner || now.Thin {
			return lock.ErrChanging
		}
		c, err := r.Managed.Objects.Class(m.Object)
		if err != nil {
			return err
		}
		w := snapshot.Wait{
			Object: uint64(m.Object), Type: c.Display, Of: r.meaning(m.Object, c), Certain: true,
		}
		*out = append(*out, *heldMonitor(&w, &now))
	}
	return nil
}
